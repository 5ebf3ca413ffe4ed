"""Follows a run for one segment, the part of it that one response shows: its log, the responses of
its turns while they are streamed, and the child runs that it waits for."""

import asyncio
import re
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field

from weft.agent.descendants import Descendants, children_of
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    OutputsSubmitted,
    RunWaiting,
    decode_event,
)
from weft.agent.lifecycle import ASKED, AWAITED, PARKED
from weft.agent.merge import (
    DescendantCall,
    DescendantsWait,
    SegmentMerge,
)
from weft.agent.run_reader import LoggedEntry, ReadEntry, RunReader
from weft.agent.runtime import AgentRuntime
from weft.agent.state import Call, RunState
from weft.findings import Findings
from weft.parts import Part, ResponseMetadata
from weft.relay.persistence import Persistence
from weft.store.base import Store, StoreError

_ANSWERS = ("approval.decided", "outputs.submitted")
_PUBLIC_ID = re.compile(r"(run_[0-9a-f]+)_([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?(?:_[0-9]+)?")


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """Where in the log of a run a segment begins."""

    run: str
    state: RunState
    """The state there; it is taken on from here."""

    calls: tuple[Call, ...] = ()
    """The calls that are open there."""

    answered: int = 0
    """The last event with which the segment was asked for. The client knows
    already that the run waited before it."""

    answered_descendants: Mapping[str, int] = field(default_factory=dict)
    """The same for descendants of the run, by their ids."""


def public_id(state: RunState, call: str) -> str:
    """The id of a call for clients: it says which run it belongs to, so that an answer finds it in
    whatever request it comes, and every dialect allows its characters and its length."""
    return f"{state.id}_{[*state.calls].index(call) + 1}"


def descendant_call_id(pending: DescendantCall, at: int) -> str:
    """The id for clients of a call of a descendant. It has the number of the event of the root
    run at which the client got it: the answer continues from there."""
    return f"{public_id(pending.run, pending.call.id)}-{at}"


def position_of(public: str) -> int | None:
    """Where the segment continues that an answer to this call asks for, in the log of the root
    run; None if the call belongs to the root run itself."""
    found = _PUBLIC_ID.fullmatch(public)
    return None if found is None or found[3] is None else int(found[3])


def run_of(public: str) -> str | None:
    """The run that a call belongs to, by its id for clients."""
    found = _PUBLIC_ID.fullmatch(public)
    return None if found is None else found[1]


def call_of(state: RunState, public: str) -> str | None:
    """The id in the run of a call, by its id for clients; None if the run has no such call."""
    found, calls = _PUBLIC_ID.fullmatch(public), [*state.calls]
    number = 0 if found is None or found[1] != state.id else int(found[2])
    return calls[number - 1] if 0 < number <= len(calls) else None


async def start_after(
    store: Store,
    run: str,
    answered: Collection[str],
    at: int | None = None,
    descendants: Mapping[str, Collection[str]] | None = None,
) -> SegmentStart:
    """The segment that begins with the answers to these calls, in a log that has them, or after the
    event `at` if that is earlier. `descendants`: their calls that were answered as well, by run.
    The same request again gets the same segment. Raises StoreError."""
    state, start, last = RunState(run), None, 0
    while events := await store.run_events(run, state.seq):
        for stored in events:
            event = decode_event(stored.body)
            is_answer = _answers(event, answered)
            if is_answer:
                last = stored.seq
            if start is None and (is_answer or state.seq == at):
                start = state.copy()
            state.apply(event, stored.at)
    begun = state if start is None else start
    calls = tuple(copy(call) for call in begun.open_calls)
    answers = {id: await _last_answer(store, id, some) for id, some in (descendants or {}).items()}
    return SegmentStart(run, begun, calls, last, answers)


async def _last_answer(store: Store, run: str, calls: Collection[str]) -> int:
    """The last event of a run with an answer to one of these calls."""
    last, after = 0, 0
    while events := await store.run_events(run, after, kinds=_ANSWERS):
        after = events[-1].seq
        last = max([last, *(e.seq for e in events if _answers(decode_event(e.body), calls))])
    return last


def _answers(event: AnyRunEvent, calls: Collection[str]) -> bool:
    match event:
        case ApprovalDecided(call=id):
            return id in calls
        case OutputsSubmitted(outputs=outputs):
            return any(output.call in calls for output in outputs)
        case _:
            return False


class SegmentStream:
    """The parts of a segment, as they come."""

    def __init__(
        self,
        runtime: AgentRuntime,
        persistence: Persistence,
        start: SegmentStart,
        metadata: ResponseMetadata,
        *,
        label: str,
        tools_visible: bool = True,
        approvals_in_text: bool = False,
    ) -> None:
        self.findings = Findings()
        self._runtime = runtime
        self._persistence = persistence
        self._start = start
        self._state = start.state
        self._merge = SegmentMerge(
            metadata,
            self.findings,
            start.calls,
            label=label,
            tools_visible=tools_visible,
            approvals_in_text=approvals_in_text,
            public_id=lambda call: public_id(self._state, call),
            descendant_call_id=lambda pending: descendant_call_id(pending, self._state.seq),
            waiting=start.state.waiting,
        )
        self._reader = RunReader(runtime, persistence, start.run, start.state.seq)
        self._watching: asyncio.Task[None] | None = None
        self._descendants: Descendants | None = None
        """The descendants of the run while it waits for its children."""
        self._read: ReadEntry | None = None
        """What was read and is not shown yet."""

    @property
    def ended(self) -> bool:
        return self._merge.ended

    async def next(self) -> list[Part]:
        """Returns the next parts; none at the end. Raises StoreError. May be cancelled and called
        again."""
        if self._reader.start():
            self._watch_descendants()
        while not self._merge.ended:
            if self._read is None:
                self._read = await self._reader.next()
            if self._read is None:  # nothing more comes
                return self._merge.finish()
            waited = await self._descendants_waited(self._read)
            read, self._read = self._read, None
            if isinstance(read, DescendantsWait) and read.seq != self._state.seq:
                continue  # something has come since
            if waited is not None:
                return self._merge.feed([waited])  # which ends the segment
            entry = read.event if isinstance(read, LoggedEntry) else read
            if isinstance(read, LoggedEntry):
                self._state.apply(read.event, 0.0)
                if isinstance(entry, RunWaiting) and not self._is_waiting(entry):
                    continue
                self._watch_descendants()
            parts = self._merge.feed([entry])
            if parts:
                return parts
        return []

    def _is_waiting(self, event: RunWaiting) -> bool:
        """Whether the run waits, as this event says. It does not if the answer is further on in the
        log, or came while the event was written."""
        calls = self._state.calls
        wanted = ((event.approvals, ASKED), (event.outputs, AWAITED), (event.parked, PARKED))
        return self._state.seq > self._start.answered and all(
            calls[id].state is state for ids, state in wanted for id in ids
        )

    def stop(self) -> None:
        """Stops following. The run goes on."""
        self._reader.stop()
        if self._watching is not None:
            self._watching.cancel()

    async def close(self) -> None:
        """As `stop`; returns when nothing is followed any more."""
        self.stop()
        await self._reader.close()
        if self._watching is not None:
            await asyncio.wait({self._watching})

    def _watch_descendants(self) -> None:
        """Looks whether the descendants wait, if the run waits for its children."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = self._descendants = None
        state = self._state
        if (
            state.waiting is not None
            and state.waiting.children
            and state.seq > self._start.answered
        ):
            answered = self._start.answered_descendants
            self._descendants = Descendants(self._persistence.store, children_of(state), answered)
            self._watching = asyncio.create_task(
                self._read_descendants(state.seq, self._descendants)
            )

    async def _descendants_waited(self, read: ReadEntry) -> DescendantsWait | None:
        """Whether the descendants have all waited before this event, if it is one: then the segment
        has ended there, and the event came after its answer. Raises StoreError."""
        if self._descendants is None or not isinstance(read, LoggedEntry):
            return None
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        pending = await self._descendants.pending(until=read.stored.at)
        if pending is None:
            self._descendants = None  # the wait is over
            return None
        return DescendantsWait(self._state.seq, tuple(pending))

    async def _read_descendants(self, seq: int, descendants: Descendants) -> None:
        while True:
            known = descendants.runs
            with self._runtime.following(known) as follower:
                try:
                    pending = await descendants.pending()
                except StoreError:
                    pending = None  # the reader of the log meets the error, too
                if pending is not None:
                    self._reader.put(DescendantsWait(seq, tuple(pending)))
                    return
                if descendants.runs == known:
                    await follower.appended.wait()
