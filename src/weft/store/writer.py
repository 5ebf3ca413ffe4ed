"""The writer: what waits to be written, and one transaction for all of it (group commit).

1. Everything is written in the order it came. A failed transaction is rolled back as a whole and
   tried again, with what came meanwhile behind it.
2. Operations go at once and take the waiting blocks along; blocks alone are written at most once
   in `pause` seconds, so that a row is a batch and not a token. Where many blocks were written of
   late, many responses run: an operation then waits some milliseconds for others to go along.
3. An operation that is itself at fault fails alone: the others are written without it.
4. An operation is given up only while no transaction carries it, so whoever is told that it failed
   can rely on that. A transaction that neither ends nor fails leaves it `unknown`.

All of this runs on the loop's thread; where the transaction runs is the database's business.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar

from weft.errors import ClientError, WeftError
from weft.store.base import Kind, StoreError
from weft.store.queries import Queries
from weft.store.records import Block

T = TypeVar("T")

OVERHEAD = 100
"""Bytes that a queued block or operation weighs beside its contents."""

TRANSACTION_SIZE = 8 * 1024 * 1024
"""Bytes in one transaction, about."""

DECAY = 2 / 3
"""What is left, after a second, of how much was written of late."""

MAX_DROPPED = 10_000
"""Responses of which we still know that blocks were dropped."""


@dataclass(frozen=True, slots=True)
class WritePolicy:
    timeout: float = 10.0
    """Seconds that a write may wait for a database that is locked, full or away."""

    flush_interval: float = 0.05
    """Seconds between two transactions that carry blocks only."""

    linger: float = 0.025
    """Seconds from one transaction to the next that carries operations, at most."""

    linger_blocks: int = 500
    """Blocks, written of late, that have them wait so long; fewer, less."""

    queue_size: int = 64 * 1024 * 1024
    """Bytes of blocks that may wait; operations are let in up to twice as many, and one that is
    larger where nothing else waits."""

    first_retry: float = 0.02
    max_retry: float = 1.0


class OperationPhase(Enum):
    """Where an operation is."""

    WAITING = "no transaction carries it"
    CARRIED = "a transaction does"
    OVERDUE = "a transaction does, and patience has run out"
    SETTLED = "its caller knows"


class OperationRejected(Exception):
    """One operation is at fault; nothing of its transaction was written."""

    def __init__(self, operation: "AnyOperation", error: StoreError) -> None:
        super().__init__(str(error))
        self.operation = operation
        self.error = error


class AnyOperation(Protocol):
    """An operation, whatever comes of it."""

    phase: OperationPhase
    size: int
    durable: bool

    def steps(self) -> Queries[None]:
        """Does it, once more each time; what comes of it is kept."""
        ...

    def settle(self) -> None:
        """Tells the caller what came of it."""
        ...

    def fail(self, error: WeftError) -> None: ...


class Operation(Generic[T]):
    __slots__ = ("_error", "_make", "_result", "durable", "future", "phase", "size")

    def __init__(
        self, make: Callable[[], Queries[T]], future: asyncio.Future[T], size: int, durable: bool
    ) -> None:
        self._make = make
        self._result: T
        self._error: WeftError | None = None
        self.future = future
        self.size = size
        self.durable = durable
        self.phase = OperationPhase.WAITING

    def steps(self) -> Queries[None]:
        try:
            self._result = yield from self._make()
        except (ClientError, StoreError) as error:
            self._error = error
        else:
            self._error = None

    def settle(self) -> None:
        self.phase = OperationPhase.SETTLED
        if self.future.done():  # nobody waits any more
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._result)

    def fail(self, error: WeftError) -> None:
        self.phase = OperationPhase.SETTLED
        if not self.future.done():
            self.future.set_exception(error)


LogBlock: TypeAlias = tuple[str, Block]
Work: TypeAlias = LogBlock | AnyOperation
Batch: TypeAlias = list[Work]
Write: TypeAlias = Callable[[Sequence[Work], bool], Awaitable[set[str]]]
"""Writes a batch in one transaction, safe from a power cut if told so. Returns the responses of
which blocks were dropped. Raises OperationRejected or StoreError when all of it was rolled back."""


def group_blocks(batch: Sequence[Work]) -> list[list[LogBlock] | AnyOperation]:
    """The batch in its order, with the blocks that follow one another together."""
    found: list[list[LogBlock] | AnyOperation] = []
    blocks: list[LogBlock] | None = None
    for work in batch:
        if not isinstance(work, tuple):
            found.append(work)
            blocks = None
        elif blocks is None:
            blocks = [work]
            found.append(blocks)
        else:
            blocks.append(work)
    return found


class Writer:
    """Queues work and writes it. Between `start` and `stop` only, and on one loop."""

    def __init__(self, write: Write, policy: WritePolicy) -> None:
        self._write = write
        self._policy = policy
        self._queue: Batch = []
        self._batch: Batch = []
        self._dropped: dict[str, None] = {}
        self._last_error: StoreError | None = None
        self._running: asyncio.Task[None] | None = None
        self._last_commit = 0.0
        """When the last transaction was."""
        self._recent_blocks = 0.0
        """Blocks of late: each counts less by a third every second."""
        self.waiting = 0
        self.commits = 0

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._any = asyncio.Event()
        self._urgent = asyncio.Event()
        self._running = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Writes what waits, as far as patience goes."""
        if self._running is None:
            return
        running, self._running = self._running, None  # nothing is let in any more
        self._urgent.set()
        self._any.set()
        await asyncio.wait({running}, timeout=self._policy.timeout)
        running.cancel()
        await asyncio.wait({running})
        for work in self._batch + self._queue:
            if not isinstance(work, tuple):
                work.fail(_unknown())
        self._batch, self._queue, self.waiting = [], [], 0
        if not running.cancelled():
            running.result()  # a fault of ours is not to go unseen

    # What comes in

    def append(self, id: str, block: Block) -> None:
        if (block.number | block.first | block.count) >> 62:
            raise ClientError("the numbers of a block are from 0 to 2^62")
        waiting = self.waiting + len(block.data) + OVERHEAD
        if waiting > self._policy.queue_size or self._running is None:
            raise self._not_accepted()
        self.waiting = waiting
        self._queue.append((id, block))
        if not self._any.is_set():
            self._any.set()

    async def submit(
        self, make: Callable[[], Queries[T]], size: int = 0, durable: bool = False
    ) -> T:
        """Returns what comes of an operation, when it is committed. Raises what it raised, or
        StoreError."""
        full = self.waiting > 0 and self.waiting + size > 2 * self._policy.queue_size
        if full or self._running is None:
            raise self._not_accepted()
        future: asyncio.Future[T] = self._loop.create_future()
        operation = Operation(make, future, size + OVERHEAD, durable)
        self.waiting += operation.size
        self._queue.append(operation)
        self._any.set()
        self._urgent.set()
        patience = self._loop.call_later(self._policy.timeout, self._time_out, operation)
        try:
            return await future
        finally:
            patience.cancel()

    def _not_accepted(self) -> StoreError:
        if self._running is None:
            return StoreError("the store is not open", "closed")
        return StoreError(f"{self.waiting} bytes wait to be written already", "full")

    def has_queued(self, id: str) -> bool:
        """Whether blocks of this response wait to be written."""
        return any(
            isinstance(work, tuple) and work[0] == id for work in (*self._batch, *self._queue)
        )

    def dropped(self, id: str) -> bool:
        """Whether blocks of this response were dropped."""
        return id in self._dropped

    def forget(self, id: str) -> None:
        self._dropped.pop(id, None)

    # Patience

    def _time_out(self, operation: Operation[T]) -> None:
        if operation.phase is OperationPhase.CARRIED:
            operation.phase = OperationPhase.OVERDUE
            self._loop.call_later(self._policy.timeout, self._unknown, operation)
        elif operation.phase is OperationPhase.WAITING:
            operation.fail(self._timeout_error())

    def _unknown(self, operation: Operation[T]) -> None:
        if not operation.future.done():
            operation.future.set_exception(_unknown())

    def _timeout_error(self) -> StoreError:
        kind: Kind = "busy" if self._last_error is None else self._last_error.kind
        why = "the database is slow" if self._last_error is None else str(self._last_error)
        return StoreError(f"not written within {self._policy.timeout:g} s: {why}", kind)

    # What goes out

    async def _run(self) -> None:
        """Ends when nothing is let in any more and all is written."""
        while self._running is not None or self._queue:
            await self._any.wait()
            await self._rest()
            self._take()
            await self._commit()

    async def _rest(self) -> None:
        """Waits until blocks may go, or something that is in a hurry comes, and for others that may
        go along with that."""
        policy = self._policy
        if not self._urgent.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(policy.flush_interval):
                    await self._urgent.wait()
        since = self._loop.time() - self._last_commit
        crowd = min(self._recent_blocks * DECAY**since / policy.linger_blocks, 1.0)
        if self._running is not None and since < crowd * policy.linger:
            await asyncio.sleep(crowd * policy.linger - since)

    def _take(self) -> None:
        """Moves what waits to the end of the batch, as much as one transaction should carry."""
        weight = sum(map(_weight, self._batch))
        taken = 0
        for work in self._queue:
            weight += _weight(work)
            if weight > TRANSACTION_SIZE and self._batch:
                break
            self._batch.append(work)
            taken += 1
        del self._queue[:taken]
        if not self._queue and self._running is not None:
            self._any.clear()
            self._urgent.clear()

    async def _commit(self) -> None:
        """Writes the batch, however often that takes."""
        retry = self._policy.first_retry
        while self._batch:
            self._drop_settled()
            try:
                dropped = await self._attempt()
            except OperationRejected as rejected:
                rejected.operation.fail(rejected.error)
                self._roll_back()
            except StoreError as error:
                self._last_error = error
                self._roll_back()
                await asyncio.sleep(retry)
                retry = min(retry * 2, self._policy.max_retry)
                self._take()
            else:
                self._committed(dropped)

    def _drop_settled(self) -> None:
        """Leaves out what was given up or failed."""
        kept = [
            work
            for work in self._batch
            if isinstance(work, tuple) or work.phase is not OperationPhase.SETTLED
        ]
        if len(kept) < len(self._batch):
            self.waiting -= sum(map(_weight, self._batch)) - sum(map(_weight, kept))
            self._batch = kept

    async def _attempt(self) -> set[str]:
        durable = False
        for work in self._batch:
            if not isinstance(work, tuple):
                work.phase = OperationPhase.CARRIED
                durable = durable or work.durable
        return await self._write(self._batch, durable) if self._batch else set()

    def _roll_back(self) -> None:
        """No transaction carries the batch any more: what is overdue fails."""
        for work in self._batch:
            if isinstance(work, tuple):
                continue
            if work.phase is OperationPhase.OVERDUE:
                work.fail(self._timeout_error())
            elif work.phase is OperationPhase.CARRIED:
                work.phase = OperationPhase.WAITING

    def _committed(self, dropped: set[str]) -> None:
        batch, self._batch = self._batch, []
        self._note(sum(isinstance(work, tuple) for work in batch))
        self.waiting -= sum(map(_weight, batch))
        self.commits += bool(batch)
        self._last_error = None
        for id in dropped:
            self._dropped[id] = None
        while len(self._dropped) > MAX_DROPPED:
            del self._dropped[next(iter(self._dropped))]
        for work in batch:
            if not isinstance(work, tuple):
                work.settle()

    def _note(self, blocks: int) -> None:
        now = self._loop.time()
        self._recent_blocks = self._recent_blocks * DECAY ** (now - self._last_commit) + blocks
        self._last_commit = now


def _weight(work: Work) -> int:
    return len(work[1].data) + OVERHEAD if isinstance(work, tuple) else work.size


def _unknown() -> StoreError:
    told = "the database does not answer: nobody knows whether this was written"
    return StoreError(told, "unknown")
