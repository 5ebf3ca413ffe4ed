"""Command lines with an agent of Weft as their model: each runs the commands that it is asked to
run, and none of the calls that the agent has run itself.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent_upstream import AgentUpstream, Chunks, agent_upstream, call, calls, text
from tests.gateway_process import gateway
from tests.node_clients.clis import CLIS, Place
from tests.node_clients.tapped import tapped

pytestmark = pytest.mark.clients

SHOP = '''
import pathlib, weft
FOLDER = pathlib.Path(__file__).parent

@weft.tool
def look(order: str) -> str:
    """Looks up an order."""
    with (FOLDER / "looks").open("a") as file:
        file.write(order + "\\n")
    return f"{order} goes to Prague"
'''
SETTINGS = """
[store]
url = "sqlite:///agents.db"
[upstreams.m]
dialect = "openai-chat"
base_url = {upstream}
[agents.helper]
model = "m/m"
tools = ["agent_shop_tools:look"]
"""
COMMAND = "echo once >> ran.txt; echo $((40000 + 2))"
SHOWS = "40002"
"""What the command shows, and nobody could know without running it."""

DONE = "All of it is done."


def answer(body: dict[str, Any]) -> Chunks:
    """Looks something up, has the client run a command, and is done."""
    results = [str(one["content"]) for one in body["messages"] if one["role"] == "tool"]
    offered = {one["function"]["name"]: one["function"] for one in body.get("tools", [])}
    command = shell_call(offered)
    if command is None:  # the client wants a title or a summary
        return text("A title.")
    if not results:
        return calls(call(0, "a", "look", {"order": "order-1"}))
    if len(results) == 1:
        return calls(call(0, "b", *command))
    return text(DONE if SHOWS in results[1] else f"What is {results[1]!r}?")


def shell_call(offered: dict[str, Any]) -> tuple[str, dict[str, str]] | None:
    """A call of what the client has for commands; None if it offers nothing."""
    for name, key in (("exec_command", "cmd"), ("shell_command", "command"), ("Bash", "command")):
        if name in offered:
            return name, {key: COMMAND}
    return None


@pytest.fixture
def upstream() -> Iterator[AgentUpstream]:
    with agent_upstream(lambda _: answer(made.requests[-1])) as made:
        yield made


@pytest.mark.parametrize("client", ["codex", "claude-code"])
def test_a_command_line_runs_its_own_commands_and_no_call_of_the_agent(
    client: str, upstream: AgentUpstream, tmp_path: Path
) -> None:
    home, work, served = tmp_path / "home", tmp_path / "work", tmp_path / "served"
    for folder in (home, work / ".git", served):
        folder.mkdir(parents=True)
    (served / "agent_shop_tools.py").write_text(SHOP)
    settings = SETTINGS.format(upstream=json.dumps(upstream.url))
    with gateway(settings, served) as running, tapped(running.url) as tap:
        code, printed = CLIS[client].run(Place(tap.url, "helper", home, work), "Please do it.")
    assert code == 0, printed[-4000:]
    assert DONE in printed
    assert [one for one in tap.exchanges if one[1] >= 400] == []
    assert (work / "ran.txt").read_text() == "once\n"
    assert (served / "looks").read_text() == "order-1\n"
