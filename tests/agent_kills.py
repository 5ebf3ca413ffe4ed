"""Runs whose processes are killed: where they work, how they go on, and what always holds."""

import asyncio
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests import weft_command
from tests.agent_processes import (
    CONVERSATION,
    LASTING,
    LEASE,
    KillingStore,
    effects,
    runtime_on,
    to_rest,
    write_words,
)
from tests.agent_upstream import AgentUpstream, Script, agent_upstream
from tests.agent_workers import NEVER
from tests.stores import empty
from weft.agent.events import (
    AnyRunEvent,
    CallFinished,
    CallRefused,
    CallResolved,
    decode_event,
)
from weft.agent.lifecycle import CLOSED, PARKED
from weft.agent.state import RunState, fold
from weft.store.records import Conversation, Item, RunEvent, RunRow

EARLIER = Item("msg_1", b'{"type":"message","role":"user","content":"Hello."}')
"""What the conversation of the run begins with."""

AT_MOST_ONCE = {"mail", "pay"}

FORKED = multiprocessing.get_context("forkserver")
"""A process takes the time of its work, not that of some hundred imports."""
FORKED.set_forkserver_preload(["tests.agent_processes"])

Backend = Literal["sqlite", "postgres", "pgqueuer"]
BACKENDS: tuple[Backend, ...] = ("sqlite", "postgres", "pgqueuer")
"""The last one is PostgreSQL with the queue; with the others each process looks into the store."""


@dataclass(frozen=True)
class Site:
    """Where the processes of one run work."""

    url: str
    folder: Path
    upstream: AgentUpstream
    sweep: float | None = None
    """The interval of the sweep beside the queue; None: no queue."""

    def command(self, kill: str) -> list[str]:
        """A process that works on the run."""
        command = [sys.executable, "-m", "tests.agent_processes", self.url, self.upstream.url]
        interval = "local" if self.sweep is None else str(self.sweep)
        return [*command, str(self.folder), interval, kill]

    def process(self, kill: str) -> list[str]:
        """Runs a process until it rests or is killed; returns the words it said last."""
        words = self.folder / "words"
        given = (self.url, self.upstream.url, self.folder, self.sweep, kill)
        done = FORKED.Process(target=write_words, args=(words, *given))
        done.start()
        done.join(60)
        has_ended = done.exitcode is not None
        done.kill()
        done.join()
        printed = words.read_text()
        assert has_ended, printed
        # After a first kill, a second process need not come to the place.
        assert done.exitcode in ((0, -9) if kill else (0,)), printed
        return printed.splitlines()[-1].split() if printed else []


@contextmanager
def site(backend: Backend, folder: Path, script: Script) -> Iterator[Site]:
    with agent_upstream(script) as upstream:
        url = empty("sqlite" if backend == "sqlite" else "postgres", folder)
        found = Site(url, folder, upstream, NEVER if backend == "pgqueuer" else None)

        async def prepare() -> None:
            async with KillingStore.opened(found.url) as store:
                await store.make_seats()
                await store.create_conversation(Conversation(CONVERSATION, "", 1.0), [EARLIER])

        asyncio.run(prepare())
        yield found


async def settle(there: Site) -> None:
    """Goes on with the run to its end. A person looks what has happened to parked calls, in this
    run and in its descendants."""
    async with runtime_on(
        there.url,
        there.upstream.url,
        there.folder,
        lease=LEASE,
        sweep=there.sweep,
        run_lease=LASTING,  # nobody kills this process
    ) as (runtime, store, _):
        id = await runtime.start("helper", "Go.", key="the run")
        while (await to_rest(runtime, id))[0] == "run.waiting":
            for row in (await store.runs("")).runs:
                state = await runtime.state(row.id)
                for one in state.open_calls if state.end is None else ():
                    if one.state is PARKED:
                        key = f"{row.id}/{one.id} "
                        happened = any(line.startswith(key) for line in effects(there.folder))
                        action: Literal["done", "retry"] = "done" if happened else "retry"
                        await runtime.resolve(row.id, one.id, action, by="me")


def finished_run(row: RunRow, stored: Sequence[RunEvent]) -> tuple[RunState, list[AnyRunEvent]]:
    """A run that has finished, and each of whose calls was closed once."""
    events = [decode_event(one.body) for one in stored]
    state = fold(row.id, [(event, one.at) for event, one in zip(events, stored, strict=True)])
    assert row.status == "finished"
    assert all(one.state is CLOSED for one in state.calls.values())
    closed = Counter(
        event.call
        for event in events
        if isinstance(event, CallFinished | CallRefused)
        or (isinstance(event, CallResolved) and event.action != "retry")
    )
    assert {*closed.values()} == {1}
    return state, events


def effects_at_most_once(folder: Path) -> list[str]:
    """What has happened; of what may happen once, nothing twice."""
    happened = Counter(effects(folder))
    for line, count in happened.items():
        assert count == 1 or line.split()[1] not in AT_MOST_ONCE, f"{line}: {count} times"
    return [*happened]


def survive(
    backend: Backend,
    folder: Path,
    script: Script,
    check: Callable[[Site], Awaitable[object]],
    *kills: str,
) -> None:
    """Kills processes at these places, one after the other, and then lets the run end."""

    async def go_on(there: Site) -> None:
        await settle(there)
        await check(there)

    with site(backend, folder, script) as there:
        for kill in kills:
            there.process(kill)
        asyncio.run(go_on(there))
        verify(there)


def verify(there: Site) -> None:
    """`weft verify` finds nothing."""
    settings = there.folder / "weft.toml"
    settings.write_text(f"[store]\nurl = {json.dumps(there.url)}\n")
    done = weft_command.run("verify", "--config", settings)
    assert done.code == 0, done.out + done.err
