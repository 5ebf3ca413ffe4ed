"""Checks a Messages stream against the rules in `rules.toml`.

The message goes through named phases; `validation/state.py` checks its blocks. Rules about the
whole message are checked at its end.
"""

from collections.abc import Callable
from enum import Enum

from weft.dialects.anthropic_messages.validation.state import ValidatedBlocks
from weft.dialects.anthropic_messages.wire import ERROR_TYPES, FINISH_REASONS
from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter
from weft.dialects.validation.untyped import FramingDetector, count, elements, fields, shown, text
from weft.findings import Findings
from weft.sse import DONE, Frame

# The official client builds its message object from these: typed clients fail without them.
_MESSAGE_FIELDS: dict[str, type] = {
    "id": str,
    "type": str,
    "role": str,
    "content": list,
    "model": str,
    "usage": dict,
}
_CONSTANT_FIELDS = {"type": "message", "role": "assistant"}
_REQUIRED_COUNTS = ("input_tokens", "output_tokens")


class _ValidatorPhase(Enum):
    BEFORE = "before message_start"
    CONTENT = "inside the message"
    CLOSED = "after the stop reason"
    STOPPED = "after message_stop"
    FAILED = "after an error"
    OVER = "at the end"


class MessagesValidator:
    """Checks one message."""

    def __init__(self, findings: Findings) -> None:
        self._report = findings.broken
        self._report_once = Reporter(findings)
        self._framing = FramingDetector()
        # Held until the framing is known: lines of JSON have no `event:`.
        self._first_unnamed: str | None = None
        """The first event without an `event:` line."""
        self._phase = _ValidatorPhase.BEFORE
        self._blocks = ValidatedBlocks(self._report, self._report_once)
        self._stop_count = 0
        """How many events had the fields of a `message_delta`."""
        self._stop_reason: JsonValue = None
        self._stop_sequence: JsonValue = None
        self._output_tokens: int | None = None

    def feed(self, frame: Frame, event: JsonValue) -> None:
        # A habit from Chat Completions. Without an `event:` line the official client skips it.
        if frame.data == DONE:
            self._report("done-frame", "[DONE]; expected message_stop to be the last event")
            return
        type = text(fields(event).get("type"))
        if not type:
            quoted = shown(frame.data[:200].decode("utf-8", "replace"))
            self._report("event-object", f"{quoted}; expected a JSON object with a type")
            return
        self._framing.feed(frame)
        if frame.event and frame.event != type:
            detail = f"event: {frame.event[:40]} for data of type {type[:40]}; expected that type"
            self._report("event-line-differs", detail)
        elif not frame.event and self._first_unnamed is None:
            self._first_unnamed = f"{type[:40]} at event {frame.number}"
        if self._first_unnamed is not None and self._framing.events:
            detail = f"{self._first_unnamed} has no event: line; expected one with its type"
            self._report_once("event-line", None, detail)
        # The phase is checked before the event is: an event in a wrong place is still read, so that
        # one defect is one finding and does not hide others.
        self._check_phase(type)
        check = _EVENTS.get(type)
        if check is not None:
            check(self, fields(event))
        else:
            detail = f"an event of type {type[:40]}; expected a known type"
            self._report_once("event-type", type, detail)

    def finish(self) -> None:
        """A second call reports nothing."""
        if self._phase is _ValidatorPhase.BEFORE:
            self._report("message-start-first", "the stream ended; expected a message_start")
        elif self._phase in (_ValidatorPhase.CONTENT, _ValidatorPhase.CLOSED):
            self._report("message-stop", "the stream ended; expected message_stop, or an error")
            self._check_end()
        self._phase = _ValidatorPhase.OVER

    # Frames and their order

    def _check_phase(self, type: str) -> None:
        phase = self._phase
        # API reference, "Ping events": anywhere, even before message_start.
        if type == "ping":
            return
        if phase is _ValidatorPhase.FAILED:
            detail = f"{type[:40]} after an error; expected the end of the stream"
            self._report("after-error", detail)
        elif phase is _ValidatorPhase.STOPPED:
            detail = f"{type[:40]} after message_stop; expected the end of the stream"
            self._report("after-message-stop", detail)
        elif phase is _ValidatorPhase.BEFORE and type in _NEED_MESSAGE_START:
            detail = f"{type} before any message_start; expected message_start first"
            self._report("message-start-first", detail)
            # Reported once: what follows is checked as if the message had started.
            self._phase = _ValidatorPhase.CONTENT
        elif phase is _ValidatorPhase.CLOSED and type.startswith("content_block"):
            detail = f"{type[:40]} after the stop reason; expected message_stop"
            self._report_once("block-late", None, detail)

    # The message

    def _message_start(self, event: JsonObject) -> None:
        if self._phase is not _ValidatorPhase.BEFORE:
            detail = f"message_start {self._phase.value}; expected it once, as the first event"
            self._report("message-start-once", detail)
            return
        self._phase = _ValidatorPhase.CONTENT
        message = fields(event.get("message"))
        usage = fields(message.get("usage"))
        wrong = [
            key for key, kind in _MESSAGE_FIELDS.items() if not isinstance(message.get(key), kind)
        ]
        if "usage" not in wrong:
            wrong += [f"usage.{key}" for key in _REQUIRED_COUNTS if count(usage.get(key)) is None]
        if wrong:
            detail = f"message_start without {', '.join(wrong)}; expected a complete message"
            self._report("message-start-shape", detail)
        for key, expected in _CONSTANT_FIELDS.items():
            if key not in wrong and message[key] != expected:
                detail = f"message_start with {key} {shown(message[key])}; expected {expected}"
                self._report("message-start-shape", detail)
        self._check_usage(usage, "message_start")
        content, reason = elements(message.get("content")), message.get("stop_reason")
        # The API itself fills it if code made calls, so the rule is only a note.
        self._blocks.prefilled(content)
        if content:
            detail = f"message_start with {len(content)} blocks in content; expected []"
            self._report("message-start-filled", detail)
            self._stop_count += reason is not None  # a whole message needs no message_delta
            self._stop_reason, self._stop_sequence = reason, message.get("stop_sequence")
        elif reason is not None:
            detail = f"message_start with stop_reason {shown(reason)}; expected null"
            self._report("message-start-ended", detail)

    def _message_delta(self, event: JsonObject) -> None:
        self._stop_count += 1
        if self._stop_count == 2:
            self._report("message-delta-once", "a second message_delta; expected only one")
        usage = fields(event.get("usage"))
        if count(usage.get("output_tokens")) is None:
            value = shown(usage.get("output_tokens"))
            detail = f"message_delta with usage.output_tokens {value}; expected an integer"
            self._report("usage-missing", detail)
        self._check_usage(usage, "message_delta")
        delta = fields(event.get("delta"))
        self._stop_reason, self._stop_sequence = (
            delta.get("stop_reason"),
            delta.get("stop_sequence"),
        )
        if self._stop_reason is not None and self._phase is _ValidatorPhase.CONTENT:
            self._phase = _ValidatorPhase.CLOSED
            self._blocks.check_all_stopped("message_delta")

    def _check_usage(self, usage: JsonObject, event: str) -> None:
        output = count(usage.get("output_tokens"))
        details = fields(usage.get("output_tokens_details"))
        thinking = count(details.get("thinking_tokens"))
        if output is None:
            return
        # Counts are cumulative, so that a later one cannot be lower.
        if self._output_tokens is not None and output < self._output_tokens:
            detail = f"{event} has {output} output tokens after {self._output_tokens}"
            self._report("usage-shrinks", f"{detail}; expected no fewer")
        if thinking is not None and thinking > output:
            detail = f"{thinking} thinking tokens of {output} output tokens; expected no more"
            self._report("usage-thinking", detail)
        self._output_tokens = output

    def _message_stop(self, event: JsonObject) -> None:
        if self._phase in (_ValidatorPhase.CONTENT, _ValidatorPhase.CLOSED):
            self._check_end()
            self._phase = _ValidatorPhase.STOPPED

    def _error(self, event: JsonObject) -> None:
        error = fields(event.get("error"))
        type = text(error.get("type"))
        if not type or not isinstance(error.get("message"), str):
            value = shown(event.get("error"))
            detail = f"error is {value}; expected an object with a type and a message"
            self._report("error-shape", detail)
        elif type not in ERROR_TYPES:
            self._report("error-type", f"an error of type {type[:40]}; expected a known type")
        self._phase = _ValidatorPhase.FAILED

    def _block_start(self, event: JsonObject) -> None:
        self._blocks.start(event)

    def _block_delta(self, event: JsonObject) -> None:
        self._blocks.delta(event)

    def _block_stop(self, event: JsonObject) -> None:
        self._blocks.stop(event)

    def _ping(self, event: JsonObject) -> None:
        """Allowed anywhere."""

    def _check_end(self) -> None:
        """Checks the rules about the whole message."""
        self._blocks.check_all_stopped("the end of the message")
        if not self._stop_count:
            detail = "the message ended without message_delta; expected one with a stop reason"
            self._report("message-delta", detail)
            return
        reason = text(self._stop_reason)
        if not reason:
            value = shown(self._stop_reason)
            self._report("stop-reason", f"the last stop_reason is {value}; expected a string")
        elif reason not in FINISH_REASONS:
            self._report("stop-reason-word", f"stop_reason {shown(reason)}; expected a known one")
        if reason == "stop_sequence" and not isinstance(self._stop_sequence, str):
            value = shown(self._stop_sequence)
            detail = f"stop_sequence is {value}; expected the sequence that matched"
            self._report("stop-sequence", detail)
        # Last, because the stop reason decides what may be incomplete.
        self._blocks.finish(reason)


_EVENTS: dict[str, Callable[[MessagesValidator, JsonObject], None]] = {
    "message_start": MessagesValidator._message_start,
    "content_block_start": MessagesValidator._block_start,
    "content_block_delta": MessagesValidator._block_delta,
    "content_block_stop": MessagesValidator._block_stop,
    "message_delta": MessagesValidator._message_delta,
    "message_stop": MessagesValidator._message_stop,
    "ping": MessagesValidator._ping,
    "error": MessagesValidator._error,
}
_NEED_MESSAGE_START = frozenset(_EVENTS) - {"message_start", "ping", "error"}
