"""The gateway between agents and their model, and the table at the end.

Nothing here is collected unless the marker is asked for: the clients are installed from npm.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tests.clients.scripted import Upstream
from tests.clients.vendor import KEY
from tests.clients.world import settings
from tests.gateway_process import Gateway, gateway
from tests.node_clients.model import agents_model

MARKER = "clients"
MARKS = {"passed": "\N{CHECK MARK}", "failed": "\N{BALLOT X}"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}: clients from npm; run by `make test-clients`")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = str(config.option.markexpr)
    return None if MARKER in asked and f"not {MARKER}" not in asked else True


@dataclass
class Agents:
    """What a command line talks to."""

    upstream: Upstream
    gateway: Gateway
    _tags: Iterator[int]

    def tag(self) -> str:
        return f"a{next(self._tags)}"


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("gateway")
    environment = {**os.environ, "PLANTED_KEY": KEY}
    with (
        agents_model() as upstream,
        gateway(settings(upstream.url), folder, environment=environment) as running,
    ):
        yield Agents(upstream, running, count(1))
    assert KEY not in running.stderr + running.stdout
    assert running.process.returncode == 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    cells = [
        dict(report.user_properties) | {"outcome": report.outcome}
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if report.when == "call"
    ]
    lines = table([cell for cell in cells if "client" in cell])
    if lines:
        terminalreporter.section("clients from npm through the gateway")
        for line in lines:
            terminalreporter.write_line(line)


def table(cells: list[dict[str, str]]) -> list[str]:
    """A line for each client and upstream: its scenarios, and what became of them."""
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        mark = MARKS[cell["outcome"]]
        rows.setdefault((cell["client"], cell["upstream"]), []).append(f"{cell['scenario']} {mark}")
    return [
        f"{client:22} {upstream:10} {'  '.join(told)}" for (client, upstream), told in rows.items()
    ]
