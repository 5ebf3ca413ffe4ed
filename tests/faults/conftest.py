"""One upstream and one gateway for each worker; whatever needs other settings starts its own."""

import socket
from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream, upstream
from tests.faults.wires import CHAT
from tests.faults.world import HEADLESS, PATIENT, SILENT, World, place, places, world


@pytest.fixture(scope="session")
def faulty() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="session")
def deaf() -> Iterator[str]:
    """The address of a port at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(scope="session")
def shared(
    faulty: Upstream, deaf: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A gateway with an upstream of each dialect (`openai-chat` …), and the same ones that must
    respond at once (`headless-…`) or go on at once (`silent-…`), that refuse connections
    (`deaf-…`), without an address (`nowhere`), and at a port that speaks no TLS (`plain-…`)."""
    settings = "\n".join(
        (
            "[server]\ngrace = 0.3\n",
            places(faulty.url),
            places(faulty.url, "headless-", **HEADLESS),
            places(faulty.url, "silent-", **SILENT),
            places(f"http://{deaf}", "deaf-"),
            place("nowhere", CHAT, "http://nowhere.invalid", **PATIENT),
            places(faulty.url.replace("http", "https"), "plain-"),
        )
    )
    with world(settings, tmp_path_factory.mktemp("shared"), faulty) as made:
        yield made
