"""Captures as an upstream: each is the response to every request for the model of its name."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from weft.captures import HttpHeads, decode_all
from weft.cases import dialect_of_capture
from weft.codec import encode_body
from weft.dialects import DialectName
from weft.trace import TIME_COMMENT

_EVENTS, _JSON = "text/event-stream", "application/json"


class TimedPiece(msgspec.Struct, frozen=True):
    """Bytes of a response, and the seconds to wait before them."""

    wait: float
    data: bytes


class ReplayedResponse(msgspec.Struct, frozen=True):
    """What a client gets."""

    status: int
    content_type: str
    pieces: Sequence[TimedPiece]


class ReplayedCapture:
    """One capture. Raises Unreadable if its bytes are no stream."""

    def __init__(self, name: str, raw: bytes, dialect: DialectName | None = None) -> None:
        self.name = name
        self.dialect: DialectName = dialect or dialect_of_capture(raw)
        heads = HttpHeads()
        pieces = heads.feed(raw) + heads.finish()
        self._body = b"".join(piece.data for piece in pieces if not piece.is_head)
        self._raw = raw
        self._status = heads.status or 200
        self._is_stream = self._body.lstrip()[:1] not in (b"{", b"[")

    def respond(self, *, stream: bool, pace: float) -> ReplayedResponse:
        """`pace`: how many times faster than it was recorded; 0: at once."""
        if not self._is_stream:
            return ReplayedResponse(self._status, _JSON, [TimedPiece(0.0, self._body)])
        if stream:
            return ReplayedResponse(self._status, _EVENTS, list(_timed(self._body, pace)))
        # A client that does not stream gets the response that the stream assembles to.
        response = decode_all(self._raw, self.dialect)[0].response
        body = bytes(encode_body(response, self.dialect))
        return ReplayedResponse(self._status, _JSON, [TimedPiece(0.0, body)])


def _timed(body: bytes, pace: float) -> Iterator[TimedPiece]:
    """The stream cut at the comments with times, which are left out."""
    marks = [(found.start(), found.end(), float(found[1])) for found in TIME_COMMENT.finditer(body)]
    first = marks[0][0] if marks else len(body)
    if body[:first].strip():
        yield TimedPiece(0.0, body[:first])
    now = 0.0
    for (_, end, t), (start, _, _) in pairwise([*marks, (len(body), 0, 0.0)]):
        wait = max(t - now, 0.0) / pace if pace else 0.0
        now = t
        yield TimedPiece(wait, body[end:start].lstrip(b"\r\n"))


class CaptureReplay:
    """Some captures. One that no model names is played in turn with the others of its dialect."""

    def __init__(self, captures: Sequence[ReplayedCapture], pace: float = 1.0) -> None:
        self._captures = captures
        self._pace = pace
        self._turn = 0

    @property
    def models(self) -> list[str]:
        return [one.name for one in self._captures]

    def respond(self, dialect: str, model: str, *, stream: bool) -> ReplayedResponse | None:
        """The response to a request; None if there is no capture of this dialect."""
        found = [one for one in self._captures if one.dialect == dialect]
        named = [one for one in found if one.name == model]
        if not found:
            return None
        if not named:
            named = [found[self._turn % len(found)]]
            self._turn += 1
        return named[0].respond(stream=stream, pace=self._pace)


def capture_name(path: Path) -> str:
    """The model that a capture is: its file name without its suffixes."""
    return re.sub(r"(\.[A-Za-z]{1,6})+$", "", path.name)
