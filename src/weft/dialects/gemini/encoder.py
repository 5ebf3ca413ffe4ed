"""Parts into a generateContent stream, and a fold into a body.

- Strict framing, because readers of this wire are: `data: ` and one line of JSON, then a blank
  line. No event names, no comments, no terminator; a blank line is the only keepalive.
- The wire has no ids for texts. So one item speaks at a time: what overlaps waits its turn, and
  is then read from the fold, never joined here.
- A call is one `functionCall` with an object for arguments, at the place where it was announced.
  What cannot be one waits for the finish: where the tokens ran out it is left out, else the stream
  ends with an error, as an error part does; neither ever has a finish reason.
- The last frame tells the finish reason, the usage and the sources.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec import Raw

from weft import large_json
from weft.assembler import Assembler, Response, merged
from weft.context import Context
from weft.dialects.base import PassedOn
from weft.dialects.gemini import wire
from weft.dialects.gemini.errors import error_written
from weft.dialects.gemini.grounding import grounding_written, segment_written
from weft.dialects.gemini.meaning import (
    finish_word,
    miscounted,
    time_of,
    usage_written,
)
from weft.dialects.gemini.outgoing import Carried, details_of, leftover_of, one_line, unbroken
from weft.dialects.replay import response_to_parts
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
)
from weft.sse import Event

_PAUSED = "the turn is paused, and goes on with the next request"
_HEAD = b'{"candidates":[{"content":{"parts":['

_json = msgspec.json.Encoder().encode


class _Phase(Enum):
    WRITING = "writing"
    OVER = "over"  # an error was written: nothing follows it


class _Kind(Enum):
    TEXT = "text"
    REASONING = "reasoning"
    WHOLE = "whole"


Last = wire.Part | Raw

Spot = tuple[str, int, int]
"""A text, which part of the answer it stands in, and how many bytes into that part."""


class _Turn:
    """An item that speaks, or waits until it may: a text, a reasoning, or something whole."""

    __slots__ = ("cut", "failure", "id", "kind", "last", "told", "written")

    def __init__(self, kind: _Kind, id: str = "", last: list[Last] | None = None) -> None:
        self.kind = kind
        self.id = id
        self.told = 0
        """How much of its text came; and how much of that was written."""
        self.written = 0
        self.last = last
        """What is written when it ends; None while it goes on."""
        self.failure: wire.Error | None = None
        """Why it cannot be written."""
        self.cut = False
        """Whether it is a call that could have been written, if more of it had come."""


class Writer:
    """The frames of one response."""

    def __init__(self) -> None:
        self.out: list[Event] = []
        self._ends = {_Kind.TEXT: b"", _Kind.REASONING: b"", _Kind.WHOLE: b""}
        """How a frame goes on after the text, or the part, in it."""

    def begin(self, head: wire.Chunk) -> None:
        end = b'],"role":"model"},"index":0}],%b' % unbroken(_json(head))[1:]
        self._ends = {
            _Kind.TEXT: b"}" + end,
            _Kind.REASONING: b',"thought":true}' + end,
            _Kind.WHOLE: end,
        }

    def text(self, kind: _Kind, text: str) -> None:
        data = b'%b{"text":%b%b' % (_HEAD, unbroken(_json(text)), self._ends[kind])
        self.out.append(Event("", data))

    def part(self, part: Last) -> None:
        data = b"%b%b%b" % (_HEAD, one_line(_json(part)), self._ends[_Kind.WHOLE])
        self.out.append(Event("", data))

    def sign(self, part: wire.Part) -> None:
        """Writes the signature of the text before it."""
        self.part(part)

    def end(self, answer: wire.Answer) -> None:
        self.out.append(Event("", one_line(large_json.write(answer))))

    def fail(self, error: wire.Error) -> None:
        self.out.append(Event("", one_line(_json(wire.Chunk(error=Raw(_json(error)))))))


class BodyWriter(Writer):
    """The same response in one piece. A signature stands on the text that it signs."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Last] = []
        self.body = b""

    def begin(self, head: wire.Chunk) -> None:
        """All that is in it comes again at the end."""

    def text(self, kind: _Kind, text: str) -> None:
        last = self._unsigned(kind)
        if last is None:
            self._parts.append(wire.Part(text=text, thought=kind is _Kind.REASONING or None))
        else:
            last.text = (last.text or "") + text

    def part(self, part: Last) -> None:
        self._parts.append(part)

    def sign(self, part: wire.Part) -> None:
        last = self._parts[-1]
        if isinstance(last, wire.Part):
            last.thought_signature = part.thought_signature

    def _unsigned(self, kind: _Kind) -> wire.Part | None:
        """The last part, if it is text that goes on."""
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, wire.Part) or last.text is None or last.thought_signature:
            return None
        return last if (last.thought is True) == (kind is _Kind.REASONING) else None

    def end(self, answer: wire.Answer) -> None:
        if self._parts:
            answer.candidates[0].content.parts = [
                Raw(large_json.write(part)) for part in self._parts
            ]
        self.body = one_line(large_json.write(answer))

    def fail(self, error: wire.Error) -> None:
        self.body = _json(wire.Chunk(error=Raw(_json(error))))


class ContentEncoder:
    """Writes one response. `fold` is the fold of the very parts it is fed."""

    def __init__(
        self, context: Context, fold: Assembler, findings: Findings, writer: Writer | None = None
    ) -> None:
        """`writer` makes something else than frames of it."""
        self._context = context
        self._fold = fold
        self._findings = findings
        self._phase = _Phase.WRITING
        self._writer = writer or Writer()
        self._head = wire.Chunk()
        self._carried = Carried(context, findings, None)
        self._usage: Usage | None = None
        self._for_tools: int | None = None
        """Tokens of the input that are counted apart: none, if others may have been told before."""
        self._turns: deque[_Turn] = deque()
        self._texts: dict[str, _Turn] = {}
        self._thoughts: dict[str, _Turn] = {}
        self._calls: dict[str, _Turn] = {}
        self._written: list[_Turn] = []
        self._sources: list[Source] = []

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the frames that these parts make, each in one piece."""
        out: list[Event] = []
        self._writer.out = out
        for part in parts:
            if self._phase is _Phase.WRITING:
                _HANDLERS[part.__class__](self, part)
            elif part.__class__ in _CONTENT:
                self._carried.lost(part.type, "it came after an error")
            elif isinstance(part, Finish) and merged(self._usage, part.usage):
                self._carried.lost("usage", "nothing is told after an error")
        return out

    def finish(self) -> list[Event]:
        """The finish part said it all."""
        return []

    def resume(self, before: PassedOn) -> None:
        """Sources and usage come last: what of them was told is not told again."""
        self._sources.clear()
        self._for_tools = 0

    def keepalive(self) -> Event | None:
        return None

    # Turns

    def _begin(self, kind: _Kind, id: str) -> _Turn:
        turn = _Turn(kind, id)
        self._turns.append(turn)
        return turn

    def _go_on(self, turn: _Turn, delta: str) -> None:
        turn.told += len(delta)
        if turn is self._turns[0]:
            turn.written = turn.told
            self._writer.text(turn.kind, delta)

    def _end(self, turn: _Turn, last: list[Last]) -> None:
        turn.last = last
        self._take_turns()

    def _whole(self, part: Last | None) -> None:
        if part is not None:
            self._turns.append(_Turn(_Kind.WHOLE, last=[part]))
            self._take_turns()

    def _take_turns(self) -> None:
        """Lets everyone speak whose turn has come."""
        while self._turns and self._phase is _Phase.WRITING:
            turn = self._turns[0]
            if turn.told > turn.written:
                text = self._said(turn)[turn.written : turn.told]
                turn.written = turn.told
                self._writer.text(turn.kind, text)
            if turn.last is None:
                return
            if turn.failure is not None:
                return  # the finish tells what becomes of it
            self._turns.popleft()
            for last in turn.last:
                if turn.told and isinstance(last, wire.Part):
                    self._writer.sign(last)
                else:
                    self._writer.part(last)
            self._written.append(turn)

    def _said(self, turn: _Turn) -> str:
        texts = self._fold.text if turn.kind is _Kind.TEXT else self._fold.reasoning
        return texts(turn.id)

    # The response

    def _metadata(self, part: ResponseMetadata) -> None:
        self._carried = Carried(self._context, self._findings, part.dialect)
        self._carried.model = part.model
        self._usage = part.usage
        self._head = _head(part.model, part.created, self._context)
        self._writer.begin(self._head)

    def _on_error(self, part: ErrorPart) -> None:
        error = error_written(part)
        if self._carried.native:
            error.details = details_of(part.extra)
        self._fail(error)

    def _fail(self, error: wire.Error) -> None:
        self._phase = _Phase.OVER
        self._writer.fail(error)

    def _on_finish(self, part: Finish) -> None:
        usage = merged(self._usage, part.usage)
        self._settle(part)
        if self._phase is _Phase.OVER:
            if usage:
                self._carried.lost("usage", "nothing is told after an error")
            return
        kept = leftover_of(part) if self._carried.native else wire.Leftover()
        spots = self._spots() if self._sources else {}
        candidate = _candidate([wire.Part(text="")], part, kept)
        candidate.grounding_metadata = grounding_written(_cited(self._sources, spots), kept)
        self._carried.end(part, miscounted(usage))
        answer = _answer(self._head, candidate, part, usage)
        if answer.usage_metadata is not None:
            answer.usage_metadata.tool_use_prompt_token_count = self._for_tools
        self._writer.end(answer)

    def _settle(self, finish: Finish) -> None:
        """Decides on calls that cannot be told truthfully."""
        for turn in self._turns:
            failure, turn.failure = turn.failure, None
            if failure is None:
                continue
            self._carried.lost("tool-call", failure.message or "")
            if finish.reason != "length" or not turn.cut:
                self._fail(failure)
                return
        self._take_turns()

    # Text and reasoning

    def _text_start(self, part: TextStart) -> None:
        self._texts[part.id] = self._begin(_Kind.TEXT, part.id)
        if part.refusal:
            self._carried.refusal()

    def _text_delta(self, part: TextDelta) -> None:
        self._go_on(self._texts[part.id], part.delta)

    def _text_end(self, part: TextEnd) -> None:
        signature = self._carried.signature(part.type, part)
        last: list[Last] = [wire.Part(text="", thought_signature=signature)] if signature else []
        self._end(self._texts[part.id], last)

    def _reasoning_start(self, part: ReasoningStart) -> None:
        self._carried.thoughts[part.id] = part
        self._thoughts[part.id] = self._begin(_Kind.REASONING, part.id)

    def _reasoning_delta(self, part: ReasoningDelta) -> None:
        self._go_on(self._thoughts[part.id], part.delta)

    def _reasoning_end(self, part: ReasoningEnd) -> None:
        signature = self._carried.signature(part.type, part)
        signed = wire.Part(text="", thought=True, thought_signature=signature)
        self._end(self._thoughts[part.id], [signed] if signature else [])

    # Sources

    def _source(self, part: Source) -> None:
        self._sources.append(part)

    def _spots(self) -> dict[str | None, Spot]:
        """Where each text stands. Texts that follow one another, unsigned, are one part to whoever
        reads this.
        """
        spots: dict[str | None, Spot] = {}
        part, base = -1, 0
        before: _Kind | None = None
        for turn in self._written:
            if not turn.told and not turn.last:
                continue  # it left no trace
            if turn.kind is not before or turn.kind is _Kind.WHOLE:
                part, base = part + 1, 0
            if turn.kind is _Kind.TEXT:
                text = self._said(turn)
                spots[turn.id] = (text, part, base)
                base += len(text.encode())
            before = None if turn.last else turn.kind
        return spots

    # Calls, results, files

    def _params_start(self, part: ToolParamsStart) -> None:
        self._calls[part.id] = self._begin(_Kind.WHOLE, part.id)

    def _params(self, part: ToolParamsDelta | ToolParamsEnd) -> None:
        """The tool-call says it all."""

    def _tool_call(self, part: ToolCall) -> None:
        turn = self._calls.get(part.id) or self._begin(_Kind.WHOLE, part.id)
        written = self._carried.call(part)
        if isinstance(written, wire.Error):
            turn.failure, turn.cut = written, part.invalid in ("bad-arguments", "stream-failed")
            self._end(turn, [])
        else:
            self._end(turn, [] if written is None else [written])

    def _tool_result(self, part: ToolResult) -> None:
        self._whole(self._carried.result(part))

    def _file(self, part: File) -> None:
        self._whole(self._carried.file(part))

    def _opaque(self, part: Opaque) -> None:
        self._whole(self._carried.opaque(part))

    def _approval(self, part: ToolApprovalRequest) -> None:
        self._carried.approval(part)


_HANDLERS: dict[type[Part], Callable[[ContentEncoder, Any], None]] = {
    ResponseMetadata: ContentEncoder._metadata,
    TextStart: ContentEncoder._text_start,
    TextDelta: ContentEncoder._text_delta,
    TextEnd: ContentEncoder._text_end,
    ReasoningStart: ContentEncoder._reasoning_start,
    ReasoningDelta: ContentEncoder._reasoning_delta,
    ReasoningEnd: ContentEncoder._reasoning_end,
    ToolParamsStart: ContentEncoder._params_start,
    ToolParamsDelta: ContentEncoder._params,
    ToolParamsEnd: ContentEncoder._params,
    ToolCall: ContentEncoder._tool_call,
    ToolResult: ContentEncoder._tool_result,
    ToolApprovalRequest: ContentEncoder._approval,
    Source: ContentEncoder._source,
    File: ContentEncoder._file,
    Opaque: ContentEncoder._opaque,
    ErrorPart: ContentEncoder._on_error,
    Finish: ContentEncoder._on_finish,
}


_CONTENT: frozenset[type[Part]] = frozenset(
    {TextDelta, ReasoningDelta, ToolCall, ToolResult, Source, File, Opaque}
)
"""What is lost if it comes after an error."""


# A response that is not streamed


def body(response: Response, context: Context, findings: Findings) -> bytes:
    """Returns the whole answer of a fold; of a failed one, the error body.

    It is what the frames of the same parts add up to.
    """
    writer = BodyWriter()
    if response.error is not None:
        writer.fail(error_written(response.error))
        return writer.body
    fold = Assembler()
    parts = response_to_parts(response)
    for part in parts:
        fold.feed(part)
    ContentEncoder(context, fold, findings, writer).feed(parts)
    return writer.body


# What a stream ends with


def _head(model: str | None, created: int | None, context: Context) -> wire.Chunk:
    return wire.Chunk(
        model_version=model or (context.request.model if context.request else None),
        response_id=context.response_id or context.ids.mint("resp"),
        create_time=None if created is None else time_of(created),
    )


def _candidate(parts: Sequence[Last], finish: Finish, kept: wire.Leftover) -> wire.Ended:
    word = finish_word(finish)
    message = kept.finish_message or kept.block_reason_message
    return wire.Ended(
        wire.Written([Raw(_json(part)) for part in parts], "model"),
        word,
        0,
        _PAUSED if finish.reason == "pause" and word == "OTHER" else message,
        kept.continuation_token,
        url_context_metadata=kept.url_context_metadata,
    )


def _cited(
    sources: Sequence[Source], spots: dict[str | None, Spot]
) -> list[tuple[Source, wire.Segment | None]]:
    return [
        (source, segment_written(source, *spots[source.text_id]))
        if source.text_id in spots
        else (source, None)
        for source in sources
    ]


def _answer(
    head: wire.Chunk, candidate: wire.Ended, finish: Finish, usage: Usage | None
) -> wire.Answer:
    return wire.Answer(
        [candidate],
        None if usage is None else usage_written(usage),
        head.model_version or finish.model,  # the first one only, if it changes
        head.response_id,
        head.create_time,
    )
