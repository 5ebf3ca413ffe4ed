"""The writer: a queue of writes, and one transaction for many of them (group commit).

1. Everything is written in the order in which it was queued. A failed transaction is rolled back as
   a whole and tried again, followed by what was queued meanwhile.
2. An operation is written at once, together with the queued blocks. Blocks alone are written at
   most once per `flush_interval`, so that a row holds a batch of events and not a token. If many
   blocks were written recently, many responses are running: an operation then waits some
   milliseconds for others to share its transaction.
3. An operation that is itself at fault fails alone: the others are written without it.
4. An operation is given up only while it is in no transaction, so a caller that is told that it
   failed can rely on that. If a transaction neither ends nor fails, its outcome is `unknown`.

All of this runs on the event loop; where the transaction runs is up to the database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from weft.errors import ClientError, WeftError
from weft.store.base import Kind, StoreError
from weft.store.queries import Queries
from weft.store.records import Block

T = TypeVar("T")
Result = TypeVar("Result", covariant=True)

OVERHEAD = 100
"""Bytes that a queued block or operation counts beside its contents."""

TRANSACTION_SIZE = 8 * 1024 * 1024
"""Bytes in one transaction, roughly."""

DECAY = 2 / 3
"""The factor, per second, by which the count of recently written blocks shrinks."""

MAX_DROPPED = 10_000
"""Responses for which it is remembered that blocks were dropped."""


@dataclass(frozen=True, slots=True)
class WritePolicy:
    timeout: float = 10.0
    """Seconds that a write may wait for a database that is locked, full or unreachable."""

    flush_interval: float = 0.05
    """Seconds between two transactions that hold only blocks."""

    linger: float = 0.025
    """Seconds between two transactions that hold operations, at most."""

    linger_blocks: int = 500
    """The number of recently written blocks from which on `linger` applies in full."""

    queue_size: int = 64 * 1024 * 1024
    """Bytes of blocks that may be queued. Operations may use twice as much, and a larger one is
    accepted if the queue is empty."""

    first_retry: float = 0.02
    max_retry: float = 1.0


class OperationPhase(Enum):
    """Where an operation is."""

    WAITING = "in no transaction"
    CARRIED = "in a transaction"
    OVERDUE = "in a transaction, and its time is up"
    SETTLED = "its caller has the result"


class OperationRejected(Exception):
    """One operation is at fault; nothing of its transaction was written."""

    def __init__(self, operation: "Operation[object]", error: StoreError) -> None:
        super().__init__(str(error))
        self.operation = operation
        self.error = error


class Operation(Generic[Result]):
    """A write that somebody waits for."""

    __slots__ = ("_error", "_future", "_make", "_result", "durable", "phase", "size")

    def __init__(
        self,
        make: Callable[[], Queries[Result]],
        future: asyncio.Future[Result],
        size: int,
        durable: bool,
    ) -> None:
        self._make = make
        self._future = future
        self._result: Result
        self._error: WeftError | None = None
        self.size = size
        self.durable = durable
        self.phase = OperationPhase.WAITING

    def queries(self) -> Queries[None]:
        """Runs the operation, again each time it is called, and keeps its result."""
        try:
            self._result = yield from self._make()
        except (ClientError, StoreError) as error:
            self._error = error
        else:
            self._error = None

    def settle(self) -> None:
        """Gives the caller the result."""
        if self._error is not None:
            self.fail(self._error)
            return
        self.phase = OperationPhase.SETTLED
        if not self._future.done():  # else the caller has stopped waiting
            self._future.set_result(self._result)

    def fail(self, error: WeftError) -> None:
        self.phase = OperationPhase.SETTLED
        self.fail_caller(error)

    def fail_caller(self, error: WeftError) -> None:
        """Reports an error to the caller, while the transaction goes on."""
        if not self._future.done():
            self._future.set_exception(error)


LogBlock: TypeAlias = tuple[str, Block]
Work: TypeAlias = LogBlock | Operation[object]
Batch: TypeAlias = list[Work]
Write: TypeAlias = Callable[[Sequence[Work], bool], Awaitable[set[str]]]
"""Writes a batch in one transaction, which survives a power failure if the flag is set. Returns the
responses of which blocks were dropped. Raises OperationRejected or StoreError if all of it was
rolled back."""


def group_blocks(batch: Sequence[Work]) -> list[list[LogBlock] | Operation[object]]:
    """The batch in its order, with consecutive blocks together."""
    found: list[list[LogBlock] | Operation[object]] = []
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
    """Queues work and writes it, between `start` and `stop`, on one event loop."""

    def __init__(self, write: Write, policy: WritePolicy) -> None:
        self._write = write
        self._policy = policy
        self._queue: Batch = []
        self._batch: Batch = []
        self._dropped: dict[str, None] = {}
        self._last_error: StoreError | None = None
        self._running: asyncio.Task[None] | None = None
        self._last_commit = 0.0
        self._recent_blocks = 0.0
        """The number of blocks written recently; see DECAY."""
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
        """Writes what is queued, for at most `timeout` seconds."""
        if self._running is None:
            return
        running, self._running = self._running, None  # nothing is accepted from here on
        self._urgent.set()
        self._any.set()
        await asyncio.wait({running}, timeout=self._policy.timeout)
        running.cancel()
        await asyncio.wait({running})
        for work in self._batch + self._queue:
            if not isinstance(work, tuple):
                work.fail(_outcome_unknown())
        self._batch, self._queue, self.waiting = [], [], 0
        if not running.cancelled():
            running.result()  # raises what was our own fault

    # The queue

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
        """Returns the result of an operation when it is committed. Raises what it raised, or
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
        timer = self._loop.call_later(self._policy.timeout, self._time_out, operation)
        try:
            return await future
        finally:
            timer.cancel()

    def _not_accepted(self) -> StoreError:
        if self._running is None:
            return StoreError("the store is not open", "closed")
        return StoreError(f"the write queue is full ({self.waiting} bytes)", "full")

    def has_queued(self, id: str) -> bool:
        """Whether blocks of this response are queued."""
        return any(
            isinstance(work, tuple) and work[0] == id for work in (*self._batch, *self._queue)
        )

    def dropped(self, id: str) -> bool:
        """Whether blocks of this response were dropped."""
        return id in self._dropped

    def forget(self, id: str) -> None:
        self._dropped.pop(id, None)

    # Timeouts

    def _time_out(self, operation: Operation[object]) -> None:
        if operation.phase is OperationPhase.CARRIED:
            operation.phase = OperationPhase.OVERDUE
            self._loop.call_later(self._policy.timeout, operation.fail_caller, _outcome_unknown())
        elif operation.phase is OperationPhase.WAITING:
            operation.fail(self._timeout_error())

    def _timeout_error(self) -> StoreError:
        kind: Kind = "busy" if self._last_error is None else self._last_error.kind
        why = "the database is slow" if self._last_error is None else str(self._last_error)
        return StoreError(f"not written within {self._policy.timeout:g} s: {why}", kind)

    # Transactions

    async def _run(self) -> None:
        """Writes until nothing is accepted any more and the queue is empty."""
        policy = self._policy
        while self._running is not None or self._queue:
            await self._any.wait()
            if not self._urgent.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(policy.flush_interval):
                        await self._urgent.wait()
            since = self._loop.time() - self._last_commit
            load = min(self._recent_blocks * DECAY**since / policy.linger_blocks, 1.0)
            if self._running is not None and since < load * policy.linger:
                await asyncio.sleep(load * policy.linger - since)
            self._fill_batch()
            await self._commit()

    def _fill_batch(self) -> None:
        """Moves work from the queue to the batch, as much as one transaction should hold."""
        size = sum(map(_size, self._batch))
        taken = 0
        for work in self._queue:
            size += _size(work)
            if size > TRANSACTION_SIZE and self._batch:
                break
            self._batch.append(work)
            taken += 1
        del self._queue[:taken]
        if not self._queue and self._running is not None:
            self._any.clear()
            self._urgent.clear()

    async def _commit(self) -> None:
        """Writes the batch, however many attempts that takes."""
        retry = self._policy.first_retry
        while self._batch:
            operations = self._begin_attempt()
            durable = any(one.durable for one in operations)
            try:
                dropped = await self._write(self._batch, durable) if self._batch else set()
            except OperationRejected as rejected:
                rejected.operation.fail(rejected.error)
                self._end_attempt(operations)
            except StoreError as error:
                self._last_error = error
                self._end_attempt(operations)
                await asyncio.sleep(retry)
                retry = min(retry * 2, self._policy.max_retry)
                self._fill_batch()
            else:
                self._committed(operations, dropped)

    def _begin_attempt(self) -> list[Operation[object]]:
        """Removes from the batch what has failed. Returns its operations."""
        batch = [
            work
            for work in self._batch
            if isinstance(work, tuple) or work.phase is not OperationPhase.SETTLED
        ]
        if len(batch) < len(self._batch):
            self.waiting -= sum(map(_size, self._batch)) - sum(map(_size, batch))
            self._batch = batch
        operations = [work for work in batch if not isinstance(work, tuple)]
        for operation in operations:
            operation.phase = OperationPhase.CARRIED
        return operations

    def _end_attempt(self, operations: Sequence[Operation[object]]) -> None:
        """After a rollback: the operations whose time is up fail."""
        for operation in operations:
            if operation.phase is OperationPhase.OVERDUE:
                operation.fail(self._timeout_error())
            elif operation.phase is OperationPhase.CARRIED:
                operation.phase = OperationPhase.WAITING

    def _committed(self, operations: Sequence[Operation[object]], dropped: set[str]) -> None:
        batch, self._batch = self._batch, []
        now, blocks = self._loop.time(), len(batch) - len(operations)
        self._recent_blocks = self._recent_blocks * DECAY ** (now - self._last_commit) + blocks
        self._last_commit = now
        self.waiting -= sum(map(_size, batch))
        self.commits += bool(batch)
        self._last_error = None
        for id in dropped:
            self._dropped[id] = None
        while len(self._dropped) > MAX_DROPPED:
            del self._dropped[next(iter(self._dropped))]
        for operation in operations:
            operation.settle()


def _size(work: Work) -> int:
    return len(work[1].data) + OVERHEAD if isinstance(work, tuple) else work.size


def _outcome_unknown() -> StoreError:
    message = "the database does not respond: it is not known whether this was written"
    return StoreError(message, "unknown")
