"""The descendants of a run, which are the runs of agents that it has called, and theirs: what
somebody must do there before anything goes on.

They are read in the order in which everything happened, and no further than the first moment at
which all of them wait. So whoever reads them again, a day later, comes to the same moment.
"""

from collections import deque
from collections.abc import Mapping
from math import inf

from weft.agent.events import decode_event
from weft.agent.lifecycle import ASKED, PARKED
from weft.agent.merge import DescendantCall
from weft.agent.state import RunState
from weft.store.base import Store
from weft.store.records import RunEvent


class Descendants:
    """The descendants of one run, as far as they were read."""

    def __init__(
        self, store: Store, children: Mapping[str, str], answered: Mapping[str, int]
    ) -> None:
        """`children`: the runs that it waits for, by the calls that started them. `answered`: the
        events of some runs before which nobody is interested in what they waited for."""
        self._store = store
        self._children = children
        self._answered = answered
        self._states = {run: RunState(run) for run in children.values()}
        self._unread: dict[str, deque[RunEvent]] = {run: deque() for run in self._states}
        """Events that are not part of the states yet."""
        self._at = 0.0
        """The time of the last event that is."""

    @property
    def runs(self) -> set[str]:
        """All of them that are known by now."""
        return {*self._states}

    async def pending(self, until: float = inf) -> list[DescendantCall] | None:
        """The calls that somebody must act on, at the first moment before `until` at which no run
        has anything to do without that; None if there was none. Raises StoreError."""
        while True:
            # Until nothing new comes: otherwise what happened in one of them would be compared with
            # an earlier state of another.
            while await self._load():
                pass
            while True:
                if self._at >= until:
                    return None
                found = self._pending(self._children)
                if found is not None:
                    return found
                heads = [(unread[0].at, run) for run, unread in self._unread.items() if unread]
                if not heads:
                    return None
                run = min(heads)[1]
                event, state = self._unread[run].popleft(), self._states[run]
                state.apply(decode_event(event.body), event.at)
                self._at = max(self._at, event.at)
                new = [one for one in children_of(state).values() if one not in self._states]
                for one in new:
                    self._states[one], self._unread[one] = RunState(one), deque()
                if new:
                    break  # their events are to be read

    async def _load(self) -> bool:
        """Reads new events of all runs; returns whether there were any."""
        is_new = False
        for run, unread in self._unread.items():
            last = unread[-1].seq if unread else self._states[run].seq
            while events := await self._store.run_events(run, last):
                unread.extend(events)
                last, is_new = events[-1].seq, True
        return is_new

    def _pending(
        self, children: Mapping[str, str], call: str | None = None
    ) -> list[DescendantCall] | None:
        """`call`: that of the root run which leads to these children."""
        found: list[DescendantCall] = []
        for name, run in children.items():
            state = self._states[run]
            if state.waiting is None or state.seq < self._answered.get(run, 0):
                return None
            found += [
                DescendantCall(call or name, state, one)
                for one in state.open_calls
                if one.state in (ASKED, PARKED)
            ]
            further = self._pending(children_of(state), call or name)
            if further is None:
                return None
            found += further
        return found


def children_of(state: RunState) -> dict[str, str]:
    """The runs that this one waits for, by the calls that started them."""
    return {call.id: call.child for call in state.open_calls if call.is_child}
