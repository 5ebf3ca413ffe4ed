"""What a store promises, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from tests.stores import (
    Stores,
    audit,
    each_store,
    ended,
    ending,
    entry,
    log,
    whole_log,
)
from weft.errors import ClientError
from weft.store.base import ID_LENGTH, REASONING_SIZE, AlreadyExists, NotFound, Store, StoreError
from weft.store.records import (
    Block,
    CallReasoning,
    Conversation,
    Ending,
    Entry,
    Item,
    Page,
    Pruned,
    Status,
)
from weft.store.writer import WritePolicy

T = TypeVar("T")

FULL = Entry(
    id="resp_full",
    owner="alice",
    dialect="gemini",
    model="demo/chat",
    status="incomplete",
    created=1_700_000_000.25,
    ended=1_700_000_009.5,
    previous="resp_0",
    conversation="conv_1",
    background=True,
    stream=True,
    visible=False,
    server="one",
    request=b'{"a":"\x00\xff"}',
    input=b'[{"id":"i"}]',
    context=b'{"c":1}',
    body=b"body",
    record=b"record",
    digest="abc",
    events=3,
    size=2**40,
    cancelling=True,
    answered="resp_2",
    pruned=True,
)


# Responses


@each_store
async def test_a_new_response_is_stored_as_given(stores: Stores) -> None:
    store = await stores.opened()
    for one in (entry(), FULL):
        await store.begin(one)
    assert [await store.entry("resp_1"), await store.entry("resp_full")] == [entry(), FULL]
    assert await store.entry("resp_none") is None


@each_store
async def test_an_id_can_be_used_once(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry())
    with pytest.raises(AlreadyExists):
        await store.begin(entry(model="another"))
    assert await store.entry("resp_1") == entry()


@each_store
async def test_a_log_is_read_as_it_was_written_from_any_event_on(stores: Stores) -> None:
    store = await stores.opened()
    blocks = log(5, events=3)
    await store.begin(entry())
    for block in blocks:
        store.append("resp_1", block)
    await store.flush("resp_1")
    for after in range(-1, 16):
        above = [block for block in blocks if block.first + block.count - 1 > after]
        assert await store.blocks("resp_1", after) == above
    assert await store.blocks("resp_1", 10**30) == []
    assert await store.blocks("resp_1", -(10**30)) == blocks
    assert await store.blocks("resp_none") == []


@each_store
async def test_a_long_log_is_read_in_pieces(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry())
    for block in log(600):
        store.append("resp_1", block)
    await store.flush("resp_1")
    assert await store.blocks("resp_1") == log(600)[:256]
    assert await whole_log(store, "resp_1") == log(600)


@each_store
async def test_finish_writes_the_rest_of_the_log_and_the_ending(stores: Stores) -> None:
    store = await stores.opened()
    blocks = log(20)
    await store.begin(entry())
    for block in blocks:
        store.append("resp_1", block)
    assert await store.finish("resp_1", ending(blocks))
    assert await store.entry("resp_1") == ended(entry(), ending(blocks))
    assert await whole_log(store, "resp_1") == blocks
    assert store.waiting == 0


@each_store
async def test_a_response_that_has_ended_is_stored_at_once(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_conversation(Conversation("conv_1", "", 1.0))
    items = [Item("msg_1", b"{}")]
    new, how = entry(conversation="conv_1"), ending(log(1), items, rest=log(1)[0])
    before = store.commits
    await store.add(new, how)
    assert store.commits == before + 1
    assert await store.entry("resp_1") == ended(new, how)
    assert await whole_log(store, "resp_1") == log(1)
    assert (await store.items("conv_1")).items == items
    assert not await store.finish("resp_1", ending(log(1), status="failed"))
    with pytest.raises(AlreadyExists):
        await store.add(new, how)
    assert (await store.items("conv_1")).items == items


@each_store
async def test_a_response_with_another_log_than_its_ending_has_is_not_stored(
    stores: Stores,
) -> None:
    store = await stores.opened()
    for how in (ending(log(1)), ending(rest=log(1)[0]), ending(log(2), rest=log(2)[0])):
        with pytest.raises(StoreError) as caught:
            await store.add(entry(), how)
        assert caught.value.kind == "torn"
    assert await store.entry("resp_1") is None


@each_store
async def test_an_ended_response_does_not_change(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry())
    store.append("resp_1", log(2)[0])
    assert await store.finish("resp_1", ending(log(1)))
    store.append("resp_1", log(2)[1])
    assert not await store.finish("resp_1", ending(log(2), status="failed"))
    assert not await store.request_cancel("resp_1")
    assert not await store.take_over("resp_1", "one")
    assert await store.entry("resp_1") == ended(entry(), ending(log(1)))
    assert await store.blocks("resp_1") == log(1)


@each_store
async def test_an_unknown_response_cannot_be_finished(stores: Stores) -> None:
    store = await stores.opened()
    assert not await store.finish("resp_1", ending())
    assert await store.entry("resp_1") is None


@each_store
async def test_an_ending_of_another_log_is_refused_and_changes_nothing(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry())
    for block in log(2):
        store.append("resp_1", block)
    for told in (log(1), log(3), log(2, size=11), log(2, events=3)):
        with pytest.raises(StoreError) as caught:
            await store.finish("resp_1", ending(told))
        assert caught.value.kind == "torn"
    assert await store.entry("resp_1") == entry()
    assert await store.finish("resp_1", ending(log(2)))


@each_store
async def test_dropped_blocks_are_reported(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry("resp_ended"))
    await store.finish("resp_ended", ending())
    await store.begin(entry("resp_contradicted"))
    await store.begin(entry("resp_well"))
    store.append("resp_none", log(1)[0])
    store.append("resp_ended", log(1)[0])
    store.append("resp_contradicted", log(1)[0])
    store.append("resp_contradicted", log(1, size=9)[0])
    store.append("resp_well", log(1)[0])
    store.append("resp_well", log(1)[0])
    for id in ("resp_none", "resp_ended", "resp_contradicted"):
        for _ in range(2):
            with pytest.raises(StoreError) as caught:
                await store.flush(id)
            assert caught.value.kind == "fenced"
    await store.flush("resp_well")
    assert await store.blocks("resp_contradicted") == log(1)
    assert await store.blocks("resp_well") == log(1)
    assert [await store.blocks(id) for id in ("resp_none", "resp_ended")] == [[], []]


@each_store
async def test_deleting_removes_a_response_and_its_log(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry(owner="alice"))
    store.append("resp_1", log(1)[0])
    await store.flush("resp_1")
    assert await store.delete("alice", "resp_1")
    assert not await store.delete("alice", "resp_1")
    assert [await store.entry("resp_1"), await store.blocks("resp_1")] == [None, []]
    await store.begin(entry(owner="bob"))
    assert await store.blocks("resp_1") == []


@each_store
async def test_a_status_changes_only_from_those_it_may_change_from(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry(status="queued"))
    statuses: tuple[Status, ...] = ("in_progress", "completed")
    assert not await store.change_status("resp_1", "failed", statuses)
    assert not await store.change_status("resp_1", "failed", ())
    assert await store.change_status("resp_1", "in_progress", ("completed", "queued"))
    assert not await store.change_status("resp_none", "in_progress", ("queued",))
    assert await store.entry("resp_1") == entry()


@each_store
async def test_requested_cancellations_are_listed(stores: Stores) -> None:
    one, two = await stores.opened(), await stores.opened()
    for id in ("resp_1", "resp_2", "resp_3"):
        await one.begin(entry(id))
    assert await two.request_cancel("resp_1")
    assert await two.request_cancel("resp_3")
    assert not await two.request_cancel("resp_none")
    assert await one.cancel_requests() == {"resp_1", "resp_3"}
    assert await one.entry("resp_1") == entry(cancelling=True)
    await one.finish("resp_1", ending(status="cancelled"))
    assert await one.cancel_requests() == {"resp_3"}


# Contests


CONTESTS: dict[str, Callable[[Store, int], Awaitable[bool]]] = {
    "set_answered": lambda store, n: store.set_answered("resp_1", f"resp_next{n}"),
    "adopt": lambda store, n: store.take_over("resp_1", "dead"),
    "finish": lambda store, n: store.finish("resp_1", ending(ended=200.0 + n)),
    "change": lambda store, n: store.change_status("resp_1", "cancelled", ("in_progress",)),
    "delete": lambda store, n: store.delete("", "resp_1"),
}


@each_store
async def test_of_two_competing_servers_one_wins(stores: Stores) -> None:
    one, two = await stores.opened(), await stores.opened()
    for name, contest in CONTESTS.items():
        await one.begin(entry(server="dead" if name == "adopt" else "one"))
        wins = await asyncio.gather(*(contest((one, two)[n % 2], n) for n in range(50)))
        assert sum(wins) == 1
        await one.delete("", "resp_1")


@each_store
async def test_the_winner_is_the_one_that_is_stored(stores: Stores) -> None:
    one, two = await stores.opened(), await stores.opened()
    await one.begin(entry())
    wins = await asyncio.gather(
        *((one, two)[n % 2].set_answered("resp_1", f"resp_next{n}") for n in range(50))
    )
    assert await one.entry("resp_1") == entry(answered=f"resp_next{wins.index(True)}")


@each_store
async def test_of_two_servers_one_can_use_an_id(stores: Stores) -> None:
    one, two = await stores.opened(), await stores.opened()
    outcomes = await asyncio.gather(
        *((one, two)[n % 2].begin(entry(model=f"m{n}")) for n in range(20)), return_exceptions=True
    )
    winner = outcomes.index(None)
    assert [type(outcome) for outcome in outcomes if outcome] == [AlreadyExists] * 19
    assert await two.entry("resp_1") == entry(model=f"m{winner}")


@each_store
async def test_no_block_of_the_old_server_follows_a_takeover(stores: Stores) -> None:
    """One server writes on while another, which holds it for dead, ends what it wrote: the log
    stands still from the moment it is taken over."""
    one, two = await stores.opened(), await stores.opened(server="two")
    for n in range(15):
        id = f"resp_{n}"
        await one.begin(entry(id))
        for block in log(10):
            one.append(id, block)
            if block.number % 4 == n % 4:
                await asyncio.sleep(0)
        writing = asyncio.ensure_future(_unless_fenced(one.flush(id)))
        assert await two.take_over(id, "one")
        seen = await whole_log(two, id)
        assert await two.finish(id, ending(seen, status="failed"))
        await writing
    assert len(await audit(one)) == 15


async def _unless_fenced(what: Awaitable[T]) -> T | None:
    try:
        return await what
    except StoreError as error:
        if error.kind != "fenced":
            raise
        return None


@each_store
async def test_a_server_that_lost_a_response_cannot_write_to_it(stores: Stores) -> None:
    one, two = await stores.opened(), await stores.opened(server="two")
    await one.begin(entry(status="queued"), log(1))
    assert await two.take_over("resp_1", "one")
    taken = entry(status="queued", server="two")
    for expected in (taken, ended(taken, ending(log(1)))):
        one.append("resp_1", log(2)[1])
        assert not await one.change_status("resp_1", "in_progress", ("queued",))
        assert not await one.finish("resp_1", ending(log(2)))
        assert not await one.take_over("resp_1", "one")
        assert await two.entry("resp_1") == expected
        assert await two.blocks("resp_1") == log(1)
        await two.finish("resp_1", ending(log(1)))
    one.append("resp_1", log(2)[1])
    with pytest.raises(StoreError) as caught:
        await one.flush("resp_1")
    assert caught.value.kind == "fenced"
    assert await one.change_status("resp_1", "incomplete", ("completed",)), (
        "what has ended is nobody's"
    )


# Who sees what


@each_store
async def test_responses_of_other_owners_are_not_found(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry(owner="alice"))
    await store.create_conversation(Conversation("conv_1", "alice", 1.0))
    assert await store.owned("alice", "resp_1") == entry(owner="alice")
    for stranger in ("", "bob", "ALICE", "alice ", "%", "a%"):
        assert await store.owned(stranger, "resp_1") is None
        assert not await store.delete(stranger, "resp_1")
        assert await store.chain(stranger, "resp_1") == []
        assert await store.newest(stranger) == []
        assert await store.conversation(stranger, "conv_1") is None
        assert not await store.set_metadata(stranger, "conv_1", b"{}")
        assert not await store.delete_conversation(stranger, "conv_1")
    assert await store.entry("resp_1") == entry(owner="alice")


HOSTILE = [
    "'; DROP TABLE response; --",
    '" OR 1=1 --',
    "?1",
    "$1",
    "%",
    "_",
    "a\x00b",
    "a\\0000b",
    "\\",
    "\ud800",
    "né\u2028x",
    "🧵",
    "x" * ID_LENGTH,
    "",
]


@each_store
async def test_strings_are_stored_and_compared_unchanged(stores: Stores) -> None:
    store = await stores.opened()
    made = {
        text: entry(
            text,
            owner=text,
            model=text,
            previous=text,
            conversation=text,
            answered=text,
        )
        for text in HOSTILE
    }
    for text, one in made.items():
        await store.begin(one)
        await store.create_conversation(Conversation(text, text, 1.0), [Item(text, b"{}")])
    for text, one in made.items():
        store.append(text, log(1)[0])
        assert await store.owned(text, text) == one
        assert await store.newest(text) == [one]
        assert await store.conversation(text, text) == Conversation(text, text, 1.0)
        assert await store.items(text) == Page([Item(text, b"{}")], False)
        assert await store.item(text, text) == Item(text, b"{}")
        assert await store.request_cancel(text)
    assert await store.cancel_requests() == set(HOSTILE)
    assert {id for id, _ in await store.orphans()} == set(HOSTILE)
    for text in HOSTILE:
        assert await store.finish(text, ending(log(1)))
        assert await store.delete(text, text)
        assert await store.delete_conversation(text, text)
    assert await store.entries() == []


@each_store
async def test_ids_that_are_too_long_are_refused(stores: Stores) -> None:
    store = await stores.opened()
    long = "x" * (ID_LENGTH + 1)
    await store.create_conversation(Conversation("conv_1", "", 1.0))
    attempts = [
        store.begin(entry(long)),
        store.create_conversation(Conversation(long, "", 1.0)),
        store.add_items("conv_1", [Item(long, b"")]),
    ]
    for attempt in attempts:
        with pytest.raises(ClientError):
            await attempt
    assert await store.entry(long) is None


# Group commit


@each_store
async def test_queued_blocks_are_written_in_one_transaction(stores: Stores) -> None:
    store = await stores.opened(WritePolicy(flush_interval=60.0))
    ids = [f"resp_{n}" for n in range(50)]
    await asyncio.gather(*(store.begin(entry(id)) for id in ids))
    assert store.commits <= 2
    before = store.commits
    for block in log(20):
        for id in ids:
            store.append(id, block)
    await store.flush(ids[0])
    assert store.commits == before + 1
    assert [await whole_log(store, id) for id in ids] == [log(20)] * 50


@each_store
async def test_an_operation_takes_the_queued_blocks_along(stores: Stores) -> None:
    store = await stores.opened(WritePolicy(flush_interval=60.0))
    await store.begin(entry())
    store.append("resp_1", log(1)[0])
    await asyncio.sleep(0)
    await store.begin(entry("resp_2"))
    assert await store.blocks("resp_1") == log(1)
    assert (store.waiting, store.commits) == (0, 2)


@each_store
async def test_blocks_alone_are_written_soon(stores: Stores) -> None:
    one, two = await stores.opened(), await stores.opened()
    await one.begin(entry())
    one.append("resp_1", log(1)[0])
    async with asyncio.timeout(60):
        while not await two.blocks("resp_1"):
            await asyncio.sleep(0)
    assert await two.blocks("resp_1") == log(1)


@each_store
async def test_a_full_queue_refuses_blocks_and_still_lets_endings_in(stores: Stores) -> None:
    store = await stores.opened(WritePolicy(queue_size=2000))
    await store.begin(entry())
    block = Block(0, 0, 1, b"x" * 1500)
    store.append("resp_1", block)
    with pytest.raises(StoreError) as caught:
        store.append("resp_1", Block(1, 1, 1, b"x" * 500))
    assert caught.value.kind == "full"
    assert await store.finish("resp_1", ending([block], body=b"x" * 1000))
    await store.begin(entry("resp_2", request=b"x" * 5000))  # nothing else waits
    store.append("resp_2", block)
    with pytest.raises(StoreError):
        await store.begin(entry("resp_3", request=b"x" * 3000))
    assert set(await audit(store)) == {"resp_1", "resp_2"}


@each_store
async def test_an_operation_at_fault_fails_alone(stores: Stores) -> None:
    store = await stores.opened()
    outcomes = await asyncio.gather(
        store.begin(entry("resp_1")),
        store.begin(entry("resp_2", events=2**70)),
        store.begin(entry("resp_3")),
        store.begin(entry("resp_1")),
        store.begin(entry("resp_4", status=None)),
        store.begin(entry("resp_5")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        StoreError,
        type(None),
        AlreadyExists,
        StoreError,
        type(None),
    ]
    assert list(await audit(store)) == ["resp_1", "resp_3", "resp_5"]


@each_store
async def test_blocks_with_senseless_numbers_are_refused(stores: Stores) -> None:
    store = await stores.opened()
    for block in (Block(-1, 0, 1, b""), Block(0, 2**62, 1, b""), Block(0, 0, -5, b"")):
        with pytest.raises(ClientError):
            store.append("resp_1", block)


@each_store
async def test_a_cancelled_caller_does_not_undo_its_write(stores: Stores) -> None:
    store = await stores.opened()
    waiting = asyncio.ensure_future(store.begin(entry()))
    await asyncio.sleep(0)
    waiting.cancel()
    await store.begin(entry("resp_2"))
    assert set(await audit(store)) == {"resp_1", "resp_2"}


@each_store
async def test_closing_writes_the_queue(stores: Stores) -> None:
    store = await stores.opened(WritePolicy(flush_interval=60.0))
    await store.begin(entry())
    for block in log(3):
        store.append("resp_1", block)
    await store.close()
    await store.close()
    again = await stores.opened()
    assert await again.blocks("resp_1") == log(3)
    assert await again.entry("resp_1") == entry()


@each_store
async def test_a_closed_store_refuses_everything(stores: Stores) -> None:
    store = await stores.opened()
    await store.close()
    with pytest.raises(StoreError) as appended:
        store.append("resp_1", log(1)[0])
    with pytest.raises(StoreError) as begun:
        await store.begin(entry())
    assert (appended.value.kind, begun.value.kind) == ("closed", "closed")


# Many


@each_store
async def test_all_entries_are_listed_by_id(stores: Stores) -> None:
    store = await stores.opened()
    ids = ["B", "a", "A", "é", "a_1", "aB", "z"]
    for id in ids:
        await store.begin(entry(id))
    assert [one.id for one in await store.entries()] == sorted(ids)
    assert [one.id for one in await store.entries("a", 3)] == ["aB", "a_1", "z"]


@each_store
async def test_the_newest_entries_are_listed_first(stores: Stores) -> None:
    store = await stores.opened()
    for n, id in enumerate(["c", "a", "b"]):
        await store.begin(entry(id, created=float(n)))
    await store.begin(entry("d", created=1.0))
    await store.begin(entry("e", owner="alice"))
    assert [one.id for one in await store.newest("", 3)] == ["b", "d", "a"]


@each_store
async def test_visible_entries_are_listed_by_time_from_any_of_them_on(stores: Stores) -> None:
    store = await stores.opened()
    made = [
        entry(f"resp_{n}", dialect="openai-chat", created=float(n // 2), ended=5.0)
        for n in range(6)
    ]
    hidden = [
        entry("resp_runs", dialect="openai-chat"),
        entry("resp_other", ended=5.0),
        entry("resp_alice", dialect="openai-chat", ended=5.0, owner="alice"),
        entry("resp_unseen", dialect="openai-chat", ended=5.0, visible=False),
    ]
    for one in (*made[::-1], *hidden):
        await store.begin(one)
    assert await store.list_visible("", "openai-chat", None, 20, False) == made
    assert await store.list_visible("", "openai-chat", None, 20, True) == made[::-1]
    assert await store.list_visible("", "openai-chat", made[1], 3, False) == made[2:5]
    assert await store.list_visible("", "openai-chat", made[4], 3, True) == made[3:0:-1]
    assert await store.list_visible("", "openai-chat", made[5], 3, False) == []


@each_store
async def test_the_context_of_an_ended_response_may_change(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry(owner="alice"))
    await store.finish("resp_1", ending())
    assert await store.set_context("alice", "resp_1", b"[1]")
    assert not await store.set_context("bob", "resp_1", b"[2]")
    assert not await store.set_context("alice", "resp_2", b"[2]")
    assert await store.entry("resp_1") == ended(entry(owner="alice", context=b"[1]"), ending())


@each_store
async def test_a_chain_goes_back_to_where_it_began(stores: Stores) -> None:
    store = await stores.opened()
    made = [
        entry(f"resp_{n}", owner="alice", previous=f"resp_{n - 1}" if n else None)
        for n in range(30)
    ]
    for one in made:
        await store.begin(one)
    assert await store.chain("alice", "resp_29") == made
    assert await store.chain("alice", "resp_0") == made[:1]
    assert await store.chain("alice", "resp_none") == []
    await store.delete("alice", "resp_10")
    assert await store.chain("alice", "resp_29") == made[11:]
    await store.begin(entry("resp_10", owner="bob", previous="resp_9"))
    assert await store.chain("alice", "resp_29") == made[11:]


@each_store
async def test_a_chain_without_end_is_cut(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry("resp_1", previous="resp_1"))
    assert await store.chain("", "resp_1") == [entry("resp_1", previous="resp_1")] * 1000


@each_store
async def test_age_removes_logs_first_and_entries_later(stores: Stores) -> None:
    store = await stores.opened()
    for n in range(6):
        await store.begin(entry(f"resp_{n}"))
        store.append(f"resp_{n}", log(1)[0])
    for n in range(5):
        await store.finish(f"resp_{n}", ending(log(1), ended=float(n)))
    await store.begin(entry("resp_x"))
    await store.finish("resp_x", ending(ended=3.0))
    assert await store.prune(2.0, 4.0) == Pruned(entries=2, logs=2)
    assert await store.prune(2.0, 4.0) == Pruned(entries=0, logs=0)
    pruned = {
        one.id: (one.pruned, len(await store.blocks(one.id))) for one in await store.entries()
    }
    assert pruned == {
        "resp_2": (True, 0),
        "resp_3": (True, 0),
        "resp_4": (False, 1),
        "resp_5": (False, 1),
        "resp_x": (False, 0),
    }
    assert await store.entry("resp_3") == ended(
        entry("resp_3", pruned=True), ending(log(1), ended=3.0)
    )


@each_store
async def test_pruning_many_takes_several_rounds(stores: Stores) -> None:
    store = await stores.opened()
    await asyncio.gather(
        *(store.begin(entry(f"resp_{n:03}", ended=float(n), events=1)) for n in range(450))
    )
    assert await store.prune(230.0, 440.0) == Pruned(entries=230, logs=210)


# Reasoning


def thought(call: str = "call_1", **fields: object) -> CallReasoning:
    plain = CallReasoning(call, "resp_1", "anthropic", 100.0, b'{"a":"\x00\xff"}')
    return msgspec.structs.replace(plain, **fields)


@each_store
async def test_the_reasoning_of_calls_is_found_by_their_ids(stores: Stores) -> None:
    store = await stores.opened()
    kept = [thought(f"call_{n}", data=b"%d" % n) for n in range(150)]
    await store.save_reasoning("alice", kept)
    found = await store.load_reasoning("alice", [one.call for one in kept] + ["call_none"], 100.0)
    assert found == {one.call: one for one in kept}
    assert await store.load_reasoning("alice", ["call_none", "call_7"], 0.0) == {"call_7": kept[7]}
    assert await store.load_reasoning("alice", ["call_7", "call_7"], 0.0) == {"call_7": kept[7]}
    odd = thought("\0 \ud800 \\005c", origin="\0")
    await store.save_reasoning("\udfff", [odd])
    assert await store.load_reasoning("\udfff", [odd.call], 0.0) == {odd.call: odd}


@each_store
async def test_another_owner_finds_no_reasoning_and_replaces_none(stores: Stores) -> None:
    store = await stores.opened()
    await store.save_reasoning("alice", [thought()])
    assert await store.load_reasoning("bob", ["call_1"], 0.0) == {}
    assert await store.load_reasoning("", ["call_1"], 0.0) == {}
    await store.save_reasoning("bob", [thought(data=b"bob's")])
    assert await store.load_reasoning("alice", ["call_1"], 0.0) == {"call_1": thought()}


@each_store
async def test_the_last_reasoning_of_a_call_id_wins(stores: Stores) -> None:
    store = await stores.opened()
    await store.save_reasoning("", [thought(), thought(data=b"second")])
    last = CallReasoning("call_1", "resp_2", "gemini", 200.0, b"third")
    await store.save_reasoning("", [last])
    assert await store.load_reasoning("", ["call_1"], 0.0) == {"call_1": last}


@each_store
async def test_old_reasoning_is_not_found_and_removed_with_age(stores: Stores) -> None:
    store = await stores.opened()
    kept = [thought(f"call_{n:03}", created=float(n)) for n in range(450)]
    await store.save_reasoning("", kept)
    assert await store.load_reasoning("", ["call_001", "call_002"], 2.0) == {"call_002": kept[2]}
    assert await store.prune(0.0, 0.0) == Pruned(entries=0, logs=0, reasoning=0)
    assert await store.prune(0.0, 0.0, 430.0) == Pruned(entries=0, logs=0, reasoning=430)
    assert await store.load_reasoning("", [one.call for one in kept], 0.0) == {
        one.call: one for one in kept[430:]
    }


@each_store
async def test_reasoning_is_deleted_with_its_response_by_its_owner_alone(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry(owner="alice"))
    other = thought("call_2", response="resp_2")
    await store.save_reasoning("alice", [thought(), other])
    assert not await store.delete("bob", "resp_1")
    assert len(await store.load_reasoning("alice", ["call_1", "call_2"], 0.0)) == 2
    assert await store.delete("alice", "resp_1")
    assert await store.load_reasoning("alice", ["call_1", "call_2"], 0.0) == {"call_2": other}


@each_store
async def test_reasoning_that_is_too_large_is_refused_as_a_whole(stores: Stores) -> None:
    store = await stores.opened()
    largest = thought("call_1", data=bytes(REASONING_SIZE))
    for refused in (
        thought("call_2", data=bytes(REASONING_SIZE + 1)),
        thought("c" * (ID_LENGTH + 1)),
        thought("call_2", response="r" * (ID_LENGTH + 1)),
    ):
        with pytest.raises(ClientError):
            await store.save_reasoning("", [largest, refused])
    assert await store.load_reasoning("", ["call_1"], 0.0) == {}
    await store.save_reasoning("", [largest])
    assert await store.load_reasoning("", ["call_1"], 0.0) == {"call_1": largest}


@each_store
async def test_saving_no_reasoning_writes_nothing(stores: Stores) -> None:
    store = await stores.opened()
    before = store.commits
    await store.save_reasoning("", [])
    assert await store.load_reasoning("", [], 0.0) == {}
    assert store.commits == before


# Servers


# Conversations


ITEMS = [Item(f"item_{n}", b'{"n":%d}' % n) for n in range(5)]


@each_store
async def test_a_conversation_is_stored_with_its_items(stores: Stores) -> None:
    store = await stores.opened()
    made = Conversation("conv_1", "alice", 12.5, b'{"topic":"x"}')
    await store.create_conversation(made, ITEMS[:2])
    with pytest.raises(AlreadyExists):
        await store.create_conversation(Conversation("conv_1", "bob", 1.0))
    await store.add_items("conv_1", ITEMS[2:])
    assert await store.conversation("alice", "conv_1") == made
    assert await store.items("conv_1") == Page(ITEMS, False)
    assert await store.item("conv_1", "item_3") == ITEMS[3]
    assert await store.item("conv_1", "item_9") is None
    assert await store.set_metadata("alice", "conv_1", b"{}")
    assert await store.conversation("alice", "conv_1") == Conversation("conv_1", "alice", 12.5)
    assert await store.delete_item("conv_1", "item_3")
    assert not await store.delete_item("conv_1", "item_3")
    assert await store.items("conv_1") == Page([*ITEMS[:3], ITEMS[4]], False)
    assert await store.delete_conversation("alice", "conv_1")
    assert not await store.delete_conversation("alice", "conv_1")
    assert await store.items("conv_1") == Page([], False)


# after, before, limit, descending; items, more
PAGES: list[tuple[str | None, str | None, int, bool, str, bool]] = [
    (None, None, 20, False, "01234", False),
    (None, None, 5, False, "01234", False),
    (None, None, 2, False, "01", True),
    (None, None, 2, True, "43", True),
    ("item_1", None, 2, False, "23", True),
    ("item_2", None, 2, False, "34", False),
    ("item_4", None, 2, False, "", False),
    ("item_3", None, 2, True, "21", True),
    ("item_0", None, 2, True, "", False),
    (None, "item_3", 2, False, "12", True),
    (None, "item_2", 2, False, "01", False),
    (None, "item_0", 2, False, "", False),
    (None, "item_1", 2, True, "32", True),
    (None, "item_2", 5, True, "43", False),
    ("item_0", "item_4", 20, False, "123", False),
    ("item_0", "item_4", 2, False, "12", True),
    ("item_4", "item_0", 2, True, "32", True),
    ("item_4", "item_0", 20, False, "", False),
]


@each_store
async def test_items_are_listed_page_by_page(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_conversation(Conversation("conv_0", "", 1.0), ITEMS)
    await store.create_conversation(Conversation("conv_1", "", 1.0), ITEMS)
    for after, before, limit, descending, found, more in PAGES:
        page = await store.items("conv_1", after, before, limit, descending)
        assert page == Page([ITEMS[int(n)] for n in found], more)
    with pytest.raises(NotFound):
        await store.items("conv_1", after="item_9")
    with pytest.raises(NotFound):
        await store.items("conv_1", before="item_9")


@each_store
async def test_items_are_added_all_or_none(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_conversation(Conversation("conv_1", "", 1.0), ITEMS[:1])
    with pytest.raises(NotFound):
        await store.add_items("conv_2", ITEMS)
    with pytest.raises(AlreadyExists):
        await store.add_items("conv_1", [ITEMS[1], ITEMS[0]])
    with pytest.raises(AlreadyExists):
        await store.add_items("conv_1", [ITEMS[1], ITEMS[1]])
    with pytest.raises(AlreadyExists):
        await store.create_conversation(Conversation("conv_3", "", 1.0), [ITEMS[1], ITEMS[1]])
    assert await store.items("conv_1") == Page(ITEMS[:1], False)
    assert await store.conversation("", "conv_3") is None


@each_store
async def test_two_servers_add_items_one_after_the_other(stores: Stores) -> None:
    one, two = await stores.opened(), await stores.opened()
    await one.create_conversation(Conversation("conv_1", "", 1.0))
    batches = [[Item(f"{n}_{k}", b"") for k in range(3)] for n in range(20)]
    await asyncio.gather(
        *((one, two)[n % 2].add_items("conv_1", batch) for n, batch in enumerate(batches))
    )
    page = await one.items("conv_1", limit=100)
    threes = [page.items[start : start + 3] for start in range(0, 60, 3)]
    assert sorted(threes, key=str) == sorted(batches, key=str)


@each_store
async def test_the_last_block_is_written_with_the_ending_or_not_at_all(stores: Stores) -> None:
    store = await stores.opened()
    first, last = Block(0, 0, 1, b"a\n\n"), Block(1, 1, 2, b"b\n\nc\n\n")
    await store.begin(entry())
    store.append("resp_1", first)
    torn = Ending(status="completed", ended=2.0, events=2, size=9, rest=last)
    with pytest.raises(StoreError):
        await store.finish("resp_1", torn)
    assert await store.blocks("resp_1") == [first]
    whole = Ending(status="completed", ended=2.0, events=3, size=9, rest=last)
    assert await store.finish("resp_1", whole)
    assert await store.blocks("resp_1") == [first, last]


@each_store
async def test_an_ending_adds_its_items_to_the_conversation(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_conversation(Conversation("conv_1", "", 1.0), ITEMS[:2])
    await store.begin(entry(conversation="conv_1"))
    assert await store.finish("resp_1", ending(items=ITEMS[2:]))
    assert not await store.finish("resp_1", ending(items=[Item("late", b"")]))
    assert await store.items("conv_1") == Page(ITEMS, False)


@each_store
async def test_an_item_whose_id_exists_gets_another(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_conversation(Conversation("conv_1", "", 1.0), ITEMS[:2])
    await store.begin(entry(conversation="conv_1"))
    again = Item("item_1", b"again")
    assert await store.finish("resp_1", ending(items=[again, ITEMS[2]]))
    found = [*ITEMS[:2], Item("item_1_2", b"again"), ITEMS[2]]
    assert await store.items("conv_1") == Page(found, False)


@each_store
async def test_an_ending_survives_a_deleted_conversation(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry(conversation="conv_gone"))
    await store.begin(entry("resp_2"))
    assert await store.finish("resp_1", ending(items=ITEMS))
    assert await store.finish("resp_2", ending(items=ITEMS))
    assert await store.items("conv_gone") == Page([], False)


@each_store
async def test_of_any_number_of_blocks_each_is_stored_or_reported_as_dropped(
    stores: Stores,
) -> None:
    store = await stores.opened(WritePolicy(timeout=5.0, flush_interval=60.0))
    for count in (1, 2, 16, 17, 64, 65, 256, 257, 600):
        id, none = f"resp_{count}", f"none_{count}"
        await store.begin(entry(id))
        before = store.commits
        for block in log(count):
            store.append(id, block)
        store.append(none, log(1)[0])
        await store.flush(id)
        assert store.commits == before + 1
        assert await whole_log(store, id) == log(count)
        with pytest.raises(StoreError, match="dropped"):
            await store.flush(none)
