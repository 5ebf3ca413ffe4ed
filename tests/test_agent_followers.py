"""Followers of runs that other processes work on: what they learn, and what they cost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent_processes import KillingStore, Places, runtime_on
from tests.agent_runs import ASKED
from tests.agent_upstream import agent_upstream, by_turn, call, calls, text
from tests.stores import Kind, empty
from tests.test_agent_segment import NobodyResponds
from weft.agent.agents import Agent
from weft.agent.definition import AgentDefinition
from weft.agent.events import (
    AnyRunEvent,
    MessageAdded,
    RunCancelled,
    RunCreated,
    encode_event,
)
from weft.agent.merge import CallProgress
from weft.agent.runtime import AgentRuntime
from weft.agent.tools import ToolContext, tool
from weft.store.base import StoreError
from weft.store.records import NewRun, RunAppend, RunEvent, RunRow
from weft.store.runs import IDS_AT_A_TIME

KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
CREATED = RunCreated(AgentDefinition("helper", "m"), (ASKED,))
RUNS = [f"run_{number}" for number in range(2 * IDS_AT_A_TIME + 1)]


class CountingStore(KillingStore):
    """Counts what followers ask for."""

    def __init__(self, url: str) -> None:
        super().__init__(url, Places())
        self.looked = asyncio.Condition()
        self.looks = self.reads = 0
        self.broken = False

    async def last_events(self, ids: Sequence[str]) -> dict[str, int]:
        if self.broken:
            raise StoreError("gone", "lost")
        found = await super().last_events(ids)
        async with self.looked:
            self.looks += 1
            self.looked.notify_all()
        return found

    async def run(self, id: str) -> RunRow | None:
        if self.broken:
            raise StoreError("gone", "lost")
        self.reads += 1
        return await super().run(id)

    async def look(self, times: int) -> None:
        """Returns when there were so many more looks."""
        wanted = self.looks + times
        async with self.looked:
            await self.looked.wait_for(lambda: self.looks >= wanted)


async def append(store: KillingStore, run: str, at: int, event: AnyRunEvent) -> None:
    ended = isinstance(event, RunCancelled)
    events = [(event.kind, encode_event(event))]
    status = "cancelled" if ended else "waiting"
    await store.append_run(RunAppend(run=run, at=at, events=events, status=status, ended=ended))


@asynccontextmanager
async def followed(
    url: str, runs: Sequence[str]
) -> AsyncIterator[tuple[CountingStore, "list[asyncio.Task[list[str]]]"]]:
    """Runs that this process only follows, each by a task that returns its kinds of events."""
    store = CountingStore(url)
    await store.open()
    first = [(CREATED.kind, encode_event(CREATED))]
    for id in runs:
        await store.create_run(
            NewRun(id=id, owner="", agent="helper", status="waiting", events=first, due=None)
        )
    runtime = AgentRuntime(store, [], NobodyResponds())

    async def kinds(id: str) -> list[str]:
        return [event.kind async for event in runtime.events(id)]

    tasks = [asyncio.create_task(kinds(id)) for id in runs]
    try:
        yield store, tasks
    finally:
        await runtime.close()
        await asyncio.wait(tasks)
        await store.close()


def play(
    kind: Kind,
    folder: Path,
    runs: Sequence[str],
    scene: "Callable[[CountingStore, list[asyncio.Task[list[str]]]], Awaitable[None]]",
) -> None:
    async def main() -> None:
        async with followed(empty(kind, folder), runs) as (store, tasks), asyncio.timeout(60):
            await scene(store, tasks)

    asyncio.run(main())


@KINDS
def test_followers_of_runs_that_wait_share_one_look(kind: Kind, tmp_path: Path) -> None:
    async def scene(store: CountingStore, tasks: list[asyncio.Task[list[str]]]) -> None:
        told = 2 * len(RUNS)  # each has begun, and was told once
        while store.reads < told:
            await store.look(1)
        await store.look(3)
        assert store.reads == told
        for id in (RUNS[0], RUNS[-1]):
            await append(store, id, 1, RunCancelled("me"))
        assert await tasks[0] == await tasks[-1] == ["run.created", "run.cancelled"]
        assert [task.done() for task in tasks[1:-1]] == [False] * (len(RUNS) - 2)

    play(kind, tmp_path, RUNS, scene)


def test_whoever_follows_a_run_that_is_removed_is_done(tmp_path: Path) -> None:
    async def scene(store: CountingStore, tasks: list[asyncio.Task[list[str]]]) -> None:
        await store.look(2)
        await append(store, RUNS[0], 1, MessageAdded(ASKED))
        await append(store, RUNS[0], 2, RunCancelled("me"))
        await store.delete_run("", RUNS[0])
        await tasks[0]
        assert not tasks[1].done()

    play("sqlite", tmp_path, RUNS[:2], scene)


def test_a_follower_meets_the_error_of_the_store(tmp_path: Path) -> None:
    async def scene(store: CountingStore, tasks: list[asyncio.Task[list[str]]]) -> None:
        await store.look(2)
        store.broken = True
        with pytest.raises(StoreError, match="gone"):
            await tasks[0]

    play("sqlite", tmp_path, RUNS[:1], scene)


def test_progress_stands_before_the_receipt_that_was_read_with_it(tmp_path: Path) -> None:
    """Whoever is slow reads the receipt in the same look into the log as the intent; the progress
    has come meanwhile."""
    going = asyncio.Event()

    @tool(retry="pure")
    async def pack(context: ToolContext) -> str:
        """Packs."""
        await going.wait()
        for part in ("half", "all"):
            await context.progress(part)
        return "packed"

    async def main(upstream: str) -> None:
        agent, url = Agent("helper", "m/m", "Help.", [pack]), empty("sqlite", tmp_path)
        async with (
            asyncio.timeout(30),
            runtime_on(url, upstream, tmp_path, agent=agent) as (runtime, _, _),
        ):
            id = await runtime.start("helper", "Pack.")
            told = runtime.follow(id)
            async for event in told:
                if isinstance(event, RunEvent) and event.kind == "call.intended":
                    break
            going.set()
            async for _ in runtime.events(id):  # until the run has ended
                pass
            rest = [one.text if isinstance(one, CallProgress) else one.kind async for one in told]
            assert rest[:3] == ["half", "all", "call.finished"]

    with agent_upstream(by_turn(calls(call(0, "c", "pack", {})), text("Done."))) as upstream:
        asyncio.run(main(upstream.url))
