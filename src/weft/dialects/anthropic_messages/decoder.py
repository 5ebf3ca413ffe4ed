"""A Messages stream, or a whole message, into parts.

- A content block is known by its index, and ends at its own `content_block_stop`: another block
  that starts ends nothing.
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
        return True

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
            self._body(Raw(frame.data.decode("utf-8", "replace").encode()), out)
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
        self._id = message.id or self._context.ids.mint("msg")
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
        for index, raw in enumerate(message.content or ()):
            self._blocks[index] = block = self._reader.open(raw, f"{self._id}:{index}", out)
            self._reader.close(block, out)
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
        """Ends what was never stopped, with all that is known of it; but no call is made so."""
        for index, block in self._blocks.items():
            if block.open and not isinstance(block, Use):
                self._findings.note("end-missing", f"block {index} was still open at the end")
                self._reader.close(block, out)

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
            self._reader.close(before, out)
        self._blocks[index] = self._reader.open(raw, f"{self._id}:{index}", out)

    def _index_missing(self) -> None:
        self._findings.once("call-index-missing", "", "a content block without an index")

    def _block_delta(self, event: wire.Event, out: list[Part]) -> None:
        delta = event.delta
        if delta is None:
            self._findings.once("event-unknown", "delta", "a delta without a value: ignored")
            return
        type = delta.type or _guessed(delta)
        block = self._blocks.get(-1 if event.index is None else event.index)
        if block is None:
            block = self._block_for(event.index, type, out)
        self._reader.grow(block, type, delta, out)

    def _block_for(self, index: int | None, type: str, out: list[Part]) -> Block:
        """The block of a delta that names none, or one that was never started."""
        if index is None:
            self._index_missing()
            block = self._last_open()
            if block is not None:
                return block
            index = max(self._blocks, default=-1) + 1
        detail = f"{type} for block {index}, which was not started"
        self._findings.note("start-missing", detail)
        wanted = DELTAS[type].type if type in DELTAS else "unknown"
        raw = Raw(b'{"type":"%b"}' % wanted.encode())
        self._blocks[index] = block = self._reader.open(raw, f"{self._id}:{index}", out)
        return block

    def _last_open(self) -> Block | None:
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
            self._reader.close(block, out)


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
