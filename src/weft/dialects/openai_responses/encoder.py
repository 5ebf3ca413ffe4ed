"""Encodes parts as a Responses stream, and a fold as a body.

The stream is plain Open Responses, or its tool-session form on request.

- One allocator hands out `output_index` and item ids; one counter numbers the events.
- `output_item.added` has every field that is known by then: a call has its name and
  `arguments: ""`, even if it came whole (Open Responses, Items are streamable).
- The full values of `done` events and of the terminal snapshot are read from the fold.
- Parts with the same `item_id` share an item. So a message or reasoning item stays open until
  another item starts or the response finishes, which also decides whether it is `incomplete`. A
  call is closed after the tool-call, or after its result if that is part of the same item.
- Client calls do not overlap: see `encoding/calls.py`.
- The signature of a call is written into the reasoning item before it, or into one made for it.
- An error is written after the ends of open items, followed by `response.failed`, because clients
  stop reading there (Open Responses, Errors).
- A body is the last snapshot of the stream of the same parts, written by the same code.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from weft import large_json
from weft.assembler import Response, merged
from weft.context import Context
from weft.dialects.base import PassthroughHistory
from weft.dialects.delta_templates import EventTemplate
from weft.dialects.envelope import ReasoningText, wrap_reasoning
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.encoding.calls import CallWriter
from weft.dialects.openai_responses.encoding.events import NO_ITEM, EventWriter, NullEventWriter
from weft.dialects.openai_responses.encoding.items import (
    FixedOutputItem,
    ItemSlot,
    MessageOutputItem,
    OutputWriter,
    ReasoningOutputItem,
    ReasoningPartWriter,
    TextPartWriter,
)
from weft.dialects.openai_responses.encoding.snapshot import new_response
from weft.dialects.openai_responses.errors import render_error, write_error
from weft.dialects.openai_responses.extra import ItemExtra, ResponsesFinishExtra, without_identity
from weft.dialects.openai_responses.mapping import INCOMPLETE_REASONS, usage_to_wire
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.raw_json import decode_or_default, to_one_line
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

RESPONSE_STATUSES = frozenset(("completed", "incomplete", "in_progress", "queued"))
"""Statuses, which the decoder gives as raw reason if a response has no other."""

# An image generation call is the only item that holds a file.
IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/svg+xml": "svg",
}
"""Media types that an image generation call can have, and its `output_format`."""


_json = msgspec.json.Encoder().encode


class ResponsesEncoder:
    """Encodes one response. `fold` is the fold of the parts that are fed."""

    def __init__(
        self,
        context: Context,
        fold: JoinedTexts,
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
        self._calls: CallWriter | None = None
        """None as long as there is no call."""
        self._model: str | None = None
        """The model of the response."""
        self._texts: dict[str, TextPartWriter] = {}
        self._reasonings: dict[str, ReasoningPartWriter] = {}
        self._waiting: list[Raw] = []
        """Annotations that came before their text."""
        self._upstream_id = ""
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self._echo_is_short = False
        """Whether the first snapshot, which echoes the request, has no long string."""
        self.response = new_response("", 0, "", context.request)
        """The response object, as in the last snapshot."""

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events of these parts."""
        out: list[Event] = []
        self._events.out = out
        for part in parts:
            # Order matters: the deferred item is announced before any other starts, and items that
            # only waited for more parts are closed before the next part writes anything.
            calls = self._calls
            if calls is not None and calls.deferred is not None:
                calls.announce_deferred(calls.deferred, part)
            if self._items.closable and self._error is None:
                # only a text or reasoning continues an item
                group = part.item_id if isinstance(part, TextStart | ReasoningStart) else None
                self._items.close_before(group)
            _HANDLERS[part.__class__](self, part)
        self._events.out = []  # the caller owns what was returned
        return out

    def finish(self) -> list[Event]:
        """Returns nothing: the finish part ends the stream."""
        return []

    def resume(self, passed_on: PassthroughHistory) -> None:
        """Continues after the upstream's own events, with their numbers, indexes and ids. Open
        parts are continued, and nothing is written twice.
        """
        if self._calls is not None:
            self._calls.resume()
        sent = frozenset(mark[:3] for mark in passed_on.event_keys)
        self._events.sent = sent
        self._items.resume(
            {mark[3]: mark[1] for mark in passed_on.event_keys if len(mark) == 4}, sent
        )
        for text in self._texts.values():
            text.update_locator()
        # The client has seen the numbers up to here, and resumes a broken stream by them.
        self._events.number = passed_on.number + 1
        self._events.out = []
        self.response.id = self._context.response_id or self._upstream_id

    def keepalive(self) -> Event | None:
        return self._events.ping() if self._tool_session and self.response.id else None

    def _write_snapshot(self, type: str, more: bytes = b"") -> None:
        # A body is rendered once, at the end.
        if self._events.discards:
            return
        response = self.response
        # Then no string in it is long: what else has changed is words and counts, or an error.
        short = self._echo_is_short and response.error is None
        for item in response.output:
            short = short and item.__class__ is Raw  # see EventWriter.write_value
        snapshot = to_one_line(_json(response) if short else large_json.write(response))
        self._events.write(type, NO_ITEM, b'"response":', snapshot, more, snapshot=snapshot)

    def _call_writer(self) -> CallWriter:
        if self._calls is None:
            self._calls = CallWriter(self._items, self._fold, self._model)
        return self._calls

    # The response

    def _metadata(self, part: ResponseMetadata) -> None:
        self._items.is_native = part.dialect == NAME
        response, context = self.response, self._context
        self._upstream_id = part.id
        response.id = context.response_id or context.ids.mint("resp")
        created = part.created if context.created is None else context.created
        # An integer: the specification rejects fractions of a second.
        response.created_at = context.now if created is None else created
        response.model = context.model_name(part.model)
        self._model = part.model
        self._usage = part.usage
        if part.store is not None:
            response.store = part.store
        if self._tool_session:
            response.required_action = None
        if self._events.discards:
            return
        snapshot = to_one_line(large_json.write(response))
        self._echo_is_short = len(snapshot) <= large_json.SLICE
        # Both at once: nothing happens between them here.
        for type in ("response.created", "response.in_progress"):
            self._events.write(type, NO_ITEM, b'"response":', snapshot, snapshot=snapshot)

    def _on_error(self, part: ErrorPart) -> None:
        # The error itself is written with the finish, after the ends of open items: the official
        # client raises at an `error` event and reads nothing behind it.
        self._call_writer().fail()
        self._items.close_ready()
        self._error = part

    def _on_finish(self, part: Finish) -> None:
        is_cut = self._calls is not None and self._calls.is_cut
        is_incomplete = is_cut or part.reason in INCOMPLETE_REASONS
        # One from this dialect keeps its status. A reason that no other dialect knows
        # (`max_messages`) is incomplete here too.
        if self._items.is_native and part.raw_reason is not None and not is_cut:
            reasons = (*INCOMPLETE_REASONS, "other")
            is_incomplete = part.raw_reason != "completed" and part.reason in reasons
        self._close_open_items(cut=is_incomplete)
        response = self.response
        # An upstream may answer under a dated name of the model, which the client did not ask for.
        if self._context.request is None:  # else it is the requested one
            response.model = part.model or response.model
        response.output = self._items.closed_items()
        response.usage = usage_to_wire(merged(self._usage, part.usage))
        # The tier that served the response may differ from the requested one, which the snapshot
        # echoes.
        if self._items.is_native:
            finish = decode_or_default(part.extra, ResponsesFinishExtra).response
            response.service_tier = (finish and finish.service_tier) or response.service_tier
        if self._error is not None and self._error.kind == "cancelled":
            self._incomplete("cancelled", "cancelled")
        elif self._error is not None:
            self._failed(self._error)
        elif is_incomplete:
            reason = INCOMPLETE_REASONS.get(part.reason, "tool_call_incomplete")
            # In a response of this dialect, the raw reason is the reason, unless it had none and is
            # the status.
            if part.reason == "other":
                reason = None if part.raw_reason in RESPONSE_STATUSES else part.raw_reason
            self._incomplete("incomplete", reason)
        else:
            self._completed(part)
        # The specification requires it after the terminal event, without a name.
        self._events.out.append(Event("", DONE))

    def _incomplete(self, status: str, reason: str | None) -> None:
        """Ends an incomplete response. A cancelled one ends like this too: it did not fail, and
        there is no event for it.
        """
        self.response.status = status
        self.response.incomplete_details = wire.IncompleteDetails(reason) if reason else None
        self._write_snapshot("response.incomplete")

    def _close_open_items(self, *, cut: bool) -> None:
        """Closes open items. After an error they are incomplete, and calls are not closed at all.
        In an incomplete response each item knows whether it was cut off; those from this dialect
        were closed with their status.
        """
        # An incomplete item must be the last one, and makes the response incomplete (Open
        # Responses, State machines). So only the last message or reasoning counts as cut by a
        # limit.
        failed = self._error is not None
        for item, is_last in self._items.open_items():
            if failed and not item.closes_on_error:
                self._items.abandon(item)
                continue
            incomplete = failed or (cut and item.is_cut(is_last and not self._items.is_native))
            self._items.close(item, "incomplete" if incomplete else "completed")
        if self._waiting:
            self._items.not_carried("source", "there is no text to annotate")

    def _completed(self, part: Finish) -> None:
        response = self.response
        if part.reason == "other":
            reason = part.raw_reason or part.reason
            self._items.not_carried(part.type, f"no status for {reason!r}")
        response.status = "completed"
        # An upstream's clock may be ahead of ours.
        response.completed_at = max(self._context.now, response.created_at)
        # `incomplete` until the tool outputs come. The specification itself has no such state:
        # there a turn that ends in calls is completed.
        pending = self._calls.pending if self._calls is not None else []
        if self._tool_session and pending and part.reason == "tool-calls":
            action = wire.RequiredAction(wire.SubmitToolOutputs(pending))
            response.status, response.completed_at = "incomplete", None
            response.required_action = action
            more = b',"required_action":%b' % _json(action)
            self._write_snapshot("response.required_action", more)
        self._write_snapshot("response.completed")

    def _failed(self, error: ErrorPart) -> None:
        """Writes the error, its fields both at the top level, as the official client types them,
        and nested, as the specification describes them.
        """
        # The official client types the fields flat; the suite of the specification accepts only
        # nested ones. `response.failed` follows, because some clients ignore `error` events.
        detail = render_error(error)
        flat = b'"code":%b,"message":%b,"param":%b,"error":' % (
            _json(detail.code),
            _json(detail.message),
            _json(detail.param),
        )
        self._events.write("error", NO_ITEM, flat, _json(detail))
        self.response.status = "failed"
        # `response.error` has these two keys, and the `error` event four.
        self.response.error = wire.ResponseError(detail.code or detail.type, detail.message)
        self._write_snapshot("response.failed")

    # Text

    def _open_message(self, part: TextStart) -> MessageOutputItem:
        """Returns the message that a new part belongs to."""
        # Parts with the same item id are parts of one message, and arrive in any order among other
        # items.
        item = self._items.open_item(part.item_id, MessageOutputItem)
        if item is None:
            item = MessageOutputItem(self._items.allocate(part.item_id, "msg"), part)
            self._items.add(item)
        item.open += 1
        return item

    def _text_start(self, part: TextStart) -> None:
        item = self._open_message(part)
        self._texts[part.id] = text = TextPartWriter(item, part.refusal)
        empty = text.render("")
        item.parts.append(empty)
        self._events.write(
            "response.content_part.added", text.position, text.locator, b',"part":', _json(empty)
        )
        # A refusal has no annotations.
        if not part.refusal:
            waiting, self._waiting = self._waiting, []
            for annotation in waiting:
                self._annotate(text, annotation)

    def delta_template(self, last: Delta) -> EventTemplate | None:
        kind = last.__class__
        if kind is ToolParamsDelta:
            return self._call_writer().delta_template(last.id)
        # Both are open, and the reasoning has its part: they have just got a delta.
        writers = self._reasonings if kind is ReasoningDelta else self._texts
        return self._events.delta_template(writers[last.id].delta_prefix)

    def _text_delta(self, part: TextDelta) -> None:
        self._events.delta(self._texts[part.id].delta_prefix, part.delta)

    def _text_end(self, part: TextEnd) -> None:
        text = self._texts.pop(part.id)
        # Texts of another dialect may be signed; this one has no field for it.
        if part.signature is not None:
            self._items.not_carried(part.type, f"its signature is only for {part.origin!r}")
        if self._items.is_native:
            self._take_text_end(text, part, self._items.item_extra(part.extra))
        full_text = self._fold.text(part.id)
        if text.refusal:
            type, key = "response.refusal.done", b',"refusal":'
        else:
            type = "response.output_text.done"
            key = b',"logprobs":%b,"text":' % bytes(text.logprobs)
        # The same text goes out four times: here, in its part, in its item and in the snapshot.
        short = len(full_text) <= large_json.SLICE
        self._events.write_value(
            type, text.position, text.locator, key, value=full_text, short=short
        )
        whole, short = text.render(full_text), short and text.is_plain
        type, key = "response.content_part.done", b',"part":'
        text.item.parts[text.index] = self._events.write_value(
            type, text.position, text.locator, key, value=whole, short=short
        )
        self._items.part_done(text.item)

    def _take_text_end(self, text: TextPartWriter, part: TextEnd, item_extra: ItemExtra) -> None:
        """Takes what only the end of a text of this dialect has."""
        if item_extra.logprobs:
            text.logprobs = wire.to_raw(item_extra.logprobs)
        text.item.phase = item_extra.phase or text.item.phase
        text.item.extra_fields |= without_identity(item_extra.item)
        # Annotations without a target were never emitted as sources. The count tells apart equal
        # ones.
        streamed = Counter(map(bytes, text.annotations))
        for annotation in part.annotations:
            if streamed[bytes(annotation)]:
                streamed[bytes(annotation)] -= 1
            else:  # not emitted as a source
                self._annotate(text, annotation)

    def _source(self, part: Source) -> None:
        text = self._texts.get(part.text_id or "")
        if text is None and part.text_id is not None:  # its range is meaningless in another text
            part = Source(part.id, part.kind, url=part.url, file_id=part.file_id, title=part.title)
        annotation = self._annotation(part)
        # A source of another dialect may name no text: the open one that began last gets it, or the
        # next.
        texts = [text for text in self._texts.values() if not text.refusal]
        if annotation is None:
            self._items.not_carried(part.type, "a source without URL and file id")
        elif text is not None or texts:
            self._annotate(text or texts[-1], annotation)
        else:
            self._waiting.append(annotation)

    def _annotation(self, source: Source) -> Raw | None:
        """Returns the annotation of a source; None if it has no URL and no file."""
        if self._items.is_native and isinstance(source.raw, Raw):
            return source.raw
        if source.url is not None:
            if source.start is None or source.end is None:
                reason = "its range is unknown; written as 0 to 0"
                self._items.not_carried(source.type, reason)
            citation = wire.ResponsesAnnotation(
                "url_citation",
                source.url,
                source.title or "",
                # All four keys of a citation are required, so an unknown range is 0 to 0.
                start_index=source.start or 0,
                end_index=source.end or 0,
            )
        elif source.file_id is not None:
            citation = wire.ResponsesAnnotation(
                "file_citation",
                file_id=source.file_id,
                filename=source.title or "",
                index=wire.to_raw(source.end or 0),
            )
        else:
            return None
        return wire.to_raw(citation)

    def _annotate(self, text: TextPartWriter, annotation: Raw) -> None:
        key = b',"annotation_index":%d,"annotation":' % len(text.annotations)
        text.annotations.append(annotation)
        event = "response.output_text.annotation.added"
        self._events.write(event, text.position, text.locator, key, _json(annotation))

    # Reasoning

    def _reasoning_start(self, part: ReasoningStart) -> None:
        # Every known client reads summaries; few read raw reasoning.
        kind: ReasoningKind = part.kind if self._shows_raw else "summary"
        item = self._items.open_item(part.item_id, ReasoningOutputItem)
        if item is None:
            item = ReasoningOutputItem(self._items.allocate(part.item_id, "rs"), part, kind)
            self._items.add(item)
        item.open += 1
        self._reasonings[part.id] = ReasoningPartWriter(item, part, kind)

    def _reasoning_delta(self, part: ReasoningDelta) -> None:
        reasoning = self._reasonings[part.id]
        # An empty reasoning has no parts on this wire, only its item.
        if reasoning.index is None:
            reasoning.assign_index()
            empty = _json(reasoning.render())
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
        reasoning.item.extra_fields |= self._items.item_fields(part.extra)
        self._items.part_done(reasoning.item)

    def _encrypted_content(self, part: ReasoningEnd, reasoning: ReasoningPartWriter) -> str | None:
        """Returns the encrypted content. That of another origin is wrapped in an envelope."""
        item = reasoning.item
        signed = part.encrypted or part.signature or part.redacted
        # The client sends it back to the same upstream. Content of any other origin is wrapped, so
        # that it is recognised and never sent there.
        if part.encrypted and part.origin in (NAME, self._context.origin):
            encrypted: str | None = part.encrypted
        else:
            before = [
                earlier for earlier in item.parts if earlier is not reasoning and earlier.text
            ]
            encrypted = wrap_reasoning(
                part,
                self._model,
                reasoning.start,
                self._fold.reasoning(part.id),  # clients may not send the text back
                tuple(ReasoningText(earlier.start.kind, earlier.text) for earlier in before),
            )
        if signed and encrypted is None:
            self._items.not_carried(part.type, "the origin of its signature is unknown")
        if encrypted is not None and item.encrypted_content is not None:
            self._items.not_carried(
                part.type, "an item has one encrypted content; the last one is kept"
            )
        return encrypted

    # Whole items

    def _write_fixed_item(self, slot: ItemSlot, raw: Raw) -> None:
        item = FixedOutputItem(slot, raw)
        self._items.add(item)
        self._items.close(item, "completed")

    def _file(self, part: File) -> None:
        format = IMAGE_FORMATS.get(part.media_type)
        if format is None or part.data is None or part.reasoning:
            self._items.not_carried(part.type, "only a whole image has an item type")
            return
        slot = self._items.allocate(None, "ig")
        self._write_fixed_item(
            slot, wire.to_raw(wire.ImageGenerationCall(slot.id, part.data, format))
        )

    def _opaque(self, part: Opaque) -> None:
        id = decode_or_default(part.raw, wire.Identity).id
        if part.origin != NAME:
            self._items.not_carried(part.type, f"{part.kind!r} belongs to {part.origin}")
        # Only audio becomes an event of its own. Otherwise an upstream could end the response with
        # an item of the type `response.failed`.
        elif part.kind.startswith("response.audio."):
            fields = wire.parse_object(part.raw) or {}
            body = {key: fields[key] for key in fields if key not in ("type", "sequence_number")}
            # An event needs fields behind its number; one without any carries nothing.
            if body:
                self._events.write(part.kind, NO_ITEM, _json(body)[1:-1])
        elif (content := self._items.item_extra(part.extra).content) is not None:
            self._write_content_part(part.raw, content.item_id)
        elif id in self._items.ids:
            self._items.not_carried(part.type, f"item {id!r} was written before")
        else:
            self._write_fixed_item(self._items.allocate(id, "item"), part.raw)

    def _write_content_part(self, raw: Raw, item_id: str | None) -> None:
        """Writes a content part that is not text."""
        # The message may have been opened by a text, or this is its first part.
        item = self._open_message(TextStart("", item_id))
        position = (item.index, len(item.parts))
        locator = item.locator + b',"content_index":%d,"part":' % len(item.parts)
        item.parts.append(raw)
        self._events.write("response.content_part.added", position, locator, bytes(raw))
        self._events.write("response.content_part.done", position, locator, bytes(raw))
        self._items.part_done(item)


def _of_calls(handle: Callable[[CallWriter, Any], None]) -> Callable[[ResponsesEncoder, Any], None]:
    return lambda encoder, part: handle(encoder._call_writer(), part)


_HANDLERS: dict[type[Part], Callable[[ResponsesEncoder, Any], None]] = {
    ResponseMetadata: ResponsesEncoder._metadata,
    TextStart: ResponsesEncoder._text_start,
    TextDelta: ResponsesEncoder._text_delta,
    TextEnd: ResponsesEncoder._text_end,
    ReasoningStart: ResponsesEncoder._reasoning_start,
    ReasoningDelta: ResponsesEncoder._reasoning_delta,
    ReasoningEnd: ResponsesEncoder._reasoning_end,
    # Calls
    ToolParamsStart: _of_calls(CallWriter.params_start),
    ToolParamsDelta: _of_calls(CallWriter.params_delta),
    ToolParamsEnd: _of_calls(CallWriter.params_end),
    ToolCall: _of_calls(CallWriter.tool_call),
    ToolResult: _of_calls(CallWriter.tool_result),
    ToolApprovalRequest: _of_calls(CallWriter.approval),
    # What stands alone
    Source: ResponsesEncoder._source,
    File: ResponsesEncoder._file,
    Opaque: ResponsesEncoder._opaque,
    # The end
    ErrorPart: ResponsesEncoder._on_error,
    Finish: ResponsesEncoder._on_finish,
}


# Body


def body(response: Response, context: Context, findings: Findings | None = None) -> bytes:
    """Returns the response object of a fold; for a failed one, the error body.

    It equals the last snapshot of the stream. What it cannot express is reported as a finding.
    """
    error = response.error
    if error is not None:
        return write_error(ErrorPart(error.kind, error.message, error.code, error.status))[1]
    fold = ResponseTexts(response.items)
    encoder = ResponsesEncoder(context, fold, findings or Findings(), NullEventWriter())
    parts = response_to_parts(response)
    encoder.feed(parts)
    return large_json.write(encoder.response)
