"""Several processes work on the runs of one store: real databases, real signals.

Whatever happens to the processes, the queue and the database: every run ends, once, within the time
that the lease allows, and nothing that may happen once happens twice. The sweep is off in most
tests, so that nothing but the queue can have told of a run.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent_processes import effects, runtime_on
from tests.agent_upstream import AgentUpstream, Script, agent_upstream, by_turn, call, calls, text
from tests.agent_workers import NEVER, HeldScript, WorkerProcess, workers
from tests.queue_tables import query_queue, until_rows
from tests.stores import Kind, empty, postgres
from weft.agent.agents import Agent
from weft.agent.definition import Limits
from weft.agent.events import decode_event
from weft.agent.runtime import AgentRuntime
from weft.agent.state import IllegalEvent, fold
from weft.agent.tools import tool
from weft.store.records import RunEvent

pytestmark = pytest.mark.long  # several processes each, and leases that expire

LEASE = 4.0
"""Of those that are killed. A machine that pauses for two seconds costs nobody such a lease."""
LASTING = 20.0
"""Of those that live: nobody waits for its end."""

LONG = 300.0
"""A lease that does not expire during a test, nor does anybody look without being told."""

TAKEN_OVER = LEASE * (1 + 1 / 5) + 10.0
"""Seconds until the run of a dead process is worked on: its lease, the interval between two looks,
and the time that a loaded machine needs."""

MAIL = by_turn(calls(call(0, "a", "mail", {"to": "me"})), text("Done."))


@dataclass(frozen=True)
class Cluster:
    """One store, its upstream, and how its processes learn of runs."""

    url: str
    upstream: AgentUpstream
    folder: Path
    sweep: float | None

    def workers(
        self, count: int, lease: float = LEASE, runs: int = 0
    ) -> AbstractContextManager[list[WorkerProcess]]:
        return workers(count, self.url, self.upstream.url, self.folder, lease, self.sweep, runs)

    @asynccontextmanager
    async def outside(self, agent: Agent | None = None) -> AsyncIterator[AgentRuntime]:
        """A process that starts runs, and works on none."""
        async with runtime_on(
            self.url,
            self.upstream.url,
            self.folder,
            agent=agent,
            lease=LEASE,
            sweep=self.sweep,
            serving=False,
        ) as (runtime, _, _):
            yield runtime

    async def queue(self, query: str) -> list[tuple[object, ...]]:
        """What the tables of the queue say; QUEUE stands for their schema."""
        return await query_queue(self.url, query)

    async def until(self, query: str, count: int) -> None:
        """Returns when this query of the queue finds so many."""
        await until_rows(self.url, "QUEUE.pgqueuer", query, [(count,)])


@contextmanager
def cluster(
    script: Script, folder: Path, kind: Kind = "postgres", sweep: float | None = NEVER
) -> Iterator[Cluster]:
    with agent_upstream(script) as upstream:
        yield Cluster(empty(kind, folder), upstream, folder, sweep)


async def ended(runtime: AgentRuntime, id: str) -> list[RunEvent]:
    """Waits for the end of a run; checks that it ended well, once, and returns its events."""
    async with asyncio.timeout(50):
        events = [event async for event in runtime.events(id)]
    kinds = Counter(event.kind for event in events)
    assert events[-1].kind == "run.finished"
    assert kinds["run.finished"] == 1
    assert kinds["call.intended"] == kinds["call.finished"]
    owned = [event.epoch for event in events if event.epoch]
    assert owned == sorted(owned), "nobody writes after its successor"
    assert fold(id, [(decode_event(one.body), one.at) for one in events]).open_calls == []
    return events


SPREAD = pytest.mark.parametrize(
    ("kind", "sweep"),
    [("sqlite", None), ("postgres", None), ("postgres", NEVER)],
    ids=["sqlite", "postgres", "pgqueuer"],
)


@SPREAD
def test_runs_are_spread_over_processes_and_each_ends_once(
    kind: Kind, sweep: float | None, tmp_path: Path
) -> None:
    async def scene(there: Cluster) -> None:
        async with there.outside() as runtime:
            ids = [await runtime.start("helper", "Go.") for _ in range(20)]
            for id in ids:
                await ended(runtime, id)
        assert sorted(effects(tmp_path)) == sorted(f"{id}/a mail" for id in ids)

    with cluster(MAIL, tmp_path, kind, sweep) as there, there.workers(3, LASTING):
        asyncio.run(scene(there))


@SPREAD
def test_runs_of_a_killed_process_are_taken_over(
    kind: Kind, sweep: float | None, tmp_path: Path
) -> None:
    script = HeldScript(MAIL, turn=1)

    async def scene(there: Cluster, first: WorkerProcess) -> None:
        async with there.outside() as runtime:
            ids = [await runtime.start("helper", "Go.") for _ in range(5)]
            await script.arrived(5)  # each has sent its letter, and is in its second turn
            with there.workers(1):
                first.end(signal.SIGKILL)
                killed = time.monotonic()
                await script.arrived(5)
                assert time.monotonic() - killed < TAKEN_OVER
                script.let_go()
                for id in ids:
                    await ended(runtime, id)
        assert sorted(effects(tmp_path)) == sorted(f"{id}/a mail" for id in ids)

    with cluster(script, tmp_path, kind, sweep) as there, there.workers(1) as [first]:
        asyncio.run(scene(there, first))


def test_a_frozen_process_that_wakes_up_ends_nothing(tmp_path: Path) -> None:
    script = HeldScript(MAIL, turn=1)

    async def scene(there: Cluster, frozen: WorkerProcess) -> None:
        async with there.outside() as runtime:
            ids = [await runtime.start("helper", "Go.") for _ in range(3)]
            await script.arrived(3)
            frozen.send(signal.SIGSTOP)
            with there.workers(1):
                script.let_go_first(3)  # the frozen process has its answers, but cannot read them
                await script.arrived(3)  # the other one asks once more
                before = [(await runtime.row(id)).seq for id in ids]
                frozen.send(signal.SIGCONT)
                # It exits by itself, and cleanly, when it has done what it has to do.
                assert await asyncio.to_thread(frozen.end, signal.SIGTERM) == 0
                assert [(await runtime.row(id)).seq for id in ids] == before
                script.let_go()
                for id in ids:
                    await ended(runtime, id)
        assert sorted(effects(tmp_path)) == sorted(f"{id}/a mail" for id in ids)

    with cluster(script, tmp_path) as there, there.workers(1) as [first]:
        asyncio.run(scene(there, first))


def test_what_comes_while_a_run_is_worked_on_is_not_lost(tmp_path: Path) -> None:
    """Messages that come at any moment, also right when the run is released or ends."""
    script = by_turn(text("One."), text("Two."))

    async def scene(there: Cluster) -> None:
        async with there.outside() as runtime:

            async def one(number: int) -> None:
                id = await runtime.start("helper", "Go.")
                await asyncio.sleep(number * 0.002)
                try:
                    await runtime.add_message(id, f"And {id}?")
                except IllegalEvent:  # it had ended
                    await ended(runtime, id)
                    return
                await ended(runtime, id)
                last = [one for one in there.upstream.requests if f"And {id}?" in str(one)]
                assert last, "the model has read it"

            await asyncio.gather(*map(one, range(30)))

    with cluster(script, tmp_path) as there, there.workers(2, LONG):
        asyncio.run(scene(there))


FIRE = by_turn(calls(call(0, "a", "fire", {"who": "Al"})), text("OK"))


async def waiting(there: Cluster, runtime: AgentRuntime, id: str) -> str:
    """Returns the approval that a run waits for, when it holds no lease any more."""
    free = f"SELECT status FROM run WHERE id = '{id}' AND until = 0 AND status = 'waiting'"
    await until_rows(there.url, "run", free, [("waiting",)])
    [asked] = (await runtime.state(id)).open_calls
    assert asked.approval is not None
    return asked.approval.approval


def test_a_timer_of_seven_days_is_in_nobodys_way(tmp_path: Path) -> None:
    timers = "SELECT count(*) FROM QUEUE.pgqueuer WHERE execute_after > now() + '6 days'"

    async def scene(there: Cluster) -> None:
        async with there.outside() as runtime:
            first = await runtime.start("helper", "Go.")
            approval = await waiting(there, runtime, first)
            await there.until(timers, 1)
            began = time.monotonic()
            await waiting(there, runtime, await runtime.start("helper", "Go."))
            await runtime.decide_approval(first, approval, True, by="me")
            await ended(runtime, first)
            assert time.monotonic() - began < LONG / 10, "before anybody looks"
        assert effects(tmp_path) == [f"{first}/a fire"]

    with cluster(FIRE, tmp_path) as there, there.workers(2, LONG):
        asyncio.run(scene(there))


def test_a_timer_expires_without_a_sweep(tmp_path: Path) -> None:
    @tool(approval="always")
    def fire(who: str) -> str:
        """Never run here: this process only says which limits the run has."""
        raise AssertionError(who)

    agent = Agent("helper", "m/m", tools=[fire], limits=Limits(approval=1.0))

    async def scene(there: Cluster) -> None:
        async with there.outside(agent) as runtime:
            id = await runtime.start("helper", "Go.")
            async with asyncio.timeout(60):
                kinds = [event.kind async for event in runtime.events(id)]
        assert kinds[-1] == "run.finished"
        assert "approval.decided" in kinds
        assert effects(tmp_path) == []

    with cluster(FIRE, tmp_path) as there, there.workers(1):
        asyncio.run(scene(there))


def test_a_stopped_process_hands_its_runs_over_at_once(tmp_path: Path) -> None:
    script = HeldScript(MAIL, turn=0)

    async def scene(there: Cluster, first: WorkerProcess) -> None:
        async with there.outside() as runtime:
            ids = [await runtime.start("helper", "Go.") for _ in range(3)]
            await script.arrived(3)
            holder = (await runtime.row(ids[0])).holder
            with there.workers(1, LONG):
                # The other one takes work: from now on it does not look without being told.
                while (await runtime.row(ids[-1])).holder == holder:
                    ids.append(await runtime.start("helper", "Go."))
                    await script.arrived(1)
                first.send(signal.SIGTERM)
                # All but that one, whose end would make its process look, too.
                script.let_go_first(len(ids) - 1)
                for id in ids[:-1]:  # long before a lease expires
                    await ended(runtime, id)
                script.let_go()
                await ended(runtime, ids[-1])
                assert await asyncio.to_thread(first.process.wait, 60) == 0
        assert sorted(effects(tmp_path)) == sorted(f"{id}/a mail" for id in ids)

    with cluster(script, tmp_path) as there, there.workers(1, LONG) as [first]:
        asyncio.run(scene(there, first))


def test_a_process_works_itself_on_what_it_starts(tmp_path: Path) -> None:
    """It needs no queue for that. The hint is for the case that it dies, and goes when it fires."""

    async def scene(there: Cluster) -> None:
        async with runtime_on(
            there.url, there.upstream.url, tmp_path, lease=LEASE, sweep=NEVER
        ) as (runtime, store, _):
            id = await runtime.start("helper", "Go.")
            [(due,)] = await there.queue(
                "SELECT execute_after > created + '1 second' FROM QUEUE.pgqueuer"
            )
            assert due
            events = await ended(runtime, id)
            assert {event.epoch for event in events} == {0, 1}
            await there.until("SELECT count(*) FROM QUEUE.pgqueuer", 0)
            row = await store.run(id)
            assert row is not None
            assert row.epoch == 1, "nobody claims a run that has ended"

    with cluster(MAIL, tmp_path) as there:
        asyncio.run(scene(there))


def test_the_hint_of_a_run_that_is_worked_on_is_kept(tmp_path: Path) -> None:
    """The process that started it works on it, and dies long after the hint came for the first
    time."""
    script = HeldScript(MAIL, turn=1)
    came = "SELECT count(*) FROM QUEUE.pgqueuer WHERE attempts > 0"

    async def scene(there: Cluster, first: WorkerProcess) -> None:
        async with there.outside() as runtime:
            await script.arrived(2)
            with there.workers(1):
                await there.until(came, 2)
                first.end(signal.SIGKILL)
                await script.arrived(2)
                script.let_go()
                found = await there.queue("SELECT id FROM run")
                for (id,) in found:
                    await ended(runtime, str(id))
        assert sorted(effects(tmp_path)) == sorted(f"{id}/a mail" for (id,) in found)

    with cluster(script, tmp_path) as there, there.workers(1, runs=2) as [first]:
        asyncio.run(scene(there, first))


def test_a_database_that_restarts_loses_nothing(tmp_path: Path) -> None:
    script = HeldScript(MAIL, turn=1)

    async def scene(there: Cluster) -> None:
        async with there.outside() as runtime:
            ids = [await runtime.start("helper", "Go.") for _ in range(3)]
            await script.arrived(3)
            await asyncio.to_thread(postgres().stop)
            await asyncio.to_thread(postgres().ensure_postgres_running)
            script.let_go()
            begun = [*ids]
            ids.append(await runtime.start("helper", "Go."))
            for id in ids:
                events = await ended(runtime, id)
                if id in begun:
                    assert {event.epoch for event in events} == {0, 1}, "taken from the living"
        assert sorted(effects(tmp_path)) == sorted(f"{id}/a mail" for id in ids)

    # The lease is longer than the restart: those who work on the runs are alive.
    with cluster(script, tmp_path) as there, there.workers(2, LASTING):
        asyncio.run(scene(there))


@pytest.mark.parametrize(
    "loss", ["TRUNCATE QUEUE.pgqueuer", "DROP SCHEMA QUEUE CASCADE"], ids=["emptied", "dropped"]
)
def test_the_sweep_finds_what_the_queue_has_lost(loss: str, tmp_path: Path) -> None:
    async def scene(there: Cluster) -> None:
        async with there.outside() as runtime:
            ids = [await runtime.start("helper", "Go.") for _ in range(3)]
            await there.queue(loss)
            ids.append(await runtime.start("helper", "Go."))  # a hint that fails does no harm
            if loss.startswith("TRUNCATE"):
                await there.queue(loss)
            with there.workers(2):
                for id in ids:
                    await ended(runtime, id)
                # And while others work.
                late = await runtime.start("helper", "Go.")
                await there.queue(loss)
                ids.append(await runtime.start("helper", "Go."))
                await ended(runtime, late)
                await ended(runtime, ids[-1])

    with cluster(MAIL, tmp_path, sweep=0.5) as there:
        asyncio.run(scene(there))
