"""PostgreSQL: one connection that writes, a few that read, all of them replaced when lost.

1. Many servers write at once. Appending to a log locks the row of its response (FOR KEY SHARE), and
   ending it waits for that lock: a block is in the log that the ending describes, or is dropped.
2. If a connection is lost during COMMIT, the outcome is not known. Each transaction with operations
   writes its number to the row of its connection in `commit_mark`. When PostgreSQL says that the
   transaction has ended, that row tells how: nothing is done twice, and every caller gets the true
   result. (The status of the transaction alone would not do: a server that crashed gives the ids
   of transactions that it lost to others, and those are committed.)
3. Each statement has a timeout, here and in the server, and no transaction waits for anything but
   the database.

An error is reported by its class and code: the messages of PostgreSQL may hold parameters.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from re import sub
from secrets import token_hex
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from weft.errors import WeftError
from weft.scrub import Secret
from weft.store.base import Kind, StoreError
from weft.store.escaping import escape, escape_parameters, unescape_rows
from weft.store.migrations import POSTGRES, migrate
from weft.store.operations import LOCKS, dropped
from weft.store.queries import CLOCK, Queries, Row, StatementFailed, Value, Verbatim
from weft.store.writer import Batch, LogBlock, OperationRejected

T = TypeVar("T")

READERS = 4
STATUS_INTERVAL = 0.1
"""Seconds between two queries for the status of a transaction."""

LOCK = "SELECT pg_advisory_xact_lock(4995148757353590885)"
SESSION_LOCK = "SELECT pg_advisory_lock(4995148757353590885)"
"""The same lock, held while tables are made or migrated: to the end of the transaction, or of the
connection."""
UNLIMITED = "SET LOCAL statement_timeout = 0"
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

# No migration: nothing in it outlives its connection, and SQLite needs no such table.
CREATE_MARKS = """CREATE TABLE IF NOT EXISTS commit_mark (connection TEXT PRIMARY KEY,
    number BIGINT NOT NULL, written DOUBLE PRECISION NOT NULL)"""
MARK = (
    "INSERT INTO commit_mark (connection, number, written) VALUES ($1, $2, "
    + NOW
    + """) ON CONFLICT (connection) DO UPDATE SET number = excluded.number,
        written = excluded.written RETURNING pg_current_xact_id()::text"""
)
MARKED = "SELECT 1 FROM commit_mark WHERE connection = $1 AND number = $2"
REMOVE_MARK = "DELETE FROM commit_mark WHERE connection = $1"
REMOVE_OLD_MARKS = "DELETE FROM commit_mark WHERE written < " + NOW + " - 86400"
"""Those of connections that were lost. Nobody asks for an outcome a day later."""

KINDS: dict[str, Kind | None] = {
    "08": "lost",
    "22": None,  # a value that does not fit its column
    "23": None,  # a constraint
    "25006": "lost",  # read-only: this server has become a standby
    "40": "busy",  # a deadlock, among others
    "53": "busy",  # too many connections, no memory
    "53100": "full",
    "54": None,  # too long for an index
    "55P03": "busy",
    "57014": "busy",  # statement_timeout
    "57P": "lost",  # shutting down, or starting up
}
"""By SQLSTATE: the longest prefix that matches. None: the operation itself is at fault. Anything
else is `broken`."""


class AsyncpgConnection(Protocol):
    """What is used of a connection of asyncpg, which has no types."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Row]: ...

    async def close(self, *, timeout: float) -> None: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...


class Postgres:
    """A Database on a server. `busy` is the timeout of one statement in seconds."""

    def __init__(self, url: Secret, busy: float = 5.0) -> None:
        self._url = url
        self._busy = busy
        self._writer: AsyncpgConnection | None = None
        # One for each connection: a server that has not noticed the loss of the last one may still
        # hold the lock of its row.
        self._mark = ""
        """The id of the connection that writes."""
        self._numbers = count(1)
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
                await connection.execute(CREATE_MARKS)
                await connection.execute(REMOVE_OLD_MARKS)
                await connection.execute("COMMIT")
        except BaseException:
            self._drop()
            raise

    async def close(self) -> None:
        if self._writer is not None:
            with suppress(StoreError):
                async with _faults():
                    await self._writer.execute(REMOVE_MARK, self._mark)
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
                command_timeout=self._busy * 2,  # the timeout of the server comes first
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
        """An idle connection, or a new one. An error closes this one and all idle ones."""
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            async with _faults():
                yield connection
        except StoreError:
            connection.terminate()
            while self._idle:
                self._idle.pop().terminate()
            raise
        except WeftError:  # raised by the queries: nothing is wrong with the connection
            self._idle.append(connection)
            raise
        except BaseException:
            connection.terminate()
            raise
        self._idle.append(connection)

    # Writing

    def lock_path(self, server: str) -> Path:
        """In a folder that the other servers on this machine can see."""
        return Path(os.environ.get("TMPDIR") or "/tmp", f"weft-server-{server}")

    def journal_path(self, journal: str) -> Path:
        url = urlsplit(self._url.reveal())
        # Not the password: it may change before the journal of a dead server is read.
        database = sha256(f"{url.hostname}:{url.port}{url.path}?{url.query}".encode()).hexdigest()
        return Path(os.environ.get("TMPDIR") or "/tmp", f"weft-usage-{database[:16]}-{journal}")

    async def write(self, batch: Batch, durable: bool, server: str) -> set[str]:
        """Every commit of PostgreSQL is durable."""
        connection = await self._connected()
        try:
            async with _faults():
                await connection.execute("BEGIN")
                transaction: _Transaction | None = None
                if batch.operations:
                    mark, number = self._mark, next(self._numbers)
                    id = str((await connection.fetch(MARK, mark, number))[0][0])
                    transaction = _Transaction(id, mark, number)
                missing = await _write_batch(connection, batch, server)
        except OperationRejected:
            await self._end(connection, "ROLLBACK")
            raise
        except BaseException:
            self._drop()
            raise
        try:
            await self._end(connection, "COMMIT")
        except StoreError:  # blocks alone have no mark: writing them twice does no harm
            if transaction is None or not await self._was_committed(transaction):
                raise
        return missing

    async def _connected(self) -> AsyncpgConnection:
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._connect()
            self._mark = token_hex(16)
        return self._writer

    def _drop(self) -> None:
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.terminate()

    async def _end(self, connection: AsyncpgConnection, statement: str) -> None:
        try:
            async with _faults():
                await connection.execute(statement)
        except BaseException:
            self._drop()
            raise

    async def _was_committed(self, transaction: "_Transaction") -> bool:
        """Waits for the outcome, however long that takes: the server may be unreachable, or still
        working on the transaction."""
        while True:
            try:
                connection = await self._connected()
                async with _faults():
                    try:
                        rows = await connection.fetch(TRANSACTION_STATUS, transaction.id)
                        is_running = rows[0][0] == "in progress"
                    except asyncpg.InvalidParameterValueError:
                        is_running = False  # no such id: the server has crashed, or is another
                    if not is_running:
                        mark = (transaction.connection, transaction.number)
                        return bool(await connection.fetch(MARKED, *mark))
            except StoreError as error:
                if error.kind == "broken":  # no such table: the server was restored from a backup
                    return False
                self._drop()
            await asyncio.sleep(STATUS_INTERVAL)


class _Transaction(NamedTuple):
    """A transaction with operations."""

    id: str
    """That of PostgreSQL, which is used again after a crash if nothing of the transaction was on
    disk."""

    connection: str
    number: int


# On a connection


@lru_cache(1024)  # more than there are here; those of tools may be many
def numbered(statement: str) -> str:
    """A statement in the form of PostgreSQL: numbered parameters, its clock, and row locks."""
    numbers = count(1)
    own = statement.replace(CLOCK, NOW)
    return sub(r"\?", lambda _: f"${next(numbers)}", own) + LOCKS.get(statement, "")


async def run_queries(connection: AsyncpgConnection, queries: Queries[T]) -> T:
    """Runs the queries, one after the other. Returns the result of the generator."""
    try:
        query = next(queries)
        while True:
            try:
                found = await _fetch(connection, *query)
            except FAULTS as error:
                query = queries.throw(StatementFailed(store_error(error), error))
            else:
                query = queries.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
    except StatementFailed as failed:
        raise failed.cause from None


async def _fetch(
    connection: AsyncpgConnection, statement: str, parameters: tuple[Value, ...]
) -> Sequence[Row]:
    if isinstance(statement, Verbatim):
        return [tuple(row) for row in await connection.fetch(numbered(statement), *parameters)]
    found = await connection.fetch(numbered(statement), *escape_parameters(parameters))
    return unescape_rows(found)


async def _write_batch(connection: AsyncpgConnection, batch: Batch, server: str) -> set[str]:
    missing = await _append(connection, batch.blocks, server) if batch.blocks else set()
    for operation in batch.in_lock_order():
        try:
            await run_queries(connection, operation.queries())
        except FAULTS as error:
            if _kind(error) is None:
                raise OperationRejected(operation, store_error(error)) from None
            raise
    return missing


async def _append(
    connection: AsyncpgConnection, blocks: Sequence[LogBlock], server: str
) -> set[str]:
    """Appends blocks to the logs. Returns the responses of which one was dropped."""
    status = await connection.execute(
        APPEND,
        [escape(id) for id, _ in blocks],
        [block.number for _, block in blocks],
        [block.first for _, block in blocks],
        [block.count for _, block in blocks],
        [block.data for _, block in blocks],
        escape(server),
    )
    if int(status.rpartition(" ")[2]) == len(blocks):
        return set()
    return await run_queries(connection, dropped(blocks))


# Errors


@asynccontextmanager
async def _faults() -> AsyncIterator[None]:
    try:
        yield
    except FAULTS as error:
        raise store_error(error) from None


FAULTS = (
    asyncpg.PostgresError,  # reported by the server
    asyncpg.InterfaceError,  # a closed connection, a value that cannot be sent
    asyncpg.InternalClientError,
    OSError,  # TimeoutError is one
    ValueError,  # a URL that cannot be parsed
    OverflowError,
)


def store_error(error: Exception) -> StoreError:
    """One of FAULTS, as callers may see it: without parameters."""
    match error:
        case TimeoutError():
            return StoreError("PostgreSQL: no response in time", "busy")
        case OSError():
            return StoreError(f"PostgreSQL: no connection ({error.strerror})", "lost")
        case asyncpg.PostgresError():
            name = f"{type(error).__name__} ({error.sqlstate})"
        case _:
            name = type(error).__name__
    return StoreError(f"PostgreSQL: {name}", _kind(error) or "broken")


def _kind(error: Exception) -> Kind | None:
    """Why it failed; None: the operation itself is at fault."""
    match error:
        case asyncpg.PostgresError():
            fitting = [code for code in KINDS if error.sqlstate.startswith(code)]
            return KINDS[max(fitting, key=len)] if fitting else "broken"
        case ValueError() | OverflowError():  # a value that cannot be sent
            return None
        case _:
            return "lost"
