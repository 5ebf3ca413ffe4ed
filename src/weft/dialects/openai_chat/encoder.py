"""Parts into a Chat Completions stream as OpenAI itself sends it, and a response into a body.

- Every event is a chunk without an event name. The first chunk has the role, and a null `content`
  unless the answer begins with text; the last one has the finish reason and an empty delta. Usage
  follows in a chunk of its own, only if the request includes it; then `[DONE]`.
- A message has one text, one refusal and one reasoning. Clients join the parts of each; overlapping
  parts are never mixed (see `encoding/delta_field.py`).
- The index of a call is its place in order of announcement. Deltas of calls may interleave.
- All sources are in one chunk before the finish: the official client takes no second list.
- An error is written instead of the finish reason, since clients stop reading at one.
- `extra` is written only if the parts came from this dialect.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Response, merged
from weft.context import Context
from weft.dialects.base import PassthroughHistory
from weft.dialects.delta_templates import EventTemplate
from weft.dialects.openai_chat.encoding.delta_field import DeltaField
from weft.dialects.openai_chat.encoding.losses import ChatLossReporter
from weft.dialects.openai_chat.encoding.writers import ChatWriter, ChunkWriter, CompletionWriter
from weft.dialects.openai_chat.errors import ChatErrorBody, render_error
from weft.dialects.openai_chat.mapping import new_id, render_annotations, render_call
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.replay import JoinedTexts, ResponseTexts, response_to_parts
from weft.findings import Findings
from weft.large_json import write_text
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
from weft.sse import DONE, Event

_json = msgspec.json.Encoder().encode


class ChatEncoder:
    """Writes one response. `texts` joins the very parts that the encoder is fed."""

    def __init__(
        self,
        context: Context,
        texts: JoinedTexts,
        findings: Findings,
        writer: ChatWriter | None = None,
    ) -> None:
        include_usage = context.request is not None and context.request.include_usage
        self._context = context
        self._joined_texts = texts
        self._losses = ChatLossReporter(findings, (NAME, context.origin))
        self._writer: ChatWriter = writer or ChunkWriter(include_usage=include_usage)
        self._content = DeltaField(b"content")
        self._refusal = DeltaField(b"refusal")
        self._reasoning = DeltaField(b"reasoning_content")
        self._last_field: DeltaField | None = None
        """The field of the last part; None after a call or a signed reasoning."""
        self._text_fields: dict[str, DeltaField] = {}
        self._reasoning_starts: dict[str, ReasoningStart] = {}
        self._last_reasoning_delta = ""
        """Held back until the next delta or the end, whose details are written beside it."""
        # The position of a call in this dict is its index on the wire.
        self._call_heads: dict[str, bytes] = {}
        """The bytes of a chunk before a delta of each call, in order of announcement."""
        self._call_tail = b""
        self._call_cut = False
        self._sources: list[Source] = []
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self._role_pending = False

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events of these parts, each in one piece."""
        out: list[Event] = []
        for part in parts:
            _HANDLERS[part.__class__](self, part, out)
        return out

    def finish(self) -> list[Event]:
        """Returns nothing: the finish part ended the stream."""
        return []

    def resume(self, before: PassthroughHistory) -> None:
        """Clears what waits to be written with a later part: the client has it."""
        self._role_pending = False
        self._last_reasoning_delta = ""
        self._sources = []

    def keepalive(self) -> Event | None:
        # The wire has no event for it. Clients skip comments (WHATWG HTML, "9.2.6 Interpreting an
        # event stream"), so the writer sends one.
        return None

    def delta_template(self, last: Delta) -> EventTemplate | None:
        if isinstance(last, ToolParamsDelta):
            head = self._call_heads.get(last.id)
            tail = self._call_tail
            return None if head is None else EventTemplate("", head + b'"', b'"' + tail)
        field = self._reasoning if isinstance(last, ReasoningDelta) else self._text_fields[last.id]
        is_delayed = field is self._reasoning and self._losses.same_dialect
        if field.open_id != last.id or is_delayed:
            return None
        return EventTemplate("", field.head + b'"', b'"' + field.tail)

    def _unsupported(self, part: Part, out: list[Event]) -> None:
        self._losses.unsupported(part)

    # The response

    def _metadata(self, part: ResponseMetadata, out: list[Event]) -> None:
        context = self._context
        self._losses.same_dialect = part.dialect == NAME
        self._losses.model = part.model
        self._usage = part.usage
        self._writer.begin(
            context.response_id or new_id(context.ids),
            # Clients require `created`, and not every dialect says when a response was made.
            context.now if part.created is None else part.created,
            context.model_name(part.model),
            (self._content, self._refusal, self._reasoning),
        )
        self._call_tail = b"}}]}" + self._writer.tail
        # Not written yet: whether `content` is null depends on what the answer begins with.
        self._role_pending = True

    def _write_role(self, content: str | None, out: list[Event]) -> None:
        """Writes the first chunk, if it is not written yet."""
        if self._role_pending:
            self._role_pending = False
            self._writer.role(content, out)

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        self._error = part

    def _on_finish(self, part: Finish, out: list[Event]) -> None:
        # An answer without any content: a message has its role and an empty text all the same.
        self._write_role("", out)
        if self._sources:
            ids = self._content.part_ids
            lengths = [(id, len(self._joined_texts.text(id))) for id in ids]
            self._writer.annotations(render_annotations(self._sources, lengths), out)
        # Anthropic reports the input tokens with its first event, the output tokens with its last.
        usage = merged(self._usage, part.usage)
        written = self._losses.usage(usage) if self._writer.include_usage else UNSET
        if self._error is not None:
            error = render_error(self._error, same_dialect=self._losses.same_dialect)
            self._writer.error(error, written, out)
        else:
            reason = self._losses.finish_reason(
                part.reason, has_calls=bool(self._call_heads), call_cut=self._call_cut
            )
            self._writer.finish(reason, part.model, written, out)
        self._losses.stop_sequence(part.stop_sequence)
        # Also after an error: clients that wait for the terminator must not wait for ever.
        out.append(Event("", DONE))

    # Text and reasoning

    def _start_in(self, field: DeltaField, part: TextStart | ReasoningStart) -> None:
        if self._writer.joins(field, self._last_field):
            self._losses.joined(part)
        self._last_field = field
        field.start(part.id)

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        self._write_role(None if part.refusal else "", out)
        self._text_fields[part.id] = field = self._refusal if part.refusal else self._content
        self._start_in(field, part)

    def _text_delta(self, part: TextDelta, out: list[Event]) -> None:
        field = self._text_fields[part.id]
        if field.open_id == part.id:
            # Only the string is encoded; the rest of a chunk is the same bytes every time.
            out.append(Event("", b"".join((field.head, write_text(part.delta), field.tail))))
        else:
            field.buffer(part.id, part)

    def _text_end(self, part: TextEnd, out: list[Event]) -> None:
        field = self._text_fields.pop(part.id)
        if field.open_id != part.id:
            field.buffer(part.id, part)
            return
        self._write_text_extra(part, out)
        for released in field.end():
            if isinstance(released, TextDelta):
                out.append(
                    Event("", b"".join((field.head, write_text(released.delta), field.tail)))
                )
            elif isinstance(released, TextEnd):
                self._write_text_extra(released, out)

    def _write_text_extra(self, part: TextEnd, out: list[Event]) -> None:
        extra = self._losses.text_extra(part)
        if isinstance(extra, Raw):
            self._writer.text_extra(extra, out)

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._write_role(None, out)
        self._reasoning_starts[part.id] = part
        if self._writer.joins_reasoning:
            self._reasoning.start(part.id)
        else:
            self._start_in(self._reasoning, part)

    def _reasoning_delta(self, part: ReasoningDelta, out: list[Event]) -> None:
        if self._reasoning.open_id == part.id:
            self._write_reasoning(part, out)
        else:
            self._reasoning.buffer(part.id, part)

    def _reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        field = self._reasoning
        if field.open_id != part.id:
            field.buffer(part.id, part)
            return
        self._write_reasoning_end(part, out)
        for released in field.end():
            if isinstance(released, ReasoningDelta):
                self._write_reasoning(released, out)
            elif isinstance(released, ReasoningEnd):
                self._write_reasoning_end(released, out)

    def _write_reasoning(self, part: ReasoningDelta, out: list[Event]) -> None:
        delta = part.delta
        if self._losses.same_dialect:
            # One delta behind: only the end tells whether details must be written beside the last.
            delta, self._last_reasoning_delta = self._last_reasoning_delta, delta
        if delta:
            out.append(Event("", self._reasoning.head + write_text(delta) + self._reasoning.tail))

    def _write_reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        last_delta, self._last_reasoning_delta = self._last_reasoning_delta, ""
        text = self._joined_texts.reasoning(part.id)
        start = self._reasoning_starts[part.id]
        details = self._losses.reasoning_details(part, start, text)
        if details and self._last_field is self._reasoning:
            self._last_field = None  # a signature tells clients that this reasoning is complete
        if self._writer.joins_reasoning and self._reasoning.part_ids[0] != part.id:
            self._losses.check_boundary(part, start, text)
        self._writer.end_reasoning(last_delta, details, out)

    # Calls

    def _params_start(self, part: ToolParamsStart, out: list[Event]) -> None:
        if not part.provider_executed:
            self._start_call(part, out)

    def _start_call(self, part: ToolParamsStart | ToolCall, out: list[Event]) -> None:
        self._write_role(None, out)
        self._losses.check_call_kind(part)
        self._last_field = None
        # A call of this dialect has its signature in `extra`, which is complete only at its end.
        foreign = isinstance(part, ToolParamsStart) and not self._losses.same_dialect
        call = render_call(part, self._losses.call_signature(part) if foreign else UNSET)
        index = len(self._call_heads)
        self._call_heads[part.id] = self._writer.start_call(call, index, part.format, out)

    def _params_delta(self, part: ToolParamsDelta, out: list[Event]) -> None:
        head = self._call_heads.get(part.id)
        if head is not None:  # else the provider executes the call
            out.append(Event("", head + _json(part.delta) + self._call_tail))

    def _params_end(self, part: ToolParamsEnd, out: list[Event]) -> None:
        """Writes nothing: the wire does not mark the end of a call."""

    def _tool_call(self, part: ToolCall, out: list[Event]) -> None:
        if part.id not in self._call_heads:
            if not self._losses.can_write_call(part):
                return
            # A client could only run it as if it were complete.
            if part.invalid == "stream-failed":
                self._losses.not_carried(part.type, "it was never announced")
                return
            self._start_call(part, out)
            if part.params:
                head = self._call_heads[part.id]
                out.append(Event("", head + _json(part.params) + self._call_tail))
        if part.invalid == "stream-failed":
            # Its arguments are written: the finish reason must say that they are incomplete.
            self._call_cut = True
        extra = self._losses.call_extra(part)
        self._writer.end_call(part, self._call_heads[part.id], extra, out)

    # Sources

    def _source(self, part: Source, out: list[Event]) -> None:
        if self._losses.can_write_source(part):
            self._sources.append(part)


_HANDLERS: dict[type[Part], Callable[[ChatEncoder, Any, list[Event]], None]] = {
    ResponseMetadata: ChatEncoder._metadata,
    TextStart: ChatEncoder._text_start,
    TextDelta: ChatEncoder._text_delta,
    TextEnd: ChatEncoder._text_end,
    ReasoningStart: ChatEncoder._reasoning_start,
    ReasoningDelta: ChatEncoder._reasoning_delta,
    ReasoningEnd: ChatEncoder._reasoning_end,
    ToolParamsStart: ChatEncoder._params_start,
    ToolParamsDelta: ChatEncoder._params_delta,
    ToolParamsEnd: ChatEncoder._params_end,
    ToolCall: ChatEncoder._tool_call,
    ToolResult: ChatEncoder._unsupported,
    ToolApprovalRequest: ChatEncoder._unsupported,
    Source: ChatEncoder._source,
    File: ChatEncoder._unsupported,
    Opaque: ChatEncoder._unsupported,
    ErrorPart: ChatEncoder._on_error,
    Finish: ChatEncoder._on_finish,
}


# A response that is not streamed


_DELTAS = (TextDelta, ReasoningDelta, ToolParamsDelta)


def body(response: Response, context: Context, findings: Findings | None = None) -> bytes:
    """Returns the `chat.completion` of a response; of a failed one, the error body.

    It holds what the stream of the same parts holds, except the order of text, reasoning and calls.
    What it has no field for leaves a finding.
    """
    if response.error is not None:
        same_dialect = response.dialect == NAME
        return _json(ChatErrorBody(render_error(response.error, same_dialect=same_dialect)))
    writer = CompletionWriter()
    texts = ResponseTexts(response.items)
    encoder = ChatEncoder(context, texts, findings or Findings(), writer)
    parts = response_to_parts(response, in_place=True)
    # `response_to_parts` always ends with a finish; a response in progress has none.
    if response.finish_reason is None:
        parts.pop()
    # The writer of a body takes its texts from the response, in one piece.
    encoder.feed([part for part in parts if part.__class__ not in _DELTAS])
    return writer.body(response)
