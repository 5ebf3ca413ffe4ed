"""The log of a response on its way to the store."""

import asyncio
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores import SWIFT, Stores, entry, sqlite_store
from tests.strategies import QUICK
from weft.errors import InternalError
from weft.relay.log import AT_ONCE, Log, Pace, follow
from weft.store.base import Store, StoreError
from weft.store.records import Block, Ending
from weft.store.writing import StorePolicy

EVENTS = st.binary(min_size=1, max_size=8).map(lambda data: b"data: %s\n\n" % data.hex().encode())
COMMENTS = st.just(b": nothing\n\n")
TOLD = st.lists(EVENTS | COMMENTS, min_size=1, max_size=4).map(b"".join)
ACTS = st.lists(TOLD | st.sampled_from(["count", "flush", "follow"]), max_size=12)


def ending(log: Log, rest: Block | None) -> Ending:
    return Ending(
        status="completed",
        ended=101.0,
        digest=log.digest,
        events=log.events,
        size=log.size,
        rest=rest,
    )


async def begun(store: Store, pace: Pace, id: str, first: bytes) -> Log:
    log = Log(store, pace, id)
    await store.begin(entry(id), log.head(first))
    log.open()
    return log


async def stored(store: Store, id: str) -> bytes:
    return b"".join(block.data for block in await store.blocks(id))


@QUICK
@given(first=EVENTS, acts=ACTS, last=TOLD)
def test_what_is_stored_is_what_was_told_whenever_it_was_counted_and_by_whom(
    tmp_path_factory: pytest.TempPathFactory, first: bytes, acts: list[bytes | str], last: bytes
) -> None:
    asyncio.run(_played(tmp_path_factory.mktemp("log"), first, acts, last))


async def _played(folder: Path, first: bytes, acts: list[bytes | str], last: bytes) -> None:
    stores = Stores("sqlite", folder)
    store = await stores.opened()
    log = await begun(store, Pace(), "resp_1", first)
    whole = first
    for act in acts:
        if isinstance(act, bytes):
            log.append(act)
            whole += act
        elif act == "flush":
            log.flush()
        else:
            seen = _plain(whole)
            assert log.events == log.shown == seen.count(b"\n\n")
            assert act == "count" or log.since(0) == seen
    rest = log.close(last)
    told = _plain(whole)
    assert log.since(0) == told, "the last events are hidden until they are stored"
    assert await store.finish("resp_1", ending(log, rest))
    log.end()
    told = _plain(whole + last)
    assert log.since(0) == await stored(store, "resp_1") == told
    assert (log.events, log.size) == (told.count(b"\n\n"), len(told))
    assert log.digest == sha256(told).hexdigest()
    await stores.close()


def _plain(told: bytes) -> bytes:
    return b"".join(one + b"\n\n" for one in told.split(b"\n\n")[:-1] if not one.startswith(b":"))


@sqlite_store
async def test_the_logs_of_many_streams_are_handed_on_together(stores: Stores) -> None:
    store, pace = await stores.opened(), Pace()
    ids = [f"resp_{number}" for number in range(2 * AT_ONCE + 50)]
    logs = [await begun(store, pace, id, b"data: 0\n\n") for id in ids]
    before = store.commits
    for log in logs:
        log.append(b"data: 1\n\n")
        log.append(b"data: 2\n\n")
    assert store.waiting == 0, "they wait"
    elsewhere = follow(store, {}, ids[-1], 1)  # as another process does
    assert await anext(elsewhere) == b"data: 1\n\ndata: 2\n\n"
    assert {await stored(store, id) for id in ids} == {b"data: 0\n\ndata: 1\n\ndata: 2\n\n"}
    assert {len(await store.blocks(id)) for id in ids} == {2}
    assert store.commits - before <= 3


@sqlite_store
async def test_much_does_not_wait(stores: Stores) -> None:
    store = await stores.opened()
    log = await begun(store, Pace(), "resp_1", b"data: 0\n\n")
    log.append(b"data: %s\n\n" % (b"x" * 40_000))
    assert store.waiting > 40_000


@sqlite_store
async def test_what_the_store_does_not_take_is_not_lost_to_the_log(stores: Stores) -> None:
    store = await stores.opened(StorePolicy(patience=5.0, pause=60.0, queue=300))
    log = await begun(store, Pace(), "resp_1", b"data: 0\n\n")
    store.append("resp_none", Block(0, 0, 1, b"x" * 150))
    log.append(b"data: %s\n\n" % (b"y" * 100))
    with pytest.raises(StoreError, match="wait to be written"):
        log.flush()
    await store.beat("one", "here", 1, 100.0)  # takes along what waits
    log.flush()
    await store.flushed("resp_1")
    assert await stored(store, "resp_1") == b"data: 0\n\ndata: %s\n\n" % (b"y" * 100)


@sqlite_store
async def test_after_a_fault_nothing_is_taken_and_everybody_is_told_why(stores: Stores) -> None:
    store = await stores.opened(StorePolicy(patience=5.0, pause=60.0, queue=300))
    log = Log(store, Pace(), "resp_1")
    assert not log.took(b"data: 0\n\n"), "nothing was stored that comes before"
    with pytest.raises(InternalError, match="nothing was stored"):
        log.append(b"data: 0\n\n")
    await store.begin(entry(), log.head(b"data: 0\n\n"))
    log.open()
    log.append(b"data: %s\n\n" % (b"y" * 1000))
    log.waited()
    assert not log.took(b"data: 2\n\n")
    with pytest.raises(StoreError, match="wait to be written"):
        log.append(b"data: 2\n\n")
    with pytest.raises(StoreError, match="wait to be written"):
        log.close(b"data: 2\n\n")


@sqlite_store
async def test_who_follows_sees_each_event_once_from_memory_and_from_the_store(
    stores: Stores,
) -> None:
    store = await stores.opened(SWIFT)
    log = await begun(store, Pace(), "resp_1", b"data: 0\n\n")
    logs = {"resp_1": log}
    told = [b"data: %d %s\n\n" % (number, b"x" * 20_000) for number in range(1, 20)]

    async def heard(number: int) -> bytes:
        return b"".join([block async for block in follow(store, logs, "resp_1", number)])

    early = asyncio.ensure_future(heard(0))
    for block in told[:-1]:
        log.append(block)
        await asyncio.sleep(0)
    late = asyncio.ensure_future(heard(1))  # the first are no longer in memory
    await asyncio.sleep(0)
    await store.finish("resp_1", ending(log, log.close(told[-1])))
    log.end()
    logs.clear()
    assert await early == b"data: 0\n\n" + b"".join(told)
    assert await late == b"".join(told)
