"""Checks a generateContent stream against the rules in `rules.toml`.

Every frame repeats the metadata of the response and adds to one or more candidates, which are
checked separately (see `validation/state.py`).
"""

from collections.abc import Callable

from weft.dialects.gemini.validation.state import ValidatedCandidate
from weft.dialects.gemini.wire import ERROR_STATUSES
from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter
from weft.dialects.validation.untyped import count, elements, fields, shown, text
from weft.findings import Findings
from weft.sse import DONE, Frame

_CONTENT_KEYS = ("candidates", "promptFeedback", "usageMetadata", "error")
# API reference, UsageMetadata: the total is the sum of these. Cached tokens are part of the prompt.
_SUMMED_COUNTS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
)
_COUNTS = (*_SUMMED_COUNTS, "cachedContentTokenCount", "totalTokenCount")

_OPEN, _BLOCKED, _FAILED, _OVER = "open", "blocked", "failed", "over"
"""What is known about the end of a response."""


class GeminiValidator:
    """Checks one response with all its candidates."""

    def __init__(self, findings: Findings) -> None:
        self._report = findings.broken
        self._report_once = Reporter(findings)
        self._end_state = _OPEN
        self._metadata: dict[str, str] = {}
        self._candidates: dict[int, ValidatedCandidate] = {}
        self._calls: set[str] = set()
        """The ids of the calls of all candidates."""
        self._counts: dict[str, int] = {}

    def feed(self, frame: Frame, event: JsonValue) -> None:
        if frame.data == DONE:
            self._report_once("done-frame", None, "[DONE]; expected the end of the stream")
            return
        if frame.event or frame.id is not None:
            line = f"event: {frame.event}" if frame.event else f"id: {frame.id}"
            self._report_once("extra-line", None, f"a line {line!r}; expected only data:")
        responses = elements(event) if isinstance(event, list) else [event]
        # An error body may be in an array of one.
        # capture: error-body-in-a-list
        is_error = len(responses) == 1 and "error" in fields(responses[0])
        if isinstance(event, list) and not is_error:
            detail = f"an array of {len(event)}; expected one object per frame"
            self._report_once("frame-array", None, detail)
        for response in responses:
            if isinstance(response, dict):
                self._check_response(response)
            else:
                quoted = shown(frame.data[:200].decode("utf-8", "replace"))
                self._report("frame-object", f"{quoted}; expected a JSON object")

    def finish(self) -> None:
        """A second call reports nothing."""
        if self._end_state == _OPEN and not self._candidates:
            detail = "the stream ended without an answer; expected one with a finish reason"
            self._report("finish-missing", detail)
        elif self._end_state == _OPEN:
            for candidate in self._candidates.values():
                candidate.finish(thought=bool(self._counts.get("thoughtsTokenCount")))
        self._end_state = _OVER

    # Frames

    def _check_response(self, response: JsonObject) -> None:
        if self._end_state == _FAILED:
            self._report("after-error", "a frame after an error; expected the end of the stream")
        # Only keys of the API's own objects: those of arguments and results are the user's.
        keys = list(response)
        for candidate in map(fields, elements(response.get("candidates"))):
            keys += candidate
            for part in map(fields, elements(fields(candidate.get("content")).get("parts"))):
                keys += [*part, *fields(part.get("functionCall"))]
        for key in keys:
            if "_" in key:
                self._report_once("key-spelling", key, f"the key {key!r}; expected camelCase")
        if not any(response.get(key) is not None for key in _CONTENT_KEYS):
            found = ", ".join(response) or "nothing"
            detail = f"a frame with {found[:80]}; expected one of {', '.join(_CONTENT_KEYS)}"
            self._report("frame-empty", detail)
        for key, check in _FIELDS.items():
            if response.get(key) is not None:
                check(self, response[key])
        if "error" not in response:
            self._check_constant(response, "responseId", "response-id", required=True)
            self._check_constant(response, "modelVersion", "model-version", required=False)

    def _check_constant(self, response: JsonObject, key: str, rule: str, *, required: bool) -> None:
        value, known = text(response.get(key)), self._metadata.get(key)
        if known is not None and value != known and (value or required):
            self._report_once(
                rule, None, f"{key} is {shown(response.get(key))}; expected {shown(known)}"
            )
        if value:
            self._metadata.setdefault(key, value)

    def _check_error(self, value: JsonValue) -> None:
        error = fields(value)
        wrong = [key for key in ("message", "status") if not isinstance(error.get(key), str)]
        if wrong or count(error.get("code")) is None:
            detail = f"error is {shown(value)}; expected code, message and status"
            self._report("error-shape", detail)
        elif error["status"] not in ERROR_STATUSES:
            detail = f"an error with status {shown(error['status'])}; expected a known value"
            self._report("error-status", detail)
        self._end_state = _FAILED

    def _check_feedback(self, value: JsonValue) -> None:
        if text(fields(value).get("blockReason")) and self._end_state == _OPEN:
            self._end_state = _BLOCKED
            if self._candidates:
                self._report("blocked-content", "a blocked prompt after candidates; expected none")

    def _check_usage(self, value: JsonValue) -> None:
        usage = fields(value)
        for key in _COUNTS:
            value = count(usage.get(key))
            if value is None and usage.get(key) is not None:
                detail = f"{key} is {shown(usage[key])}; expected an integer"
                self._report("usage-shape", detail)
            elif value is not None:
                # Counts are running totals, and a count that is left out keeps its value.
                before = self._counts.get(key, 0)
                if value < before:
                    detail = f"{key} is {value} after {before}; expected no fewer"
                    self._report("usage-shrinks", detail)
                self._counts[key] = value
        counts = {key: count(usage.get(key)) for key in _COUNTS}
        given, made, total = (
            counts[key] for key in (_SUMMED_COUNTS[0], _SUMMED_COUNTS[2], _COUNTS[-1])
        )
        summed = sum(counts[key] or 0 for key in _SUMMED_COUNTS)
        # Early frames may have the prompt's count alone: the sum is checked where both sides are
        # known.
        if given is not None and made is not None and total is not None and total != summed:
            detail = f"totalTokenCount is {total}; expected {summed}, the sum of the counts"
            self._report("usage-total", detail)

    # Candidates

    def _check_candidates(self, value: JsonValue) -> None:
        if not isinstance(value, list):
            self._report("candidate-shape", f"candidates is {shown(value)}; expected an array")
        if elements(value) and self._end_state == _BLOCKED:
            self._report("blocked-content", "candidates of a blocked prompt; expected none")
        seen: set[int] = set()
        for one in elements(value):
            candidate = fields(one)
            # Left out where it is 0.
            index = count(candidate.get("index", 0))
            if not isinstance(one, dict) or index is None:
                detail = f"a candidate is {shown(one)}, its index {shown(candidate.get('index'))}"
                self._report("candidate-shape", f"{detail}; expected an object, a number")
            elif index in seen:
                detail = f"a second candidate {index} in one frame; expected each once"
                self._report("candidate-index", detail)
            seen.add(index or 0)
            if (index or 0) not in self._candidates:
                self._candidates[index or 0] = ValidatedCandidate(
                    index or 0, self._report, self._report_once, self._calls
                )
            self._candidates[index or 0].feed(candidate)


_FIELDS: dict[str, Callable[[GeminiValidator, JsonValue], None]] = {
    "promptFeedback": GeminiValidator._check_feedback,
    "candidates": GeminiValidator._check_candidates,
    "usageMetadata": GeminiValidator._check_usage,
    "error": GeminiValidator._check_error,
}
