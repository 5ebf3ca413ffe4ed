"""Follows a run for one stretch: its log, and the responses of its turns while they are streamed.

A turn is a stored response, which can be followed like any other: in the process that runs it as it
comes, in any other with the delay of the store. So it does not matter who works on the run.
"""

import asyncio
import re
from collections.abc import Collection
from contextlib import suppress
from copy import copy
from dataclasses import dataclass

from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    OutputsSubmitted,
    RunCancelled,
    RunWaiting,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    decode_event,
)
from weft.agent.lifecycle import ASKED, AWAITED, PARKED
from weft.agent.merge import StretchEntry, StretchMerge, TurnParts
from weft.agent.models import RESPONSES
from weft.agent.runtime import Runtime
from weft.agent.state import Call, RunState
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.findings import Findings
from weft.parts import Part, ResponseMetadata
from weft.relay.log import follow
from weft.relay.persistence import Persistence
from weft.sse import Frame
from weft.store.base import Store

POLL = 0.05
"""Seconds between two looks for the response of a turn that has just begun."""

END_WAIT = 30.0
"""Seconds that the rest of a turn is waited for after its receipt is in the log: by then it is all
stored, so only a broken store takes that long."""

_PUBLIC_ID = re.compile(r"(run_[0-9a-f]+)_([1-9][0-9]{0,8})(?:_[0-9]+)?")


@dataclass(frozen=True, slots=True)
class StretchStart:
    """Where in the log of a run a stretch begins."""

    run: str
    state: RunState
    """The state there; it is taken on from here."""

    calls: tuple[Call, ...] = ()
    """The calls that are open there."""

    answered: int = 0
    """The last event with which the stretch was asked for. That the run waited before it is known
    to whoever asked."""


def public_id(state: RunState, call: str) -> str:
    """The id of a call for clients: it says which run it belongs to, so that an answer finds it in
    whatever request it comes, and every dialect allows its characters and its length."""
    return f"{state.id}_{[*state.calls].index(call) + 1}"


def run_of(public: str) -> str | None:
    """The run that a call belongs to, by its id for clients."""
    found = _PUBLIC_ID.fullmatch(public)
    return None if found is None else found[1]


def call_of(state: RunState, public: str) -> str | None:
    """The id in the run of a call, by its id for clients; None if the run has no such call."""
    found, calls = _PUBLIC_ID.fullmatch(public), [*state.calls]
    number = 0 if found is None or found[1] != state.id else int(found[2])
    return calls[number - 1] if 0 < number <= len(calls) else None


async def start_after(store: Store, run: str, answered: Collection[str]) -> StretchStart:
    """The stretch that begins with the answers to these calls, in a log that has them. Whoever asks
    again for the same one gets the same. Raises StoreError."""
    state, start, last = RunState(run), None, 0
    while events := await store.run_events(run, state.seq):
        for stored in events:
            event = decode_event(stored.body)
            if _answers(event, answered):
                last = stored.seq
                if start is None:
                    start = state.copy()
            state.apply(event, stored.at)
    begun = state if start is None else start
    return StretchStart(run, begun, tuple(copy(call) for call in begun.open_calls), last)


def _answers(event: AnyRunEvent, calls: Collection[str]) -> bool:
    match event:
        case ApprovalDecided(call=id):
            return id in calls
        case OutputsSubmitted(outputs=outputs):
            return any(output.call in calls for output in outputs)
        case _:
            return False


class StretchStream:
    """The parts of a stretch, as they come."""

    def __init__(
        self,
        runtime: Runtime,
        persistence: Persistence,
        start: StretchStart,
        metadata: ResponseMetadata,
        *,
        label: str,
        tools_visible: bool = True,
    ) -> None:
        self.findings = Findings()
        self._runtime = runtime
        self._persistence = persistence
        self._start = start
        self._state = start.state
        self._merge = StretchMerge(
            metadata,
            self.findings,
            start.calls,
            label=label,
            tools_visible=tools_visible,
            public_id=lambda call: public_id(self._state, call),
        )
        self._entries: asyncio.Queue[StretchEntry | None] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._turn_is_over = False
        """Whether the log has the end of the turn that is followed."""

    @property
    def ended(self) -> bool:
        return self._merge.ended

    async def next(self) -> list[Part]:
        """Returns the next parts; none at the end. Raises StoreError. May be cancelled and called
        again."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        while not self._merge.ended:
            entry = await self._entries.get()
            if entry is None:  # nothing more comes
                await self._reading  # raises what ended it
                return self._merge.finish()
            if not isinstance(entry, TurnParts):
                self._state.apply(entry, 0.0)
                if isinstance(entry, RunWaiting) and not self._is_waiting(entry):
                    continue
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
        for task in (self._reading, self._turn):
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """As `stop`; returns when nothing is followed any more."""
        self.stop()
        tasks = [task for task in (self._reading, self._turn) if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def _read(self) -> None:
        """Reads the log of the run."""
        start = self._start
        try:
            async for stored in self._runtime.events(start.run, start.state.seq):
                event = decode_event(stored.body)
                if isinstance(event, TurnStarted):
                    self._turn_is_over = False
                    self._turn = asyncio.create_task(self._read_turn(event.response))
                elif isinstance(event, TurnFinished):
                    # Its parts come first: the receipt was committed with the end of the response.
                    await self._end_turn(END_WAIT)
                elif isinstance(event, TurnInterrupted | RunCancelled):
                    await self._end_turn(0.0)
                self._entries.put_nowait(event)
        finally:
            self._entries.put_nowait(None)

    async def _end_turn(self, timeout: float) -> None:
        turn, self._turn = self._turn, None
        self._turn_is_over = True
        if turn is not None:
            await asyncio.wait({turn}, timeout=timeout)
            if not turn.done():
                turn.cancel()
                await asyncio.wait({turn})
            with suppress(asyncio.CancelledError):
                await turn

    async def _read_turn(self, response: str) -> None:
        """Follows the response of a turn, and decodes it again: what is stored is what the model
        has said."""
        store, logs = self._persistence.store, self._persistence.logs
        pipe = Pipe(DIALECTS[RESPONSES], Context())
        # The turn is in the log of the run before anything of its response is stored.
        while response not in logs and await store.entry(response) is None:
            if self._turn_is_over:
                return  # it was removed
            await asyncio.sleep(POLL)
        number = 0
        async for events in follow(store, logs, response):
            frames = [
                Frame(event.data, event.name, number=at) for at, event in enumerate(events, number)
            ]
            number += len(events)
            self._put(response, pipe.feed(frames))
        self._put(response, pipe.finish())

    def _put(self, response: str, parts: list[Part]) -> None:
        if parts:
            self._entries.put_nowait(TurnParts(response, tuple(parts)))
