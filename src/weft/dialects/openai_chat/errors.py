"""Error bodies of Chat Completions: `{"error": {message, type, param, code}}`, both ways."""

import msgspec
from msgspec import UNSET, UnsetType

from weft.assembler import Failure
from weft.dialects.faults import (
    CLASSES,
    ErrorClass,
    Extra,
    class_of,
    code_of,
    extra_of,
    read,
    seconds,
    status_of,
    told,
)
from weft.parts import ErrorPart

REQUEST, SERVER = "invalid_request_error", "server_error"

TYPES: dict[ErrorClass, str] = {
    **dict.fromkeys(CLASSES, REQUEST),
    "billing": "insufficient_quota",
    "rate": "rate_limit_error",
    "server": SERVER,
    "bad-upstream-answer": SERVER,
    "upstream-auth": SERVER,
    "overloaded": SERVER,
    "timeout": SERVER,
}
"""What `type` is written; the code says the rest."""

STATUSES: dict[ErrorClass, int] = {"billing": 429}
"""Where the wire's status is not the class's own: a spent quota is told from a rate by code."""

CODES = frozenset(
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
"""More codes that this wire has for a class: they stay. Words of other wires do not."""


class Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | int | None


class Failed(msgspec.Struct):
    """An error, as an event or as a body."""

    error: Error
    usage: msgspec.Struct | UnsetType = UNSET


def read_error(status: int | None, body: bytes, retry_after: str | None = None) -> ErrorPart:
    """Returns what an error body means, whatever it is: see `faults.told`."""
    said = told(body)
    code = said.type if said.code is None else said.code
    extra = Extra(
        type=said.type if said.code is not None else None,
        param=said.param,
        retry_after=seconds(retry_after),
        request_id=said.request_id,
    )
    return read(status, said, code, extra, said.code, said.type, said.word)


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    found, extra = class_of(error), extra_of(error)
    status = status_of(error, found, STATUSES.get(found, CLASSES[found].status))
    code = code_of(error, status, TYPES[found], CODES, found)
    failed = Error(error.message, TYPES[found], extra.param, code)
    return status, msgspec.json.encode(Failed(failed))


def error_written(error: ErrorPart | Failure, *, ours: bool) -> Error:
    """The error of a stream. A code is text here; one of this dialect stays as it was."""
    found, extra = class_of(error), extra_of(error)
    code, type = error.code, TYPES[found]
    if not isinstance(code, int) and not (ours and code):
        code = code_of(error, CLASSES[found].status, type, CODES, found)
    return Error(error.message, type, extra.param, code if ours or code is None else str(code))
