"""The memory that all requests together may use, each from its first byte to its end.

A body is in memory several times: as received, as parsed, and as rendered for the upstream. Text
that is not ASCII takes up to four bytes a character once it is parsed. So a body counts as a
multiple of its size, and of the number of its objects once that is known, measured so that the
process stays below the limit. Earlier turns that a
request continues count like a part of its body, once they were read.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec
from msgspec import Raw

from weft.dialects.error_classes import new_error
from weft.gateway.auth import HttpRejection

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

ASCII_FACTOR = 6
"""How many times its size a body counts whose text is ASCII."""

UNICODE_FACTOR = 12
"""The same for any other body."""

OBJECT = 512
"""The bytes that each object of a body counts beside its text: a list of very small parts takes
many times its size once it is parsed. Measured were 250 (Chat) to 540 (Gemini)."""

RESERVED = "weft.memory"
"""The key of the MemoryReservation of a request with a body in the scope."""


class MemoryBudget:
    """The bytes that requests of one process may use, and those that they use."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def reservation(self) -> "MemoryReservation":
        return MemoryReservation(self)


class MemoryReservation(msgspec.Struct, eq=False, gc=False):
    """The share of one request or connection, held until its last holder released it."""

    memory: MemoryBudget
    size: int = 0
    holders: int = 1

    def resize(self, size: int) -> bool:
        """Grows or shrinks to this size; returns False, and changes nothing, if it does not fit."""
        memory = self.memory
        more = size - self.size
        # To shrink is always possible, also above a limit.
        if more > 0 and memory.used + more > memory.limit:
            return False
        memory.used += more
        self.size = size
        return True

    def reserve(self, size: int) -> None:
        """Grows to this size, or raises HttpRejection: 413 if the limit is smaller, else 503."""
        if self.resize(size):
            return
        # It would never fit: 413 tells the client not to try again, 503 to try again.
        if size > self.memory.limit:
            message = f"the request needs {size} bytes of memory, more than server.limits.memory"
            raise HttpRejection(413, new_error("too-large", message))
        message = "the server has no memory for this request at the moment; try again later"
        raise HttpRejection(503, new_error("overloaded", message, retry_after=1))

    def reserve_more(self, size: int) -> None:
        """Grows by this size. Raises HttpRejection."""
        self.reserve(self.size + size)

    def release(self) -> bool:
        """Drops one holder; returns True if it was the last and the memory is free again."""
        self.holders -= 1
        if self.holders:
            return False
        self.memory.used -= self.size
        self.size = 0
        return True


class BodyReservation:
    """The share of one body, which is received through `receive`."""

    def __init__(self, memory: MemoryBudget, receive: Receive, limit: int) -> None:
        """`limit`: the largest body, in bytes."""
        self.reserved = memory.reservation()
        self._receive = receive
        self._limit = limit
        self._expected = self._read = 0
        self._weight = ASCII_FACTOR

    def expect(self, content_length: bytes | None) -> None:
        """Reserves memory for the announced length. Raises HttpRejection."""
        size = int(content_length or 0)
        if size <= self._limit:  # a larger one is refused unread
            self._expected = size
            self._reserve()

    async def receive(self) -> MutableMapping[str, Any]:
        """Returns the next message. Raises HttpRejection if there is no memory for its body."""
        message = await self._receive()
        piece = message.get("body", b"")
        if piece:
            self._read += len(piece)
            # One character that is not ASCII widens its whole string: CPython stores 1, 2 or 4
            # bytes a character (PEP 393).
            if self._weight == ASCII_FACTOR and not is_ascii_json(piece):
                self._weight = UNICODE_FACTOR
                self._reserve()
            elif self._read > self._expected:
                self._reserve()
        return message

    def _reserve(self) -> None:
        self.reserved.reserve(self._weight * max(self._expected, self._read))


def is_ascii_json(piece: bytes) -> bool:
    """Whether the text in a piece of JSON is ASCII once it is parsed. A backslash at the end may
    begin an escape that is not."""
    return piece.isascii() and b"\\u" not in piece and not piece.endswith(b"\\")


def json_cost(pieces: Iterable[bytes | Raw]) -> int:
    """Returns the bytes that the pieces of a body count."""
    size, is_ascii = 0, True
    for piece in pieces:
        size += len(piece)
        is_ascii = is_ascii and is_ascii_json(bytes(piece))
    return size * (ASCII_FACTOR if is_ascii else UNICODE_FACTOR)


def message_cost(text: str) -> int:
    """Returns the bytes that a WebSocket message counts."""
    return len(text) * (ASCII_FACTOR if text.isascii() else UNICODE_FACTOR)
