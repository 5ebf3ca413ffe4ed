"""The last responses of one WebSocket, each with its whole conversation."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from weft.relay.history import input_items

MAX_RESPONSES = 8
"""Responses that are cached."""

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of all cached conversations."""

_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """The conversation after a response."""

    items_json: bytes
    """The items up to its end, as a JSON array."""

    stored: bool
    """Whether it is in the store, too."""

    @property
    def items(self) -> list[Raw]:
        return input_items(Raw(self.items_json))


class ResponseCache:
    """Conversations by response id. The oldest are removed if there is no room."""

    def __init__(self, most: int = MAX_RESPONSES, size: int = MAX_BYTES) -> None:
        self._most = most
        self._size = size
        self._states: dict[str, CachedResponse] = {}

    def __getitem__(self, id: str) -> CachedResponse | None:
        return self._states.get(id)

    def add(self, id: str, items: Sequence[Raw], *, stored: bool) -> None:
        """Adds a response, unless it alone is too large."""
        self.remove(id)
        self._states[id] = CachedResponse(_json(items), stored)
        # A dict keeps the order of insertion, so its first key is the oldest.
        while len(self._states) > self._most or self.size > self._size:
            self.remove_oldest()

    def remove(self, id: str | None) -> None:
        self._states.pop(id or "", None)

    def remove_oldest(self) -> None:
        del self._states[next(iter(self._states))]

    @property
    def size(self) -> int:
        """Cached bytes."""
        return sum(len(state.items_json) for state in self._states.values())
