"""Checks an AI SDK stream, of either form, against its rules.

The events show which form it is. Both have texts, reasoning and calls, whose state is checked in
`validation/state.py`. A capture is cut into steps: one that begins with `start-step` continues
another, and one that ends with `finish-step` is continued.
"""

from collections.abc import Callable
from enum import Enum

from weft.dialects.ai_sdk.validation.required import (
    SINCE_VERSION_7,
    StreamForm,
    exceeded_total,
    form_of,
    missing_keys,
    null_keys,
    shape_of,
    token_counts,
    unknown_keys,
)
from weft.dialects.ai_sdk.validation.state import SdkCallsState, SdkItemsState, differs
from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter
from weft.dialects.validation.untyped import FramingDetector, count, fields, parse_json, shown, text
from weft.findings import Findings
from weft.sse import DONE, Frame

# `unknown` was folded into `other` with version 3 of the specification.
_WORDS = frozenset({"stop", "length", "content-filter", "tool-calls", "error", "other", "unknown"})


class _SdkStreamPhase(Enum):
    OPEN = "before the end"
    STEPPED = "after finish-step"
    FINISHED = "after finish"
    FAILED = "after an error"
    DONE = "after [DONE]"
    OVER = "at the end"


_ENDED = frozenset({_SdkStreamPhase.FINISHED, _SdkStreamPhase.FAILED})
_AFTER_ERROR = frozenset({"finish-step", "finish", "abort"})
"""Events that may follow an error: readers that continue need an end."""

_FIRST_EVENTS = {StreamForm.UI: ("start", "start-step"), StreamForm.MODEL: ("stream-start",)}


class UiMessageValidator:
    """Checks one stream, or one step of it."""

    def __init__(self, findings: Findings) -> None:
        self._report = findings.broken
        self._report_once = Reporter(findings)
        self._framing = FramingDetector()
        self._form = StreamForm.UNKNOWN
        self._phase = _SdkStreamPhase.OPEN
        self._first = ""
        """The type of the first event."""
        self._started: int | None = None
        """At which event `start` came."""
        self._step: int | None = None
        """Since which event a step is open."""
        self._items = SdkItemsState(self._report, self._report_once)
        self._calls = SdkCallsState(self._report, self._report_once, continued=False)

    def feed(self, frame: Frame, event: JsonValue) -> None:
        self._framing.feed(frame)
        if frame.data == DONE:
            if self._phase is _SdkStreamPhase.DONE:
                detail = "a second [DONE]; expected the end of the stream"
                self._report_once("after-done", None, detail)
            self._ended_without_finish()
            self._phase = _SdkStreamPhase.DONE
            return
        type = text(fields(event).get("type"))
        if not type:
            quoted = shown(frame.data[:200].decode("utf-8", "replace"))
            self._report("event-object", f"{quoted}; expected a JSON object with a type")
            return
        form = form_of(type, fields(event))
        # The first event that only one form has decides. A dump shows late, by single keys.
        if self._form is StreamForm.UNKNOWN or form is StreamForm.DUMP:
            self._form = form
        if self._form is StreamForm.DUMP:
            # Nothing else is checked: a dump is for developers, no reader expects it.
            detail = f"{type[:40]} as streamText().stream has it; expected one of the wires"
            self._report_once("dump", None, detail)
            return
        # Order first, so that an event in a wrong place is reported before its keys are.
        self._check_order(type)
        self._check_keys(type, fields(event))
        check = _EVENTS.get(type)
        if check is not None:
            check(self, type, fields(event))

    def finish(self) -> None:
        """A second call reports nothing."""
        if self._form is StreamForm.UI and self._phase in _ENDED and self._framing.events:
            self._report("done-missing", "the stream ended; expected [DONE]")
        self._ended_without_finish()
        self._phase = _SdkStreamPhase.OVER

    def _ended_without_finish(self) -> None:
        if self._phase is not _SdkStreamPhase.OPEN or self._form is StreamForm.DUMP:
            return
        self._report("finish-missing", "the stream ended; expected finish before")

    def _check_keys(self, type: str, event: JsonObject) -> None:
        form = self._form
        if form is StreamForm.UNKNOWN:
            return
        is_ui = form is StreamForm.UI
        shape = shape_of(form, type)
        if shape is None:
            other = StreamForm.MODEL if is_ui else StreamForm.UI
            if form_of(type, event) is other or shape_of(other, type) is not None:
                detail = f"{type[:40]} is for {other.value}; expected {form.value}"
                self._report("mixed-forms", detail)
            else:
                rule = "chunk-type" if is_ui else "part-type"
                self._report_once(rule, type, f"type {shown(type)}; expected a known one")
            return
        missing = missing_keys(shape, event)
        if missing:
            detail = f"{type} without a usable {', '.join(missing)}; expected it"
            self._report("required-key", detail)
        # Front ends reject a chunk with null for an optional key: Python's None must be left out.
        empty = [key for key in null_keys(event) if key not in shape.required]
        if is_ui and empty:
            detail = f"{type} with {', '.join(empty)[:80]} null; expected it to be left out"
            self._report_once("null-key", (type, tuple(empty)), detail)
        unknown = unknown_keys(shape, event)
        # Releases up to 5.0.180, 6.0.200 and 7.0.0 reject unknown keys; later ones let them pass.
        if is_ui and unknown:
            detail = f"{type} with {', '.join(unknown)[:80]}; expected only keys of its type"
            self._report_once("unknown-key", (type, tuple(unknown)), detail)
        # Version 6 is what the encoder writes unless told otherwise.
        if is_ui and type in SINCE_VERSION_7:
            self._report_once("newer-chunk", type, f"{type}; expected only what version 6 knows")

    # Order

    def _check_order(self, type: str) -> None:
        if not self._first:
            self._first = type
            # A capture is cut at each step: one that starts so continues a message.
            self._calls.continued = type == "start-step"
        expected = _FIRST_EVENTS.get(self._form, (self._first,))
        if self._first not in expected:
            rule = "start-first" if self._form is StreamForm.UI else "stream-start-first"
            detail = f"the first event is {self._first[:40]}; expected {expected[0]}"
            self._report_once(rule, None, detail)
        phase = self._phase
        if phase is _SdkStreamPhase.DONE:
            self._report_once("after-done", None, f"{type[:40]} after [DONE]; expected the end")
        elif phase is _SdkStreamPhase.FINISHED:
            self._report_once("after-finish", None, f"{type[:40]} after finish; expected the end")
        elif phase is _SdkStreamPhase.FAILED and type not in _AFTER_ERROR:
            detail = f"{type[:40]} after an error or an abort; expected the end"
            self._report_once("after-error", None, detail)
        elif phase is _SdkStreamPhase.STEPPED:
            # The message goes on, with another step or with its finish.
            self._phase = _SdkStreamPhase.OPEN

    def _start(self, type: str, event: JsonObject) -> None:
        if not text(event.get("messageId")):
            self._report_once("message-id", None, "start without a messageId; expected one")
        if self._started is not None:
            detail = f"start again after that at event {self._started}; expected it once"
            self._report("start-repeated", detail)
        self._started = self._report_once.at

    def _start_step(self, type: str, event: JsonObject) -> None:
        if self._step is not None:
            detail = f"start-step inside the step since event {self._step}; expected finish-step"
            self._report("step-marks", detail)
        self._step = self._report_once.at

    def _finish_step(self, type: str, event: JsonObject) -> None:
        if self._step is None and self._phase is not _SdkStreamPhase.FAILED:
            self._report("step-marks", "finish-step outside any step; expected start-step before")
        self._step = None
        self._close("finish-step")
        if self._phase is _SdkStreamPhase.OPEN:
            self._phase = _SdkStreamPhase.STEPPED

    def _close(self, before: str) -> None:
        # The error reported what was open already.
        if self._phase is not _SdkStreamPhase.FAILED:
            self._items.close(before)
            self._calls.close(before)

    def _finish(self, type: str, event: JsonObject) -> None:
        if self._step is not None and self._phase is not _SdkStreamPhase.FAILED:
            detail = f"finish inside the step since event {self._step}; expected finish-step first"
            self._report("step-marks", detail)
        self._close("finish")
        self._phase = _SdkStreamPhase.FINISHED
        self._reason(event.get("finishReason"))
        usage = fields(event.get("usage"))
        wrong = [
            key for key, value in token_counts(usage) if value is not None and count(value) is None
        ]
        if wrong:
            detail = f"usage with odd {', '.join(wrong)[:80]}; expected whole numbers"
            self._report("usage-shape", detail)
        exceeded = exceeded_total(usage)
        if exceeded is not None:
            self._report("usage-total", exceeded)

    def _reason(self, reason: JsonValue) -> None:
        # Optional in chunks: clients up to 5.0.60 reject the key.
        if reason is None and self._form is not StreamForm.MODEL:
            return
        word = fields(reason).get("unified") if self._form is StreamForm.MODEL else reason
        # Version 2 of the specification has a string, later ones an object.
        if self._form is StreamForm.MODEL and isinstance(reason, str):
            word = reason
        if text(word) not in _WORDS:
            detail = f"finishReason {shown(word)}; expected one of {', '.join(sorted(_WORDS))}"
            self._report("finish-reason", detail)

    def _error(self, type: str, event: JsonObject) -> None:
        """Readers of a UI message stream stop there; a model may go on after an error."""
        # Items that are open at this point stay `streaming` in the front end for ever.
        if self._form is StreamForm.UI and self._phase is not _SdkStreamPhase.DONE:
            self._items.close(type)
            self._calls.cut(type)
            self._phase = _SdkStreamPhase.FAILED

    # Content

    def _item(self, type: str, event: JsonObject) -> None:
        item, _, verb = type.partition("-")
        self._items.feed(item, verb, text(event.get("id")))

    def _input(self, type: str, event: JsonObject) -> None:
        # The same events with other keys in the two forms.
        key, piece = "toolCallId", "inputTextDelta"
        if self._form is StreamForm.MODEL:
            key, piece = "id", "delta"
        verb = type.rpartition("-")[2]
        id = text(event.get(key))
        if verb == "start":
            self._calls.start(id, event)
        else:
            self._calls.grow(id, event.get(piece), verb)

    def _called(self, type: str, event: JsonObject) -> None:
        id, input = text(event.get("toolCallId")), event.get("input")
        call = self._calls.complete(id, event)
        if type == "tool-input-error":
            return
        written = type == "tool-call"
        what = f"the input of call {shown(id)} is {shown(input)}"
        if written and not isinstance(input, str):
            self._report("call-input-form", f"{what}; expected JSON text")
        elif written and text(input).strip() and not _is_json(text(input)):
            self._report("call-input-json", f"{what}; expected JSON")
        elif not written and isinstance(input, str) and _is_json(input, of=(dict, list)):
            self._report("call-input-form", f"{what}; expected the value itself")
        if call is not None and differs(call, input, written=written):
            # Providers may complete the input of their own tools; for a client tool it is a
            # contradiction.
            executed = event.get("providerExecuted") is True
            rule = "call-input-rewritten" if executed else "call-input-differs"
            joined = shown("".join(call.pieces))
            self._report(rule, f"the input of call {shown(id)} differs; expected {joined}")

    def _output(self, type: str, event: JsonObject) -> None:
        final = event.get("preliminary") is not True
        self._calls.answer(text(event.get("toolCallId")), type, final=final)

    def _mention(self, type: str, event: JsonObject) -> None:
        self._calls.mention(text(event.get("toolCallId")), type)


_EVENTS: dict[str, Callable[[UiMessageValidator, str, JsonObject], None]] = {
    "start": UiMessageValidator._start,
    "start-step": UiMessageValidator._start_step,
    "finish-step": UiMessageValidator._finish_step,
    "finish": UiMessageValidator._finish,
    "error": UiMessageValidator._error,
    "abort": UiMessageValidator._error,
    "text-start": UiMessageValidator._item,
    "text-delta": UiMessageValidator._item,
    "text-end": UiMessageValidator._item,
    "reasoning-start": UiMessageValidator._item,
    "reasoning-delta": UiMessageValidator._item,
    "reasoning-end": UiMessageValidator._item,
    "tool-input-start": UiMessageValidator._input,
    "tool-input-delta": UiMessageValidator._input,
    "tool-input-end": UiMessageValidator._input,
    "tool-call": UiMessageValidator._called,
    "tool-input-available": UiMessageValidator._called,
    "tool-input-error": UiMessageValidator._called,
    "tool-result": UiMessageValidator._output,
    "tool-output-available": UiMessageValidator._output,
    "tool-output-error": UiMessageValidator._output,
    "tool-output-denied": UiMessageValidator._mention,
    "tool-approval-request": UiMessageValidator._mention,
}


def _is_json(written: str, of: tuple[type, ...] = (object,)) -> bool:
    try:
        return isinstance(parse_json(written), of)
    except ValueError:
        return False
