"""How a process learns which runs somebody must look at.

What a dispatcher says is only a hint. The log of a run, its lease, its epoch and the time it is due
are in the store, and they alone decide who works on it: a hint may come late, twice, or to several
processes at once, and nothing happens twice. A hint that is lost costs time, until the next look
for all runs that are due.

1. The process that makes a run due writes the hint in the same transaction (`wake`). The key of a
   hint is its cause, never the run: one that comes while the run is being worked on must not be
   dropped.
2. A process that follows a hint claims the run first. If somebody else holds it, the hint is kept
   until that lease expires, because its holder may die.
3. A run is released only at the event that its driver has read last, so an event behind it is never
   left alone, whatever becomes of its hint.
4. Who has lost the lease keeps the hint, too: by now it may be the one that the new holder follows.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Literal, Protocol, TypeAlias

from weft.errors import ClientError
from weft.store.base import Store, StoreError
from weft.store.queries import MAX_ROWS, Queries

RUNS = "run"
"""The queue of runs; their ids are what it holds."""

RESPONSES = "response"
"""The queue of background responses, likewise. What is said here of runs holds for them: the server
in the row of a response is its lease, and the id of that server its epoch (`store/jobs.py`)."""

POLL = 0.25
"""Seconds between two looks for runs that are due, where nothing but the store tells of them."""

SWEEP_LIMIT = 1000
"""Runs that one such look finds."""

QUEUE = "weft.agent.pgqueuer_dispatch"
"""Imported only where it is used: PgQueuer takes a good part of a second."""

Advance: TypeAlias = Callable[[str], Awaitable[float | None]]
"""Works on what has this id, until it ends or waits. Returns the seconds after which somebody must
ask again; None: nobody need. Does not raise."""

DueRuns: TypeAlias = Callable[[int], Awaitable[list[str]]]
"""The runs that a process must look at, up to a number of them. Raises StoreError."""

DispatcherKind: TypeAlias = Literal["auto", "local", "pgqueuer"]

log = logging.getLogger("weft.agent")


class MissingQueue(ClientError):
    """PgQueuer cannot be used here."""


class Dispatcher(Protocol):
    """Tells processes of runs that are due."""

    async def open(self) -> None:
        """Connects. The store is open. Raises StoreError."""
        ...

    def wake(self, queue: str, id: str, cause: str, after: float = 0.0) -> Queries[None]:
        """The statements of a hint, for the transaction that is its cause: somebody must look at
        `id` after so many seconds. They do not fail that transaction."""
        ...

    async def serve(
        self, work: Mapping[str, Advance], stop: asyncio.Event, due_runs: DueRuns | None = None
    ) -> None:
        """Works on what is due, by the functions of the queues, until `stop` is set, and then until
        everything has returned that was begun. `due_runs` finds the runs to look for; by default
        all that are due. Survives a database that is gone for a while."""
        ...

    async def close(self) -> None:
        """Disconnects. `serve` has returned."""
        ...


class LocalDispatcher:
    """Looks for runs that are due in the store, every `interval` seconds. Works with any database,
    and with any number of processes; each asks the database all the time."""

    def __init__(self, store: Store, interval: float = POLL) -> None:
        self._store = store
        self._interval = interval

    async def open(self) -> None:
        """There is nothing to open."""

    def wake(self, queue: str, id: str, cause: str, after: float = 0.0) -> Queries[None]:
        """Nothing: the row of the run says that it is due, and that is where others look."""
        yield from ()

    async def serve(
        self, work: Mapping[str, Advance], stop: asyncio.Event, due_runs: DueRuns | None = None
    ) -> None:
        running: dict[tuple[str, str], asyncio.Future[float | None]] = {}
        while not stop.is_set():
            found: list[tuple[str, str]] = []
            try:
                for queue in work:
                    found += [(queue, id) for id in await self._due(queue, due_runs)]
            except StoreError as error:
                log.warning("cannot find due work: %s", error)
            running = {one: task for one, task in running.items() if not task.done()}
            for queue, id in found:
                if (queue, id) not in running:
                    running[queue, id] = asyncio.ensure_future(work[queue](id))
            await wait_for(stop, self._interval)
        if running:
            await asyncio.wait(running.values())

    async def _due(self, queue: str, due_runs: DueRuns | None) -> list[str]:
        return await due(self._store, queue, SWEEP_LIMIT, due_runs)

    async def close(self) -> None:
        """Nothing is open."""


class OwnRunsDispatcher(LocalDispatcher):
    """For a process that works on runs of its own, and not on those that others have left: the
    command line. Its hints are for everybody, through another dispatcher."""

    def __init__(self, store: Store, hints: Dispatcher, interval: float = POLL) -> None:
        super().__init__(store, interval)
        self._hints = hints
        self._own: set[str] = set()

    async def open(self) -> None:
        await self._hints.open()

    def adopt(self, id: str) -> None:
        """This run is now one of its own; those that it starts or writes to are by themselves."""
        self._own.add(id)

    def wake(self, queue: str, id: str, cause: str, after: float = 0.0) -> Queries[None]:
        self.adopt(id)
        return self._hints.wake(queue, id, cause, after)

    async def _due(self, queue: str, due_runs: DueRuns | None) -> list[str]:
        found = await due(self._store, queue, MAX_ROWS, due_runs)
        return [id for id in found if id in self._own]

    async def close(self) -> None:
        await self._hints.close()


async def due(store: Store, queue: str, limit: int, due_runs: DueRuns | None = None) -> list[str]:
    """What somebody must look at, by the store alone. Raises StoreError."""
    if queue == RUNS:
        return await (due_runs or store.due_runs)(limit)
    return await store.due_jobs(limit)


async def wait_for(stop: asyncio.Event, seconds: float) -> None:
    """Returns after some seconds, or when `stop` is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def dispatcher_from_url(
    store: Store,
    url: str,
    *,
    kind: DispatcherKind = "auto",
    lease: float = 15.0,
    concurrency: int = 64,
) -> Dispatcher:
    """The dispatcher for the store at this URL, not yet open; `lease` and `concurrency` are those
    of the runtime. `auto` is PgQueuer if the store is PostgreSQL and the extra `workers` is
    installed. Raises MissingQueue."""
    is_postgres = url.partition("://")[0] in {"postgresql", "postgres"}
    if kind == "local" or (kind == "auto" and not is_postgres):
        return LocalDispatcher(store)
    if not is_postgres:
        raise MissingQueue("PgQueuer needs PostgreSQL: use the local dispatcher with SQLite")
    try:
        module = import_module(QUEUE)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("weft"):
            raise
        if kind == "auto":
            return LocalDispatcher(store)
        raise MissingQueue(
            f"PgQueuer needs an extra: pip install 'weft[workers]' ({missing.name} is missing)"
        ) from None
    dispatcher: Dispatcher = module.PgQueuerDispatcher(
        store, url, lease=lease, concurrency=concurrency
    )
    return dispatcher
