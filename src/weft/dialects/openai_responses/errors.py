"""Error bodies of Responses, both ways.

The types that are written are those of the specification; both spellings are read.
"""

from weft.dialects import coded
from weft.dialects.coded import STATUSES, read_error
from weft.dialects.faults import CLASSES, ErrorClass
from weft.parts import ErrorPart

__all__ = ["STATUSES", "read_error", "write_error"]

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
"""What `type` is written; the code says the rest."""

CODES = coded.CODES | {"invalid_prompt"}


def write_error(error: ErrorPart) -> tuple[int, bytes]:
    """Returns the HTTP status and the body of any error."""
    return coded.write_error(error, TYPES, CODES)
