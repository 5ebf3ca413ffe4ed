"""Model parts, or the chunks of a UI message stream, into parts.

- Both streams are read by one table: their types, or the fields of a type, tell them apart.
- Texts and reasonings are known by their ids, calls by theirs (see calls). Only its own end ends
  an item.
- Proofs stand in `providerMetadata`, at the start, at a delta or at the end: they belong to the
  end of the item.
- A step is a response. Its end counts only when the next chunk shows whether the message ended
  with it, because that chunk tells the reason.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

import msgspec
from msgspec import Raw

from weft.assembler import merged
from weft.context import Context
from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.calls import Calls
from weft.dialects.ai_sdk.mapping import (
    UNTYPED,
    blob_of,
    created_of,
    error_of,
    error_text,
    raw_text,
    reason_of,
    usage_of,
)
from weft.dialects.ai_sdk.spans import Texts, Thoughts
from weft.dialects.ai_sdk.wire import NAME, Extra, flat, kept, packed
from weft.dialects.base import ReplayDetector, Salvage, is_present
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    FinishReason,
    Opaque,
    Part,
    ResponseMetadata,
    Source,
    Usage,
)
from weft.sse import DONE, Frame

V = TypeVar("V")

_NULL = Raw(b"null")


class _State(Enum):
    WAITING = "waiting"  # for an id, or for content
    READING = "reading"
    STEPPED = "stepped"  # the step is over; the message may be, too
    FAILED = "failed"
    CLOSED = "closed"


class StreamDecoder:
    """Reads one step."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self._context = context
        self._findings = findings
        self._salvage = Salvage(findings, wire.GROWING)
        self._replays = ReplayDetector()
        self._calls = Calls(context.ids, findings, context.origin)
        self._state = _State.WAITING
        self._head = wire.Head()
        """What was told of the response so far."""
        self._announced = wire.Head()
        self._extra = Extra()
        self._texts = Texts(context.origin, findings)
        self._thoughts = Thoughts(context.origin, findings)
        self._reason: FinishReason | None = None
        self._raw_reason: str | None = None
        self._usage: Usage | None = None
        self._ending = Extra()

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        out: list[Part] = []
        if frame.data == DONE:
            self._done(out)
            return out
        if frame.id is not None and self._replays.seen(frame.id, frame.data):
            self._findings.note("frame-replayed", f"event {frame.id!r} came before: dropped")
            return out
        event = self._read(frame, out)
        if event is not None:
            self._event(event, frame, out)
        return out

    @property
    def ending(self) -> bool:
        return self._reason is not None

    @property
    def holding(self) -> bool:
        return True

    def finish(self) -> list[Part]:
        """Returns the end of a step that ended. One that did not is for the guard to end."""
        out: list[Part] = []
        if self._state is _State.STEPPED:
            self._end(out)
        return out

    # Frames

    def _read(self, frame: Frame, out: list[Part]) -> wire.Event | None:
        try:
            event = wire.read(frame.data)
        except (ValueError, RecursionError):
            try:
                event = self._salvage.read(frame.data, wire.Event)
            except ValueError as problem:
                self._unreadable(frame, str(problem), out)
                return None
        if frame.cut:
            self._findings.note("frame-unterminated", "the last event has no blank line after it")
        if frame.split:
            self._findings.once("frame-lines-split", "", "events were separated by one newline")
        return event

    def _unreadable(self, frame: Frame, problem: str, out: list[Part]) -> None:
        if frame.cut:
            self._findings.note("frame-unterminated", "the input ended inside the last event")
        elif self._state is _State.CLOSED:
            self._findings.once("after-finish", "", "events after the end: dropped")
        else:
            detail = f"event {frame.number} is not JSON: {problem}"
            self._fail(ErrorPart("malformed", detail), out)

    def _event(self, event: wire.Event, frame: Frame, out: list[Part]) -> None:
        type = event.type or ""
        handler = EVENTS.get(type)
        if self._state is _State.STEPPED and type in _FIRST:
            self._end(out)
        if self._state is _State.CLOSED:
            self._findings.once("after-finish", "", "events after the end: dropped")
        elif handler is not None and (self._state is not _State.FAILED or type in _AFTER_ERROR):
            if self._state is _State.WAITING and type not in _HEADS:
                self._announce(out)
            handler(self, event, out)
        elif self._state is _State.FAILED:
            self._findings.once("after-error", "", "content after an error: dropped")
        elif type in _OWN or type.startswith("data-"):
            self._opaque(event, frame, out)
        elif type == "" and is_present(event.error):
            self._on_error(event, out)
        else:
            what = type or frame.data[:40].decode("utf-8", "replace")
            self._findings.once("event-unknown", type, f"{what!r}: ignored")

    def _done(self, out: list[Part]) -> None:
        """The end of the stream. Whether it was also one of the response is told before."""
        if self._state is _State.STEPPED:
            self._end(out)

    # The response

    def _announce(self, out: list[Part]) -> None:
        head = self._head
        self._state = _State.READING
        if not head.id:
            self._findings.note("metadata-id-minted", "the wire gave the response no id")
            head = wire.Head(self._context.ids.mint("resp"), head.timestamp, head.model_id)
        self._announced = head
        created = created_of(head.timestamp)
        extra = packed(self._extra)
        out.append(ResponseMetadata(head.id or "", head.model_id, created, NAME, extra=extra))

    def _learn(self, head: wire.Head) -> None:
        """What is told of the response, at once or bit by bit; the first id stays."""
        known = self._head
        if head.id and self._announced.id and head.id != self._announced.id:
            detail = f"the response was {self._announced.id!r}, and is told to be {head.id!r}"
            self._findings.once("metadata-repeated", "", detail)
        self._head = wire.Head(
            known.id or head.id,
            known.timestamp or head.timestamp,
            head.model_id or known.model_id,
        )

    def _stream_start(self, event: wire.Event, out: list[Part]) -> None:
        self._extra.warnings = kept(event.warnings)

    def _metadata(self, event: wire.Event, out: list[Part]) -> None:
        self._learn(wire.Head(event.id, event.timestamp, event.model_id))
        if self._state is _State.WAITING and self._head.id:
            self._announce(out)

    def _start(self, event: wire.Event, out: list[Part]) -> None:
        self._extra.message_metadata = kept(event.message_metadata)
        self._learn(wire.Head(event.message_id))
        if self._state is _State.WAITING and self._head.id:
            self._announce(out)

    def _start_step(self, event: wire.Event, out: list[Part]) -> None:
        """Content follows, whether there is an id or not."""
        if self._state is _State.WAITING:
            self._extra.warnings = _later(self._extra.warnings, event.warnings)
            self._announce(out)

    def _finish_step(self, event: wire.Event, out: list[Part]) -> None:
        if event.response is not None:  # it has an id of its own, not the message's
            self._learn(wire.Head(None, event.response.timestamp, event.response.model_id))
        self._ended(event)
        if self._state is _State.READING:
            self._state = _State.STEPPED

    def _finish(self, event: wire.Event, out: list[Part]) -> None:
        if self._state is _State.STEPPED:  # the message ends, not only its step
            self._state = _State.READING
        self._ended(event)
        self._end(out)

    def _ended(self, event: wire.Event) -> None:
        """What is told of the end, by the step and by the message. What the step told stays."""
        reason, raw = reason_of(event)
        self._reason = self._reason or reason
        self._raw_reason = self._raw_reason or raw
        usage = event.usage or (None if self._usage else event.total_usage)
        self._usage = merged(usage_of(usage), self._usage)
        ending = self._ending
        ending.provider_metadata = _later(ending.provider_metadata, event.provider_metadata)
        ending.message_metadata = _later(ending.message_metadata, event.message_metadata)
        ending.usage = _later(ending.usage, usage.raw if usage else msgspec.UNSET)

    def _end(self, out: list[Part]) -> None:
        failed = self._state is _State.FAILED
        if not failed:
            self._calls.close(out)
        told_late = self._head.model_id != self._announced.model_id
        finish = Finish(
            "error" if failed else self._reason or self._inferred(),
            raw_reason=self._raw_reason,
            usage=self._usage,
            model=self._head.model_id if told_late else None,
            extra=packed(self._ending),
        )
        out.append(finish)
        self._state = _State.CLOSED

    def _inferred(self) -> FinishReason:
        """A message may end without a reason: what it waits for is one. A step never has any."""
        reason: FinishReason = "tool-calls" if self._calls.unanswered else "other"
        if self._state is not _State.STEPPED:
            self._findings.note("finish-inferred", f"no finish reason came: {reason} is assumed")
        return reason

    def _on_error(self, event: wire.Event, out: list[Part]) -> None:
        self._fail(error_of(event), out)

    def _abort(self, event: wire.Event, out: list[Part]) -> None:
        self._fail(ErrorPart("cancelled", event.reason or "the stream was aborted"), out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._state is _State.WAITING:
            self._announce(out)
        if self._state is not _State.FAILED:  # the first one counts
            self._state = _State.FAILED
            out.append(error)

    def _nothing(self, event: wire.Event, out: list[Part]) -> None:
        """What the provider itself sent, beside the parts it was made into."""

    # Text and reasoning

    def _text(self, event: wire.Event, out: list[Part]) -> None:
        self._texts.feed(event, out)

    def _reasoning(self, event: wire.Event, out: list[Part]) -> None:
        self._thoughts.feed(event, out)

    # Calls

    def _input_start(self, event: wire.Event, out: list[Part]) -> None:
        self._calls.start(event, out)

    def _input_delta(self, event: wire.Event, out: list[Part]) -> None:
        self._calls.delta(event, out)

    def _input_end(self, event: wire.Event, out: list[Part]) -> None:
        self._calls.end(event, out)

    def _call(self, event: wire.Event, out: list[Part]) -> None:
        self._calls.made(event, out, invalid="bad-arguments" if event.invalid else None)

    def _input_error(self, event: wire.Event, out: list[Part]) -> None:
        self._calls.made(event, out, invalid="bad-arguments")

    def _result(self, event: wire.Event, out: list[Part]) -> None:
        value = event.result if isinstance(event.result, Raw) else event.output
        result = flat(value) if isinstance(value, Raw) else _NULL
        out += self._calls.result(event, result, is_error=bool(event.is_error))

    def _output_error(self, event: wire.Event, out: list[Part]) -> None:
        result = raw_text(_first(event.error_text, error_text(event.error)) or "")
        out += self._calls.result(event, result, is_error=True)

    def _approval(self, event: wire.Event, out: list[Part]) -> None:
        self._calls.approval(event, out)

    # The rest

    def _source(self, event: wire.Event, out: list[Part]) -> None:
        document = event.type == "source-document" or event.source_type == "document"
        extra = Extra(
            kept(event.provider_metadata), media_type=event.media_type, filename=event.filename
        )
        out.append(
            Source(
                event.source_id or event.id or self._context.ids.local("source"),
                "document" if document else "url",
                url=event.url,
                title=event.title,
                extra=packed(extra),
            )
        )

    def _file(self, event: wire.Event, out: list[Part]) -> None:
        blob = blob_of(event)
        out.append(
            File(
                self._context.ids.local("file"),
                blob.media_type or UNTYPED,
                data=blob.data,
                reference=blob.url,
                reasoning=event.type == "reasoning-file",
                extra=packed(Extra(kept(event.provider_metadata))),
            )
        )

    def _opaque(self, event: wire.Event, frame: Frame, out: list[Part]) -> None:
        """What belongs to the message only: it comes back as it was."""
        type = event.type or ""
        if self._state is _State.WAITING:
            self._announce(out)
        if type == "reset-step":
            self._reset(out)
        elif type == "tool-output-denied":
            self._calls.denied(event)
        out.append(Opaque(NAME, type, flat(Raw(frame.data.decode("utf-8", "replace").encode()))))

    def _reset(self, out: list[Part]) -> None:
        """Ends what is open. What was emitted is never taken back: it stays, and is noted."""
        self._findings.note("not-carried", "reset-step: what the step said before stays")
        self._texts.close(out)
        self._thoughts.close(out)
        self._calls.drop(out)


def _first(one: V | None, other: V | None) -> V | None:
    return other if one is None else one


def _later(first: wire.Json, second: wire.Json) -> wire.Json:
    return kept(second) if is_present(second) else first


_FIRST = frozenset({"stream-start", "start", "start-step"})
"""What only another response begins with."""

_HEADS = _FIRST | {"response-metadata", "raw", "error", "abort"}
"""What is read before the response is announced."""

_AFTER_ERROR = frozenset({"response-metadata", "finish-step", "finish", "raw", "error", "abort"})
"""What is still read after an error: usage and the reason."""

_OWN = frozenset(
    {"custom", "message-metadata", "reset-step", "tool-approval-response", "tool-output-denied"}
)
"""Chunks that belong to the message; as do all that begin with `data-`."""

EVENTS: dict[str, Callable[[StreamDecoder, wire.Event, list[Part]], None]] = {
    "text-delta": StreamDecoder._text,
    "text-start": StreamDecoder._text,
    "text-end": StreamDecoder._text,
    "reasoning-start": StreamDecoder._reasoning,
    "reasoning-delta": StreamDecoder._reasoning,
    "reasoning-end": StreamDecoder._reasoning,
    "tool-input-start": StreamDecoder._input_start,
    "tool-input-delta": StreamDecoder._input_delta,
    "tool-input-end": StreamDecoder._input_end,
    "tool-call": StreamDecoder._call,
    "tool-input-available": StreamDecoder._call,
    "tool-input-error": StreamDecoder._input_error,
    "tool-result": StreamDecoder._result,
    "tool-error": StreamDecoder._output_error,
    "tool-output-available": StreamDecoder._result,
    "tool-output-error": StreamDecoder._output_error,
    "tool-approval-request": StreamDecoder._approval,
    "source": StreamDecoder._source,
    "source-url": StreamDecoder._source,
    "source-document": StreamDecoder._source,
    "file": StreamDecoder._file,
    "reasoning-file": StreamDecoder._file,
    "stream-start": StreamDecoder._stream_start,
    "response-metadata": StreamDecoder._metadata,
    "start": StreamDecoder._start,
    "start-step": StreamDecoder._start_step,
    "finish-step": StreamDecoder._finish_step,
    "finish": StreamDecoder._finish,
    "raw": StreamDecoder._nothing,
    "error": StreamDecoder._on_error,
    "abort": StreamDecoder._abort,
}
"""What each type means, in both streams."""
