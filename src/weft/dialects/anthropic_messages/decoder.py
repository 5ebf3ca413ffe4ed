"""A Messages stream, or a whole message, into parts.

- A content block is known by its index, and ends at its own `content_block_stop`: another block
  that starts ends nothing.
- What the official client reads otherwise than it is meant, or fails on, leaves a finding at its
  own event: blocks that are not numbered densely or that overlap, deltas that fit nothing, stops
  and required fields that are missing.
- Usage is cumulative, and a stop reason may be told more than once: the last one counts.
- A prefilled `message_start`, and a whole body, are blocks that start and stop at once.
"""

from collections.abc import Callable
from enum import Enum

from msgspec import UNSET, Raw, UnsetType

from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.blocks import DELTAS, Block, Blocks, Use
from weft.dialects.anthropic_messages.meaning import (
    error_of,
    finish_reason,
    merged,
    usage_extra,
    usage_of,
)
from weft.dialects.anthropic_messages.wire import NAME, kept, packed
from weft.dialects.base import Replays, Salvage, told
from weft.findings import Findings
from weft.parts import ErrorPart, Finish, Part, ResponseMetadata
from weft.sse import Frame

_NOTHING = Raw(b"{}")


class _State(Enum):
    WAITING = "waiting"  # for message_start
    READING = "reading"
    FAILED = "failed"
    CLOSED = "closed"
    BODY = "body"  # closed by a whole message, which is no event of a stream


class MessagesDecoder:
    """Reads one message."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self._context = context
        self._findings = findings
        self._salvage = Salvage(findings, wire.GROWING)
        self._reader = Blocks(context, findings, self._salvage)
        self._replays = Replays()
        self._state = _State.WAITING
        self._id = ""
        self._model: str | None = None
        self._blocks: dict[int, Block] = {}
        self._open: dict[int, Block] = {}
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
        if event.type is None and event.error is None and frame.event in EVENTS:
            self._missing("type", "only its event line tells what it is")
        handler = EVENTS.get(event.type or frame.event)
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

    @property
    def ending(self) -> bool:
        return self._stop.stop_reason is not None

    @property
    def holding(self) -> bool:
        """The end is held until it is told; a body always: it cannot be passed on as an event."""
        if self._state is not _State.READING:
            return self._state in (_State.FAILED, _State.BODY)
        return (
            self._stop.stop_reason is not None
            or self._reader.holding
            or any(block.held for block in self._open.values())
        )

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

    def _missing(self, field: str, detail: str) -> None:
        self._findings.once("field-missing", field, f"no {field}: {detail}")

    def _note_framing(self, frame: Frame) -> None:
        if frame.cut:
            self._findings.note("frame-unterminated", "the last event has no blank line after it")
        if frame.split:
            self._findings.once("frame-lines-split", "", "events were separated by one newline")

    def _otherwise(self, event: wire.Event, frame: Frame, out: list[Part]) -> None:
        """An event of another kind, or at another time, than nearly all of them."""
        type = event.type or frame.event
        if self._state in (_State.CLOSED, _State.BODY):
            if type != "ping":
                self._findings.once("after-finish", "", "events after the end: dropped")
        elif type == "message":
            data = frame.data
            if not data.isascii():
                data = data.decode("utf-8", "replace").encode()
            self._body(Raw(data), out)
        elif type == "error" or (type not in EVENTS and event.error is not None):
            self._on_error(event, out)
        elif type not in EVENTS:
            what = type or frame.data[:40].decode("utf-8", "replace")
            self._findings.once("event-unknown", type, f"{what!r}: ignored")
        elif self._state is _State.WAITING:
            self._early(type, event, out)
        elif type in _AFTER_ERROR:
            EVENTS[type](self, event, out)
        else:
            self._findings.once("after-error", "", "content after an error: dropped")

    def _early(self, type: str, event: wire.Event, out: list[Part]) -> None:
        if type not in ("message_start", "ping"):
            self._findings.note("metadata-missing", f"{type} came before message_start")
            self._announce(wire.Message(), out)
        EVENTS[type](self, event, out)

    # The message

    def _announce(self, message: wire.Message, out: list[Part]) -> None:
        self._id = self._reader.message = message.id or self._context.ids.mint("msg")
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
            if message.usage is None or message.content is None:
                self._missing("message.usage or content", "strict readers need both")
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
        for index, raw in enumerate(message.content or ()):
            self._begin(index, raw, out)
            self._stop_block(index, out)
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
        self._state = _State.BODY

    def _message_delta(self, event: wire.Event, out: list[Part]) -> None:
        if event.delta is not None:
            if event.delta.stop_reason is None and self._stop.stop_reason is not None:
                detail = f"no stop reason after {self._stop.stop_reason!r}, which stays"
                self._findings.once("finish-repeated", "", detail)
            self._stopped(event.delta)
        if self._stop.stop_reason is not None:
            for index in self._open:
                self._note_open(index)
        if event.usage is None:
            self._missing("usage", "a strict reader fails on a message_delta without it")
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
            self._close_all(out)
            if stop.stop_reason is None:
                self._findings.note("finish-inferred", "no stop reason came: stop is assumed")
        extra = wire.FinishExtra(
            stop.stop_details, stop.container, self._edits, usage_extra(self._usage)
        )
        finish = Finish(
            "error" if failed else finish_reason(stop.stop_reason),
            raw_reason=stop.stop_reason,
            usage=usage_of(self._usage),
            model=self._reader.model or self._model,
            stop_sequence=stop.stop_sequence,
            extra=packed(extra),
        )
        out.append(finish)
        self._state = _State.CLOSED

    def _close_all(self, out: list[Part]) -> None:
        """Ends what was never stopped, with all that is known of it. A call was made only if it was
        the reason to stop, and its arguments are all there.
        """
        called = finish_reason(self._stop.stop_reason) == "tool-calls"
        for index, block in list(self._open.items()):
            if block.__class__ is not Use or (called and self._reader.is_whole(block)):
                self._note_open(index)
                self._stop_block(index, out)
        self._reader.finish()

    def _note_open(self, index: int) -> None:
        detail = f"block {index} was still open at the stop reason, or at the end"
        self._findings.once("end-missing", f"block {index}", detail)

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
        before = self._open.get(index)
        if before is not None:
            read = self._salvage.item(raw, wire.Block)
            if read.type == before.type and read.id in (None, before.id):
                self._findings.once("start-repeated", str(index), f"block {index} started again")
                return
            self._stop_block(index, out)
        if index in self._blocks:
            self._findings.note("call-index-reused", f"another block began as number {index}")
        elif index != len(self._blocks):
            detail = f"block {index} began where number {len(self._blocks)} was next"
            self._findings.note("block-index-gap", detail)
        if self._open:
            detail = f"block {index} began while block {next(reversed(self._open))} was open"
            self._findings.once("block-interleaved", "", detail)
        self._begin(index, raw, out)

    def _begin(self, index: int, raw: Raw, out: list[Part]) -> Block:
        self._blocks[index] = self._open[index] = block = self._reader.open(raw, out)
        return block

    def _stop_block(self, index: int, out: list[Part]) -> None:
        self._reader.close(self._open.pop(index), out)

    def _index_missing(self) -> None:
        self._findings.once("call-index-missing", "", "a content block without an index")

    def _block_delta(self, event: wire.Event, out: list[Part]) -> None:
        delta = event.delta
        if delta is None:
            self._findings.once("event-unknown", "delta", "a delta without a value: ignored")
            return
        if delta.type is None:
            self._missing("delta.type", "what it holds tells what it is")
        type = delta.type or _guessed(delta)
        block = self._open.get(-1 if event.index is None else event.index)
        if block is None:
            block = self._block_for(event.index, type, out)
        if block is not None:
            self._reader.grow(block, type, delta, out)

    def _block_for(self, index: int | None, type: str, out: list[Part]) -> Block | None:
        """The block of a delta that names none, or one that is not open. Text goes on in a new
        block; what else came for one that was stopped is dropped.
        """
        if index is None:
            self._index_missing()
            if self._open:
                return self._open[next(reversed(self._open))]
            index = max(self._blocks, default=-1) + 1
        if index in self._blocks:
            detail = f"{type} for block {index}, which was stopped"
            self._findings.once("delta-late", f"block {index}", detail)
            if type not in _SAYING:
                return None
        else:
            detail = f"{type} for block {index}, which was not started"
            self._findings.note("start-missing", detail)
        wanted = DELTAS[type].type if type in DELTAS else "unknown"
        return self._begin(index, _BARE.get(wanted, Raw(b'{"type":"%b"}' % wanted.encode())), out)

    def _block_stop(self, event: wire.Event, out: list[Part]) -> None:
        index = event.index
        if index is None:
            self._index_missing()
            index = next(reversed(self._open), None)
        if index in self._open:
            self._stop_block(index, out)
        elif index in self._blocks:
            detail = f"block {index} was stopped before"
            self._findings.once("end-repeated", str(index), detail)
        else:
            detail = f"stop of block {index}, which was not started: dropped"
            self._findings.once("end-without-start", str(index), detail)


def _later(first: Raw | UnsetType, second: Raw | UnsetType) -> Raw | UnsetType:
    return kept(second) if told(second) else first


def _guessed(delta: wire.Delta) -> str:
    """The type of a delta that tells none, by what it holds."""
    told_by = (
        (delta.text, "text_delta"),
        (delta.partial_json, "input_json_delta"),
        (delta.thinking, "thinking_delta"),
        (delta.signature, "signature_delta"),
    )
    return next((type for value, type in told_by if value), "")


_SAYING = frozenset({"text_delta", "thinking_delta"})
"""Deltas that begin a block of their own, if theirs was stopped."""

_BARE = {
    "text": Raw(b'{"type":"text","text":""}'),
    "thinking": Raw(b'{"type":"thinking","thinking":""}'),
    "tool_use": Raw(b'{"type":"tool_use","input":{}}'),
}
"""Blocks as they start when nothing is known of them."""

_AFTER_ERROR = frozenset({"message_start", "message_delta", "message_stop", "ping"})
"""What is still read after an error: usage and the stop reason."""

EVENTS: dict[str, Callable[[MessagesDecoder, wire.Event, list[Part]], None]] = {
    "content_block_delta": MessagesDecoder._block_delta,
    "content_block_start": MessagesDecoder._block_start,
    "content_block_stop": MessagesDecoder._block_stop,
    "message_start": MessagesDecoder._message_start,
    "message_delta": MessagesDecoder._message_delta,
    "message_stop": MessagesDecoder._message_stop,
    "ping": MessagesDecoder._ping,
    "error": MessagesDecoder._on_error,
}
