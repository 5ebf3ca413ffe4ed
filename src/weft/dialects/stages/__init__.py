"""Stages: parts in, parts out, between a decoder and the guard."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from weft.parts import Delta, Part

Handlers = Mapping[type[Part], Callable[[Any, Any, list[Part]], None]]
"""What handles each type of part. It appends what comes out, possibly nothing."""


class HandlerStage(ABC):
    """The base of the stages: a part goes to the handler of its type; one without a handler passes.

    A stage lives for one response.
    """

    _handlers: Handlers
    """Those of the current state."""

    passes = False
    """See Stage. There may always be more to do, unless a stage knows better."""

    def feed(self, parts: list[Part]) -> list[Part]:
        if self.passes:
            return parts
        out: list[Part] = []
        for part in parts:
            # Both are looked up for each part: the one before may have changed the state.
            handler = self._handlers.get(part.__class__)
            if handler is None or self.passes:
                out.append(part)
            else:
                handler(self, part, out)
        return out

    def reads(self, kind: type[Delta], id: str) -> bool:
        """See Stage."""
        return kind in self._handlers and not self.passes

    @abstractmethod
    def finish(self) -> list[Part]:
        """Returns what is held back and can only come out now."""

    def _last(self, part: Part, out: list[Part]) -> None:
        """Handles an error or a finish: no content may follow it, so what is held comes first."""
        out += self.finish()
        out.append(part)


def partial_match(text: str, mark: str) -> int:
    """Returns how many characters at the end of a text could be the beginning of a mark."""
    # The longest first: with fewer characters held, the rest of the mark would come too late.
    for length in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0
