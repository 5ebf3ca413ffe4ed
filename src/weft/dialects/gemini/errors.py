"""Error bodies of generateContent: `{"error": {code, message, status, details}}`, both ways.

The status is a word of few; what it cannot say, and when to try again, stands in the details.
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
from weft.dialects.gemini import wire
from weft.parts import ErrorPart, Json

WORDS: dict[ErrorClass, str] = {
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
STATUSES: dict[ErrorClass, int] = {
    "billing": 429,
    "bad-upstream-answer": 500,
}
"""Where the wire's status is not the class's own."""

MORE: dict[str, int] = {
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "ALREADY_EXISTS": 409,
    "UNKNOWN": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
}
"""More words that this wire has for a class, with their status: they stay."""

TYPE = "type.googleapis.com/google.rpc."
"""Before the name of each detail."""


class Violation(msgspec.Struct, omit_defaults=True):
    field: str | None = None
    description: str | None = None


class Detail(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One detail of any type, of which three are understood."""

    type: str | None = msgspec.field(default=None, name="@type")
    reason: str | None = None
    domain: str | None = None
    retry_delay: str | None = None
    field_violations: list[Violation] | None = None


class Error(msgspec.Struct, omit_defaults=True):
    code: int
    message: str
    status: str
    details: Json = UNSET


class Failed(msgspec.Struct):
    error: Error


def read_error(status: int | None, body: bytes, retry_after: str | None = None) -> ErrorPart:
    """Returns what an error body means, whatever it is: see `faults.told`."""
    said = told(body)
    details = _details(said.details)
    delay = next((one.retry_delay for one in details if one.retry_delay), None)
    fields = [one.field for detail in details for one in detail.field_violations or ()]
    reasons = [one.reason for one in details]
    code = said.word or said.type or said.code
    extra = Extra(
        param=next(filter(None, fields), said.param),
        retry_after=seconds(retry_after) or seconds(delay),
        request_id=said.request_id,
        details=said.details,
    )
    return read(status, said, code, extra, *reasons, said.word, said.type, said.code)


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    found, extra = class_of(error), extra_of(error)
    word, status = _named(error, found)
    details = extra.details if _details(extra.details) else _written(found, status, word, extra)
    return status, msgspec.json.encode(Failed(Error(status, error.message, word, details)))


def error_written(error: ErrorPart | Failure) -> wire.GeminiError:
    """The error of a stream: its code is the status that the upstream answered with, if any."""
    word, status = _named(error, class_of(error))
    return wire.GeminiError(error.status or status, error.message, word)


def _named(error: ErrorPart | Failure, found: ErrorClass) -> tuple[str, int]:
    """The word for an error and its status: the word that came, if it is one of this wire."""
    own = str(error.code)
    if own in MORE and classify(None, own) == found:
        return own, status_of(error, found, MORE[own])
    return WORDS[found], status_of(error, found, STATUSES.get(found, CLASSES[found].status))


def _details(details: Json) -> list[Detail]:
    """The details that can be read, if this wire made them: they are a list."""
    try:
        raw = msgspec.json.decode(details, type=list[Raw]) if details else []
    except (ValueError, RecursionError):
        return []
    found = []
    for one in raw:
        try:
            found.append(msgspec.json.decode(one, type=Detail))
        except (ValueError, RecursionError):
            found.append(Detail())
    return found


def _written(found: ErrorClass, status: int, word: str, extra: Extra) -> Json:
    """What the status word leaves out: the reason, the field, the time to wait."""
    details = []
    code, wait = CLASSES[found].code, extra.retry_after
    if code is not None and classify(status, word) != found:
        details.append(Detail(TYPE + "ErrorInfo", reason=code.upper(), domain="weft"))
    if extra.param is not None:
        violations = [Violation(extra.param)]
        details.append(Detail(TYPE + "BadRequest", field_violations=violations))
    if isinstance(wait, int | float):
        details.append(Detail(TYPE + "RetryInfo", retry_delay=f"{wait:.9g}s"))
    return Raw(msgspec.json.encode(details)) if details else UNSET
