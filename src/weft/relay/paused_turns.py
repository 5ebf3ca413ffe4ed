"""Joins the turns of an upstream that pauses into one response, for clients whose dialect has no
pause.

The pause itself is left out, and the turn that continues it follows: without its metadata, with
item ids of its own, and with the usage of all turns added up.
"""

import msgspec

from weft.parts import (
    Delta,
    Finish,
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
"""How often a paused turn is continued."""

_replace = msgspec.structs.replace
_ITEM_PARTS = (TextStart, TextDelta, TextEnd, ReasoningStart, ReasoningDelta, ReasoningEnd)
"""Parts whose ids are unique within one turn only."""


class PausedTurns:
    """The last stage of a pipe, for all turns of one response."""

    passes = False  # a pause comes at the end of a stream: by then, frames would have passed
    holding = True  # what it reads may be written differently

    def __init__(self) -> None:
        self.paused = False
        """Whether the turn paused and can be continued."""
        self._turn = 0
        self._usage: list[Usage] = []

    def next_turn(self) -> None:
        """The parts of the next turn follow."""
        self.paused = False
        self._turn += 1

    def feed(self, parts: list[Part]) -> list[Part]:
        return [own for part in parts if (own := self._convert(part)) is not None]

    def reads(self, kind: type[Delta], id: str) -> bool:
        return False  # deltas of later turns get other ids, and nothing else changes

    def finish(self) -> list[Part]:
        return []

    def _convert(self, part: Part) -> Part | None:
        if isinstance(part, Finish):
            if part.usage is not None:
                self._usage.append(part.usage)
            # Anthropic pauses a turn with long-running server tools (`pause_turn`), and continues
            # it when the same messages are sent again together with its output so far.
            if part.reason == "pause" and self._turn < MAX_CONTINUATIONS:
                self.paused = True
                return None
            # The input of every turn is billed, so the counts are added.
            return _replace(part, usage=add_usage(self._usage)) if self._turn else part
        if not self._turn:
            return part
        if isinstance(part, ResponseMetadata):
            return None
        if isinstance(part, Source) and part.text_id is not None:
            return _replace(part, text_id=f"{self._turn}.{part.text_id}")
        if isinstance(part, _ITEM_PARTS):
            return _replace(part, id=f"{self._turn}.{part.id}")
        return part


def add_usage(usage: list[Usage]) -> Usage | None:
    """The sum per field, of the values that are known."""
    if not usage:
        return None
    columns = zip(*map(msgspec.structs.astuple, usage), strict=True)
    known = [[count for count in column if count is not None] for column in columns]
    return Usage(*(sum(counts) if counts else None for counts in known))
