"""A Messages stream, or a whole message, into parts.

- A content block is known by its index, and ends at its own `content_block_stop`: another block
  that starts ends nothing.
- Calls take their arguments from their deltas; what stood in the start block counts only where
  no delta came. No text at all means `{}`: that is how this wire says it.
- Usage is cumulative, and a stop reason may be told more than once: the last one counts.
- A prefilled `message_start`, and a whole body, are blocks that start and stop at once.
- Blocks that must go back as they were (compaction, listings, unknown ones) are opaque.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.meaning import (
    error_of,
    finish_reason,
    is_failure,
    kept,
    merged,
    packed,
    source_kind,
    usage_extra,
    usage_of,
)
from weft.dialects.base import Replays, Salvage, told
from weft.findings import Findings
from weft.ids import distinct
from weft.partial_json import join_halves, whole_characters
from weft.parts import (
    ErrorPart,
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
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)
from weft.sse import Frame

NAME = wire.NAME

_EMPTY = "{}"
_NOTHING = Raw(b"{}")
_SERVER = frozenset({"server_tool_use", "mcp_tool_use"})


class _State(Enum):
    WAITING = "waiting"  # for message_start
    READING = "reading"
    FAILED = "failed"
    CLOSED = "closed"


class _Block:
    """One content block, from its start to its stop."""

    __slots__ = ("half", "id", "open", "type")

    def __init__(self, id: str, type: str) -> None:
        self.id = id
        self.type = type
        self.open = True
        self.half = ""
        """A high surrogate that waits for its other half."""


class _Text(_Block):
    __slots__ = ("citations",)

    def __init__(self, id: str) -> None:
        super().__init__(id, "text")
        self.citations: list[Raw] = []


class _Thinking(_Block):
    __slots__ = ("redacted", "signature")

    def __init__(self, id: str, type: str, read: wire.Block) -> None:
        super().__init__(id, type)
        self.signature = read.signature or None
        self.redacted = read.data


class _Use(_Block):
    """A call. `given` is what its start block held; None once deltas came."""

    __slots__ = ("call", "given")

    def __init__(self, call: ToolCall, type: str, given: str) -> None:
        super().__init__(call.id, type)
        self.call = call
        self.given: str | None = given


class _Kept(_Block):
    """A block that goes back as it was: nothing to say of it before its stop."""

    __slots__ = ("raw",)

    def __init__(self, type: str, raw: Raw) -> None:
        super().__init__("", type)
        self.raw = raw


class MessagesDecoder:
    """Reads one message."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self._context = context
        self._origin = context.origin or NAME
        self._findings = findings
        self._salvage = Salvage(findings, wire.GROWING)
        self._replays = Replays()
        self._state = _State.WAITING
        self._id = ""
        self._model: str | None = None
        self._blocks: dict[int, _Block] = {}
        self._calls: dict[str, str] = {}
        """The id of a call on the wire: the id its parts have."""
        self._taken: set[str] = set()
        self._usage: wire.Usage | None = None
        self._stop = wire.Delta()
        """What was told of the end so far."""
        self._edits: Raw | UnsetType = UNSET

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        out: list[Part] = []
        if frame.id is not None and self._replays.seen(frame.id, frame.data):
            self._findings.note("frame-replayed", f"event {frame.id!r} came before: dropped")
            return out
        try:
            event = wire.read(frame.data)
        except (ValueError, RecursionError):
            salvaged = self._salvaged(frame, out)
            if salvaged is None:
                return out
            event = salvaged
        if frame.cut or frame.split:
            self._note_framing(frame)
        handler = _EVENTS.get(event.type or frame.event)
        if handler is not None and self._state is _State.READING:
            handler(self, event, out)
        else:
            self._otherwise(event, frame, out)
        return out

    def finish(self) -> list[Part]:
        """Returns the end of the message. One without a stop reason is for the guard to end."""
        out: list[Part] = []
        if self._state is _State.FAILED or (
            self._state is _State.READING and self._stop.stop_reason is not None
        ):
            self._end(out)
        return out

    # Frames

    def _salvaged(self, frame: Frame, out: list[Part]) -> wire.Event | None:
        """Reads a frame that is no well-typed event, or says what it is instead."""
        try:
            return self._salvage.read(frame.data, wire.Event)
        except ValueError as problem:
            text = frame.data.decode("utf-8", "replace")
            if frame.cut:
                self._findings.note("frame-unterminated", f"the input ended inside {text[:40]!r}")
            elif text.startswith("{"):
                detail = f"event {frame.number} is not JSON: {problem}"
                self._fail(ErrorPart("malformed", detail), out)
            elif frame.event in ("", "error") and not text.startswith("["):
                self._fail(ErrorPart("upstream", text), out)
            else:
                self._findings.once("event-unknown", text[:40], f"{text[:40]!r}: ignored")
        return None

    def _note_framing(self, frame: Frame) -> None:
        if frame.cut:
            self._findings.note("frame-unterminated", "the last event has no blank line after it")
        if frame.split:
            self._findings.once("frame-lines-split", "", "events were separated by one newline")

    def _otherwise(self, event: wire.Event, frame: Frame, out: list[Part]) -> None:
        """An event of another kind, or at another time, than nearly all of them."""
        type = event.type or frame.event
        if self._state is _State.CLOSED:
            if type != "ping":
                self._findings.once("after-finish", "", "events after the end: dropped")
        elif type == "message":
            self._body(Raw(frame.data), out)
        elif type == "error" or (type not in _EVENTS and event.error is not None):
            self._on_error(event, out)
        elif type not in _EVENTS:
            what = type or frame.data[:40].decode("utf-8", "replace")
            self._findings.once("event-unknown", type, f"{what!r}: ignored")
        elif self._state is _State.WAITING:
            self._early(type, event, out)
        elif type in _AFTER_ERROR:
            _EVENTS[type](self, event, out)
        else:
            self._findings.once("after-error", "", "content after an error: dropped")

    def _early(self, type: str, event: wire.Event, out: list[Part]) -> None:
        if type not in ("message_start", "ping"):
            self._findings.note("metadata-missing", f"{type} came before message_start")
            self._announce(wire.Message(), out)
        _EVENTS[type](self, event, out)

    # The message

    def _announce(self, message: wire.Message, out: list[Part]) -> None:
        self._id = message.id or self._context.ids.mint("msg")
        if self._state is _State.WAITING:
            self._state = _State.READING
        self._model = message.model
        self._usage = message.usage
        usage = usage_of(message.usage)
        out.append(ResponseMetadata(self._id, message.model, dialect=NAME, usage=usage))

    def _message_start(self, event: wire.Event, out: list[Part]) -> None:
        message = event.message if isinstance(event.message, wire.Message) else wire.Message()
        if self._state is _State.WAITING:
            if not message.id:
                self._findings.note("metadata-id-minted", "the wire gave the message no id")
            self._announce(message, out)
            self._message(message, out)
        elif message.id in (None, self._id):
            self._findings.once("metadata-repeated", "", "message_start again: dropped")
        elif self._state is _State.READING:  # nothing of it is merged into this one
            detail = f"message {message.id!r} began before {self._id!r} ended"
            self._fail(ErrorPart("truncated", detail, retryable=True), out)
            self._end(out)

    def _message(self, message: wire.Message, out: list[Part]) -> None:
        """What stands in a message beside its head: blocks, and perhaps how it ended."""
        for place, raw in enumerate(message.content or ()):
            self._close(self._open(raw, f"{self._id}:whole{place}", out), out)
        self._edits = kept(message.context_management)
        self._stopped(
            wire.Delta(
                stop_reason=message.stop_reason,
                stop_sequence=message.stop_sequence,
                stop_details=message.stop_details,
                container=message.container,
            )
        )

    def _body(self, data: Raw, out: list[Part]) -> None:
        """A whole message is a stream that came at once."""
        if self._state is not _State.WAITING:
            self._findings.once("message-ignored", "", "a whole message beside a stream")
            return
        message = self._salvage.item(data, wire.Message)
        self._message_start(wire.Event(message=message), out)
        self._end(out)

    def _message_delta(self, event: wire.Event, out: list[Part]) -> None:
        if event.delta is not None:
            self._stopped(event.delta)
        if told(event.context_management):
            self._edits = kept(event.context_management)
        self._usage = merged(self._usage, event.usage)

    def _stopped(self, told_now: wire.Delta) -> None:
        """What is told of the end; what is not told again stays."""
        stop = self._stop
        if stop.stop_reason and told_now.stop_reason not in (None, stop.stop_reason):
            detail = f"stop reason {told_now.stop_reason!r} after {stop.stop_reason!r}"
            self._findings.once("finish-repeated", "", detail)
        self._stop = wire.Delta(
            stop_reason=told_now.stop_reason or stop.stop_reason,
            stop_sequence=told_now.stop_sequence or stop.stop_sequence,
            stop_details=_later(stop.stop_details, told_now.stop_details),
            container=_later(stop.container, told_now.container),
        )

    def _message_stop(self, event: wire.Event, out: list[Part]) -> None:
        self._end(out)

    def _end(self, out: list[Part]) -> None:
        failed = self._state is _State.FAILED
        stop = self._stop
        if not failed:
            if stop.stop_reason is None:
                self._findings.note("finish-inferred", "no stop reason came: stop is assumed")
            for block in self._blocks.values():
                if block.open and isinstance(block, _Kept):
                    self._close(block, out)
        extra = wire.FinishExtra(
            stop.stop_details, stop.container, self._edits, usage_extra(self._usage)
        )
        finish = Finish(
            "error" if failed else finish_reason(stop.stop_reason),
            raw_reason=stop.stop_reason,
            usage=usage_of(self._usage),
            model=self._model,
            stop_sequence=stop.stop_sequence,
            extra=packed(extra),
        )
        out.append(finish)
        self._state = _State.CLOSED

    def _on_error(self, event: wire.Event, out: list[Part]) -> None:
        self._fail(error_of(event), out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._state is _State.WAITING:
            self._announce(wire.Message(), out)
        if self._state is _State.READING:
            self._state = _State.FAILED
            out.append(error)

    def _ping(self, event: wire.Event, out: list[Part]) -> None:
        """Only tells that the stream lives."""

    # Blocks

    def _block_start(self, event: wire.Event, out: list[Part]) -> None:
        raw = event.content_block if isinstance(event.content_block, Raw) else _NOTHING
        index = event.index
        if index is None:
            self._index_missing()
            index = max(self._blocks, default=-1) + 1
        if self._stop.stop_reason is not None:
            self._findings.once("finish-late-content", "", "content after the stop reason")
        before = self._blocks.get(index)
        if before is not None and before.open:
            read = self._salvage.item(raw, wire.Block)
            if read.type == before.type and read.id in (None, before.id):
                self._findings.once("start-repeated", str(index), f"block {index} started again")
                return
            self._findings.note("call-index-reused", f"another block began as number {index}")
            self._close(before, out)
        self._blocks[index] = self._open(raw, f"{self._id}:{index}", out)

    def _index_missing(self) -> None:
        self._findings.once("call-index-missing", "", "a content block without an index")

    def _open(self, raw: Raw, id: str, out: list[Part]) -> _Block:
        read = self._salvage.item(raw, wire.Block)
        type = read.type or ""
        start = _STARTS.get(type)
        if start is not None:
            return start(self, read, raw, id, out)
        if type.endswith("_tool_result"):
            return self._start_result(read, raw, id, out)
        self._findings.once("event-unknown", f"block {type}", f"block {type!r}: kept as it is")
        return self._start_kept(read, raw, id, out)

    def _block_delta(self, event: wire.Event, out: list[Part]) -> None:
        delta = event.delta
        if delta is None:
            self._findings.once("event-unknown", "delta", "a delta without a value: ignored")
            return
        type = delta.type or _guessed(delta)
        wanted, handler = _DELTAS.get(type, (_Block, MessagesDecoder._unknown_delta))
        block = self._blocks.get(event.index) if event.index is not None else None
        if block is None:
            block = self._block_for(event.index, type, out)
        if block.__class__ is wanted or wanted is _Block:
            handler(self, block, delta, out)
        else:
            detail = f"{type} in a {block.type} block: ignored"
            self._findings.once("event-unknown", f"{type} {block.type}", detail)

    def _block_for(self, index: int | None, type: str, out: list[Part]) -> _Block:
        """The block of a delta that names none, or one that was never started."""
        if index is None:
            self._index_missing()
            block = self._last_open()
            if block is not None:
                return block
            index = max(self._blocks, default=-1) + 1
        detail = f"{type} for block {index}, which was not started"
        self._findings.note("start-missing", detail)
        raw = Raw(b'{"type":"%b"}' % _OPENS.get(type, "unknown").encode())
        self._blocks[index] = block = self._open(raw, f"{self._id}:{index}", out)
        return block

    def _last_open(self) -> _Block | None:
        return next((one for one in reversed(self._blocks.values()) if one.open), None)

    def _block_stop(self, event: wire.Event, out: list[Part]) -> None:
        if event.index is None:
            self._index_missing()
        block = self._last_open() if event.index is None else self._blocks.get(event.index)
        if block is None:
            detail = f"stop of block {event.index}, which was not started: dropped"
            self._findings.once("end-without-start", str(event.index), detail)
        elif not block.open:
            detail = f"block {event.index} was stopped before"
            self._findings.once("end-repeated", str(event.index), detail)
        else:
            self._close(block, out)

    def _close(self, block: _Block, out: list[Part]) -> None:
        block.open = False
        _STOPS[block.__class__](self, block, out)

    # What starts

    def _start_text(self, read: wire.Block, raw: Raw, id: str, out: list[Part]) -> _Block:
        block = _Text(id)
        out.append(TextStart(id))
        self._say(block, read.text, TextDelta, out)
        for citation in read.citations or ():
            self._cite(block, citation, out)
        return block

    def _start_thinking(self, read: wire.Block, raw: Raw, id: str, out: list[Part]) -> _Block:
        block = _Thinking(id, read.type or "", read)
        out.append(ReasoningStart(id, "raw"))
        self._say(block, read.thinking, ReasoningDelta, out)
        return block

    def _start_use(self, read: wire.Block, raw: Raw, id: str, out: list[Part]) -> _Block:
        type = read.type or ""
        server = type in _SERVER
        call = ToolCall(
            self._call_id(read.id),
            read.name or "",
            "",
            kind=type if server else "function",
            provider_executed=server,
            dynamic=type == "mcp_tool_use",
            caller=self._salvage.item(read.caller, wire.Caller).tool_id,
            server_label=read.server_name,
            extra=packed(wire.CallExtra(kept(read.caller), read.toolset_name, read.server_name)),
        )
        start = ToolParamsStart(
            call.id, call.name, call.kind, provider_executed=server, extra=call.extra
        )
        out.append(start)
        given = kept(read.input)
        return _Use(call, type, bytes(given).decode() if isinstance(given, Raw) else _EMPTY)

    def _call_id(self, id: str | None) -> str:
        """The wire's id; the second of its kind becomes `<id>_2`, a missing one is minted."""
        if not id:
            self._findings.note("call-id-minted", "the wire gave a call no id")
            id = self._context.ids.mint("toolu")
        given = distinct(id, self._taken)
        if given != id:
            self._findings.note("call-id-collision", f"two calls are {id!r}: one is {given!r}")
        self._taken.add(given)
        self._calls[id] = given
        return given

    def _start_result(self, read: wire.Block, raw: Raw, id: str, out: list[Part]) -> _Block:
        type = read.type or ""
        wire_id, content = read.tool_use_id, read.content
        if not wire_id or not isinstance(content, Raw):
            self._findings.note("field-dropped", f"{type}: no call or no content; kept as it is")
            return self._start_kept(read, raw, id, out)
        result = ToolResult(
            self._calls.get(wire_id, wire_id),
            content.copy(),
            is_error=bool(read.is_error) or is_failure(content),
            earlier=wire_id not in self._calls,  # a paused turn goes on with its results
            extra=packed(wire.ResultExtra(type, kept(read.caller))),
        )
        out.append(result)
        if type == "web_search_tool_result":
            self._hits(content, out)
        return _Block(id, type)

    def _hits(self, content: Raw, out: list[Part]) -> None:
        try:
            hits = wire.read_list(content)
        except ValueError:
            return
        for hit in hits:
            read = self._salvage.item(hit, wire.Citation)
            if read.url:
                id = self._context.ids.local("source")
                out.append(Source(id, "url", url=read.url, title=read.title, raw=hit.copy()))

    def _start_kept(self, read: wire.Block, raw: Raw, id: str, out: list[Part]) -> _Block:
        if read.to is not None:  # a fallback: another model goes on
            self._model = read.to.model or self._model
        return _Kept(read.type or "unknown", raw.copy())

    # What grows

    def _say(
        self,
        block: _Block,
        text: str | None,
        part: type[TextDelta] | type[ReasoningDelta] | type[ToolParamsDelta],
        out: list[Part],
    ) -> None:
        if not text:
            return
        if block.half or not text.isascii():
            text, block.half = join_halves(block.half, text)
            if block.half:
                self._findings.once("surrogate-lone", "", "a character was cut in two")
            if not text:
                return
        out.append(part(block.id, text))

    def _text_delta(self, block: _Text, delta: wire.Delta, out: list[Part]) -> None:
        self._say(block, delta.text, TextDelta, out)

    def _citations_delta(self, block: _Text, delta: wire.Delta, out: list[Part]) -> None:
        if isinstance(delta.citation, Raw):
            self._cite(block, delta.citation, out)

    def _cite(self, block: _Text, raw: Raw, out: list[Part]) -> None:
        """A source. Its place in the document is not a place in the text: that stays in `raw`."""
        raw = raw.copy()
        block.citations.append(raw)
        read = self._salvage.item(raw, wire.Citation)
        kind, address = source_kind(read)
        out.append(
            Source(
                self._context.ids.local("source"),
                kind,
                block.id,
                url=address,
                file_id=read.file_id,
                title=read.title or read.document_title,
                raw=raw,
            )
        )

    def _thinking_delta(self, block: _Thinking, delta: wire.Delta, out: list[Part]) -> None:
        self._say(block, delta.thinking, ReasoningDelta, out)

    def _signature_delta(self, block: _Thinking, delta: wire.Delta, out: list[Part]) -> None:
        if block.signature and delta.signature:
            self._findings.once("field-dropped", block.id, "a second signature replaced the first")
        block.signature = delta.signature or block.signature

    def _json_delta(self, block: _Use, delta: wire.Delta, out: list[Part]) -> None:
        text = delta.partial_json
        if not text:
            return
        if block.given is not None:
            if text == _EMPTY and block.given == _EMPTY:
                return  # arguments, or only a placeholder before them: what follows tells
            if block.given != _EMPTY:
                detail = f"call {block.id!r}: its start held arguments too; the deltas count"
                self._findings.note("arguments-repeated", detail)
            block.given = None
        self._say(block, text, ToolParamsDelta, out)

    def _compaction_delta(self, block: _Kept, delta: wire.Delta, out: list[Part]) -> None:
        """What is compacted comes in one delta, and belongs into the block."""
        fields = wire.read_fields(block.raw)
        if isinstance(delta.content, Raw):
            fields["content"] = delta.content
        if isinstance(delta.encrypted_content, Raw):
            fields["encrypted_content"] = delta.encrypted_content
        block.raw = Raw(msgspec.json.encode(fields))

    def _unknown_delta(self, block: _Block, delta: wire.Delta, out: list[Part]) -> None:
        self._findings.once("event-unknown", f"delta {delta.type}", f"{delta.type!r}: ignored")

    # What stops

    def _flush_half(
        self,
        block: _Block,
        part: type[TextDelta] | type[ReasoningDelta] | type[ToolParamsDelta],
        out: list[Part],
    ) -> None:
        if block.half:
            out.append(part(block.id, whole_characters(block.half)))

    def _stop_text(self, block: _Text, out: list[Part]) -> None:
        self._flush_half(block, TextDelta, out)
        out.append(TextEnd(block.id, tuple(block.citations)))

    def _stop_thinking(self, block: _Thinking, out: list[Part]) -> None:
        self._flush_half(block, ReasoningDelta, out)
        proof = block.signature or block.redacted
        origin = self._origin if proof else None
        signature, redacted = block.signature, block.redacted
        out.append(ReasoningEnd(block.id, signature=signature, redacted=redacted, origin=origin))

    def _stop_use(self, block: _Use, out: list[Part]) -> None:
        self._flush_half(block, ToolParamsDelta, out)
        if block.given is not None:
            out.append(ToolParamsDelta(block.id, block.given))
        out.append(ToolParamsEnd(block.id))
        out.append(block.call)

    def _stop_kept(self, block: _Kept, out: list[Part]) -> None:
        out.append(Opaque(NAME, block.type, block.raw))

    def _stop_result(self, block: _Block, out: list[Part]) -> None:
        """The result was whole at its start."""


def _later(first: Raw | UnsetType, second: Raw | UnsetType) -> Raw | UnsetType:
    return kept(second) if told(second) else first


def _guessed(delta: wire.Delta) -> str:
    """The type of a delta that tells none, by what it holds."""
    return next((type for field, type in _FIELDS.items() if getattr(delta, field)), "")


_Event = Callable[[MessagesDecoder, wire.Event, list[Part]], None]
_Start = Callable[[MessagesDecoder, wire.Block, Raw, str, list[Part]], _Block]

_AFTER_ERROR = frozenset({"message_start", "message_delta", "message_stop", "ping"})
"""What is still read after an error: usage and the stop reason."""

_EVENTS: dict[str, _Event] = {
    "content_block_delta": MessagesDecoder._block_delta,
    "content_block_start": MessagesDecoder._block_start,
    "content_block_stop": MessagesDecoder._block_stop,
    "message_start": MessagesDecoder._message_start,
    "message_delta": MessagesDecoder._message_delta,
    "message_stop": MessagesDecoder._message_stop,
    "ping": MessagesDecoder._ping,
    "error": MessagesDecoder._on_error,
}

_STARTS: dict[str, _Start] = {
    "text": MessagesDecoder._start_text,
    "thinking": MessagesDecoder._start_thinking,
    "redacted_thinking": MessagesDecoder._start_thinking,
    "tool_use": MessagesDecoder._start_use,
    "server_tool_use": MessagesDecoder._start_use,
    "mcp_tool_use": MessagesDecoder._start_use,
    **dict.fromkeys(wire.RESULTS, MessagesDecoder._start_result),
    "container_upload": MessagesDecoder._start_kept,
    "compaction": MessagesDecoder._start_kept,
    "fallback": MessagesDecoder._start_kept,
    "mcp_tool_listing": MessagesDecoder._start_kept,
}

_DELTAS: dict[str, tuple[type[_Block], Callable[[MessagesDecoder, Any, wire.Delta, Any], None]]] = {
    "text_delta": (_Text, MessagesDecoder._text_delta),
    "citations_delta": (_Text, MessagesDecoder._citations_delta),
    "thinking_delta": (_Thinking, MessagesDecoder._thinking_delta),
    "signature_delta": (_Thinking, MessagesDecoder._signature_delta),
    "input_json_delta": (_Use, MessagesDecoder._json_delta),
    "compaction_delta": (_Kept, MessagesDecoder._compaction_delta),
}
"""What a block grows by, and which block it fits."""

_OPENS = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "compaction_delta": "compaction",
}
"""The block that a delta without one must belong to."""

_FIELDS = {
    "text": "text_delta",
    "partial_json": "input_json_delta",
    "thinking": "thinking_delta",
    "signature": "signature_delta",
}

_STOPS: dict[type[_Block], Callable[[MessagesDecoder, Any, list[Part]], None]] = {
    _Text: MessagesDecoder._stop_text,
    _Thinking: MessagesDecoder._stop_thinking,
    _Use: MessagesDecoder._stop_use,
    _Kept: MessagesDecoder._stop_kept,
    _Block: MessagesDecoder._stop_result,
}
