"""SIGKILL before and after every append, and after every effect: a real process, real databases.

A first process is killed at one place, a second one goes on; a person settles what is parked, by
looking at what has really happened. Whatever the place: no effect of a `once` tool happens twice,
every call is closed once, a nameless one is never run, the run ends, and the store is consistent.
"""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent_processes import KillingStore, effects, runtime_on, to_rest
from tests.agent_upstream import AgentUpstream, agent_upstream, by_turn, call, calls, text
from tests.stores import Kind, empty
from weft.agent.events import (
    AnyRunEvent,
    CallFinished,
    CallIntended,
    CallRefused,
    CallResolved,
    decode_event,
)
from weft.agent.lifecycle import CLOSED
from weft.agent.state import fold

SCRIPT = by_turn(
    calls(
        call(0, "a", "mail", {"to": "me"}),
        call(1, "b", "look", {"at": "it"}),
        call(2, "", "", "{}"),  # nameless
    ),
    calls(
        call(0, "c", "pay", {"amount": 3}),
        call(1, "d", "upsert", {"row": 1}),
        call(2, "e", "book", {"seat": 4}),
    ),
    calls(call(0, "f", "mail", {"to": "you"})),
    text("Done."),
)
AT_MOST_ONCE = {"mail", "pay"}
PLACES = {"before": 21, "after": 21, "effect": 5}
"""How often a run that nobody kills comes to each place: a test checks it."""


@dataclass(frozen=True)
class Site:
    """Where the processes of one run work."""

    url: str
    folder: Path
    upstream: AgentUpstream

    def process(self, kill: str) -> list[str]:
        """Runs a process until it rests or is killed; returns the words it said last."""
        command = [sys.executable, "-m", "tests.agent_processes", self.url, self.upstream.url]
        done = subprocess.run(
            [*command, str(self.folder), kill], capture_output=True, text=True, timeout=60
        )
        # After a first kill, a second process need not come to the place.
        assert done.returncode in ((0, -9) if kill else (0,)), done.stderr
        return done.stdout.splitlines()[-1].split() if done.stdout else []


@contextmanager
def site(kind: Kind, folder: Path) -> Iterator[Site]:
    with agent_upstream(SCRIPT) as upstream:
        found = Site(empty(kind, folder), folder, upstream)

        async def prepare() -> None:
            async with KillingStore.opened(found.url) as store:
                await store.make_seats()

        asyncio.run(prepare())
        yield found


async def settle(there: Site) -> None:
    """Goes on with the run to its end. A person looks what has happened to parked calls."""
    async with runtime_on(there.url, there.upstream.url, there.folder) as (runtime, _, _):
        id = await runtime.start("helper", "Go.", key="the run")
        while (await to_rest(runtime, id))[0] == "run.waiting":
            for one in (await runtime.state(id)).open_calls:
                happened = any(line.startswith(f"{id}/{one.id} ") for line in effects(there.folder))
                await runtime.resolve(id, one.id, "done" if happened else "retry", by="me")


async def check(there: Site) -> list[AnyRunEvent]:
    async with KillingStore.opened(there.url) as store:
        [row] = (await store.runs("")).runs
        stored = await store.run_events(row.id)
        seats = await store.seats()
        entries = await store.entries()
    events = [decode_event(one.body) for one in stored]
    state = fold(row.id, [(event, one.at) for event, one in zip(events, stored, strict=True)])
    assert row.status == "finished"
    assert all(one.state is CLOSED for one in state.calls.values())
    happened = Counter(effects(there.folder))
    for line, count in happened.items():
        assert count == 1 or line.split()[1] not in AT_MOST_ONCE, f"{line}: {count} times"
    assert {line.split()[1] for line in happened} == {"mail", "look", "pay", "upsert"}
    assert seats == [(4, f"{row.id}/e")]
    intended = {event.call for event in events if isinstance(event, CallIntended)}
    assert all(state.calls[one].judged.name for one in intended), "a nameless call was run"
    closed = Counter(
        event.call
        for event in events
        if isinstance(event, CallFinished | CallRefused)
        or (isinstance(event, CallResolved) and event.action != "retry")
    )
    assert set(closed.values()) == {1}
    assert all(entry.ended is not None for entry in entries), "no response is left behind"
    completed = {entry.id for entry in entries if entry.status == "completed"}
    assert completed == {turn.response for turn in state.turns}, "a turn without its receipt"
    return events


def verify(there: Site) -> None:
    """`weft verify` finds nothing."""
    settings = there.folder / "weft.toml"
    settings.write_text(f"[store]\nurl = {json.dumps(there.url)}\n")
    command = [sys.executable, "-m", "weft", "verify", "--config", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def survive(kind: Kind, folder: Path, *kills: str) -> None:
    with site(kind, folder) as there:
        for kill in kills:
            there.process(kill)
        asyncio.run(settle(there))
        asyncio.run(check(there))
        verify(there)


def test_a_run_that_nobody_kills_comes_to_all_places(tmp_path: Path) -> None:
    with site("sqlite", tmp_path) as there:
        words = there.process("")
        assert words == ["rests", "run.finished", *map(str, PLACES.values())]
        asyncio.run(check(there))
        verify(there)


ALL = [f"{place}:{number}" for place, times in PLACES.items() for number in range(1, times + 1)]
SOME = ["before:2", "after:8", "effect:1"]


@pytest.mark.parametrize("kill", SOME)
def test_a_run_survives_kill_9(kill: str, tmp_path: Path) -> None:
    survive("sqlite", tmp_path, kill)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("kill", ALL)
def test_a_run_survives_kill_9_everywhere(kill: str, kind: Kind, tmp_path: Path) -> None:
    survive(kind, tmp_path, kill)


PAIRS = [tuple(random.Random(seed).choices(ALL, k=2)) for seed in range(12)]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_run_survives_two_kills(first: str, second: str, kind: Kind, tmp_path: Path) -> None:
    survive(kind, tmp_path, first, second)
