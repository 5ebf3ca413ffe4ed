"""Error bodies with a type and a code, `{"error": {message, type, param, code}}`, both ways.

Two dialects share this shape; each has its own types for the classes.
"""

import msgspec

from weft.dialects.error_classes import (
    CLASSES,
    ErrorClass,
    ErrorPartExtra,
    build_error,
    class_of,
    code_of,
    extra_of,
    parse_error_body,
    parse_retry_after,
    status_of,
)
from weft.parts import ErrorPart

STATUSES: dict[ErrorClass, int] = {"billing": 429}
"""Statuses that are not the class's own: code and type separate a spent quota from a rate limit."""

OPENAI_CODES = frozenset(
    {
        # Codes of OpenAI
        "billing_hard_limit_reached",
        "billing_not_active",
        "previous_response_not_found",
        "slow_down",
        "unsupported_country_region_territory",
        "unsupported_value",
        # Codes of Weft, for what is wrong with the answer of an upstream
        "truncated",
        "malformed",
        "empty",
        "too-large",
    }
)
"""Codes of these dialects that are written as they came. Codes of other dialects are not."""


# All four keys are always there, null if need be: typed clients require them.
class OpenAIError(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | int | None


class OpenAIErrorBody(msgspec.Struct):
    """The body of an error."""

    error: OpenAIError


def read_error(status: int | None, body: bytes, retry_after: str | None = None) -> ErrorPart:
    """Parses any error body; see `error_classes.parse_error_body`."""
    parsed = parse_error_body(body)
    # Compatible hosts fill one of the two.
    code = parsed.type if parsed.code is None else parsed.code
    extra = ErrorPartExtra(
        type=parsed.type if parsed.code is not None else None,
        param=parsed.param,
        retry_after=parse_retry_after(retry_after),
        request_id=parsed.request_id,
    )
    return build_error(status, parsed, code, extra, parsed.code, parsed.type, parsed.word)


def render_error(
    error: ErrorPart, types: dict[ErrorClass, str], codes: frozenset[str]
) -> tuple[int, OpenAIError]:
    """Returns the HTTP status and the error, with the types and codes of a dialect."""
    found, extra = class_of(error), extra_of(error)
    # The class decides, not the status that came: the same error has other statuses elsewhere.
    status = status_of(error, found, STATUSES.get(found, CLASSES[found].status))
    code = code_of(error, status, types[found], codes, found)
    return status, OpenAIError(error.message, types[found], extra.param, code)


def write_error(
    error: ErrorPart, types: dict[ErrorClass, str], codes: frozenset[str]
) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of an error, with the types and codes of a dialect."""
    status, rendered = render_error(error, types, codes)
    return status, msgspec.json.encode(OpenAIErrorBody(rendered))
