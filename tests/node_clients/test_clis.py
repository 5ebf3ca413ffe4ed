"""Real command lines in front of every dialect of upstream: each call ran once, and its output
came back with it.

The upstream's log and the files that the commands left are asserted, not only what is printed.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.expected import MISSING, REFUSED, RETURNED
from tests.clients.scripted import RequestRecord
from tests.clients.world import UPSTREAMS
from tests.node_clients.clis import CLIS, Place
from tests.node_clients.conftest import Agents
from tests.node_clients.model import (
    COMMAND_SHOWS,
    DONE,
    PATCH_SHOWS,
    PATCHED,
    SECOND_SHOWS,
)
from tests.node_clients.tapped import tapped

pytestmark = pytest.mark.clients

SHOWN = {
    "text": [],
    "shell": [COMMAND_SHOWS],
    "parallel": [COMMAND_SHOWS, SECOND_SHOWS],
    "thinking": [COMMAND_SHOWS],
    "patch": [PATCH_SHOWS],
    "code": [COMMAND_SHOWS],
}
"""What the results of each scenario hold."""
LEFT = {
    "shell": ("ran.txt", ["once"]),
    "parallel": ("ran.txt", ["once", "twice"]),
    "thinking": ("ran.txt", ["once"]),
    "patch": ("made.txt", PATCHED),
    "code": ("ran.txt", ["once"]),
}
"""The file that is there afterwards, and its lines, sorted: parallel commands end in any order."""

SCENARIOS = {
    "codex": ("text", "shell", "parallel", "thinking", "patch", "code"),
    "claude-code": ("text", "shell", "parallel", "thinking"),
    "gemini-cli": ("text", "parallel", "thinking"),
    **{f"pi-{dialect}": ("parallel", "thinking") for dialect in UPSTREAMS},
}
"""What is run of each; the others, which take long to start, run two commands at once."""

PROOFS = {
    ("gemini-cli", "chat"): REFUSED,
    ("gemini-cli", "responses"): MISSING,
    ("gemini-cli", "messages"): MISSING,
}
"""What becomes of a proof of reasoning that does not come back, by client and upstream: this client
drops thoughts from its history, and the ids of its calls, by which the gateway could know them."""

MIXED = {("pi-responses", "chat", "parallel")}
"""Cells whose client mixes up two calls that are told at once: it knows one open item only, and
this chat upstream writes the pieces of its calls by turns."""

CELLS = [
    (client, upstream, scenario)
    for client in CLIS
    for upstream in UPSTREAMS
    for scenario in SCENARIOS.get(client, ("parallel",))
]


@dataclass(frozen=True)
class Ran:
    code: int
    printed: str
    log: list[RequestRecord]
    """What was asked with tools; titles and summaries are asked for without."""
    work: Path
    exchanges: list[tuple[str, int, str]]
    """Every request that the gateway got, with the status and the answer."""

    @property
    def refused(self) -> list[tuple[str, int, str]]:
        return [one for one in self.exchanges if 400 <= one[1] < 500]


@pytest.mark.parametrize(("client", "upstream", "scenario"), CELLS)
def test_a_command_line_works_with_any_upstream(
    client: str,
    upstream: str,
    scenario: str,
    agents: Agents,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    told = {"client": client, "upstream": upstream, "scenario": scenario, "mode": "run"}
    request.node.user_properties.extend(told.items())
    proof = PROOFS.get((client, upstream), RETURNED) if scenario == "thinking" else ""
    ran = run(client, f"{upstream}/{scenario}", agents, tmp_path)
    if proof == REFUSED or (client, upstream, scenario) in MIXED:
        assert [asked.status for asked in ran.log] == [200, 400]
        assert ran.log[-1].refusal.partition(":")[0] in ran.printed
        return
    worked(ran, scenario)
    assert ran.exchanges
    assert ran.refused == []
    if proof:
        assert ran.log[-1].asked.proofs == [proof]


def worked(ran: Ran, scenario: str) -> None:
    """Every call was answered once, by what its command shows, and the file is there."""
    assert ran.code == 0, ran.printed[-4000:]
    assert [(asked.status, asked.refusal) for asked in ran.log] == [(200, "")] * len(ran.log)
    assert DONE in ran.printed
    results = ran.log[-1].asked.results
    handed = [call for asked in ran.log for call in asked.handed]
    shown = [shows in one.text for shows, one in zip(SHOWN[scenario], results, strict=True)]
    assert shown == [True] * len(handed)
    if scenario in LEFT:
        name, lines = LEFT[scenario]
        assert sorted((ran.work / name).read_text(encoding="utf-8").splitlines()) == lines


def run(client: str, model: str, agents: Agents, folder: Path) -> Ran:
    tag = agents.tag()
    home, work = folder / "home", folder / "work"
    home.mkdir()
    (work / ".git").mkdir(parents=True)
    with tapped(agents.gateway.url) as tap:
        place = Place(tap.url, model, home, work)
        code, printed = CLIS[client].run(place, f"Please do it. [case {tag}]")
    log = [asked for asked in agents.upstream.of(tag) if asked.asked.tools or asked.refusal]
    return Ran(code, printed, log, work, tap.exchanges)
