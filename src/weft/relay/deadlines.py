"""What ends a request from outside: a stop, a silence that is too long, a time that is up."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from weft.parts import ErrorPart
from weft.relay.incoming import RequestFailed, RequestLimits

T = TypeVar("T")


class RequestStopped(RequestFailed):
    """The request was stopped from outside."""


class Interrupt:
    """Ends what a task waits for. `stop` may be called from anywhere on the loop of the task."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self.waiting = False
        """Whether the task waits for an upstream, and may be cancelled."""
        self.reason: ErrorPart | None = None
        """Why it was stopped."""

    def stop(self, error: ErrorPart) -> None:
        """The first reason counts."""
        if self.reason is None:
            self.reason = error
            if self.waiting and self._task is not None:
                self._task.cancel()

    async def wait(self, work: Awaitable[T]) -> T:
        """Waits; raises RequestStopped if it is stopped meanwhile, or was before."""
        if self.reason is not None:
            if asyncio.iscoroutine(work):
                work.close()
            raise RequestStopped(self.reason)
        self._task = task = asyncio.current_task()
        before, self.waiting = self.waiting, True
        try:
            return await work
        except asyncio.CancelledError:
            stopped: ErrorPart | None = self.reason
            if stopped is None or task is None:
                raise
            task.uncancel()
            raise RequestStopped(stopped) from None
        finally:
            self.waiting = before
            if not before:
                self._task = None


class Deadlines:
    """How long an answer may take, and how long it may be silent."""

    def __init__(self, interrupt: Interrupt, limits: RequestLimits) -> None:
        self._interrupt = interrupt
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._upstream = ""
        self._last = 0.0
        """When something came."""
        self._silence: asyncio.TimerHandle | None = None
        self._end = self._loop.call_later(limits.duration, self._too_long)

    def activity(self) -> None:
        """Something came."""
        self._last = self._loop.time()

    def allow_silence(self, upstream: str, seconds: float) -> None:
        """Silence of this upstream for longer than this ends the answer."""
        self._upstream = upstream
        self.activity()
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._loop.call_later(seconds, self._silent, seconds)

    def expect_end(self) -> None:
        """The upstream told why it ends: little more can come."""
        self.allow_silence(self._upstream, self._limits.grace)

    def cancel(self) -> None:
        self._end.cancel()
        if self._silence is not None:
            self._silence.cancel()

    def _too_long(self) -> None:
        limit = self._limits.duration
        self._interrupt.stop(ErrorPart("timeout", f"the answer took longer than {limit:g} seconds"))

    def _silent(self, limit: float) -> None:
        left = self._last + limit - self._loop.time()
        if left > 0.001 or not self._interrupt.waiting:  # a client that reads slowly is no silence
            self._silence = self._loop.call_later(max(left, 0.05), self._silent, limit)
        else:
            message = f'upstream "{self._upstream}" was silent for {limit:g} seconds'
            self._interrupt.stop(ErrorPart("timeout", message, retryable=True))
