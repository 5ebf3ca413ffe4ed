"""Watches a Messages stream for its rules (`promises.py`).

A message goes through named phases, and its blocks are watched by themselves. What only the end
can tell is looked at when the message ends.
"""

from collections.abc import Callable
from enum import Enum

from weft.dialects.anthropic_messages.validation.rules import RULES
from weft.dialects.anthropic_messages.validation.state import CUT, OVER, Blocks
from weft.dialects.checking.once import JsonObject, Once
from weft.dialects.checking.untyped import Framing, count, elements, fields, shown, text
from weft.dialects.rules import JsonValue
from weft.findings import Findings
from weft.sse import DONE, Frame

__all__ = ["RULES", "MessagesInvariants"]

_REASONS = CUT | OVER | {"tool_use", "pause_turn", "compaction", "refusal"}
_ERRORS = frozenset(
    {
        "invalid_request_error",
        "authentication_error",
        "billing_error",
        "permission_error",
        "not_found_error",
        "conflict_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "timeout_error",
        "overloaded_error",
    }
)
_MESSAGE: dict[str, type] = {
    "id": str,
    "type": str,
    "role": str,
    "content": list,
    "model": str,
    "usage": dict,
}
_WORDS = {"type": "message", "role": "assistant"}
_COUNTS = ("input_tokens", "output_tokens")


class _Phase(Enum):
    BEFORE = "before message_start"
    CONTENT = "inside the message"
    CLOSED = "after the stop reason"
    STOPPED = "after message_stop"
    FAILED = "after an error"
    OVER = "at the end"


class MessagesInvariants:
    """Watches one message."""

    def __init__(self, findings: Findings) -> None:
        self._broken = findings.broken
        self._once = Once(findings)
        self._framing = Framing()
        self._nameless: str | None = None
        """The first event that had no `event:` line."""
        self._phase = _Phase.BEFORE
        self._blocks = Blocks(self._broken, self._once)
        self._endings = 0
        """How often the wire told how the message ended."""
        self._reason: JsonValue = None
        self._sequence: JsonValue = None
        self._output: int | None = None

    def feed(self, frame: Frame, event: JsonValue) -> None:
        if frame.data == DONE:
            self._broken("done-frame", "[DONE]; expected message_stop to be the last event")
            return
        type = text(fields(event).get("type"))
        if not type:
            quoted = shown(frame.data[:200].decode("utf-8", "replace"))
            self._broken("event-object", f"{quoted}; expected a JSON object with a type")
            return
        self._named(frame, type)
        self._placed(type)
        watch = _EVENTS.get(type)
        if watch is not None:
            watch(self, fields(event))
        else:
            self._once("event-type", type, f"an event of type {type[:40]}; expected a known one")

    def finish(self) -> None:
        """A second call says nothing more."""
        if self._phase is _Phase.BEFORE:
            self._broken("message-start-first", "the stream ended; expected a message_start")
        elif self._phase in (_Phase.CONTENT, _Phase.CLOSED):
            self._broken("message-stop", "the stream ended; expected message_stop, or an error")
            self._end()
        self._phase = _Phase.OVER

    # Frames, and where they stand

    def _named(self, frame: Frame, type: str) -> None:
        self._framing.feed(frame)
        if frame.event and frame.event != type:
            detail = f"event: {frame.event[:40]} for data of type {type[:40]}; expected that type"
            self._broken("event-line-differs", detail)
        elif not frame.event and self._nameless is None:
            self._nameless = f"{type[:40]} at event {frame.number}"
        if self._nameless is not None and self._framing.events:
            detail = f"{self._nameless} has no event: line; expected one with its type"
            self._once("event-line", None, detail)

    def _placed(self, type: str) -> None:
        phase = self._phase
        if type == "ping":
            return
        if phase is _Phase.FAILED:
            detail = f"{type[:40]} after an error; expected the end of the stream"
            self._broken("after-error", detail)
        elif phase is _Phase.STOPPED:
            detail = f"{type[:40]} after message_stop; expected the end of the stream"
            self._broken("after-message-stop", detail)
        elif phase is _Phase.BEFORE and type in _INSIDE:
            detail = f"{type} before any message_start; expected message_start first"
            self._broken("message-start-first", detail)
            self._phase = _Phase.CONTENT
        elif phase is _Phase.CLOSED and type.startswith("content_block"):
            detail = f"{type[:40]} after the stop reason was told; expected message_stop"
            self._once("block-late", None, detail)

    # The message

    def _message_start(self, event: JsonObject) -> None:
        if self._phase is not _Phase.BEFORE:
            detail = f"message_start {self._phase.value}; expected it once, as the first event"
            self._broken("message-start-once", detail)
            return
        self._phase = _Phase.CONTENT
        message = fields(event.get("message"))
        self._shaped(message)
        self._usage(fields(message.get("usage")), "message_start")
        content, reason = elements(message.get("content")), message.get("stop_reason")
        self._blocks.filled(content)
        if content:
            detail = f"message_start with {len(content)} blocks in content; expected []"
            self._broken("message-start-filled", detail)
            self._endings += reason is not None
            self._reason, self._sequence = reason, message.get("stop_sequence")
        elif reason is not None:
            detail = f"message_start with stop_reason {shown(reason)}; expected null"
            self._broken("message-start-ended", detail)

    def _shaped(self, message: JsonObject) -> None:
        wrong = [key for key, kind in _MESSAGE.items() if not isinstance(message.get(key), kind)]
        usage = fields(message.get("usage"))
        if "usage" not in wrong:
            wrong += [f"usage.{key}" for key in _COUNTS if count(usage.get(key)) is None]
        if wrong:
            detail = f"message_start without {', '.join(wrong)}; expected all of a message"
            self._broken("message-start-shape", detail)
        for key, word in _WORDS.items():
            if key not in wrong and message[key] != word:
                detail = f"message_start with {key} {shown(message[key])}; expected {word}"
                self._broken("message-start-shape", detail)

    def _message_delta(self, event: JsonObject) -> None:
        self._endings += 1
        if self._endings == 2:
            detail = "a second message_delta; expected one that tells all"
            self._broken("message-delta-once", detail)
        usage = fields(event.get("usage"))
        if count(usage.get("output_tokens")) is None:
            told = shown(usage.get("output_tokens"))
            detail = f"message_delta with usage.output_tokens {told}; expected a whole number"
            self._broken("usage-missing", detail)
        self._usage(usage, "message_delta")
        delta = fields(event.get("delta"))
        self._reason, self._sequence = delta.get("stop_reason"), delta.get("stop_sequence")
        if self._reason is not None and self._phase is _Phase.CONTENT:
            self._phase = _Phase.CLOSED
            self._blocks.all_stopped("message_delta")

    def _usage(self, usage: JsonObject, where: str) -> None:
        output = count(usage.get("output_tokens"))
        details = fields(usage.get("output_tokens_details"))
        thinking = count(details.get("thinking_tokens"))
        if output is None:
            return
        if self._output is not None and output < self._output:
            detail = f"{where} tells {output} output tokens after {self._output}; expected no fewer"
            self._broken("usage-shrinks", detail)
        if thinking is not None and thinking > output:
            detail = f"{thinking} thinking tokens of {output} output tokens; expected no more"
            self._broken("usage-thinking", detail)
        self._output = output

    def _message_stop(self, event: JsonObject) -> None:
        if self._phase in (_Phase.CONTENT, _Phase.CLOSED):
            self._end()
            self._phase = _Phase.STOPPED

    def _error(self, event: JsonObject) -> None:
        error = fields(event.get("error"))
        type = text(error.get("type"))
        if not type or not isinstance(error.get("message"), str):
            told = shown(event.get("error"))
            detail = f"error is {told}; expected an object with a type and a message"
            self._broken("error-shape", detail)
        elif type not in _ERRORS:
            self._broken("error-type", f"an error of type {type[:40]}; expected a known one")
        self._phase = _Phase.FAILED

    def _block_start(self, event: JsonObject) -> None:
        self._blocks.start(event)

    def _block_delta(self, event: JsonObject) -> None:
        self._blocks.grow(event)

    def _block_stop(self, event: JsonObject) -> None:
        self._blocks.stop(event)

    def _ping(self, event: JsonObject) -> None:
        """It may come anywhere."""

    def _end(self) -> None:
        """Looks at what only the whole message can tell."""
        self._blocks.all_stopped("the end of the message")
        if not self._endings:
            detail = "the message ended without message_delta; expected one with a stop reason"
            self._broken("message-delta", detail)
            return
        reason = text(self._reason)
        if not reason:
            told = shown(self._reason)
            self._broken("stop-reason", f"the last stop_reason is {told}; expected a word")
        elif reason not in _REASONS:
            self._broken("stop-reason-word", f"stop_reason {shown(reason)}; expected a known one")
        if reason == "stop_sequence" and not isinstance(self._sequence, str):
            told = shown(self._sequence)
            detail = f"stop_sequence is {told}; expected the text that was met"
            self._broken("stop-sequence", detail)
        self._blocks.finish(reason)


_EVENTS: dict[str, Callable[[MessagesInvariants, JsonObject], None]] = {
    "message_start": MessagesInvariants._message_start,
    "content_block_start": MessagesInvariants._block_start,
    "content_block_delta": MessagesInvariants._block_delta,
    "content_block_stop": MessagesInvariants._block_stop,
    "message_delta": MessagesInvariants._message_delta,
    "message_stop": MessagesInvariants._message_stop,
    "ping": MessagesInvariants._ping,
    "error": MessagesInvariants._error,
}
_INSIDE = frozenset(_EVENTS) - {"message_start", "ping", "error"}
