"""Decodes a Messages stream, or a response that is not streamed, into parts.

- A content block is identified by its index and ends at its own `content_block_stop`; the start of
  another block ends nothing.
- Where the official client would misread or reject a stream, a finding is left at the event: gaps
  or overlaps in the numbering of blocks, deltas that do not fit, missing stops and fields.
- Usage is cumulative, and a stop reason may come more than once: the last one counts.
- The content of a `message_start`, and of a whole message, are blocks that start and stop at once.
"""

from collections.abc import Callable
from enum import Enum

from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.decoding.blocks import DELTAS, BlockDecoder
from weft.dialects.anthropic_messages.decoding.state import (
    BlockState,
    RepeatedToolUseState,
    ToolUseState,
)
from weft.dialects.anthropic_messages.mapping import (
    finish_reason,
    merge_usage,
    parse_error,
    parse_usage,
    usage_extra,
)
from weft.dialects.anthropic_messages.wire import NAME, copy_present
from weft.dialects.frames import EventDecoder, is_present
from weft.dialects.raw_json import pack_extra
from weft.findings import Findings
from weft.partial_json import is_json
from weft.parts import (
    ErrorPart,
    Finish,
    Json,
    Part,
    ReasoningDelta,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextStart,
    ToolParamsDelta,
)
from weft.sse import Frame

_EMPTY_OBJECT = Raw(b"{}")
_STARTS = (TextStart, ReasoningStart)


class _DecoderState(Enum):
    WAITING = "waiting"  # for message_start
    READING = "reading"
    FAILED = "failed"
    CLOSED = "closed"
    BODY = "body"  # closed by a whole message, which is not an event of a stream


_READING = _DecoderState.READING
"""For the comparison at each event: the member of an enum is slower to look up."""


class MessagesDecoder(EventDecoder[wire.MessagesEvent]):
    """Decodes one message."""

    def __init__(self, context: Context, findings: Findings) -> None:
        super().__init__(findings, wire.MessagesEvent, wire.read, wire.GROWING, _CONTENT_EVENTS)
        self._context = context
        self._block_decoder = BlockDecoder(context, findings, self._salvage)
        self._state = _DecoderState.WAITING
        self._id = ""
        self._model: str | None = None
        # Both are keyed by index, the only name that a block has on the wire. A dict, not a list:
        # compatible servers skip indexes and use them twice.
        self._blocks: dict[int, BlockState] = {}
        """The last block that started at each index."""
        self._open: dict[int, BlockState] = {}
        self._usage: wire.MessagesUsage | None = None
        self._stop = wire.EventDelta()
        """The stop reason and what came with it, merged over all events so far."""
        self._context_management: Json = UNSET

    def finish(self) -> list[Part]:
        """Returns the finish, unless there was no stop reason: the guard then ends the message."""
        out: list[Part] = []
        # Compatible servers close the connection after the stop reason, without `message_stop`:
        # nothing is missing then. Without a stop reason the stream was cut, and the guard says so;
        # the official client returns such a message as if it were complete.
        # capture: no-message-stop
        if self._state is _DecoderState.FAILED or (
            self._state is _DecoderState.READING and self._stop.stop_reason is not None
        ):
            self._end(out)
        return out

    @property
    def ending(self) -> bool:
        return self._stop.stop_reason is not None

    @property
    def holding(self) -> bool:
        """The stop reason is held until the end. A body is held for good: it is not an event."""
        # Asked after each frame: passthrough forwards a frame when nothing of it is held back.
        if self._state is not _DecoderState.READING:
            return self._state in (_DecoderState.FAILED, _DecoderState.BODY)
        return (
            self._stop.stop_reason is not None
            or self._block_decoder.holding
            or any(block.held for block in self._open.values())
        )

    # Frames

    def _handle(self, event: wire.MessagesEvent, frame: Frame, out: list[Part]) -> None:
        # The handler of nearly every event is found by two lookups; all the oddities come after it.
        type = event.type
        if not type:
            # The official client goes by the `event:` line and skips an event without one; other
            # clients go by `data.type`. Either is enough here.
            type = frame.event  # capture: no-event-lines
            if event.error is None and type in EVENTS:
                self._note_missing("type", "only the event: line tells it")
        handler = EVENTS.get(type)
        if handler is not None and self._state is _READING:
            handler(self, event, out)
            if out and type == "content_block_delta":
                # With its start, or without: that says nothing which the event does not.
                size = len(out)
                if size == 1 or (size == 2 and out[0].__class__ in _STARTS):
                    self._offer_template(event, frame, out[-1])
        elif self._state in (_DecoderState.CLOSED, _DecoderState.BODY):
            if type != "ping":
                self._findings.once("after-finish", "", "events after the end: dropped")
        elif type == "message" and self._state is _DecoderState.WAITING:
            # One JSON body: the request was not streamed, or the server ignored `stream`.
            # capture: body
            message = self._salvage.item(Raw(frame.data), wire.ResponseMessage)
            self._message_start(wire.MessagesEvent(message=message), out)
            self._end(out)
            self._state = _DecoderState.BODY
        elif type == "message":
            detail = "a whole message inside a stream: ignored"
            self._findings.once("message-ignored", "", detail)
        elif type == "error" or (handler is None and event.error is not None):
            # The API reference sends errors after the headers as an `error` event, under status
            # 200. Proxies also send the bare body of an HTTP error, which need not have a type.
            # capture: error-body, error-inside-text
            self._fail(parse_error(event), out)
        elif handler is None:
            # API reference, "Streaming messages": new event types may be added at any time.
            # capture: unknown-block-and-event
            self._note_unknown(type or frame.data.decode("utf-8", "replace"), type)
        elif self._state is _DecoderState.WAITING:
            if type not in ("message_start", "ping"):
                # The official client raises on any event before `message_start`. What follows can
                # be read without it, so only the id and the model are missing.
                # capture: no-message-start
                self._findings.note("metadata-missing", f"{type} came before message_start")
                self._announce(wire.ResponseMessage(), out)
            handler(self, event, out)
        elif type in _AFTER_ERROR:
            handler(self, event, out)
        else:
            self._findings.once("after-error", "", "content after an error: dropped")

    def _note_missing(self, field: str, detail: str) -> None:
        # capture: no-usage-at-the-end
        self._findings.once("field-missing", field, f"no {field}: {detail}")

    # The message

    def _announce(self, message: wire.ResponseMessage, out: list[Part]) -> None:
        self._id = self._block_decoder.message_id = message.id or self._context.ids.mint("msg")
        self._state = _DecoderState.READING
        self._model = message.model
        # It has the input tokens; its `output_tokens` is a small placeholder, which the
        # `message_delta` overwrites.
        self._usage = message.usage
        usage = parse_usage(message.usage)
        out.append(ResponseMetadata(self._id, message.model, dialect=NAME, usage=usage))

    def _message_start(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        message = (
            event.message
            if isinstance(event.message, wire.ResponseMessage)
            else wire.ResponseMessage()
        )
        if self._state is _DecoderState.WAITING:
            if not message.id:
                detail = "the response has no id: one was made up"
                self._findings.note("metadata-id-minted", detail)
            if message.usage is None or message.content is None:
                self._note_missing("message.usage or content", "strict clients fail without them")
            self._announce(message, out)
            # Programmatic tool calling: calls that the model's code made stand in the first event,
            # complete with their input.
            # capture: call-made-by-code-in-the-first-event
            for index, raw in enumerate(message.content or ()):
                self._start_block(index, raw, out)
                self._stop_block(index, out)
            self._context_management = copy_present(message.context_management)
            self._merge_stop(
                wire.EventDelta(
                    stop_reason=message.stop_reason,
                    stop_sequence=message.stop_sequence,
                    stop_details=message.stop_details,
                    container=message.container,
                )
            )
        elif message.id in (None, self._id):
            # The same id is the same message; the official client ignores the repetition too.
            # capture: message-start-twice
            self._findings.once("metadata-repeated", "", "message_start again: dropped")
        elif self._state is _DecoderState.READING:
            # Another id is another message. The official client would merge the content of both
            # into one.
            # capture: another-message-spliced-in
            # Without the ids: our own messages are logged as they are, so they must not quote.
            detail = "another message started before this one ended"
            self._fail(ErrorPart("truncated", detail, retryable=True), out)
            self._end(out)

    def _message_delta(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        if event.delta is not None:
            if event.delta.stop_reason is None and self._stop.stop_reason is not None:
                # The official client overwrites the reason with null.
                # capture: stop-reason-erased
                detail = f"no stop reason after {self._stop.stop_reason!r}, which is kept"
                self._findings.once("finish-repeated", "", detail)
            self._merge_stop(event.delta)
        # API reference: all blocks are stopped before the event with the stop reason.
        if self._stop.stop_reason is not None:
            for index in self._open:
                self._note_open(index)
        if event.usage is None:
            # The official client reads `usage.output_tokens` without a check, and raises.
            # capture: no-usage-at-the-end
            self._note_missing("usage", "strict clients fail on a message_delta without it")
        if is_present(event.context_management):
            self._context_management = copy_present(event.context_management)
        self._usage = merge_usage(self._usage, event.usage)

    def _merge_stop(self, delta: wire.EventDelta) -> None:
        """Later values win; missing and null ones change nothing."""
        stop = self._stop
        if stop.stop_reason and delta.stop_reason not in (None, stop.stop_reason):
            # capture: stop-reason-told-twice
            detail = f"stop reason {delta.stop_reason!r} after {stop.stop_reason!r}"
            self._findings.once("finish-repeated", "", detail)
        self._stop = wire.EventDelta(
            stop_reason=delta.stop_reason or stop.stop_reason,
            stop_sequence=delta.stop_sequence or stop.stop_sequence,
            stop_details=_later(stop.stop_details, delta.stop_details),
            container=_later(stop.container, delta.container),
        )

    def _message_stop(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        self._end(out)

    def _end(self, out: list[Part]) -> None:
        failed = self._state is _DecoderState.FAILED
        stop = self._stop
        if not failed:
            # A call that was not stopped is completed only if the stop reason says that calls were
            # made and its arguments are complete; otherwise the guard marks it as invalid.
            # Converters forget the stop of a block when the next one starts, or at the end.
            # capture: thinking-left-open, call-left-open, call-left-open-and-cut
            # capture: call-repeated-and-cut
            called = finish_reason(stop.stop_reason) == "tool-calls"
            for index, block in list(self._open.items()):
                if not isinstance(block, ToolUseState) or (called and is_json(block.arguments)):
                    self._note_open(index)
                    self._stop_block(index, out)
                elif isinstance(block, RepeatedToolUseState):
                    self._block_decoder.release(block, out)
            self._block_decoder.finish()
            if stop.stop_reason is None:
                # `message_stop` says that the end was meant, so this is not a truncated stream.
                # capture: no-stop-reason
                self._findings.note("finish-inferred", "no stop reason: stop is assumed")
        extra = wire.MessagesFinishExtra(
            stop.stop_details, stop.container, self._context_management, usage_extra(self._usage)
        )
        finish = Finish(
            "error" if failed else finish_reason(stop.stop_reason),
            raw_reason=stop.stop_reason,
            usage=parse_usage(self._usage),
            model=self._block_decoder.model or self._model,  # a fallback may have renamed it
            stop_sequence=stop.stop_sequence,
            extra=pack_extra(extra),
        )
        out.append(finish)
        self._state = _DecoderState.CLOSED

    def _note_open(self, index: int) -> None:
        detail = f"block {index} was still open at the stop reason or the end"
        # capture: call-left-open, thinking-left-open
        self._findings.once("end-missing", f"block {index}", detail)

    def _on_error(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        self._fail(parse_error(event), out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._state is _DecoderState.WAITING:
            self._announce(wire.ResponseMessage(), out)
        # A second error adds nothing: the first one ended the content.
        if self._state is _DecoderState.READING:
            self._state = _DecoderState.FAILED
            out.append(error)

    def _ping(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        """A keepalive."""

    # Blocks

    def _content_block_start(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        raw = event.content_block if isinstance(event.content_block, Raw) else _EMPTY_OBJECT
        index = event.index
        if index is None:
            self._note_no_index()
            index = max(self._blocks, default=-1) + 1
        if self._stop.stop_reason is not None:
            self._findings.once("finish-late-content", "", "content after the stop reason")
        # The same block announced twice is one block. Another one under the index of an open block
        # ends that block: two of them could not be told apart by their deltas.
        open_block = self._open.get(index)
        if open_block is not None:
            block = self._salvage.item(raw, wire.ContentBlock)
            if block.type == open_block.type and block.id in (None, open_block.id):
                self._findings.once("start-repeated", str(index), f"block {index} started again")
                return
            self._stop_block(index, out)
        if index in self._blocks:
            # The official client appends blocks by arrival and reads them by index, so that all
            # deltas of these would land in the first one.
            # capture: index-zero-for-every-block
            detail = f"another block started with index {index}"
            self._findings.note("call-index-reused", detail)
        elif index != len(self._blocks):
            # The official client raises IndexError at the first delta of such a block.
            # capture: index-gap
            detail = f"block {index} started where {len(self._blocks)} was the next index"
            self._findings.note("block-index-gap", detail)
        if self._open:
            # The API writes one block at a time; converters of Chat Completions interleave parallel
            # calls. Their indexes keep them apart, for the official client too.
            # capture: blocks-interleaved
            detail = f"block {index} started while block {next(reversed(self._open))} was open"
            self._findings.once("block-interleaved", "", detail)
        self._start_block(index, raw, out)

    def _start_block(self, index: int, raw: Raw, out: list[Part]) -> BlockState:
        self._blocks[index] = self._open[index] = block = self._block_decoder.start(raw, out)
        return block

    def _stop_block(self, index: int, out: list[Part]) -> None:
        self._block_decoder.stop(self._open.pop(index), out)

    def _note_no_index(self) -> None:
        # capture: no-indexes
        self._findings.once("call-index-missing", "", "a content block event without an index")

    def _offer_template(self, event: wire.MessagesEvent, frame: Frame, part: Part) -> None:
        """Makes a template of an event that held one delta and nothing else, and noted nothing."""
        key = _DELTA_KEYS.get((event.delta and event.delta.type) or "")
        block = self._open.get(-1 if event.index is None else event.index)
        if key is None or block is None or self.holding:
            return
        if isinstance(part, TextDelta | ReasoningDelta | ToolParamsDelta):
            template = self._make_template(frame, key, part)
            if template is not None and isinstance(block, ToolUseState):
                template.note = block.note_delta

    def _content_block_delta(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        delta = event.delta
        if delta is None:
            self._findings.once("event-unknown", "delta", "content_block_delta without a delta")
            return
        if delta.type is None:
            self._note_missing("delta.type", "it is inferred from the other fields")
        type = delta.type or _infer_delta_type(delta)
        block = self._open.get(-1 if event.index is None else event.index)
        if block is None:
            block = self._block_for_delta(event.index, type, out)
        if block is not None:
            self._block_decoder.add_delta(block, type, delta, out)

    def _block_for_delta(self, index: int | None, type: str, out: list[Part]) -> BlockState | None:
        """The block for a delta without an index, or for an index that is not open. Text after a
        stop starts a new block; other late deltas are dropped.
        """
        if index is None:
            self._note_no_index()
            if self._open:
                return self._open[next(reversed(self._open))]
            index = max(self._blocks, default=-1) + 1
        if index in self._blocks:
            # Late text is content that nobody has seen. Late arguments would change a call that was
            # emitted as complete, and a late signature has nothing left to sign.
            # capture: delta-after-the-stop
            detail = f"{type!r} for block {index}, which was stopped before"
            self._findings.once("delta-late", f"block {index}", detail)
            if type not in _TEXT_DELTAS:
                return None
        else:
            # The delta says which type of block it needs; a call then has no id and no name.
            # capture: deltas-without-a-start
            detail = f"{type!r} for block {index}, which was not started"
            self._findings.note("start-missing", detail)
        block_type = DELTAS[type].block_type if type in DELTAS else "unknown"
        default = Raw(b'{"type":"%b"}' % block_type.encode())
        return self._start_block(index, _EMPTY_BLOCKS.get(block_type, default), out)

    def _content_block_stop(self, event: wire.MessagesEvent, out: list[Part]) -> None:
        index = event.index
        if index is None:
            self._note_no_index()
            index = next(reversed(self._open), None)
        if index in self._open:
            self._stop_block(index, out)
        elif index in self._blocks:
            detail = f"block {index} was stopped before"
            # capture: deltas-that-do-not-fit
            self._findings.once("end-repeated", str(index), detail)
        else:
            detail = f"stop of block {index}, which was not started: dropped"
            # capture: deltas-that-do-not-fit
            self._findings.once("end-without-start", str(index), detail)


def _later(first: Json, second: Json) -> Json:
    return copy_present(second) if is_present(second) else first


def _infer_delta_type(delta: wire.EventDelta) -> str:
    fields = (
        (delta.text, "text_delta"),
        (delta.partial_json, "input_json_delta"),
        (delta.thinking, "thinking_delta"),
        (delta.signature, "signature_delta"),
    )
    return next((type for value, type in fields if value), "")


_DELTA_KEYS = {
    "text_delta": b'"text"',
    "thinking_delta": b'"thinking"',
    "input_json_delta": b'"partial_json"',
}
"""The deltas that all look alike, and the key of their text."""

_TEXT_DELTAS = frozenset({"text_delta", "thinking_delta"})
"""Deltas that start a new block if theirs was stopped."""

_EMPTY_BLOCKS = {
    "text": Raw(b'{"type":"text","text":""}'),
    "thinking": Raw(b'{"type":"thinking","thinking":""}'),
    "tool_use": Raw(b'{"type":"tool_use","input":{}}'),
}
"""The start block that is assumed where none came."""

_AFTER_ERROR = frozenset({"message_start", "message_delta", "message_stop", "ping"})
"""Events that are still read after an error, for the usage and the stop reason."""

EVENTS: dict[str, Callable[[MessagesDecoder, wire.MessagesEvent, list[Part]], None]] = {
    "content_block_delta": MessagesDecoder._content_block_delta,
    "content_block_start": MessagesDecoder._content_block_start,
    "content_block_stop": MessagesDecoder._content_block_stop,
    "message_start": MessagesDecoder._message_start,
    "message_delta": MessagesDecoder._message_delta,
    "message_stop": MessagesDecoder._message_stop,
    "ping": MessagesDecoder._ping,
    "error": MessagesDecoder._on_error,
}
_CONTENT_EVENTS = frozenset(EVENTS) - {"ping", "error"}
"""Events whose data must be readable."""
