"""Responses to requests that the application never sees, in the dialect of their target."""

import http
from dataclasses import dataclass

from weft.dialects import DIALECTS, dialect_of
from weft.dialects.error_classes import ErrorClass, new_error
from weft.parts import ErrorPart


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The last response of a connection."""

    status: int
    message: str
    kind: ErrorClass = "bad-request"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def part(self) -> ErrorPart:
        return new_error(self.kind, self.message)


MALFORMED = ErrorResponse(400, "The request is not valid HTTP/1.1.")
SLOW_HEAD = ErrorResponse(408, "The request head did not arrive in time.")
SLOW_BODY = ErrorResponse(408, "The request body arrived too slowly.")
LONG_HEAD = ErrorResponse(431, "The request line and headers are too large.")
TOO_MANY_FIELDS = ErrorResponse(431, "The request has too many header fields.")
_RETRY_LATER = ((b"retry-after", b"1"),)
TOO_MANY_CONNECTIONS = ErrorResponse(
    503, "Too many connections; try again later.", "overloaded", _RETRY_LATER
)
SHUTTING_DOWN = ErrorResponse(
    503, "The server is shutting down; try again.", "overloaded", _RETRY_LATER
)

_CLOSE_HEADERS = ((b"content-type", b"application/json"), (b"connection", b"close"))


def render(error: ErrorResponse, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the whole HTTP response, with an error body of the dialect that the target names."""
    # The target may be cut or empty, and headers may not have come: then it is the default dialect.
    # latin-1 never fails.
    write = DIALECTS[dialect_of(target.decode("latin-1"), {})].write_error
    assert write is not None
    _, body = write(error.part)
    length = (b"content-length", b"%d" % len(body))
    phrase = http.HTTPStatus(error.status).phrase.encode()
    lines = [b"HTTP/1.1 %d %s" % (error.status, phrase)]
    lines += [b"%s: %s" % pair for pair in (*headers, *error.headers, *_CLOSE_HEADERS, length)]
    return b"\r\n".join([*lines, b"", body])


class StopParsing(Exception):
    """Raised in a callback of httptools to stop its parser."""

    def __init__(self, response: ErrorResponse) -> None:
        super().__init__(response.message)
        self.response = response
