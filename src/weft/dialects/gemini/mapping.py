"""What the wire's words mean, both ways: finish reasons, usage, errors, times."""

import calendar
import re

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.gemini import wire
from weft.findings import Findings
from weft.parts import ErrorPart, Finish, FinishReason, Json, Usage

STOP, UNSPECIFIED = "STOP", "FINISH_REASON_UNSPECIFIED"

REASONS: dict[str, FinishReason] = {
    STOP: "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content-filter",
    "RECITATION": "content-filter",
    "BLOCKLIST": "content-filter",
    "PROHIBITED_CONTENT": "content-filter",
    "SPII": "content-filter",
    "LANGUAGE": "content-filter",
    "IMAGE_SAFETY": "content-filter",
    "IMAGE_PROHIBITED_CONTENT": "content-filter",
    "IMAGE_RECITATION": "content-filter",
    "MALFORMED_FUNCTION_CALL": "error",
    "MALFORMED_RESPONSE": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "TOO_MANY_TOOL_CALLS": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "CONTINUATION": "pause",
}
"""Finish reasons. A word that is not here is `other`."""

_AGAIN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
"""Reasons that are an error, and that the same request may not meet again."""

_WRITTEN: dict[FinishReason, str] = {
    "stop": STOP,
    "tool-calls": STOP,  # there is no word for it: the calls are there to be seen
    "length": "MAX_TOKENS",
    "content-filter": "SAFETY",
    "pause": "OTHER",
    "other": "OTHER",
}

_CODES: dict[str, int] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""The words of `error.status`, with the HTTP status of each."""

_RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)")


def finish_reason(word: str) -> FinishReason:
    return REASONS.get(word.upper(), "other")


def finish_word(finish: Finish) -> str:
    """The wire's own word where the finish still has it, else the nearest."""
    raw = finish.raw_reason or ""
    if REASONS.get(raw) == finish.reason:
        return raw
    return _WRITTEN.get(finish.reason, "OTHER")


class Ending:
    """What the frames say about the end: it counts when the input is over."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.reason: str | None = None
        self._blocked: str | None = None
        self._usage = wire.UsageMetadata()
        self._leftover = wire.GeminiFinishExtra()

    @property
    def told(self) -> bool:
        """Whether the wire said how it ended."""
        return self.reason is not None or self._blocked is not None

    @property
    def held(self) -> bool:
        """Whether something was said that only the finish part tells."""
        return self.told or self._leftover != wire.GeminiFinishExtra()

    @property
    def clean(self) -> bool:
        """Whether nothing was cut short."""
        return self.reason is not None and finish_reason(self.reason) == "stop"

    def error(self) -> ErrorPart | None:
        """The error that the finish reason stands for."""
        word = self.reason or ""
        if finish_reason(word) != "error":
            return None
        message = self._leftover.finish_message or f"the model's turn failed: {word}"
        return ErrorPart("upstream", message, code=word, retryable=word in _AGAIN)

    def finish(self, model: str | None, *, failed: bool, called: bool) -> Finish:
        kept = self._leftover
        return Finish(
            "error" if failed else self._canonical(called),
            raw_reason=self.reason or self._blocked,
            usage=usage_of(self._usage),
            model=model,
            extra=UNSET if kept == wire.GeminiFinishExtra() else Raw(msgspec.json.encode(kept)),
        )

    def _canonical(self, called: bool) -> FinishReason:
        if self.reason is None:
            return "content-filter"
        reason = finish_reason(self.reason)
        return "tool-calls" if reason == "stop" and called else reason

    def take_usage(self, told: wire.UsageMetadata) -> None:
        """Per field the last one told wins: counts grow from frame to frame, never summed."""
        kept = self._usage
        kept.prompt_token_count = _last(told.prompt_token_count, kept.prompt_token_count)
        kept.cached_content_token_count = _last(
            told.cached_content_token_count, kept.cached_content_token_count
        )
        kept.candidates_token_count = _last(
            told.candidates_token_count, kept.candidates_token_count
        )
        kept.thoughts_token_count = _last(told.thoughts_token_count, kept.thoughts_token_count)
        kept.tool_use_prompt_token_count = _last(
            told.tool_use_prompt_token_count, kept.tool_use_prompt_token_count
        )
        kept.total_token_count = _last(told.total_token_count, kept.total_token_count)

    def take_feedback(self, feedback: wire.PromptFeedback) -> None:
        if feedback.block_reason:
            self._blocked = self._blocked or feedback.block_reason
            self._leftover.block_reason_message = feedback.block_reason_message

    def take(self, candidate: wire.GeminiCandidate) -> None:
        kept = self._leftover
        kept.finish_message = candidate.finish_message or kept.finish_message
        kept.continuation_token = candidate.continuation_token or kept.continuation_token
        if isinstance(candidate.url_context_metadata, Raw):
            kept.url_context_metadata = candidate.url_context_metadata.copy()
        if candidate.grounding_metadata is not None:
            self._take_grounding(candidate.grounding_metadata)
        if candidate.finish_reason:
            self._take_reason(candidate.finish_reason)

    def _take_grounding(self, grounding: wire.GroundingMetadata) -> None:
        """What is no source: the queries, and what must be shown beside the answer."""
        if isinstance(grounding.web_search_queries, Raw):
            self._leftover.web_search_queries = grounding.web_search_queries.copy()
        if isinstance(grounding.search_entry_point, Raw):
            self._leftover.search_entry_point = grounding.search_entry_point.copy()

    def _take_reason(self, reason: str) -> None:
        """A specific reason wins over a plain stop, and any over none."""
        if self.reason in (None, STOP, UNSPECIFIED, reason):
            self.reason = reason
        elif reason not in (STOP, UNSPECIFIED):
            detail = f"finish reason {reason!r} after {self.reason!r}: ignored"
            self._findings.once("finish-repeated", "", detail)


# Usage


def usage_of(usage: wire.UsageMetadata) -> Usage | None:
    """Returns None for usage that tells nothing."""
    if usage == wire.UsageMetadata():
        return None
    given = _sum(usage.prompt_token_count, usage.tool_use_prompt_token_count)
    made = _sum(usage.candidates_token_count, usage.thoughts_token_count)
    total = usage.total_token_count
    if total is None and given is not None and made is not None:
        total = given + made
    return Usage(given, made, total, usage.thoughts_token_count, usage.cached_content_token_count)


def usage_written(usage: Usage) -> wire.UsageMetadata:
    """Usage as it is written: the answer without the thoughts, and a total that sums up."""
    given, made, thoughts = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    answer = None if made is None else max(made - (thoughts or 0), 0)
    total = usage.total_tokens
    if given is not None and answer is not None:
        total = given + answer + (thoughts or 0)
    return wire.UsageMetadata(
        prompt_token_count=given,
        cached_content_token_count=usage.cache_read_tokens,
        candidates_token_count=answer,
        thoughts_token_count=thoughts,
        total_token_count=total,
    )


def miscounted(usage: Usage | None) -> list[str]:
    """The counts that a reader will take for others, by name. What is zero may be left out."""
    if usage is None:
        return []
    counts = msgspec.structs.asdict(usage)
    again = msgspec.structs.asdict(usage_of(usage_written(usage)) or Usage())
    return [
        name.replace("_", " ") for name, count in counts.items() if count and count != again[name]
    ]


def _last(told: int | None, known: int | None) -> int | None:
    return known if told is None else told


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


# Errors


def error_of(error: wire.GeminiError) -> ErrorPart:
    code = error.code if error.code is not None and 400 <= error.code <= 599 else None
    status = _CODES.get(error.status or "") if code is None else code
    extra: Json = UNSET
    if isinstance(error.details, Raw):
        extra = Raw(msgspec.json.encode(wire.ErrorExtra(error.details)))
    return ErrorPart(
        "upstream",
        error.message or error.status or "unknown error",
        code=error.status or error.code,
        status=status,
        retryable=status in _RETRYABLE,
        extra=extra,
    )


def is_status(word: str | None) -> bool:
    """Whether this is a word that only this wire has for an error."""
    return word in _CODES


# Time


def created_of(time: str) -> int | None:
    """Unix seconds of a time in UTC; None for what is none."""
    found = _TIME.match(time)
    try:
        return calendar.timegm(tuple(map(int, found.groups()))) if found else None
    except ValueError:  # no such day
        return None


def time_of(created: int) -> str:
    """The time in UTC of Unix seconds, by the calendar of the years 1970 to 9999."""
    days, seconds = divmod(created, 86400)
    days += 719468  # from the first of March of the year 0, so that a leap day is the last
    era, day = divmod(days, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    year += 400 * era + (month > 9)
    hours, seconds = divmod(seconds, 3600)
    date = f"{year:04}-{(month + 2) % 12 + 1:02}-{day:02}"
    return f"{date}T{hours:02}:{seconds // 60:02}:{seconds % 60:02}Z"
