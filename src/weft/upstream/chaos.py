"""Upstreams that misbehave, each in its own way and in every dialect.

A misbehaviour is a name, what it does, and a function from the events of a good response to what is
sent instead. The good response is that of the built-in model.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from weft.dialects.base import Dialect
from weft.dialects.error_classes import ErrorClass, new_error
from weft.errors import InternalError

StreamEnding = Literal["close", "reset", "stall"]
"""close: the response ends in good order; reset: the connection breaks; stall: nothing follows, and
the connection stays open."""


@dataclass(frozen=True, slots=True)
class ChaoticStream:
    """What is sent instead of a good stream."""

    pieces: Sequence[bytes]
    ending: StreamEnding = "close"
    wait: float = 0.0
    """Seconds before each piece."""

    content_type: str = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    name: str
    does: str
    apply: Callable[[Sequence[bytes], Dialect], ChaoticStream]


def _half(events: Sequence[bytes]) -> list[bytes]:
    """About half of the events, but some content."""
    return list(events[: max(len(events) // 2, min(len(events) - 1, 4))])


def _spliced(events: Sequence[bytes], event: bytes) -> ChaoticStream:
    """The stream with another event in its middle."""
    first = _half(events)
    return ChaoticStream([*first, event, *events[len(first) :]])


def _cut_in_event(events: Sequence[bytes], dialect: Dialect) -> ChaoticStream:
    *whole, last = _half(events)
    return ChaoticStream([*whole, last[: len(last) // 2]])


def _byte_by_byte(events: Sequence[bytes], dialect: Dialect) -> ChaoticStream:
    raw = b"".join(events)
    return ChaoticStream([raw[at : at + 1] for at in range(len(raw))])


def _error_in_stream(events: Sequence[bytes], dialect: Dialect) -> ChaoticStream:
    if dialect.write_error is None:
        raise InternalError(f"{dialect.name} has streams only")
    body = dialect.write_error(new_error("overloaded", "the model is overloaded"))[1]
    return ChaoticStream([*_half(events), b"event: error\ndata: %b\n\n" % body])


def _replaced(old: bytes, new: bytes) -> Callable[[Sequence[bytes], Dialect], ChaoticStream]:
    return lambda events, dialect: ChaoticStream([one.replace(old, new) for one in events])


MISBEHAVIOURS: dict[str, Misbehaviour] = {
    one.name: one
    for one in (
        Misbehaviour("cut", "ends in the middle", lambda e, d: ChaoticStream(_half(e))),
        Misbehaviour("cut-in-event", "ends in the middle of an event", _cut_in_event),
        Misbehaviour(
            "reset", "the connection breaks", lambda e, d: ChaoticStream(_half(e), "reset")
        ),
        Misbehaviour(
            "stall", "stops, and stays connected", lambda e, d: ChaoticStream(_half(e), "stall")
        ),
        Misbehaviour("no-end", "leaves out the last event", lambda e, d: ChaoticStream(e[:-1])),
        Misbehaviour(
            "events-twice",
            "sends each event twice",
            lambda e, d: ChaoticStream([one for one in e for _ in range(2)]),
        ),
        Misbehaviour("crlf", "ends lines with CR LF", _replaced(b"\n", b"\r\n")),
        Misbehaviour("cr", "ends lines with CR", _replaced(b"\n", b"\r")),
        Misbehaviour("one-newline", "no blank line between events", _replaced(b"\n\n", b"\n")),
        Misbehaviour("no-space", "no space after data:", _replaced(b"data: ", b"data:")),
        Misbehaviour(
            "comments",
            "a comment before each event",
            lambda e, d: ChaoticStream([b": PROCESSING\n\n" + one for one in e]),
        ),
        Misbehaviour("byte-by-byte", "one byte at a time", _byte_by_byte),
        Misbehaviour(
            "garbage", "an event that is no JSON", lambda e, d: _spliced(e, b"data: {oops\n\n")
        ),
        Misbehaviour(
            "invalid-utf8",
            "an event with bytes that are not UTF-8",
            lambda e, d: _spliced(e, b'data: {"caf\xe9":1}\n\n'),
        ),
        Misbehaviour("error-in-stream", "reports an error in the middle", _error_in_stream),
        Misbehaviour("empty", "sends nothing", lambda e, d: ChaoticStream([])),
        Misbehaviour(
            "html",
            "sends a web page",
            lambda e, d: ChaoticStream(
                [b"<!doctype html><title>502 Bad Gateway</title>\n"], content_type="text/html"
            ),
        ),
        Misbehaviour("slow", "a second between events", lambda e, d: ChaoticStream(e, wait=1.0)),
        Misbehaviour("good", "does everything right", lambda e, d: ChaoticStream(e)),
    )
}
"""By name, which is the name of the model."""

ERRORS: dict[str, ErrorClass] = {
    "error-400": "bad-request",
    "error-401": "auth",
    "error-429": "rate",
    "error-500": "server",
    "error-529": "overloaded",
}
"""Models that answer with an error instead of a stream."""


def descriptions() -> Iterator[tuple[str, str]]:
    """Each model, and what it does."""
    for one in MISBEHAVIOURS.values():
        yield one.name, one.does
    for name in ERRORS:
        yield name, "answers with this status"
