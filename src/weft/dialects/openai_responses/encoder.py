"""Parts into a Responses stream, and a fold into a body.

Pure Open Responses, or its tool-session form on request.

- One allocator hands out `output_index` and item ids; one counter numbers every event.
- An item is announced by `output_item.added` with all that is known: a call with its name and
  `arguments: ""`, even if it came whole.
- What `done` events and the terminal snapshot say is read from the fold, never joined here.
- Parts with one `item_id` share an item. So a message or a reasoning stays open until another
  item begins or the response finishes, which also tells whether it was cut (`incomplete`). A
  call is closed when it is made, or by its result if that stands in the same item.
- Calls of the client do not overlap where they need not: see `encoding/calls.py`.
- What signs a call stands sealed in the reasoning before it, one made for it if there is none.
- An error is written after the ends of what is open, together with `response.failed`: clients
  stop reading there.
- A body is the last snapshot of the stream of the same parts, written by the same code.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from weft.assembler import Assembler, Response, merged
from weft.context import Context
from weft.dialects.base import PassedOn
from weft.dialects.envelope import Thought, sealed
from weft.dialects.openai_responses import output_schema as schema
from weft.dialects.openai_responses.encoding.calls import CallWriter
from weft.dialects.openai_responses.encoding.items import (
    NO_ITEM,
    EventWriter,
    FixedOutputItem,
    ItemSlot,
    MessageOutputItem,
    NullEventWriter,
    OutputWriter,
    ReasoningOutputItem,
    ReasoningPartWriter,
    TextPartWriter,
)
from weft.dialects.openai_responses.encoding.snapshot import new_response, usage_to_wire
from weft.dialects.openai_responses.errors import write_error
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.wire import NAME
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
    ReasoningKind,
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

INCOMPLETE_REASONS = {
    "length": "max_output_tokens",
    "content-filter": "content_filter",
    "pause": None,
}
"""Finish reasons that leave a response incomplete, and how the wire calls them."""

RESPONSE_STATUSES = frozenset(("completed", "incomplete", "in_progress", "queued"))
"""Statuses of a response. They stand for its reason where it told none."""

IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/svg+xml": "svg",
}
"""Files that can be the result of an image call, and how the wire calls their format."""


_json = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(schema.ErrorBody).decode


class ResponsesEncoder:
    """Writes one response. `fold` is the fold of the very parts it is fed."""

    def __init__(
        self,
        context: Context,
        fold: Assembler,
        findings: Findings,
        events: EventWriter | None = None,
    ) -> None:
        quirks = context.quirks
        wants_tool_session = (
            context.request is not None and "required_action" in context.request.include
        )
        self._context = context
        self._fold = fold
        self._findings = findings
        self._tool_session = wants_tool_session or (
            isinstance(quirks, ResponsesQuirks) and quirks.tool_session
        )
        self._shows_raw = context.request is not None and "reasoning.raw" in context.request.include
        self._events = events or EventWriter()
        self._items = OutputWriter(self._events, context.ids, findings)
        self._calls = CallWriter(self._items, fold)
        self._texts: dict[str, TextPartWriter] = {}
        self._reasonings: dict[str, ReasoningPartWriter] = {}
        self._waiting: list[schema.Annotation] = []
        """Annotations that wait for a text."""
        self._upstream_id = ""
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self.response = new_response("", 0, "", context.request)
        """The response object, as the last snapshot showed it."""

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events that these parts make, each in one piece."""
        out: list[Event] = []
        self._events.out = out
        for part in parts:
            if self._calls.deferred is not None:
                self._calls.announce_deferred(self._calls.deferred, part)
            if self._items.closable and self._error is None:
                self._items.close_before(_item_group(part))
            _HANDLERS[part.__class__](self, part)
        self._events.out = []  # what was handed out is not ours to keep
        return out

    def finish(self) -> list[Event]:
        """The finish part said it all."""
        return []

    def resume(self, passed_on: PassedOn) -> None:
        """Goes on behind the upstream's own events, with their numbers, indexes and ids. Parts of
        which only the first half was told are told on, and nothing is told twice.
        """
        self._calls.resume()
        sent = frozenset(mark[:3] for mark in passed_on.marks)
        self._events.sent = sent
        self._items.resume({mark[3]: mark[1] for mark in passed_on.marks if len(mark) == 4}, sent)
        for text in self._texts.values():
            text.update_locator()
        self._events.number = passed_on.number + 1
        self._events.out = []
        self.response.id = self._context.response_id or self._upstream_id

    def keepalive(self) -> Event | None:
        return self._events.ping() if self._tool_session and self.response.id else None

    def _write_snapshot(self, type: str, more: bytes = b"") -> None:
        if self._events.discards:
            return
        self._events.snapshot(type, _json(self.response), more)

    # The response

    def _metadata(self, part: ResponseMetadata) -> None:
        self._items.is_native = part.dialect == NAME
        response, context = self.response, self._context
        self._upstream_id = part.id
        response.id = context.response_id or context.ids.mint("resp")
        created = part.created if context.created is None else context.created
        response.created_at = context.now if created is None else created
        response.model = context.model_name(part.model)
        self._calls.model = part.model
        self._usage = part.usage
        if part.store is not None:
            self.response.store = part.store
        if self._tool_session:
            self.response.required_action = None
        self._write_snapshot("response.created")
        self._write_snapshot("response.in_progress")

    def _on_error(self, part: ErrorPart) -> None:
        self._calls.fail()
        self._items.close_ready()
        self._error = part

    def _on_finish(self, part: Finish) -> None:
        self._close_open_items(part)
        response = self.response
        if self._context.request is None:  # else it is the one that was asked for, from the first
            response.model = part.model or response.model
        response.output = self._items.closed_items()
        response.usage = usage_to_wire(merged(self._usage, part.usage))
        response.service_tier = self._service_tier(part) or response.service_tier
        if self._error is not None and self._error.kind == "cancelled":
            self._incomplete("cancelled", "cancelled")
        elif self._error is not None:
            self._failed(self._error)
        elif self._is_incomplete(part):
            self._incomplete("incomplete", self._incomplete_reason(part))
        else:
            self._completed(part)
        self._events.out.append(Event("", DONE))

    def _service_tier(self, part: Finish) -> str | None:
        """The tier that served the response, if it came from this dialect and told one."""
        extra = (
            schema.decode_extra(part.extra, schema.ResponsesFinishExtra)
            if self._items.is_native
            else None
        )
        return extra.response.service_tier if extra and extra.response else None

    def _incomplete(self, status: str, reason: str | None) -> None:
        """Also a response that somebody cancelled: nothing went wrong, and clients know no event
        of that name.
        """
        self.response.status = status
        self.response.incomplete_details = schema.IncompleteDetails(reason) if reason else None
        self._write_snapshot("response.incomplete")

    def _is_incomplete(self, part: Finish) -> bool:
        """Whether the response is incomplete. One of this dialect is what it was."""
        if self._items.is_native and part.raw_reason is not None and not self._calls.is_cut:
            return part.raw_reason != "completed" and part.reason in (*INCOMPLETE_REASONS, "other")
        return part.reason in INCOMPLETE_REASONS or self._calls.is_cut

    def _incomplete_reason(self, part: Finish) -> str | None:
        """The wire's word for what cut the response; None if it has no word for it."""
        if part.reason == "other":
            return part.raw_reason if part.raw_reason not in RESPONSE_STATUSES else None
        return INCOMPLETE_REASONS.get(part.reason, "tool_call_incomplete")

    def _close_open_items(self, part: Finish) -> None:
        """What an error found open is incomplete, and calls are not even done; what a limit cut
        tells each kind itself. Items of this dialect that were cut said so.
        """
        failed = self._error is not None
        cut = self._is_incomplete(part)
        for item in self._items.open_items():
            if failed and not item.closes_on_error:
                self._items.abandon(item)
                continue
            last = item is self._items.last and not self._items.is_native
            incomplete = failed or (cut and item.is_cut(last))
            self._items.close(item, "incomplete" if incomplete else "completed")
        if self._waiting:
            self._items.not_carried("source", "no text to annotate")

    def _completed(self, part: Finish) -> None:
        response = self.response
        if part.reason == "other":
            self._items.not_carried(part.type, f"no status for {part.raw_reason or part.reason}")
        response.status = "completed"
        response.completed_at = max(self._context.now, response.created_at)
        if self._tool_session and self._calls.pending and part.reason == "tool-calls":
            action = schema.RequiredAction(schema.SubmitToolOutputs(self._calls.pending))
            response.status, response.completed_at = "incomplete", None
            response.required_action = action
            more = b',"required_action":%b' % _json(action)
            self._write_snapshot("response.required_action", more)
        self._write_snapshot("response.completed")

    def _failed(self, error: ErrorPart) -> None:
        """The error as a body would have it: both flat, as the official client types it, and
        nested, as the text does.
        """
        detail = _decode_error(write_error(error)[1]).error
        flat = b'"code":%b,"message":%b,"param":%b,"error":' % (
            _json(detail.code),
            _json(detail.message),
            _json(detail.param),
        )
        self._events.write("error", NO_ITEM, flat, _json(detail))
        self.response.status = "failed"
        self.response.error = schema.ResponseError(detail.code or detail.type, detail.message)
        self._write_snapshot("response.failed")

    # Text

    def _open_message(self, part: TextStart) -> MessageOutputItem:
        """The message that has one more part now."""
        item = self._items.open_item(part.item_id, MessageOutputItem)
        if item is None:
            item = MessageOutputItem(self._items.allocate(part.item_id, "msg"), part)
            self._items.add(item)
        item.open += 1
        return item

    def _text_start(self, part: TextStart) -> None:
        item = self._open_message(part)
        self._texts[part.id] = text = TextPartWriter(item, part.refusal)
        item.parts.append(text.render(""))
        empty = _json(text.render(""))
        self._events.write(
            "response.content_part.added", text.position, text.locator, b',"part":', empty
        )
        if not part.refusal:
            waiting, self._waiting = self._waiting, []
            for annotation in waiting:
                self._annotate(text, annotation)

    def _text_delta(self, part: TextDelta) -> None:
        self._events.delta(self._texts[part.id].delta_prefix, part.delta)

    def _text_end(self, part: TextEnd) -> None:
        text = self._texts.pop(part.id)
        item_extra = self._items.item_extra(part.extra)
        self._take_text_end(text, part, item_extra)
        full_text = self._fold.text(part.id)
        if text.refusal:
            refusal = b',"refusal":'
            self._events.write(
                "response.refusal.done", text.position, text.locator, refusal, _json(full_text)
            )
        else:  # each spelling of a long text lives for one event only
            logprobs = b',"logprobs":%b,"text":' % _json(text.logprobs)
            type = "response.output_text.done"
            self._events.write(type, text.position, text.locator, logprobs, _json(full_text))
        text.item.parts[text.index] = whole = text.render(full_text)
        done = "response.content_part.done"
        self._events.write(done, text.position, text.locator, b',"part":', _json(whole))
        self._items.part_done(text.item)

    def _take_text_end(
        self, text: TextPartWriter, part: TextEnd, item_extra: schema.ItemExtra
    ) -> None:
        """What only the end of a text tells."""
        if part.signature is not None:
            self._items.not_carried(part.type, f"its proof goes back to {part.origin} only")
        text.logprobs = item_extra.logprobs or text.logprobs
        text.item.phase = item_extra.phase or text.item.phase
        text.item.extra_fields |= schema.without_identity(item_extra.item)
        if self._items.is_native:
            streamed = Counter(
                bytes(annotation) for annotation in text.annotations if isinstance(annotation, Raw)
            )
            for annotation in part.annotations:
                if streamed[bytes(annotation)]:
                    streamed[bytes(annotation)] -= 1
                else:  # of a kind that is no source
                    self._annotate(text, annotation)

    def _source(self, part: Source) -> None:
        text = self._texts.get(part.text_id or "")
        if text is None and part.text_id is not None:  # where it stood in another text is no help
            part = Source(part.id, part.kind, url=part.url, file_id=part.file_id, title=part.title)
        annotation = self._annotation(part)
        texts = [text for text in self._texts.values() if not text.refusal]
        if annotation is None:
            self._items.not_carried(part.type, "neither an address nor a file")
        elif text is not None or texts:
            self._annotate(text or texts[-1], annotation)
        else:
            self._waiting.append(annotation)

    def _annotation(self, source: Source) -> schema.Annotation | None:
        """What a source is beside its text; None for one that has no place there."""
        if self._items.is_native and isinstance(source.raw, Raw):
            return source.raw
        if source.url is not None:
            if source.start is None or source.end is None:
                reason = "its place is not known, and this wire wants one: 0 to 0"
                self._items.not_carried(source.type, reason)
            title, start, end = source.title or "", source.start or 0, source.end or 0
            return schema.AnnotationUrlCitation(source.url, title, start, end)
        if source.file_id is not None:
            return schema.AnnotationFileCitation(
                source.file_id, source.title or "", source.end or 0
            )
        return None

    def _annotate(self, text: TextPartWriter, annotation: schema.Annotation) -> None:
        key = b',"annotation_index":%d,"annotation":' % len(text.annotations)
        text.annotations.append(annotation)
        event = "response.output_text.annotation.added"
        self._events.write(event, text.position, text.locator, key, _json(annotation))

    # Reasoning

    def _reasoning_start(self, part: ReasoningStart) -> None:
        kind: ReasoningKind = part.kind if self._shows_raw else "summary"
        item = self._items.open_item(part.item_id, ReasoningOutputItem)
        if item is None:
            item = ReasoningOutputItem(self._items.allocate(part.item_id, "rs"), part, kind)
            self._items.add(item)
        item.open += 1
        self._reasonings[part.id] = ReasoningPartWriter(item, part, kind)

    def _reasoning_delta(self, part: ReasoningDelta) -> None:
        reasoning = self._reasonings[part.id]
        if reasoning.index is None:
            reasoning.assign_index()
            empty = _json(reasoning.part_type.content(""))
            added = reasoning.part_type.part_event + ".added"
            self._events.write(added, reasoning.position, reasoning.locator, b',"part":', empty)
        self._events.delta(reasoning.delta_prefix, part.delta)

    def _reasoning_end(self, part: ReasoningEnd) -> None:
        reasoning = self._reasonings.pop(part.id)
        if reasoning.index is not None:
            reasoning.text = self._fold.reasoning(part.id)
            done, text = reasoning.part_type.text_event + ".done", _json(reasoning.text)
            self._events.write(done, reasoning.position, reasoning.locator, b',"text":', text)
            done = reasoning.part_type.part_event + ".done"
            self._events.write(
                done, reasoning.position, reasoning.locator, b',"part":', _json(reasoning.render())
            )
        reasoning.item.encrypted_content = (
            self._encrypted_content(part, reasoning) or reasoning.item.encrypted_content
        )
        reasoning.item.extra_fields |= schema.without_identity(
            self._items.item_extra(part.extra).item
        )
        self._items.part_done(reasoning.item)

    def _encrypted_content(self, part: ReasoningEnd, reasoning: ReasoningPartWriter) -> str | None:
        """The encrypted content. A proof from elsewhere is sealed, never forged."""
        item = reasoning.item
        signed = part.encrypted or part.signature or part.redacted
        if part.encrypted and part.origin in (NAME, self._context.origin):
            encrypted: str | None = part.encrypted
        else:
            before = [
                earlier for earlier in item.parts if earlier is not reasoning and earlier.text
            ]
            encrypted = sealed(
                part,
                self._calls.model,
                reasoning.start,
                self._fold.reasoning(part.id),  # clients may return none of it
                tuple(Thought(earlier.start.kind, earlier.text) for earlier in before),
            )
        if signed and encrypted is None:
            self._items.not_carried(part.type, "nobody knows whose its proof is")
        if encrypted is not None and item.encrypted_content is not None:
            self._items.not_carried(part.type, "an item has one proof: the last one")
        return encrypted

    # Items that come whole

    def _write_fixed_item(self, slot: ItemSlot, raw: Raw) -> None:
        item = FixedOutputItem(slot, raw)
        self._items.add(item)
        self._items.close(item, "completed")

    def _file(self, part: File) -> None:
        format = IMAGE_FORMATS.get(part.media_type)
        if format is None or part.data is None or part.reasoning:
            self._items.not_carried(part.type, "only a whole image has an item here")
            return
        slot = self._items.allocate(None, "ig")
        self._write_fixed_item(
            slot, Raw(_json(schema.ImageGenerationCall(slot.id, part.data, format)))
        )

    def _opaque(self, part: Opaque) -> None:
        id = schema.decode_extra(part.raw, schema.ItemIdentity).id
        if part.origin != NAME:
            self._items.not_carried(part.type, f"{part.kind} belongs to {part.origin}")
        elif part.kind.startswith("response.audio."):
            self._write_event(part)
        elif (content := self._items.item_extra(part.extra).content) is not None:
            self._write_content_part(part.raw, content.item_id)
        elif id in self._items.ids:
            self._items.not_carried(part.type, f"item {id!r} was written before")
        else:
            self._write_fixed_item(self._items.allocate(id, "item"), part.raw)

    def _write_content_part(self, raw: Raw, item_id: str | None) -> None:
        """A part of a message that is no text."""
        item = self._open_message(TextStart("", item_id))
        position = (item.index, len(item.parts))
        locator = item.locator + b',"content_index":%d,"part":' % len(item.parts)
        item.parts.append(raw)
        self._events.write("response.content_part.added", position, locator, bytes(raw))
        self._events.write("response.content_part.done", position, locator, bytes(raw))
        self._items.part_done(item)

    def _write_event(self, part: Opaque) -> None:
        """An event that is no item goes out again, with a number of this stream."""
        fields = schema.object_fields(part.raw) or {}
        fields = {key: fields[key] for key in fields if key not in ("type", "sequence_number")}
        if fields:
            self._events.write(part.kind, NO_ITEM, _json(fields)[1:-1])


def _item_group(part: Part) -> str | None:
    """The item that a part may go on with."""
    return part.item_id if isinstance(part, TextStart | ReasoningStart) else None


def _of_calls(handle: Callable[[CallWriter, Any], None]) -> Callable[[ResponsesEncoder, Any], None]:
    return lambda encoder, part: handle(encoder._calls, part)


_HANDLERS: dict[type[Part], Callable[[ResponsesEncoder, Any], None]] = {
    ResponseMetadata: ResponsesEncoder._metadata,
    TextStart: ResponsesEncoder._text_start,
    TextDelta: ResponsesEncoder._text_delta,
    TextEnd: ResponsesEncoder._text_end,
    ReasoningStart: ResponsesEncoder._reasoning_start,
    ReasoningDelta: ResponsesEncoder._reasoning_delta,
    ReasoningEnd: ResponsesEncoder._reasoning_end,
    ToolParamsStart: _of_calls(CallWriter.params_start),
    ToolParamsDelta: _of_calls(CallWriter.params_delta),
    ToolParamsEnd: _of_calls(CallWriter.params_end),
    ToolCall: _of_calls(CallWriter.tool_call),
    ToolResult: _of_calls(CallWriter.tool_result),
    ToolApprovalRequest: _of_calls(CallWriter.approval),
    Source: ResponsesEncoder._source,
    File: ResponsesEncoder._file,
    Opaque: ResponsesEncoder._opaque,
    ErrorPart: ResponsesEncoder._on_error,
    Finish: ResponsesEncoder._on_finish,
}


# A response that is not streamed


def body(response: Response, context: Context, findings: Findings | None = None) -> bytes:
    """Returns the response object of a fold; of a failed one, the error body.

    It is what the stream of the same parts ends with. Whatever it cannot say leaves a finding.
    """
    error = response.error
    if error is not None:
        return write_error(ErrorPart(error.kind, error.message, error.code, error.status))[1]
    fold = Assembler()
    encoder = ResponsesEncoder(context, fold, findings or Findings(), NullEventWriter())
    parts = response_to_parts(response)
    for part in parts:
        fold.feed(part)
    encoder.feed(parts)
    return _json(encoder.response)
