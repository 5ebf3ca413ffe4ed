"""Errors of Chat Completions: bodies both ways, and what a stream tells of one."""

import msgspec
from msgspec import UNSET, UnsetType

from weft.assembler import Failure
from weft.dialects import coded
from weft.dialects.coded import CODES, Error, read_error
from weft.dialects.faults import CLASSES, ErrorClass, class_of, code_of, extra_of
from weft.parts import ErrorPart

__all__ = ["Failed", "error_written", "read_error", "write_error"]

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


class Failed(msgspec.Struct):
    """An error, as an event or as a body."""

    error: Error
    usage: msgspec.Struct | UnsetType = UNSET


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    return coded.write_error(error, TYPES, CODES)


def error_written(error: ErrorPart | Failure, *, ours: bool) -> Error:
    """The error of a stream. A code is text here; one of this dialect stays as it was."""
    found, extra = class_of(error), extra_of(error)
    code, type = error.code, TYPES[found]
    if not isinstance(code, int) and not (ours and code):
        code = code_of(error, CLASSES[found].status, type, CODES, found)
    return Error(error.message, type, extra.param, code if ours or code is None else str(code))
