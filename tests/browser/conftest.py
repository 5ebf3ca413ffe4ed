"""One browser and one server for each module of tests."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.tabs import Tab, launched, tab
from tests.faults.upstream import Upstream, upstream
from tests.faults.world import PATIENT, World, place, world

SETTINGS = """
[upstreams.demo]
dialect = "openai-chat"
base_url = "demo:fast"

[agents.clerk]
model = "demo/agent"
instructions = "Help with orders."
tools = ["weft.agent.demo:order_status", "weft.agent.demo:refund"]
"""


# Not of the session: the synchronous API of playwright has an event loop in this thread, and no
# test of another module could start its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as made:
        yield made


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def server(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    settings = place("chat", "openai-chat", behind.url, **PATIENT) + SETTINGS
    with world(settings, tmp_path_factory.mktemp("page"), behind) as made:
        yield made


@pytest.fixture
def here(browser: Browser, server: World) -> Iterator[Tab]:
    """A tab, before it has opened anything."""
    with tab(browser, server.gateway.url) as made:
        yield made
