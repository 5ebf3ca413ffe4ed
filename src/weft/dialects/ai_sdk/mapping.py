"""What the wire's words mean: finish reasons, usage, errors, times, files."""

import base64
import calendar
import re

import msgspec
from msgspec import Raw

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import Json, bytes_of, compact, kept, text_of, unpacked
from weft.dialects.base import is_present
from weft.parts import ErrorPart, FinishReason, Usage

REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content-filter": "content-filter",
    "tool-calls": "tool-calls",
    "error": "error",
}
"""Finish reasons. A word that is not here is `other`."""

PAUSES = frozenset({"pause_turn"})
"""Words of providers that mean a pause, although the unified one is `stop`."""

WORDS: dict[FinishReason, wire.Word] = {
    "stop": "stop",
    "length": "length",
    "content-filter": "content-filter",
    "tool-calls": "tool-calls",
    "error": "error",
    "other": "other",
}
"""The word that is written for each reason: any other one would end the chat."""

UNTYPED = "application/octet-stream"

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)


def reason_of(event: wire.Event) -> tuple[FinishReason | None, str | None]:
    """The reason, None if none was told, and the provider's own word."""
    told_now = event.finish_reason
    if not isinstance(told_now, wire.Reason):
        told_now = wire.Reason(told_now, event.raw_finish_reason or told_now)
    if told_now.unified is None:
        return None, told_now.raw
    if told_now.unified == "stop" and told_now.raw in PAUSES:
        return "pause", told_now.raw
    return REASONS.get(told_now.unified, "other"), told_now.raw


def usage_of(usage: wire.Usage | None) -> Usage | None:
    """Usage of any version; None for usage that tells nothing."""
    if usage is None:
        return None
    into, out = _counts(usage.input_tokens), _counts(usage.output_tokens)
    more = usage.input_token_details or wire.Counts()
    made = usage.output_token_details or wire.Counts()
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


def _counts(tokens: int | wire.Counts | None) -> wire.Counts:
    return tokens if isinstance(tokens, wire.Counts) else wire.Counts(tokens)


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


def error_of(event: wire.Event) -> ErrorPart:
    """An error of any shape. A serialised one may hold nothing at all."""
    if event.error_text is not None:
        return ErrorPart("upstream", event.error_text or "unknown error")
    failure = unpacked(event.error, wire.Failure)
    inner = failure
    if is_present(failure.error) and not failure.message:
        inner = unpacked(failure.error, wire.Failure)
    code = inner.type if inner.code is None else inner.code
    return ErrorPart(
        "upstream",
        inner.message or error_text(event.error) or "unknown error",
        code=code if code is not None else inner.name,
        status=failure.status_code,
        retryable=bool(failure.is_retryable),
        extra=kept(event.error) if failure != wire.Failure() else msgspec.UNSET,
    )


def error_text(raw: Json) -> str:
    """A value as a text for people."""
    text = text_of(raw)
    return text if text is not None else compact(raw) if is_present(raw) else ""


def created_of(timestamp: str | None) -> int | None:
    """Unix seconds of a time in UTC; None for what is none."""
    found = _TIME.match(timestamp or "")
    try:
        return calendar.timegm(tuple(map(int, found.groups()))) if found else None
    except ValueError:  # no such day
        return None


def blob_of(event: wire.Event) -> wire.Blob:
    """A file in any shape: its bytes as base64, or where it is, and its type."""
    whole = unpacked(event.file, wire.Blob)
    blob = unpacked(event.data, wire.Blob)
    url = event.url or blob.url
    data = text_of(event.data) or blob.data or whole.base64 or whole.base64_data
    if not (data or url):
        plain = bytes_of(event.data)
        data = base64.b64encode(plain).decode() if plain else None
    inline = _DATA_URL.match(url or "")
    if inline is not None and url is not None:
        data, url = url[inline.end() :], None
    named = inline.group(1) if inline else None
    return wire.Blob(data, url, media_type=event.media_type or whole.media_type or named)


def url_of(media_type: str, data: str | None, reference: str | None) -> str | None:
    """Where a front end finds a file; None for an id that only its origin knows."""
    if data is not None:
        return f"data:{media_type};base64,{data}"
    return reference if reference is not None and ":" in reference else None


def raw_text(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))
