"""Parses and renders error bodies: `{"type": "error", "error": {type, message, details?}}`.

Several error classes share one error type. The more specific code is then in `details.error_code`,
where this API has its own specific codes too; clients that do not know it still have the type.
"""

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Failure
from weft.dialects.anthropic_messages.wire import ErrorEvent, MessagesError
from weft.dialects.error_classes import (
    CLASSES,
    ErrorClass,
    ErrorPartExtra,
    build_error,
    class_of,
    classify,
    extra_of,
    parse_error_body,
    parse_retry_after,
    status_of,
)
from weft.parts import ErrorPart, Json

# API reference, "Errors". The types of the official SDK lack `request_too_large`, but it is sent.
TYPES: dict[ErrorClass, str] = {
    "bad-request": "invalid_request_error",
    "context-too-long": "invalid_request_error",
    "unsupported": "invalid_request_error",
    "auth": "authentication_error",
    "billing": "billing_error",
    "permission": "permission_error",
    "not-found": "not_found_error",
    "conflict": "conflict_error",
    "too-large": "request_too_large",
    "rate": "rate_limit_error",
    "cancelled": "api_error",
    "server": "api_error",
    "bad-upstream-answer": "api_error",
    # Not authentication_error: a client would ask its user for another key, but the key that failed
    # is the gateway's own.
    "upstream-auth": "api_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
}
# 529 is this API's own. The official client retries it, as any status from 500 on.
STATUSES: dict[ErrorClass, int] = {"overloaded": 529}
"""HTTP statuses that differ from the default of the class."""


class ErrorDetails(msgspec.Struct):
    error_code: str | None = None


def type_of(error: ErrorPart | Failure) -> str:
    """The error type that an error of any dialect is rendered with."""
    return TYPES[class_of(error)]


def read_error(status: int | None, body: bytes, retry_after: str | None = None) -> ErrorPart:
    """Parses any error body; see `error_classes.parse_error_body`."""
    parsed = parse_error_body(body)
    error_code = _error_code(parsed.details)
    # This API has no `code`: a body with one comes from an imitation, or from a proxy before it.
    code = parsed.code if parsed.type is None else parsed.type
    extra = ErrorPartExtra(
        param=parsed.param,
        retry_after=parse_retry_after(retry_after),
        request_id=parsed.request_id,
        details=parsed.details,
    )
    return build_error(
        status, parsed, code, extra, error_code, parsed.code, parsed.type, parsed.word
    )


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    error_class, extra = class_of(error), extra_of(error)
    default = STATUSES.get(error_class, CLASSES[error_class].status)
    status = status_of(error, error_class, default)
    rendered = MessagesError(TYPES[error_class], error.message, extra.details)
    if _error_code(extra.details) is None:  # no details, or those of another API
        code = extra.error_code
        if code is None and classify(status, rendered.type) != error_class:
            code = CLASSES[error_class].code
        rendered.details = Raw(msgspec.json.encode(ErrorDetails(code))) if code else UNSET
    return status, msgspec.json.encode(ErrorEvent(rendered, extra.request_id))


def _error_code(details: Json) -> str | None:
    """`details.error_code`, if the details have the shape of this API."""
    try:
        return msgspec.json.decode(details, type=ErrorDetails).error_code if details else None
    except (ValueError, RecursionError):
        return None
