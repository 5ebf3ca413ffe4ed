"""The connections of a server process: how many there are, and how many there may be.

A connection is unauthenticated until one of its requests was authorized: by a key, or without one
if there are no keys. Unauthenticated connections have a limit of their own, smaller than that of
all. If there is no room, the oldest idle one of them is closed for a new one. So however many
connect and send nothing, a client with a key can connect.
"""

import asyncio
from typing import Protocol

from weft.gateway.descriptors import FileDescriptors
from weft.gateway.memory import MemoryBudget


class TrackedConnection(Protocol):
    """What the registry knows of a connection."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def is_idle(self) -> bool:
        """Whether no response is under way."""
        ...


class ConnectionRegistry:
    """The connections of one process, and what they share."""

    def __init__(self, connections: int, unauthenticated: int, memory: int) -> None:
        self.memory = MemoryBudget(memory)
        self.descriptors = FileDescriptors()
        self.overflow = 0
        """Connections above the limit that wait for their error response."""

        self._max_connections = connections
        self._max_unauthenticated = unauthenticated
        self._unauthenticated: dict[TrackedConnection, None] = {}
        """Oldest first."""

    def admit(self, connection: TrackedConnection, others: int) -> bool:
        """Registers a new connection beside `others`; returns False if there is no room. An older
        one may be closed for it."""
        channel = connection.transport.get_extra_info("socket")
        has_descriptor = channel is None or self.descriptors.allow(channel.fileno())
        is_full = (
            not has_descriptor
            # Those that wait for their 503 must not keep others out.
            or others - self.overflow >= self._max_connections
            or len(self._unauthenticated) >= self._max_unauthenticated
        )
        if is_full:
            # The oldest, since a client that means to send a request does so soon after it
            # connects.
            oldest = next((one for one in self._unauthenticated if one.is_idle), None)
            if oldest is None:
                return False
            self.forget(oldest)
            # There is nothing to flush, and lingering would hold its descriptor.
            oldest.transport.abort()
        self._unauthenticated[connection] = None
        return True

    def forget(self, connection: TrackedConnection) -> None:
        """The connection is authenticated, or lost."""
        self._unauthenticated.pop(connection, None)
