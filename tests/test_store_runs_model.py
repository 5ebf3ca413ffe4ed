"""Any operations on runs in any order, on a real store and on a model of it that fits on a page.

No time passes in the model: what is to happen lies 0 seconds ahead, which is now, or hours.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.stores import KINDS, SWIFT, Kind, empty, ended, ending, entry
from weft.store.base import AlreadyExists
from weft.store.queries import Queries
from weft.store.records import NewEvent, NewRun, RunAppend, RunClaim, RunWrite
from weft.store.urls import store_from_url

NOW, HOURS = 0.0, 36_000.0
IDS = st.sampled_from(["a", "b", "c"])
OWNERS = st.sampled_from(["", "alice"])
KEYS = st.none() | st.sampled_from(["k", "l"])
STATUSES = st.sampled_from(["running", "waiting"])
LEASES = st.sampled_from([NOW, HOURS])
DUES = st.sampled_from([None, NOW, HOURS])
EVENTS = st.lists(st.tuples(st.sampled_from(["x", "y"]), st.binary(max_size=5)), max_size=3)
OFF = st.sampled_from([0, 0, 0, -1, 1])
"""How far a number is from the right one: mostly it is right."""

EFFECT = "INSERT INTO conversation (id, owner, created, metadata) VALUES (?, '', 1.0, ?)"


@dataclass
class ModelRun:
    owner: str
    key: str | None
    status: str
    due: float | None
    ended: bool = False
    events: list[tuple[str, bytes, int]] = field(default_factory=list)
    epoch: int = 0
    holder: str = ""
    lease: float | None = None
    """How long it lasts; None: there is none."""

    @property
    def wake(self) -> float | None:
        return self.due if self.lease is None else self.lease

    def is_held(self, server: str, epoch: int) -> bool:
        return self.lease is not None and (self.holder, self.epoch) == (server, epoch)


class RunMachine(RuleBasedStateMachine):
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
        self.model: dict[str, ModelRun] = {}

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()
        self.folder.cleanup()

    @property
    def server(self) -> str:
        return self.stores[0].server

    @rule(id=IDS, owner=OWNERS, key=KEYS, status=STATUSES, due=DUES, events=EVENTS)
    def create(
        self,
        id: str,
        owner: str,
        key: str | None,
        status: str,
        due: float | None,
        events: list[NewEvent],
    ) -> None:
        new = NewRun(id=id, owner=owner, agent="", status=status, events=events, due=due, key=key)
        act = self.stores[0].create_run(new)
        known = [
            id
            for id, run in self.model.items()
            if key is not None and (run.owner, run.key) == (owner, key)
        ]
        if id in self.model and not known:
            with pytest.raises(AlreadyExists):
                self.runner.run(act)
        else:
            assert self.runner.run(act) == (known[0] if known else id)
            if not known:
                told = [(*event, 0) for event in events]
                self.model[id] = ModelRun(owner, key, status, due, events=told)

    # Appending, in three ways

    def drawn(self, id: str, epoch_off: int | None, at_off: int, **fields: object) -> RunAppend:
        run = self.model.get(id)
        seq, epoch = (len(run.events), run.epoch) if run else (0, 0)
        return RunAppend(
            run=id,
            at=seq + at_off,
            epoch=None if epoch_off is None else epoch + epoch_off,
            **fields,  # type: ignore[arg-type]
        )

    def expected(self, append: RunAppend) -> RunWrite:
        run = self.model.get(append.run)
        if run is None:
            return RunWrite("missing")
        seq = len(run.events)
        if append.epoch is not None and not run.is_held(self.server, append.epoch):
            return RunWrite("fenced", seq)
        if append.at != seq:
            return RunWrite("moved", seq)
        return RunWrite("written", seq + len(append.events))

    def apply(self, append: RunAppend, more: Sequence[NewEvent] = ()) -> None:
        """What a written append does to the model."""
        run = self.model[append.run]
        run.events += [(*event, append.epoch or 0) for event in (*append.events, *more)]
        run.status, run.due, run.ended = append.status, append.due, append.ended

    @rule(
        id=IDS,
        epoch_off=st.none() | OFF,
        at_off=OFF,
        events=EVENTS,
        status=STATUSES,
        due=DUES,
        ended=st.booleans(),
        how=st.sampled_from(["alone", "with a response", "with an effect", "failing effect"]),
    )
    def append(
        self, id: str, epoch_off: int | None, at_off: int, how: str, **fields: object
    ) -> None:
        append = self.drawn(id, epoch_off, at_off, **fields)
        expected = self.expected(append)
        match how:
            case "alone":
                found = self.runner.run(self.stores[0].append_run(append))
            case "with a response":
                found = self.append_with_a_response(append, expected)
            case _:
                self.append_with_an_effect(append, expected, fails=how == "failing effect")
                return
        assert (found.outcome, found.seq) == (expected.outcome, expected.seq)
        if found.outcome == "written":
            self.apply(append)

    def append_with_a_response(self, append: RunAppend, expected: RunWrite) -> RunWrite:
        response = entry(f"resp_{next(self.numbers)}", server=self.server)
        self.runner.run(self.stores[0].begin(response))
        act = self.stores[0].finish_and_append(response.id, ending(), append)
        found = self.runner.run(act)
        assert found is not None
        after = ended(response, ending()) if expected.outcome == "written" else response
        assert self.runner.run(self.stores[1].entry(response.id)) == after
        return found

    def append_with_an_effect(self, append: RunAppend, expected: RunWrite, fails: bool) -> None:
        effect = f"effect_{next(self.numbers)}"
        receipt: list[NewEvent] = [("receipt", effect.encode())]

        def effects() -> Queries[Sequence[NewEvent]]:
            yield EFFECT, (effect, b"")
            if fails:
                raise LookupError(effect)
            return receipt

        act = self.stores[0].transact(append, effects)
        written = expected.outcome == "written" and not fails
        if expected.outcome == "written" and fails:
            with pytest.raises(LookupError):
                self.runner.run(act)
        else:
            found = self.runner.run(act)
            assert (found.outcome, found.seq) == (expected.outcome, expected.seq + written)
        there = self.runner.run(self.stores[1].conversation("", effect)) is not None
        assert there == written
        if written:
            self.apply(append, receipt)

    # Leases

    @rule(id=IDS, lease=LEASES)
    def claim(self, id: str, lease: float) -> None:
        found = self.runner.run(self.stores[0].claim_run(id, lease))
        run = self.model.get(id)
        if run is None:
            assert found == RunClaim("missing")
        elif run.lease == HOURS:
            assert found.outcome == "held"
            assert HOURS - 600 < found.wait <= HOURS
        else:
            run.epoch, run.holder, run.lease = run.epoch + 1, self.server, lease
            claimed = RunClaim("claimed", run.epoch, len(run.events), overdue=found.overdue)
            assert found == claimed
            assert 0.0 <= found.overdue < 600

    @rule(id=IDS, off=OFF, lease=LEASES)
    def renew(self, id: str, off: int, lease: float) -> None:
        run = self.model.get(id)
        epoch = (run.epoch if run else 0) + off
        fits = run is not None and run.is_held(self.server, epoch)
        assert self.runner.run(self.stores[0].renew_run(id, epoch, lease)) == fits
        if run is not None and fits:
            run.lease = lease

    @rule(id=IDS, epoch_off=OFF, at_off=OFF, status=STATUSES, due=DUES)
    def release(self, id: str, epoch_off: int, at_off: int, status: str, due: float | None) -> None:
        run = self.model.get(id)
        epoch, at = (run.epoch, len(run.events)) if run else (0, 0)
        epoch, at = epoch + epoch_off, at + at_off
        fits = run is not None and run.is_held(self.server, epoch) and at_off == 0
        assert self.runner.run(self.stores[0].release_run(id, epoch, at, status, due)) == fits
        if run is not None and fits:
            run.holder, run.lease, run.status, run.due = "", None, status, due

    # Removing

    @rule(id=IDS, owner=OWNERS)
    def delete(self, id: str, owner: str) -> None:
        run = self.model.get(id)
        fits = run is not None and run.ended and run.owner == owner
        assert self.runner.run(self.stores[0].delete_run(owner, id)) == fits
        if fits:
            del self.model[id]

    @rule()
    def prune(self) -> None:
        gone = [id for id, run in self.model.items() if run.ended]
        assert self.runner.run(self.stores[0].prune(4e9, 0.0)).runs == len(gone)
        for id in gone:
            del self.model[id]

    # What must be seen after each of them, from either store

    @invariant()
    def every_run_is_as_in_the_model(self) -> None:
        self.stores.reverse()
        store = self.stores[0]
        for id in ("a", "b", "c"):
            row, run = self.runner.run(store.run(id)), self.model.get(id)
            events = self.runner.run(store.run_events(id))
            if row is None or run is None:
                assert (row, run, events) == (None, None, [])
                continue
            assert [(event.kind, event.body, event.epoch) for event in events] == run.events
            assert [event.seq for event in events] == list(range(1, row.seq + 1))
            assert (row.owner, row.key, row.status) == (run.owner, run.key, run.status)
            assert (row.seq, row.epoch, row.holder) == (len(run.events), run.epoch, run.holder)
            assert (row.until > 0, row.due is None, row.ended is None) == (
                run.lease is not None,
                run.due is None,
                not run.ended,
            )

    @invariant()
    def the_due_ones_are_those_of_the_model(self) -> None:
        store = self.stores[0]
        due = {id for id, run in self.model.items() if run.wake == NOW}
        assert set(self.runner.run(store.due_runs())) == due
        wakes = [run.wake for run in self.model.values() if run.wake is not None]
        found = self.runner.run(store.next_due())
        assert (found is None) == (not wakes)
        assert found is None or min(wakes) - 600 < found <= min(wakes)


class SqliteRuns(RunMachine):
    kind: Kind = "sqlite"


class PostgresRuns(RunMachine):
    kind: Kind = "postgres"


MACHINES: dict[Kind, type[RunMachine]] = {"sqlite": SqliteRuns, "postgres": PostgresRuns}
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A shorter example is not worth the minutes it takes to find one: each step asks a database."""

FEW: dict[Kind, int] = {"sqlite": 12, "postgres": 4}
MANY: dict[Kind, int] = {"sqlite": 200, "postgres": 40}


@pytest.mark.parametrize("kind", KINDS)
def test_runs_behave_like_their_model(kind: Kind) -> None:
    few = settings(max_examples=FEW[kind], stateful_step_count=30, deadline=None, phases=PHASES)
    run_state_machine_as_test(MACHINES[kind], settings=few)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_runs_behave_like_their_model_for_long(kind: Kind) -> None:
    many = settings(max_examples=MANY[kind], stateful_step_count=50, deadline=None, phases=PHASES)
    run_state_machine_as_test(MACHINES[kind], settings=many)
