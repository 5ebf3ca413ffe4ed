"""Parses and renders error bodies: `{"error": {code, message, status, details}}`.

There are few values of `status`; the reason, the field and the time to wait are in the details.
"""

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Failure
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
from weft.dialects.gemini import wire
from weft.parts import ErrorPart, Json

# The names are those of google.rpc.Code, which has none for a request that is too long, for money
# that ran out, or for a bad gateway: several classes share a name, and the details tell them apart.
STATUS_NAMES: dict[ErrorClass, str] = {
    "bad-request": "INVALID_ARGUMENT",
    "context-too-long": "INVALID_ARGUMENT",
    "unsupported": "INVALID_ARGUMENT",
    "auth": "UNAUTHENTICATED",
    "billing": "RESOURCE_EXHAUSTED",
    "permission": "PERMISSION_DENIED",
    "not-found": "NOT_FOUND",
    "conflict": "ABORTED",
    "too-large": "INVALID_ARGUMENT",
    "rate": "RESOURCE_EXHAUSTED",
    "cancelled": "CANCELLED",
    "server": "INTERNAL",
    "bad-upstream-answer": "INTERNAL",
    "upstream-auth": "INTERNAL",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
}
# The HTTP status goes with the name in this API: RESOURCE_EXHAUSTED is 429, INTERNAL is 500.
HTTP_STATUSES: dict[ErrorClass, int] = {
    "billing": 429,
    "bad-upstream-answer": 500,
}
"""HTTP statuses that differ from the default of the class."""

OTHER_STATUSES: dict[str, int] = {
    name: status
    for name, status in wire.ERROR_STATUSES.items()
    if name not in STATUS_NAMES.values()
}
"""Further values of `status` that are kept, with their HTTP status."""

TYPE_PREFIX = "type.googleapis.com/google.rpc."
"""The prefix of the type of each detail."""


class FieldViolation(msgspec.Struct, omit_defaults=True):
    field: str | None = None
    description: str | None = None


# One shape for all types, since only some of their fields are read: google.rpc.ErrorInfo (reason,
# domain), RetryInfo (retryDelay), BadRequest (fieldViolations).
class GeminiErrorDetail(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A detail of any type; three types are read and written."""

    type: str | None = msgspec.field(default=None, name="@type")
    reason: str | None = None
    domain: str | None = None
    retry_delay: str | None = None
    field_violations: list[FieldViolation] | None = None


def read_error(status: int | None, body: bytes, retry_after: str | None = None) -> ErrorPart:
    """Parses any error body; see `error_classes.parse_error_body`."""
    parsed = parse_error_body(body)
    details = _parse_details(parsed.details)
    delay = next((detail.retry_delay for detail in details if detail.retry_delay), None)
    violations = [violation for detail in details for violation in detail.field_violations or ()]
    fields = [violation.field for violation in violations]
    reasons = [detail.reason for detail in details]
    code = parsed.word or parsed.type or parsed.code
    extra = ErrorPartExtra(
        param=next(filter(None, fields), parsed.param),
        # The header first. This API has the time to wait in a detail: "12s".
        retry_after=parse_retry_after(retry_after) or parse_retry_after(delay),
        request_id=parsed.request_id,
        details=parsed.details,
    )
    return build_error(status, parsed, code, extra, *reasons, parsed.word, parsed.type, parsed.code)


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    error_class, extra = class_of(error), extra_of(error)
    name, status = _status(error, error_class)
    details = extra.details
    if not _parse_details(details):  # no details, or those of another API
        # what `status` cannot express: the reason, the field, the time to wait
        rendered = []
        reason, wait = CLASSES[error_class].code, extra.retry_after
        # Only where the name is not enough to read the same class back.
        if reason is not None and classify(status, name) != error_class:
            info = GeminiErrorDetail(
                TYPE_PREFIX + "ErrorInfo", reason=reason.upper(), domain="weft"
            )
            rendered.append(info)
        if extra.param is not None:
            violations = [FieldViolation(extra.param)]
            rendered.append(
                GeminiErrorDetail(TYPE_PREFIX + "BadRequest", field_violations=violations)
            )
        if isinstance(wait, int | float):
            # google.protobuf.Duration in JSON: seconds with at most nine digits of fraction, and an
            # `s`.
            retry = GeminiErrorDetail(TYPE_PREFIX + "RetryInfo", retry_delay=f"{wait:.9g}s")
            rendered.append(retry)
        details = Raw(msgspec.json.encode(rendered)) if rendered else UNSET
    return status, wire.error_body(wire.GeminiError(status, error.message, name, details))


def render_error(error: ErrorPart | Failure) -> wire.GeminiError:
    """The error of a stream. Its code is the HTTP status of the upstream, if there was one."""
    name, status = _status(error, class_of(error))
    # The official client for Python raises by `code`: a server error or a client error.
    return wire.GeminiError(error.status or status, error.message, name)


def _status(error: ErrorPart | Failure, error_class: ErrorClass) -> tuple[str, int]:
    """Returns `status` and the HTTP status; a `status` of this API that came is kept."""
    code = str(error.code)
    if code in OTHER_STATUSES and classify(None, code) == error_class:
        return code, status_of(error, error_class, OTHER_STATUSES[code])
    default = HTTP_STATUSES.get(error_class, CLASSES[error_class].status)
    return STATUS_NAMES[error_class], status_of(error, error_class, default)


def _parse_details(details: Json) -> list[GeminiErrorDetail]:
    """The details, if they have the shape of this API: a list. Unreadable ones are empty."""
    try:
        raw = msgspec.json.decode(details, type=list[Raw]) if details else []
    except (ValueError, RecursionError):
        return []
    parsed = []
    for detail in raw:
        try:
            parsed.append(msgspec.json.decode(detail, type=GeminiErrorDetail))
        except (ValueError, RecursionError):
            parsed.append(GeminiErrorDetail())
    return parsed
