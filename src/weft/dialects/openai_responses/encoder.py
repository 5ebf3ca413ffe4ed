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

from weft import large_json
from weft.assembler import Assembler, Response, merged
from weft.context import Context
from weft.dialects.base import PassedOn
from weft.dialects.envelope import Thought, sealed
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.encoding.calls import Calls
from weft.dialects.openai_responses.encoding.items import (
    NOWHERE,
    Events,
    FixedItem,
    MessageItem,
    Output,
    ReasoningItem,
    SaidText,
    SaidThought,
    Seat,
    Silence,
)
from weft.dialects.openai_responses.encoding.snapshot import resource, usage
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

INCOMPLETE = {"length": "max_output_tokens", "content-filter": "content_filter", "pause": None}
"""Finish reasons that leave a response incomplete, and how the wire calls them."""

STATUSES = frozenset(("completed", "incomplete", "in_progress", "queued"))
"""Statuses of a response. They stand for its reason where it told none."""

IMAGES = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/svg+xml": "svg",
}
"""Files that can be the result of an image call, and how the wire calls their format."""


_json = msgspec.json.Encoder().encode
_read_error = msgspec.json.Decoder(wire.ErrorBody).decode


class ResponsesEncoder:
    """Writes one response. `fold` is the fold of the very parts it is fed."""

    def __init__(
        self, context: Context, fold: Assembler, findings: Findings, events: Events | None = None
    ) -> None:
        quirks = context.quirks
        asked = context.request is not None and "required_action" in context.request.include
        self._context = context
        self._fold = fold
        self._findings = findings
        self._tool_session = asked or (isinstance(quirks, ResponsesQuirks) and quirks.tool_session)
        self._raw = context.request is not None and "reasoning.raw" in context.request.include
        self._events = events or Events()
        self._output = Output(self._events, context.ids, findings)
        self._calls = Calls(self._output, fold)
        self._texts: dict[str, SaidText] = {}
        self._thoughts: dict[str, SaidThought] = {}
        self._waiting: list[wire.Annotation] = []
        """Annotations that wait for a text."""
        self._upstream_id = ""
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self.response = resource("", 0, "", context.request)
        """The response object, as the last snapshot showed it."""

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events that these parts make, each in one piece."""
        out: list[Event] = []
        self._events.out = out
        for part in parts:
            if self._calls.late is not None:
                self._calls.announce_late(self._calls.late, part)
            if self._output.ripe and self._error is None:
                self._output.go_on(_group(part))
            _HANDLERS[part.__class__](self, part)
        self._events.out = []  # what was handed out is not ours to keep
        return out

    def finish(self) -> list[Event]:
        """The finish part said it all."""
        return []

    def resume(self, before: PassedOn) -> None:
        """Goes on behind the upstream's own events, with their numbers, indexes and ids. Parts of
        which only the first half was told are told on, and nothing is told twice.
        """
        self._calls.resume()
        told = frozenset(mark[:3] for mark in before.marks)
        self._events.told = told
        self._output.resume({mark[3]: mark[1] for mark in before.marks if len(mark) == 4}, told)
        for said in self._texts.values():
            said.locate()
        self._events.number = before.number + 1
        self._events.out = []
        self.response.id = self._context.response_id or self._upstream_id

    def keepalive(self) -> Event | None:
        return self._events.ping() if self._tool_session and self.response.id else None

    def _snapshot(self, type: str, more: bytes = b"") -> None:
        if self._events.silent:
            return
        self._events.snapshot(type, large_json.write(self.response), more)

    # The response

    def _metadata(self, part: ResponseMetadata) -> None:
        self._output.ours = part.dialect == NAME
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
        self._snapshot("response.created")
        self._snapshot("response.in_progress")

    def _on_error(self, part: ErrorPart) -> None:
        self._calls.fail()
        self._output.settle()
        self._error = part

    def _on_finish(self, part: Finish) -> None:
        self._close_all(part)
        response = self.response
        if self._context.request is None:  # else it is the one that was asked for, from the first
            response.model = part.model or response.model
        response.output = self._output.whole()
        response.usage = usage(merged(self._usage, part.usage))
        response.service_tier = self._service_tier(part) or response.service_tier
        if self._error is not None and self._error.kind == "cancelled":
            self._incomplete("cancelled", "cancelled")
        elif self._error is not None:
            self._failed(self._error)
        elif self._is_cut(part):
            self._incomplete("incomplete", self._why(part))
        else:
            self._completed(part)
        self._events.out.append(Event("", DONE))

    def _service_tier(self, part: Finish) -> str | None:
        """The tier that served the response, if it came from this dialect and told one."""
        kept = wire.unpacked(part.extra, wire.FinishExtra) if self._output.ours else None
        return kept.response.service_tier if kept and kept.response else None

    def _incomplete(self, status: str, reason: str | None) -> None:
        """Also a response that somebody cancelled: nothing went wrong, and clients know no event
        of that name.
        """
        self.response.status = status
        self.response.incomplete_details = wire.Incomplete(reason) if reason else None
        self._snapshot("response.incomplete")

    def _is_cut(self, part: Finish) -> bool:
        """Whether the response is incomplete. One of this dialect is what it was."""
        if self._output.ours and part.raw_reason is not None and not self._calls.cut:
            return part.raw_reason != "completed" and part.reason in (*INCOMPLETE, "other")
        return part.reason in INCOMPLETE or self._calls.cut

    def _why(self, part: Finish) -> str | None:
        """The wire's word for what cut the response; None if it has no word for it."""
        if part.reason == "other":
            return part.raw_reason if part.raw_reason not in STATUSES else None
        return INCOMPLETE.get(part.reason, "tool_call_incomplete")

    def _close_all(self, part: Finish) -> None:
        """What an error found open is incomplete, and calls are not even done; what a limit cut
        tells each kind itself. Items of this dialect that were cut said so.
        """
        failed = self._error is not None
        cut = self._is_cut(part)
        for item in self._output.left():
            if failed and not item.ends_with_error:
                self._output.abandon(item)
                continue
            last = item is self._output.last and not self._output.ours
            incomplete = failed or (cut and item.cut(last))
            self._output.close(item, "incomplete" if incomplete else "completed")
        if self._waiting:
            self._output.lost("source", "no text to annotate")

    def _completed(self, part: Finish) -> None:
        response = self.response
        if part.reason == "other":
            self._output.lost(part.type, f"no status for {part.raw_reason or part.reason}")
        response.status = "completed"
        response.completed_at = max(self._context.now, response.created_at)
        if self._tool_session and self._calls.pending and part.reason == "tool-calls":
            action = wire.RequiredAction(wire.ToolCalls(self._calls.pending))
            response.status, response.completed_at = "incomplete", None
            response.required_action = action
            more = b',"required_action":%b' % _json(action)
            self._snapshot("response.required_action", more)
        self._snapshot("response.completed")

    def _failed(self, error: ErrorPart) -> None:
        """The error as a body would have it: both flat, as the official client types it, and
        nested, as the text does.
        """
        detail = _read_error(write_error(error)[1]).error
        flat = b'"code":%b,"message":%b,"param":%b,"error":' % (
            _json(detail.code),
            _json(detail.message),
            _json(detail.param),
        )
        self._events.write("error", NOWHERE, flat, _json(detail))
        self.response.status = "failed"
        self.response.error = wire.Failure(detail.code or detail.type, detail.message)
        self._snapshot("response.failed")

    # Text

    def _message(self, part: TextStart) -> MessageItem:
        """The message that has one more part now."""
        item = self._output.grouped(part.item_id, MessageItem)
        if item is None:
            item = MessageItem(self._output.claim(part.item_id, "msg"), part)
            self._output.add(item)
        item.open += 1
        return item

    def _text_start(self, part: TextStart) -> None:
        item = self._message(part)
        self._texts[part.id] = said = SaidText(item, part.refusal)
        item.parts.append(said.part(""))
        empty = _json(said.part(""))
        self._events.write("response.content_part.added", said.at, said.place, b',"part":', empty)
        if not part.refusal:
            waiting, self._waiting = self._waiting, []
            for annotation in waiting:
                self._annotate(said, annotation)

    def _text_delta(self, part: TextDelta) -> None:
        self._events.delta(self._texts[part.id].head, part.delta)

    def _text_end(self, part: TextEnd) -> None:
        said = self._texts.pop(part.id)
        kept = self._output.kept(part.extra)
        self._take_over(said, part, kept)
        text = self._fold.text(part.id)
        if said.refusal:
            type, before = "response.refusal.done", b',"refusal":'
        else:  # each spelling of a long text lives for one event only
            type = "response.output_text.done"
            before = b',"logprobs":%b,"text":' % _json(said.logprobs)
        self._events.write(type, said.at, said.place, before, large_json.write(text))
        said.item.parts[said.index] = whole = said.part(text)
        done = "response.content_part.done"
        self._events.write(done, said.at, said.place, b',"part":', large_json.write(whole))
        self._output.said(said.item)

    def _take_over(self, said: SaidText, part: TextEnd, kept: wire.ItemExtra) -> None:
        """What only the end of a text tells."""
        if part.signature is not None:
            self._output.lost(part.type, f"its proof goes back to {part.origin} only")
        said.logprobs = kept.logprobs or said.logprobs
        said.item.phase = kept.phase or said.item.phase
        said.item.kept |= wire.beside_names(kept.item)
        if self._output.ours:
            written = Counter(bytes(one) for one in said.annotations if isinstance(one, Raw))
            for annotation in part.annotations:
                if written[bytes(annotation)]:
                    written[bytes(annotation)] -= 1
                else:  # of a kind that is no source
                    self._annotate(said, annotation)

    def _source(self, part: Source) -> None:
        said = self._texts.get(part.text_id or "")
        if said is None and part.text_id is not None:  # where it stood in another text is no help
            part = Source(part.id, part.kind, url=part.url, file_id=part.file_id, title=part.title)
        annotation = self._annotation(part)
        texts = [open for open in self._texts.values() if not open.refusal]
        if annotation is None:
            self._output.lost(part.type, "neither an address nor a file")
        elif said is not None or texts:
            self._annotate(said or texts[-1], annotation)
        else:
            self._waiting.append(annotation)

    def _annotation(self, source: Source) -> wire.Annotation | None:
        """What a source is beside its text; None for one that has no place there."""
        if self._output.ours and isinstance(source.raw, Raw):
            return source.raw
        if source.url is not None:
            if source.start is None or source.end is None:
                why = "its place is not known, and this wire wants one: 0 to 0"
                self._output.lost(source.type, why)
            title, start, end = source.title or "", source.start or 0, source.end or 0
            return wire.UrlCitation(source.url, title, start, end)
        if source.file_id is not None:
            return wire.FileCitation(source.file_id, source.title or "", source.end or 0)
        return None

    def _annotate(self, said: SaidText, annotation: wire.Annotation) -> None:
        key = b',"annotation_index":%d,"annotation":' % len(said.annotations)
        said.annotations.append(annotation)
        event = "response.output_text.annotation.added"
        self._events.write(event, said.at, said.place, key, _json(annotation))

    # Reasoning

    def _reasoning_start(self, part: ReasoningStart) -> None:
        kind: ReasoningKind = part.kind if self._raw else "summary"
        item = self._output.grouped(part.item_id, ReasoningItem)
        if item is None:
            item = ReasoningItem(self._output.claim(part.item_id, "rs"), part, kind)
            self._output.add(item)
        item.open += 1
        self._thoughts[part.id] = SaidThought(item, part, kind)

    def _reasoning_delta(self, part: ReasoningDelta) -> None:
        said = self._thoughts[part.id]
        if said.index is None:
            said.begin()
            empty = _json(said.kind.part(""))
            added = said.kind.wrapper + ".added"
            self._events.write(added, said.at, said.place, b',"part":', empty)
        self._events.delta(said.head, part.delta)

    def _reasoning_end(self, part: ReasoningEnd) -> None:
        said = self._thoughts.pop(part.id)
        if said.index is not None:
            said.text = self._fold.reasoning(part.id)
            done, text = said.kind.text + ".done", _json(said.text)
            self._events.write(done, said.at, said.place, b',"text":', text)
            done = said.kind.wrapper + ".done"
            self._events.write(done, said.at, said.place, b',"part":', _json(said.part))
        said.item.encrypted = self._proof(part, said) or said.item.encrypted
        said.item.kept |= wire.beside_names(self._output.kept(part.extra).item)
        self._output.said(said.item)

    def _proof(self, part: ReasoningEnd, said: SaidThought) -> str | None:
        """The encrypted content. A proof from elsewhere is sealed, never forged."""
        item = said.item
        proven = part.encrypted or part.signature or part.redacted
        if part.encrypted and part.origin in (NAME, self._context.origin):
            proof: str | None = part.encrypted
        else:
            before = [one for one in item.thoughts if one is not said and one.text]
            proof = sealed(
                part,
                self._calls.model,
                said.start,
                self._fold.reasoning(part.id),  # clients may return none of it
                tuple(Thought(one.start.kind, one.text) for one in before),
            )
        if proven and proof is None:
            self._output.lost(part.type, "nobody knows whose its proof is")
        if proof is not None and item.encrypted is not None:
            self._output.lost(part.type, "an item has one proof: the last one")
        return proof

    # Items that come whole

    def _fixed(self, seat: Seat, raw: Raw) -> None:
        item = FixedItem(seat, raw)
        self._output.add(item)
        self._output.close(item, "completed")

    def _file(self, part: File) -> None:
        format = IMAGES.get(part.media_type)
        if format is None or part.data is None or part.reasoning:
            self._output.lost(part.type, "only a whole image has an item here")
            return
        seat = self._output.claim(None, "ig")
        self._fixed(seat, Raw(_json(wire.Image(seat.id, part.data, format))))

    def _opaque(self, part: Opaque) -> None:
        id = wire.unpacked(part.raw, wire.Named).id
        if part.origin != NAME:
            self._output.lost(part.type, f"{part.kind} belongs to {part.origin}")
        elif part.kind.startswith("response.audio."):
            self._event(part)
        elif (content := self._output.kept(part.extra).content) is not None:
            self._content(part.raw, content.item_id)
        elif id in self._output.ids:
            self._output.lost(part.type, f"item {id!r} was written before")
        else:
            self._fixed(self._output.claim(id, "item"), part.raw)

    def _content(self, raw: Raw, item_id: str | None) -> None:
        """A part of a message that is no text."""
        item = self._message(TextStart("", item_id))
        at = (item.index, len(item.parts))
        place = item.place + b',"content_index":%d,"part":' % len(item.parts)
        item.parts.append(raw)
        self._events.write("response.content_part.added", at, place, bytes(raw))
        self._events.write("response.content_part.done", at, place, bytes(raw))
        self._output.said(item)

    def _event(self, part: Opaque) -> None:
        """An event that is no item goes out again, with a number of this stream."""
        told = wire.fields(part.raw) or {}
        told = {key: told[key] for key in told if key not in ("type", "sequence_number")}
        if told:
            self._events.write(part.kind, NOWHERE, _json(told)[1:-1])


def _group(part: Part) -> str | None:
    """The item that a part may go on with."""
    return part.item_id if isinstance(part, TextStart | ReasoningStart) else None


def _of_calls(handle: Callable[[Calls, Any], None]) -> Callable[[ResponsesEncoder, Any], None]:
    return lambda encoder, part: handle(encoder._calls, part)


_HANDLERS: dict[type[Part], Callable[[ResponsesEncoder, Any], None]] = {
    ResponseMetadata: ResponsesEncoder._metadata,
    TextStart: ResponsesEncoder._text_start,
    TextDelta: ResponsesEncoder._text_delta,
    TextEnd: ResponsesEncoder._text_end,
    ReasoningStart: ResponsesEncoder._reasoning_start,
    ReasoningDelta: ResponsesEncoder._reasoning_delta,
    ReasoningEnd: ResponsesEncoder._reasoning_end,
    ToolParamsStart: _of_calls(Calls.params_start),
    ToolParamsDelta: _of_calls(Calls.params_delta),
    ToolParamsEnd: _of_calls(Calls.params_end),
    ToolCall: _of_calls(Calls.tool_call),
    ToolResult: _of_calls(Calls.tool_result),
    ToolApprovalRequest: _of_calls(Calls.approval),
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
    encoder = ResponsesEncoder(context, fold, findings or Findings(), Silence())
    said = response_to_parts(response)
    for part in said:
        fold.feed(part)
    encoder.feed(said)
    return large_json.write(encoder.response)
