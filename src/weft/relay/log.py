"""The log of one response: what its client is told, event by event, on its way to the store.

A block is counted and hashed when it is told, and handed to the store some at a time: rows are
batches, never tokens. Whoever follows a response gets its events as they were sent: what is
still in memory from there, the rest from the store, also of another process.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256

from weft.store.base import Store, StoreError
from weft.store.records import Block

PAUSE = 1.0
"""Seconds that what was told may wait before it goes to the store."""

BATCH = 32 * 1024
"""Bytes that do not wait."""

KEPT = 128 * 1024
"""Bytes of the newest events that stay in memory for whoever follows."""

POLL = 0.1
"""Seconds between two looks at a response that another process runs."""

_END = b"\n\n"
_COMMENT = b"\n\n:"


class Log:
    """One response that runs in this process. `append` each block; `flush` before its end."""

    def __init__(self, store: Store, id: str) -> None:
        self.id = id
        self.events = 0
        self.size = 0
        self.shown = 0
        """Events that whoever follows may see."""
        self.fault: StoreError | None = None
        """Why the store took no more of it."""
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._hash = sha256()
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._first = 0  # number of the first event that waits
        self._blocks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._recent: deque[Block] = deque()
        self._recent_size = 0
        self._ended = False
        self._news: list[asyncio.Future[None]] = []

    async def open(self, first: bytes) -> None:
        """Returns when the first events are stored: nobody sees them before. Raises StoreError."""
        self._queue(first)
        self.flush()
        await self._store.flushed(self.id)
        self._show()

    def append(self, block: bytes) -> None:
        """These events are told; comments among them are not kept. Raises StoreError once the
        store takes no more."""
        if self.fault is not None:
            raise self.fault
        self._queue(block)
        if self._waiting_size >= BATCH:
            self._flush_late()
        elif self._timer is None:
            self._timer = self._loop.call_later(PAUSE, self._flush_late)
        self._show()

    def _queue(self, block: bytes) -> None:
        block = _without_comments(block)
        self._count(block, block.count(_END))
        self._waiting.append(block)
        self._waiting_size += len(block)

    def close(self, last: bytes, *, is_body: bool = False) -> Block | None:
        """Hands on what waits, and returns the last of the log: it is stored with the ending, and
        nobody sees it before. A body is one event, whatever lines it has. Raises StoreError.
        """
        if self.fault is not None:
            raise self.fault
        self.flush()
        if not last:
            return None
        data = last if is_body else _without_comments(last)
        count = 1 if is_body else data.count(_END)
        block = Block(self._blocks, self.events, count, data)
        self._count(data, count)
        return block

    def _count(self, block: bytes, count: int) -> None:
        self._hash.update(block)
        self._remember(Block(0, self.events, count, block))
        self.events += count
        self.size += len(block)

    def flush(self) -> None:
        """Hands on what waits. Raises StoreError."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        block = Block(self._blocks, self._first, self.events - self._first, data)
        self._store.append(self.id, block)
        self._blocks += 1
        self._first = self.events
        self._waiting, self._waiting_size = [], 0

    def _flush_late(self) -> None:
        try:
            self.flush()
        except StoreError as problem:
            self.fault = problem

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    # For whoever follows

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def end(self, *, stored: bool = True) -> None:
        """Nothing more will come; what came last is shown if it was stored."""
        self._ended = True
        if stored:
            self.shown = self.events
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    @property
    def oldest(self) -> int:
        """The number of the first event that is still in memory."""
        return self._recent[0].first if self._recent else self.events

    def since(self, number: int) -> bytes:
        """The events in memory from this one on."""
        return b"".join(rest(one, number) for one in self._recent if one.first < self.shown)

    async def news(self) -> None:
        """Returns when more was told, or nothing will be."""
        future = self._loop.create_future()
        self._news.append(future)
        try:
            await future
        finally:
            if future in self._news:
                self._news.remove(future)

    def _remember(self, block: Block) -> None:
        self._recent.append(block)
        self._recent_size += len(block.data)
        while self._recent_size > KEPT and self._recent[0].first < self._first:
            self._recent_size -= len(self._recent.popleft().data)

    def _show(self) -> None:
        self.shown = self.events
        if self._news:
            self._tell()

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
