"""Runs: one log, one lease, one winner, and receipts that commit with what they tell of."""

import asyncio
import os
import re
import signal
from collections.abc import Callable, Sequence

import msgspec
import pytest

from tests.clocks import hours_off
from tests.stores import (
    Stores,
    each_store,
    ended,
    ending,
    entry,
    log,
    over,
    path_of,
    postgres_store,
    sqlite_store,
)
from tests.test_store_migrations import rows
from tests.test_store_processes import child, go, read_words
from tests.test_store_sqlite import Synchronous
from weft.errors import ClientError
from weft.store.base import EVENT_SIZE, ID_LENGTH, AlreadyExists, NotFound, Store, StoreError
from weft.store.postgres import numbered
from weft.store.queries import Queries
from weft.store.records import (
    Conversation,
    NewEvent,
    NewRun,
    RunAppend,
    RunClaim,
    RunEvent,
    RunPage,
    RunRow,
    RunWrite,
)
from weft.store.runs import DUE_RUNS, IDS_AT_A_TIME, NEXT_DUE, OF_AGENTS

HOURS = 36_000.0
CREATED: list[NewEvent] = [("run.created", b"{}")]


def new(id: str = "run_1", **fields: object) -> NewRun:
    plain = NewRun(id=id, agent="helper", status="running", events=CREATED)
    return msgspec.structs.replace(plain, **fields)


def append(at: int = 1, run: str = "run_1", **fields: object) -> RunAppend:
    """One event, from outside."""
    plain = RunAppend(run=run, at=at, events=[("event", b"body")], status="running")
    return msgspec.structs.replace(plain, **fields)


async def existing(store: Store, id: str = "run_1") -> RunRow:
    row = await store.run(id)
    assert row is not None
    return row


async def contents(store: Store, id: str = "run_1") -> list[NewEvent]:
    """The events of a run, which are numbered from 1 on."""
    events = await store.run_events(id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [(event.kind, event.body) for event in events]


# Creating and reading


@each_store
async def test_a_new_run_is_stored_with_its_events(stores: Stores) -> None:
    store = await stores.opened()
    given = new(
        owner="alice",
        events=[*CREATED, ("turn\0started", b"\x00\xff")],
        due=HOURS,
        parent="run_0",
        key="k\\1",
    )
    assert await store.create_run(given) == "run_1"
    row = await existing(store)
    due = row.due
    assert due is not None
    assert abs(due - row.created - HOURS) < 1
    assert row == RunRow(
        id="run_1",
        owner="alice",
        agent="helper",
        status="running",
        created=row.created,
        updated=row.updated,
        ended=None,
        seq=2,
        epoch=0,
        holder="",
        until=0.0,
        due=due,
        parent="run_0",
        key="k\\1",
    )
    assert await store.run_events("run_1") == [
        RunEvent("run_1", 1, "run.created", row.created, 0, b"{}"),
        RunEvent("run_1", 2, "turn\0started", row.created, 0, b"\x00\xff"),
    ]
    assert await store.owned_run("alice", "run_1") == row
    assert await store.owned_run("bob", "run_1") is None
    assert [await store.run("run_2"), await store.run_events("run_2")] == [None, []]


@each_store
async def test_an_id_is_used_once_and_an_idempotency_key_once_per_owner(stores: Stores) -> None:
    store = await stores.opened()
    assert await store.create_run(new("run_1", key="k", owner="alice")) == "run_1"
    before = await existing(store)
    assert await store.create_run(new("run_2", key="k", owner="alice", agent="b")) == "run_1"
    assert await store.create_run(new("run_3", key="k", owner="bob")) == "run_3"
    for again in (new("run_1"), new("run_1", key="other"), new("run_1", key="k", owner="carol")):
        with pytest.raises(AlreadyExists):
            await store.create_run(again)
    assert await existing(store) == before
    assert await store.run("run_2") is None
    assert await contents(store) == CREATED


@each_store
async def test_of_equal_requests_one_creates_the_run(stores: Stores) -> None:
    both = [await stores.opened(server=server) for server in ("one", "two")]
    for key in range(10):
        requests = [
            store.create_run(new(f"run_{key}_{number}_{store.server}", key=f"key_{key}"))
            for number in range(5)
            for store in both
        ]
        assert len(set(await asyncio.gather(*requests))) == 1
    assert len((await both[0].runs("", limit=100)).runs) == 10


@each_store
async def test_runs_are_listed_by_their_creation_in_pages(stores: Stores) -> None:
    store = await stores.opened()
    for number in range(7):
        agent, status = f"agent_{number % 2}", f"status_{number % 3}"
        await store.create_run(new(f"run_{number}", owner="alice", agent=agent, status=status))
    await store.create_run(new("run_of_bob", owner="bob"))

    def page(*numbers: int, more: bool = False) -> tuple[list[str], bool]:
        return [f"run_{number}" for number in numbers], more

    async def listed(**filters: object) -> tuple[list[str], bool]:
        found: RunPage = await store.runs("alice", **filters)  # type: ignore[arg-type]
        return [row.id for row in found.runs], found.more

    assert await listed() == page(6, 5, 4, 3, 2, 1, 0)
    assert await listed(descending=False, limit=7) == page(0, 1, 2, 3, 4, 5, 6)
    assert await listed(limit=3) == page(6, 5, 4, more=True)
    assert await listed(limit=3, after="run_4") == page(3, 2, 1, more=True)
    assert await listed(limit=3, after="run_1") == page(0)
    assert await listed(descending=False, after="run_4") == page(5, 6)
    assert await listed(agent="agent_1") == page(5, 3, 1)
    assert await listed(status="status_0") == page(6, 3, 0)
    assert await listed(status="status_0", agent="agent_0", limit=1) == page(6, more=True)
    assert await listed(limit=0) == page(more=True)
    for unknown in ("run_9", "run_of_bob"):
        with pytest.raises(NotFound):
            await store.runs("alice", after=unknown)


@each_store
async def test_events_are_read_from_any_number_on_and_by_kind(stores: Stores) -> None:
    store = await stores.opened()
    written = [(f"kind_{number % 3}", b"%d" % number) for number in range(1, 21)]
    await store.create_run(new(events=written))

    async def bodies(**how: object) -> list[int]:
        events = await store.run_events("run_1", **how)  # type: ignore[arg-type]
        return [int(event.body) for event in events]

    assert await bodies() == list(range(1, 21))
    assert await bodies(after=17) == [18, 19, 20]
    assert await bodies(after=3, limit=2) == [4, 5]
    assert await bodies(kinds=["kind_0"], after=4, limit=3) == [6, 9, 12]
    assert await bodies(kinds=["kind_0", "kind_1", "none"], limit=4) == [1, 3, 4, 6]
    assert await bodies(kinds=[]) == []
    assert [await bodies(after=10**30), await bodies(after=-(10**30), limit=1)] == [[], [1]]
    with pytest.raises(ClientError, match="33 kinds"):
        await bodies(kinds=[str(number) for number in range(33)])


# Appending


@each_store
async def test_events_are_appended_only_after_the_last_one(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_run(new())
    events: list[NewEvent] = [("a", b"1"), ("b", b"2")]
    written = await store.append_run(append(1, events=events, status="waiting", due=HOURS))
    row = await existing(store)
    assert (written.outcome, written.seq) == ("written", 3)
    assert (row.seq, row.status, row.ended, row.updated) == (3, "waiting", None, written.at)
    assert row.due is not None
    for at in (0, 1, 2, 4, 10**30, -1):
        assert await store.append_run(append(at)) == RunWrite("moved", 3)
    assert await store.append_run(append(1, run="run_2")) == RunWrite("missing")
    assert await contents(store) == [*CREATED, *events]
    assert {event.at for event in await store.run_events("run_1", 1)} == {written.at}
    assert await existing(store) == row
    assert (await store.append_run(append(3, events=[], ended=True))).seq == 3
    last = await existing(store)
    assert (last.due, last.ended is not None) == (None, True)


@each_store
async def test_the_owner_is_fenced_when_its_lease_is_released_or_lost(stores: Stores) -> None:
    one, two = [await stores.opened(server=server) for server in ("one", "two")]
    await one.create_run(new())
    assert await one.append_run(append(epoch=0)) == RunWrite("fenced", 1), "nobody has claimed it"
    assert claimed(await one.claim_run("run_1", 0.0)) == (1, 1)
    assert await two.append_run(append(epoch=1)) == RunWrite("fenced", 1), "of another server"
    assert (await one.append_run(append(epoch=1))).outcome == "written", "expired, but not lost"
    assert claimed(await two.claim_run("run_1", HOURS)) == (2, 2)
    for late in (append(2, epoch=1), append(2, epoch=2), append(1, epoch=1)):
        assert await one.append_run(late) == RunWrite("fenced", 2)
    assert not await one.renew_run("run_1", 1, HOURS)
    assert not await one.release_run("run_1", 1, 2, "late", None)
    assert (await two.append_run(append(2, epoch=2))).outcome == "written"
    assert (await one.append_run(append(3))).outcome == "written", "from outside"
    assert await two.append_run(append(3, epoch=2)) == RunWrite("moved", 4)
    assert await two.release_run("run_1", 2, 4, "waiting", None)
    assert await two.append_run(append(4, epoch=2)) == RunWrite("fenced", 4)
    epochs = [event.epoch for event in await one.run_events("run_1")]
    assert epochs == [0, 1, 2, 0]


@each_store
async def test_runs_of_all_owners_are_counted_by_their_status(stores: Stores) -> None:
    store = await stores.opened()
    assert await store.count_runs() == {}
    for number, owner in enumerate(("", "alice", "bob")):
        await store.create_run(new(f"run_{number}", owner=owner))
    await store.append_run(append(run="run_2", status="waiting"))
    assert await store.count_runs() == {"running": 2, "waiting": 1}


@each_store
async def test_a_released_run_is_fenced_for_a_server_without_an_id_too(stores: Stores) -> None:
    store = await stores.opened(server="")
    await store.create_run(new())
    assert (await store.claim_run("run_1", HOURS)).epoch == 1
    assert (await store.append_run(append(epoch=1))).outcome == "written"
    assert await store.release_run("run_1", 1, 2, "waiting", None)
    assert await store.append_run(append(2, epoch=1)) == RunWrite("fenced", 2)
    assert not await store.renew_run("run_1", 1, HOURS)
    assert not await store.release_run("run_1", 1, 2, "waiting", None)


@each_store
async def test_a_server_that_lost_its_own_lease_is_fenced(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_run(new())
    await store.take_lease(HOURS)
    before = store.server
    assert (await store.claim_run("run_1", HOURS)).outcome == "claimed"
    assert (await existing(store)).holder == before
    await store.take_lease(HOURS)
    assert store.server != before
    assert await store.append_run(append(epoch=1)) == RunWrite("fenced", 1)


@each_store
async def test_large_events_and_long_ids_are_refused_before_anything_is_written(
    stores: Stores,
) -> None:
    store = await stores.opened()
    large: list[NewEvent] = [("small", b""), ("large", b"x" * (EVENT_SIZE + 1))]
    with pytest.raises(ClientError, match="'large' has 1048577 bytes, an event at most 1048576"):
        await store.create_run(new(events=large))
    for fields in ("id", "key", "parent"):
        with pytest.raises(ClientError):
            await store.create_run(new(**{fields: "x" * (ID_LENGTH + 1)}))
    assert await store.runs("") == RunPage([], False)
    await store.create_run(new())

    def effect() -> Queries[Sequence[NewEvent]]:
        yield INSERT, effect_row("too-large")
        return large

    with pytest.raises(ClientError):
        await store.append_run(append(events=large))
    with pytest.raises(ClientError):
        await store.transact(append(), effect)
    assert await store.conversation("", "too-large") is None
    assert await contents(store) == CREATED
    fits: list[NewEvent] = [("fits", b"x" * EVENT_SIZE)]
    assert (await store.append_run(append(events=fits))).outcome == "written"
    assert await contents(store) == [*CREATED, *fits]


# Leases and waking


def claimed(claim: RunClaim) -> tuple[int, int]:
    assert claim.outcome == "claimed"
    assert 0.0 <= claim.overdue < 60.0
    return claim.epoch, claim.seq


@each_store
async def test_a_run_is_claimed_when_it_is_free_or_its_lease_has_expired(stores: Stores) -> None:
    one, two = [await stores.opened(server=server) for server in ("one", "two")]
    await one.create_run(new())
    assert claimed(await one.claim_run("run_1", HOURS)) == (1, 1)
    for store in (one, two):
        held = await store.claim_run("run_1", HOURS)
        assert (held.outcome, HOURS - 60 < held.wait <= HOURS) == ("held", True)
    assert await two.claim_run("run_2", HOURS) == RunClaim("missing")
    assert await one.renew_run("run_1", 1, 0.0)
    assert await one.renew_run("run_1", 1, 0.0), "it has expired, but nobody has claimed it"
    assert claimed(await two.claim_run("run_1", HOURS)) == (2, 1)
    assert await two.release_run("run_1", 2, 1, "waiting", None)
    assert claimed(await one.claim_run("run_1", HOURS)) == (3, 1)
    row = await existing(one)
    assert (row.holder, row.epoch, row.status) == ("one", 3, "waiting")
    assert await one.renew_run("run_1", 3, -HOURS)
    assert (await two.claim_run("run_1", HOURS)).overdue >= HOURS, "nobody has claimed it so long"


@each_store
async def test_a_run_is_released_only_at_its_last_event(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_run(new())
    await store.claim_run("run_1", HOURS)
    assert (await store.append_run(append(due=0.0))).outcome == "written"
    assert not await store.release_run("run_1", 1, 1, "waiting", None)
    assert await store.due_runs() == [], "its holder looks at it"
    assert await store.release_run("run_1", 1, 2, "waiting", HOURS)
    row = await existing(store)
    assert (row.status, row.holder, row.until, row.epoch) == ("waiting", "", 0.0, 1)
    assert not await store.release_run("run_1", 1, 2, "waiting", None)
    assert await store.due_runs() == []
    wait = await store.next_due()
    assert wait is not None
    assert HOURS - 60 < wait <= HOURS


@each_store
async def test_runs_are_due_when_free_and_when_their_lease_has_expired(stores: Stores) -> None:
    store = await stores.opened()
    assert (await store.due_runs(), await store.next_due()) == ([], None)
    dues = {"later": HOURS, "third": 0.0, "second": -2.0, "first": -3.0, "never": None}
    for id, due in dues.items():
        await store.create_run(new(id, due=due))
    assert await store.due_runs() == ["first", "second", "third"]
    assert await store.due_runs(2) == ["first", "second"]
    assert await store.next_due() == 0
    await store.claim_run("second", HOURS)
    assert await store.due_runs() == ["first", "third"]
    for id, lease in (("never", -2.0), ("later", -1.0)):  # expired: whoever claimed it died
        await store.claim_run(id, lease)
    assert await store.due_runs() == ["first", "never", "later", "third"]
    for id in ("first", "third", "never", "later"):
        await store.claim_run(id, HOURS)
    wait = await store.next_due()
    assert await store.due_runs() == []
    assert wait is not None
    assert HOURS - 60 < wait <= HOURS
    for id in dues:
        row = await existing(store, id)
        assert await store.release_run(id, row.epoch, 1, "waiting", None)
    assert (await store.due_runs(), await store.next_due()) == ([], None)


@each_store
async def test_runs_of_agents_that_others_have_hide_nothing(stores: Stores) -> None:
    """They are found when they have waited for too long, or have ended under a lease."""
    store = await stores.opened()
    dues = {"foreign": -60.0, "abandoned": -HOURS, "ended": -50.0, "own": -10.0, "later": HOURS}
    for id, due in dues.items():
        await store.create_run(new(id, due=due, agent="mine" if id == "own" else "theirs"))
    await store.claim_run("ended", -1.0)
    await store.append_run(append(run="ended", ended=True))
    assert await store.due_runs(9) == ["abandoned", "foreign", "own", "ended"]
    assert await store.due_runs(9, ["mine"], HOURS / 2) == ["abandoned", "own", "ended"]
    assert await store.due_runs(1, ["mine"], 2 * HOURS) == ["own"]
    assert await store.due_runs(9, [], 2 * HOURS) == ["ended"]
    assert await store.due_runs(9, ["theirs", "mine"], HOURS / 2) == await store.due_runs(9)
    assert 60.0 <= await store.overdue("foreign") < 600.0
    assert (await store.overdue("later"), await store.overdue("none")) == (0.0, 0.0)


@each_store
async def test_the_last_events_of_many_runs_are_read_together(stores: Stores) -> None:
    store = await stores.opened()
    ids = [f"run_{number}" for number in range(IDS_AT_A_TIME + 2)]
    for id in ids:
        await store.create_run(new(id))
    await store.append_run(append(run=ids[-1]))
    found = await store.last_events([*ids, "none"])
    assert found == dict.fromkeys(ids, 1) | {ids[-1]: 2}
    assert await store.last_events([]) == {}


MANY_RUNS = {
    "sqlite": """INSERT INTO run (id, owner, agent, status, created, updated, seq, epoch, holder,
        until, due) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        SELECT 'run_' || i, '', '', '', 1, 1, 0, 0, '', 0, 4e9 + i FROM n""",
    "postgres": """INSERT INTO run (id, owner, agent, status, created, updated, seq, epoch, holder,
        until, due) SELECT 'run_' || i, '', '', '', 1, 1, 0, 0, '', 0, 4e9 + i
        FROM generate_series(1, 3000) AS n(i)""",
}


@each_store
async def test_due_runs_are_found_by_an_index(stores: Stores) -> None:
    """Not only sorted by it: what waits for years is not read."""
    await stores.opened()
    await rows(stores, MANY_RUNS[stores.kind])
    await rows(stores, "ANALYZE")
    of_some = DUE_RUNS.format(OF_AGENTS.format("?, ?"))
    for query, condition in ((DUE_RUNS.format(""), "<"), (of_some, "<"), (NEXT_DUE, ">")):
        if stores.kind == "sqlite":
            plan = await rows(stores, "EXPLAIN QUERY PLAN " + query.replace("?", "9"))
            assert f"SEARCH run USING INDEX run_wake (<expr>{condition}?)" in str(plan)
            assert "TEMP B-TREE" not in str(plan)
        else:
            plan = await rows(stores, "EXPLAIN " + re.sub(r"\$\d", "'9'", numbered(query)))
            text = "\n".join(str(line) for (line,) in plan)
            assert "Index Scan using run_wake" in text
            assert "Index Cond" in text
            assert "Sort" not in text


# With the ending of a response


@each_store
async def test_an_ending_and_its_receipt_commit_together_or_not_at_all(stores: Stores) -> None:
    one, two = [await stores.opened(server=server) for server in ("one", "two")]
    await one.create_run(new())
    await one.claim_run("run_1", HOURS)
    await one.begin(entry("resp_1"), log(2))
    how = ending(log(2))
    for refused, outcome in (
        (append(7, epoch=1), RunWrite("moved", 1)),
        (append(1, epoch=2), RunWrite("fenced", 1)),
        (append(1, run="run_2"), RunWrite("missing")),
    ):
        assert await one.finish_and_append("resp_1", how, refused) == outcome
        assert await one.entry("resp_1") == entry("resp_1")
    with pytest.raises(StoreError) as caught:
        await one.finish_and_append("resp_1", ending(log(1)), append(epoch=1))
    assert caught.value.kind == "torn"
    assert await two.finish_and_append("resp_1", how, append()) is None
    assert await contents(one) == CREATED
    written = await one.finish_and_append("resp_1", how, append(epoch=1))
    assert (written and written.outcome, await one.entry("resp_1")) == (
        "written",
        ended(entry("resp_1"), how),
    )
    assert await one.finish_and_append("resp_1", how, append(2, epoch=1)) is None
    assert await contents(one) == [*CREATED, ("event", b"body")]


@each_store
async def test_a_large_ending_and_its_receipt_commit_together(stores: Stores) -> None:
    """It is stored ahead in pieces, which nobody sees until then."""
    store = await stores.opened()
    await store.create_run(new())
    await store.begin(entry())
    how = ending(body=b"b" * 3_000_000)
    assert await store.finish_and_append("resp_1", how, append(9)) == RunWrite("moved", 1)
    assert await store.entry("resp_1") == entry()
    written = await store.finish_and_append("resp_1", how, append())
    assert written is not None
    assert written.seq == 2
    assert await store.entry("resp_1") == ended(entry(), how)


@each_store
async def test_endings_and_effects_with_their_receipts_survive_kill_9_whole(
    stores: Stores,
) -> None:
    """Killed twice, each time somewhere else; the second goes on where the first was cut."""
    store = await stores.opened()
    await store.create_run(new())
    for server, heard in (("one", 25), ("two", 44)):
        with child("turns", stores.url, server) as process:
            lines = [read_words(process) for _ in range(heard)]
            process.kill()
            assert process.stdout is not None
            whole, _, _ = process.stdout.read().rpartition("\n")  # the last line may be cut
            lines += [line.split() for line in whole.splitlines()]
        while True:  # PostgreSQL may commit what it was sent last after its client has died
            events = await store.run_events("run_1", limit=10_000)
            stored = await store.entries(limit=10_000)
            effects = await rows(stores, "SELECT id FROM conversation")
            if len(await store.run_events("run_1", limit=10_000)) == len(events):
                break
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert int(lines[-1][1]) <= len(events)
        found = {("turn", one.id) for one in stored if one.ended is not None}
        found |= {("effect", str(id)) for (id,) in effects}
        assert {(event.kind, event.body.decode()) for event in events[1:]} == found


# With the statements of a tool

INSERT = "INSERT INTO conversation (id, owner, created, metadata) VALUES (?, ?, ?, ?)"
"""Any table will do; this one can be read by a method of the store."""


def effect_row(id: str) -> tuple[str, str, float, bytes]:
    return (id, "", 1.0, b"")


def inserting(*ids: str) -> Callable[[], Queries[Sequence[NewEvent]]]:
    def effects() -> Queries[Sequence[NewEvent]]:
        for id in ids:
            yield INSERT, effect_row(id)
        found = yield "SELECT count(*) FROM conversation", ()
        return [("call.finished", b"%d" % int(found[0][0] or 0))]

    return effects


@each_store
async def test_effects_and_their_receipt_commit_together(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_run(new())
    await store.claim_run("run_1", HOURS)
    written = await store.transact(append(1, epoch=1), inserting("a", "b"))
    assert (written.outcome, written.seq) == ("written", 3)
    assert await contents(store) == [*CREATED, ("event", b"body"), ("call.finished", b"2")]
    assert await store.conversation("", "a") == Conversation("a", "", 1.0, b"")


@each_store
async def test_a_refused_append_runs_no_statement(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_run(new())

    def never() -> Queries[Sequence[NewEvent]]:
        raise AssertionError("called")

    assert await store.transact(append(7), never) == RunWrite("moved", 1)
    assert await store.transact(append(epoch=1), never) == RunWrite("fenced", 1)
    assert await store.transact(append(run="run_2"), never) == RunWrite("missing")


def raising() -> Queries[Sequence[NewEvent]]:
    yield INSERT, effect_row("a")
    raise LookupError("no such customer")


def statement(text: str, *parameters: str) -> Callable[[], Queries[Sequence[NewEvent]]]:
    def effects() -> Queries[Sequence[NewEvent]]:
        yield INSERT, effect_row("a")
        yield text, parameters
        return []

    return effects


FAILING: dict[str, tuple[Callable[[], Queries[Sequence[NewEvent]]], type[Exception]]] = {
    "raises": (raising, LookupError),
    "constraint": (inserting("a", "a"), StoreError),
    "syntax": (statement("SELECT FROM WHERE"), StoreError),
    "table": (statement("DELETE FROM nothing_of_this_name"), StoreError),
    "two-statements": (statement("SELECT 1; COMMIT"), StoreError),
    "value": (statement("SELECT id FROM conversation WHERE id = ?", "\ud800"), StoreError),
    "commit": (statement(" Commit"), ClientError),
    "empty": (statement(""), ClientError),
    "parameters": (statement("SELECT ?", "a", "b"), ClientError),
    "deletes-the-run": (statement("DELETE FROM run"), IndexError),
}


@each_store
async def test_failing_effects_are_undone_alone_and_raised_to_their_caller(stores: Stores) -> None:
    """While others share the transaction, and at once: the database is not at fault."""
    store = await stores.opened()
    await store.create_run(new())
    for name, (effects, error) in FAILING.items():
        beside = Conversation(name, "", 1.0)
        commits = store.commits
        results = await asyncio.gather(
            store.create_conversation(beside),
            store.transact(append(), effects),
            store.append_run(append(1, run="run_2")),
            return_exceptions=True,
        )
        assert isinstance(results[1], error), (name, results)
        assert (results[0], results[2]) == (None, RunWrite("missing"))
        assert store.commits - commits == 1, "nobody had to repeat anything"
        assert await store.conversation("", name) == beside
        assert await store.conversation("", "a") is None
    assert await contents(store) == CREATED
    assert (await store.transact(append(), inserting("a"))).seq == 3


@each_store
async def test_the_text_of_a_tool_is_stored_as_it_is(stores: Stores) -> None:
    """Others read these tables, and know nothing of the escapes in ours."""
    store = await stores.opened()
    await store.create_run(new())
    seen: list[object] = []

    def effects() -> Queries[Sequence[NewEvent]]:
        yield INSERT, ("c:\\0041", "", 1.0, b"")
        seen.extend((yield "SELECT id, metadata FROM conversation", ()))
        return []

    await store.transact(append(), effects)
    assert seen == [("c:\\0041", b"")]
    assert await rows(stores, "SELECT id FROM conversation") == [("c:\\0041",)]


@postgres_store
async def test_effects_whose_connection_is_lost_are_repeated_and_committed_once(
    stores: Stores,
) -> None:
    store = await stores.opened()
    await store.create_run(new())
    attempts: list[int] = []

    def effects() -> Queries[Sequence[NewEvent]]:
        attempts.append(len(attempts) + 1)
        yield INSERT, effect_row(f"attempt_{len(attempts)}")
        if len(attempts) == 1:
            yield "SELECT pg_terminate_backend(pg_backend_pid())", ()
        return [("call.finished", b"%d" % len(attempts))]

    assert (await store.transact(append(events=[]), effects)).outcome == "written"
    assert attempts == [1, 2]
    assert await rows(stores, "SELECT id FROM conversation") == [("attempt_2",)]
    assert await contents(store) == [*CREATED, ("call.finished", b"2")]


# Removing


@each_store
async def test_only_an_ended_run_is_deleted_and_pruned(stores: Stores) -> None:
    store = await stores.opened()
    for id in ("run_1", "run_2", "run_3"):
        await store.create_run(new(id, owner="alice", key=id))
    assert not await store.delete_run("alice", "run_1")
    for id in ("run_1", "run_2"):
        await store.append_run(append(run=id, ended=True, status="completed"))
    assert not await store.delete_run("bob", "run_1")
    assert await store.delete_run("alice", "run_1")
    assert not await store.delete_run("alice", "run_1")
    assert [await store.run("run_1"), await store.run_events("run_1")] == [None, []]
    assert await store.create_run(new("run_1", owner="alice", key="run_1")) == "run_1"
    ended_at = (await existing(store, "run_2")).ended
    assert ended_at is not None
    assert (await store.prune(ended_at, 0.0)).runs == 0
    assert (await store.prune(ended_at + 1, 0.0)).runs == 1
    assert {row.id for row in (await store.runs("alice")).runs} == {"run_1", "run_3"}
    assert len(await rows(stores, "SELECT 1 FROM run_event")) == 2


# Several servers


@each_store
async def test_of_competing_servers_one_wins(stores: Stores) -> None:
    both = [await stores.opened(server=server) for server in ("one", "two")]
    ids = [f"run_{number:02}" for number in range(40)]
    for id in ids:
        await both[0].create_run(new(id))
    claims = await asyncio.gather(*(store.claim_run(id, HOURS) for id in ids for store in both))
    won = [both[number % 2] for number, claim in enumerate(claims) if claim.outcome == "claimed"]
    assert [(await existing(both[0], id)).holder for id in ids] == [store.server for store in won]
    assert {claim.outcome for claim in claims} == {"claimed", "held"}
    writes = await asyncio.gather(
        *(store.append_run(append(run=id)) for id in ids for store in both)
    )
    outcomes = [{one.outcome for one in writes[at : at + 2]} for at in range(0, len(writes), 2)]
    assert outcomes == [{"written", "moved"}] * len(ids)
    assert [await contents(both[0], id) for id in ids] == [[*CREATED, ("event", b"body")]] * 40


DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@postgres_store
async def test_servers_that_write_to_the_same_runs_do_not_deadlock(stores: Stores) -> None:
    """In whatever order their callers come; PostgreSQL takes a second to notice a deadlock."""
    both = [await stores.opened(server=server) for server in ("one", "two")]
    ids = [f"run_{number:02}" for number in range(40)]
    await asyncio.gather(*(both[0].create_run(new(id)) for id in ids))
    before = await rows(stores, DEADLOCKS)
    for at in (1, 2, 3):
        acts = [both[0].append_run(append(at, id)) for id in ids]
        acts += [both[1].append_run(append(at, id)) for id in reversed(ids)]
        outcomes = [write.outcome for write in await asyncio.gather(*acts)]
        assert outcomes.count("written") == outcomes.count("moved") == len(ids)
    await stores.close()  # the counts are complete when the connections are closed
    assert await rows(stores, DEADLOCKS) == before


@each_store
async def test_every_writer_that_reads_on_gets_its_event_in(stores: Stores) -> None:
    both = [await stores.opened(server=server) for server in ("one", "two")]
    await both[0].create_run(new())

    async def write(store: Store, body: bytes) -> None:
        at = 1
        while True:
            written = await store.append_run(append(at, events=[("event", body)]))
            if written.outcome == "written":
                return
            at = written.seq

    names = [b"%d" % number for number in range(24)]
    await asyncio.gather(*(write(both[n % 2], name) for n, name in enumerate(names)))
    assert sorted(body for _, body in await contents(both[0])) == sorted([b"{}", *names])


@each_store
async def test_a_frozen_owner_is_fenced_when_it_wakes(stores: Stores) -> None:
    store = await stores.opened(server="two")
    await store.create_run(new())
    with child("hold", stores.url, "one") as process:
        assert await asyncio.to_thread(read_words, process) == ["claimed", "1"]
        os.kill(process.pid, signal.SIGSTOP)
        assert claimed(await store.claim_run("run_1", HOURS)) == (2, 1)
        os.kill(process.pid, signal.SIGCONT)
        go(process)
        assert await asyncio.to_thread(read_words, process) == ["fenced", "False"]
    assert await contents(store) == CREATED


@postgres_store
async def test_the_clock_of_the_database_decides_how_long_a_run_is_held(stores: Stores) -> None:
    store = await stores.opened()
    await store.create_run(new())
    now = (await existing(store)).created
    for hours in (1, -1):
        with child("hold", stores.url, "one", hours_off(hours)) as process:
            claimed, _ = await asyncio.to_thread(read_words, process)
        assert (claimed, abs((await existing(store)).until - now) < 600) == ("claimed", True)


@sqlite_store
async def test_what_was_promised_is_synced_to_disk(stores: Stores) -> None:
    """Claims and renewals promise nothing that outlives a power failure."""
    store = over(path_of(stores), Synchronous)
    await store.open()
    levels: list[int] = []
    for act in (
        store.create_run(new()),
        store.claim_run("run_1", HOURS),
        store.append_run(append(epoch=1)),
        store.renew_run("run_1", 1, HOURS),
        store.transact(append(2, epoch=1, events=[]), inserting("a")),
        store.release_run("run_1", 1, 3, "waiting", None),
    ):
        Synchronous.levels.clear()
        await act
        levels += Synchronous.levels
    await store.close()
    assert levels == [2, 1, 2, 1, 2, 2]
