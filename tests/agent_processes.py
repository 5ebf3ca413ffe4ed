"""A process with the agent runtime, as the gateway has it: to be used in a test, or killed.

python -m tests.agent_processes STORE UPSTREAM FOLDER SWEEP [KILL]

Starts a run, or goes on with the one that is there, until it ends or waits, and says which. SWEEP
is the interval of the sweep beside the queue, or `local` for no queue. KILL says where to die of
SIGKILL: `before:7` or `after:7` an append, the seventh of this process, or `effect:2`, right after
the second effect of a tool; or where to be stopped by SIGSTOP: `freeze:call.intended`, right after
the first event of this kind is committed.
"""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from functools import partial
from pathlib import Path

from weft.agent.agents import Agent
from weft.agent.dispatch import Dispatcher, LocalDispatcher
from weft.agent.environment import Models
from weft.agent.events import AnyRunEvent, RunWaiting, decode_event
from weft.agent.models import RelayModels
from weft.agent.pgqueuer_dispatch import PgQueuerDispatcher
from weft.agent.runtime import AgentRuntime
from weft.agent.tool_spec import Done, NotDone
from weft.agent.tools import ToolContext, tool
from weft.gateway.sessions import RetentionPolicy, Sessions
from weft.relay.incoming import RequestLimits
from weft.relay.persistence import Persistence
from weft.relay.routing import Routing
from weft.scrub import Scrubber, Secret
from weft.store.base import Effects, StoreError
from weft.store.postgres import Postgres
from weft.store.queries import Queries, Query, Row
from weft.store.records import Ending, NewEvent, RunAppend, RunWrite
from weft.store.sql import SqlStore
from weft.store.sqlite import Sqlite
from weft.store.writer import WritePolicy
from weft.upstream.base import RetryPolicy, UpstreamConfig
from weft.upstream.http import HttpUpstream

LEASE = 0.6
"""Seconds: tests need not wait long for the run of a process that was killed."""

LASTING = 30.0
"""Seconds of a lease that nobody waits for. On a busy machine a process would lose a short one, and
do again what may be repeated, or park what may not."""

CONVERSATION = "conv_1"
"""If there is one with this id, the run continues it."""

OUTSIDE = "CREATE TABLE IF NOT EXISTS seats (seat BIGINT PRIMARY KEY, booking TEXT)"


class Places:
    """Counts what happens, and kills this process where it is told to."""

    def __init__(self, kill: str = "") -> None:
        self._kill = kill
        self.counts = {"before": 0, "after": 0, "effect": 0}

    def written(self, events: Sequence[NewEvent]) -> None:
        """These events are committed."""
        if any(self._kill == f"freeze:{kind}" for kind, _ in events):
            self._kill = ""
            os.kill(os.getpid(), signal.SIGSTOP)

    def reach(self, place: str) -> None:
        self.counts[place] += 1
        if self._kill == f"{place}:{self.counts[place]}":
            os.kill(os.getpid(), signal.SIGKILL)


class KillingStore(SqlStore):
    """A store that dies before or after an append."""

    def __init__(self, url: str, places: Places) -> None:
        file = url.removeprefix("sqlite:///")
        database = Postgres(Secret(url), 5.0) if file == url else Sqlite(Path(file), 1.0)
        super().__init__(database, WritePolicy())
        self._places = places
        self._lost = ""

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str) -> "AsyncIterator[KillingStore]":
        store = cls(url, Places())
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def seats(self) -> list[tuple[int, str]]:
        """What the tool `book` has written."""
        rows = await self._read(partial(_query, "SELECT seat, booking FROM seats ORDER BY seat"))
        return [(int(seat or 0), str(booking)) for seat, booking in rows]

    async def make_seats(self) -> None:
        await self._writer.submit(partial(_query, OUTSIDE))

    async def age(self, seconds: float) -> None:
        """Makes everything older that is known of runs: so long ago its process has died."""
        by = f"- {seconds}"
        await self._writer.submit(partial(_query, f"UPDATE run_event SET at = at {by}"))
        runs = (
            f"UPDATE run SET until = CASE WHEN until > 0 THEN until {by} ELSE 0 END, due = due {by}"
        )
        await self._writer.submit(partial(_query, runs))

    def lose(self, kind: str) -> None:
        """The next append of such an event fails, and nothing is written."""
        self._lost = kind

    async def append_run(self, append: RunAppend) -> RunWrite:
        if any(kind == self._lost for kind, _ in append.events):
            self._lost = ""
            raise StoreError("the connection was lost", "lost")
        self._places.reach("before")
        written = await super().append_run(append)
        self._places.reach("after")
        self._places.written(append.events)
        return written

    async def finish_and_append(
        self, id: str, ending: Ending, append: RunAppend
    ) -> RunWrite | None:
        self._places.reach("before")
        written = await super().finish_and_append(id, ending, append)
        self._places.reach("after")
        return written

    async def transact(self, append: RunAppend, make: Effects) -> RunWrite:
        self._places.reach("before")
        written = await super().transact(append, make)
        self._places.reach("after")
        return written


def _query(statement: str) -> Queries[Sequence[Row]]:
    return (yield statement, ())


def tools_in(folder: Path, places: Places) -> list[object]:
    """One tool of each class. Each effect is a line in a file that survives the process."""

    def act(context: ToolContext, what: str) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{context.key} {what}\n")
            file.flush()
            os.fsync(file.fileno())
        places.reach("effect")

    def done_before(context: ToolContext) -> Done | NotDone:
        was = any(line.startswith(f"{context.key} ") for line in effects(folder))
        return Done("paid") if was else NotDone()

    @tool
    def mail(context: ToolContext, to: str) -> str:
        """Sends a letter: nobody can tell whether it was sent."""
        act(context, "mail")
        return f"sent to {to}"

    @tool(lookup=done_before)
    async def pay(context: ToolContext, amount: int) -> str:
        """Pays: the bank can be asked."""
        act(context, "pay")
        return "paid"

    @tool(retry="idempotent")
    def upsert(context: ToolContext, row: int) -> str:
        """Writes a row under the key of the call."""
        act(context, "upsert")
        return "written"

    @tool(retry="pure")
    async def look(context: ToolContext, at: str) -> str:
        """Looks at something."""
        act(context, "look")
        return f"{at} is fine"

    @tool
    def book(context: ToolContext, seat: int) -> Generator[Query, Sequence[Row], str]:
        """Books a seat in the database of the store."""
        yield "INSERT INTO seats (seat, booking) VALUES (?, ?)", (seat, context.key)
        if seat == 13:
            raise ValueError("nobody sits there")
        return f"seat {seat}"

    @tool(approval="always")
    async def fire(context: ToolContext, who: str) -> str:
        """Needs a person's consent."""
        act(context, "fire")
        return f"{who} is fired"

    return [mail, pay, upsert, look, book, fire]


def effects(folder: Path) -> list[str]:
    path = folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


@asynccontextmanager
async def runtime_on(
    url: str,
    upstream: str,
    folder: Path,
    kill: str = "",
    agent: Agent | None = None,
    models_of: Callable[[RelayModels], Models] = lambda models: models,
    lease: float = LASTING,
    sweep: float | None = None,
    serving: bool = True,
    run_lease: float | None = None,
) -> AsyncIterator[tuple[AgentRuntime, KillingStore, Places]]:
    """A runtime; with `sweep`, on a queue that is swept so often. One that does not serve starts
    runs and decides about them, for others to work on. `lease` is that of the process, and of its
    runs unless there is a `run_lease`; the shorter it is, the sooner the dead are noticed."""
    places = Places(kill)
    store = KillingStore(url, places)
    config = UpstreamConfig("m", "openai-chat", upstream, retry=RetryPolicy(attempts=1))
    routing = Routing({"m": HttpUpstream(config)}, {})
    persistence = Persistence(store)
    sessions = Sessions(persistence, policy=RetentionPolicy(lease=lease))
    await sessions.start(())
    models = RelayModels(routing, persistence, RequestLimits(), Scrubber([]))
    if agent is None:
        tools = tools_in(folder, places)
        agent = Agent("helper", "m/m", "Help.", [*tools, Agent("child", "m/m", "Do it.", tools)])
    dispatcher: Dispatcher = LocalDispatcher(store)
    if sweep is not None:
        dispatcher = PgQueuerDispatcher(store, url, lease=lease, sweep=sweep)
    await dispatcher.open()
    runtime = AgentRuntime(
        store, [agent], models_of(models), lease=run_lease or lease, dispatcher=dispatcher
    )
    try:
        if serving:
            await runtime.__aenter__()
        yield runtime, store, places
    finally:
        await runtime.close()
        await dispatcher.close()
        await sessions.close()
        for one in routing.upstreams.values():
            await one.close()


async def to_rest(runtime: AgentRuntime, id: str) -> tuple[str, list[AnyRunEvent]]:
    """Waits until a run ends or waits for somebody, itself or through an agent that it has called;
    returns the kind of its last event, and all of them."""
    found: list[AnyRunEvent] = []
    async for event in runtime.events(id):
        last = decode_event(event.body)
        found.append(last)
        if isinstance(last, RunWaiting):
            await runtime.join(id)
            calls = (await runtime.state(id)).calls
            children = [await to_rest(runtime, calls[one].child) for one in last.children]
            if not last.needs_somebody and not any(kind == last.kind for kind, _ in children):
                continue  # their ends wake it
            row = await runtime.row(id)
            if row.seq == event.seq and not row.until:
                break
    await runtime.join(id)
    return found[-1].kind, found


async def main(url: str, upstream: str, folder: Path, sweep: float | None, kill: str) -> None:
    lease = LEASE if kill or sweep is not None else LASTING
    async with runtime_on(url, upstream, folder, kill, lease=lease, sweep=sweep) as opened:
        runtime, store, places = opened
        made = await store.conversation("", CONVERSATION)
        conversation = None if made is None else CONVERSATION
        id = await runtime.start("helper", "Go.", key="the run", conversation=conversation)
        print("started", id, flush=True)
        last, _ = await to_rest(runtime, id)
        print("rests", last, *places.counts.values(), flush=True)


def write_words(
    words: Path, url: str, upstream: str, folder: Path, sweep: float | None, kill: str
) -> None:
    """As `main`, in a process that was forked: what is said goes to a file."""
    with words.open("w") as file, redirect_stdout(file):
        try:
            asyncio.run(main(url, upstream, folder, sweep, kill))
        except BaseException:
            traceback.print_exc(file=file)
            raise


if __name__ == "__main__":
    store, upstream, folder, interval, *kill = sys.argv[1:]
    swept = None if interval == "local" else float(interval)
    asyncio.run(main(store, upstream, Path(folder), swept, "".join(kill)))
