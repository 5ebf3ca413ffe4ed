"""A bit of everything that a store does, and what must be found afterwards."""

from collections.abc import Awaitable, Iterable
from contextlib import suppress

from tests.stores import audit, ended, ending, entry, log
from weft.store.base import Store, StoreError
from weft.store.records import Conversation, Item, NewRun, RunAppend

Named = Iterable[tuple[str, Awaitable[object]]]
ITEMS = [Item("item_1", b"{}"), Item("item_2", b"{}")]
ALL = 14
"""Facts that `seen` can tell."""


async def scenario(store: Store, acknowledged: set[str], unknown: set[str] | None = None) -> None:
    """Plays it from `open` to `close`, and notes what was acknowledged, and of what the caller was
    told that it may have been written. A line of it ends where a step fails; the next begins all
    the same."""
    await store.open()
    try:
        for line in (conversation, first, second, run):
            with suppress(StoreError):
                for name, act in line(store):
                    try:
                        await act
                    except StoreError as error:
                        if unknown is not None and error.kind == "unknown":
                            unknown.add(name)
                        raise
                    acknowledged.add(name)
    finally:
        await store.close()


def conversation(store: Store) -> Named:
    yield "create", store.create_conversation(Conversation("conv_1", "", 1.0))


def first(store: Store) -> Named:
    yield "begin a", store.begin(entry("resp_a", conversation="conv_1"))
    for block in log(3):
        store.append("resp_a", block)
    yield "flush a", store.flush("resp_a")
    for block in log(5)[3:]:
        store.append("resp_a", block)
    yield "finish a", store.finish("resp_a", ending(log(5), ITEMS))
    yield "answer a", store.set_answered("resp_a", "resp_b")


def second(store: Store) -> Named:
    yield "begin b", store.begin(entry("resp_b", server="two"), log(1))
    yield "adopt b", store.take_over("resp_b", "two")
    yield "finish b", store.finish("resp_b", ending(log(1), status="failed"))
    yield "add d", store.add(entry("resp_d"), ending(log(1), rest=log(1)[0]))


def run(store: Store) -> Named:
    new = NewRun(id="run_1", agent="helper", status="running", events=[("created", b"")])
    yield "create run", store.create_run(new)
    yield "claim run", store.claim_run("run_1", 3600.0)
    yield "begin c", store.begin(entry("resp_c"), log(2))
    turn = RunAppend(run="run_1", at=1, events=[("turn", b"resp_c")], status="running", epoch=1)
    yield "finish c", store.finish_and_append("resp_c", ending(log(2)), turn)
    yield "release run", store.release_run("run_1", 1, 2, "waiting", None)


async def seen(store: Store) -> set[str]:
    """What of the scenario is in the database; nothing of it is there by half."""
    found = await audit(store)
    a, b = found.get("resp_a"), found.get("resp_b")
    created = await store.conversation("", "conv_1") is not None
    has_ended = a is not None and a.status == "completed"
    d = found.get("resp_d")
    assert d in (None, ended(entry("resp_d"), ending(log(1))))
    c, worked = found.get("resp_c"), await store.run("run_1")
    told = [event.body for event in await store.run_events("run_1", kinds=["turn"])]
    assert told == ([b"resp_c"] if c is not None and c.ended is not None else [])
    assert (await store.items("conv_1")).items == (ITEMS if created and has_ended else [])
    facts = {
        "create": created,
        "begin a": a is not None,
        "flush a": len(await store.blocks("resp_a")) >= 3,
        "finish a": has_ended,
        "answer a": a is not None and a.answered == "resp_b",
        "begin b": b is not None,
        "adopt b": b is not None and b.server == "one",
        "finish b": b is not None and b.status == "failed",
        "add d": d is not None,
        "create run": worked is not None,
        "claim run": worked is not None and worked.epoch == 1,
        "begin c": c is not None,
        "finish c": told == [b"resp_c"],
        "release run": worked is not None and worked.status == "waiting",
    }
    assert len(facts) == ALL
    return {fact for fact, true in facts.items() if true}
