"""Reads a run as it happens: its log, and between the start of a turn and its end what the model
says.

A turn is a stored response, which can be followed like any other: in the process that runs it as it
comes, in any other with the delay of the store. So it does not matter who works on the run.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from weft.agent.events import (
    AnyRunEvent,
    RunCancelled,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    decode_event,
)
from weft.agent.merge import CallProgress, DescendantsWait, TurnParts
from weft.agent.models import RESPONSES
from weft.agent.runtime import AgentRuntime
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.parts import Part
from weft.relay.log import follow
from weft.relay.persistence import Persistence
from weft.sse import Frame
from weft.store.records import RunEvent

POLL = 0.05
"""Seconds between two looks for the response of a turn that has just begun."""

END_WAIT = 30.0
"""Seconds that the rest of a turn is waited for after its receipt is in the log: by then it is all
stored, so only a broken store takes that long."""


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """An event of the log."""

    stored: RunEvent
    event: AnyRunEvent


ReadEntry = LoggedEntry | CallProgress | TurnParts | DescendantsWait


class RunReader:
    """What happens in one run, after one of its events."""

    def __init__(
        self,
        runtime: AgentRuntime,
        persistence: Persistence,
        run: str,
        after: int = 0,
        turn: str | None = None,
    ) -> None:
        """`turn`: the response of the turn that is open after this event, to be read as well."""
        self._runtime = runtime
        self._persistence = persistence
        self.run = run
        self._after = after
        self._first = turn
        self._entries: asyncio.Queue[ReadEntry | None] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._turn_is_over = False
        """Whether the log has the end of the turn that is followed."""

    def start(self) -> bool:
        """Begins to read; returns False if it has begun before."""
        if self._reading is not None:
            return False
        self._reading = asyncio.create_task(self._read())
        return True

    async def next(self) -> ReadEntry | None:
        """The next entry; None at the end of the run, and of the runtime. Raises StoreError. May be
        cancelled and called again."""
        self.start()
        entry = await self._entries.get()
        if entry is None and self._reading is not None:
            await self._reading  # raises what ended it
        return entry

    def put(self, entry: DescendantsWait) -> None:
        """Adds what is known from elsewhere, behind what was read by now."""
        self._entries.put_nowait(entry)

    def stop(self) -> None:
        for task in (self._reading, self._turn):
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """As `stop`; returns when nothing is read any more."""
        self.stop()
        tasks = [task for task in (self._reading, self._turn) if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def _read(self) -> None:
        """Reads the log of the run."""
        if self._first is not None:
            self._turn = asyncio.create_task(self._read_turn(self._first))
        try:
            async for stored in self._runtime.follow(self.run, self._after):
                if isinstance(stored, CallProgress):
                    self._entries.put_nowait(stored)
                    continue
                event = decode_event(stored.body)
                if isinstance(event, TurnStarted):
                    self._turn_is_over = False
                    self._turn = asyncio.create_task(self._read_turn(event.response))
                elif isinstance(event, TurnFinished):
                    # Its parts come first: the receipt was committed with the end of the response.
                    await self._end_turn(END_WAIT)
                elif isinstance(event, TurnInterrupted | RunCancelled):
                    await self._end_turn(0.0)
                self._entries.put_nowait(LoggedEntry(stored, event))
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
