"""What is done when nothing was said for a while, again and again."""

import asyncio
from collections.abc import Callable


class KeepaliveTimer:
    """Acts after so many seconds of silence; never if they are none."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._seconds = seconds
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._last_activity = self._loop.time()
        if seconds:
            self._timer = self._loop.call_later(seconds, self._fire)

    def reset(self) -> None:
        """Something was."""
        self._last_activity = self._loop.time()

    def stop(self) -> None:
        """For good: whoever acts is let go of, so that nothing holds itself."""
        if self._timer is not None:
            self._timer.cancel()
        self._callback = _do_nothing

    def _fire(self) -> None:
        now = self._loop.time()
        left = self._last_activity + self._seconds - now
        if left > 0.001:
            self._timer = self._loop.call_later(left, self._fire)
            return
        self._last_activity = now
        self._timer = self._loop.call_later(self._seconds, self._fire)
        self._callback()


def _do_nothing() -> None:
    """Is done when it was stopped."""
