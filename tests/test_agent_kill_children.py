"""SIGKILL at every place of a run that calls another agent, which has tools of its own.

As `test_agent_kill.py`, and: no run is started twice for a call, no result is lost, and both runs
end.
"""

import asyncio
import random
from pathlib import Path

import pytest

from tests.agent_kills import (
    BACKENDS,
    Backend,
    Site,
    effects_at_most_once,
    finished_run,
    site,
    survive,
)
from tests.agent_processes import KillingStore
from tests.agent_upstream import by_agent, by_turn, call, calls, text
from weft.agent.events import CallIntended
from weft.store.records import RunEvent, RunRow

SCRIPT = by_agent(
    H=by_turn(
        calls(call(0, "a", "child", {"input": "Go."}), call(1, "b", "mail", {"to": "me"})),
        calls(call(0, "c", "child", {"input": "Again."})),
        text("Done."),
    ),
    D=by_turn(
        calls(call(0, "a", "mail", {"to": "you"}), call(1, "b", "upsert", {"row": 1})),
        text("It is done."),
    ),
)
"""An agent is called once beside another tool, and once alone."""

PLACES = {"before": 29, "after": 29, "effect": 5}
"""How often runs that nobody kills come to each place, at least: a test checks it."""

MORE = 4
"""How much above, depending on who is faster."""

KILLS = [f"{place}:{at}" for place, times in PLACES.items() for at in range(1, times + MORE + 1)]


async def check(there: Site) -> None:
    async with KillingStore.opened(there.url) as store:
        rows = (await store.runs("")).runs
        logs = {row.id: await store.run_events(row.id) for row in rows}
        entries = await store.entries()
    assert sorted(row.agent for row in rows) == ["child", "child", "helper"], "one run for a call"
    completed = {response for row in rows for response in check_run(row, logs[row.id])}
    assert {entry.id for entry in entries if entry.status == "completed"} == completed
    assert all(entry.ended is not None for entry in entries), "no response is left behind"
    assert len(effects_at_most_once(there.folder)) == 5


def check_run(row: RunRow, stored: list[RunEvent]) -> set[str]:
    """Returns the responses of its turns, each of which has its receipt."""
    state, events = finished_run(row, stored)
    started = [event.call for event in events if isinstance(event, CallIntended) and event.child]
    assert started == (["a", "c"] if row.agent == "helper" else [])
    return {turn.response for turn in state.turns}


def test_runs_that_nobody_kills_come_to_all_places(tmp_path: Path) -> None:
    with site("sqlite", tmp_path, SCRIPT) as there:
        *words, before, after, effect = there.process("")
        assert words == ["rests", "run.finished"]
        counts = zip((before, after, effect), PLACES.values(), strict=True)
        assert all(0 <= int(count) - least <= MORE for count, least in counts)
        asyncio.run(check(there))


@pytest.mark.parametrize("kill", ["after:4", "before:20"])
def test_agents_that_call_agents_survive_kill_9(kill: str, tmp_path: Path) -> None:
    survive("sqlite", tmp_path, SCRIPT, check, kill)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kill", KILLS)
def test_agents_that_call_agents_survive_kill_9_everywhere(
    kill: str, backend: Backend, tmp_path: Path
) -> None:
    survive(backend, tmp_path, SCRIPT, check, kill)


PAIRS = [tuple(random.Random(seed).choices(KILLS, k=2)) for seed in range(12)]


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_agents_that_call_agents_survive_two_kills(
    first: str, second: str, backend: Backend, tmp_path: Path
) -> None:
    survive(backend, tmp_path, SCRIPT, check, first, second)
