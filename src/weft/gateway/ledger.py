"""The ledger: what each key has used, by day, model and upstream.

A charge is appended to a journal, a file of this process, before the client gets the end of its
response. Every half second the new charges are summed up and added to the store in one transaction,
together with the position that was reached in the journal. So a process may be killed at any time:
what the journal has and the store has not is added by another process, or at the next start, and
nothing is added twice. Only a power failure loses the last moments.
"""

import asyncio
import fcntl
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import add
from pathlib import Path

import msgspec

from weft.prices import PriceTable
from weft.relay.metering import Charge, cost_of_attempt
from weft.store.accounts import Source, UsageRow
from weft.store.base import StoreError
from weft.store.sql import SqlStore

FLUSH = 0.5
"""Seconds between two transactions."""

RECOVERY = 5.0
"""Seconds between two looks for the journals of dead processes."""

LONGEST = 8 * 1024 * 1024
"""Bytes of a journal, after which a new one is begun."""

MAX_COUNT = 2**60
MODEL_LENGTH = 200
DAY = 86_400
COUNTS = 8
"""Numbers of a charge: those of UsageRow."""

MAX_ROWS = 1024
"""Rows whose names are kept ready."""

log = logging.getLogger("weft.gateway")

Identity = tuple[str, str, str, str, Source]
"""The owner, the day, the model, the upstream, and the source of the counts."""

Line = tuple[str, str, str, str, Source, list[int]]
"""An identity, and the counts of a UsageRow."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


class Journal:
    """A file to which lines are appended. It is locked until this process dies."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.position = 0
        self._path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def append(self, line: bytes) -> None:
        """Raises OSError."""
        # One system call, and no sync: the file survives the process, which is all it is for.
        self.position += os.write(self._descriptor, line)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


@dataclass(slots=True)
class _UsageBatch:
    """A part of a journal, summed up."""

    start: int
    end: int
    rows: list[UsageRow]
    spent: list[tuple[str, int]]
    server: str


class _Row(msgspec.Struct, frozen=True):
    """What all charges of one row of the ledger have in common, from one midnight to the next."""

    identity: Identity
    line: bytes
    """Of the journal, to be filled in with the counts."""

    begin: float
    end: float


def _row_of(charge: Charge) -> _Row:
    upstream, _, model = charge.target.partition("/")
    # Anybody can invent names of models, and each would be a row for ever.
    model = "" if charge.is_unknown_model else model[:MODEL_LENGTH]
    begin = charge.at // DAY * DAY
    day = datetime.fromtimestamp(charge.at, UTC).date().isoformat()
    identity = (charge.owner, day, model, upstream, charge.source)
    # The line break is in front: after a line that did not fit on the disk, the next one is whole.
    line = b"\n" + _encode(identity)[:-1].replace(b"%", b"%%")
    return _Row(identity, line + b",[" + b",".join([b"%d"] * COUNTS) + b"]]", begin, begin + DAY)


class UsageLedger:
    """Charges what is used: `start` after the store is open, `close` before it is closed."""

    def __init__(self, store: SqlStore | None, prices: PriceTable) -> None:
        self._store = store
        self._prices = prices
        self._id = secrets.token_hex(16)
        """Of the journal."""
        self._journal: Journal | None = None
        self._written = 0
        """The position up to which the journal is in the store."""
        self._sums: dict[Identity, list[int]] = {}
        self._batch: _UsageBatch | None = None
        """What is being added to the store. It stays the same until it has been added: its outcome
        may not be known."""
        self._flushing = asyncio.Lock()
        self._rows: dict[tuple[str, str, Source, bool], _Row] = {}
        """The rows that were charged last."""
        self._has_failed = False
        self.collect_spent: Callable[[], list[tuple[str, int]]] = list
        """Called with each batch: the reservations that it replaces."""

    def charge(self, charge: Charge) -> int | None:
        """Adds what an attempt has used; returns its cost, None if that is not known."""
        cost = cost_of_attempt(self._prices, charge)
        if self._store is None:
            return cost
        usage = charge.usage
        row = (charge.owner, charge.target, charge.source, charge.is_unknown_model)
        found = self._rows.get(row)
        if found is None or not found.begin <= charge.at < found.end:
            found = self._rows[row] = _row_of(charge)
            if len(self._rows) > MAX_ROWS:
                del self._rows[next(iter(self._rows))]
        counts = [
            charge.requests,
            charge.requests if charge.is_failed else 0,
            usage.input_tokens or 0,
            usage.output_tokens or 0,
            usage.cache_read_tokens or 0,
            usage.reasoning_tokens or 0,
            cost or 0,
            charge.requests if cost is None else 0,
        ]
        _add_to(self._sums, found.identity, counts)
        if self._journal is not None:
            try:
                self._journal.append(found.line % tuple(counts))
            except OSError as problem:
                # The disk is full: what is charged is still in memory.
                if not self._has_failed:
                    log.warning("the usage journal cannot be written: %s", problem.strerror)
                self._has_failed = True
        return cost

    # The store

    async def start(self) -> None:
        """Adds what dead processes have left, and opens a journal. Raises StoreError."""
        if self._store is not None:
            await self.recover()
            self._open(self._store)

    def _open(self, store: SqlStore) -> None:
        self._id, self._journal, self._written = secrets.token_hex(16), None, 0
        try:
            self._journal = Journal(store.journal_path(self._id))
        except OSError as problem:
            log.warning("there is no usage journal: %s", problem.strerror)

    async def keep(self, after_flush: Callable[[], Awaitable[None]]) -> None:
        """Adds to the store again and again, and looks for what dead processes have left."""
        clock = asyncio.get_running_loop().time
        looked = clock()
        while True:
            await asyncio.sleep(FLUSH)
            try:
                await self.flush()
                await after_flush()
                if clock() - looked > RECOVERY:
                    looked = clock()
                    await self.recover()
            # OSError: its journal, or those of others, cannot be read at the moment.
            except (StoreError, OSError) as problem:
                log.warning("usage cannot be stored: %s", problem)
            except Exception as problem:
                log.error("usage cannot be stored", exc_info=problem)

    async def flush(self) -> None:
        """Returns when everything that was charged so far is in the store. Raises StoreError."""
        store = self._store
        if store is None:
            return
        async with self._flushing:
            # First what could not be added before. What comes meanwhile is for the next time: on a
            # busy server something always comes.
            if self._batch is not None:
                await self._add(store)
            if self._sums:
                await self._add(store)
            if self._journal is not None and self._journal.position > LONGEST:
                await self._close_journal(store)
                self._open(store)

    async def _add(self, store: SqlStore) -> None:
        if self._batch is None:
            sums, self._sums = self._sums, {}
            # Without a journal the positions count batches.
            end = self._written + 1 if self._journal is None else self._journal.position
            self._batch = _UsageBatch(
                self._written, end, _usage_rows(sums), self.collect_spent(), store.server
            )
        one = self._batch
        await store.accounts.add_usage(
            self._id, one.start, one.end, one.rows, one.server, one.spent
        )
        self._written, self._batch = one.end, None

    async def close(self) -> None:
        """Adds the rest. What cannot be added stays in the journal."""
        if self._store is not None:
            with suppress(StoreError):
                await self.flush()
                await self._close_journal(self._store)

    async def _close_journal(self, store: SqlStore) -> None:
        # Until nothing is left that only the journal has.
        while self._batch is not None or self._sums:
            await self._add(store)
        # The file first: without its row it would be added again from its start.
        if self._journal is not None:
            self._journal.remove()
        self._journal = None
        await store.accounts.remove_journal(self._id)

    async def usage(self, owner: str | None, first: str, last: str) -> list[UsageRow]:
        """What a key has used from one day to another, or all keys. What other processes have
        charged in the last moment may be missing. Raises StoreError."""
        if self._store is None:
            return []
        await self.flush()
        return await self._store.accounts.usage(owner, first, last)

    async def recover(self) -> None:
        """Adds what dead processes have left. Raises StoreError."""
        store = self._store
        if store is None:
            return
        pattern = store.journal_path("*")
        for path in await asyncio.to_thread(lambda: list(pattern.parent.glob(pattern.name))):
            found = await asyncio.to_thread(_read_dead, path)
            if found is None:
                continue
            descriptor, data = found
            id = path.name.removeprefix(pattern.name.removesuffix("*"))
            try:
                start = await store.accounts.position(id)
                sums = _sums(data[start:])
                await store.accounts.add_usage(id, start, len(data), _usage_rows(sums))
                path.unlink(missing_ok=True)
                await store.accounts.remove_journal(id)
            finally:
                os.close(descriptor)


def _read_dead(path: Path) -> tuple[int, bytes] | None:
    """Locks and reads the journal of a dead process; None if its process lives, or it is not
    ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # Somebody else may put a file into a shared folder.
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Somebody else may have added and removed it, before it was locked here.
        if not path.exists():
            raise FileNotFoundError
        return descriptor, path.read_bytes()
    except OSError:
        os.close(descriptor)
        return None


def _sums(data: bytes) -> dict[Identity, list[int]]:
    """The charges in a journal, summed up."""
    sums: dict[Identity, list[int]] = {}
    for line in data.split(b"\n"):
        with suppress(ValueError):  # a line that did not fit on the disk
            owner, day, model, upstream, source, counts = _decode(line)
            _add_to(sums, (owner, day, model, upstream, source), counts)
    return sums


def _add_to(sums: dict[Identity, list[int]], identity: Identity, counts: list[int]) -> None:
    before = sums.get(identity)
    sums[identity] = counts if before is None else list(map(add, before, counts))


def _usage_rows(sums: dict[Identity, list[int]]) -> list[UsageRow]:
    # A row that the database refuses would hold up all others for ever, also of an old journal.
    return [
        UsageRow(*identity, *(min(max(one, 0), MAX_COUNT) for one in counts))
        for identity, counts in sums.items()
    ]
