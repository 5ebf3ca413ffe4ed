"""Maps finish reasons, usage and errors between the wire and parts."""

from msgspec import UNSET

from weft.dialects.error_classes import CLASSES, ErrorPartExtra, classify
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.errors import STATUSES
from weft.partial_json import whole_characters
from weft.parts import ErrorKind, ErrorPart, FinishReason, Usage

# Open Responses leaves the reason a free string. The original API also has `max_messages` and
# `steered`, which become `other` with the raw reason.
FINISH_REASONS: dict[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content-filter",
}
"""Finish reasons by `incomplete_details.reason`. Any other reason is `other`."""

INCOMPLETE_REASONS: dict[FinishReason, str | None] = {
    **{reason: word for word, reason in FINISH_REASONS.items()},
    # A turn that the provider paused has no reason of its own on this wire.
    "pause": None,
}
"""Finish reasons of an incomplete response, and its `incomplete_details.reason`."""


def usage_from_wire(usage: wire.ResponsesUsage) -> Usage | None:
    """Returns None if no count is known."""
    input_details = usage.input_tokens_details or wire.ResponsesTokenDetails()
    output_details = usage.output_tokens_details or wire.ResponsesTokenDetails()
    known = Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        output_details.reasoning_tokens,
        input_details.cached_tokens,
        input_details.cache_write_tokens,
    )
    # Null and an empty object both mean that nothing is known: usage is null until the response
    # ends, and stays null if it failed.
    return None if known == Usage() else known


def usage_to_wire(usage: Usage | None) -> wire.ResponsesUsage | None:
    """Returns None unless input and output tokens are both known: zero is never made up."""
    # The specification requires the three counts, and allows null only for usage as a whole.
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    total = usage.total_tokens
    return wire.ResponsesUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens + usage.output_tokens if total is None else total,
        # `cached_tokens` and `reasoning_tokens` are required integers, so a count that is not known
        # is 0 here; `cache_write_tokens`, only in the original API, is left out instead.
        wire.ResponsesTokenDetails(usage.cache_read_tokens or 0, usage.cache_write_tokens),
        wire.ResponsesTokenDetails(reasoning_tokens=usage.reasoning_tokens or 0),
    )


def error_from_wire(error: wire.ResponsesError, kind: ErrorKind = "upstream") -> ErrorPart:
    """Returns the error part. The class of the error decides its status and whether to retry."""
    # There is no HTTP status inside a stream: the class follows from the code and the type alone.
    error_class = kind if kind == "cancelled" else classify(None, error.code, error.type)
    extra = ErrorPartExtra(
        type=error.type, param=error.param if isinstance(error.param, str) else None
    )
    return ErrorPart(
        kind,
        error.message or error.type or "unknown error",
        code=whole_characters(error.code) if isinstance(error.code, str) else error.code,
        status=STATUSES.get(error_class, CLASSES[error_class].status),
        retryable=CLASSES[error_class].retryable,
        extra=UNSET if extra == ErrorPartExtra() else wire.to_raw(extra),
    )
