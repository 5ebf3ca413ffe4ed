"""Error bodies with a type and a code, `{"error": {message, type, param, code}}`, both ways.

Two wires share this shape; their words for the classes are their own.
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
"""Where the status is not the class's own: a spent quota is told from a rate by code."""

OPENAI_CODES = frozenset(
    {
        "billing_hard_limit_reached",
        "billing_not_active",
        "previous_response_not_found",
        "slow_down",
        "unsupported_country_region_territory",
        "unsupported_value",
        "truncated",
        "malformed",
        "empty",
        "too-large",
    }
)
"""More codes that these wires have for a class: they stay. Words of other wires do not."""


class OpenAIError(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | int | None


class OpenAIErrorBody(msgspec.Struct):
    """The body of an error."""

    error: OpenAIError


def read_error(status: int | None, body: bytes, retry_after: str | None = None) -> ErrorPart:
    """Returns what an error body means, whatever it is: see `error_classes.parse_error_body`."""
    said = parse_error_body(body)
    code = said.type if said.code is None else said.code
    extra = ErrorPartExtra(
        type=said.type if said.code is not None else None,
        param=said.param,
        retry_after=parse_retry_after(retry_after),
        request_id=said.request_id,
    )
    return build_error(status, said, code, extra, said.code, said.type, said.word)


def render_error(
    error: ErrorPart, types: dict[ErrorClass, str], codes: frozenset[str]
) -> tuple[int, OpenAIError]:
    """Returns the HTTP status and the error, with the types and codes of a dialect."""
    found, extra = class_of(error), extra_of(error)
    status = status_of(error, found, STATUSES.get(found, CLASSES[found].status))
    code = code_of(error, status, types[found], codes, found)
    return status, OpenAIError(error.message, types[found], extra.param, code)


def write_error(
    error: ErrorPart, types: dict[ErrorClass, str], codes: frozenset[str]
) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of an error, with the types and codes of a dialect."""
    status, rendered = render_error(error, types, codes)
    return status, msgspec.json.encode(OpenAIErrorBody(rendered))
