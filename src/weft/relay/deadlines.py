"""What ends a request from outside: a stop, the idle timeout, the time limit."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from weft.parts import ErrorPart
from weft.relay.direct_line import DirectLine
from weft.relay.incoming import RequestFailed, RequestLimits

T = TypeVar("T")


class RequestStopped(RequestFailed):
    """The request was stopped from outside."""


class Interrupt:
    """Stops a task that waits for an upstream. `stop` may be called anywhere on its event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self.waiting = False
        """Whether the task waits for an upstream, and may be cancelled."""
        self.since = 0.0
        """When it last began to wait, by the clock of the loop."""
        self.reason: ErrorPart | None = None
        """Why it was stopped."""

    def stop(self, error: ErrorPart) -> None:
        """Stops the request; only the first call has an effect."""
        if self.reason is None:
            self.reason = error
            if self.waiting and self._task is not None:
                self._task.cancel()

    async def wait(self, work: Awaitable[T]) -> T:
        """Awaits `work`; raises RequestStopped if `stop` is called meanwhile, or was before."""
        if self.reason is not None:
            # A coroutine that is never awaited would be reported as a mistake.
            if asyncio.iscoroutine(work):
                work.close()
            raise RequestStopped(self.reason)
        # Nested waits are one wait: `open_target` is awaited here and sends within it. Only the
        # outermost sets the task and forgets it.
        before, self.waiting = self.waiting, True
        if not before:
            self._task, self.since = asyncio.current_task(self.loop), self.loop.time()
        task = self._task
        try:
            return await work
        except asyncio.CancelledError:
            reason: ErrorPart | None = self.reason
            if reason is None or task is None:  # cancelled by somebody else
                raise
            # Our own cancellation ends here, as an exception of the request; the task goes on and
            # tells the client.
            task.uncancel()
            raise RequestStopped(reason) from None
        finally:
            self.waiting = before
            if not before:
                self._task = None


class Deadlines:
    """The time limit and the idle timeout of a response."""

    def __init__(self, interrupt: Interrupt, limits: RequestLimits) -> None:
        self._interrupt = interrupt
        self._loop = interrupt.loop
        self._limits = limits
        self._upstream = ""
        self.last_activity = 0.0
        """When the last data arrived, by the clock of the loop."""
        self.line: DirectLine | None = None
        """Sends some of what arrives, and notes when."""
        self._idle: asyncio.TimerHandle | None = None
        # From here on, not from the first byte: retries and pauses count as well.
        self._end = self._loop.call_later(limits.duration, self._too_long)

    def note_activity(self) -> None:
        """Data arrived: restarts the idle timeout."""
        self.last_activity = self._loop.time()

    def set_idle_timeout(self, upstream: str, seconds: float) -> None:
        """Ends the response if this upstream sends nothing for so long."""
        self._upstream = upstream
        self.note_activity()
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.call_later(seconds, self._check_idle, seconds)

    def expect_end(self) -> None:
        """The upstream has sent its finish reason: at most usage follows, within `grace`."""
        self.set_idle_timeout(self._upstream, self._limits.grace)

    def stop_idle_timeout(self) -> None:
        """The stream was given up, or is to be continued: until the next one has begun, only the
        timeouts of the upstream apply."""
        if self._idle is not None:
            self._idle.cancel()

    def cancel(self) -> None:
        self._end.cancel()
        self.stop_idle_timeout()

    def _too_long(self) -> None:
        limit = self._limits.duration
        self._interrupt.stop(
            ErrorPart("timeout", f"the response took longer than {limit:g} seconds")
        )

    def _check_idle(self, limit: float) -> None:
        # Timers that are moved with every event cost more than the events: this one looks when it
        # fires.
        # Silence counts only while we wait for the upstream: as long as its bytes are not read, it
        # cannot be late.
        last = max(self.last_activity, self._interrupt.since)
        if self.line is not None:
            last = max(last, self.line.last_activity)
        left = last + limit - self._loop.time()
        if left > 0.001 or not self._interrupt.waiting:  # or the client reads slowly
            self._idle = self._loop.call_later(max(left, 0.05), self._check_idle, limit)
        else:
            message = f'upstream "{self._upstream}" sent nothing for {limit:g} seconds'
            self._interrupt.stop(ErrorPart("timeout", message, retryable=True))
