"""Any operations in any order, on a real store and on a model of it that fits on a page."""

import asyncio
import tempfile
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.stores import KINDS, SWIFT, Kind, audit, empty, ended, ending, entry
from weft.store.base import AlreadyExists, NotFound, StoreError
from weft.store.records import (
    Block,
    CallReasoning,
    Conversation,
    Entry,
    Item,
    Page,
    Pruned,
    Status,
)
from weft.store.urls import store_from_url

IDS = st.sampled_from(["a", "b", "c"])
OWNERS = st.sampled_from(["", "alice"])
TIMES = st.integers(0, 10).map(float)
STATUSES = st.sampled_from(["queued", "in_progress", "completed"])
DATA = st.binary(max_size=20)


class Machine(RuleBasedStateMachine):
    """Two stores on one database take turns; the model is what both must show."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        url = empty(self.kind, Path(self.folder.name))
        self.stores = [store_from_url(url, SWIFT, server) for server in ("one", "two")]
        for store in self.stores:
            self.runner.run(store.open())
        self.numbers = count()
        self.entries: dict[str, Entry] = {}
        self.logs: dict[str, list[Block]] = {}
        self.conversations: dict[str, Conversation] = {}
        self.items: dict[str, list[Item]] = {}
        self.leases: set[str] = set()
        self.thoughts: dict[tuple[str, str], CallReasoning] = {}

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()
        self.folder.cleanup()

    def turn(self) -> None:
        self.stores.reverse()

    # Responses

    @rule(id=IDS, owner=OWNERS, created=TIMES, previous=st.none() | IDS, own=st.booleans())
    def begin(self, id: str, owner: str, created: float, previous: str | None, own: bool) -> None:
        server = self.stores[0].server if own else "three"
        new = entry(
            id, owner=owner, created=created, previous=previous, server=server, conversation=id
        )
        act = self.stores[0].begin(new)
        if id in self.entries:
            with pytest.raises(AlreadyExists):
                self.runner.run(act)
            return
        self.runner.run(act)
        self.entries[id], self.logs[id] = new, []

    def runs(self, id: str) -> bool:
        return id in self.entries and self.entries[id].ended is None

    def mine(self, id: str) -> bool:
        """Whether the store whose turn it is can write to it."""
        return self.runs(id) and self.entries[id].server == self.stores[0].server

    @rule(id=IDS, data=DATA, count=st.integers(1, 3))
    def append(self, id: str, data: bytes, count: int) -> None:
        blocks = self.logs.get(id, [])
        first = blocks[-1].first + blocks[-1].count if blocks else 0
        block = Block(len(blocks), first, count, data)

        async def act() -> None:
            self.stores[0].append(id, block)
            await self.stores[0].flush(id)

        if self.mine(id):
            blocks.append(block)
            self.runner.run(act())
        else:
            with pytest.raises(StoreError):
                self.runner.run(act())
            assert not self.runner.run(self.stores[0].finish(id, ending()))

    @rule(id=IDS, at=TIMES, data=DATA, fresh=st.booleans())
    def finish(self, id: str, at: float, data: bytes, fresh: bool) -> None:
        """With a last block, or without."""
        blocks = self.logs.get(id, [])
        if fresh and self.mine(id):
            first = blocks[-1].first + blocks[-1].count if blocks else 0
            blocks.append(Block(len(blocks), first, 1, data))
        item = Item(f"{id}{next(self.numbers)}", data)
        how = ending(blocks, [item], ended=at, body=data)

        async def act() -> bool:
            if fresh and self.mine(id):
                self.stores[0].append(id, blocks[-1])
            return await self.stores[0].finish(id, how)

        assert self.runner.run(act()) == self.mine(id)
        if self.mine(id):
            self.entries[id] = ended(self.entries[id], how)
            if id in self.conversations:
                self.items[id].append(item)

    @rule(id=IDS)
    def finish_another_log(self, id: str) -> None:
        act = self.stores[0].finish(id, ending(events=99))
        if self.mine(id):
            with pytest.raises(StoreError):
                self.runner.run(act)
        else:
            assert not self.runner.run(act)

    @rule(id=IDS, owner=OWNERS)
    def delete(self, id: str, owner: str) -> None:
        there = id in self.entries and self.entries[id].owner == owner
        assert self.runner.run(self.stores[0].delete(owner, id)) == there
        if there:
            del self.entries[id], self.logs[id]
        for key, one in list(self.thoughts.items()):
            if key[0] == owner and one.response == id:
                del self.thoughts[key]

    def replace(self, id: str, **fields: object) -> None:
        self.entries[id] = msgspec.structs.replace(self.entries[id], **fields)

    @rule(id=IDS, status=STATUSES, of=st.lists(STATUSES, max_size=3).map(tuple))
    def change(self, id: str, status: Status, of: tuple[Status, ...]) -> None:
        fits = id in self.entries and self.entries[id].status in of
        fits = fits and (self.mine(id) or not self.runs(id))
        assert self.runner.run(self.stores[0].change_status(id, status, of)) == fits
        if fits:
            self.replace(id, status=status)

    @rule(id=IDS, next_id=IDS)
    def set_answered(self, id: str, next_id: str) -> None:
        fits = id in self.entries and self.entries[id].answered is None
        assert self.runner.run(self.stores[0].set_answered(id, next_id)) == fits
        if fits:
            self.replace(id, answered=next_id)

    @rule(id=IDS)
    def request_cancel(self, id: str) -> None:
        assert self.runner.run(self.stores[0].request_cancel(id)) == self.runs(id)
        if self.runs(id):
            self.replace(id, cancelling=True)

    @rule(owner=OWNERS, call=IDS, response=IDS, created=TIMES, data=DATA)
    def save_reasoning(
        self, owner: str, call: str, response: str, created: float, data: bytes
    ) -> None:
        kept = CallReasoning(call, response, "origin", created, data)
        self.runner.run(self.stores[0].save_reasoning(owner, [kept]))
        self.thoughts[owner, call] = kept

    @rule(owner=OWNERS, calls=st.lists(IDS), since=TIMES)
    def reasoning(self, owner: str, calls: list[str], since: float) -> None:
        found = self.runner.run(self.stores[0].load_reasoning(owner, calls, since))
        assert found == {
            call: one
            for (whose, call), one in self.thoughts.items()
            if whose == owner and call in calls and one.created >= since
        }

    @rule(before=TIMES, logs_before=TIMES, reasoning_before=TIMES)
    def prune(self, before: float, logs_before: float, reasoning_before: float) -> None:
        entries = logs = 0
        for id, one in list(self.entries.items()):
            if one.ended is not None and one.ended < before:
                del self.entries[id], self.logs[id]
                entries += 1
            elif one.ended is not None and one.ended < logs_before and one.events:
                if not one.pruned:
                    self.replace(id, pruned=True)
                    logs += 1
                self.logs[id] = []
        fresh = {key: one for key, one in self.thoughts.items() if one.created >= reasoning_before}
        old, self.thoughts = len(self.thoughts) - len(fresh), fresh
        found = self.runner.run(self.stores[0].prune(before, logs_before, reasoning_before))
        assert found == Pruned(entries, logs, old)

    # Servers

    @rule()
    def take_lease(self) -> None:
        if self.stores[0].server not in self.leases:
            self.runner.run(self.stores[0].take_lease(3600.0))
            self.leases.add(self.stores[0].server)

    @rule()
    def orphans(self) -> None:
        self.runner.run(self.stores[0].revoke_dead())
        found = self.runner.run(self.stores[0].orphans())
        left = [id for id, one in self.entries.items() if self.runs(id)]
        left = [id for id in left if self.entries[id].server not in self.leases]
        assert sorted(id for id, _ in found) == sorted(left)

    @rule(id=IDS, right=st.booleans())
    def adopt(self, id: str, right: bool) -> None:
        of = self.entries[id].server if right and id in self.entries else "nobody"
        fits = right and self.runs(id)
        assert self.runner.run(self.stores[0].take_over(id, of)) == fits
        if fits:
            self.replace(id, server=self.stores[0].server)

    # Conversations

    @rule(id=IDS, owner=OWNERS, metadata=DATA)
    def create_conversation(self, id: str, owner: str, metadata: bytes) -> None:
        new = Conversation(id, owner, 1.0, metadata)
        act = self.stores[0].create_conversation(new, [Item("first", metadata)])
        if id in self.conversations:
            with pytest.raises(AlreadyExists):
                self.runner.run(act)
            return
        self.runner.run(act)
        self.conversations[id], self.items[id] = new, [Item("first", metadata)]

    @rule(id=IDS, owner=OWNERS, metadata=DATA)
    def set_metadata(self, id: str, owner: str, metadata: bytes) -> None:
        there = id in self.conversations and self.conversations[id].owner == owner
        assert self.runner.run(self.stores[0].set_metadata(owner, id, metadata)) == there
        if there:
            self.conversations[id] = Conversation(id, owner, 1.0, metadata)

    @rule(id=IDS, owner=OWNERS)
    def delete_conversation(self, id: str, owner: str) -> None:
        there = id in self.conversations and self.conversations[id].owner == owner
        assert self.runner.run(self.stores[0].delete_conversation(owner, id)) == there
        if there:
            del self.conversations[id], self.items[id]

    @rule(id=IDS, names=st.lists(IDS, max_size=3))
    def add_items(self, id: str, names: list[str]) -> None:
        new = [Item(name, name.encode()) for name in names]
        act = self.stores[0].add_items(id, new)
        there = {item.id for item in self.items.get(id, [])}
        if len(set(names)) < len(names) or there & set(names):
            with pytest.raises(
                (AlreadyExists, NotFound) if id not in self.conversations else AlreadyExists
            ):
                self.runner.run(act)
        elif id not in self.conversations:
            with pytest.raises(NotFound):
                self.runner.run(act)
        else:
            self.runner.run(act)
            self.items[id] += new

    @rule(id=IDS, name=IDS)
    def delete_item(self, id: str, name: str) -> None:
        kept = [item for item in self.items.get(id, []) if item.id != name]
        there = len(kept) < len(self.items.get(id, []))
        assert self.runner.run(self.stores[0].delete_item(id, name)) == there
        if there:
            self.items[id] = kept

    @rule(
        id=IDS,
        after=st.none() | IDS,
        before=st.none() | IDS,
        limit=st.integers(0, 4),
        descending=st.booleans(),
    )
    def page(
        self, id: str, after: str | None, before: str | None, limit: int, descending: bool
    ) -> None:
        act = self.stores[0].items(id, after, before, limit, descending)
        told = self.items.get(id, [])[:: -1 if descending else 1]
        names = [item.id for item in told]
        if any(cursor is not None and cursor not in names for cursor in (after, before)):
            with pytest.raises(NotFound):
                self.runner.run(act)
            return
        low = names.index(after) + 1 if after is not None else 0
        high = names.index(before) if before is not None else len(names)
        window = told[low:high]
        nearest = after is None and before is not None
        some = (window[-limit:] if limit else []) if nearest else window[:limit]
        assert self.runner.run(act) == Page(some, len(window) > limit)

    # What must be seen after each of them, from either store

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        self.turn()
        assert self.runner.run(audit(self.stores[0])) == dict(sorted(self.entries.items()))
        for id, blocks in self.logs.items():
            assert self.runner.run(self.stores[0].blocks(id)) == blocks

    @invariant()
    def everything_else_is_too(self) -> None:
        store = self.stores[0]
        for id in ("a", "b", "c"):
            owner = self.entries[id].owner if id in self.entries else ""
            assert self.runner.run(store.owned(owner, id)) == self.entries.get(id)
            assert self.runner.run(store.chain(owner, id)) == self.chain(owner, id)
            kept = self.conversations.get(id)
            assert self.runner.run(store.conversation(kept.owner if kept else "", id)) == kept
        wanted = {id for id, one in self.entries.items() if one.cancelling and one.ended is None}
        assert self.runner.run(store.cancel_requests()) == wanted
        newest = sorted(
            (one for one in self.entries.values() if one.owner == "alice"),
            key=lambda one: (one.created, one.id),
            reverse=True,
        )
        assert self.runner.run(store.newest("alice", 2)) == newest[:2]

    def chain(self, owner: str, id: str | None) -> list[Entry]:
        found: list[Entry] = []
        while id in self.entries and self.entries[id].owner == owner and len(found) < 1000:
            found.append(self.entries[id])
            id = self.entries[id].previous
        return found[::-1]


class SqliteMachine(Machine):
    kind: Kind = "sqlite"


class PostgresMachine(Machine):
    kind: Kind = "postgres"


MACHINES: dict[Kind, type[Machine]] = {"sqlite": SqliteMachine, "postgres": PostgresMachine}
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A shorter example is not worth the minutes it takes to find one: each step asks a database."""

FEW: dict[Kind, int] = {"sqlite": 8, "postgres": 4}
MANY: dict[Kind, int] = {"sqlite": 200, "postgres": 40}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_behaves_like_its_model(kind: Kind) -> None:
    few = settings(max_examples=FEW[kind], stateful_step_count=25, deadline=None, phases=PHASES)
    run_state_machine_as_test(MACHINES[kind], settings=few)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_behaves_like_its_model_for_long(kind: Kind) -> None:
    many = settings(max_examples=MANY[kind], stateful_step_count=50, deadline=None, phases=PHASES)
    run_state_machine_as_test(MACHINES[kind], settings=many)
