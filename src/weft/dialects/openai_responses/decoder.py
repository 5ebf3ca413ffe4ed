"""Decodes a Responses stream, or a whole response, into parts.

- Events about an output item are handled in `decoding/`. This module handles the events about the
  response itself: its metadata, its end and its errors.
- A full value arrives up to four times after its deltas. It is passed on as `whole`, which only
  completes what was streamed and never repeats it.
- The same error often arrives twice, in different shapes. Only the first one is emitted.
- A whole response is decoded like a stream whose items arrive all at once.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from msgspec import Raw

from weft.context import Context
from weft.dialects.frames import EventDecoder
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding import hosted_calls, shell_calls
from weft.dialects.openai_responses.decoding.item import DecodedItem, DecodedPart
from weft.dialects.openai_responses.decoding.output_items import ITEM_EVENTS, OutputItems
from weft.dialects.openai_responses.decoding.state import DecoderState
from weft.dialects.openai_responses.extra import finish_extra
from weft.dialects.openai_responses.mapping import (
    FINISH_REASONS,
    error_from_wire,
    usage_from_wire,
)
from weft.dialects.openai_responses.wire import NAME, ResponsesEvent
from weft.dialects.raw_json import decode_or_default
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    Finish,
    Opaque,
    Part,
    ReasoningDelta,
    ResponseMetadata,
    TextDelta,
    ToolParamsDelta,
)
from weft.sse import Frame

# `cancelled` exists only in the original API: Open Responses has neither a status nor an event for
# it.
FAILED_STATUSES = frozenset({"failed", "cancelled"})


class _DecoderPhase(Enum):
    # The phases only advance. After an error the terminal event is still read, for its usage and
    # the raw reason; after the finish nothing is.
    READING = "reading"
    FAILED = "failed"
    CLOSED = "closed"


class _EventNumbers:
    """The numbers of the events so far, each with a hash of its event."""

    __slots__ = ("_digests", "last")

    def __init__(self, digests: dict[str | int, int]) -> None:
        self._digests = digests
        self.last = -1
        """The highest `sequence_number` so far."""

    def add(self, number: int, data: bytes) -> None:
        self.last = number
        self._digests[number] = hash(data)


class ResponsesDecoder(EventDecoder[ResponsesEvent]):
    """Decodes one response."""

    def __init__(self, context: Context, findings: Findings) -> None:
        super().__init__(
            findings, ResponsesEvent, wire.decode_event, wire.STREAMED_FIELDS, _EVENT_NAMES
        )
        self._context = context
        self._state = DecoderState(context, findings)
        self._items = OutputItems(self._state)
        self._numbers = _EventNumbers(self._digests)
        self._response_id: str | None = None
        self._phase = _DecoderPhase.READING

    def finish(self) -> list[Part]:
        """Ends a stream without a terminal event. The guard adds the finish."""
        out: list[Part] = []
        self._state.out = out
        # A call whose arguments were declared done is whole although the stream was cut. It comes
        # before the error, behind which only ends and the finish are legal. Without items the guard
        # decides whether the stream was truncated or empty.
        # capture: cut-inside-a-call
        if self._phase is _DecoderPhase.READING and self._items:
            self._items.end_calls()
            message = "the stream ended before its finish"
            self._fail(ErrorPart("truncated", message, retryable=True), self._state.out)
        if self._phase is _DecoderPhase.FAILED:
            self._items.end_parts(whole=False)
        self._phase = _DecoderPhase.CLOSED
        return out

    @property
    def ending(self) -> bool:
        """Always False: the terminal event carries the finish reason and the usage together."""
        return False

    @property
    def holding(self) -> bool:
        return self._phase is _DecoderPhase.READING and self._items.holding

    # Frames

    def _handle(self, event: ResponsesEvent, frame: Frame, out: list[Part]) -> None:
        self._state.out = out
        number = event.sequence_number
        # Nearly every event takes the first branch. Its number is remembered with a hash of its
        # bytes, so that an event that is sent again under its number counts once.
        if number is not None and number > self._numbers.last:
            self._numbers.add(number, frame.data)
        # The same number with other bytes is not a replay: in a response that is spliced in,
        # numbers start at 0 again.
        # capture: another-response-spliced-in
        elif number is not None and self._is_replay(number, frame.data):
            return
        else:
            self._check_number(event, number)
        # Most events of a stream are deltas of an item, so they are looked up first. After an error
        # they match no branch below and are dropped.
        if self._phase is _DecoderPhase.READING and (handler := ITEM_EVENTS.get(event.type or "")):
            item = self._items.item_for_event(event)
            handler(self._state, item, event)
            if len(out) == 1:
                self._offer_template(event, frame, item, out[0])
        else:
            self._handle_other(event, frame, event.type or frame.event)

    def _handle_other(self, event: ResponsesEvent, frame: Frame, type: str) -> None:
        """Handles everything but the events of items."""
        respond = RESPONSE_EVENTS.get(type)
        if self._phase is _DecoderPhase.CLOSED:
            self._findings.once("after-finish", "", "events after the end: dropped")
        elif respond is not None:
            # Some hosts send items first and never `response.created`; its metadata may still come
            # in another snapshot.
            # capture: never-created
            if self._response_id is None and type not in _FIRST_EVENTS:
                self._findings.once("metadata-missing", "", f"{type} came before response.created")
            if self._phase is _DecoderPhase.READING or type in _TERMINAL_STATUSES:
                respond(self, event, frame)
        # A server that does not stream answers with the response object, which has no `type`.
        # capture: body
        elif event.object == wire.RESPONSE_OBJECT:
            self._body(Raw(frame.data))
        # An error body has no `type` either, only `error`. An unknown `response.*` event with a
        # field of that name is not the end of the response.
        # capture: error-body
        elif event.error is not None and not type.startswith("response."):
            self._on_error(event, frame)
        # Chunks of Chat Completions have `choices` and no `type`. One clear error replaces a
        # finding for each chunk.
        # capture: chunks-of-another-dialect
        elif isinstance(event.choices, Raw):
            message = f"the upstream speaks openai-chat, not {NAME}"
            self._fail(ErrorPart("malformed", message), self._state.out)
        # Every known type is in one of the two tables, so this one is new or an extension
        # (`slug:name`), which clients must be able to ignore (Open Responses, Extensions).
        # capture: unknown-item-event-and-part
        elif type not in ITEM_EVENTS:
            self._note_unknown(type)

    def _offer_template(
        self, event: ResponsesEvent, frame: Frame, item: DecodedItem, part: Part
    ) -> None:
        """Makes a template of an event that held one delta and nothing else."""
        number = event.sequence_number
        is_next = number is None or number == self._numbers.last
        if event.type not in _DELTA_EVENTS or not is_next or self._items.holding:
            return
        if not isinstance(part, TextDelta | ReasoningDelta | ToolParamsDelta):
            return
        text = next((one for one in item.parts.values() if one.id == part.id), None)
        # After the whole value, a delta is held to be compared with it.
        if item.full_value is not None or (text is not None and text.full_text is not None):
            return
        template = self._make_template(frame, b'"delta"', part)
        if template is None:
            return
        if number is not None and not template.count(b'"sequence_number"', number):
            self.template = None
            return
        template.note = partial(_note_delta, None if number is None else self._numbers, text)

    def _salvage_event(self, data: bytes) -> ResponsesEvent:
        """Recognises a response body first: its keys mean something else than an event's."""
        header = decode_or_default(Raw(data), wire.ObjectOnly)
        if header.object == wire.RESPONSE_OBJECT:
            return ResponsesEvent(object=wire.RESPONSE_OBJECT)
        return super()._salvage_event(data)

    def _done(self, out: list[Part]) -> None:
        """Clients stop reading here, so it should come after a terminal event."""
        if self._phase is _DecoderPhase.READING:
            detail = "[DONE] before a terminal event: ignored"
            self._findings.once("event-unknown", "[DONE]", detail)

    def _check_number(self, event: ResponsesEvent, number: int | None) -> None:
        """Reports an event without a `sequence_number`, or with one that is not higher than the
        last. Events outside `response.*` carry no content and need none.
        """
        type = event.type or ""
        if not type.startswith("response.") or self._phase is not _DecoderPhase.READING:
            return
        if number is None:
            # The specification requires a number in every event; some hosts send none at all.
            # capture: no-sequence-numbers
            self._findings.once("sequence-number-missing", "", f"{type!r} has no sequence_number")
        else:
            # The event counts all the same: the order of arrival is the only one that is certain.
            # capture: sequence-number-twice
            detail = f"{type!r} has sequence_number {number} after {self._numbers.last}"
            self._findings.once("sequence-number-disordered", "", detail)

    def _ignore(self, event: ResponsesEvent, frame: Frame) -> None:
        """An event that only shows that the stream is alive."""

    def _control(self, event: ResponsesEvent, frame: Frame) -> None:
        type = event.type or ""
        self._findings.once(
            "event-unknown", type, f"event {type!r} does not belong to a response: ignored"
        )

    def _item_added(self, event: ResponsesEvent, frame: Frame) -> None:
        self._items.added(event)

    def _item_done(self, event: ResponsesEvent, frame: Frame) -> None:
        self._items.done(event)

    def _partial_image(self, event: ResponsesEvent, frame: Frame) -> None:
        item = self._items.item_for_event(event)
        hosted_calls.partial_image(self._state, item, wire.object_fields(Raw(frame.data)))

    def _audio(self, event: ResponsesEvent, frame: Frame) -> None:
        self._state.out.append(Opaque(NAME, event.type or "", Raw(frame.data)))

    # Metadata

    def _created(self, event: ResponsesEvent, frame: Frame) -> None:
        response = event.response or wire.ResponseObject()
        # A capture with several responses is cut before they get here. In a live stream the second
        # response would continue the items of the first, because its indexes start at 0 again.
        if self._response_id is None:
            self._metadata(response)
        elif response.id in (None, self._response_id):
            self._findings.once("metadata-repeated", "", "response.created was repeated")
        # capture: another-response-spliced-in
        else:  # never merged into the current one
            # Without the ids: our own messages are logged as they are, so they must not quote.
            detail = "another response began before this one ended"
            self._fail(ErrorPart("truncated", detail, retryable=True), self._state.out)
            self._items.end_parts(whole=False)
            self._state.out.append(Finish("error"))
            self._phase = _DecoderPhase.CLOSED

    def _progress(self, event: ResponsesEvent, frame: Frame) -> None:
        """Adds nothing, unless `response.created` never came."""
        # `response.queued` and `response.in_progress` have the same response object as
        # `response.created`.
        # capture: never-created
        if self._response_id is None and event.response is not None:
            self._metadata(event.response)
        else:
            self._check_id(event.response)

    def _check_id(self, response: wire.ResponseObject | None) -> None:
        """Reports a changed response id, which the official client rejects."""
        if (
            response is not None
            and response.id
            and self._response_id
            and response.id != self._response_id
        ):
            detail = f"response id {response.id!r}; it was {self._response_id!r}"
            # capture: response-id-rotates
            self._findings.once("response-id-changed", "", detail)

    def _metadata(self, response: wire.ResponseObject) -> None:
        if not response.id:
            self._findings.note("metadata-id-minted", "the response has no id: one was made up")
        self._emit_metadata(response)

    def _emit_metadata(self, response: wire.ResponseObject) -> None:
        self._response_id = id = response.id or self._context.ids.mint("resp")
        self._state.take_metadata(response)
        self._state.out.append(
            ResponseMetadata(
                id, response.model, response.created_at, dialect=NAME, store=response.store
            )
        )

    def _body(self, data: Raw) -> None:
        """Decodes a whole response like a stream whose items arrive all at once."""
        if self._response_id is not None:
            self._findings.once("message-ignored", "", "a response body inside a stream")
            return
        # An event has none of the fields of a body (`output`, `usage`), so its bytes are decoded
        # once more.
        response = self._salvage.item(data, wire.ResponseObject)
        self._metadata(response)
        self._items.read_all(response.output or [])
        status = response.status or "completed"
        # A body without `output` is neither an answer nor an error. Its `incomplete_details`, if
        # any, are the only explanation.
        if response.output is None and response.error is None and status not in FAILED_STATUSES:
            detail = f"the response has no output: {_incomplete_reason(response) or status}"
            self._fail(ErrorPart("upstream", detail), self._state.out)
        self._end(response, status)

    # The end of the response

    def _terminal(self, event: ResponsesEvent, frame: Frame) -> None:
        if event.response is None:
            self._findings.once("field-missing", "response", f"{event.type} without its response")
        response = event.response or wire.ResponseObject()
        if self._response_id is None and not self._items and event.response is not None:
            self._metadata(response)  # its only event
        self._check_id(event.response)
        self._end(response, response.status or _TERMINAL_STATUSES[event.type or frame.event])

    def _end(self, response: wire.ResponseObject, status: str) -> None:
        failure: ErrorPart | None = None
        if response.error or status in FAILED_STATUSES:
            error = response.error or f"the response was {status}"
            if isinstance(error, str):
                error = wire.ResponsesError(error)
            failure = error_from_wire(error, "cancelled" if status == "cancelled" else "upstream")
        # The snapshot comes before the calls that were never done: it has their final arguments.
        # Content after an error is not read, not even from the snapshot.
        if failure is not None:
            self._fail(failure, self._state.out)
        elif self._phase is _DecoderPhase.READING:
            self._items.complete_from_snapshot(response.output or [])
            self._items.end_calls()
        self._items.end_parts(whole=self._phase is _DecoderPhase.READING)
        raw = _incomplete_reason(response)
        reason = self._state.finish_reason
        if self._phase is _DecoderPhase.FAILED:
            reason = "error"
        # A limit beats the calls, the last of which it cut. Without a reason, the status
        # `incomplete` is how a tool session waits for tool outputs.
        # capture: limit-inside-a-call
        elif status == "incomplete" and (raw or reason != "tool-calls"):
            reason = FINISH_REASONS.get(raw or "", "other")
        code = None if failure is None or failure.code is None else str(failure.code)
        usage = self._salvage.item(response.usage, wire.ResponsesUsage)
        finish = Finish(
            reason,
            raw_reason=raw or code or status,
            usage=usage_from_wire(usage),
            model=response.model,
            extra=finish_extra(response),
        )
        self._state.out.append(finish)
        self._phase = _DecoderPhase.CLOSED

    def _on_error(self, event: ResponsesEvent, frame: Frame) -> None:
        nested = (
            event.error if isinstance(event.error, wire.ResponsesError) else wire.ResponsesError()
        )
        # The API reference has the fields on the event itself. Recorded streams have them under
        # `error`, for example when the quota runs out after the HTTP status 200 was sent.
        # capture: error-flat, error-nested-then-failed
        flat = event.error if isinstance(event.error, str) else event.message
        error = wire.ResponsesError(
            nested.message or flat,
            event.code if nested.code is None else nested.code,
            nested.type,
            nested.param,
        )
        self._fail(error_from_wire(error), self._state.out)

    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        self._state.out = out
        # Metadata comes first. If items came before, the guard has made some up already.
        if self._response_id is None and not self._items:
            self._emit_metadata(wire.ResponseObject())
        # `response.failed` usually follows and repeats the error, with a code but without its
        # `type`: the first one counts.
        # capture: error-nested-then-failed
        if self._phase is _DecoderPhase.READING:
            shell_calls.resolve_pending(self._state, None)
            self._phase = _DecoderPhase.FAILED
            self._state.out.append(error)


def _note_delta(
    numbers: _EventNumbers | None, part: DecodedPart | None, text: str, data: bytes
) -> bool:
    """Takes a delta that was emitted without its frame being decoded."""
    if numbers is not None:
        numbers.add(numbers.last + 1, data)
    if part is not None:
        part.streamed_length += len(text)
    return True


def _incomplete_reason(response: wire.ResponseObject) -> str | None:
    return response.incomplete_details.reason if response.incomplete_details else None


_TERMINAL_STATUSES = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    # Few servers send it.
    # capture: cancelled
    "response.cancelled": "cancelled",
    # Some hosts end with this in place of `response.completed`.
    "response.done": "completed",
}
"""Events that end a response, and the status each implies if the response has none."""

_FIRST_EVENTS = frozenset({"response.created", "error"})
"""Events that may come first. The official client rejects a stream that starts with another."""

_DELTA_EVENTS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)
"""Events that all look alike, but for their delta and their number."""

_AUDIO_EVENTS = ("delta", "done", "transcript.delta", "transcript.done")
_CONTROL_EVENTS = ("create", "cancel", "steer", "steer.accepted", "steer.failed", "steer.pending")

RESPONSE_EVENTS: dict[str, Callable[[ResponsesDecoder, ResponsesEvent, Frame], None]] = {
    # Events with a snapshot
    "response.created": ResponsesDecoder._created,
    "response.queued": ResponsesDecoder._progress,
    "response.in_progress": ResponsesDecoder._progress,
    # Items. A partial image is decoded from its frame, because its settings (size, quality, …) are
    # no fields of an event.
    "response.output_item.added": ResponsesDecoder._item_added,
    "response.output_item.done": ResponsesDecoder._item_done,
    "response.image_generation_call.partial_image": ResponsesDecoder._partial_image,
    # The end
    **dict.fromkeys(_TERMINAL_STATUSES, ResponsesDecoder._terminal),
    "error": ResponsesDecoder._on_error,
    # Signs of life. `response.required_action` repeats what the terminal snapshot of a tool session
    # has.
    "response.compaction.compacting": ResponsesDecoder._ignore,
    "response.required_action": ResponsesDecoder._ignore,
    # A typed keepalive is not in the specification, which knows no ping at all.
    # capture: keepalives
    "ping": ResponsesDecoder._ignore,
    "keepalive": ResponsesDecoder._ignore,
    # Audio events have neither an item id nor an index. The control events are those of a WebSocket
    # session, around the response.
    **dict.fromkeys((f"response.audio.{name}" for name in _AUDIO_EVENTS), ResponsesDecoder._audio),
    **dict.fromkeys((f"response.{name}" for name in _CONTROL_EVENTS), ResponsesDecoder._control),
}
"""Handlers of the events that are about the response, or about nothing."""

_EVENT_NAMES = ITEM_EVENTS.keys() | RESPONSE_EVENTS.keys()
