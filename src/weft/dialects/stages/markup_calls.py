"""Tool calls that a model wrote into its text as markup, because the server did not parse them.

Off unless the quirks say so: the same text may be an answer about markup. What cannot be parsed as
a call stays text.
"""

from dataclasses import dataclass

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.stages import Handlers, HandlerStage, partial_match
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)


@dataclass(frozen=True, slots=True)
class Markup:
    """How a call is marked. Without a separator the body is JSON with `name` and `arguments`; with
    one, `prefix.name:number` comes before it and the arguments after it.
    """

    begin: str
    end: str
    separator: str | None = None
    section: tuple[str, ...] = ()
    """Marks around all calls, which are dropped."""


# capture: markup-calls-json
TAGS = Markup("<tool_call>", "</tool_call>")
# capture: markup-calls-tokens
# Special tokens of the model, which a server without its parser leaves in the text.
TOKENS = Markup(
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
)


class _JsonCall(msgspec.Struct):
    name: str
    arguments: Raw


class MarkupCalls(HandlerStage):
    """A stage for one response: text in, text and whole calls out."""

    def __init__(self, markup: Markup, ids: Ids, findings: Findings) -> None:
        self._handlers = _HANDLERS
        self._markup = markup
        self._ids = ids
        self._findings = findings
        self._marks = (markup.begin, *markup.section)
        self._start: TextStart | None = None  # of a text without any delta so far
        self._text_id = ""
        self._held = ""  # outside a call: what may be the beginning of a mark
        self._body: Buffer | None = None  # inside a call: what came after its first mark

    @property
    def holding(self) -> bool:
        return self._start is not None or bool(self._held) or self._body is not None

    def finish(self) -> list[Part]:
        out: list[Part] = []
        # A call that is never closed was perhaps none: not a character of it is lost.
        unread = "" if self._body is None else self._markup.begin + self._body.text
        self._emit_text(self._held + unread, out)
        self._held, self._body = "", None
        return out

    def _text_start(self, part: TextStart, out: list[Part]) -> None:
        # Held until there is text: an answer that is only a call has no text part.
        self._start, self._text_id = part, part.id

    def _text_delta(self, part: TextDelta, out: list[Part]) -> None:
        rest = part.delta
        while rest:
            rest = self._outside(rest, out) if self._body is None else self._inside(rest, out)

    def _text_end(self, part: TextEnd, out: list[Part]) -> None:
        out += self.finish()
        if self._start is None:
            out.append(part)
        self._start = None

    def _outside(self, text: str, out: list[Part]) -> str:
        """Emits text up to the first mark. Returns what follows the mark."""
        held = self._held + text
        # Whichever comes first; the marks do not begin with one another.
        found = [(held.find(mark), mark) for mark in self._marks if mark in held]
        if not found:
            cut = len(held) - max(partial_match(held, mark) for mark in self._marks)
            self._emit_text(held[:cut], out)
            self._held = held[cut:]
            return ""
        at, mark = min(found)
        self._emit_text(held[:at], out)
        self._held = ""
        if mark == self._markup.begin:
            self._body = Buffer()
        return held[at + len(mark) :]

    def _inside(self, text: str, out: list[Part]) -> str:
        """Collects the body up to its last mark, and returns what follows that. Only new text is
        searched, and as much before it as may be the beginning of the mark.
        """
        # Searching the whole body for every delta made long calls quadratic.
        body, end = self._body or Buffer(), self._markup.end
        before = body.since(max(0, body.length - len(end) + 1))
        at = (before + text).find(end)
        if at < 0:
            body.add(text)
            return ""
        taken = at + len(end) - len(before)
        body.add(text[:taken])
        self._body = None
        self._call(self._markup.begin + body.text, out)
        return text[taken:]

    def _call(self, whole: str, out: list[Part]) -> None:
        body = whole.removeprefix(self._markup.begin).removesuffix(self._markup.end).strip()
        try:
            id, name, arguments = self._read(body)
        except ValueError:  # capture: markup-that-is-no-call
            self._emit_text(whole, out)
            return
        self._findings.note("markup-call", f"call {id!r} of {name!r} is inside the text")
        out += (
            ToolParamsStart(id, name),
            ToolParamsDelta(id, arguments),
            ToolParamsEnd(id),
            ToolCall(id, name, arguments),
        )

    def _read(self, body: str) -> tuple[str, str, str]:
        if self._markup.separator is None:
            call = msgspec.json.decode(body, type=_JsonCall)
            return self._ids.mint("call"), call.name, bytes(call.arguments).decode()
        head, separator, arguments = body.partition(self._markup.separator)
        # `functions.look:0`: the whole head is the id, which the model wants back as it is.
        # capture: ids-that-mean-something
        name = head.strip().partition(".")[2].rpartition(":")[0]
        if not separator or not name:
            raise ValueError(f"no call: {body[:40]!r}")
        return head.strip(), name, arguments.strip() or "{}"

    def _emit_text(self, text: str, out: list[Part]) -> None:
        if not text:
            return
        if self._start is not None:
            out.append(self._start)
            self._start = None
        out.append(TextDelta(self._text_id, text))


_HANDLERS: Handlers = {
    TextStart: MarkupCalls._text_start,
    TextDelta: MarkupCalls._text_delta,
    TextEnd: MarkupCalls._text_end,
    ErrorPart: MarkupCalls._last,
    Finish: MarkupCalls._last,
}
