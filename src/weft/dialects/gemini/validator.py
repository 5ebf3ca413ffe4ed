"""Watches a generateContent stream for its rules (`promises.py`).

Frames repeat who they are and add to one answer, or to several: each candidate is watched by
itself. Calls in pieces have a small state machine of their own, and so do the values in them.
"""

from collections.abc import Callable

from weft.dialects.checking.once import JsonObject, Once
from weft.dialects.checking.untyped import count, elements, fields, shown, text
from weft.dialects.gemini.validation.rules import RULES
from weft.dialects.gemini.validation.state import Candidate
from weft.dialects.rules import JsonValue
from weft.findings import Findings
from weft.sse import DONE, Frame

__all__ = ["RULES", "GeminiValidator"]

_CONTENT = ("candidates", "promptFeedback", "usageMetadata", "error")
_STATUSES = frozenset(
    {
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
        "NOT_FOUND",
        "ABORTED",
        "ALREADY_EXISTS",
        "RESOURCE_EXHAUSTED",
        "CANCELLED",
        "INTERNAL",
        "UNKNOWN",
        "DATA_LOSS",
        "UNIMPLEMENTED",
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
    }
)
_SUMMED = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
)
_COUNTS = (*_SUMMED, "cachedContentTokenCount", "totalTokenCount")


class GeminiValidator:
    """Watches one response, with all its candidates."""

    def __init__(self, findings: Findings) -> None:
        self._broken = findings.broken
        self._once = Once(findings)
        self._ending = _GOES_ON
        self._constant: dict[str, str] = {}
        self._candidates: dict[int, Candidate] = {}
        self._calls: set[str] = set()
        """Ids of all calls, over all candidates."""
        self._counts: dict[str, int] = {}

    def feed(self, frame: Frame, event: JsonValue) -> None:
        if frame.data == DONE:
            self._once("done-frame", None, "[DONE]; expected the end of the stream")
            return
        if frame.event or frame.id is not None:
            line = f"event: {frame.event}" if frame.event else f"id: {frame.id}"
            self._once("extra-line", None, f"a line {line!r}; expected only data:")
        answers = elements(event) if isinstance(event, list) else [event]
        if isinstance(event, list) and not _is_error(event):
            detail = f"an array of {len(event)}; expected one object a frame"
            self._once("frame-array", None, detail)
        for answer in answers:
            if isinstance(answer, dict):
                self._answer(answer)
            else:
                quoted = shown(frame.data[:200].decode("utf-8", "replace"))
                self._broken("frame-object", f"{quoted}; expected a JSON object")

    def finish(self) -> None:
        """A second call says nothing more."""
        if self._ending == _GOES_ON and not self._candidates:
            detail = "the stream ended without an answer; expected one with a finish reason"
            self._broken("finish-missing", detail)
        elif self._ending == _GOES_ON:
            for candidate in self._candidates.values():
                candidate.finish(thought=bool(self._counts.get("thoughtsTokenCount")))
        self._ending = _OVER

    # Frames

    def _answer(self, answer: JsonObject) -> None:
        if self._ending == _FAILED:
            self._broken("after-error", "a frame after an error; expected the end of the stream")
        self._spelled(answer)
        if not any(answer.get(key) is not None for key in _CONTENT):
            told = ", ".join(answer) or "nothing"
            detail = f"a frame with {told[:80]}; expected one of {', '.join(_CONTENT)}"
            self._broken("frame-empty", detail)
        for key, watch in _FIELDS.items():
            if answer.get(key) is not None:
                watch(self, answer[key])
        if "error" not in answer:
            self._same(answer, "responseId", "response-id", required=True)
            self._same(answer, "modelVersion", "model-version", required=False)

    def _same(self, answer: JsonObject, key: str, rule: str, *, required: bool) -> None:
        told, known = text(answer.get(key)), self._constant.get(key)
        if known is not None and told != known and (told or required):
            self._once(rule, None, f"{key} is {shown(answer.get(key))}; expected {shown(known)}")
        if told:
            self._constant.setdefault(key, told)

    def _spelled(self, answer: JsonObject) -> None:
        for key in _keys(answer):
            if "_" in key:
                self._once("key-spelling", key, f"the key {key!r}; expected it in camel case")

    def _error(self, value: JsonValue) -> None:
        error = fields(value)
        wrong = [key for key in ("message", "status") if not isinstance(error.get(key), str)]
        if wrong or count(error.get("code")) is None:
            detail = f"error is {shown(value)}; expected code, message and status"
            self._broken("error-shape", detail)
        elif error["status"] not in _STATUSES:
            detail = f"an error with status {shown(error['status'])}; expected a known one"
            self._broken("error-status", detail)
        self._ending = _FAILED

    def _feedback(self, value: JsonValue) -> None:
        if text(fields(value).get("blockReason")) and self._ending == _GOES_ON:
            self._ending = _BLOCKED
            if self._candidates:
                self._broken("blocked-content", "a blocked prompt after candidates; expected none")

    def _usage(self, value: JsonValue) -> None:
        usage = fields(value)
        for key in _COUNTS:
            told = count(usage.get(key))
            if told is None and usage.get(key) is not None:
                detail = f"{key} is {shown(usage[key])}; expected a whole number"
                self._broken("usage-shape", detail)
            elif told is not None:
                before = self._counts.get(key, 0)
                if told < before:
                    detail = f"{key} is {told} after {before}; expected no fewer"
                    self._broken("usage-shrinks", detail)
                self._counts[key] = told
        counts = {key: count(usage.get(key)) for key in _COUNTS}
        given, made, total = (counts[key] for key in (_SUMMED[0], _SUMMED[2], _COUNTS[-1]))
        summed = sum(counts[key] or 0 for key in _SUMMED)
        if given is not None and made is not None and total is not None and total != summed:
            detail = f"totalTokenCount is {total}; expected {summed}, the sum of its parts"
            self._broken("usage-total", detail)

    # Candidates

    def _all_candidates(self, value: JsonValue) -> None:
        if not isinstance(value, list):
            self._broken("candidate-shape", f"candidates is {shown(value)}; expected an array")
        if elements(value) and self._ending == _BLOCKED:
            self._broken("blocked-content", "candidates of a blocked prompt; expected none")
        seen: set[int] = set()
        for one in elements(value):
            candidate = fields(one)
            index = count(candidate.get("index", 0))
            if not isinstance(one, dict) or index is None:
                detail = f"a candidate is {shown(one)}, its index {shown(candidate.get('index'))}"
                self._broken("candidate-shape", f"{detail}; expected an object, a number")
            elif index in seen:
                detail = f"a second candidate {index} in one frame; expected each once"
                self._broken("candidate-index", detail)
            seen.add(index or 0)
            self._candidate(index or 0).feed(candidate)

    def _candidate(self, index: int) -> Candidate:
        if index not in self._candidates:
            self._candidates[index] = Candidate(index, self._broken, self._once, self._calls)
        return self._candidates[index]


_GOES_ON, _BLOCKED, _FAILED, _OVER = "goes on", "blocked", "failed", "over"
"""How a response ends, as far as it is known."""

_FIELDS: dict[str, Callable[[GeminiValidator, JsonValue], None]] = {
    "promptFeedback": GeminiValidator._feedback,
    "candidates": GeminiValidator._all_candidates,
    "usageMetadata": GeminiValidator._usage,
    "error": GeminiValidator._error,
}


def _is_error(answers: list[JsonValue]) -> bool:
    """Errors come in an array of one sometimes."""
    return len(answers) == 1 and "error" in fields(answers[0])


def _keys(answer: JsonObject) -> list[str]:
    """The keys of a frame down to its parts."""
    keys = list(answer)
    for candidate in map(fields, elements(answer.get("candidates"))):
        keys += candidate
        for part in map(fields, elements(fields(candidate.get("content")).get("parts"))):
            keys += [*part, *fields(part.get("functionCall"))]
    return keys
