"""The log of one response: the events that its client is sent, on their way to the store.

Events are counted, hashed and stored in batches: a row is a batch, never a token. A large batch is
cut into several blocks, of which only the last counts its events: the batch is invisible until that
one is stored. So the last events of a long response, which repeat all of it, can be stored before
the ending, a piece at a time, and become visible with it.

A follower of a response gets its events as they were sent: the recent ones from memory, the others
from the store, even if another process runs the response.

The digest is over the events as server-sent events, without comments and ids; that of a response
that was not streamed is over its body.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

import msgspec

from weft.errors import InternalError
from weft.large_json import copied
from weft.relay.offload import offload
from weft.sse import Event, frame, write_events
from weft.store.base import Store, StoreError
from weft.store.records import Block

FLUSH_INTERVAL = 1.0
"""Seconds that events wait before they are stored, at least."""

BLOCKS_PER_SECOND = 500
"""The most blocks that are stored per second: with more logs than that, events wait longer."""

BATCH = 32 * 1024
"""Bytes of events that are stored at once."""

# A flush hashes and packs up to BATCH bytes per log: 3 MB for all of them.
LOGS_PER_TURN = 100
"""Logs that are flushed in one turn of the event loop."""

MAX_UNWRITTEN = 32 * 1024 * 1024
"""Size of the write queue above which responses are read no faster than they are stored."""

RECENT_SIZE = 128 * 1024
"""Bytes of recent events that are kept in memory for followers."""

POLL_INTERVAL = 0.1
"""Seconds between two queries for a response that another process runs."""


BODY = "(body)"
"""The name of the single event in the log of a response that was not streamed."""

# Blocks

_Row = tuple[str, bytes, int | None]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, memoryview, int | None]]).decode

BLOCK = 128 * 1024
"""Bytes of one block, at most."""

LARGE = 1024 * 1024
"""Bytes from which on work is offloaded."""

_LENGTH = 4
"""Bytes of the length of a chunk."""

_NO_BYTES, _BIN_32 = b"\xc4\x00", b"\xc6"
"""An empty byte string in MessagePack, and the first byte of one over 64 KiB."""


def _chunks(events: Iterable[Event]) -> Iterator[bytes]:
    """Events as chunks of bytes, each with its length in front: small events share a chunk. A chunk
    with a large event comes in pieces, one of which is the data of the event, without a copy."""
    rows: list[_Row] = []
    size = 0
    for event in events:
        rows.append((event.name, event.data, event.number))
        size += len(event.data)
        if size >= BLOCK:
            yield from _chunk(rows)
            rows, size = [], 0
    if rows:
        yield from _chunk(rows)


def _chunk(rows: list[_Row]) -> tuple[bytes, ...]:
    # Only the last event of a chunk can be large: it is the one that filled it.
    name, last, number = rows[-1]
    if len(last) <= BLOCK:
        packed = _encode(rows)
        return (len(packed).to_bytes(_LENGTH, "big") + packed,)
    rows[-1] = (name, b"", number)
    # msgpack would copy the data of the event. Instead the rows are encoded with empty bytes in its
    # place, and those are replaced by the header of a bin 32 (MessagePack specification), behind
    # which the data itself is written. The result is what `_encode` would have made.
    outline, tail = _encode(rows), _encode(number)
    head = outline[: -len(tail) - len(_NO_BYTES)] + _BIN_32 + len(last).to_bytes(4, "big")
    size = len(head) + len(last) + len(tail)
    return size.to_bytes(_LENGTH, "big") + head, last, tail


def blocks_of(number: int, first: int, events: Sequence[Event]) -> Iterator[Block]:
    """A batch as blocks, numbered from `number`; its first event has the number `first`."""
    rows = [(event.name, event.data, event.number) for event in events]
    if rows and sum([len(data) for _, data, _ in rows]) < BLOCK:
        (chunk,) = _chunk(rows)
        if len(chunk) <= BLOCK:  # nearly always
            yield Block(number, first, len(rows), chunk)
            return
    last: bytes | memoryview = b""
    for piece in _chunks(events):
        view = memoryview(piece)
        for start in range(0, len(view), BLOCK):
            if last:
                yield Block(number, first, 0, bytes(last))
                number += 1
            last = view[start : start + BLOCK]
    yield Block(number, first, len(events), bytes(last))


class LogReader:
    """Reads the events of a log: feed it every block, in order. If it is strict, the bytes must be
    exactly those that `blocks_of` writes."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._pieces: list[bytes] = []
        """The beginning of an incomplete chunk."""
        self.pending = 0
        """Bytes of an incomplete chunk."""
        self._wanted = _LENGTH
        """Bytes of the chunk, or of its length."""
        self._events: list[Event] = []
        """The events of a batch whose last block is missing."""

    def feed(self, block: Block, *, ended: bool = False) -> list[Event]:
        """Returns the events that this block completes: those of a whole batch, or of each block if
        the response has `ended`. Raises ValueError for a corrupt batch, and continues with the next
        one.
        """
        self._pieces.append(block.data)
        self.pending += len(block.data)
        try:
            if self.pending >= self._wanted:
                self._read_chunks()
            # A batch ends with a chunk: otherwise a block is missing, or was changed.
            if block.count and self.pending:
                raise ValueError("the batch ends inside a chunk")
        except ValueError:
            self._pieces, self.pending, self._wanted = [], 0, _LENGTH
            self._events = []
            raise
        if not (block.count or ended):
            return []
        events, self._events = self._events, []
        return events

    def _read_chunks(self) -> None:
        # Not one buffer that grows: a chunk may be as large as a response, and a join lets other
        # threads run.
        view, self._wanted = memoryview(b"".join(self._pieces)), _LENGTH
        self._pieces = []
        while len(view) >= self._wanted:
            end = _LENGTH + int.from_bytes(view[:_LENGTH], "big")
            if len(view) < end:
                self._wanted = end
                break
            rows = _decode(view[_LENGTH:end])
            # The same rows can be spelled in several ways; only for ours a changed byte is noticed.
            # As bytes: a view is compared byte by byte, 60 MB in half a second.
            if self._strict and _encode(rows) != copied(view[_LENGTH:end]):
                raise ValueError("the chunk is not encoded canonically")
            self._events += [Event(name, copied(data), number) for name, data, number in rows]
            view = view[end:]
        self._pieces, self.pending = [bytes(view)], len(view)


class FlushScheduler:
    """Flushes the logs of a process together: one transaction for all of them is much cheaper than
    one for each."""

    def __init__(self) -> None:
        self._logs: dict[Log, None] = {}
        self._scheduled = False
        self._last_count = 0
        """The number of logs that were flushed last."""

    def add(self, log: "Log") -> None:
        """The log has events to flush within FLUSH_INTERVAL."""
        # A dict, so that logs are flushed in the order in which their events came.
        self._logs[log] = None
        if not self._scheduled:
            self._scheduled = True
            # With 5,000 streams a round takes 10 s: the same 500 rows a second, with more events in
            # each.
            delay = max(FLUSH_INTERVAL, self._last_count / BLOCKS_PER_SECOND)
            log.loop.call_later(delay, self._flush_all)

    def drop(self, log: "Log") -> None:
        """The log needs no flush."""
        self._logs.pop(log, None)

    def _flush_all(self) -> None:
        logs, self._logs, self._scheduled = list(self._logs), {}, False
        self._last_count = len(logs)
        self._flush(logs)

    def _flush(self, logs: list["Log"]) -> None:
        for log in logs[:LOGS_PER_TURN]:
            log.flush_due()
        if len(logs) > LOGS_PER_TURN:  # gives other work a turn
            logs[0].loop.call_soon(self._flush, logs[LOGS_PER_TURN:])


class _Batch(msgspec.Struct, frozen=True):
    """Some recent events in memory."""

    first: int
    events: Sequence[Event]
    size: int


class Log:
    """The log of a response that runs in this process."""

    def __init__(self, store: Store, scheduler: FlushScheduler, id: str) -> None:
        self.id = id
        self.loop = asyncio.get_running_loop()
        self.is_open = False
        """Whether the first events are stored."""
        self._has_room = False
        """Whether events may be appended without waiting, as of the last flush."""
        self.ended = False
        """Whether nothing follows."""
        self._closing = False
        """Whether `close` stores what waits."""
        self.error: StoreError | None = None
        """Why storing failed."""
        self._store = store
        self._scheduler = scheduler
        self._scheduled = False
        self._new: list[Event] = []
        """Events that are not counted yet."""
        self._number: int | None = None
        self._hash = sha256()
        self._events = 0
        self._size = 0
        self._hidden = 0
        """How many of the last events are still invisible."""
        self._waiting: list[Event] = []
        """Events that are counted, and not passed to the store yet."""
        self._waiting_size = 0
        """Bytes of the new and the waiting events."""
        self._first = 0  # number of the first event that waits
        self._blocks = 0
        self._recent: deque[_Batch] = deque()
        self._recent_size = 0
        self._waiters: list[asyncio.Future[None]] = []

    def first_blocks(self, first: Sequence[Event]) -> list[Block]:
        """The first events as blocks, to be stored with the beginning. Invisible before `open`."""
        self._new += first
        self._count()
        self._hidden = self._events
        blocks = list(blocks_of(self._blocks, self._first, self._waiting))
        self._handed_over(blocks)
        return blocks

    def open(self) -> None:
        """The first events are stored."""
        self.is_open = self._has_room = True
        self._hidden = 0
        self._wake()

    def append(self, events: Sequence[Event]) -> None:
        """Appends events. Raises StoreError if storing has failed."""
        if self.error is not None or not self.is_open:
            raise self.error or InternalError("the first events were not stored")
        self._has_room = True  # the caller has waited for it
        self.try_append(events)

    def try_append(self, events: Sequence[Event]) -> bool:
        """Appends the events; returns False if something must be stored first, or cannot be."""
        if not self._has_room:
            return False
        # The hot path of a stored stream: only appended here. `_count` hashes them later, together.
        self._new += events
        for event in events:
            self._waiting_size += len(event.data)
        if self._waiting_size >= BATCH:
            self._try_flush()
        elif not self._scheduled:
            self._scheduled = True
            self._scheduler.add(self)
        if self._waiters:
            self._wake()
        return True

    def flush_due(self) -> None:
        """Called by the scheduler."""
        self._scheduled = False
        self._try_flush()

    def _try_flush(self) -> None:
        try:
            self.flush()
        except StoreError as problem:
            self._fail(problem)
        else:
            is_fine = self.is_open and self.error is None
            self._has_room = is_fine and self._store.waiting <= MAX_UNWRITTEN

    def _fail(self, problem: StoreError) -> None:
        self.error, self._has_room = problem, False

    def flush(self) -> None:
        """Passes waiting events to the store. Raises StoreError."""
        self._count()
        # What is being closed would be stored twice, and its end be seen too early.
        if self._waiting and not self.ended and not self._closing:
            first, *others = blocks_of(self._blocks, self._first, self._waiting)
            self._store.append(self.id, first)  # if this raises, all of them keep waiting
            self._handed_over([first, *others])
            try:
                for block in others:
                    self._store.append(self.id, block)
            except StoreError as problem:
                self._fail(problem)
                raise

    async def close(self, last: Sequence[Event]) -> Block | None:
        """Returns the last block of the log, to be stored with the ending; the events in it are
        invisible before. If they are large, the blocks before it are stored first. Raises
        StoreError."""
        if self.error is not None:
            raise self.error
        self._closing = True
        self._count()
        # Followers must not see an end that could still fail to be stored.
        self._hidden += len(last)
        size = sum([len(event.data) for event in last])
        if last and size <= BLOCK:
            self._add(last, self._hashed(last))
        else:
            for event in last:
                # The last events of some dialects repeat the whole response.
                large, one = len(event.data) > LARGE, (event,)
                self._add(one, await offload(self._hashed, one) if large else self._hashed(one))
        if not self._waiting:
            return None
        rest, ahead = await send_ahead(
            self._store,
            self.id,
            self._blocks,
            self._first,
            self._waiting,
            self._waiting_size + size,
        )
        self._handed_over([rest])
        self._size += ahead
        return rest

    def _hashed(self, events: Sequence[Event]) -> int:
        """Adds events to the hash, a single one without a copy; returns their size as sent."""
        pieces: tuple[bytes, ...]
        if len(events) > 1:
            pieces = (write_events(events),)
        else:
            (event,) = events
            pieces = (event.data,) if event.name == BODY else frame(event.name, event.data)
        for piece in pieces:
            self._hash.update(piece)
        return sum(map(len, pieces))

    def _handed_over(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._blocks += 1
            self._size += len(block.data)
        self._waiting, self._waiting_size, self._first = [], 0, self._events

    def _count(self) -> None:
        """Counts and hashes new events, in batches: that is cheaper than one by one."""
        if self._new:
            events, self._new = self._new, []
            sent = write_events(events)
            self._hash.update(sent)
            self._number = _last_number(events, self._number)
            self._add(events, len(sent))

    def _add(self, events: Sequence[Event], size: int) -> None:
        self._waiting += events
        self._recent.append(_Batch(self._events, events, size))
        self._recent_size += size
        self._events += len(events)
        # Never what waits: followers could get it from nowhere else.
        while self._recent_size > RECENT_SIZE and self._recent[0].first < self._first:
            self._recent_size -= self._recent.popleft().size

    @property
    def events(self) -> int:
        self._count()
        return self._events

    @property
    def number(self) -> int | None:
        """The number of the last event that was appended, if the dialect numbers them; that of the
        end does not count."""
        return _last_number(self._new, self._number)

    @property
    def size(self) -> int:
        """Bytes of the blocks so far."""
        return self._size

    @property
    def digest(self) -> str:
        self._count()
        return self._hash.hexdigest()

    @property
    def extent(self) -> tuple[str, int, int]:
        """The digest, the number of events, and the size of the blocks so far."""
        return self.digest, self._events, self._size

    # For followers

    @property
    def visible(self) -> int:
        """The number of events that followers may see."""
        return self.events - self._hidden

    def end(self, *, stored: bool = True) -> None:
        """Nothing follows; the last events become visible if they were stored."""
        self.ended = True
        self._scheduler.drop(self)
        if stored:
            self._hidden = 0
        self._wake()

    @property
    def oldest(self) -> int:
        """The number of the oldest event in memory."""
        self._count()
        return self._recent[0].first if self._recent else self._events

    def since(self, number: int) -> list[Event]:
        """The visible events in memory from this number on."""
        visible = self.visible
        return [
            event
            for batch in self._recent
            if batch.first < visible
            for event in _from(batch.first, batch.events, number)
        ]

    async def changed(self) -> None:
        """Returns when there are more events, or the response has ended."""
        future = self.loop.create_future()
        self._waiters.append(future)
        try:
            await future
        finally:
            # Cancelled: a follower that left.
            if future in self._waiters:
                self._waiters.remove(future)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)


def _last_number(events: Sequence[Event], default: int | None) -> int | None:
    """The number of the last event that has one."""
    for event in reversed(events):
        if event.number is not None:
            return event.number
    return default


async def send_ahead(
    store: Store, id: str, number: int, first: int, events: Sequence[Event], data_size: int
) -> tuple[Block, int]:
    """Stores all blocks of a batch but the last (see `blocks_of`), as fast as the store takes them.
    `data_size` is that of its events. Returns the last block, and the size of the others. Raises
    StoreError."""
    blocks = blocks_of(number, first, events)
    large = data_size > LARGE
    # One block behind: only the generator's end tells which block is the last, and that one belongs
    # to the ending.
    rest, size = (await offload(next, blocks) if large else next(blocks)), 0
    while True:
        block = await offload(next, blocks, None) if large else next(blocks, None)
        if block is None:
            return rest, size
        store.append(id, rest)
        await store.wait_for_room(id)
        rest, size = block, size + len(rest.data)


def _from(first: int, events: Sequence[Event], number: int) -> Sequence[Event]:
    """The events from `number` on, if the first of them has the number `first`."""
    return events if number <= first else events[number - first :]


class StoredLog:
    """The events of a stored log from a number on. Of a corrupt log it returns what can be read;
    `weft verify` reports the rest.
    """

    def __init__(self, store: Store, id: str, number: int = 0) -> None:
        self.number = number
        """The number of the next event."""
        self._store = store
        self._id = id
        self._reader = LogReader()
        self._block = -1
        self._at = 0
        """The number of the next event of the reader."""

    async def read(self, *, ended: bool = False) -> AsyncIterator[list[Event]]:
        """Yields the events that were stored since the last call, block by block; possibly none.
        `ended`: whether the response had ended before the call. Raises StoreError.
        """
        while blocks := await self._store.blocks(self._id, self.number - 1, self._block):
            for block in blocks:
                if self._reader.pending > LARGE:  # decoding that takes long
                    yield await offload(self._events, block, ended)
                else:
                    yield self._events(block, ended)

    def _events(self, block: Block, ended: bool) -> list[Event]:
        try:
            events = self._reader.feed(block, ended=ended)
        except ValueError:
            events = []
        # A corrupt batch leaves a gap: numbers go on with the next one.
        self._at = max(self._at, block.first)
        new = _from(self._at, events, self.number)
        self._at += len(events)
        self._block = block.number
        if block.count:
            self._at = block.first + block.count
        self.number = max(self.number, self._at)
        return list(new)


async def follow(
    store: Store, logs: Mapping[str, Log], id: str, number: int = 0
) -> AsyncIterator[list[Event]]:
    """Yields the events of a response from this number to its end. `logs` are those of the
    responses that run here. Raises StoreError.
    """
    stored = StoredLog(store, id, number)
    followed: Log | None = None
    while True:
        log = logs.get(id)
        if log is not None and number >= log.oldest:
            followed = log
            events, upto, ended = log.since(number), log.visible, log.ended
            if events:
                yield events
            elif ended:
                return
            else:
                await log.changed()
            number = max(number, upto)
            continue
        if log is not None:
            try:
                # It is further back than the memory reaches: what is not in the store yet has to
                # be, before it is read from there, or the follower would miss what lies between.
                log.flush()
                await store.flush(id)
            except StoreError as problem:
                if problem.kind != "fenced":
                    raise
                log, logs = None, {}  # another server runs it: the rest is in the store
        # Before the blocks are read: once it has ended, they are all there.
        ended = not await store.is_running(id)
        if ended and followed is not None:
            number, followed = min(number, await _ending_start(store, id, followed)), None
        if stored.number != number:
            stored = StoredLog(store, id, number)
        more = False
        async for events in stored.read(ended=ended):
            more, number = True, stored.number
            if events:
                yield events
        if not more and ended:
            return
        if not more and log is None:
            await asyncio.sleep(POLL_INTERVAL)


async def _ending_start(store: Store, id: str, log: Log) -> int:
    """The number of the first event after which the stored log may differ from this one: if another
    server ended the response, its ending follows what the store had, which may be less than was
    sent here."""
    entry = await store.entry(id)
    if entry is None or entry.digest == log.digest:
        return log.events
    blocks = await store.blocks(id, entry.events - 2)
    return blocks[-1].first if blocks else entry.events
