"""Errors of Chat Completions: bodies both ways, and the error event of a stream."""

import msgspec
from msgspec import UNSET, UnsetType

from weft.assembler import Failure
from weft.dialects import openai_errors
from weft.dialects.error_classes import CLASSES, ErrorClass, class_of, code_of, extra_of
from weft.dialects.openai_errors import OPENAI_CODES, OpenAIError
from weft.parts import ErrorPart

ERROR_TYPES: dict[ErrorClass, str] = {
    **dict.fromkeys(CLASSES, "invalid_request_error"),
    # OpenAI answers 429 to a spent quota and to a rate limit: the type tells them apart.
    "billing": "insufficient_quota",
    "rate": "rate_limit_error",
    "server": "server_error",
    "bad-upstream-answer": "server_error",
    # The client's own key is fine: clients treat an authentication error as theirs.
    "upstream-auth": "server_error",
    "overloaded": "server_error",
    "timeout": "server_error",
}
"""The `type` of each class of errors; `code` is more specific."""


class ChatErrorBody(msgspec.Struct):
    """An error, as an event or as a body."""

    error: OpenAIError
    usage: msgspec.Struct | UnsetType = UNSET


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    return openai_errors.write_error(error, ERROR_TYPES, OPENAI_CODES)


def render_error(error: ErrorPart | Failure, *, same_dialect: bool) -> OpenAIError:
    """Returns the error of a stream. An error that came in this dialect keeps its code; the code
    of any other becomes one that this dialect has, as a string."""
    error_class, extra = class_of(error), extra_of(error)
    code, type = error.code, ERROR_TYPES[error_class]
    # Numbers are HTTP statuses that a router sends in place of a code: they pass.
    if not isinstance(code, int) and not (same_dialect and code):
        code = code_of(error, CLASSES[error_class].status, type, OPENAI_CODES, error_class)
    if not same_dialect and code is not None:
        code = str(code)
    return OpenAIError(error.message, type, extra.param, code)
