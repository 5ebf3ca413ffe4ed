"""The log of one response: what its client is told, event by event, on its way to the store.

What is told is counted, hashed and handed to the store some at a time: rows are batches, never
tokens. Whoever follows a response gets its events as they were sent: what is still in memory from
there, the rest from the store, also of another process.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256

from weft.errors import InternalError
from weft.store.base import Store, StoreError
from weft.store.records import Block

PAUSE = 1.0
"""Seconds that what was told waits before it goes to the store, at least."""

RATE = 500
"""Blocks a second that go to it, at most: with more logs than that, they wait longer."""

BATCH = 32 * 1024
"""Bytes that do not wait."""

AT_ONCE = 100
"""Logs that are handed on in one turn of the loop."""

KEPT = 128 * 1024
"""Bytes of the newest events that stay in memory for whoever follows."""

POLL = 0.1
"""Seconds between two looks at a response that another process runs."""

_END = b"\n\n"
_COMMENT = b"\n\n:"


class Pace:
    """Has the logs of a process handed to the store together: one transaction for all of them costs
    much less than one for each."""

    def __init__(self) -> None:
        self._logs: dict[Log, None] = {}
        self._ticks = False
        self._many = 0
        """How many there were the last time."""

    def add(self, log: "Log") -> None:
        """This log has something that may wait."""
        self._logs[log] = None
        if not self._ticks:
            self._ticks = True
            log.loop.call_later(max(PAUSE, self._many / RATE), self._waited)

    def drop(self, log: "Log") -> None:
        """Nothing of this log waits any more."""
        self._logs.pop(log, None)

    def _waited(self) -> None:
        logs, self._logs, self._ticks = list(self._logs), {}, False
        self._many = len(logs)
        self._hand_on(logs)

    def _hand_on(self, logs: list["Log"]) -> None:
        for log in logs[:AT_ONCE]:
            log.waited()
        if len(logs) > AT_ONCE:  # others are to have their turn
            logs[0].loop.call_soon(self._hand_on, logs[AT_ONCE:])


class Log:
    """One response that runs in this process. `append` each block; `close` at its end."""

    def __init__(self, store: Store, pace: Pace, id: str) -> None:
        self.id = id
        self.loop = asyncio.get_running_loop()
        self.is_open = False
        """Whether the first events are stored."""
        self.ended = False
        """Whether nothing more will come."""
        self.fault: StoreError | None = None
        """Why the store took no more of it."""
        self._store = store
        self._pace = pace
        self._paced = False
        self._told: list[bytes] = []
        """As it came: not counted yet."""
        self._hash = sha256()
        self._events = 0
        self._size = 0
        self._hidden = 0
        """How many of the last events nobody may see yet."""
        self._waiting: list[bytes] = []
        """Counted, not yet handed to the store."""
        self._waiting_size = 0
        """Bytes of both."""
        self._first = 0  # number of the first event that waits
        self._blocks = 0
        self._recent: deque[Block] = deque()
        self._recent_size = 0
        self._news: list[asyncio.Future[None]] = []

    def head(self, first: bytes) -> Block:
        """The first events, to be stored with the beginning. Nobody sees them before `open`."""
        self._told.append(first)
        self._count()
        self._hidden = self._events
        return self._handed(self._block())

    def open(self) -> None:
        """The first events are stored."""
        self.is_open = True
        self._hidden = 0
        self._tell()

    def append(self, block: bytes) -> None:
        """These events are told; comments among them are not kept. Raises StoreError once the
        store takes no more."""
        if not self.took(block):
            raise self.fault or InternalError("nothing was stored that comes before")

    def took(self, block: bytes) -> bool:
        """Whether a block needs no more than to be appended, and was."""
        if self.fault is not None or not self.is_open:
            return False
        self._told.append(block)
        self._waiting_size += len(block)
        if self._waiting_size >= BATCH:
            self._hand_on()
        elif not self._paced:
            self._paced = True
            self._pace.add(self)
        if self._news:
            self._tell()
        return True

    def waited(self) -> None:
        """What was told has waited long enough."""
        self._paced = False
        self._hand_on()

    def _hand_on(self) -> None:
        try:
            self.flush()
        except StoreError as problem:
            self.fault = problem

    def flush(self) -> None:
        """Hands on what waits. Raises StoreError."""
        self._count()
        if self._waiting and not self.ended:
            block = self._block()
            self._store.append(self.id, block)
            self._handed(block)

    def close(self, last: bytes, *, is_body: bool = False) -> Block | None:
        """The rest of the log: it is stored with the ending, nobody sees the last events before.
        A body is one event, whatever lines it has. Raises StoreError.
        """
        if self.fault is not None:
            raise self.fault
        self._count()
        if last:
            data = last if is_body else _without_comments(last)
            self._hidden = 1 if is_body else data.count(_END)
            self._counted(data, self._hidden)
        return self._handed(self._block()) if self._waiting else None

    def _block(self) -> Block:
        """What waits."""
        data = b"".join(self._waiting)
        return Block(self._blocks, self._first, self._events - self._first, data)

    def _handed(self, block: Block) -> Block:
        """What waited is handed on."""
        self._blocks += 1
        self._first = self._events
        self._waiting, self._waiting_size = [], 0
        return block

    def _count(self) -> None:
        """Counts and hashes what was told, some at a time: that is cheaper than one by one."""
        if self._told:
            data = _without_comments(b"".join(self._told))
            self._told = []
            self._counted(data, data.count(_END))

    def _counted(self, data: bytes, count: int) -> None:
        self._hash.update(data)
        self._waiting.append(data)
        self._recent.append(Block(0, self._events, count, data))
        self._recent_size += len(data)
        self._events += count
        self._size += len(data)
        while self._recent_size > KEPT and self._recent[0].first < self._first:
            self._recent_size -= len(self._recent.popleft().data)

    @property
    def events(self) -> int:
        self._count()
        return self._events

    @property
    def size(self) -> int:
        self._count()
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
        self._pace.drop(self)
        if stored:
            self._hidden = 0
        self._tell()

    @property
    def oldest(self) -> int:
        """The number of the first event that is still in memory."""
        self._count()
        return self._recent[0].first if self._recent else self._events

    def since(self, number: int) -> bytes:
        """The events in memory from this one on."""
        shown = self.shown
        return b"".join(rest(one, number) for one in self._recent if one.first < shown)

    async def news(self) -> None:
        """Returns when more was told, or nothing will be."""
        future = self.loop.create_future()
        self._news.append(future)
        try:
            await future
        finally:
            if future in self._news:
                self._news.remove(future)

    def _tell(self) -> None:
        news, self._news = self._news, []
        for future in news:
            if not future.done():
                future.set_result(None)


def _without_comments(block: bytes) -> bytes:
    if block[:1] != b":" and _COMMENT not in block:
        return block
    return _END.join(one for one in block.split(_END) if not one.startswith(b":"))


def rest(block: Block, number: int) -> bytes:
    """The events of a block from the one with this number on."""
    if number <= block.first:
        return block.data
    if number >= block.first + block.count:
        return b""
    return _END.join(block.data.split(_END)[number - block.first :])


async def follow(
    store: Store, logs: Mapping[str, Log], id: str, number: int = 0
) -> AsyncIterator[bytes]:
    """Tells the events of a response from this one on, to its end. `logs` are those that run here.

    Raises StoreError.
    """
    while True:
        log = logs.get(id)
        if log is not None and number >= log.oldest:
            told, upto, ended = log.since(number), log.shown, log.ended
            if told:
                yield told
            elif ended:
                return
            else:
                await log.news()
            number = max(number, upto)
            continue
        if log is not None:
            log.flush()
            await store.flushed(id)
        entry = await store.entry(id)  # before its blocks: once it ended, they are all there
        blocks = await store.blocks(id, number - 1)
        for block in blocks:
            yield rest(block, number)
            number = block.first + block.count
        if not blocks and (entry is None or entry.ended is not None):
            return
        if not blocks and log is None:
            await asyncio.sleep(POLL)
