"""PostgreSQL: one connection that writes, a few that read, all of them replaced when lost.

1. Many servers write at once. Who appends to a log holds on to the row of its response, and who
   ends it waits for them: a block is either in the log that the ending describes, or dropped.
2. A connection that is lost at its COMMIT leaves open what became of it. Each transaction with
   operations has a transaction id, and PostgreSQL is asked for its status: nothing is done
   twice, and every caller gets the true result.
3. Each statement is limited in time, here and in the server, and no transaction waits for anything
   but the database.

What is told of a fault is its class and code: PostgreSQL's own words may hold parameters.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from re import sub
from typing import Protocol, TypeVar

import asyncpg  # type: ignore[import-untyped]

from weft.errors import WeftError
from weft.scrub import Secret
from weft.store.base import Kind, StoreError
from weft.store.escaping import escape, escape_parameters, unescape_rows
from weft.store.migrations import POSTGRES, migrate
from weft.store.operations import CLOCK, LOCKS, dropped
from weft.store.queries import Queries, Row
from weft.store.writer import LogBlock, OperationRejected, Work, group_blocks

T = TypeVar("T")

READERS = 4
STATUS_INTERVAL = 0.1
"""Seconds between two questions what became of a transaction."""

LOCK = "SELECT pg_advisory_xact_lock(4995148757353590885)"
"""Whoever changes the tables."""
UNLIMITED = "SET LOCAL statement_timeout = 0"
TRANSACTION_ID = "SELECT pg_current_xact_id()::text"
TRANSACTION_STATUS = "SELECT pg_xact_status($1::text::xid8)"
APPEND = """WITH live AS MATERIALIZED (
        SELECT id FROM response WHERE id = ANY($1::text[]) AND ended IS NULL AND server = $6::text
        FOR KEY SHARE)
    INSERT INTO block (response, number, first, count, data)
    SELECT b.response, b.number, b.first, b.count, b.data
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
        AS b (response, number, first, count, data)
    JOIN live ON live.id = b.response
    ON CONFLICT DO NOTHING"""

NOW = "extract(epoch from clock_timestamp())::double precision"
"""The server's clock, in seconds since 1970."""

KINDS: dict[str, Kind | None] = {
    "08": "lost",
    "22": None,  # a value that no column takes
    "23": None,  # a constraint
    "25006": "lost",  # read-only: this server has become a copy of another
    "40": "busy",  # a deadlock, among others
    "53": "busy",  # too many connections, no memory
    "53100": "full",
    "54": None,  # too long for an index
    "55P03": "busy",
    "57014": "busy",  # the time of a statement ran out
    "57P": "lost",  # stopped, or not yet started
}
"""By the beginning of the code, the longest that fits; None: the operation is itself at fault.
Anything else is broken."""


class AsyncpgConnection(Protocol):
    """What we use of asyncpg's."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Row]: ...

    async def close(self, *, timeout: float) -> None: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...


class Postgres:
    """A Database on a server. `busy` limits, in seconds, what one statement may take."""

    def __init__(self, url: Secret, busy: float = 5.0) -> None:
        self._url = url
        self._busy = busy
        self._writer: AsyncpgConnection | None = None
        self._idle: deque[AsyncpgConnection] = deque()
        self._readers = asyncio.Semaphore(READERS)

    async def open(self) -> None:
        connection = await self._connected()
        try:
            async with _faults():
                await connection.execute("BEGIN")
                await connection.execute(UNLIMITED)
                await connection.execute(LOCK)
                await run_queries(connection, migrate(POSTGRES))
                await connection.execute("COMMIT")
        except BaseException:
            self._drop()
            raise

    async def close(self) -> None:
        if self._writer is not None:
            self._idle.append(self._writer)
            self._writer = None
        while self._idle:
            connection = self._idle.pop()
            try:
                async with _faults():
                    await connection.close(timeout=self._busy)
            except StoreError:
                connection.terminate()

    async def _connect(self) -> AsyncpgConnection:
        limit = str(round(self._busy * 1000))
        async with _faults():
            connection: AsyncpgConnection = await asyncpg.connect(
                self._url.reveal(),
                timeout=self._busy,
                command_timeout=self._busy * 2,  # the server's own limit comes first
                server_settings={
                    "application_name": "weft",
                    "statement_timeout": limit,
                    "lock_timeout": limit,
                    "idle_in_transaction_session_timeout": limit,
                },
            )
        return connection

    # Reading

    async def read(self, make: Callable[[], Queries[T]]) -> T:
        async with self._readers, self._reader() as connection:
            return await run_queries(connection, make())

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[AsyncpgConnection]:
        """One that nobody uses; after a fault it is used no more, nor are those that idled."""
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            async with _faults():
                yield connection
        except StoreError:
            connection.terminate()
            while self._idle:
                self._idle.pop().terminate()
            raise
        except WeftError:  # of the steps: there is nothing wrong with the connection
            self._idle.append(connection)
            raise
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)

    # Writing

    def lock_path(self, server: str) -> Path:
        """Seen by the other servers of this machine."""
        return Path(os.environ.get("TMPDIR") or "/tmp", f"weft-server-{server}")

    async def write(self, batch: Sequence[Work], durable: bool, server: str) -> set[str]:
        """Every commit of PostgreSQL is durable."""
        connection = await self._connected()
        try:
            async with _faults():
                await connection.execute("BEGIN")
                transaction_id = await _transaction_id(connection, batch)
                missing = await _written(connection, batch, server)
        except OperationRejected:
            await self._rollback(connection)
            raise
        except BaseException:
            self._drop()
            raise
        await self._commit(connection, transaction_id)
        return missing

    async def _connected(self) -> AsyncpgConnection:
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._connect()
        return self._writer

    def _drop(self) -> None:
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.terminate()

    async def _rollback(self, connection: AsyncpgConnection) -> None:
        try:
            async with _faults():
                await connection.execute("ROLLBACK")
        except BaseException:
            self._drop()
            raise

    async def _commit(self, connection: AsyncpgConnection, transaction_id: str | None) -> None:
        """Returns when the transaction is committed; raises StoreError when it is certain that it
        is not. Blocks alone have no transaction id: to write them twice does no harm."""
        try:
            async with _faults():
                await connection.execute("COMMIT")
        except StoreError:
            self._drop()
            if transaction_id is None or not await self._was_committed(transaction_id):
                raise
        except BaseException:
            self._drop()
            raise

    async def _was_committed(self, transaction_id: str) -> bool:
        """However long it takes: the server may be away, or still busy with it."""
        while True:
            try:
                connection = await self._connected()
                async with _faults():
                    status = (await connection.fetch(TRANSACTION_STATUS, transaction_id))[0][0]
            except StoreError as error:
                if error.kind == "broken":  # it never heard of it: restored from a backup
                    return False
                self._drop()
            else:
                if status != "in progress":
                    return status == "committed"
            await asyncio.sleep(STATUS_INTERVAL)


# On a connection


@cache
def numbered(statement: str) -> str:
    """A statement as PostgreSQL wants it: parameters by number, its clock, and rows held on to."""
    numbers = count(1)
    own = statement.replace(CLOCK, NOW)
    return sub(r"\?", lambda _: f"${next(numbers)}", own) + LOCKS.get(statement, "")


async def run_queries(connection: AsyncpgConnection, queries: Queries[T]) -> T:
    """Takes the steps, one after the other. Returns what they return."""
    try:
        query = next(queries)
        while True:
            found = await connection.fetch(numbered(query[0]), *escape_parameters(query[1]))
            query = queries.send(unescape_rows(found))
    except StopIteration as end:
        result: T = end.value
        return result


async def _transaction_id(connection: AsyncpgConnection, batch: Sequence[Work]) -> str | None:
    if all(isinstance(work, tuple) for work in batch):
        return None
    return str((await connection.fetch(TRANSACTION_ID))[0][0])


async def _written(connection: AsyncpgConnection, batch: Sequence[Work], server: str) -> set[str]:
    missing: set[str] = set()
    for run in group_blocks(batch):
        if isinstance(run, list):
            missing |= await _appended(connection, run, server)
            continue
        try:
            await run_queries(connection, run.steps())
        except FAULTS as error:
            if _kind(error) is None:
                raise OperationRejected(run, _fault(error)) from None
            raise
    return missing


async def _appended(
    connection: AsyncpgConnection, run: Sequence[LogBlock], server: str
) -> set[str]:
    """Appends to the logs. Returns the responses of which a block was dropped."""
    status = await connection.execute(
        APPEND,
        [escape(id) for id, _ in run],
        [block.number for _, block in run],
        [block.first for _, block in run],
        [block.count for _, block in run],
        [block.data for _, block in run],
        escape(server),
    )
    if int(status.rpartition(" ")[2]) == len(run):
        return set()
    return await run_queries(connection, dropped(run))


# Faults


@asynccontextmanager
async def _faults() -> AsyncIterator[None]:
    try:
        yield
    except FAULTS as error:
        raise _fault(error) from None


FAULTS = (
    asyncpg.PostgresError,  # the server said so
    asyncpg.InterfaceError,  # a closed connection, a value that cannot be sent
    asyncpg.InternalClientError,
    OSError,  # TimeoutError is one
    ValueError,  # an address that cannot be read
    OverflowError,
)


def _fault(error: Exception) -> StoreError:
    match error:
        case TimeoutError():
            return StoreError("PostgreSQL: no answer in time", "busy")
        case OSError():
            return StoreError(f"PostgreSQL: no connection ({error.strerror})", "lost")
        case asyncpg.PostgresError():
            told = f"{type(error).__name__} ({error.sqlstate})"
        case _:
            told = type(error).__name__
    return StoreError(f"PostgreSQL: {told}", _kind(error) or "broken")


def _kind(error: Exception) -> Kind | None:
    """Whose fault it is: None is the operation's own."""
    match error:
        case asyncpg.PostgresError():
            fitting = [code for code in KINDS if error.sqlstate.startswith(code)]
            return KINDS[max(fitting, key=len)] if fitting else "broken"
        case ValueError() | OverflowError():  # a value that cannot be sent
            return None
        case _:
            return "lost"
