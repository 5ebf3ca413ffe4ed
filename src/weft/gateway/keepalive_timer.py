"""A timer that fires after a time without activity, again and again."""

import asyncio
from collections.abc import Callable

from weft.relay.direct_line import DirectLine


class KeepaliveTimer:
    """Calls back after each `seconds` without a reset; never if that is 0."""

    def __init__(
        self,
        seconds: float,
        callback: Callable[[], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._seconds = seconds
        self._callback = callback
        self._loop = loop or asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.last_activity = self._loop.time()
        """When something was sent last, by the clock of the loop."""
        self.line: DirectLine | None = None
        """Sends as well, and notes when."""
        if seconds:
            self._timer = self._loop.call_later(seconds, self._fire)

    def reset(self) -> None:
        """Something was sent: the time starts again."""
        self.last_activity = self._loop.time()

    def stop(self) -> None:
        """Stops for good, and drops the callback: it may hold this timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._callback = lambda: None

    def _fire(self) -> None:
        now = self._loop.time()
        # A reset only notes the time, since it comes with every event, and to cancel and schedule a
        # timer means work on the loop's heap. So the timer may fire early, and sleeps again.
        if self.line is not None:
            self.last_activity = max(self.last_activity, self.line.last_activity)
        left = self.last_activity + self._seconds - now
        # asyncio runs a timer up to the resolution of its clock early.
        if left > 0.001:
            self._timer = self._loop.call_later(left, self._fire)
            return
        self.last_activity = now
        self._timer = self._loop.call_later(self._seconds, self._fire)
        self._callback()
