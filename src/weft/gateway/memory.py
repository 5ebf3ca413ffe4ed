"""How much memory requests may take, all of them together, from their first byte to their end.

A body is in memory several times: as it came, as it was read, and as it goes to the upstream. Text
that is not ASCII is wider once it is read: up to four bytes a character. So a body counts with a
multiple of its size, measured so that the process stays below the limit.
"""

PLAIN = 4
"""How often a body counts whose text is ASCII."""

WIDE = 8
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

    def release(self) -> bool:
        """One holder less; returns whether it was the last, and all is given back."""
        self.holders -= 1
        if self.holders:
            return False
        self.resize(0)
        return True


def is_plain(piece: bytes) -> bool:
    """Whether a piece of JSON holds only text that is ASCII once it is read. A backslash at its end
    may begin what is not."""
    return piece.isascii() and b"\\u" not in piece and not piece.endswith(b"\\")


def weight(text: str) -> int:
    """Returns what a message counts."""
    return len(text) * (PLAIN if text.isascii() else WIDE)
