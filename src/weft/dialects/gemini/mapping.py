"""Maps finish reasons, usage, errors and times between this API and canonical parts."""

import calendar
import re

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.gemini import wire
from weft.parts import ErrorPart, Finish, FinishReason, Json, Usage

STOP, UNSPECIFIED = "STOP", "FINISH_REASON_UNSPECIFIED"

FINISH_REASONS: dict[str, FinishReason] = {
    # STOP also stands for a matched stop sequence, which is not named, and for calls.
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
    # A turn that failed. Mapped to stop, as some gateways do, it would hide that no tool ran.
    "MALFORMED_FUNCTION_CALL": "error",  # capture: malformed-function-call
    "MALFORMED_RESPONSE": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    "TOO_MANY_TOOL_CALLS": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "CONTINUATION": "pause",  # capture: continuation
}
"""Canonical finish reasons by finishReason. One that is not here is `other`."""

# The model wrote something that the host could not parse; another sample may parse.
RETRYABLE_REASONS = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
"""Error reasons after which a retry may succeed."""

_FINISH_WORDS: dict[FinishReason, str] = {
    "stop": STOP,
    "tool-calls": STOP,  # the API has no finishReason for calls
    "length": "MAX_TOKENS",
    "content-filter": "SAFETY",
    "pause": "OTHER",
    "other": "OTHER",
}

# Those that the vendor's own SDK retries.
_RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)")


def parse_finish_reason(word: str) -> FinishReason:
    """The word is in upper case, as the API writes it."""
    return FINISH_REASONS.get(word, "other")


def render_finish_reason(finish: Finish) -> str:
    """The finishReason that the response came with, if it has one; else the nearest."""
    raw = finish.raw_reason or ""
    # Only if it still says the same: the raw reason may be another dialect's word, or the canonical
    # reason may have changed on the way (STOP with calls).
    if FINISH_REASONS.get(raw) == finish.reason:
        return raw
    return _FINISH_WORDS.get(finish.reason, "OTHER")


# Usage


def parse_usage(usage: wire.UsageMetadata) -> Usage | None:
    """Returns None if no count is known."""
    if usage == wire.UsageMetadata():
        return None
    # Tokens that tools put into the prompt are counted apart here, and thoughts as well.
    # capture: usage-for-tools
    input_tokens = _sum(usage.prompt_token_count, usage.tool_use_prompt_token_count)
    output_tokens = _sum(usage.candidates_token_count, usage.thoughts_token_count)
    total = usage.total_token_count
    if total is None and input_tokens is not None and output_tokens is not None:
        total = input_tokens + output_tokens
    return Usage(
        input_tokens,
        output_tokens,
        total,
        usage.thoughts_token_count,
        usage.cached_content_token_count,
    )


def render_usage(usage: Usage) -> wire.UsageMetadata:
    """`candidatesTokenCount` excludes thoughts, and the total is the sum of the counts."""
    prompt, output, thoughts = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    # Not below zero: some hosts of other dialects count reasoning outside the output.
    candidates = None if output is None else max(output - (thoughts or 0), 0)
    total = usage.total_tokens
    if prompt is not None and candidates is not None:
        total = prompt + candidates + (thoughts or 0)
    return wire.UsageMetadata(
        prompt_token_count=prompt,
        cached_content_token_count=usage.cache_read_tokens,
        candidates_token_count=candidates,
        thoughts_token_count=thoughts,
        total_token_count=total,
    )


def changed_counts(usage: Usage | None) -> list[str]:
    """The names of the counts that are read back with another value. Zeros may be left out."""
    if usage is None:
        return []
    counts = msgspec.structs.asdict(usage)
    read_back = msgspec.structs.asdict(parse_usage(render_usage(usage)) or Usage())
    return [
        name.replace("_", " ")
        for name, count in counts.items()
        if count and count != read_back[name]
    ]


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)


# Errors


def parse_error(error: wire.GeminiError) -> ErrorPart:
    # `code` is the HTTP status; a proxy may put a code of its own there.
    code = error.code if error.code is not None and 400 <= error.code <= 599 else None
    status = wire.ERROR_STATUSES.get(error.status or "") if code is None else code
    extra: Json = UNSET
    if isinstance(error.details, Raw):
        extra = Raw(msgspec.json.encode(wire.ErrorExtra(error.details)))
    return ErrorPart(
        "upstream",
        error.message or error.status or "unknown error",
        code=error.status or error.code,
        status=status,
        retryable=status in _RETRYABLE_STATUSES,
        extra=extra,
    )


# Time


def parse_time(time: str) -> int | None:
    """Returns the Unix seconds of a time in UTC; None if it is not one."""
    # createTime is RFC 3339 with up to nine digits of a second, always in UTC ("Z").
    # capture: arguments-value-by-value
    match = _TIME.match(time)
    try:
        return calendar.timegm(tuple(map(int, match.groups()))) if match else None
    except ValueError:  # no such day
        return None


def render_time(created: int) -> str:
    """Returns the time in UTC; datetime is not available in this layer. Years 1970 to 9999."""
    # Howard Hinnant's `civil_from_days`: years that begin in March put the leap day last.
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
