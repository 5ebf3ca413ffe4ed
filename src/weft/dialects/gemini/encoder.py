"""Encodes parts as a generateContent stream, and a response as a body.

- Strict framing, because official clients require it: `data: ` and one line of JSON, then a blank
  line. No event names, no comments, no terminator; a blank line is the only keepalive.
- Texts have no ids on the wire. So one item is written at a time: items that overlap wait for their
  turn, and their text is then read from the fold.
- A call is one `functionCall` with an object of arguments, at the place where it was announced. A
  call that a client could not run waits for the finish: if the answer was cut by its limit, the
  call is left out, else the stream ends with an error. Nothing follows an error.
- The last frame has the finish reason, the usage and the sources.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from weft.assembler import Response, merged
from weft.context import Context
from weft.dialects.base import PassthroughHistory
from weft.dialects.delta_templates import EventTemplate, SilentTemplate
from weft.dialects.gemini import wire
from weft.dialects.gemini.encoding.losses import GeminiLossReporter
from weft.dialects.gemini.encoding.writers import (
    FrameWriter,
    GeminiBodyWriter,
    ItemKind,
    WrittenPart,
)
from weft.dialects.gemini.errors import render_error
from weft.dialects.gemini.grounding import render_grounding, render_segment
from weft.dialects.gemini.mapping import (
    changed_counts,
    render_finish_reason,
    render_time,
    render_usage,
)
from weft.dialects.replay import JoinedTexts, ResponseTexts, response_to_parts
from weft.findings import Findings
from weft.parts import (
    Delta,
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

_PAUSED = "the turn is paused and continues with the next request"
_AFTER_ERROR = "nothing is written after an error"


class _GeminiEncoderState(Enum):
    WRITING = "writing"
    FAILED = "failed"


TextPosition = tuple[str, int, int]
"""A text, the index of its part in the answer, and how many bytes into that part it begins."""


class _QueuedItem:
    """A text, a reasoning, or a whole part that is being written or waits for its turn."""

    __slots__ = ("final_parts", "id", "kind", "received", "truncated", "unusable", "written")

    def __init__(
        self, kind: ItemKind, id: str = "", final_parts: list[WrittenPart] | None = None
    ) -> None:
        self.kind = kind
        self.id = id
        self.received = 0
        """How many characters of its text came; `written` is how many of them were written."""
        self.written = 0
        self.final_parts = final_parts
        """The parts that are written at its end; None until it has ended."""
        self.unusable: wire.GeminiError | None = None
        """Why a client could not run the call. The finish decides what becomes of it."""
        self.truncated = False
        """Whether the call could be usable if more of it had come."""


class GeminiEncoder:
    """Encodes one response. `fold` is the fold of the parts it is fed."""

    def __init__(
        self,
        context: Context,
        fold: JoinedTexts,
        findings: Findings,
        writer: FrameWriter | None = None,
    ) -> None:
        """`writer` collects a body instead of frames."""
        self._context = context
        self._fold = fold
        self._findings = findings
        self._state = _GeminiEncoderState.WRITING
        self._writer = writer or FrameWriter()
        self._response_metadata = wire.GenerateContentResponse()
        self._losses = GeminiLossReporter(context, findings, None)
        self._usage: Usage | None = None
        self._tool_use_tokens: int | None = None
        """`toolUsePromptTokenCount` of the last frame. 0 after a resumption, so that it replaces a
        count that was passed on: `promptTokenCount` includes it now."""
        self._queue: deque[_QueuedItem] = deque()
        self._texts: dict[str, _QueuedItem] = {}
        self._reasoning: dict[str, _QueuedItem] = {}
        self._calls: dict[str, _QueuedItem] = {}
        self._written: list[_QueuedItem] = []
        self._sources: list[Source] = []

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the frames that these parts complete."""
        out: list[Event] = []
        self._writer.out = out
        for part in parts:
            if self._state is _GeminiEncoderState.WRITING:
                _HANDLERS[part.__class__](self, part)
            elif part.__class__ in _CONTENT:
                # The official clients raise at the error and read no further.
                self._losses.not_carried(part.type, "it came after an error")
            elif isinstance(part, Finish) and merged(self._usage, part.usage):
                self._losses.not_carried("usage", _AFTER_ERROR)
        return out

    def finish(self) -> list[Event]:
        """The finish part already wrote the end."""
        return []

    def resume(self, before: PassthroughHistory) -> None:
        """Sources that were passed on are not written again, and counts are replaced."""
        # They stand in the last frame; those that passed through were in the upstream's own.
        self._sources.clear()
        self._tool_use_tokens = 0

    def keepalive(self) -> Event | None:
        return None

    def delta_template(self, last: Delta) -> EventTemplate | None:
        if isinstance(last, ToolParamsDelta):
            return SilentTemplate()
        items = self._reasoning if isinstance(last, ReasoningDelta) else self._texts
        item = items[last.id]
        # Of the first in the queue everything is written at once. What is not counted there makes
        # no difference: only how much of a text waits is ever looked at.
        return self._writer.text_template(item.kind) if item is self._queue[0] else None

    # The order of items

    def _announce(self, kind: ItemKind, id: str) -> _QueuedItem:
        item = _QueuedItem(kind, id)
        self._queue.append(item)
        return item

    def _delta(self, item: _QueuedItem, delta: str) -> None:
        item.received += len(delta)
        if item is self._queue[0]:
            # Its turn: the delta goes out as it is. Others are read from the fold when theirs
            # comes.
            item.written = item.received
            self._writer.text(item.kind, delta)

    def _end(self, item: _QueuedItem, final_parts: list[WrittenPart]) -> None:
        item.final_parts = final_parts
        self._write_ready()

    def _whole_part(self, part: WrittenPart | None) -> None:
        if part is not None:
            self._queue.append(_QueuedItem(ItemKind.WHOLE, final_parts=[part]))
            self._write_ready()

    def _write_ready(self) -> None:
        """Writes the first item as far as it came; if it has ended, the next one, and so on."""
        while self._queue and self._state is _GeminiEncoderState.WRITING:
            item = self._queue[0]
            if item.received > item.written:
                # Up to what was fed, since the fold may be ahead of the encoder.
                text = self._text_of(item)[item.written : item.received]
                item.written = item.received
                self._writer.text(item.kind, text)
            if item.final_parts is None or item.unusable is not None:
                return
            self._queue.popleft()
            for part in item.final_parts:
                if item.received and isinstance(part, wire.GeminiPart):
                    # The signature signs the text before it; without text, it is a part by itself.
                    self._writer.signature(part)
                else:
                    self._writer.part(part)
            self._written.append(item)

    def _text_of(self, item: _QueuedItem) -> str:
        texts = self._fold.text if item.kind is ItemKind.TEXT else self._fold.reasoning
        return texts(item.id)

    # The response

    def _metadata(self, part: ResponseMetadata) -> None:
        self._losses = GeminiLossReporter(self._context, self._findings, part.dialect)
        self._losses.model = part.model
        self._usage = part.usage
        context = self._context
        self._response_metadata = wire.GenerateContentResponse(
            model_version=part.model or (context.request.model if context.request else None),
            response_id=context.response_id or context.ids.mint("resp"),
            create_time=None if part.created is None else render_time(part.created),
        )
        self._writer.start(self._response_metadata)

    def _on_error(self, part: ErrorPart) -> None:
        error = render_error(part)
        error.details = self._losses.extra(part.extra, wire.ErrorExtra).details
        self._fail(error)

    def _fail(self, error: wire.GeminiError) -> None:
        self._state = _GeminiEncoderState.FAILED
        self._writer.error(error)

    def _on_finish(self, part: Finish) -> None:
        usage = merged(self._usage, part.usage)
        # Only the finish tells whether a limit cut the call.
        self._resolve_unusable_calls(part)
        if self._state is _GeminiEncoderState.FAILED:
            if usage:
                self._losses.not_carried("usage", _AFTER_ERROR)
            return
        extra = self._losses.extra(part.extra, wire.GeminiFinishExtra)
        candidate = self._final_candidate(part, extra)
        self._losses.finish(part, changed_counts(usage))
        metadata = self._response_metadata
        response = wire.GenerateContentResponse(
            [candidate],
            None if usage is None else render_usage(usage),
            model_version=metadata.model_version or part.model,  # if it changed, the first one
            response_id=metadata.response_id,
            create_time=metadata.create_time,
        )
        if response.usage_metadata is not None:
            response.usage_metadata.tool_use_prompt_token_count = self._tool_use_tokens
        self._writer.finish(response)

    def _final_candidate(
        self, finish: Finish, extra: wire.GeminiFinishExtra
    ) -> wire.GeminiCandidate:
        finish_reason = render_finish_reason(finish)
        message = extra.finish_message or extra.block_reason_message
        # A pause of another dialect: the message says what `OTHER` does not. CONTINUATION has a
        # token.
        if finish.reason == "pause" and finish_reason == "OTHER":
            message = _PAUSED
        positions = self._text_positions() if self._sources else {}
        cited = [
            (source, render_segment(source, *positions[source.text_id]))
            if source.text_id in positions
            else (source, None)
            for source in self._sources
        ]
        return wire.GeminiCandidate(
            # As the last frame of the API itself: one part, with an empty text.
            wire.GeminiContent([wire.GeminiPart(text="")], "model"),
            finish_reason,
            0,
            message,
            extra.continuation_token,
            render_grounding(cited, extra),
            url_context_metadata=extra.url_context_metadata,
        )

    def _resolve_unusable_calls(self, finish: Finish) -> None:
        """Leaves out truncated calls if the limit cut the answer; else ends with an error."""
        for item in self._queue:
            error, item.unusable = item.unusable, None
            if error is None:
                continue
            self._losses.not_carried("tool-call", error.message or "")
            if finish.reason != "length" or not item.truncated:
                # Where the limit cut it, MAX_TOKENS says all. Otherwise a response without the call
                # would look like an answer, so it is an error.
                self._fail(error)
                return
        self._write_ready()

    # Text and reasoning

    def _text_start(self, part: TextStart) -> None:
        self._texts[part.id] = self._announce(ItemKind.TEXT, part.id)
        if part.refusal:
            self._losses.not_carried("text-start", "a refusal is written as text")

    def _text_delta(self, part: TextDelta) -> None:
        self._delta(self._texts[part.id], part.delta)

    def _text_end(self, part: TextEnd) -> None:
        signature = self._losses.signature(part.type, part)
        signed = wire.GeminiPart(text="", thought_signature=signature)
        self._end(self._texts[part.id], [signed] if signature else [])

    def _reasoning_start(self, part: ReasoningStart) -> None:
        self._losses.reasoning[part.id] = part
        self._reasoning[part.id] = self._announce(ItemKind.REASONING, part.id)

    def _reasoning_delta(self, part: ReasoningDelta) -> None:
        self._delta(self._reasoning[part.id], part.delta)

    def _reasoning_end(self, part: ReasoningEnd) -> None:
        signature = self._losses.signature(part.type, part)
        signed = wire.GeminiPart(text="", thought=True, thought_signature=signature)
        self._end(self._reasoning[part.id], [signed] if signature else [])

    # Sources

    def _source(self, part: Source) -> None:
        self._sources.append(part)

    def _text_positions(self) -> dict[str | None, TextPosition]:
        """Where each text is in the answer. A client joins consecutive unsigned texts into one
        part.
        """
        positions: dict[str | None, TextPosition] = {}
        # Part indices and byte offsets count in what the client has joined, not in frames.
        part, base = -1, 0
        previous: ItemKind | None = None
        for item in self._written:
            if not item.received and not item.final_parts:
                continue  # nothing of it was written
            if item.kind is not previous or item.kind is ItemKind.WHOLE:
                part, base = part + 1, 0
            if item.kind is ItemKind.TEXT:
                text = self._text_of(item)
                positions[item.id] = (text, part, base)
                base += len(text.encode())
            previous = None if item.final_parts else item.kind
        return positions

    # Calls, results, files

    def _params_start(self, part: ToolParamsStart) -> None:
        self._calls[part.id] = self._announce(ItemKind.WHOLE, part.id)

    def _params(self, part: ToolParamsDelta | ToolParamsEnd) -> None:
        """The tool-call has all arguments."""

    def _tool_call(self, part: ToolCall) -> None:
        item = self._calls.get(part.id) or self._announce(ItemKind.WHOLE, part.id)
        written = self._losses.call(part)
        if isinstance(written, wire.GeminiError):
            item.unusable = written
            item.truncated = part.invalid in ("bad-arguments", "stream-failed")
            self._end(item, [])
        else:
            self._end(item, [] if written is None else [written])

    def _tool_result(self, part: ToolResult) -> None:
        self._whole_part(self._losses.result(part))

    def _file(self, part: File) -> None:
        self._whole_part(self._losses.file(part))

    def _opaque(self, part: Opaque) -> None:
        self._whole_part(self._losses.opaque(part))

    def _approval_request(self, part: ToolApprovalRequest) -> None:
        self._losses.not_carried(part.type, "there is no part for an approval request")


_HANDLERS: dict[type[Part], Callable[[GeminiEncoder, Any], None]] = {
    ResponseMetadata: GeminiEncoder._metadata,
    TextStart: GeminiEncoder._text_start,
    TextDelta: GeminiEncoder._text_delta,
    TextEnd: GeminiEncoder._text_end,
    ReasoningStart: GeminiEncoder._reasoning_start,
    ReasoningDelta: GeminiEncoder._reasoning_delta,
    ReasoningEnd: GeminiEncoder._reasoning_end,
    ToolParamsStart: GeminiEncoder._params_start,
    ToolParamsDelta: GeminiEncoder._params,
    ToolParamsEnd: GeminiEncoder._params,
    ToolCall: GeminiEncoder._tool_call,
    ToolResult: GeminiEncoder._tool_result,
    ToolApprovalRequest: GeminiEncoder._approval_request,
    Source: GeminiEncoder._source,
    File: GeminiEncoder._file,
    Opaque: GeminiEncoder._opaque,
    ErrorPart: GeminiEncoder._on_error,
    Finish: GeminiEncoder._on_finish,
}


# Starts and ends lose nothing; the params are in the tool-call.
_CONTENT: frozenset[type[Part]] = frozenset(
    {TextDelta, ReasoningDelta, ToolCall, ToolResult, Source, File, Opaque}
)
"""Parts that are reported as lost after an error."""


def body(response: Response, context: Context, findings: Findings) -> bytes:
    """Returns the response, or the error body of a failed one.

    It equals what a client accumulates from the frames of the same response.
    """
    writer = GeminiBodyWriter()
    if response.error is not None:
        writer.error(render_error(response.error))
        return writer.body
    fold = ResponseTexts(response.items)
    parts = response_to_parts(response)
    # The same encoder with another writer: what a body says cannot differ from its stream.
    GeminiEncoder(context, fold, findings, writer).feed(parts)
    return writer.body
