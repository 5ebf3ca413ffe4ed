"""Hints through PgQueuer: a queue in the same PostgreSQL database as the store.

A row of the queue commits with the event that it tells of, and notifies some waiting process. Its
tables are in a schema of their own. What PgQueuer does not promise is made up for here:

1. A job that raises, or is cancelled, is deleted. So every outcome but "nothing left to do" becomes
   a retry.
2. To finish, to renew and to retry a job is not fenced: a process that was frozen may do so to the
   job of its successor. It changes when a hint comes, and nothing else (`dispatch.py`, rule 4).
3. A job of a dead process is picked again when its heartbeat is older than `heartbeat_timeout`, at
   the next look of another process. Both are set from the lease of a run.
4. A lost connection would end its main loop, which then waits for all jobs before it raises. So its
   driver connects again, and repeats the statement; each of them may be made twice.
5. A retried job notifies nobody, and a notification may be lost. So it looks five times a lease.
6. Its log grows without end, and is pruned here.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]
from pgqueuer import AsyncpgDriver, Job, QueueManager, RetryRequested
from pgqueuer import Queries as JobQueries
from pgqueuer.adapters.persistence.qb import (
    DBSettings,
    Durability,
    QueryBuilderEnvironment,
    QueryQueueBuilder,
    QuerySchedulerBuilder,
)
from pgqueuer.core.tm import TaskManager
from pgqueuer.ports.driver import Driver, NotifyCallback
from pgqueuer.types import Channel

from weft.agent.dispatch import Advance, DueRuns, due, wait_for
from weft.scrub import Secret
from weft.store.base import Store, StoreError
from weft.store.postgres import FAULTS, SESSION_LOCK, store_error
from weft.store.queries import Queries, StatementFailed, Verbatim

SWEEP = 60.0
"""Seconds between two looks for all runs that are due: their hints were lost."""

SWEEP_LIMIT = 10_000
"""Runs that one look finds, at most."""

LOOKS_PER_LEASE = 5
CONNECTIONS = 4
"""For statements; one more listens."""

BATCH = 10
"""Jobs that are taken at once, at most."""

TIMEOUT = 10.0
"""Seconds for one statement, and for connecting."""

FIRST_RETRY, LONGEST_RETRY = 0.05, 1.0
LOG_KEPT = "1 day"
TRANSIENT = frozenset({"busy", "lost"})

T = TypeVar("T")

log = logging.getLogger("weft.agent")
# It reports each retry, which is how most hints end here.
logging.getLogger("pgqueuer").setLevel(logging.WARNING)


class Records(Protocol):
    """What is used of a pool of asyncpg, which has no types."""

    async def fetch(self, query: str, *args: object) -> Sequence[Mapping[str, object]]: ...

    async def execute(self, query: str, *args: object) -> str: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


class ListeningDriver(Driver):
    """A driver of PgQueuer that survives the loss of its connections, until `stop` is set."""

    def __init__(self, pool: Records, url: Secret, stop: asyncio.Event) -> None:
        self._pool = pool
        self._url = url
        self._stop = stop
        self._shutdown = asyncio.Event()
        self._listening: list[asyncio.Task[None]] = []

    @property
    def shutdown(self) -> asyncio.Event:
        return self._shutdown

    @property
    def tm(self) -> TaskManager:
        return TaskManager()

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        found = await self._with_retries(lambda: self._pool.fetch(query, *args))
        return [dict(row) for row in found]

    async def execute(self, query: str, *args: object) -> str:
        return await self._with_retries(lambda: self._pool.execute(query, *args))

    async def notify(self, channel: str, payload: str) -> None:
        await self.execute("SELECT pg_notify($1, $2)", channel, payload)

    async def _with_retries(self, act: Callable[[], Awaitable[T]]) -> T:
        pause = FIRST_RETRY
        while True:
            try:
                return await act()
            except FAULTS as fault:
                error = store_error(fault)
                if error.kind not in TRANSIENT or self._stop.is_set():
                    raise
                log.warning("the queue: %s; trying again", error)
            await wait_for(self._stop, pause)
            pause = min(pause * 2, LONGEST_RETRY)

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Listens, and listens again on a new connection if that is lost."""
        first = asyncio.Event()
        self._listening.append(asyncio.create_task(self._listen(channel, callback, first)))
        await first.wait()

    async def _listen(self, channel: str, callback: NotifyCallback, first: asyncio.Event) -> None:
        def relay(connection: object, pid: int, channel: str, payload: str) -> None:
            callback(payload)

        while True:
            connection = None
            try:
                connection = await asyncpg.connect(self._url.reveal(), timeout=TIMEOUT)
                closed = asyncio.Event()
                connection.add_termination_listener(lambda _, closed=closed: closed.set())
                await connection.add_listener(channel, relay)
                first.set()
                while True:  # a peer that is gone without a word is noticed only by asking it
                    await wait_for(closed, TIMEOUT)
                    await connection.execute("SELECT 1", timeout=TIMEOUT)
            except FAULTS as fault:
                first.set()
                log.warning("the queue: cannot listen: %s", store_error(fault))
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(LONGEST_RETRY)

    async def __aenter__(self) -> "ListeningDriver":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Only listening ends: PgQueuer has statements to make after that."""
        while self._listening:
            task = self._listening.pop()
            task.cancel()
            await asyncio.wait({task})


class PgQueuerDispatcher:
    """A Dispatcher with a queue in PostgreSQL, in the database of the store."""

    def __init__(
        self,
        store: Store,
        url: str,
        *,
        lease: float = 15.0,
        concurrency: int = 64,
        sweep: float = SWEEP,
    ) -> None:
        self._store = store
        self._url = Secret(url)
        self._lease = lease
        self._concurrency = concurrency
        self._interval = sweep
        self._settings = queue_settings("public")
        self._insert = Verbatim("")
        self._pool: Records | None = None

    async def open(self) -> None:
        """Connects, and installs or upgrades the tables of the queue. Raises StoreError."""
        url = self._url.reveal()
        try:
            self._settings = await _install(url)
            self._pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=CONNECTIONS,
                timeout=TIMEOUT,
                command_timeout=TIMEOUT,
                server_settings={"application_name": "weft-queue"},
            )
        except FAULTS as fault:
            error = store_error(fault)
            raise StoreError(f"cannot set up the queue: {error}", error.kind) from None
        # One row, in the form that PgQueuer's own statement gives it. That one takes arrays, and
        # also writes to the log.
        self._insert = Verbatim(
            f"INSERT INTO {self._settings.qualified.queue_table}"
            " (entrypoint, payload, execute_after, dedupe_key, status, priority)"
            " VALUES (?, ?, now() + make_interval(secs => ?), ?, 'queued', 0)"
            " ON CONFLICT DO NOTHING"
        )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(TIMEOUT):
                await pool.close()
        except FAULTS:
            pool.terminate()

    def wake(self, queue: str, id: str, cause: str, after: float = 0.0) -> Queries[None]:
        if self._pool is None:
            return
        yield "SAVEPOINT wake", ()
        try:
            yield self._insert, (queue, id.encode(), after, f"{id}:{cause}")
        except StatementFailed as failed:
            # A hint must not fail its transaction. If the connection is gone, this fails, too.
            yield "ROLLBACK TO SAVEPOINT wake", ()
            log.warning("%s %s: not queued; left to the next sweep: %s", queue, id, failed.error)
        yield "RELEASE SAVEPOINT wake", ()

    async def serve(
        self, work: Mapping[str, Advance], stop: asyncio.Event, due_runs: DueRuns | None = None
    ) -> None:
        assert self._pool is not None, "the dispatcher is not open"
        driver = ListeningDriver(self._pool, self._url, stop)
        queries = _queries(driver, self._settings)
        sweeping = asyncio.create_task(self._sweep(queries, list(work), stop, due_runs))
        while not stop.is_set():
            try:
                await self._work(queries, work, stop)
            except Exception:
                # Whatever it is, PgQueuer has waited for its jobs by now. The sweep goes on.
                log.exception("the queue failed; starting it again")
                await wait_for(stop, LONGEST_RETRY)
                with suppress(*FAULTS):  # the tables may have been dropped
                    await _install(self._url.reveal())
        await sweeping

    async def _work(
        self, queries: JobQueries, work: Mapping[str, Advance], stop: asyncio.Event
    ) -> None:
        """Takes jobs until `stop` is set, and then waits for those that run."""
        manager = QueueManager(queries, channel=Channel(self._settings.channel))
        for queue, advance in work.items():
            manager.entrypoint(queue, accepts_context=False)(self._handler(advance))
        batch = max(1, min(BATCH, self._concurrency // 2))
        lease = timedelta(seconds=self._lease)

        async def stopping() -> None:
            await stop.wait()
            manager.shutdown.set()

        watching = asyncio.create_task(stopping())
        try:
            await manager.run(
                dequeue_timeout=lease / LOOKS_PER_LEASE,
                batch_size=batch,
                # The handlers keep the limit: one full queue must not block the other.
                max_concurrent_tasks=max(self._concurrency * len(work), 2 * batch),
                heartbeat_timeout=lease,
                log_aggregation_interval=timedelta(0),
            )
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    def _handler(self, advance: Advance) -> Callable[[Job], Awaitable[None]]:
        async def handle(job: Job) -> None:
            try:
                again = await advance((job.payload or b"").decode())
            except asyncio.CancelledError:
                again = 0.0
            except Exception:
                log.exception("a job failed")
                again = self._lease
            if again is not None:
                raise RetryRequested(timedelta(seconds=max(0.0, again)), "to be looked at again")

        return handle

    async def _sweep(
        self,
        queries: JobQueries,
        queues: Sequence[str],
        stop: asyncio.Event,
        due_runs: DueRuns | None,
    ) -> None:
        """Queues what is due and may have no row: it was lost, or its process could not write it.
        One that has a row gets a second one, and never a third."""
        names = self._settings.qualified
        prune = f"DELETE FROM {names.queue_table_log} WHERE created < now() - $1::text::interval"
        while not stop.is_set():
            try:
                for queue in queues:
                    # In order: two processes that insert the same keys wait for each other one way.
                    found = sorted(await due(self._store, queue, SWEEP_LIMIT, due_runs))
                    if found:
                        await queries.enqueue(
                            [queue] * len(found),
                            [id.encode() for id in found],
                            [0] * len(found),
                            dedupe_key=[f"{id}:sweep" for id in found],
                            on_conflict="skip",
                        )
                await queries.driver.execute(prune, LOG_KEPT)
            except StoreError as error:
                log.warning("cannot find due runs: %s", error)
            except FAULTS as fault:
                log.warning("cannot queue runs: %s", store_error(fault))
            except Exception:  # the last thing that finds a run must not end
                log.exception("cannot queue runs")
            await wait_for(stop, self._interval)


def _queries(driver: Driver, settings: DBSettings) -> JobQueries:
    return JobQueries(
        driver,
        QueryBuilderEnvironment(settings),
        QueryQueueBuilder(settings),
        QuerySchedulerBuilder(settings),
    )


def queue_settings(schema: str) -> DBSettings:
    """The names of the queue that belongs to the tables in this schema. All of them are given:
    otherwise PgQueuer takes them from variables like CHANNEL or TRIGGER in the environment."""
    suffix = "" if schema == "public" else "_" + re.sub(r"\W", "_", schema.lower(), flags=re.ASCII)
    name = f"weft_queue{suffix}"[:60]
    return DBSettings(
        prefix="",
        db_schema=name,
        channel=Channel(name),  # channels belong to the database, not to a schema
        function="fn_pgqueuer_changed",
        statistics_table="pgqueuer_statistics",
        queue_status_type="pgqueuer_status",
        queue_table="pgqueuer",
        queue_table_log="pgqueuer_log",
        trigger="tg_pgqueuer_changed",
        schedules_table="pgqueuer_schedules",
        durability=Durability.durable,
        widen_id=True,
    )


async def _install(url: str) -> DBSettings:
    """Installs the tables, or upgrades them, while no other process does."""
    connection = await asyncpg.connect(url, timeout=TIMEOUT)
    try:
        schema = str(await connection.fetchval("SELECT current_schema()"))
        settings = queue_settings(schema)
        queries = _queries(AsyncpgDriver(connection), settings)
        # Of the session: an upgrade cannot be one transaction. It ends with the connection.
        await connection.execute(SESSION_LOCK)
        if await queries.schema_is_installed():
            await queries.upgrade()
        else:
            await queries.install()
    finally:
        await connection.close(timeout=TIMEOUT)
    return settings
