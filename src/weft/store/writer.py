"""The writer: a queue of writes, and one transaction for many of them (group commit).

1. The blocks of a response are written in the order in which they were queued, and before an
   operation that is `after` this response. Otherwise small operations overtake large work, and
   beside it every other transaction is theirs alone: a short response does not wait for the
   megabytes of a long one. A failed transaction is rolled back as a whole and tried again.
2. An operation is written at once, together with the queued blocks. Blocks alone are written at
   most once per `flush_interval`, so that a row holds a batch of events and not a token. If many
   responses are running, an operation waits some milliseconds for others to share its transaction.
3. An operation that is itself at fault fails alone: the others are written without it.
4. An operation is given up only while it is in no transaction, so a caller that is told that it
   failed can rely on that. If a transaction neither ends nor fails, its outcome is `unknown`.

All of this runs on the event loop; where the transaction runs is up to the database.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
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

TRANSACTION_SIZE = 2 * 1024 * 1024
"""Bytes in one transaction, roughly: some milliseconds in SQLite, for which the next one waits."""

SPARE = 1024 * 1024
"""Bytes in one transaction beyond that, for operations that overtake larger ones."""

LARGE_WORK = 256 * 1024
"""Bytes of one response, queued, for which small operations do not wait."""

LARGE_BLOCK = 32 * 1024
"""Bytes of a block that does not show how many responses are running."""

DECAY = 2 / 3
"""The factor, per second, by which the count of recently written logs shrinks."""

MAX_DROPPED = 10_000
"""Responses for which it is remembered that blocks were dropped."""


@dataclass(frozen=True, slots=True)
class WritePolicy:
    timeout: float = 10.0
    """Seconds that a write may wait for a database that is locked, full or unreachable."""

    flush_interval: float = 0.05
    """Seconds between two transactions that hold only blocks."""

    linger: float = 0.05
    """Seconds between two transactions that hold operations, at most."""

    linger_logs: int = 500
    """The number of recently written logs from which on `linger` applies in full."""

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

    __slots__ = (
        "_error",
        "_future",
        "_make",
        "_result",
        "after",
        "durable",
        "last",
        "phase",
        "row",
        "size",
    )

    def __init__(
        self,
        make: Callable[[], Queries[Result]],
        future: asyncio.Future[Result],
        size: int,
        durable: bool,
        after: str,
        last: bool,
        row: str = "",
    ) -> None:
        self._make = make
        self._future = future
        self._result: Result
        self._error: WeftError | None = None
        self.size = size
        self.durable = durable
        self.after = after
        self.last = last
        self.row = row
        self.phase = OperationPhase.WAITING

    def queries(self) -> Queries[None]:
        """Runs the operation, again each time it is called, and keeps its result."""
        try:
            self._result = yield from self._make()
        except (ClientError, StoreError) as error:
            # Without its frames, one of which refers to this operation: see `Writer.submit`.
            self._error = error.with_traceback(None)
        else:
            self._error = None

    def report_to(self, callback: "Callable[[asyncio.Future[Result]], object]") -> None:
        """The caller was cancelled: the callback gets the outcome instead."""
        if self._future.cancelled():  # together with its caller; else it has the outcome
            self._future = self._future.get_loop().create_future()
            if self.phase is OperationPhase.SETTLED:
                self.settle()
        self._future.add_done_callback(callback)

    def settle(self) -> None:
        """Gives the caller the result."""
        self.phase = OperationPhase.SETTLED
        if self._error is not None:
            self.fail_caller(self._error)
        elif not self._future.done():  # else the caller has stopped waiting
            self._future.set_result(self._result)

    def fail(self, error: WeftError) -> None:
        self._error = error
        self.settle()

    def fail_caller(self, error: WeftError) -> None:
        """Reports an error to the caller, while the transaction goes on."""
        if not self._future.done():
            self._future.set_exception(error)


LogBlock: TypeAlias = tuple[str, Block]


@dataclass(slots=True)
class Batch:
    """What one transaction writes: first the blocks, then the operations."""

    blocks: list[LogBlock] = field(default_factory=list)
    operations: list[Operation[object]] = field(default_factory=list)
    size: int = 0
    """Bytes, as they count in the queue."""

    def __bool__(self) -> bool:
        return bool(self.blocks or self.operations)

    def in_lock_order(self) -> list[Operation[object]]:
        """The operations, those that lock a row by its id: two transactions that lock the same rows
        then wait for one another, but never both at once."""
        return sorted(self.operations, key=lambda one: (one.last, one.row))


Write: TypeAlias = Callable[[Batch, bool], Awaitable[set[str]]]
"""Writes a batch in one transaction, which survives a power failure if the flag is set. Returns the
responses of which blocks were dropped. Raises OperationRejected or StoreError if all of it was
rolled back."""


class Queue:
    """Blocks by response, and operations, each in the order in which they were queued."""

    def __init__(self) -> None:
        self._blocks: dict[str, deque[Block]] = {}
        self._sizes: dict[str, int] = {}
        """Bytes of the blocks of each response."""
        self._operations: list[Operation[object]] = []
        self._size = 0
        """Bytes of all of it."""
        self._has_overtaken = False
        """Whether the last batch held only small operations, beside large work."""

    def __bool__(self) -> bool:
        return bool(self._blocks or self._operations)

    def size_of(self, id: str) -> int:
        """The size of the queued blocks of a response."""
        return self._sizes.get(id, 0)

    def add_block(self, id: str, block: Block) -> None:
        size = _block_size(block)
        self._blocks.setdefault(id, deque()).append(block)
        self._sizes[id] = self._sizes.get(id, 0) + size
        self._size += size

    def add_operation(self, operation: Operation[object]) -> None:
        self._operations.append(operation)
        self._size += operation.size

    def clear(self) -> list[Operation[object]]:
        """Empties the queue, and returns the operations that were in it."""
        operations, self._operations, self._size = self._operations, [], 0
        self._blocks.clear()
        self._sizes.clear()
        return operations

    def fill(self, batch: Batch) -> None:
        """Moves to the batch as much as one transaction should hold, but at least something.

        Each operation comes with the blocks that it is after. One that does not fit waits, its
        blocks go ahead of it as far as they fit, and later ones that need little overtake it. The
        oldest is never overtaken for long: every other batch begins with it.
        """
        if self._size <= LARGE_WORK and not batch:  # nearly always
            batch.operations, batch.size = self._operations, self._size
            if self._blocks:
                batch.blocks = [(id, one) for id, some in self._blocks.items() for one in some]
                self._blocks, self._sizes = {}, {}
            self._operations, self._size, self._has_overtaken = [], 0, False
            return
        if not batch and not self._has_overtaken and self._overtake(batch):
            self._has_overtaken = True
            return
        self._has_overtaken = False
        room, spare = TRANSACTION_SIZE - batch.size, SPARE
        waiting: list[Operation[object]] = []
        for operation in self._operations:
            ahead = self._sizes.get(operation.after, 0)
            size = operation.size + ahead
            if operation.last and (waiting or self._blocks):
                waiting.append(operation)
            elif size <= room or not (batch or ahead):
                room -= size
                self._take(operation, batch)
            elif size <= spare:
                spare -= size
                self._take(operation, batch)
            else:
                room -= self._take_blocks(operation.after, room, batch)
                waiting.append(operation)
        self._operations = waiting
        for id in list(self._blocks):
            if room <= 0:
                break
            room -= self._take_blocks(id, room, batch)

    def _overtake(self, batch: Batch) -> bool:
        """Moves small operations to the batch if large work is queued. Returns whether any were."""
        needs = [one.size + self._sizes.get(one.after, 0) for one in self._operations]
        if max((*needs, *self._sizes.values()), default=0) <= LARGE_WORK:
            return False
        room, waiting = SPARE, []
        for operation, need in zip(self._operations, needs, strict=True):
            # The blocks of several may be the same: then less is taken than counted.
            if need <= min(room, LARGE_WORK) and not operation.last:
                room -= need
                self._take(operation, batch)
            else:
                waiting.append(operation)
        self._operations = waiting
        return bool(batch)

    def _take(self, operation: Operation[object], batch: Batch) -> None:
        """Moves an operation to the batch, with the blocks that it is after."""
        self._take_blocks(operation.after, self._sizes.get(operation.after, 0), batch)
        batch.operations.append(operation)
        batch.size += operation.size
        self._size -= operation.size

    def _take_blocks(self, id: str, room: int, batch: Batch) -> int:
        """Moves blocks of a response to the batch while there is room; returns their size."""
        blocks, taken = self._blocks.get(id), 0
        if blocks is None:
            return 0
        while blocks and (taken + _block_size(blocks[0]) <= room or not batch):
            block = blocks.popleft()
            batch.blocks.append((id, block))
            taken += _block_size(block)
        batch.size += taken
        self._size -= taken
        self._sizes[id] -= taken
        if not blocks:
            del self._blocks[id], self._sizes[id]
        return taken


class Writer:
    """Queues work and writes it, between `start` and `stop`, on one event loop."""

    def __init__(self, write: Write, policy: WritePolicy) -> None:
        self._write = write
        self._policy = policy
        self._queue = Queue()
        self._batch = Batch()
        self._dropped: dict[str, None] = {}
        self._last_error: StoreError | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_urgent = False
        """Whether there is more to write than blocks."""
        self._waker: asyncio.Future[None] | None = None
        """What `_run` waits for: see `_sleep`."""
        self._last_commit = 0.0
        self._recent_logs = 0.0
        """The number of logs written to recently, once for each transaction; see DECAY."""
        self.waiting = 0
        self.commits = 0
        self._waiting_since: float | None = None
        """When the oldest write that is not committed was queued, or earlier."""
        self._emptied = 0.0
        """When the queue was empty last: what is in it was added after that."""

    @property
    def lag(self) -> float:
        since = self._waiting_since
        return 0.0 if since is None else self._loop.time() - since

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_urgent = False
        self._running = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Writes what is queued, for at most `timeout` seconds."""
        if self._running is None:
            return
        running, self._running = self._running, None  # nothing is accepted from here on
        self._wake_up()
        await asyncio.wait({running}, timeout=self._policy.timeout)
        running.cancel()
        await asyncio.wait({running})
        for operation in self._batch.operations + self._queue.clear():
            operation.fail(_outcome_unknown())
        self._batch, self.waiting, self._waiting_since = Batch(), 0, None
        if not running.cancelled():
            running.result()  # raises what was our own fault

    # The queue

    def append(self, id: str, block: Block) -> None:
        if (block.number | block.first | block.count) >> 62:
            raise ClientError("the numbers of a block are from 0 to 2^62")
        waiting = self.waiting + _block_size(block)
        if waiting > self._policy.queue_size or self._running is None:
            raise self._not_accepted()
        self.waiting = waiting
        is_first = not self._queue
        self._queue.add_block(id, block)
        if self._waiting_since is None:
            self._waiting_since = self._loop.time()
        if is_first and self._waker is not None:
            _wake(self._waker)

    async def submit(
        self,
        make: Callable[[], Queries[T]],
        size: int = 0,
        durable: bool = False,
        after: str = "",
        last: bool = False,
        row: str = "",
        abandoned: Callable[[asyncio.Future[T]], object] | None = None,
    ) -> T:
        """Returns the result of an operation when it is committed. It is written after the queued
        blocks of the response `after`; if it is to be the last one, after everything that is
        queued. `row` is the id of the row it locks, where servers compete for it: see
        `Batch.in_lock_order`. If the caller is cancelled, the operation goes on, and `abandoned`
        gets its outcome. Raises what it raised, or StoreError."""
        full = self.waiting > 0 and self.waiting + size > 2 * self._policy.queue_size
        if full or self._running is None:
            raise self._not_accepted()
        future: asyncio.Future[T] = self._loop.create_future()
        operation = Operation(make, future, size + OVERHEAD, durable, after, last, row)
        self.waiting += operation.size
        self._queue.add_operation(operation)
        if self._waiting_since is None:
            self._waiting_since = self._loop.time()
        if not self._is_urgent:
            self._wake_up()
        timer = self._loop.call_later(self._policy.timeout, self._time_out, operation)
        try:
            return await future
        except asyncio.CancelledError:
            if abandoned is not None:
                operation.report_to(abandoned)
                self._loop.call_later(self._policy.timeout, self._time_out, operation)
            raise
        finally:
            timer.cancel()
            # An error refers to this frame and to those of its callers, which may hold a large
            # response: without the way back to the error, they are freed at once.
            del future, operation

    def _wake_up(self) -> None:
        """There is more to write than blocks."""
        self._is_urgent = True
        if self._waker is not None:
            _wake(self._waker)

    def _not_accepted(self) -> StoreError:
        if self._running is None:
            return StoreError("the store is not open", "closed")
        return StoreError(f"the write queue is full ({self.waiting} bytes)", "full")

    def queued(self, id: str) -> int:
        """The size of the blocks of a response that are not committed."""
        carried = (_block_size(block) for one, block in self._batch.blocks if one == id)
        return self._queue.size_of(id) + sum(carried)

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
            if not self._queue:
                await self._sleep()
            if not self._is_urgent:
                await self._sleep(policy.flush_interval)
            since = self._loop.time() - self._last_commit
            load = min(self._recent_logs * DECAY**since / policy.linger_logs, 1.0)
            if self._running is not None and since < load * policy.linger:
                await asyncio.sleep(load * policy.linger - since)
            self._fill_batch()
            await self._commit()

    async def _sleep(self, most: float | None = None) -> None:
        """Returns when an operation is queued, or a block if there was nothing in the queue; at the
        latest after so many seconds."""
        self._waker = waker = self._loop.create_future()
        timer = None if most is None else self._loop.call_later(most, _wake, waker)
        try:
            await waker
        finally:
            if timer is not None:
                timer.cancel()

    def _fill_batch(self) -> None:
        """Moves work from the queue to the batch, as much as one transaction should hold."""
        self._queue.fill(self._batch)
        if not self._queue:
            self._emptied = self._loop.time()
            self._is_urgent = self._running is None

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
                return

    def _begin_attempt(self) -> list[Operation[object]]:
        """Removes from the batch what has failed. Returns its operations."""
        batch, operations = self._batch, []
        for operation in batch.operations:
            if operation.phase is OperationPhase.SETTLED:
                batch.size -= operation.size
                self.waiting -= operation.size
            else:
                operation.phase = OperationPhase.CARRIED
                operations.append(operation)
        batch.operations = operations
        return operations

    def _end_attempt(self, operations: Sequence[Operation[object]]) -> None:
        """After a rollback: the operations whose time is up fail."""
        for operation in operations:
            if operation.phase is OperationPhase.OVERDUE:
                operation.fail(self._timeout_error())
            elif operation.phase is OperationPhase.CARRIED:
                operation.phase = OperationPhase.WAITING

    def _committed(self, operations: Sequence[Operation[object]], dropped: set[str]) -> None:
        batch, self._batch = self._batch, Batch()
        now = self._loop.time()
        self._recent_logs *= DECAY ** (now - self._last_commit)
        if batch.blocks:
            # Not those of large responses: they are written as fast as they come, few or many.
            some = {id for id, block in batch.blocks if len(block.data) < LARGE_BLOCK}
            self._recent_logs += len(some)
        self._last_commit = now
        self.waiting -= batch.size
        self.commits += bool(batch)
        self._waiting_since = self._emptied if self._queue else None
        self._last_error = None
        for id in dropped:
            self._dropped[id] = None
        while len(self._dropped) > MAX_DROPPED:
            del self._dropped[next(iter(self._dropped))]
        for operation in operations:
            operation.settle()


def _wake(waker: asyncio.Future[None]) -> None:
    if not waker.done():
        waker.set_result(None)


def _block_size(block: Block) -> int:
    return len(block.data) + OVERHEAD


def _outcome_unknown() -> StoreError:
    message = "the database does not respond: it is not known whether this was written"
    return StoreError(message, "unknown")
