"""The writer alone, with a scripted database."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.stores import log
from weft.errors import ClientError
from weft.store.base import StoreError
from weft.store.queries import Queries
from weft.store.records import Block
from weft.store.writer import (
    MAX_DROPPED,
    TRANSACTION_SIZE,
    Operation,
    OperationPhase,
    OperationRejected,
    Work,
    WritePolicy,
    Writer,
    group_blocks,
)

POLICY = WritePolicy(timeout=0.2, flush_interval=0.0, first_retry=0.001)
PATIENT = WritePolicy(timeout=5.0, flush_interval=0.0, first_retry=0.001)

Act = Callable[[Sequence[Work]], Awaitable[set[str]]]


class Scripted:
    """Does with each batch what the script says next; takes it when the script has ended."""

    def __init__(self, *script: Act) -> None:
        self._script = list(script)
        self.batches: list[list[Work]] = []

    async def write(self, batch: Sequence[Work], durable: bool) -> set[str]:
        self.batches.append(list(batch))
        return await (self._script.pop(0) if self._script else take)(batch)


async def take(batch: Sequence[Work]) -> set[str]:
    for work in batch:
        if not isinstance(work, tuple):
            assert list(work.queries()) == []
    return set()


async def fail(batch: Sequence[Work]) -> set[str]:
    raise StoreError("the disk is on fire", "broken")


async def hang(batch: Sequence[Work]) -> set[str]:
    await asyncio.Event().wait()
    raise AssertionError


def when_overdue(act: Act) -> Act:
    """Waits until the time for the first operation is over, and not for a moment longer."""

    async def later(batch: Sequence[Work]) -> set[str]:
        while operations(batch)[0].phase is not OperationPhase.OVERDUE:
            await asyncio.sleep(0)
        return await act(batch)

    return later


def rejecting(number: int) -> Act:
    async def reject(batch: Sequence[Work]) -> set[str]:
        raise OperationRejected(operations(batch)[number], StoreError("what is this?", "broken"))

    return reject


def operations(batch: Sequence[Work]) -> list[Operation[object]]:
    return [work for work in batch if not isinstance(work, tuple)]


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
        blocks = [[work for work in batch if isinstance(work, tuple)] for batch in database.batches]
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
        assert database.batches[-1] == [("a", log(1)[0])]
        await writer.stop()

    asyncio.run(main())


def test_an_overdue_operation_fails_with_its_transaction() -> None:
    async def main() -> None:
        database = Scripted(when_overdue(fail))
        writer = Writer(database.write, POLICY)
        writer.start()
        assert await kind_of(writer.submit(saying("x"))) == "broken"
        await writer.stop()
        assert [len(batch) for batch in database.batches] == [1]

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
        assert [len(batch) for batch in database.batches] == [4, 3, 2]
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
        await writer.submit(saying("x"))
        assert [len(batch) for batch in database.batches] == [2, 2, 2, 1, 1, 1]
        await writer.stop()

    asyncio.run(main())


def test_a_limited_number_of_dropped_responses_is_remembered() -> None:
    async def drop(batch: Sequence[Work]) -> set[str]:
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
    async def blunder(batch: Sequence[Work]) -> set[str]:
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


def test_grouped_blocks_keep_the_order() -> None:
    async def main() -> None:
        database = Scripted()
        writer = Writer(database.write, WritePolicy(flush_interval=60.0))
        writer.start()
        one, two, three = (("a", block) for block in log(3))
        writer.append(*one)
        writer.append(*two)
        waiting = asyncio.ensure_future(writer.submit(saying("x")))
        await asyncio.sleep(0)
        writer.append(*three)
        await waiting
        [batch] = database.batches
        assert group_blocks(batch) == [[one, two], *operations(batch), [three]]
        await writer.stop()

    asyncio.run(main())


def test_without_load_operations_do_not_linger() -> None:
    async def main() -> None:
        database = Scripted()
        writer = Writer(database.write, WritePolicy(timeout=5.0, linger=3600.0, linger_blocks=1))
        writer.start()
        for word in ("x", "y", "z"):
            assert await writer.submit(saying(word)) == word
        assert len(database.batches) == 3
        await writer.stop()

    asyncio.run(main())


def test_under_load_operations_share_a_transaction() -> None:
    async def main() -> None:
        database = Scripted()
        writer = Writer(database.write, WritePolicy(timeout=5.0, linger=0.5, linger_blocks=1))
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
        assert [len(batch) for batch in database.batches] == [3, 2]
        await writer.stop()

    asyncio.run(main())
