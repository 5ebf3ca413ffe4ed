"""What all connections of a server share: how many there may be, and what they may hold.

A connection is a stranger until a request of its own was admitted: with a key, or without where
there are no keys. Strangers have a limit of their own, smaller than that of all. Where there is no
room, the oldest stranger that waits for nothing is dropped for the new one. So however many
connect and say nothing, whoever has a key comes in.
"""

import asyncio
from typing import Protocol

from weft.gateway.descriptors import FileDescriptors
from weft.gateway.memory import MemoryBudget


class TrackedConnection(Protocol):
    """A connection, as far as it matters here."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is being answered."""
        ...


class ConnectionRegistry:
    """The limits of one process, and how far they are used."""

    def __init__(self, connections: int, strangers: int, memory: int) -> None:
        self.memory = MemoryBudget(memory)
        self.descriptors = FileDescriptors()
        self.overflow = 0
        """Connections above the limit, that wait for their refusal."""

        self._most = connections
        self._max_unauthenticated = strangers
        self._unauthenticated: dict[TrackedConnection, None] = {}
        """Oldest first."""

    def admit(self, one: TrackedConnection, others: int) -> bool:
        """A new connection beside so many others; returns whether there is room for it, perhaps
        because an older one was dropped."""
        is_full = others - self.overflow >= self._most
        channel = one.transport.get_extra_info("socket")
        is_short = channel is not None and not self.descriptors.take(channel.fileno())
        is_crowded = len(self._unauthenticated) >= self._max_unauthenticated
        if (is_full or is_short or is_crowded) and not self._drop_oldest():
            return False
        self._unauthenticated[one] = None
        return True

    def forget(self, one: TrackedConnection) -> None:
        """It is no stranger any more, or gone."""
        self._unauthenticated.pop(one, None)

    def _drop_oldest(self) -> bool:
        oldest = next((one for one in self._unauthenticated if one.is_idle), None)
        if oldest is None:
            return False
        self.forget(oldest)
        oldest.transport.abort()
        return True
