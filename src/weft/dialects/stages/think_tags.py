"""Reasoning inside the text, between `<think>` tags.

Only a tag at the very beginning of the answer counts, and only if no reasoning came in a field of
its own. Whitespace before the tag and newlines right after the closing one are dropped; a later tag
is text; reasoning that is never closed stays reasoning. If reasoning came in its own field, a
closing tag at the beginning of the answer is dropped. Text that may become a tag is held back.
"""

from enum import Enum

from weft.assembler import Buffer
from weft.dialects.stages import Handlers, HandlerStage, partial_match
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
    BEFORE = "before"  # no text yet: a tag may come
    INSIDE = "inside"
    AFTER = "after"  # right after the closing tag: newlines are dropped
    CUT = "cut"  # an error came: the end of a text that never started is dropped
    PLAIN = "plain"  # no tag can come any more, and the stage passes


class ThinkTags(HandlerStage):
    """A stage for one response. `implicit`: the answer starts inside the tags, without one."""

    def __init__(self, ids: Ids, findings: Findings, *, implicit: bool = False) -> None:
        self._handlers = _HANDLERS
        self._ids = ids
        self._findings = findings
        self._implicit = implicit
        self._where = _TagState.BEFORE
        # The one tag that can come next: the closing one, once reasoning came in a field.
        self._tag = _OPENER
        self._start: TextStart | None = None  # of the text that is held back
        self._held = Buffer()
        self._reasoning_id = ""

    @property
    def holding(self) -> bool:
        """Whether text is held back that may be a tag."""
        began = self._where is _TagState.BEFORE and self._start is not None
        return began or self._held.length > 0

    def finish(self) -> list[Part]:
        """Returns what was held back, if neither an end nor an error came."""
        out: list[Part] = []
        self._release(out)
        return out

    def _reasoning(self, part: ReasoningStart, out: list[Part]) -> None:
        """Reasoning has a field of its own, so an opening tag is text."""
        # capture: think-tag-after-reasoning-field, orphan-think-closer-after-reasoning-field
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
        if self._where is _TagState.BEFORE and not (self._held.length or self._implicit):
            # Nearly every answer begins with anything but a tag, and both tags with the same
            # character.
            first = part.delta.lstrip(_WHITESPACE)[:1]
            if first and first != "<":
                self._plain(out)
                out.append(part)
                return
        self._held.add(part.delta)
        if self._where is _TagState.BEFORE:
            # capture: think-tag-in-three-pieces, think-tags-cut-everywhere
            text = self._held.text.lstrip(_WHITESPACE)
            if text.startswith(self._tag):
                self._held.set(text[len(self._tag) :])
                if self._tag is _OPENER:
                    self._start_reasoning(out)
                else:
                    self._findings.note("think-closer-dropped", f"{_CLOSER} without {_OPENER}")
                    self._where = _TagState.AFTER
            elif not self._tag.startswith(text):
                # capture: think-tag-that-is-none
                # It cannot become the tag any more, whatever follows.
                self._no_tag(out)
        if self._where is _TagState.INSIDE:
            # Only what may be the beginning of the closing tag stays held.
            before, closer, after = self._held.text.partition(_CLOSER)
            end = len(before) if closer else len(before) - partial_match(before, _CLOSER)
            self._emit_reasoning(before[:end], out)
            self._held.set(after if closer else before[end:])
            if closer:
                self._where = _TagState.AFTER
                out.append(ReasoningEnd(self._reasoning_id))
        if self._where is _TagState.AFTER:
            # Templates put newlines between the closing tag and the answer.
            self._held.set(self._held.text.lstrip("\r\n"))
            if self._held.length:
                self._plain(out)

    def _no_tag(self, out: list[Part]) -> None:
        # capture: orphan-think-closer, orphan-think-closer-left-as-text
        if self._implicit and self._tag is _OPENER:
            self._start_reasoning(out)
        else:
            self._plain(out)

    def _start_reasoning(self, out: list[Part]) -> None:
        self._findings.note("think-tags", "reasoning is inside the text")
        self._where = _TagState.INSIDE
        self._reasoning_id = self._ids.local("reasoning")
        out.append(ReasoningStart(self._reasoning_id, "raw"))

    def _emit_reasoning(self, text: str, out: list[Part]) -> None:
        if text:
            out.append(ReasoningDelta(self._reasoning_id, text))

    def _plain(self, out: list[Part]) -> None:
        """All that follows is text."""
        self._where, self.passes = _TagState.PLAIN, True
        if self._start is not None:
            out.append(self._start)
            if self._held.length:
                out.append(TextDelta(self._start.id, self._held.text))
                self._held.set("")

    def _text_end(self, part: TextEnd, out: list[Part]) -> None:
        if self._start is None or part.id != self._start.id:
            out.append(part)
            return
        self._release(out)
        if self._where is _TagState.PLAIN:
            out.append(part)
        # capture: think-tag-later-is-text
        # The answer has begun: a tag in a later text is text.
        self._where, self.passes, self._start = _TagState.PLAIN, True, None

    def _release(self, out: list[Part]) -> None:
        """Emits what is held, as text or as reasoning."""
        # capture: think-tag-prefix-at-the-end
        if self._where is _TagState.BEFORE and self._start is not None:
            self._no_tag(out)
        if self._where is _TagState.INSIDE:
            # capture: think-tag-never-closed, think-tag-open-at-a-cut
            self._emit_reasoning(self._held.text, out)
            out.append(ReasoningEnd(self._reasoning_id))
        if self._where is not _TagState.PLAIN:
            self._where = _TagState.CUT
            self._held.set("")


_HANDLERS: Handlers = {
    ReasoningStart: ThinkTags._reasoning,
    TextStart: ThinkTags._text_start,
    TextDelta: ThinkTags._text_delta,
    TextEnd: ThinkTags._text_end,
    ErrorPart: ThinkTags._last,
    Finish: ThinkTags._last,
}
