"""SQLite: one file, one thread that writes, two that read, one that checkpoints.

1. WAL: readers do not wait for the writer, nor the writer for them, nor either of them for a
   checkpoint. Several processes may share the file; their writers take turns (BEGIN IMMEDIATE,
   with a timeout).
2. A commit survives a crash of the process (`synchronous=NORMAL`); one that ends a response
   or writes events of a run also survives a power failure (`FULL`).
3. After any error other than a lock, the connection is replaced: what it has cached of the file may
   be wrong.

No call of the sqlite3 module happens on the loop's thread.
"""

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from weft.store.base import Kind, StoreError
from weft.store.checkpoints import Checkpoints
from weft.store.escaping import escape, escape_parameters, unescape_rows
from weft.store.migrations import SQLITE, migrate
from weft.store.operations import dropped
from weft.store.queries import Queries, StatementFailed, Value, Verbatim
from weft.store.writer import Batch, LogBlock, OperationRejected

T = TypeVar("T")

READERS = 2
OLDEST = (3, 35, 0)
"""The first version with RETURNING."""

KINDS: dict[str, Kind] = {
    "SQLITE_BUSY": "busy",
    "SQLITE_LOCKED": "busy",
    "SQLITE_PROTOCOL": "busy",  # many processes opened the file at once
    "SQLITE_FULL": "full",
}
"""By the first two words of SQLite's error name; anything else is `broken`."""

AT_FAULT = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,  # an integer over 64 bits
)
"""Errors that an operation causes itself: another attempt ends the same way."""

FAULTS = (
    sqlite3.Error,
    sqlite3.Warning,  # two statements in one string, in Python 3.11
    OverflowError,
    UnicodeError,  # half a surrogate pair
)
"""How a statement fails."""

PAGES = 8 * 4096
"""Bytes of the pages that an operation changes beside its own, roughly."""

SETTINGS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 131072",  # pages, 512 MB: `checkpoints` has not kept up
    # A WAL that was longer is cut when it starts over. Everybody waits for that, up to 60 ms.
    "PRAGMA journal_size_limit = 536870912",
    "PRAGMA temp_store = MEMORY",  # the statement journal of inserts with many rows
)
"""Of the write connection."""

BETWEEN_PAUSES = 0.001
"""Seconds after which the event loop gives way to the thread that writes, again and again."""

PAUSE, SHORT_PAUSE, LONG_PAUSES = 0.0005, 0.0001, 3
"""Seconds that it does, at most; and how often, before the pauses become short."""

ROW = "(?, ?, ?, ?, ?)"
ROWS = (1, 16, 64, 256)
"""How many blocks one statement appends. Each statement releases the interpreter lock and waits for
it again, so few statements are better than many."""

# The row of the response decides: if it was deleted, has ended, or belongs to another server, the
# block is dropped.
APPENDS = {
    size: "INSERT INTO block (response, number, first, count, data) SELECT * FROM (VALUES "
    + ", ".join([ROW] * size)
    + """) WHERE EXISTS (SELECT 1 FROM response WHERE id = column1 AND ended IS NULL
            AND server = ?) ON CONFLICT DO NOTHING"""
    for size in ROWS
}
NO_ROW: tuple[Value, ...] = (None,) * 5


class WriterThread:
    """A thread that runs one function after the other, at half the cost of an executor.

    A busy event loop takes and releases the interpreter tens of thousands of times a second, each
    time before a thread that waits for it has woken up: a transaction of half a millisecond, whose
    every statement waits for the interpreter, took thirty. So the loop gives way to a function that
    takes long.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.pauses = 0
        """How often the loop gave way to the function that runs, or was the last to run."""
        self._next_pause: asyncio.TimerHandle | None = None
        Thread(target=self._work, name=name, daemon=True).start()

    @property
    def gives_way(self) -> bool:
        """Whether the loop will give way to the function that runs."""
        return self._next_pause is not None

    async def run(self, function: Callable[[], T]) -> T:
        """Returns what the function returns. One caller at a time."""
        future: asyncio.Future[T] = self._loop.create_future()
        working = Lock()
        working.acquire()

        def job() -> None:
            try:
                result = function()
            except BaseException as problem:
                self._call_on_loop(_set_exception, future, problem)
            else:
                self._call_on_loop(_set_result, future, result)
            working.release()

        self.pauses = 0
        self._queue.put(job)
        self._next_pause = self._loop.call_later(BETWEEN_PAUSES, self._give_way, working)
        try:
            return await future
        finally:
            if self._next_pause is not None:
                self._next_pause.cancel()
                self._next_pause = None

    def stop(self) -> None:
        """Ends the thread when everything queued is done."""
        self._queue.put(None)

    def _give_way(self, working: Lock) -> None:
        self.pauses += 1
        # What is not done after a few pauses waits for the disk: then it needs one short moment.
        pause = PAUSE if self.pauses <= LONG_PAUSES else SHORT_PAUSE
        if working.acquire(timeout=pause):
            self._next_pause = None  # it is done
        else:
            self._next_pause = self._loop.call_later(BETWEEN_PAUSES, self._give_way, working)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

    def _call_on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(function, *arguments)


def _set_result(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: "asyncio.Future[T]", problem: BaseException) -> None:
    if not future.done():
        future.set_exception(problem)


class Sqlite:
    """A Database in a file. `busy` is the timeout for a lock in seconds, and `connection` the class
    of the connections."""

    def __init__(
        self,
        path: Path,
        busy: float = 5.0,
        connection: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self._path = path
        self._busy = busy
        self._class = connection
        self._writer: sqlite3.Connection | None = None
        self._synchronous = ""
        self._readers: deque[sqlite3.Connection] = deque()

    async def open(self) -> None:
        self._write_thread = WriterThread("weft-store-writer")
        self._read_threads = ThreadPoolExecutor(READERS, "weft-store-reader")
        self._checkpoints = Checkpoints(
            self._path, lambda: self._connect(str(self._path), uri=False)
        )
        try:
            await self._write_thread.run(self._open)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._write_thread.run(self._close)
        self._write_thread.stop()

    async def read(self, make: Callable[[], Queries[T]]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._read_threads, self._read, make)

    async def write(self, batch: Batch, durable: bool, server: str) -> set[str]:
        return await self._write_thread.run(lambda: self._write(batch, durable, server))

    def lock_path(self, server: str) -> Path:
        return self._path.with_name(f"{self._path.name}-server-{server}")

    def journal_path(self, journal: str) -> Path:
        return self._path.with_name(f"{self._path.name}-usage-{journal}")

    # In the write thread

    def _open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            message = f"SQLite {sqlite3.sqlite_version} is too old: 3.35 is needed"
            raise StoreError(message, "broken")
        with self._faults(), transaction(self._connected(), "BEGIN IMMEDIATE") as connection:
            run_queries(connection, migrate(SQLITE))

    def _write(self, batch: Batch, durable: bool, server: str) -> set[str]:
        with self._faults():
            connection = self._connected()
            level = "FULL" if durable else "NORMAL"
            if level != self._synchronous:  # which cannot be changed inside a transaction
                connection.execute("PRAGMA synchronous = " + level)
                self._synchronous = level
            with transaction(connection, "BEGIN IMMEDIATE"):
                missing = _write_batch(connection, batch, server)
        self._checkpoints.committed(connection, batch.size + PAGES * len(batch.operations))
        return missing

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            fault = _fault(error)
            if fault.kind != "busy":
                self._disconnect()
            raise fault from error
        except OSError as error:
            self._disconnect()
            raise StoreError(f"{self._path}: {error.strerror}", "broken") from error

    def _connected(self) -> sqlite3.Connection:
        if self._writer is None:
            # Readable by its owner only; SQLite gives the files beside it the same mode.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            writer = self._connect(str(self._path), uri=False)
            try:
                if writer.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                    raise StoreError(
                        f"{self._path}: SQLite cannot use WAL on this file system", "broken"
                    )
                for setting in SETTINGS:
                    writer.execute(setting)
            except BaseException:
                writer.close()  # the next attempt would use it without its settings
                raise
            self._writer, self._synchronous = writer, ""
        return self._writer

    def _connect(self, database: str, uri: bool) -> sqlite3.Connection:
        return sqlite3.connect(
            database,
            timeout=self._busy,
            isolation_level=None,  # no implicit transactions
            check_same_thread=False,  # read connections are shared by the read threads
            factory=self._class,
            uri=uri,
        )

    def _close(self) -> None:
        """Closes the readers first: the last connection to close checkpoints the WAL, and read-only
        ones cannot."""
        self._checkpoints.stop()
        self._read_threads.shutdown(wait=True)
        while self._readers:
            self._readers.pop().close()
        self._disconnect()
        self._checkpoints.close()

    def _disconnect(self) -> None:
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.close()

    # In the read threads

    def _read(self, make: Callable[[], Queries[T]]) -> T:
        try:
            with self._reader() as connection, transaction(connection, "BEGIN"):
                return run_queries(connection, make())
        except (sqlite3.Error, OverflowError) as error:
            raise _fault(error) from error

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """An idle connection, or a new one; after an error it is closed."""
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._connect(self._path.absolute().as_uri() + "?mode=ro", uri=True)
        try:
            yield connection
        except (sqlite3.Error, OverflowError):
            connection.close()
            raise
        except BaseException:
            self._readers.append(connection)
            raise
        self._readers.append(connection)


# On a connection


def run_queries(connection: sqlite3.Connection, queries: Queries[T]) -> T:
    """Runs the queries, one after the other. Returns the result of the generator."""
    try:
        query = next(queries)
        while True:
            statement, parameters = query
            try:
                if isinstance(statement, Verbatim):
                    found = connection.execute(statement, parameters).fetchall()
                else:
                    rows = connection.execute(statement, escape_parameters(parameters)).fetchall()
                    found = unescape_rows(rows)
            except FAULTS as error:
                query = queries.throw(StatementFailed(_fault(error), error))
            else:
                query = queries.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
    except StatementFailed as failed:
        raise failed.cause from None


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    connection.execute(begin)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write_batch(connection: sqlite3.Connection, batch: Batch, server: str) -> set[str]:
    missing = _append(connection, batch.blocks, server)
    for operation in batch.operations:
        try:
            run_queries(connection, operation.queries())
        except AT_FAULT as error:
            raise OperationRejected(operation, _fault(error)) from error
    return missing


def _append(connection: sqlite3.Connection, blocks: Sequence[LogBlock], server: str) -> set[str]:
    """Appends blocks to the logs. Returns the responses of which one was dropped."""
    written = 0
    for start in range(0, len(blocks), ROWS[-1]):
        some = blocks[start : start + ROWS[-1]]
        size = next(size for size in ROWS if size >= len(some))
        rows: list[tuple[Value, ...]] = [
            (escape(id), b.number, b.first, b.count, b.data) for id, b in some
        ]
        rows += [NO_ROW] * (size - len(rows))
        values = [*chain.from_iterable(rows), escape(server)]
        written += connection.execute(APPENDS[size], values).rowcount
    return set() if written == len(blocks) else run_queries(connection, dropped(blocks))


def _fault(error: Exception) -> StoreError:
    """The messages of SQLite hold no parameters."""
    name = str(vars(error).get("sqlite_errorname", ""))
    return StoreError(f"SQLite: {error}", KINDS.get("_".join(name.split("_")[:2]), "broken"))
