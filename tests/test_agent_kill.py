"""SIGKILL before and after every append, and after every effect: a real process, real databases.

A first process is killed at one place, a second one goes on; a person settles what is parked, by
looking at what has really happened. Whatever the place: no effect of a `once` tool happens twice,
every call is closed once, a nameless one is never run, the run ends, and the store is consistent.
"""

import asyncio
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec import Raw

from tests.agent_kills import (
    BACKENDS,
    Backend,
    Site,
    effects_at_most_once,
    finished_run,
    settle,
    site,
    survive,
    verify,
)
from tests.agent_processes import CONVERSATION, KillingStore, effects
from tests.agent_upstream import by_turn, call, calls, text
from weft.agent.events import CallIntended
from weft.relay.history import read_shape

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
ADDED = [
    *["message"] * 2,  # the earlier one, and the input
    *["function_call"] * 2,  # without the nameless one
    *["function_call_output"] * 2,
    *["function_call"] * 3,
    *["function_call_output"] * 3,
    *["function_call", "function_call_output"],
    "message",
]
"""The items of the conversation after the run: each of them once."""

PLACES = {"before": 21, "after": 21, "effect": 5}
"""How often a run that nobody kills comes to each place: a test checks it."""


async def check(there: Site) -> None:
    async with KillingStore.opened(there.url) as store:
        [row] = (await store.runs("")).runs
        stored = await store.run_events(row.id)
        seats = await store.seats()
        entries = await store.entries()
        items = await store.items(CONVERSATION, limit=100)
    state, events = finished_run(row, stored)
    assert [read_shape(Raw(one.data)).type for one in items.items] == ADDED
    happened = effects_at_most_once(there.folder)
    assert {line.split()[1] for line in happened} == {"mail", "look", "pay", "upsert"}
    assert seats == [(4, f"{row.id}/e")]
    intended = {event.call for event in events if isinstance(event, CallIntended)}
    assert all(state.calls[one].judged.name for one in intended), "a nameless call was run"
    assert all(entry.ended is not None for entry in entries), "no response is left behind"
    completed = {entry.id for entry in entries if entry.status == "completed"}
    assert completed == {turn.response for turn in state.turns}, "a turn without its receipt"


def test_a_run_that_nobody_kills_comes_to_all_places(tmp_path: Path) -> None:
    with site("sqlite", tmp_path, SCRIPT) as there:
        words = there.process("")
        assert words == ["rests", "run.finished", *map(str, PLACES.values())]
        asyncio.run(check(there))
        verify(there)


ALL = [f"{place}:{number}" for place, times in PLACES.items() for number in range(1, times + 1)]
SOME = ["after:8", "effect:1"]


@pytest.mark.parametrize("kill", SOME)
def test_a_run_survives_kill_9(kill: str, tmp_path: Path) -> None:
    survive("sqlite", tmp_path, SCRIPT, check, kill)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kill", ALL)
def test_a_run_survives_kill_9_everywhere(kill: str, backend: Backend, tmp_path: Path) -> None:
    survive(backend, tmp_path, SCRIPT, check, kill)


PAIRS = [tuple(random.Random(seed).choices(ALL, k=2)) for seed in range(12)]


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_run_survives_two_kills(
    first: str, second: str, backend: Backend, tmp_path: Path
) -> None:
    survive(backend, tmp_path, SCRIPT, check, first, second)


# Frozen


FROZEN = {
    "mail": {"to": "me"},  # parked, and a person has it run again
    "pay": {"amount": 3},  # looked up, and run again
    "book": {"seat": 4},  # in the transaction of its receipt
}


@pytest.mark.long
@pytest.mark.parametrize("backend", ["postgres", "pgqueuer"])
@pytest.mark.parametrize("name", FROZEN)
def test_a_process_frozen_between_intent_and_effect_does_not_act(
    name: str, backend: Backend, tmp_path: Path
) -> None:
    """It is taken for dead, another one makes the call, and then it wakes up. (Not on SQLite: a
    process that is stopped in a transaction there blocks everybody.)"""
    script = by_turn(calls(call(0, "a", name, FROZEN[name])), text("Done."))
    with site(backend, tmp_path, script) as there:
        command = there.command("freeze:call.intended")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as frozen:
            try:
                _, state = os.waitpid(frozen.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(state)
                assert effects(tmp_path) == []
                asyncio.run(settle(there))
            finally:
                frozen.send_signal(signal.SIGCONT)
            said, _ = frozen.communicate(timeout=60)
        assert (frozen.returncode, "run.finished" in said) == (0, True)
        asyncio.run(acted_once(there, name))
        verify(there)


async def acted_once(there: Site, name: str) -> None:
    async with KillingStore.opened(there.url) as store:
        [row] = (await store.runs("")).runs
        stored = await store.run_events(row.id)
        seats = await store.seats()
    assert row.status == "finished"
    expected = [] if name == "book" else [f"{row.id}/a {name}"]
    assert effects(there.folder) == expected
    assert seats == ([(4, f"{row.id}/a")] if name == "book" else [])
    epochs = [event.epoch for event in stored if event.epoch]
    assert epochs == sorted(epochs), "it wrote after its successor"
    assert len(set(epochs)) > 1, "nobody has taken over"
