"""Error bodies of Messages: `{"type": "error", "error": {type, message, details?}}`, both ways.

A type names the class, but not every class has one: the narrower word then goes where this wire
has its own narrower words, in `details.error_code`. Clients that do not know it read the type.
"""

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Failure
from weft.dialects.faults import (
    CLASSES,
    ErrorClass,
    Extra,
    class_of,
    classify,
    extra_of,
    read,
    seconds,
    status_of,
    told,
)
from weft.parts import ErrorPart, Json

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
    "upstream-auth": "api_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
}
STATUSES: dict[ErrorClass, int] = {"overloaded": 529}
"""Where the wire's status is not the class's own."""


class Details(msgspec.Struct):
    error_code: str | None = None


class Error(msgspec.Struct, omit_defaults=True):
    type: str
    message: str
    details: Json = UNSET


class Failed(msgspec.Struct, tag="error", tag_field="type"):
    error: Error
    request_id: str | None


def type_of(error: ErrorPart | Failure) -> str:
    """The type that an error of any dialect is written with."""
    return TYPES[class_of(error)]


def read_error(status: int | None, body: bytes, retry_after: str | None = None) -> ErrorPart:
    """Returns what an error body means, whatever it is: see `faults.told`."""
    said = told(body)
    cause = _cause(said.details)
    code = said.code if said.type is None else said.type
    extra = Extra(
        param=said.param,
        retry_after=seconds(retry_after),
        request_id=said.request_id,
        details=said.details,
    )
    return read(status, said, code, extra, cause, said.code, said.type, said.word)


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    found, extra = class_of(error), extra_of(error)
    status = status_of(error, found, STATUSES.get(found, CLASSES[found].status))
    failed = Error(TYPES[found], error.message, extra.details)
    if _cause(extra.details) is None:  # details of another wire, or none
        cause = extra.error_code
        if cause is None and classify(status, failed.type) != found:
            cause = CLASSES[found].code
        failed.details = Raw(msgspec.json.encode(Details(cause))) if cause else UNSET
    return status, msgspec.json.encode(Failed(failed, extra.request_id))


def _cause(details: Json) -> str | None:
    """The narrower word inside the details, if this wire made them."""
    try:
        return msgspec.json.decode(details, type=Details).error_code if details else None
    except (ValueError, RecursionError):
        return None
