"""Reads and writes the error bodies of Responses.

Errors are written with the types of the specification. The original API's types are read as well.
"""

from weft.dialects import openai_errors
from weft.dialects.error_classes import CLASSES, ErrorClass
from weft.dialects.openai_errors import STATUSES, read_error
from weft.parts import ErrorPart

__all__ = ["STATUSES", "read_error", "render_error", "write_error"]

# Two of the five types of the specification (Open Responses, Errors). The original API, and an
# example in the specification, say `invalid_request_error`.
REQUEST, SERVER = "invalid_request", "server_error"

TYPES: dict[ErrorClass, str] = {
    **dict.fromkeys(CLASSES, REQUEST),
    "not-found": "not_found",
    "billing": "too_many_requests",
    "rate": "too_many_requests",
    "server": SERVER,
    "bad-upstream-answer": SERVER,
    "upstream-auth": SERVER,
    "overloaded": SERVER,
    "timeout": SERVER,
}
"""The `type` written for each class of error; `code` is more specific."""

# `invalid_prompt` is one of the codes that the original API lists for `response.error`.
CODES = openai_errors.OPENAI_CODES | {"invalid_prompt"}


def render_error(error: ErrorPart) -> openai_errors.OpenAIError:
    return openai_errors.render_error(error, TYPES, CODES)[1]


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body for an error."""
    return openai_errors.write_error(error, TYPES, CODES)
