"""The client's connection, as the relay's fast lane uses it."""

from collections.abc import Callable
from typing import Protocol


class DirectLine(Protocol):
    """Sends events of one response without waiting, as server-sent events in chunks of HTTP.
    Timers and records ask it what it has sent, and when: an event touches nothing else."""

    @property
    def send(self) -> Callable[[bytes], None]: ...

    paused: bool
    """Whether nothing may be sent: the client has to catch up first, or is gone."""

    events: int
    size: int
    """Of what was sent, without the chunks around it."""

    sent: int
    """Bytes that were sent."""

    last_activity: float
    """When, by the clock of the loop."""
