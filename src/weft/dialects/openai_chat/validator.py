"""Watches one Chat Completions stream for its rules (`promises.py`).

Reads untyped chunks, of all choices. After a rule was broken the watch goes on with what the
chunk most likely meant, so that one fault is one finding.
"""

from enum import Enum

from weft.dialects.checking.once import JsonObject, Once, kind
from weft.dialects.checking.untyped import Framing, count, fields, shown, text
from weft.dialects.openai_chat.validation.rules import RULES
from weft.dialects.openai_chat.validation.state import Choice
from weft.dialects.rules import JsonValue
from weft.findings import Findings
from weft.sse import DONE, Frame

__all__ = ["RULES", "ChatValidator"]

OBJECT = "chat.completion.chunk"
BODY = "chat.completion"
TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")
SAME = {"id": "chunk-id-changed", "model": "model-changed", "created": "created-changed"}
"""What all chunks have in common, and the rule that says so."""


class _Phase(Enum):
    FRESH = "fresh"
    OPEN = "open"
    FAILED = "failed"
    DONE = "done"
    BODY = "body"
    """No stream at all: the completion, or its error, in one piece."""


class ChatValidator:
    """Watches one response with all its choices."""

    def __init__(self, findings: Findings) -> None:
        self._report = Once(findings)
        self._framing = Framing()
        self._phase = _Phase.FRESH
        self._failed_at = 0
        self._usage_at: int | None = None
        self._same: dict[str, JsonValue] = {}
        self._choices: dict[int, Choice] = {}

    def feed(self, frame: Frame, event: JsonValue) -> None:
        self._framing.feed(frame)
        if frame.event:
            detail = f"an event: line with {shown(frame.event)}; expected none"
            self._report("event-line", frame.event, detail)
        if self._phase is _Phase.DONE:
            what = "[DONE]" if frame.data == DONE else "an event"
            detail = f"{what} came after [DONE]; expected the end of the stream"
            self._report("after-done", "", detail)
        elif frame.data == DONE:
            self._done()
        elif not isinstance(event, dict):
            detail = f"data is {kind(event) if event is not None else 'no JSON'}"
            self._report("data-invalid", self._report.at, f"{detail}; expected an object or [DONE]")
        elif self._phase is _Phase.FRESH and event.get("object") == BODY:
            self._phase = _Phase.BODY
        else:
            self._chunk(event)

    def finish(self) -> None:
        if self._phase is _Phase.BODY:
            return
        if self._phase is not _Phase.DONE:
            self._ends("the end of the stream")
            if self._framing.events:
                self._report("done-missing", "", "the stream ended; expected [DONE] before that")

    def _done(self) -> None:
        if self._phase is _Phase.BODY:
            detail = f"a whole completion in a stream; expected {OBJECT}"
            self._report("chunk-object", "", detail)
            return
        self._ends("[DONE]")
        self._phase = _Phase.DONE

    def _ends(self, where: str) -> None:
        if self._phase is _Phase.FAILED:
            return
        for choice in self._choices.values():
            choice.end(where)
        if not self._choices:
            detail = f"{where} came before any choice; expected an answer with a finish_reason"
            self._report("finish-missing", "", detail)

    # Chunks

    def _chunk(self, event: JsonObject) -> None:
        error = event.get("error")
        if self._phase is _Phase.FAILED:
            detail = f"a chunk came after the error at event {self._failed_at}; expected [DONE]"
            self._report("after-error", "", detail)
        elif error:
            self._phase = _Phase.FAILED
            self._failed_at = self._report.at
            self._error(error)
        else:
            self._phase = _Phase.OPEN
        if not error:
            self._head(event)
        usage = event.get("usage")
        choices = event.get("choices")
        self._body(choices, counts=bool(usage), failed=bool(error))
        if usage:
            self._usage(usage, alone=not choices)

    def _error(self, error: JsonValue) -> None:
        message = fields(error).get("message")
        detail = f"an error came: {shown(message or error)}"
        self._report("error-chunk", "", f"{detail}; expected a finish_reason")
        if not isinstance(message, str):
            detail = f"error is {shown(error)}; expected an object with a message"
            self._report("error-shape", "", detail)

    def _head(self, event: JsonObject) -> None:
        """What all chunks have in common."""
        object = event.get("object")
        if object != OBJECT:
            detail = f"object is {shown(object)}; expected {OBJECT}"
            self._report("chunk-object", "", detail)
        for key, rule in SAME.items():
            value = event.get(key)
            told = count(value) is not None if key == "created" else text(value) != ""
            if not told:
                detail = f"{key} is {shown(value)}; expected it in every chunk"
                self._report("chunk-keys", key, detail)
                continue
            first = self._same.setdefault(key, value)
            if value != first:
                detail = f"{key} is {shown(value)}; expected {shown(first)}, as in the first chunk"
                self._report(rule, "", detail)

    def _body(self, choices: JsonValue, *, counts: bool, failed: bool) -> None:
        if not isinstance(choices, list):
            if not failed:
                detail = f"choices is {shown(choices)}; expected an array, be it empty"
                self._report("choices-missing", "", detail)
            return
        if choices and self._usage_at is not None and not counts:
            detail = f"choices came after the usage at event {self._usage_at}; expected none"
            self._report("usage-not-last", "", detail)
        for choice in map(fields, choices):
            index = count(choice.get("index"))
            if index is None:
                detail = f"a choice has index {shown(choice.get('index'))}; expected 0, 1, …"
                self._report("choice-index-missing", "", detail)
            state = self._choices.setdefault(index or 0, Choice(self._report, index or 0))
            state.feed(choice, counts=counts)

    def _usage(self, usage: JsonValue, *, alone: bool) -> None:
        if not alone:
            detail = "usage came beside choices; expected a chunk whose choices are empty"
            self._report("usage-with-choices", "", detail)
        if self._usage_at is not None:
            detail = f"usage came again; it came at event {self._usage_at}; expected it once"
            self._report("usage-repeated", "", detail)
        self._usage_at = self._report.at
        told = fields(usage)
        counts = [count(told.get(key)) for key in TOKENS]
        if any(number is None for number in counts):
            found = ", ".join(f"{key} {shown(told.get(key))}" for key in TOKENS)
            detail = f"usage has {found}; expected three integers, none below 0"
            self._report("usage-invalid", "", detail)
            return
        asked, answered, total = (number or 0 for number in counts)
        if asked + answered != total:
            detail = f"usage has {shown(asked)} in, {shown(answered)} out and {shown(total)} in all"
            self._report("usage-total", "", f"{detail}; expected {shown(asked + answered)}")
