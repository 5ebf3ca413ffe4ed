"""Several answers told as one: an upstream that pauses, for clients whose dialect has no pause.

The pause itself is swallowed, and the answer that goes on is told behind it: its metadata is
not, its items have ids of their own, and the usage of all is added up.
"""

import msgspec

from weft.parts import (
    Finish,
    ItemPart,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    Usage,
)

MAX_CONTINUATIONS = 5
"""How often a paused answer is continued."""

_replace = msgspec.structs.replace
_LOCAL = (TextStart, TextDelta, TextEnd, ReasoningStart, ReasoningDelta, ReasoningEnd)
"""Parts whose ids count within one answer of the upstream."""


class PausedTurns:
    """A stage behind all others, kept over all answers of one response."""

    passes = False  # a pause comes at the end
    holding = True  # what it reads, it may tell otherwise

    def __init__(self) -> None:
        self.paused = False
        """Whether the answer stopped in the middle, and there may be more of it."""
        self._round = 0
        self._used: list[Usage] = []

    def next_turn(self) -> None:
        """Another answer follows."""
        self.paused = False
        self._round += 1

    def feed(self, parts: list[Part]) -> list[Part]:
        return [told for part in parts if (told := self._told(part)) is not None]

    def finish(self) -> list[Part]:
        return []

    def _told(self, part: Part) -> Part | None:
        if isinstance(part, Finish):
            return self._finished(part)
        if not self._round:
            return part
        if isinstance(part, ResponseMetadata):
            return None
        if isinstance(part, Source) and part.text_id is not None:
            return _replace(part, text_id=self._own(part.text_id))
        if isinstance(part, _LOCAL):
            return self._renamed(part)
        return part

    def _renamed(self, part: ItemPart) -> ItemPart:
        return _replace(part, id=self._own(part.id))

    def _own(self, id: str) -> str:
        return f"{self._round}.{id}"

    def _finished(self, part: Finish) -> Finish | None:
        if part.usage is not None:
            self._used.append(part.usage)
        if part.reason == "pause" and self._round < MAX_CONTINUATIONS:
            self.paused = True
            return None
        return _replace(part, usage=add_usage(self._used)) if self._round else part


def add_usage(used: list[Usage]) -> Usage | None:
    """The sum; what was not told anywhere stays untold."""
    if not used:
        return None
    columns = zip(*map(msgspec.structs.astuple, used), strict=True)
    told = [[count for count in column if count is not None] for column in columns]
    return Usage(*(sum(counts) if counts else None for counts in told))
