"""What is known of a request that has no run: refused, or about something stored."""

import time
from contextvars import ContextVar

import msgspec

from weft.parts import ErrorPart

CLIENT_GONE = 499
"""nginx's status of a request whose client left before there was a response."""


class AccessRecord(msgspec.Struct, gc=False):
    """One HTTP request, or one WebSocket. Of a request that the application never saw, the id is
    empty, and so are method and path if they had not arrived."""

    id: str
    method: str
    path: str
    caller: str = ""
    status: int = CLIENT_GONE
    error: ErrorPart | None = None
    """Why it was refused, or failed."""

    started: float = msgspec.field(default_factory=time.time)


ACCESS: ContextVar[AccessRecord | None] = ContextVar("ACCESS", default=None)
"""The request that this task answers. A variable of the task, since what sends a response knows
neither the request nor the gateway."""


def note_response(status: int, error: ErrorPart | None = None) -> None:
    """Records the status of the response, and its error."""
    record = ACCESS.get()
    if record is not None:
        record.status = status
        record.error = error or record.error
