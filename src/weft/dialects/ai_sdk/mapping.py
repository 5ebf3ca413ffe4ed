"""What the wire's words mean: finish reasons, usage, errors, times, files."""

import base64
import calendar
import re

import msgspec
from msgspec import Raw

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import (
    Json,
    compact_json,
    copy_unless_null,
    parse_byte_map,
    parse_or_default,
    parse_string,
)
from weft.dialects.base import told
from weft.parts import ErrorPart, FinishReason, Usage

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content-filter": "content-filter",
    "tool-calls": "tool-calls",
    "error": "error",
}
"""Finish reasons. A word that is not here is `other`."""

PAUSE_REASONS = frozenset({"pause_turn"})
"""Words of providers that mean a pause, although the unified one is `stop`."""

WRITTEN_FINISH_REASONS: dict[FinishReason, wire.Word] = {
    "stop": "stop",
    "length": "length",
    "content-filter": "content-filter",
    "tool-calls": "tool-calls",
    "error": "error",
    "other": "other",
}
"""The word that is written for each reason: any other one would end the chat."""

UNKNOWN_MEDIA_TYPE = "application/octet-stream"

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)


def parse_finish_reason(event: wire.SdkEvent) -> tuple[FinishReason | None, str | None]:
    """The reason, None if none was told, and the provider's own word."""
    told_now = event.finish_reason
    if not isinstance(told_now, wire.SdkFinishReason):
        told_now = wire.SdkFinishReason(told_now, event.raw_finish_reason or told_now)
    if told_now.unified is None:
        return None, told_now.raw
    if told_now.unified == "stop" and told_now.raw in PAUSE_REASONS:
        return "pause", told_now.raw
    return FINISH_REASONS.get(told_now.unified, "other"), told_now.raw


def parse_usage(usage: wire.SdkUsage | None) -> Usage | None:
    """Usage of any version; None for usage that tells nothing."""
    if usage is None:
        return None
    into, out = _counts(usage.input_tokens), _counts(usage.output_tokens)
    more = usage.input_token_details or wire.SdkTokenCounts()
    made = usage.output_token_details or wire.SdkTokenCounts()
    found = Usage(
        input_tokens=into.total,
        output_tokens=out.total,
        total_tokens=usage.total_tokens,
        reasoning_tokens=_first(out.reasoning, made.reasoning_tokens, usage.reasoning_tokens),
        cache_read_tokens=_first(
            into.cache_read, more.cache_read_tokens, usage.cached_input_tokens
        ),
        cache_write_tokens=_first(into.cache_write, more.cache_write_tokens),
    )
    return None if found == Usage() else found


def _counts(tokens: int | wire.SdkTokenCounts | None) -> wire.SdkTokenCounts:
    return tokens if isinstance(tokens, wire.SdkTokenCounts) else wire.SdkTokenCounts(tokens)


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def tokens(usage: Usage | None) -> wire.Tokens:
    """Usage as it is written."""
    usage = usage or Usage()
    return wire.Tokens(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        usage.reasoning_tokens,
        usage.cache_read_tokens,
    )


def parse_error(event: wire.SdkEvent) -> ErrorPart:
    """An error of any shape. A serialised one may hold nothing at all."""
    if event.error_text is not None:
        return ErrorPart("upstream", event.error_text or "unknown error")
    failure = parse_or_default(event.error, wire.SdkError)
    inner = failure
    if told(failure.error) and not failure.message:
        inner = parse_or_default(failure.error, wire.SdkError)
    code = inner.type if inner.code is None else inner.code
    return ErrorPart(
        "upstream",
        inner.message or value_as_text(event.error) or "unknown error",
        code=code if code is not None else inner.name,
        status=failure.status_code,
        retryable=bool(failure.is_retryable),
        extra=copy_unless_null(event.error) if failure != wire.SdkError() else msgspec.UNSET,
    )


def value_as_text(raw: Json) -> str:
    """A value as a text for people."""
    text = parse_string(raw)
    return text if text is not None else compact_json(raw) if told(raw) else ""


def parse_timestamp(timestamp: str | None) -> int | None:
    """Unix seconds of a time in UTC; None for what is none."""
    found = _TIME.match(timestamp or "")
    try:
        return calendar.timegm(tuple(map(int, found.groups()))) if found else None
    except ValueError:  # no such day
        return None


def parse_file(event: wire.SdkEvent) -> wire.SdkFile:
    """A file in any shape: its bytes as base64, or where it is, and its type."""
    whole = parse_or_default(event.file, wire.SdkFile)
    blob = parse_or_default(event.data, wire.SdkFile)
    url = event.url or blob.url
    data = parse_string(event.data) or blob.data or whole.base64 or whole.base64_data
    if not (data or url):
        plain = parse_byte_map(event.data)
        data = base64.b64encode(plain).decode() if plain else None
    inline = _DATA_URL.match(url or "")
    if inline is not None and url is not None:
        data, url = url[inline.end() :], None
    named = inline.group(1) if inline else None
    return wire.SdkFile(data, url, media_type=event.media_type or whole.media_type or named)


def file_url(media_type: str, data: str | None, reference: str | None) -> str | None:
    """Where a front end finds a file; None for an id that only its origin knows."""
    if data is not None:
        return f"data:{media_type};base64,{data}"
    return reference if reference is not None and ":" in reference else None


def json_string(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))
