"""What a client is told that goes no further than the door, in a shape that it understands."""

import http
from dataclasses import dataclass

from weft.dialects import DIALECTS, dialect_of
from weft.dialects.error_classes import ErrorClass, new_error


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client is told that goes no further."""

    status: int
    message: str
    kind: ErrorClass = "bad-request"
    headers: tuple[tuple[bytes, bytes], ...] = ()


MALFORMED = Refusal(400, "The request is not valid HTTP/1.1.")
SLOW_HEAD = Refusal(408, "The head of the request did not come in time.")
SLOW_BODY = Refusal(408, "The body of the request came too slowly.")
LONG_HEAD = Refusal(431, "The request line and headers are too large.")
MANY_FIELDS = Refusal(431, "The request has too many header fields.")
_LATER = ((b"retry-after", b"1"),)
CROWDED = Refusal(503, "Too many connections; try again later.", "overloaded", _LATER)
LEAVING = Refusal(503, "The server is shutting down; try again.", "overloaded", _LATER)

_CLOSING = ((b"content-type", b"application/json"), (b"connection", b"close"))


def answer(refusal: Refusal, target: bytes, more: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the whole HTTP answer, in the error shape of the dialect that the target names."""
    write = DIALECTS[dialect_of(target.decode("latin-1"), {})].write_error
    assert write is not None
    _, body = write(new_error(refusal.kind, refusal.message))
    length = (b"content-length", b"%d" % len(body))
    phrase = http.HTTPStatus(refusal.status).phrase.encode()
    lines = [b"HTTP/1.1 %d %s" % (refusal.status, phrase)]
    lines += [b"%s: %s" % pair for pair in (*more, *refusal.headers, *_CLOSING, length)]
    return b"\r\n".join([*lines, b"", body])


class TurnedAway(Exception):
    """Raised inside a callback of the parser, which then stops."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
