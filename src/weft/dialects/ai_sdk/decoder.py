"""Decodes AI SDK streams, of model parts or of UI message chunks, into parts.

- Both streams are read by one table: their types, or the fields of a type, are different.
- Texts, reasoning and calls are identified by their ids. Only its own end ends an item.
- Signatures are in `providerMetadata`, of the start, a delta or the end: they belong to the end of
  the item.
- A step is a response. Its end counts only when the next event shows whether the message ended
  with it, because that event has the finish reason.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

import msgspec
from msgspec import Raw

from weft.assembler import merged
from weft.context import Context
from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.decoding.calls import SdkCalls
from weft.dialects.ai_sdk.decoding.items import SdkReasonings, SdkTexts
from weft.dialects.ai_sdk.mapping import (
    UNKNOWN_MEDIA_TYPE,
    json_string,
    parse_error,
    parse_file,
    parse_finish_reason,
    parse_timestamp,
    parse_usage,
    value_as_text,
)
from weft.dialects.ai_sdk.wire import NAME, SdkExtra, copy_unless_null, on_one_line
from weft.dialects.frames import EventDecoder, is_present
from weft.dialects.raw_json import pack_extra
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    FinishReason,
    Json,
    Opaque,
    Part,
    ResponseMetadata,
    Source,
    Usage,
)
from weft.sse import Frame

V = TypeVar("V")

_NULL = Raw(b"null")


class _SdkPhase(Enum):
    WAITING = "waiting"  # for an id, or for content
    READING = "reading"
    STEPPED = "stepped"  # the step has ended; the message may have, too
    FAILED = "failed"
    CLOSED = "closed"


class SdkDecoder(EventDecoder[wire.SdkEvent]):
    """Decodes one step."""

    def __init__(self, context: Context, findings: Findings) -> None:
        super().__init__(findings, wire.SdkEvent, wire.read, wire.STREAMED_FIELDS)
        self._context = context
        self._calls = SdkCalls(context.ids, findings, context.origin)
        self._phase = _SdkPhase.WAITING
        # The two differ if metadata comes late or twice, as the specification of model parts
        # allows: the first id was emitted and stays, a later model goes into the finish.
        self._head = wire.SdkResponseMetadata()
        """The metadata so far."""
        self._announced = wire.SdkResponseMetadata()
        self._extra = SdkExtra()
        self._texts = SdkTexts(context.origin, findings)
        self._reasonings = SdkReasonings(context.origin, findings)
        self._reason: FinishReason | None = None
        self._raw_reason: str | None = None
        self._usage: Usage | None = None
        self._ending = SdkExtra()

    @property
    def ending(self) -> bool:
        return self._reason is not None

    @property
    def holding(self) -> bool:
        # Nothing is passed through as it came: a message has several responses here, and the end of
        # each waits for the event after it.
        return True

    def finish(self) -> list[Part]:
        """Returns the end of a step that ended. One that did not is for the guard to end."""
        out: list[Part] = []
        if self._phase is _SdkPhase.STEPPED:
            self._end(out)
        return out

    # Frames

    def _handle(self, event: wire.SdkEvent, frame: Frame, out: list[Part]) -> None:
        type = event.type or ""
        # One table for both streams: types that both have mean the same in both.
        handler = EVENTS.get(type)
        # The next step begins, so the message went on: this step ends without the message's reason.
        if self._phase is _SdkPhase.STEPPED and type in _FIRST_EVENTS:
            self._end(out)
        if self._phase is _SdkPhase.CLOSED:
            self._findings.once("after-finish", "", "events after the end: dropped")
        elif handler is not None and (self._phase is not _SdkPhase.FAILED or type in _AFTER_ERROR):
            if self._phase is _SdkPhase.WAITING and type not in _BEFORE_METADATA:
                self._announce(out)
            handler(self, event, out)
        elif self._phase is _SdkPhase.FAILED:
            # capture: content-after-an-error
            self._findings.once("after-error", "", "content after an error: dropped")
        elif type in _OPAQUE_EVENTS or type.startswith("data-"):
            self._opaque(event, frame, out)
        elif type == "" and is_present(event.error):
            # The body of an HTTP error, which has no type.
            self._on_error(event, out)
        else:
            self._note_unknown(type or frame.data.decode("utf-8", "replace"), type)

    def _done(self, out: list[Part]) -> None:
        out += self.finish()

    # The response

    def _announce(self, out: list[Part]) -> None:
        head = self._head
        self._phase = _SdkPhase.READING
        if not head.id:
            # UI messages may leave it out; model parts may send `response-metadata` never at all.
            # capture: dump-of-a-stream
            self._findings.note("metadata-id-minted", "the response has no id: one was made up")
            head = wire.SdkResponseMetadata(
                self._context.ids.mint("resp"), head.timestamp, head.model_id
            )
        self._announced = head
        created = parse_timestamp(head.timestamp)
        extra = pack_extra(self._extra)
        out.append(ResponseMetadata(head.id or "", head.model_id, created, NAME, extra=extra))

    def _merge_metadata(self, head: wire.SdkResponseMetadata) -> None:
        """Merges metadata, which may come in several events. The first id stays."""
        known = self._head
        if head.id and self._announced.id and head.id != self._announced.id:
            detail = f"another response id: {head.id!r}; it was {self._announced.id!r}"
            self._findings.once("metadata-repeated", "", detail)
        self._head = wire.SdkResponseMetadata(
            known.id or head.id,
            known.timestamp or head.timestamp,
            head.model_id or known.model_id,
        )

    def _stream_start(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._extra.warnings = copy_unless_null(event.warnings)

    def _metadata(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._merge_metadata(wire.SdkResponseMetadata(event.id, event.timestamp, event.model_id))
        # Without an id the announcement waits for one, or for the first content.
        if self._phase is _SdkPhase.WAITING and self._head.id:
            self._announce(out)

    def _start(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._extra.message_metadata = copy_unless_null(event.message_metadata)
        self._merge_metadata(wire.SdkResponseMetadata(event.message_id))
        if self._phase is _SdkPhase.WAITING and self._head.id:
            self._announce(out)

    def _start_step(self, event: wire.SdkEvent, out: list[Part]) -> None:
        """Content follows, whether there is an id or not."""
        if self._phase is _SdkPhase.WAITING:
            # A dump has the warnings of the model in each step.
            # capture: dump-of-a-stream
            self._extra.warnings = _later(self._extra.warnings, event.warnings)
            self._announce(out)

    def _finish_step(self, event: wire.SdkEvent, out: list[Part]) -> None:
        if event.response is not None:  # it has an id of its own, not the message's
            self._merge_metadata(
                wire.SdkResponseMetadata(None, event.response.timestamp, event.response.model_id)
            )
        self._read_end(event)
        if self._phase is _SdkPhase.READING:
            self._phase = _SdkPhase.STEPPED

    def _finish(self, event: wire.SdkEvent, out: list[Part]) -> None:
        if self._phase is _SdkPhase.STEPPED:  # the message ends, not only its step
            self._phase = _SdkPhase.READING
        self._read_end(event)
        self._end(out)

    def _read_end(self, event: wire.SdkEvent) -> None:
        """Reads the finish reason and the usage, of a step or a message. Those of the step stay."""
        reason, raw = parse_finish_reason(event)
        self._reason = self._reason or reason
        self._raw_reason = self._raw_reason or raw
        # `totalUsage` sums all steps, so it counts only where the step had no usage of its own.
        usage = event.usage or (None if self._usage else event.total_usage)
        self._usage = merged(parse_usage(usage), self._usage)
        ending = self._ending
        ending.provider_metadata = _later(ending.provider_metadata, event.provider_metadata)
        ending.message_metadata = _later(ending.message_metadata, event.message_metadata)
        ending.usage = _later(ending.usage, usage.raw if usage else msgspec.UNSET)

    def _end(self, out: list[Part]) -> None:
        failed = self._phase is _SdkPhase.FAILED
        reason: FinishReason | None = "error" if failed else self._reason
        # Ends that were held back for a whole call; after an error the guard ends what is open.
        if not failed:
            self._calls.close(out)
        if reason is None:  # a step has no reason of its own, and a message may end without one
            reason = "tool-calls" if self._calls.unanswered else "other"
            if self._phase is not _SdkPhase.STEPPED:
                detail = f"no finish reason came: {reason} is assumed"
                # capture: output-denied
                self._findings.note("finish-inferred", detail)
        # Only a change is told: the model was announced with the response.
        changed = self._head.model_id != self._announced.model_id
        finish = Finish(
            reason,
            raw_reason=self._raw_reason,
            usage=self._usage,
            model=self._head.model_id if changed else None,
            extra=pack_extra(self._ending),
        )
        out.append(finish)
        self._phase = _SdkPhase.CLOSED

    def _on_error(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._fail(parse_error(event), out)

    def _abort(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._fail(ErrorPart("cancelled", event.reason or "the stream was aborted"), out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        if self._phase is _SdkPhase.WAITING:
            self._announce(out)
        if self._phase not in (_SdkPhase.FAILED, _SdkPhase.CLOSED):
            self._phase = _SdkPhase.FAILED
            out.append(error)

    def _ignore(self, event: wire.SdkEvent, out: list[Part]) -> None:
        """The provider's own event, beside the parts that were made of it."""

    # Text and reasoning

    def _text(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._texts.feed(event, out)

    def _reasoning(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._reasonings.feed(event, out)

    # Calls

    def _input_start(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._calls.start(event, out)

    def _input_delta(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._calls.delta(event, out)

    def _input_end(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._calls.end(event, out)

    def _call(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._calls.complete(event, out, invalid="bad-arguments" if event.invalid else None)

    def _input_error(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._calls.complete(event, out, invalid="bad-arguments")

    def _result(self, event: wire.SdkEvent, out: list[Part]) -> None:
        # `result` in model parts, `output` in chunks and dumps.
        value = event.result if isinstance(event.result, Raw) else event.output
        result = on_one_line(value) if isinstance(value, Raw) else _NULL
        out += self._calls.result(event, result, is_error=bool(event.is_error))

    def _output_error(self, event: wire.SdkEvent, out: list[Part]) -> None:
        result = json_string(_first(event.error_text, value_as_text(event.error)) or "")
        out += self._calls.result(event, result, is_error=True)

    def _approval(self, event: wire.SdkEvent, out: list[Part]) -> None:
        self._calls.approval(event, out)

    # The rest

    def _source(self, event: wire.SdkEvent, out: list[Part]) -> None:
        document = event.type == "source-document" or event.source_type == "document"
        extra = SdkExtra(
            copy_unless_null(event.provider_metadata),
            media_type=event.media_type,
            filename=event.filename,
        )
        out.append(
            Source(
                event.source_id or event.id or self._context.ids.local("source"),
                "document" if document else "url",
                url=event.url,
                title=event.title,
                extra=pack_extra(extra),
            )
        )

    def _file(self, event: wire.SdkEvent, out: list[Part]) -> None:
        blob = parse_file(event)
        out.append(
            File(
                self._context.ids.local("file"),
                blob.media_type or UNKNOWN_MEDIA_TYPE,
                data=blob.data,
                reference=blob.url,
                reasoning=event.type == "reasoning-file",
                extra=pack_extra(SdkExtra(copy_unless_null(event.provider_metadata))),
            )
        )

    def _opaque(self, event: wire.SdkEvent, frame: Frame, out: list[Part]) -> None:
        """Keeps an event that no part stands for."""
        type = event.type or ""
        if self._phase is _SdkPhase.WAITING:
            self._announce(out)
        # Front ends drop the step's content at this chunk and read it again.
        # capture: reset-step
        if type == "reset-step":
            # What was emitted is never taken back.
            self._findings.note("not-carried", "reset-step: earlier content of the step is kept")
            self._texts.close(out)
            self._reasonings.close(out)
            self._calls.fail_open(out)
        elif type == "tool-output-denied":
            # The user refused an approval: no output follows.
            self._calls.deny(event)
        out.append(
            Opaque(NAME, type, on_one_line(Raw(frame.data.decode("utf-8", "replace").encode())))
        )


def _first(one: V | None, other: V | None) -> V | None:
    return other if one is None else one


def _later(first: Json, second: Json) -> Json:
    return copy_unless_null(second) if is_present(second) else first


# `start-step` follows `start` in a UI message; a dump has both; a model has only `stream-start`.
_FIRST_EVENTS = frozenset({"stream-start", "start", "start-step"})
"""Events that only start a response."""

_BEFORE_METADATA = _FIRST_EVENTS | {"response-metadata", "raw", "error", "abort"}
"""Events that are read before the metadata is emitted."""

_AFTER_ERROR = frozenset({"response-metadata", "finish-step", "finish", "raw", "error", "abort"})
"""Events that are still read after an error, for the usage and the finish reason."""

_OPAQUE_EVENTS = frozenset(
    {"custom", "message-metadata", "reset-step", "tool-approval-response", "tool-output-denied"}
)
"""Events that are kept as opaque parts, like all whose type begins with `data-`."""

EVENTS: dict[str, Callable[[SdkDecoder, wire.SdkEvent, list[Part]], None]] = {
    # Text and reasoning: the same types in both streams
    "text-delta": SdkDecoder._text,
    "text-start": SdkDecoder._text,
    "text-end": SdkDecoder._text,
    "reasoning-start": SdkDecoder._reasoning,
    "reasoning-delta": SdkDecoder._reasoning,
    "reasoning-end": SdkDecoder._reasoning,
    # Calls: a model ends with `tool-call` what a chunk calls `tool-input-available`
    "tool-input-start": SdkDecoder._input_start,
    "tool-input-delta": SdkDecoder._input_delta,
    "tool-input-end": SdkDecoder._input_end,
    "tool-call": SdkDecoder._call,
    "tool-input-available": SdkDecoder._call,
    "tool-input-error": SdkDecoder._input_error,
    # Results: of a model, a dump, and chunks
    "tool-result": SdkDecoder._result,
    "tool-error": SdkDecoder._output_error,
    "tool-output-available": SdkDecoder._result,
    "tool-output-error": SdkDecoder._output_error,
    "tool-approval-request": SdkDecoder._approval,
    # Sources and files
    "source": SdkDecoder._source,
    "source-url": SdkDecoder._source,
    "source-document": SdkDecoder._source,
    "file": SdkDecoder._file,
    "reasoning-file": SdkDecoder._file,
    # The response, its steps and its end
    "stream-start": SdkDecoder._stream_start,
    "response-metadata": SdkDecoder._metadata,
    "start": SdkDecoder._start,
    "start-step": SdkDecoder._start_step,
    "finish-step": SdkDecoder._finish_step,
    "finish": SdkDecoder._finish,
    "raw": SdkDecoder._ignore,
    "error": SdkDecoder._on_error,
    "abort": SdkDecoder._abort,
}
"""Handlers of the events of both streams."""
