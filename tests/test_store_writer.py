"""The writer alone, with a scripted database."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores import log
from weft.errors import ClientError
from weft.store.base import StoreError
from weft.store.queries import Queries
from weft.store.records import Block
from weft.store.writer import (
    MAX_DROPPED,
    OVERHEAD,
    SPARE,
    TRANSACTION_SIZE,
    Batch,
    Operation,
    OperationPhase,
    OperationRejected,
    Queue,
    WritePolicy,
    Writer,
)

POLICY = WritePolicy(timeout=0.2, flush_interval=0.0, first_retry=0.001)
PATIENT = WritePolicy(timeout=5.0, flush_interval=0.0, first_retry=0.001)

Act = Callable[[Batch], Awaitable[set[str]]]


class Scripted:
    """Does with each batch what the script says next; takes it when the script has ended."""

    def __init__(self, *script: Act) -> None:
        self._script = list(script)
        self.batches: list[Batch] = []

    async def write(self, batch: Batch, durable: bool) -> set[str]:
        self.batches.append(Batch(batch.blocks[:], batch.operations[:], batch.size))
        return await (self._script.pop(0) if self._script else take)(batch)


async def take(batch: Batch) -> set[str]:
    for operation in batch.operations:
        assert list(operation.queries()) == []
    return set()


async def fail(batch: Batch) -> set[str]:
    raise StoreError("the disk is on fire", "broken")


async def hang(batch: Batch) -> set[str]:
    await asyncio.Event().wait()
    raise AssertionError


def when_overdue(act: Act) -> Act:
    """Waits until the time for the first operation is over, and not for a moment longer."""

    async def later(batch: Batch) -> set[str]:
        while batch.operations[0].phase is not OperationPhase.OVERDUE:
            await asyncio.sleep(0)
        return await act(batch)

    return later


def rejecting(number: int) -> Act:
    async def reject(batch: Batch) -> set[str]:
        raise OperationRejected(batch.operations[number], StoreError("what is this?", "broken"))

    return reject


def lengths(database: Scripted) -> list[int]:
    """How many blocks and operations each batch held."""
    return [len(batch.blocks) + len(batch.operations) for batch in database.batches]


def saying(word: str) -> Callable[[], Queries[str]]:
    def say() -> Queries[str]:
        yield from ()
        return word

    return say


async def kind_of(act: Awaitable[object]) -> str:
    with pytest.raises(StoreError) as caught:
        await act
    return caught.value.kind


def test_a_failed_batch_is_retried_before_later_work() -> None:
    async def main() -> None:
        database = Scripted(fail, fail)
        writer = Writer(database.write, PATIENT)
        writer.start()
        one, two, three = log(3)
        writer.append("a", one)
        words = asyncio.gather(writer.submit(saying("x")), writer.submit(saying("y")))
        await asyncio.sleep(0)
        writer.append("a", two)
        writer.append("a", three)
        assert list(await words) == ["x", "y"]
        blocks = [batch.blocks for batch in database.batches]
        assert blocks[-1] == [("a", one), ("a", two), ("a", three)]
        assert (len(blocks), writer.commits, writer.waiting) == (3, 1, 0)
        await writer.stop()

    asyncio.run(main())


def test_an_operation_that_times_out_is_never_written() -> None:
    async def main() -> None:
        database = Scripted(*[fail] * 9)
        writer = Writer(database.write, POLICY)
        writer.start()
        writer.append("a", log(1)[0])
        with pytest.raises(StoreError, match=r"not written within 0\.2 s: the disk") as caught:
            await writer.submit(saying("x"))
        assert caught.value.kind == "broken"
        while writer.waiting:
            await asyncio.sleep(0)
        last = database.batches[-1]
        assert (last.blocks, last.operations) == ([("a", log(1)[0])], [])
        await writer.stop()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize(("script", "outcome"), [((), "x"), ((hang,), "unknown")])
def test_a_cancelled_caller_is_told_the_outcome_elsewhere(
    turns: int, script: tuple[Act, ...], outcome: str
) -> None:
    """Whenever it is cancelled: before the transaction, during it, or when it has just ended."""

    async def main() -> None:
        database = Scripted(*script)
        writer = Writer(database.write, POLICY)
        writer.start()
        told: list[str] = []

        def tell(done: asyncio.Future[str]) -> None:
            problem = done.exception()
            told.append(problem.kind if isinstance(problem, StoreError) else done.result())

        caller = asyncio.ensure_future(writer.submit(saying("x"), abandoned=tell))
        for _ in range(turns):
            await asyncio.sleep(0)
        if caller.done():
            told.append(caller.result())
        caller.cancel()
        await asyncio.wait({caller})
        async with asyncio.timeout(20):
            while turns and not told:  # without a turn, it was cancelled before it submitted
                await asyncio.sleep(0.01)
        assert told == ([outcome] if turns else [])
        await writer.stop()

    asyncio.run(main())


def test_an_overdue_operation_fails_with_its_transaction() -> None:
    async def main() -> None:
        database = Scripted(when_overdue(fail))
        writer = Writer(database.write, POLICY)
        writer.start()
        assert await kind_of(writer.submit(saying("x"))) == "broken"
        await writer.stop()
        assert lengths(database) == [1]

    asyncio.run(main())


def test_an_overdue_operation_that_is_written_succeeds() -> None:
    async def main() -> None:
        writer = Writer(Scripted(when_overdue(take)).write, POLICY)
        writer.start()
        assert await writer.submit(saying("x")) == "x"
        await writer.stop()

    asyncio.run(main())


def test_an_endless_transaction_is_unknown_and_later_work_is_not_written() -> None:
    async def main() -> None:
        scripted = Scripted(hang)
        writer = Writer(scripted.write, POLICY)
        writer.start()
        carried = asyncio.ensure_future(kind_of(writer.submit(saying("x"))))
        while not scripted.batches:
            await asyncio.sleep(0)
        behind = asyncio.ensure_future(kind_of(writer.submit(saying("y"))))
        assert [await carried, await behind] == ["unknown", "busy"]
        await writer.stop()

    asyncio.run(main())


@pytest.mark.parametrize(("act", "kind"), [(hang, "unknown"), (fail, "broken")])
def test_waiting_callers_get_an_error_when_the_writer_stops(act: Act, kind: str) -> None:
    async def main() -> None:
        policy = WritePolicy(timeout=0.2, flush_interval=0.0, first_retry=10.0)
        scripted = Scripted(act)
        writer = Writer(scripted.write, policy)
        writer.start()
        waiting = asyncio.ensure_future(kind_of(writer.submit(saying("x"))))
        while not scripted.batches:
            await asyncio.sleep(0)
        await asyncio.gather(writer.stop(), writer.stop())
        assert await waiting == kind
        assert writer.waiting == 0

    asyncio.run(main())


def test_an_operation_at_fault_fails_alone_in_its_batch() -> None:
    async def main() -> None:
        database = Scripted(rejecting(1), rejecting(1))
        writer = Writer(database.write, PATIENT)
        writer.start()
        outcomes = await asyncio.gather(
            *(writer.submit(saying(word)) for word in "abcd"), return_exceptions=True
        )
        assert [str(outcome) for outcome in outcomes] == [
            "a",
            "what is this?",
            "what is this?",
            "d",
        ]
        assert lengths(database) == [4, 3, 2]
        await writer.stop()

    asyncio.run(main())


def test_the_size_of_a_transaction_is_limited() -> None:
    async def main() -> None:
        database = Scripted()
        writer = Writer(database.write, PATIENT)
        writer.start()
        third = Block(0, 0, 1, bytes(TRANSACTION_SIZE // 3))
        for id in "abcdefg":
            writer.append(id, third)
        whole = Block(0, 0, 1, bytes(TRANSACTION_SIZE + 1))
        writer.append("h", whole)
        await writer.submit(saying("x"), last=True)
        assert lengths(database) == [2, 2, 2, 1, 1, 1]
        await writer.stop()

    asyncio.run(main())


def test_small_operations_overtake_large_work() -> None:
    """A short response does not wait for the megabytes of a long one."""

    async def main() -> None:
        database = Scripted()
        writer = Writer(database.write, PATIENT)
        writer.start()
        for number in range(36):  # several of which would fit beside small ones
            data = bytes(TRANSACTION_SIZE // 4 - OVERHEAD)
            writer.append("large", Block(number, number, 1, data))
        flushed = asyncio.ensure_future(writer.submit(saying("large"), after="large"))
        whole = asyncio.ensure_future(writer.submit(saying("whole"), TRANSACTION_SIZE + 1))
        writer.append("small", log(1)[0])
        assert await writer.submit(saying("x"), after="small") == "x"
        assert not flushed.done()
        assert not whole.done()
        assert database.batches[0].blocks == [("small", log(1)[0])]
        # The next transaction is for the large ones, whatever else waits.
        others = [asyncio.ensure_future(writer.submit(saying(str(n)))) for n in range(3)]
        await asyncio.gather(*others)
        assert database.batches[1].blocks[0][0] == "large"
        assert await flushed == "large"
        assert await whole == "whole"
        await writer.stop()

    asyncio.run(main())


Step = tuple[str, int] | tuple[str, int, bool]
"""A block of a response and its size; or an operation after a response, its size, whether last."""

IDS = st.sampled_from("abc")
SIZES = st.sampled_from([0, 1000, SPARE // 2, TRANSACTION_SIZE // 2, TRANSACTION_SIZE + 1])
STEPS = st.one_of(
    st.tuples(IDS, SIZES), st.tuples(st.sampled_from(["", "a", "b"]), SIZES, st.booleans())
)


@given(st.lists(st.lists(STEPS, max_size=6), max_size=6))
def test_whatever_is_queued_is_written_once_and_in_its_order(rounds: list[list[Step]]) -> None:
    """Between two transactions, more is queued: see rule 1 of the module."""
    loop = asyncio.new_event_loop()
    queue, numbers = Queue(), dict.fromkeys("abc", 0)
    due: list[tuple[Operation[str], dict[str, int], int]] = []
    written: list[tuple[str, int]] = []
    settled: list[Operation[object]] = []

    def write() -> None:
        batch = Batch()
        queue.fill(batch)
        assert batch or not queue, "something is written, if there is anything"
        sizes = [len(block.data) + OVERHEAD for _, block in batch.blocks]
        sizes += [operation.size for operation in batch.operations]
        assert batch.size == sum(sizes)
        assert batch.size <= TRANSACTION_SIZE + SPARE or len(sizes) == 1 or max(sizes) > SPARE
        written.extend((id, block.number) for id, block in batch.blocks)
        settled.extend(batch.operations)
        for operation, before, earlier in due:
            if operation in batch.operations:
                ahead = before if operation.last else {operation.after: before.get(operation.after)}
                for id, count in ahead.items():
                    assert sum(one == id for one, _ in written) >= (count or 0)
                if operation.last:
                    assert all(one in settled for one, _, _ in due[:earlier])

    for steps in rounds:
        for step in steps:
            if len(step) == 2:
                id, size = step
                queue.add_block(id, Block(numbers[id], 0, 1, bytes(size)))
                numbers[id] += 1
            else:
                after, size, last = step
                operation = Operation(saying("x"), loop.create_future(), size, False, after, last)
                due.append((operation, dict(numbers), len(due)))
                queue.add_operation(operation)
        write()
    while queue:
        write()
    loop.close()
    for response, count in numbers.items():
        assert [number for one, number in written if one == response] == list(range(count))
    assert Counter(settled) == Counter(operation for operation, _, _ in due)


def test_a_limited_number_of_dropped_responses_is_remembered() -> None:
    async def drop(batch: Batch) -> set[str]:
        await take(batch)
        return {f"{number:06}" for number in range(MAX_DROPPED + 5)}

    async def main() -> None:
        writer = Writer(Scripted(drop).write, PATIENT)
        writer.start()
        await writer.submit(saying("x"))
        lacking = [id for id in (f"{n:06}" for n in range(MAX_DROPPED + 5)) if writer.dropped(id)]
        assert len(lacking) == MAX_DROPPED
        writer.forget(lacking[0])
        assert not writer.dropped(lacking[0])
        await writer.stop()

    asyncio.run(main())


def test_an_internal_error_is_raised_when_the_writer_stops() -> None:
    async def blunder(batch: Batch) -> set[str]:
        raise ZeroDivisionError

    async def main() -> None:
        writer = Writer(Scripted(blunder).write, POLICY)
        writer.start()
        assert await kind_of(writer.submit(saying("x"))) == "unknown"
        with pytest.raises(ZeroDivisionError):
            await writer.stop()

    asyncio.run(main())


def test_what_an_operation_raises_reaches_its_caller() -> None:
    def refuse() -> Queries[str]:
        yield from ()
        raise ClientError("no")

    async def main() -> None:
        writer = Writer(Scripted().write, PATIENT)
        writer.start()
        with pytest.raises(ClientError, match="no"):
            await writer.submit(refuse)
        await writer.stop()

    asyncio.run(main())


def test_without_load_operations_do_not_linger() -> None:
    async def main() -> None:
        database = Scripted()
        writer = Writer(database.write, WritePolicy(timeout=5.0, linger=3600.0, linger_logs=1))
        writer.start()
        for word in ("x", "y", "z"):
            assert await writer.submit(saying(word)) == word
        assert len(database.batches) == 3
        await writer.stop()

    asyncio.run(main())


def test_under_load_operations_share_a_transaction() -> None:
    async def main() -> None:
        database = Scripted()
        writer = Writer(database.write, WritePolicy(timeout=5.0, linger=0.5, linger_logs=1))
        writer.start()
        for number in range(2):
            writer.append("a", log(2)[number])
        await writer.submit(saying("x"))
        one = asyncio.ensure_future(writer.submit(saying("y")))
        for _ in range(20):  # turns of the loop: far more than it takes to be written
            await asyncio.sleep(0)
        assert not one.done()
        assert await writer.submit(saying("z")) == "z"
        assert await one == "y"
        assert lengths(database) == [3, 2]
        await writer.stop()

    asyncio.run(main())


def test_the_lag_is_the_age_of_the_oldest_write() -> None:
    written: list[float] = []

    async def work() -> None:
        writer = Writer(Scripted(slow, slow).write, PATIENT)
        writer.start()
        loop = asyncio.get_running_loop()
        assert writer.lag == 0.0
        before = loop.time()
        writer.append("r", Block(0, 0, 1, b"x"))
        began = loop.time()
        time.sleep(0.01)  # so that the ages of the two writes differ
        taken = loop.time()
        while not written:
            await asyncio.sleep(0)
        second = loop.time()
        writer.append("r", Block(1, 1, 1, b"y"))
        assert second - began <= writer.lag <= loop.time() - before
        releases[0].set()
        while len(written) < 2:
            await asyncio.sleep(0)
        # The first write is committed, the second is under way: it counts from when the first one
        # was taken from the queue.
        assert 0.0 < writer.lag <= loop.time() - taken
        releases[1].set()
        await writer.stop()
        assert writer.lag == 0.0

    releases = [asyncio.Event(), asyncio.Event()]

    async def slow(batch: Batch) -> set[str]:
        written.append(asyncio.get_running_loop().time())
        await releases[len(written) - 1].wait()
        return set()

    asyncio.run(work())
