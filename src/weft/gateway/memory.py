"""How much memory requests may take, all of them together, from their first byte to their end.

A body is in memory several times: as it came, as it was read, and as it goes to the upstream. Text
that is not ASCII is wider once it is read: up to four bytes a character. So a body counts with a
multiple of its size, measured so that the process stays below the limit.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from weft.dialects.error_classes import new_error
from weft.gateway.doors import Shut

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PLAIN = 6
"""How often a body counts whose text is ASCII."""

WIDE = 12
"""How often any other counts."""


class Memory:
    """What one process may hold of requests, and what it holds."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def reservation(self) -> "Reservation":
        return Reservation(self)


class Reservation:
    """The share of one request or connection. It lasts until its last holder released it."""

    __slots__ = ("_memory", "holders", "size")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.size = 0
        self.holders = 1

    def resize(self, size: int) -> bool:
        """Makes it so large; returns False, and changes nothing, if there is no room for more."""
        memory = self._memory
        more = size - self.size
        if more > 0 and memory.used + more > memory.limit:
            return False
        memory.used += more
        self.size = size
        return True

    def demand(self, size: int) -> None:
        """Makes it so large. Raises Shut if there is no room: too large, if there never will be."""
        if self.resize(size):
            return
        if size > self._memory.limit:
            message = f"the request takes {size} bytes of memory; server.limits.memory is less"
            raise Shut(413, new_error("too-large", message))
        message = "the server has no memory for this request now; try again later"
        raise Shut(503, new_error("overloaded", message, retry_after=1))

    def release(self) -> bool:
        """One holder less; returns whether it was the last, and all is given back."""
        self.holders -= 1
        if self.holders:
            return False
        self.resize(0)
        return True


class BodyReservation:
    """The share of one body, which is read with `receive`."""

    def __init__(self, memory: Memory, receive: Receive, limit: int) -> None:
        """Nobody reads more than `limit` bytes of a body."""
        self.reserved = memory.reservation()
        self._receive = receive
        self._limit = limit
        self._expected = self._read = 0
        self._weight = PLAIN

    def expect(self, told: bytes | None) -> None:
        """Reserves what the head says that will come. Raises Shut."""
        size = int(told or 0)
        if size <= self._limit:  # else it is refused unread
            self._expected = size
            self._reserve()

    async def receive(self) -> MutableMapping[str, Any]:
        """Returns the next piece of the body. Raises Shut if there is no room for it."""
        message = await self._receive()
        piece = message.get("body", b"")
        if piece:
            self._read += len(piece)
            if self._weight == PLAIN and not is_plain(piece):
                self._weight = WIDE
                self._reserve()
            elif self._read > self._expected:
                self._reserve()
        return message

    def _reserve(self) -> None:
        self.reserved.demand(self._weight * max(self._expected, self._read))


def is_plain(piece: bytes) -> bool:
    """Whether a piece of JSON holds only text that is ASCII once it is read. A backslash at its end
    may begin what is not."""
    return piece.isascii() and b"\\u" not in piece and not piece.endswith(b"\\")


def weight(text: str) -> int:
    """Returns what a message counts."""
    return len(text) * (PLAIN if text.isascii() else WIDE)
