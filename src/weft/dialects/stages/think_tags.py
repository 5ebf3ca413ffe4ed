"""Reasoning written into the text, between think tags.

Only a tag that opens the answer counts, and only if no reasoning came by its own field. Blanks
before the tag and newlines right after the closing one are dropped; a later tag is plain text;
what is never closed stays reasoning. Where reasoning came by field, a closing tag that opens the
answer is an orphan and dropped. A text that could still become a tag is held back.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from weft.assembler import Buffer
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
)

_OPENER, _CLOSER = "<think>", "</think>"
_WHITESPACE = " \t\r\n"


class _TagState(Enum):
    BEFORE = "before"  # no answer text yet: a tag may come
    THINKING = "thinking"
    AFTER = "after"  # right behind the closing tag: newlines are dropped
    CUT = "cut"  # an error came: the end of a text that never began is dropped
    PLAIN = "plain"


class ThinkTags:
    """A stage for one response. `implicit`: the answer begins inside the tags."""

    def __init__(self, ids: Ids, findings: Findings, *, implicit: bool = False) -> None:
        self._ids = ids
        self._findings = findings
        self._implicit = implicit
        self._where = _TagState.BEFORE
        self._tag = _OPENER
        self._start: TextStart | None = None  # the text part that is held back
        self._held = Buffer()
        self._thought = ""  # the id of the reasoning part

    def feed(self, parts: list[Part]) -> list[Part]:
        if self.passes:
            return parts
        out: list[Part] = []
        for part in parts:
            handler = _HANDLERS.get(part.__class__)
            if handler is None or self.passes:
                out.append(part)
            else:
                handler(self, part, out)
        return out

    @property
    def passes(self) -> bool:
        """Whether the text is plain: no tag can come any more."""
        return self._where is _TagState.PLAIN

    @property
    def holding(self) -> bool:
        """Whether a text that may be a tag waits, or some of one."""
        began = self._where is _TagState.BEFORE and self._start is not None
        return began or self._held.length > 0

    def finish(self) -> list[Part]:
        """Returns what was held back, when neither an end nor an error came."""
        out: list[Part] = []
        self._let_go(out)
        return out

    def _reasoning(self, part: ReasoningStart, out: list[Part]) -> None:
        """Reasoning has a field of its own, so no opening tag is one."""
        if self._where is _TagState.BEFORE:
            self._tag = _CLOSER
        out.append(part)

    def _text_start(self, part: TextStart, out: list[Part]) -> None:
        if part.refusal:
            out.append(part)
            return
        self._start = part

    def _text_delta(self, part: TextDelta, out: list[Part]) -> None:
        if self._start is None or part.id != self._start.id:
            out.append(part)
            return
        self._held.add(part.delta)
        if self._where is _TagState.BEFORE:
            self._look_for_tag(out)
        if self._where is _TagState.THINKING:
            self._look_for_closer(out)
        if self._where is _TagState.AFTER:
            self._held.set(self._held.text.lstrip("\r\n"))
            if self._held.length:
                self._plain(out)

    def _look_for_tag(self, out: list[Part]) -> None:
        text = self._held.text.lstrip(_WHITESPACE)
        if text.startswith(self._tag):
            self._held.set(text[len(self._tag) :])
            if self._tag is _OPENER:
                self._think(out)
            else:
                self._findings.note("think-closer-dropped", f"{_CLOSER} without an opening tag")
                self._where = _TagState.AFTER
        elif not self._tag.startswith(text):
            self._no_tag(out)

    def _no_tag(self, out: list[Part]) -> None:
        if self._implicit and self._tag is _OPENER:
            self._think(out)
        else:
            self._plain(out)

    def _think(self, out: list[Part]) -> None:
        self._findings.note("think-tags", "reasoning stood inside the text")
        self._where = _TagState.THINKING
        self._thought = self._ids.local("reasoning")
        out.append(ReasoningStart(self._thought, "raw"))

    def _look_for_closer(self, out: list[Part]) -> None:
        before, closer, after = self._held.text.partition(_CLOSER)
        if closer:
            self._say(before, out)
            self._held.set(after)
            self._where = _TagState.AFTER
            out.append(ReasoningEnd(self._thought))
        else:
            keep = _overlap(before)
            self._say(before[: len(before) - keep], out)
            self._held.set(before[len(before) - keep :])

    def _say(self, text: str, out: list[Part]) -> None:
        if text:
            out.append(ReasoningDelta(self._thought, text))

    def _plain(self, out: list[Part]) -> None:
        """The rest is text as it stands."""
        self._where = _TagState.PLAIN
        if self._start is not None:
            out.append(self._start)
            if self._held.length:
                out.append(TextDelta(self._start.id, self._held.text))
        self._held.set("")

    def _text_end(self, part: TextEnd, out: list[Part]) -> None:
        if self._start is None or part.id != self._start.id:
            out.append(part)
            return
        self._let_go(out)
        if self._where is _TagState.PLAIN:
            out.append(part)
        self._where, self._start = _TagState.PLAIN, None

    def _last(self, part: Part, out: list[Part]) -> None:
        """An error or a finish: no text may follow, so what is held goes first."""
        self._let_go(out)
        out.append(part)

    def _let_go(self, out: list[Part]) -> None:
        """Says what is held. Where it is text, the rest is plain; where not, the text is cut."""
        if self._where is _TagState.BEFORE and self._start is not None:
            self._no_tag(out)
        if self._where is _TagState.THINKING:
            self._say(self._held.text, out)
            out.append(ReasoningEnd(self._thought))
        if self._where is not _TagState.PLAIN:
            self._where = _TagState.CUT
            self._held.set("")


def _overlap(text: str) -> int:
    """How much of the end of the text could be the beginning of a closing tag."""
    for length in range(min(len(_CLOSER) - 1, len(text)), 0, -1):
        if text.endswith(_CLOSER[:length]):
            return length
    return 0


_HANDLERS: dict[type[Part], Callable[[ThinkTags, Any, list[Part]], None]] = {
    ReasoningStart: ThinkTags._reasoning,
    TextStart: ThinkTags._text_start,
    TextDelta: ThinkTags._text_delta,
    TextEnd: ThinkTags._text_end,
    ErrorPart: ThinkTags._last,
    Finish: ThinkTags._last,
}
