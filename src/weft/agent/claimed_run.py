"""A run that this process has claimed: its state, its log and its lease.

Events are appended under one lock, each time behind the last event that this process has read:

- If somebody outside was faster (a message, a cancellation), the store refuses the append. The new
  events are read, and the append is tried again if it is still legal.
- If another process has claimed the run since, the store refuses every append, and the run is lost.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec

from weft.agent.children import beside_end, parent_of, receipt
from weft.agent.environment import RunEnvironment
from weft.agent.events import AnyRunEvent, RunFailed, RunFinished, decode_event, encode_event
from weft.agent.state import IllegalEvent, RunState
from weft.agent.status import status_after, status_of
from weft.store.base import StoreError
from weft.store.queries import Beside, Queries
from weft.store.records import NewEvent, NewRun, RunAppend, RunWrite

POLL = 0.5
"""Seconds between two looks for events that other processes have appended."""

RENEWALS_PER_LEASE = 3

log = logging.getLogger("weft.agent")

Write: TypeAlias = Callable[[RunAppend], Awaitable[RunWrite | None]]


class LeaseLost(Exception):
    """Another process works on the run now."""


class UnreadableLog(Exception):
    """An event that this version of Weft does not know, or that cannot follow: a newer version may
    have appended it, and will continue the run."""


class ClaimedRun:
    """A run that this process has claimed under `epoch`."""

    def __init__(
        self,
        environment: RunEnvironment,
        id: str,
        epoch: int,
        claimed: float,
        notify: Callable[[str], None],
    ) -> None:
        """`claimed` is when the claim was sent, by our own clock. `notify` is called with the id of
        the run when its log has grown."""
        self.state = RunState(id)
        self.changed = asyncio.Event()
        """Set when there is something to look at: new events, or the loss of the lease."""
        self.lost: LeaseLost | None = None
        self.answer = ""
        """The text of the last turn, for the run that has called this one."""
        self._environment = environment
        self._epoch = epoch
        self._renewed = claimed
        """When the last renewal was sent: the lease lasts at least as long from there."""
        self._notify = notify
        self._lock = asyncio.Lock()
        self._is_stale = True
        """Whether there may be events that were not read."""
        # The clock of the database: its time at one moment of our own clock.
        self._database_time = self._own_time = 0.0

    @property
    def now(self) -> float:
        return self._database_time + (time.monotonic() - self._own_time)

    def _set_clock(self, database_time: float) -> None:
        self._database_time, self._own_time = database_time, time.monotonic()

    # The lease

    @property
    def is_held(self) -> bool:
        """Whether no other process can have claimed the run yet, by our own clock."""
        return time.monotonic() - self._renewed < self._environment.lease

    def lose(self) -> LeaseLost:
        self.lost = LeaseLost()
        self.changed.set()
        return self.lost

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Renews the lease for as long as this is open. Raises LeaseLost if there is no such
        run."""
        row = await self._environment.store.run(self.state.id)
        if row is None:
            raise LeaseLost
        self._set_clock(row.until - self._environment.lease)
        renewing = asyncio.create_task(self._keep_lease())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})

    async def _keep_lease(self) -> None:
        """Renews the lease, and looks for events of other processes."""
        store, lease, id = self._environment.store, self._environment.lease, self.state.id
        while True:
            await asyncio.sleep(min(POLL, lease / RENEWALS_PER_LEASE))
            try:
                if time.monotonic() - self._renewed >= lease / RENEWALS_PER_LEASE:
                    sent = time.monotonic()
                    if not await store.renew_run(id, self._epoch, lease):
                        self.lose()
                        return
                    self._renewed = sent
                row = await store.run(id)
            except StoreError as error:
                log.warning("run %s: cannot renew the lease: %s", id, error)
                if not self.is_held:
                    self.lose()
                    return
                continue
            if row is not None and row.seq > self.state.seq:
                self.set_stale()

    async def release(self, due: Callable[[], float | None]) -> bool:
        """Gives the lease back. `due` returns the seconds after which a process must look at the
        run again. Returns False if there are events that were not read; then it reads them. Raises
        LeaseLost, StoreError."""
        async with self._lock:
            state, store, wait = self.state, self._environment.store, due()

            # Without it, other processes would find the run only when they look for what is due.
            # The epoch tells this cause from the event itself, which may have a hint of its own.
            def hand_over(seq: int) -> Queries[None]:
                return self._environment.wake(state.id, f"{seq}.{self._epoch}")

            beside: Beside | None = hand_over if wait == 0.0 else None
            status = status_after(state)
            if await store.release_run(state.id, self._epoch, state.seq, status, wait, beside):
                return True
            before = state.seq
            await self._read()
            if self.state.seq == before:
                raise LeaseLost
            return False

    # The log

    def set_stale(self) -> None:
        """Something was appended from outside."""
        self._is_stale = True
        self.changed.set()

    async def refresh(self) -> None:
        """Reads new events if there may be any. Raises UnreadableLog, StoreError."""
        if self._is_stale:
            async with self._lock:
                await self._read()

    async def _read(self) -> None:
        self._is_stale = False
        state, before = self.state, self.state.seq
        while events := await self._environment.store.run_events(state.id, state.seq):
            for event in events:
                try:
                    state.apply(decode_event(event.body), event.at)
                except (msgspec.DecodeError, IllegalEvent) as error:
                    raise UnreadableLog(f"event {event.seq}: {error}") from error
        if state.seq > before:
            self._notify(state.id)

    async def append(
        self, *events: AnyRunEvent, child: NewRun | None = None, beside: Beside | None = None
    ) -> bool:
        """Appends events, all or none, in one transaction with the creation of the child and the
        statements `beside` them. Returns False if they are no longer legal: something came from
        outside since they were decided. Raises LeaseLost, StoreError."""

        def make() -> Sequence[AnyRunEvent] | None:
            trial = self.state.copy()
            try:
                for event in events:
                    trial.apply(event, self.now)
            except IllegalEvent as error:
                log.info("run %s: %s", self.state.id, error)
                return None
            return events

        return await self.commit(make, self._environment.store.append_run, child, beside)

    async def commit(
        self,
        make: Callable[[], Sequence[AnyRunEvent] | None],
        write: Write,
        child: NewRun | None = None,
        beside: Beside | None = None,
    ) -> bool:
        """Writes the events that `make` returns; it is called again after each attempt for which
        somebody else was faster. Returns False if it returns None, or `write` has written nothing.
        Raises LeaseLost, StoreError."""
        async with self._lock:
            while (events := make()) is not None:
                others: list[str] = []
                written = await write(self._to_append(events, others, child, beside))
                if written is None:
                    return False
                match written.outcome:
                    case "written":
                        for event in events:
                            self.state.apply(event, written.at)
                            for observer in self._environment.observers:
                                observer(self.state, event, written.at)
                        self._set_clock(written.at)
                        self._notify(self.state.id)
                        for id in others:
                            self._environment.appended(id)
                        return True
                    case "moved":
                        await self._read()
                        self.changed.set()
                    case _:
                        raise self.lose()
            return False

    def _to_append(
        self,
        events: Sequence[AnyRunEvent],
        others: list[str],
        child: NewRun | None,
        beside: Beside | None,
    ) -> RunAppend:
        """Adds the ids of the runs that are written to beside this one to `others`."""
        last = events[-1] if events else None
        end = last if isinstance(last, RunFinished | RunFailed) else None
        if end is not None:
            has_parent = self.state.parent is not None
            finished = receipt(self.state, end, self.answer, self.now) if has_parent else None
            beside = beside_end(self.state, finished, self._environment.hint, others, beside)
        return RunAppend(
            run=self.state.id,
            at=self.state.seq,
            events=[new_event(event) for event in events],
            status="running" if last is None else status_of(last),
            ended=end is not None,
            epoch=self._epoch,
            child=child,
            parent=None if end is None else parent_of(self.state),
            beside=beside,
        )


def new_event(event: AnyRunEvent) -> NewEvent:
    return event.kind, encode_event(event)
