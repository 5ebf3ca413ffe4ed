"""The log of one response: the events its client is told, on their way to the store.

Events are counted, hashed and handed to the store some at a time: rows are batches, never tokens.
Whoever follows a response gets its events as they were sent: what is still in memory from there,
the rest from the store, also of another process.

The digest is over the events as server-sent events, one behind the other, without comments and
ids; that of an answer in one piece is over its body.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec

from weft.errors import InternalError
from weft.sse import Event, write_events
from weft.store.base import Store, StoreError
from weft.store.records import Block, Entry

FLUSH_INTERVAL = 1.0
"""Seconds that events wait before they go to the store, at least."""

BLOCKS_PER_SECOND = 500
"""That go to it, at most: with more logs than that, they wait longer."""

BATCH = 32 * 1024
"""Bytes that do not wait."""

AT_ONCE = 100
"""Logs that are flushed in one turn of the loop."""

KEPT = 128 * 1024
"""Bytes of the newest events that stay in memory for whoever follows."""

POLL = 0.1
"""Seconds between two looks at a response that another process runs."""


BODY = "(body)"
"""The name of the one event in the log of an answer that was told in one piece."""

# Blocks

_Row = tuple[str, bytes, int | None]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Row]).decode


def pack(events: Iterable[Event]) -> bytes:
    """Events as a block of the store holds them."""
    return _encode([(event.name, event.data, event.number) for event in events])


def unpack(data: bytes) -> list[Event]:
    """The events of a block. Raises ValueError for what is none."""
    return [Event(name, value, number) for name, value, number in _decode(data)]


def events_of(blocks: Iterable[Block]) -> list[Event]:
    """Raises ValueError."""
    return [event for block in blocks for event in unpack(block.data)]


def readable_events(block: Block) -> list[Event]:
    """The events of a block; none if something spoiled it, as `weft verify` reports."""
    try:
        return unpack(block.data)
    except ValueError:
        return []


def body_of(events: Sequence[Event]) -> bytes | None:
    """The body that this log holds, if the answer was told in one piece."""
    return events[0].data if len(events) == 1 and events[0].name == BODY else None


def as_sent(events: Sequence[Event]) -> bytes:
    """The bytes that a digest is over: those of the stream, or of the body, that was sent."""
    body = body_of(events)
    return write_events(events) if body is None else body


class FlushScheduler:
    """Has the logs of a process flushed together: one transaction for all of them costs much less
    than one for each."""

    def __init__(self) -> None:
        self._logs: dict[Log, None] = {}
        self._scheduled = False
        self._last_count = 0
        """How many logs there were the last time."""

    def add(self, log: "Log") -> None:
        """This log has something that may wait."""
        self._logs[log] = None
        if not self._scheduled:
            self._scheduled = True
            delay = max(FLUSH_INTERVAL, self._last_count / BLOCKS_PER_SECOND)
            log.loop.call_later(delay, self._flush_all)

    def drop(self, log: "Log") -> None:
        """Nothing of this log waits any more."""
        self._logs.pop(log, None)

    def _flush_all(self) -> None:
        logs, self._logs, self._scheduled = list(self._logs), {}, False
        self._last_count = len(logs)
        self._flush(logs)

    def _flush(self, logs: list["Log"]) -> None:
        for log in logs[:AT_ONCE]:
            log.flush_due()
        if len(logs) > AT_ONCE:  # others are to have their turn
            logs[0].loop.call_soon(self._flush, logs[AT_ONCE:])


class _Batch(msgspec.Struct, frozen=True):
    """Some events in memory."""

    first: int
    events: Sequence[Event]
    size: int


class Log:
    """One response that runs in this process. `append` its events; `close` at its end."""

    def __init__(self, store: Store, scheduler: FlushScheduler, id: str) -> None:
        self.id = id
        self.loop = asyncio.get_running_loop()
        self.is_open = False
        """Whether the first events are stored."""
        self.ended = False
        """Whether nothing more will come."""
        self.fault: StoreError | None = None
        """Why the store took no more of it."""
        self._store = store
        self._scheduler = scheduler
        self._scheduled = False
        self._new: list[Event] = []
        """As they came: not counted yet."""
        self._hash = sha256()
        self._events = 0
        self._size = 0
        self._hidden = 0
        """How many of the last events nobody may see yet."""
        self._waiting: list[Event] = []
        """Counted, not yet handed to the store."""
        self._waiting_size = 0
        """Bytes of both."""
        self._first = 0  # number of the first event that waits
        self._blocks = 0
        self._recent: deque[_Batch] = deque()
        self._recent_size = 0
        self._waiters: list[asyncio.Future[None]] = []

    def head(self, first: Sequence[Event]) -> Block:
        """The first events, to be stored with the beginning. Nobody sees them before `open`."""
        self._new += first
        self._count()
        self._hidden = self._events
        return self._take_block()

    def open(self) -> None:
        """The first events are stored."""
        self.is_open = True
        self._hidden = 0
        self._wake()

    def append(self, events: Sequence[Event]) -> None:
        """These events are told. Raises StoreError once the store takes no more."""
        if not self.try_append(events):
            raise self.fault or InternalError("nothing was stored that comes before")

    def try_append(self, events: Sequence[Event]) -> bool:
        """Appends the events; returns False if they must be stored first, or cannot be."""
        if self.fault is not None or not self.is_open:
            return False
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
        """What was told has waited long enough."""
        self._scheduled = False
        self._try_flush()

    def _try_flush(self) -> None:
        try:
            self.flush()
        except StoreError as problem:
            self.fault = problem

    def flush(self) -> None:
        """Hands what waits to the store. Raises StoreError."""
        self._count()
        if self._waiting and not self.ended:
            block = self._block()
            self._store.append(self.id, block)
            self._handed_over(block)

    def close(self, last: Sequence[Event]) -> Block | None:
        """The rest of the log: it is stored with the ending, nobody sees the last events before.
        Raises StoreError."""
        if self.fault is not None:
            raise self.fault
        self._count()
        if last:
            self._hidden = len(last)
            self._add(last, write_events(last))
        return self._take_block() if self._waiting else None

    def close_body(self, body: bytes) -> Block:
        """As `close`, for an answer that is told in one piece. Raises StoreError."""
        if self.fault is not None:
            raise self.fault
        self._count()
        self._hidden = 1
        self._add([Event(BODY, body)], body)
        return self._take_block()

    def _block(self) -> Block:
        """What waits."""
        count = self._events - self._first
        return Block(self._blocks, self._first, count, pack(self._waiting))

    def _take_block(self) -> Block:
        block = self._block()
        self._handed_over(block)
        return block

    def _handed_over(self, block: Block) -> None:
        self._blocks += 1
        self._size += len(block.data)
        self._first = self._events
        self._waiting, self._waiting_size = [], 0

    def _count(self) -> None:
        """Counts and hashes what was told, some at a time: that is cheaper than one by one."""
        if self._new:
            events, self._new = self._new, []
            self._add(events, write_events(events))

    def _add(self, events: Sequence[Event], sent: bytes) -> None:
        self._hash.update(sent)
        self._waiting += events
        self._recent.append(_Batch(self._events, events, len(sent)))
        self._recent_size += len(sent)
        self._events += len(events)
        while self._recent_size > KEPT and self._recent[0].first < self._first:
            self._recent_size -= self._recent.popleft().size

    @property
    def events(self) -> int:
        self._count()
        return self._events

    @property
    def size(self) -> int:
        """Bytes of the blocks so far."""
        return self._size

    @property
    def digest(self) -> str:
        self._count()
        return self._hash.hexdigest()

    # For whoever follows

    @property
    def shown(self) -> int:
        """Events that whoever follows may see."""
        return self.events - self._hidden

    def end(self, *, stored: bool = True) -> None:
        """Nothing more will come; what came last is shown if it was stored."""
        self.ended = True
        self._scheduler.drop(self)
        if stored:
            self._hidden = 0
        self._wake()

    @property
    def oldest(self) -> int:
        """The number of the first event that is still in memory."""
        self._count()
        return self._recent[0].first if self._recent else self._events

    def since(self, number: int) -> list[Event]:
        """The events in memory from this one on."""
        shown = self.shown
        return [
            event
            for batch in self._recent
            if batch.first < shown
            for event in _from(batch.first, batch.events, number)
        ]

    async def changed(self) -> None:
        """Returns when more was told, or nothing will be."""
        future = self.loop.create_future()
        self._waiters.append(future)
        try:
            await future
        finally:
            if future in self._waiters:
                self._waiters.remove(future)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)


def _from(first: int, events: Sequence[Event], number: int) -> Sequence[Event]:
    """The events from this number on, if the first has that one."""
    return events if number <= first else events[number - first :]


async def follow(
    store: Store, logs: Mapping[str, Log], id: str, number: int = 0
) -> AsyncIterator[list[Event]]:
    """Tells the events of a response from this one on, to its end. `logs` are those that run here.

    Raises StoreError.
    """
    followed: Log | None = None
    while True:
        log = logs.get(id)
        if log is not None and number >= log.oldest:
            followed = log
            events, upto, ended = log.since(number), log.shown, log.ended
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
                log.flush()
                await store.flushed(id)
            except StoreError as problem:
                if problem.kind != "fenced":
                    raise
                log, logs = None, {}  # another server runs it: the store tells the rest
        entry = await store.entry(id)  # before its blocks: once it ended, they are all there
        if entry is not None and entry.ended is not None and followed is not None:
            if followed.digest != entry.digest:
                number = min(number, await _foreign_ending(store, entry))
            followed = None
        blocks = await store.blocks(id, number - 1)
        for block in blocks:
            events = list(_from(block.first, readable_events(block), number))
            if events:
                yield events
            number = block.first + block.count
        if not blocks and (entry is None or entry.ended is not None):
            return
        if not blocks and log is None:
            await asyncio.sleep(POLL)


async def _foreign_ending(store: Store, entry: Entry) -> int:
    """The number of the first event of the ending that another server gave a response: its last
    block. It follows what the store had, which may be less than what was told here."""
    blocks = await store.blocks(entry.id, entry.events - 2)
    return blocks[-1].first if blocks else entry.events
