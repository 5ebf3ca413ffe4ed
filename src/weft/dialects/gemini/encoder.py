"""Parts into a generateContent stream, and a fold into a body.

- Strict framing, because readers of this wire are: `data: ` and one line of JSON, then a blank
  line. No event names, no comments, no terminator; a blank line is the only keepalive.
- The wire has no ids for texts. So one item speaks at a time: what overlaps waits its turn, and
  is then read from the fold, never joined here.
- A call is one `functionCall` with an object for arguments. What cannot be one ends the stream
  with an error, as an error part does; neither ever has a finish reason.
- The last frame tells the finish reason, the usage and the sources.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec import Raw

from weft.assembler import Assembler, Item, ReasoningItem, Response, TextItem, merged
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


Last = wire.Part | wire.Error | Raw

Spot = tuple[str, int, int]
"""A text, which part of the answer it stands in, and how many bytes into that part."""


class _Turn:
    """An item that speaks, or waits until it may: a text, a reasoning, or something whole."""

    __slots__ = ("id", "kind", "last", "told", "written")

    def __init__(self, kind: _Kind, id: str = "", last: list[Last] | None = None) -> None:
        self.kind = kind
        self.id = id
        self.told = 0
        """How much of its text came; and how much of that was written."""
        self.written = 0
        self.last = last
        """What is written when it ends; None while it goes on."""


class ContentEncoder:
    """Writes one response. `fold` is the fold of the very parts it is fed."""

    def __init__(self, context: Context, fold: Assembler, findings: Findings) -> None:
        self._context = context
        self._fold = fold
        self._findings = findings
        self._phase = _Phase.WRITING
        self._head = wire.Chunk()
        self._ends = {_Kind.TEXT: b"", _Kind.REASONING: b"", _Kind.WHOLE: b""}
        """How a frame goes on after the text, or the part, in it."""
        self._carried = Carried(context, findings, None)
        self._usage: Usage | None = None
        self._for_tools: int | None = None
        """Tokens of the input that are counted apart: none, if others may have been told before."""
        self._turns: deque[_Turn] = deque()
        self._texts: dict[str, _Turn] = {}
        self._thoughts: dict[str, _Turn] = {}
        self._written: list[_Turn] = []
        self._sources: list[Source] = []

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the frames that these parts make, each in one piece."""
        out: list[Event] = []
        for part in parts:
            if self._phase is _Phase.WRITING:
                _HANDLERS[part.__class__](self, part, out)
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

    # Frames

    def _text_frame(self, kind: _Kind, text: str, out: list[Event]) -> None:
        data = b'%b{"text":%b%b' % (_HEAD, unbroken(_json(text)), self._ends[kind])
        out.append(Event("", data))

    def _last_frame(self, last: Last, out: list[Event]) -> None:
        if isinstance(last, wire.Error):
            self._fail(last, out)
        else:
            data = b"%b%b%b" % (_HEAD, one_line(_json(last)), self._ends[_Kind.WHOLE])
            out.append(Event("", data))

    @staticmethod
    def _chunk(chunk: wire.Chunk | wire.Answer, out: list[Event]) -> None:
        out.append(Event("", one_line(_json(chunk))))

    def _fail(self, error: wire.Error, out: list[Event]) -> None:
        self._phase = _Phase.OVER
        self._chunk(wire.Chunk(error=Raw(_json(error))), out)

    # Turns

    def _begin(self, kind: _Kind, id: str) -> _Turn:
        turn = _Turn(kind, id)
        self._turns.append(turn)
        return turn

    def _go_on(self, turn: _Turn, delta: str, out: list[Event]) -> None:
        turn.told += len(delta)
        if turn is self._turns[0]:
            turn.written = turn.told
            self._text_frame(turn.kind, delta, out)

    def _end(self, turn: _Turn, last: list[Last], out: list[Event]) -> None:
        turn.last = last
        self._take_turns(out)

    def _whole(self, part: Last | None, out: list[Event]) -> None:
        if part is not None:
            self._turns.append(_Turn(_Kind.WHOLE, last=[part]))
            self._take_turns(out)

    def _take_turns(self, out: list[Event]) -> None:
        """Lets everyone speak whose turn has come."""
        while self._turns and self._phase is _Phase.WRITING:
            turn = self._turns[0]
            if turn.told > turn.written:
                text = self._said(turn)[turn.written : turn.told]
                turn.written = turn.told
                self._text_frame(turn.kind, text, out)
            if turn.last is None:
                return
            self._turns.popleft()
            for last in turn.last:
                self._last_frame(last, out)
            self._written.append(turn)

    def _said(self, turn: _Turn) -> str:
        texts = self._fold.text if turn.kind is _Kind.TEXT else self._fold.reasoning
        return texts(turn.id)

    # The response

    def _metadata(self, part: ResponseMetadata, out: list[Event]) -> None:
        self._carried = Carried(self._context, self._findings, part.dialect)
        self._carried.model = part.model
        self._usage = part.usage
        self._head = _head(part.model, part.created, self._context)
        end = b'],"role":"model"},"index":0}],%b' % unbroken(_json(self._head))[1:]
        self._ends = {
            _Kind.TEXT: b"}" + end,
            _Kind.REASONING: b',"thought":true}' + end,
            _Kind.WHOLE: end,
        }

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        error = error_written(part)
        if self._carried.native:
            error.details = details_of(part.extra)
        self._fail(error, out)

    def _on_finish(self, part: Finish, out: list[Event]) -> None:
        kept = leftover_of(part) if self._carried.native else wire.Leftover()
        spots = self._spots() if self._sources else {}
        candidate = _candidate([wire.Part(text="")], part, kept)
        candidate.grounding_metadata = grounding_written(_cited(self._sources, spots), kept)
        usage = merged(self._usage, part.usage)
        self._carried.end(part, miscounted(usage))
        answer = _answer(self._head, candidate, part, usage)
        if answer.usage_metadata is not None:
            answer.usage_metadata.tool_use_prompt_token_count = self._for_tools
        self._chunk(answer, out)

    # Text and reasoning

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        self._texts[part.id] = self._begin(_Kind.TEXT, part.id)
        if part.refusal:
            self._carried.refusal()

    def _text_delta(self, part: TextDelta, out: list[Event]) -> None:
        self._go_on(self._texts[part.id], part.delta, out)

    def _text_end(self, part: TextEnd, out: list[Event]) -> None:
        signature = self._carried.signature(part.type, part)
        last: list[Last] = [wire.Part(text="", thought_signature=signature)] if signature else []
        self._end(self._texts[part.id], last, out)

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._carried.thoughts[part.id] = part
        self._thoughts[part.id] = self._begin(_Kind.REASONING, part.id)

    def _reasoning_delta(self, part: ReasoningDelta, out: list[Event]) -> None:
        self._go_on(self._thoughts[part.id], part.delta, out)

    def _reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        signature = self._carried.signature(part.type, part)
        signed = wire.Part(text="", thought=True, thought_signature=signature)
        self._end(self._thoughts[part.id], [signed] if signature else [], out)

    # Sources

    def _source(self, part: Source, out: list[Event]) -> None:
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

    def _params(
        self, part: ToolParamsStart | ToolParamsDelta | ToolParamsEnd, out: list[Event]
    ) -> None:
        """The tool-call says it all."""

    def _tool_call(self, part: ToolCall, out: list[Event]) -> None:
        self._whole(self._carried.call(part), out)

    def _tool_result(self, part: ToolResult, out: list[Event]) -> None:
        self._whole(self._carried.result(part), out)

    def _file(self, part: File, out: list[Event]) -> None:
        self._whole(self._carried.file(part), out)

    def _opaque(self, part: Opaque, out: list[Event]) -> None:
        self._whole(self._carried.opaque(part), out)

    def _approval(self, part: ToolApprovalRequest, out: list[Event]) -> None:
        self._carried.approval(part)


_HANDLERS: dict[type[Part], Callable[[ContentEncoder, Any, list[Event]], None]] = {
    ResponseMetadata: ContentEncoder._metadata,
    TextStart: ContentEncoder._text_start,
    TextDelta: ContentEncoder._text_delta,
    TextEnd: ContentEncoder._text_end,
    ReasoningStart: ContentEncoder._reasoning_start,
    ReasoningDelta: ContentEncoder._reasoning_delta,
    ReasoningEnd: ContentEncoder._reasoning_end,
    ToolParamsStart: ContentEncoder._params,
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

    It says what the stream of the same parts says: item after item, each one part, a signature
    on the part that it signs.
    """
    if response.error is not None:
        return _failed(error_written(response.error))
    carried = Carried(context, findings, response.dialect)
    carried.model = response.model
    parts: list[Last] = []
    spots: dict[str | None, Spot] = {}
    for item in response.items:
        written = _ITEMS[item.__class__](carried, item)
        if isinstance(written, wire.Error):
            return _failed(written)
        if isinstance(item, TextItem):
            spots[item.id] = (item.text, len(parts), 0)
        parts += [] if written is None else [written]
    finish = _finish(response)
    carried.end(finish, miscounted(response.usage))
    sources = [item for item in response.items if isinstance(item, Source)]
    candidate = _candidate(parts or [wire.Part(text="")], finish, wire.Leftover())
    candidate.grounding_metadata = grounding_written(_cited(sources, spots), wire.Leftover())
    head = _head(response.model, response.created, context)
    return one_line(_json(_answer(head, candidate, finish, response.usage)))


def _failed(error: wire.Error) -> bytes:
    return _json(wire.Chunk(error=Raw(_json(error))))


def _finish(response: Response) -> Finish:
    return Finish(
        response.finish_reason or "other",
        response.raw_finish_reason,
        response.usage,
        response.model,
        response.stop_sequence,
    )


def _text_item(carried: Carried, item: TextItem) -> wire.Part | None:
    signature = carried.signature("text-end", item)
    if item.refusal:
        carried.refusal()
    if not (item.text or signature):
        return None
    return wire.Part(text=item.text, thought_signature=signature)


def _thought_item(carried: Carried, item: ReasoningItem) -> wire.Part | None:
    carried.thoughts[item.id] = item
    signature = carried.signature("reasoning-end", item)
    if not (item.text or signature):
        return None
    return wire.Part(text=item.text, thought=True, thought_signature=signature)


def _elsewhere(carried: Carried, item: Source) -> None:
    """Sources stand beside the content."""


_ITEMS: dict[type[Item], Callable[[Carried, Any], Last | None]] = {
    TextItem: _text_item,
    ReasoningItem: _thought_item,
    ToolCall: Carried.call,
    ToolResult: Carried.result,
    ToolApprovalRequest: Carried.approval,
    Source: _elsewhere,
    File: Carried.file,
    Opaque: Carried.opaque,
}


# What a stream ends with, and a body is


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
