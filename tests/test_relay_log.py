"""The log of a response on its way to the store."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stored_logs import events_of, pack, unpack
from tests.stores import SWIFT, Stores, each_store, entry, sqlite_store
from tests.strategies import QUICK
from weft.errors import InternalError
from weft.relay.log import (
    BLOCK,
    BODY,
    LARGE,
    LOGS_PER_TURN,
    MAX_UNWRITTEN,
    FlushScheduler,
    Log,
    LogReader,
    StoredLog,
    blocks_of,
    follow,
)
from weft.sse import Event, write, write_events
from weft.store.base import Store, StoreError
from weft.store.records import Block, Ending, Extent
from weft.store.writer import WritePolicy

EVENTS = st.builds(
    Event, st.sampled_from(["", "ping"]), st.binary(max_size=8), st.none() | st.integers(0, 9)
)
TOLD = st.lists(EVENTS, min_size=1, max_size=4)
ZERO, ONE, TWO = (Event("", b"%d" % number) for number in range(3))
ACTS = st.lists(TOLD | st.sampled_from(["count", "flush", "follow"]), max_size=12)


@given(TOLD)
def test_a_block_holds_any_events(events: list[Event]) -> None:
    assert unpack(pack(events)) == events


PLAIN = st.builds(Event, st.sampled_from(["", "ping"]), st.sampled_from([b"", b"x", b"x\ny"]))


@given(st.lists(EVENTS | PLAIN, max_size=6))
def test_events_are_hashed_as_each_is_sent(events: list[Event]) -> None:
    assert write_events(events) == b"".join(write(one.name, one.data) for one in events)


SIZES = st.lists(
    st.integers(0, 40) | st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]), min_size=1
)


def of_sizes(sizes: list[int]) -> list[Event]:
    numbers = (None, 0, 200, 70_000)
    return [
        Event("", bytes([65 + at % 26]) * size, numbers[at % 4]) for at, size in enumerate(sizes)
    ]


@QUICK
@given(st.lists(SIZES, min_size=1, max_size=4))
def test_batches_of_any_size_are_cut_into_small_blocks_and_read_back(
    batches: list[list[int]],
) -> None:
    # A strict one: a large event is written as msgspec writes it, though not by msgspec.
    reader, told, number = LogReader(strict=True), list[Event](), 0
    for batch in map(of_sizes, batches):
        blocks = list(blocks_of(number, len(told), batch))
        assert [block.number for block in blocks] == [*range(number, number + len(blocks))]
        assert {block.first for block in blocks} == {len(told)}
        assert [block.count for block in blocks] == [0] * (len(blocks) - 1) + [len(batch)]
        assert max(len(block.data) for block in blocks) <= BLOCK + 100 * len(batch)
        shown = [reader.feed(block) for block in blocks]
        assert shown == [[]] * (len(blocks) - 1) + [batch], "all of a batch at once"
        number, told = number + len(blocks), told + batch


def test_events_of_an_ended_response_are_returned_block_by_block() -> None:
    batch = of_sizes([3 * BLOCK, 2 * BLOCK, 5])
    reader = LogReader()
    told = [reader.feed(block, ended=True) for block in blocks_of(0, 0, batch)]
    assert [event for some in told for event in some] == batch
    assert max(map(len, told)) == 1


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: b"\xff" + data])
def test_a_corrupt_batch_does_not_affect_others(spoil: Callable[[bytes], bytes]) -> None:
    good = of_sizes([5, 6])
    reader = LogReader()
    with pytest.raises(ValueError, match=r"batch|decode|MessagePack|Invalid|truncated"):
        reader.feed(Block(0, 0, 2, spoil(pack(good))))
    assert reader.feed(Block(1, 2, 2, pack(good))) == good


@each_store
async def test_a_long_end_is_stored_early_and_invisible_until_the_ending(stores: Stores) -> None:
    store = await stores.opened()
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO])
    last = of_sizes([20 * BLOCK, 30 * BLOCK, 7])
    rest = await log.close(last)
    await store.flush("resp_1")
    elsewhere = StoredLog(store, "resp_1")
    assert [event async for some in elsewhere.read() for event in some] == [ZERO]
    assert log.visible == 1
    extent = await store.extent("resp_1")
    assert extent.events == 1
    assert extent.blocks > 50
    body, record = b"b" * 3_000_000, b"r" * 5_000_001
    how = msgspec.structs.replace(ending(log, rest), body=body, record=record)
    assert await store.finish("resp_1", how)
    assert [event async for some in elsewhere.read(ended=True) for event in some] == last
    for found in (await store.entry("resp_1"), (await store.entries())[0]):
        assert found is not None
        assert (found.body, found.record) == (body, record)
    assert log.digest == sha256(write_events([ZERO, *last])).hexdigest()


@each_store
async def test_a_recovery_finds_nothing_of_an_unfinished_end(
    stores: Stores,
) -> None:
    store = await stores.opened()
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO, ONE])
    await log.close(of_sizes([3 * BLOCK]))
    await store.flush("resp_1")
    assert await store.begin_recovery("resp_1") == 1
    assert await store.extent("resp_1") == Extent(1, 2, len((await store.blocks("resp_1"))[0].data))
    assert await store.begin_recovery("resp_1") == 2
    rest = Block(1, 2, 1, pack([TWO]))
    how = Ending(status="failed", ended=101.0, events=3, size=0, rest=rest)
    extent = await store.extent("resp_1")
    how = msgspec.structs.replace(how, size=extent.size + len(rest.data))
    assert await store.finish("resp_1", how)
    assert await stored(store, "resp_1") == [ZERO, ONE, TWO]
    assert await store.begin_recovery("resp_1") is None


@sqlite_store
async def test_what_is_flushed_while_a_log_is_closed_is_stored_once(stores: Stores) -> None:
    """A follower whose place is no longer in memory flushes the log at any time."""
    store = await stores.opened()
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO])
    log.append([ONE])
    last = [Event("", bytes([65 + n]) * (LARGE + 1)) for n in range(2)]
    closing = asyncio.ensure_future(log.close(last))
    while not closing.done():
        log.flush()
        await asyncio.sleep(0)
    assert await store.finish("resp_1", ending(log, await closing))
    assert await stored(store, "resp_1") == [ZERO, ONE, *last]


def ending(log: Log, rest: Block | None) -> Ending:
    return Ending(
        status="completed",
        ended=101.0,
        digest=log.digest,
        events=log.events,
        size=log.size,
        rest=rest,
    )


async def begun(store: Store, scheduler: FlushScheduler, id: str, first: list[Event]) -> Log:
    log = Log(store, scheduler, id)
    await store.begin(entry(id), log.first_blocks(first))
    log.open()
    return log


async def stored(store: Store, id: str) -> list[Event]:
    return events_of(await store.blocks(id))


@QUICK
@given(first=TOLD, acts=ACTS, last=TOLD)
def test_the_stored_log_is_what_was_sent_whenever_it_is_counted(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Event],
    acts: list[list[Event] | str],
    last: list[Event],
) -> None:
    asyncio.run(_played(tmp_path_factory.mktemp("log"), first, acts, last))


async def _played(
    folder: Path, first: list[Event], acts: list[list[Event] | str], last: list[Event]
) -> None:
    stores = Stores("sqlite", folder)
    store = await stores.opened()
    log = await begun(store, FlushScheduler(), "resp_1", first)
    told = list(first)
    for act in acts:
        if isinstance(act, list):
            log.append(act)
            told += act
        elif act == "flush":
            log.flush()
        else:
            assert log.events == log.visible == len(told)
            assert act == "count" or log.since(0) == told
    rest = await log.close(last)
    assert log.since(0) == told, "the last events are hidden until they are stored"
    assert await store.finish("resp_1", ending(log, rest))
    log.end()
    told += last
    assert log.since(0) == await stored(store, "resp_1") == told
    blocks = await store.blocks("resp_1")
    assert (log.events, log.size) == (len(told), sum(len(block.data) for block in blocks))
    assert log.digest == sha256(write_events(told)).hexdigest()
    await stores.close()


@sqlite_store
async def test_a_body_is_one_event_whatever_it_holds(stores: Stores) -> None:
    store = await stores.opened()
    log = Log(store, FlushScheduler(), "resp_1")
    await store.begin(entry())
    body = b'{"a":\n\n1}'
    assert await store.finish("resp_1", ending(log, await log.close([Event(BODY, body)])))
    (event,) = await stored(store, "resp_1")
    assert (event.data, log.events, log.digest) == (body, 1, sha256(body).hexdigest())


@sqlite_store
async def test_the_logs_of_many_streams_are_flushed_together(stores: Stores) -> None:
    store, scheduler = await stores.opened(), FlushScheduler()
    ids = [f"resp_{number}" for number in range(2 * LOGS_PER_TURN + 50)]
    logs = [await begun(store, scheduler, id, [ZERO]) for id in ids]
    before = store.commits
    for log in logs:
        log.append([ONE])
        log.append([TWO])
    assert store.waiting == 0, "they wait"
    elsewhere = follow(store, {}, ids[-1], 1)  # as another process does
    assert await anext(elsewhere) == [ONE, TWO]
    assert [await stored(store, id) for id in ids] == [[ZERO, ONE, TWO]] * len(ids)
    assert {len(await store.blocks(id)) for id in ids} == {2}
    assert store.commits - before <= 3


@sqlite_store
async def test_large_batches_are_flushed_at_once(stores: Stores) -> None:
    store = await stores.opened()
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO])
    log.append([Event("", b"x" * 40_000)])
    assert store.waiting > 40_000


@sqlite_store
async def test_events_that_the_store_refuses_stay_in_the_log(stores: Stores) -> None:
    store = await stores.opened(WritePolicy(timeout=5.0, flush_interval=60.0, queue_size=300))
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO])
    store.append("resp_none", Block(0, 0, 1, b"x" * 150))
    long = Event("", b"y" * 100)
    log.append([long])
    with pytest.raises(StoreError, match="the write queue is full"):
        log.flush()
    await store.set_answered("resp_none", "resp_1")  # takes along what waits
    log.flush()
    await store.flush("resp_1")
    assert await stored(store, "resp_1") == [ZERO, long]


@sqlite_store
async def test_after_an_error_nothing_is_accepted_and_each_caller_gets_the_error(
    stores: Stores,
) -> None:
    store = await stores.opened(WritePolicy(timeout=5.0, flush_interval=60.0, queue_size=300))
    log = Log(store, FlushScheduler(), "resp_1")
    assert not log.try_append([ZERO]), "nothing was stored that comes before"
    with pytest.raises(InternalError, match="the first events were not stored"):
        log.append([ZERO])
    await store.begin(entry(), log.first_blocks([ZERO]))
    log.open()
    log.append([Event("", b"y" * 1000)])
    log.flush_due()
    assert not log.try_append([TWO])
    with pytest.raises(StoreError, match="the write queue is full"):
        log.append([TWO])
    with pytest.raises(StoreError, match="the write queue is full"):
        await log.close([TWO])


@sqlite_store
async def test_while_too_much_is_unwritten_events_wait_for_the_store(stores: Stores) -> None:
    store = await stores.opened(WritePolicy(timeout=5.0, flush_interval=60.0))
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO])
    for number in range(MAX_UNWRITTEN // BLOCK + 1):
        store.append("resp_none", Block(number, number, 1, bytes(BLOCK)))
    assert log.try_append([ONE])
    log.flush_due()
    assert not log.try_append([TWO])
    log.append([TWO])  # of a caller that has waited
    assert log.events == 3


@sqlite_store
async def test_the_number_of_a_log_is_that_of_the_last_event_before_the_end(
    stores: Stores,
) -> None:
    store = await stores.opened(SWIFT)
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO])
    assert (log.number,) == (None,)
    log.append([Event("", b"x", 1), ONE])
    assert log.number == 1
    log.flush()
    assert log.number == 1
    log.append([Event("", b"y", 2)])
    await log.close([Event("", b"z", 3), TWO])
    assert log.number == 2


@sqlite_store
async def test_a_follower_gets_each_event_once_from_memory_or_the_store(
    stores: Stores,
) -> None:
    store = await stores.opened(SWIFT)
    log = await begun(store, FlushScheduler(), "resp_1", [ZERO])
    logs = {"resp_1": log}
    told = [Event("", b"%d %b" % (number, b"x" * 20_000)) for number in range(1, 20)]

    async def heard(number: int) -> list[Event]:
        return [event async for some in follow(store, logs, "resp_1", number) for event in some]

    early = asyncio.ensure_future(heard(0))
    for event in told[:-1]:
        log.append([event])
        await asyncio.sleep(0)
    late = asyncio.ensure_future(heard(1))  # the first are no longer in memory
    await asyncio.sleep(0)
    await store.finish("resp_1", ending(log, await log.close(told[-1:])))
    log.end()
    logs.clear()
    assert await early == [ZERO, *told]
    assert await late == told


@QUICK
@given(first=TOLD, shown=st.lists(EVENTS, max_size=6), last=TOLD)
def test_a_follower_gets_the_ending_of_the_server_that_took_over(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Event],
    shown: list[Event],
    last: list[Event],
) -> None:
    """Behind what was shown here, of which the store has only the first."""
    folder = tmp_path_factory.mktemp("log")
    assert asyncio.run(_followed(folder, first, shown, last)) == [*first, *shown, *last]


async def _followed(
    folder: Path, first: list[Event], shown: list[Event], last: list[Event]
) -> list[Event]:
    stores = Stores("sqlite", folder)
    one, two = await stores.opened(), await stores.opened(server="two")
    log = await begun(one, FlushScheduler(), "resp_1", first)
    logs, heard = {"resp_1": log}, list[Event]()
    following = follow(one, logs, "resp_1")
    heard += await anext(following)
    if shown:
        log.append(shown)
        heard += await anext(following)
    assert await two.take_over("resp_1", "one")
    ended = Log(two, FlushScheduler(), "resp_1")  # what the other server makes of what is stored
    ended.first_blocks(first)
    assert await two.finish("resp_1", ending(ended, await ended.close(last)))
    await log.close([Event("", b"an end that nobody is told")])
    log.end(stored=False)
    logs.clear()
    heard += [event async for some in following for event in some]
    await stores.close()
    return heard


@sqlite_store
async def test_a_slow_follower_gets_the_stored_events_after_a_takeover(
    stores: Stores,
) -> None:
    """Though there is more in memory here."""
    one, two = await stores.opened(), await stores.opened(server="two")
    log = await begun(one, FlushScheduler(), "resp_1", [ZERO])
    for number in range(8):  # those in memory begin behind the first
        log.append([Event("", b"%d" % number * 40_000)])
    await one.flush("resp_1")
    assert await two.take_over("resp_1", "one")
    had = await stored(two, "resp_1")
    log.append([Event("", b"x" * 40_000), ONE])
    assert 0 < log.oldest <= len(had)
    ended = Log(two, FlushScheduler(), "resp_1")
    ended.first_blocks(had)
    blocks = await two.blocks("resp_1")
    rest = Block(len(blocks), len(had), 1, pack([TWO]))
    size = sum(len(block.data) for block in (*blocks, rest))
    how = msgspec.structs.replace(ending(ended, None), events=len(had) + 1, size=size, rest=rest)
    assert await two.finish("resp_1", how)
    following = follow(one, {"resp_1": log}, "resp_1")
    assert [event async for some in following for event in some] == [*had, TWO]
