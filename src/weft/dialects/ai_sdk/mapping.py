"""Values of the wire and canonical values: finish reasons, usage, errors, times, files."""

import base64
import calendar
import re
from typing import get_args

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import compact_json, copy_unless_null, parse_byte_map, parse_string
from weft.dialects.frames import is_present
from weft.dialects.raw_json import decode_or_default
from weft.parts import ErrorPart, FinishReason, Json, Usage

FINISH_REASONS: dict[str, FinishReason] = {
    reason: reason for reason in get_args(FinishReason) if reason != "pause"
}
"""The finish reasons of the wire, which are the canonical ones. Any other is `other`."""

# The SDK's provider maps the pause of a server tool to `stop`; only the raw word still says that
# the turn has to be sent back.
PAUSE_REASONS = frozenset({"pause_turn"})
"""Providers' own reasons that mean a pause, although the unified reason is `stop`."""

UNKNOWN_MEDIA_TYPE = "application/octet-stream"

# A serialised JavaScript Date: always UTC, and the fraction of the second is left out.
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
# RFC 2397: the media type may have parameters before `;base64`.
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)


def parse_finish_reason(event: wire.SdkEvent) -> tuple[FinishReason | None, str | None]:
    """Returns the reason, None if the event has none, and the provider's own word for it."""
    reason = event.finish_reason
    # A string in version 2 of the specification and in chunks; an object since version 3.
    if not isinstance(reason, wire.SdkFinishReason):  # capture: dump-of-a-stream
        reason = wire.SdkFinishReason(reason, event.raw_finish_reason or reason)
    if reason.unified is None:
        return None, reason.raw
    if reason.unified == "stop" and reason.raw in PAUSE_REASONS:
        # capture: finish-reason-pause-turn
        return "pause", reason.raw
    return FINISH_REASONS.get(reason.unified, "other"), reason.raw


def parse_usage(usage: wire.SdkUsage | None) -> Usage | None:
    """Returns the usage of any version; None for usage without any number."""
    if usage is None:
        return None
    # Plain numbers in version 2, objects with a `total` since version 3, and details beside the
    # numbers in a dump. `total` includes cached tokens, as the canonical count does.
    # capture: usage-with-details, dump-of-a-stream
    input, output = _counts(usage.input_tokens), _counts(usage.output_tokens)
    input_details = usage.input_token_details or wire.SdkTokenCounts()
    output_details = usage.output_token_details or wire.SdkTokenCounts()
    found = Usage(
        input_tokens=input.total,
        output_tokens=output.total,
        total_tokens=usage.total_tokens,
        reasoning_tokens=_first(
            output.reasoning, output_details.reasoning_tokens, usage.reasoning_tokens
        ),
        cache_read_tokens=_first(
            input.cache_read, input_details.cache_read_tokens, usage.cached_input_tokens
        ),
        cache_write_tokens=_first(input.cache_write, input_details.cache_write_tokens),
    )
    return None if found == Usage() else found


def _counts(tokens: int | wire.SdkTokenCounts | None) -> wire.SdkTokenCounts:
    return tokens if isinstance(tokens, wire.SdkTokenCounts) else wire.SdkTokenCounts(tokens)


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def render_message_metadata(model: str | None, usage: Usage | None) -> Raw:
    """Returns model and usage as a front end may show them."""
    # Flat numbers, as version 5 of the SDK has them: the simplest form for a page to show.
    rendered = wire.SdkMessageMetadata(model or None)
    if usage is not None:
        counts = wire.SdkUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.total_tokens,
            usage.reasoning_tokens,
            usage.cache_read_tokens,
        )
        rendered.usage = counts if counts != wire.SdkUsage() else None
    return Raw(msgspec.json.encode(rendered))


def parse_error(event: wire.SdkEvent) -> ErrorPart:
    """Returns an error of any shape. A serialised exception may hold nothing at all."""
    # Chunks have a text, model parts any value.
    if event.error_text is not None:
        return ErrorPart("upstream", event.error_text or "unknown error")
    error = decode_or_default(event.error, wire.SdkError)
    cause = error
    if is_present(error.error) and not error.message:  # capture: error-inside-an-error
        cause = decode_or_default(error.error, wire.SdkError)
    # Vendors have a `code`, a `type` or both; an exception has only the name of its class.
    code = cause.type if cause.code is None else cause.code
    return ErrorPart(
        "upstream",
        # capture: error-that-says-nothing
        cause.message or value_as_text(event.error) or "unknown error",
        code=code if code is not None else cause.name,
        status=error.status_code,
        retryable=bool(error.is_retryable),
        extra=copy_unless_null(event.error) if error != wire.SdkError() else UNSET,
    )


def value_as_text(raw: Json) -> str:
    """Returns a string as it is, and any other value as JSON; nothing for an empty one."""
    text = parse_string(raw)
    return text if text is not None else compact_json(raw) if is_present(raw) else ""


def parse_timestamp(timestamp: str | None) -> int | None:
    """Returns the Unix seconds of a time in UTC; None if it is not one."""
    found = _TIME.match(timestamp or "")
    try:
        return calendar.timegm(tuple(map(int, found.groups()))) if found else None
    except ValueError:  # capture: timestamp-that-does-not-exist
        return None


def parse_file(event: wire.SdkEvent) -> wire.SdkFile:
    """Returns the file of an event: its content as base64, or its URL, and its media type."""
    file = decode_or_default(event.file, wire.SdkFile)
    content = decode_or_default(event.data, wire.SdkFile)
    url = event.url or content.url
    # capture: file-as-an-object
    data = parse_string(event.data) or content.data or file.base64 or file.base64_data
    if not (data or url):
        # JSON.stringify writes a Uint8Array as an object with an entry for each byte.
        plain = parse_byte_map(event.data)  # capture: file-as-a-serialised-array
        data = base64.b64encode(plain).decode() if plain else None
    media_type = event.media_type or file.media_type
    inline = _DATA_URL.match(url or "")
    if inline is not None and url is not None:  # capture: file-as-a-data-url
        data, url = url[inline.end() :], None
        media_type = media_type or inline.group(1)
    return wire.SdkFile(data, url, media_type=media_type)


def file_url(media_type: str, data: str | None, reference: str | None) -> str | None:
    """Returns a URL that a front end can load; None for an id that only its origin knows."""
    # Front ends show a file by its URL, whatever it holds, so bytes become a data URL.
    if data is not None:
        return f"data:{media_type};base64,{data}"
    return reference if reference is not None and ":" in reference else None


def json_string(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))
