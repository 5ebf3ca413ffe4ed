"""Lists of responses and conversations, forks, and what upstreams sent: in both databases."""

import asyncio

import msgspec
import pytest

from tests.stores import Stores, each_store, ending, entry
from weft.store.base import NotFound, Store
from weft.store.records import Conversation, Item, ResponseFilter, UpstreamBlock

ANY = ResponseFilter()


async def ids(store: Store, matching: ResponseFilter = ANY, **how: object) -> list[str]:
    page = await store.responses("alice", matching, **how)  # type: ignore[arg-type]
    return [one.id for one in page.responses]


async def fill(store: Store) -> None:
    for number in range(4):
        await store.begin(
            entry(
                f"resp_{number}",
                owner="alice",
                created=100.0 + number // 2,  # two at the same moment
                model=f"m{number % 2}",
                conversation="conv_1" if number < 2 else None,
                visible=True,
            )
        )
    await store.begin(entry("resp_of_bob", owner="bob", created=200.0))
    await store.begin(entry("resp_hidden", owner="alice", created=200.0, visible=False))
    done = msgspec.structs.replace(ending(), findings=2, cost=7)
    await store.finish("resp_3", done)


@each_store
async def test_responses_are_listed_newest_first_and_by_filter(stores: Stores) -> None:
    store = await stores.opened()
    await fill(store)
    assert await ids(store) == ["resp_3", "resp_2", "resp_1", "resp_0"]
    assert await ids(store, ResponseFilter(conversation="conv_1")) == ["resp_1", "resp_0"]
    assert await ids(store, ResponseFilter(statuses=("completed",))) == ["resp_3"]
    running = ResponseFilter(statuses=("queued", "in_progress"), model="m0")
    assert await ids(store, running) == ["resp_2", "resp_0"]
    assert await ids(store, ResponseFilter(with_findings=True)) == ["resp_3"]
    listed = (await store.responses("alice", ANY)).responses[0]
    whole = await store.entry("resp_3")
    assert whole is not None
    assert (listed.ended, listed.findings, listed.status) == (whole.ended, 2, "completed")
    assert (listed.cost, whole.cost) == (7, 7)


@each_store
async def test_pages_of_responses_have_each_once(stores: Stores) -> None:
    store = await stores.opened()
    await fill(store)
    found: list[str] = []
    after, more = None, True
    while more:
        page = await store.responses("alice", ANY, after, 1)
        found += [one.id for one in page.responses]
        after, more = found[-1], page.more
    assert found == ["resp_3", "resp_2", "resp_1", "resp_0"]
    for gone in ("resp_of_bob", "resp_hidden", "nothing"):
        with pytest.raises(NotFound):
            await store.responses("alice", ANY, gone)


@each_store
async def test_conversations_are_listed_and_forked(stores: Stores) -> None:
    store = await stores.opened()
    items = [Item(f"msg_{number}", b"%d" % number) for number in range(3)]
    await store.create_conversation(Conversation("conv_1", "alice", 1.0), items)
    await store.create_conversation(Conversation("conv_bob", "bob", 9.0))
    await store.fork_conversation(Conversation("conv_2", "alice", 2.0), "conv_1", "msg_1")
    await store.fork_conversation(Conversation("conv_3", "alice", 2.0), "conv_1")
    page = await store.conversations("alice", None, 2)
    assert ([one.id for one in page.conversations], page.more) == (["conv_3", "conv_2"], True)
    rest = await store.conversations("alice", "conv_2", 2)
    assert ([one.id for one in rest.conversations], rest.more) == (["conv_1"], False)
    assert (await store.items("conv_2")).items == items[:2]
    assert (await store.items("conv_3")).items == items
    # A fork goes its own way.
    await store.add_items("conv_2", [Item("msg_new", b"4")])
    assert (await store.items("conv_1")).items == items
    for of, upto in (("conv_bob", None), ("conv_1", "msg_9"), ("nothing", None)):
        with pytest.raises(NotFound):
            await store.fork_conversation(Conversation("conv_4", "alice", 3.0), of, upto)
    assert await store.conversation("alice", "conv_4") is None


@each_store
async def test_what_upstreams_sent_is_stored_and_removed(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry("resp_1"))
    await store.begin(entry("resp_2"))
    blocks = [UpstreamBlock(number, b"%d" % number) for number in range(70)]
    await store.save_upstream([("resp_1", one) for one in blocks])
    await store.save_upstream([("resp_2", blocks[0]), ("gone", blocks[0])])
    found: list[UpstreamBlock] = []
    while some := await store.upstream("resp_1", found[-1].number if found else -1):
        found += some
    assert found == blocks
    assert await store.upstream("gone") == []
    # A number that exists stays as it is.
    await store.save_upstream([("resp_2", UpstreamBlock(0, b"other"))])
    assert await store.upstream("resp_2") == blocks[:1]
    await store.delete("", "resp_1")
    assert await store.upstream("resp_1") == []
    assert (await store.prune(0.0, 0.0, 0.0, 1.0)).upstream == 0
    assert (await store.prune(0.0, 0.0, 0.0, 1e12)).upstream == 1
    assert await store.upstream("resp_2") == []
    assert await store.entry("resp_2") is not None


@each_store
async def test_blocks_of_a_response_that_is_deleted_meanwhile_are_dropped(stores: Stores) -> None:
    store = await stores.opened()
    for number in range(20):
        id = f"resp_{number}"
        await store.begin(entry(id))
        block = (id, UpstreamBlock(0, b"x"))
        await asyncio.gather(store.save_upstream([block]), store.delete("", id))
        assert await store.upstream(id) == []
