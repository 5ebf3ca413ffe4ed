"""A Responses stream, or a whole response, into parts.

- An output item is known by its `output_index`; the first id seen is its id, later ones may
  rotate. Without an index the `item_id` serves.
- Full values come up to four times after their deltas. They travel as `whole` and only complete.
- What was never announced is opened by its first delta, or by its `done`.
- Reasoning ends when its item does: only then is its encrypted content final.
- Items that this module has no parts for are opaque, and come back as they were.
"""

from collections.abc import Callable
from enum import Enum

from msgspec import Raw

from weft.assembler import Buffer
from weft.context import Context
from weft.dialects.base import Replays, Salvage
from weft.dialects.openai_responses import incoming as wire
from weft.dialects.openai_responses.wire import NAME
from weft.findings import Findings
from weft.partial_json import join_halves, whole_characters
from weft.parts import (
    ErrorPart,
    Finish,
    FinishReason,
    Opaque,
    ParamsFormat,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    Usage,
)
from weft.sse import DONE, Frame

_REASONS: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content-filter",
}
_PROGRESS = (".in_progress", ".queued", ".searching", ".interpreting", ".generating", ".compacting")
"""Endings of events that only tell of progress."""


Delta = TextDelta | ReasoningDelta | ToolParamsDelta


class _State(Enum):
    READING = "reading"
    FAILED = "failed"
    CLOSED = "closed"


_CALLS: dict[str, tuple[str, ParamsFormat]] = {
    "function_call": ("function", "json"),
    "custom_tool_call": ("custom", "text"),
}
"""Items that are calls for the client: the kind and the format of their params."""


_KNOWN = frozenset(("message", "reasoning", *_CALLS))
"""Types of items that have parts of their own. What an item says, or its end, corrects others."""


class _Said:
    """One content or summary part of an item, from its start to its end."""

    __slots__ = ("annotations", "id", "open", "whole")

    def __init__(self, id: str) -> None:
        self.id = id
        self.open = True
        self.whole: str | None = None
        self.annotations: dict[int, Raw] = {}


class _Item:
    """One output item. What it says is keyed by the kind of part and its index."""

    __slots__ = ("call", "id", "name", "open", "phase", "said", "type", "waiting")

    def __init__(self, id: str) -> None:
        self.id = id
        self.type: str | None = None
        self.open = True
        self.phase: str | None = None
        self.said: dict[tuple[str, int], _Said] = {}
        self.call: str | None = None
        """The id its params were announced under."""
        self.name = ""
        self.waiting = Buffer()
        """Params that came before anything told what call they are for."""


class ResponsesDecoder:
    """Reads one response."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self._context = context
        self._findings = findings
        self._salvage = Salvage(findings, wire.GROWING)
        self._replays = Replays()
        self._items: dict[int | str, _Item] = {}
        self._by_id: dict[str, _Item] = {}
        self._halves: dict[tuple[type[Delta], str], str] = {}
        self._state = _State.READING
        self._reason: FinishReason = "stop"
        """What a completed response means: stop, unless a call or a refusal came."""

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        out: list[Part] = []
        if frame.data == DONE:
            return out
        try:
            event = wire.read(frame.data)
        except (ValueError, RecursionError):
            try:
                event = self._salvage.read(frame.data, wire.Event)
            except ValueError as problem:
                self._unreadable(frame, str(problem), out)
                return out
        number = event.sequence_number
        if number is not None and self._replays.seen(number, frame.data):
            self._findings.note("frame-replayed", f"event number {number} came before: dropped")
        elif self._state is _State.CLOSED:
            self._findings.once("after-finish", "", "events after the terminal one: dropped")
        else:
            self._event(event, frame, out)
        return out

    def finish(self) -> list[Part]:
        """A stream without a terminal event is for the guard to end."""
        out: list[Part] = []
        for item in self._items.values():
            self._leftover(item, out)
        return out

    def _unreadable(self, frame: Frame, problem: str, out: list[Part]) -> None:
        if frame.cut:
            self._findings.note("frame-unterminated", "the input ended inside the last event")
        else:
            self._fail(ErrorPart("malformed", f"event {frame.number} is not JSON: {problem}"), out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._state is _State.READING:
            self._state = _State.FAILED
            out.append(error)

    def _event(self, event: wire.Event, frame: Frame, out: list[Part]) -> None:
        type = event.type or ""
        handler = _HANDLERS.get(type)
        if event.object == "response":
            self._body(Raw(frame.data), out)
        elif event.error is not None and handler is None:  # an error body has no type
            self._on_error(event, out)
        elif handler is None:
            if not type.endswith(_PROGRESS):
                self._findings.once("event-unknown", type, f"event {type!r}: ignored")
        elif self._state is _State.READING or type in _TERMINAL:
            handler(self, event, out)

    # The response

    def _created(self, event: wire.Event, out: list[Part]) -> None:
        self._metadata(event.response or wire.Response(), out)

    def _metadata(self, response: wire.Response, out: list[Part]) -> None:
        id = response.id
        if not id:
            self._findings.note("metadata-id-minted", "the wire gave the response no id")
            id = self._context.ids.mint("resp")
        out.append(
            ResponseMetadata(
                id, response.model, response.created_at, dialect=NAME, store=response.store
            )
        )

    def _terminal(self, event: wire.Event, out: list[Part]) -> None:
        self._end(event.response or wire.Response(), out)

    def _end(self, response: wire.Response, out: list[Part]) -> None:
        out += self.finish()
        error = response.error
        status = response.status or "completed"
        if error is not None or status in ("failed", "cancelled"):
            error = error or wire.Error(f"the response was {status}")
            self._fail(_error(error.message, error.code, error.type), out)
        raw = response.incomplete_details.reason if response.incomplete_details else None
        reason = self._reason
        if self._state is _State.FAILED:
            reason = "error"
        elif status == "incomplete" and (raw or self._reason != "tool-calls"):
            reason = _REASONS.get(raw or "", "other")
        out.append(
            Finish(
                reason,
                raw_reason=raw or status,
                usage=_usage(response.usage),
                model=response.model,
            )
        )
        self._state = _State.CLOSED

    def _on_error(self, event: wire.Event, out: list[Part]) -> None:
        nested = event.error or wire.Error()
        message = nested.message or event.message
        code = event.code if nested.code is None else nested.code
        self._fail(_error(message, code, nested.type), out)

    def _body(self, data: Raw, out: list[Part]) -> None:
        """A whole response is a stream that came at once."""
        response = self._salvage.item(data, wire.Response)
        self._metadata(response, out)
        for index, item in enumerate(response.output or ()):
            self._item_done(wire.Event(output_index=index, item=item), out)
        self._end(response, out)

    # Items

    def _item(self, event: wire.Event, read: wire.Item | None = None) -> _Item:
        """The item an event speaks of. The first id seen is its id for good."""
        id = event.item_id or (read.id if read else None)
        key = event.output_index if event.output_index is not None else id or ""
        item = self._items.get(key) or (self._by_id.get(key) if isinstance(key, str) else None)
        if item is None:
            self._items[key] = item = _Item(id or self._context.ids.mint("item"))
            self._by_id.setdefault(item.id, item)
        if read is not None:
            if item.type not in _KNOWN:
                item.type = read.type or item.type
            item.phase = read.phase or item.phase
            item.name = item.name or read.name or ""
        return item

    def _item_added(self, event: wire.Event, out: list[Part]) -> None:
        read = self._salvage.item(event.item, wire.Item)
        item = self._item(event, read)
        if item.type in _CALLS and item.call is None:
            self._announce(item, read, out)

    def _announce(self, item: _Item, read: wire.Item, out: list[Part]) -> None:
        kind, format = _CALLS[item.type or ""]
        item.call = read.call_id or item.id
        out.append(ToolParamsStart(item.call, item.name, kind=kind, item_id=item.id, format=format))
        self._leftover(item, out)

    def _leftover(self, item: _Item, out: list[Part]) -> None:
        """Params that waited; for a call that nobody named they are all there is of it."""
        if item.waiting.length:
            out.append(ToolParamsDelta(item.call or item.id, item.waiting.text))
            item.waiting = Buffer()

    def _item_done(self, event: wire.Event, out: list[Part]) -> None:
        raw = event.item if isinstance(event.item, Raw) else Raw(b"{}")
        if not bytes(raw).startswith(b"{"):
            self._findings.once("event-unknown", "item", "an item that is no object: ignored")
            return
        read = self._salvage.item(raw, wire.Item)
        item = self._item(event, read)
        if not item.open:
            self._findings.once("end-repeated", item.id, f"item {item.id!r} was done before")
            return
        item.open = False
        if item.type == "message":
            self._message_done(item, read, out)
        elif item.type == "reasoning":
            self._reasoning_done(item, read, out)
        elif item.type in _CALLS:
            self._call_done(item, read, out)
        else:
            out.append(Opaque(NAME, item.type or "unknown", raw.copy()))

    def _message_done(self, item: _Item, read: wire.Item, out: list[Part]) -> None:
        for index, part in enumerate(read.content or ()):
            said = self._say(item, _kind(part), index, out)
            said.whole = _text(part)
            for number, annotation in enumerate(part.annotations or ()):
                self._annotate(said, number, annotation, out)
        if not item.said:
            self._say(item, "text", 0, out)
        for said in item.said.values():
            self._close_text(said, out)

    def _reasoning_done(self, item: _Item, read: wire.Item, out: list[Part]) -> None:
        """The last end carries the encrypted content, which only now is final."""
        for index, part in enumerate(read.summary or ()):
            self._say(item, "summary", index, out).whole = _text(part)
        for index, part in enumerate(read.content or ()):
            self._say(item, "raw", index, out).whole = _text(part)
        if not item.said:
            self._say(item, "summary", 0, out)
        waiting = [said for said in item.said.values() if said.open]
        for said in waiting[:-1]:
            self._close_thought(said, out)
        if waiting:
            self._close_thought(waiting[-1], out, read.encrypted_content)

    def _call_done(self, item: _Item, read: wire.Item, out: list[Part]) -> None:
        if item.call is None or not item.name:
            self._announce(item, read, out)
        came = read.input if item.type == "custom_tool_call" else read.arguments
        whole = whole_characters(came or "")
        call, (kind, format) = item.call or item.id, _CALLS[item.type or ""]
        out.append(ToolParamsEnd(call, whole=whole or None))
        out.append(
            ToolCall(
                call,
                item.name,
                whole,
                kind=kind,
                format=format,
                item_id=item.id,
                namespace=read.namespace,
                invalid="bad-arguments" if read.status == "incomplete" else None,
            )
        )
        self._reason = "tool-calls"

    # What an item says

    def _say(self, item: _Item, kind: str, index: int, out: list[Part]) -> _Said:
        """The part of that kind and index, opened if it was not."""
        said = item.said.get((kind, index))
        if said is not None:
            return said
        id = f"{item.id}:{index}" if index else item.id
        if kind in ("text", "refusal"):
            item.type = item.type if item.type in _KNOWN else "message"
            said = _Said(f"{item.id}:refusal{index}" if kind == "refusal" else id)
            out.append(TextStart(said.id, item.id, phase=item.phase, refusal=kind == "refusal"))
            if kind == "refusal":
                self._reason = "content-filter" if self._reason == "stop" else self._reason
        else:
            item.type = item.type if item.type in _KNOWN else "reasoning"
            said = _Said(f"{item.id}:raw{index}" if kind == "raw" else f"{item.id}:{index}")
            out.append(
                ReasoningStart(said.id, "raw" if kind == "raw" else "summary", item_id=item.id)
            )
        item.said[kind, index] = said
        return said

    def _part_added(self, event: wire.Event, out: list[Part]) -> None:
        kind = _kind(event.part or wire.Part())
        self._say(self._item(event), kind, event.content_index or 0, out)

    def _part_done(self, event: wire.Event, out: list[Part]) -> None:
        part = event.part or wire.Part()
        kind = _kind(part)
        said = self._say(self._item(event), kind, event.content_index or 0, out)
        said.whole = _text(part)
        if kind != "raw":
            self._close_text(said, out)

    def _text_delta(self, event: wire.Event, out: list[Part]) -> None:
        said = self._say(self._item(event), "text", event.content_index or 0, out)
        self._more(TextDelta, said.id, event.delta, out)

    def _refusal_delta(self, event: wire.Event, out: list[Part]) -> None:
        said = self._say(self._item(event), "refusal", event.content_index or 0, out)
        self._more(TextDelta, said.id, event.delta, out)

    def _raw_delta(self, event: wire.Event, out: list[Part]) -> None:
        said = self._say(self._item(event), "raw", event.content_index or 0, out)
        self._more(ReasoningDelta, said.id, event.delta, out)

    def _summary_added(self, event: wire.Event, out: list[Part]) -> None:
        self._say(self._item(event), "summary", event.summary_index or 0, out)

    def _summary_delta(self, event: wire.Event, out: list[Part]) -> None:
        said = self._say(self._item(event), "summary", event.summary_index or 0, out)
        self._more(ReasoningDelta, said.id, event.delta, out)

    def _params_delta(self, event: wire.Event, out: list[Part]) -> None:
        item = self._item(event)
        if item.call is None:
            item.waiting.add(whole_characters(event.delta or ""))
        else:
            self._more(ToolParamsDelta, item.call, event.delta, out)

    def _more(self, kind: type[Delta], id: str, delta: str | None, out: list[Part]) -> None:
        """One more delta; half a character waits for the other half."""
        text = delta or ""
        if self._halves or not text.isascii():
            text, held = join_halves(self._halves.pop((kind, id), ""), text)
            if held:
                self._halves[kind, id] = held
                self._findings.once("surrogate-lone", id, "a character was cut in two")
        if text:
            out.append(kind(id, text))

    def _annotation(self, event: wire.Event, out: list[Part]) -> None:
        if isinstance(event.annotation, Raw):
            said = self._say(self._item(event), "text", event.content_index or 0, out)
            self._annotate(said, event.annotation_index or 0, event.annotation, out)

    def _annotate(self, said: _Said, number: int, raw: Raw, out: list[Part]) -> None:
        """One source for each annotation of a part; a repetition is none."""
        if number in said.annotations or not said.open:
            return
        said.annotations[number] = raw = raw.copy()
        read = self._salvage.item(raw, wire.Annotation)
        out.append(
            Source(
                self._context.ids.local("source"),
                "url" if read.type == "url_citation" else "document",
                said.id,
                url=read.url,
                file_id=read.file_id,
                title=read.title or read.filename,
                start=read.start_index,
                end=read.end_index,
                raw=raw,
            )
        )

    def _close_text(self, said: _Said, out: list[Part]) -> None:
        if said.open:
            said.open = False
            out.append(TextEnd(said.id, tuple(said.annotations.values()), whole=said.whole))

    def _close_thought(self, said: _Said, out: list[Part], encrypted: str | None = None) -> None:
        said.open = False
        origin = (self._context.origin or NAME) if encrypted else None
        out.append(ReasoningEnd(said.id, encrypted=encrypted, origin=origin, whole=said.whole))

    def _nothing(self, event: wire.Event, out: list[Part]) -> None:
        """An event whose value comes again, whole, when its part or item is done."""


def _text(part: wire.Part) -> str | None:
    text = part.refusal if part.type == "refusal" else part.text
    return None if text is None else whole_characters(text)


def _kind(part: wire.Part) -> str:
    return {"refusal": "refusal", "reasoning_text": "raw"}.get(part.type or "", "text")


def _usage(usage: wire.Usage | None) -> Usage | None:
    if usage is None:
        return None
    read = usage.input_tokens_details or wire.Details()
    written = usage.output_tokens_details or wire.Details()
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        written.reasoning_tokens,
        read.cached_tokens,
        read.cache_write_tokens,
    )


def _error(message: str | None, code: str | int | None, type: str | None) -> ErrorPart:
    return ErrorPart("upstream", message or type or "unknown error", code=code)


_TERMINAL = ("response.completed", "response.incomplete", "response.failed")
_HANDLERS: dict[str, Callable[[ResponsesDecoder, wire.Event, list[Part]], None]] = {
    "response.created": ResponsesDecoder._created,
    **dict.fromkeys(_TERMINAL, ResponsesDecoder._terminal),
    "error": ResponsesDecoder._on_error,
    "response.output_item.added": ResponsesDecoder._item_added,
    "response.output_item.done": ResponsesDecoder._item_done,
    "response.content_part.added": ResponsesDecoder._part_added,
    "response.content_part.done": ResponsesDecoder._part_done,
    "response.output_text.delta": ResponsesDecoder._text_delta,
    "response.output_text.done": ResponsesDecoder._nothing,
    "response.output_text.annotation.added": ResponsesDecoder._annotation,
    "response.refusal.delta": ResponsesDecoder._refusal_delta,
    "response.refusal.done": ResponsesDecoder._nothing,
    "response.reasoning.delta": ResponsesDecoder._raw_delta,
    "response.reasoning.done": ResponsesDecoder._nothing,
    "response.reasoning_text.delta": ResponsesDecoder._raw_delta,
    "response.reasoning_text.done": ResponsesDecoder._nothing,
    "response.reasoning_summary_part.added": ResponsesDecoder._summary_added,
    "response.reasoning_summary_part.done": ResponsesDecoder._nothing,
    "response.reasoning_summary_text.delta": ResponsesDecoder._summary_delta,
    "response.reasoning_summary_text.done": ResponsesDecoder._nothing,
    "response.function_call_arguments.delta": ResponsesDecoder._params_delta,
    "response.function_call_arguments.done": ResponsesDecoder._nothing,
    "response.custom_tool_call_input.delta": ResponsesDecoder._params_delta,
    "response.custom_tool_call_input.done": ResponsesDecoder._nothing,
    "response.required_action": ResponsesDecoder._nothing,
    "ping": ResponsesDecoder._nothing,
    "keepalive": ResponsesDecoder._nothing,
}
