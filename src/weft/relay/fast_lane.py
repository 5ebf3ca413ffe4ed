"""A fast lane for plain deltas: the text of an upstream's event is copied into the client's.

Nearly all events of a stream are one delta that differs from the one before only in its text. The
decoder offers the template of such an event, the encoder that of the event it becomes. As long as
events fit, the JSON string between both ends of the one is copied, still escaped, between both ends
of the other, and nothing else runs: no parser, no parts, no guard. The fold gets the text, and all
counters are what they would be.

The law (`tests/test_relay_fast_lane.py`): with the lane and without it, every byte, every finding
and the fold are the same. So an event that is not certainly the same takes the ordinary way, and so
does everything behind it in the same read: an empty text, half a character, invalid UTF-8, several
lines, half an event.
"""

import re
from collections.abc import Sequence

import msgspec

from weft.codec import Pipe
from weft.dialects.delta_templates import EventTemplate, FrameTemplate, unescape
from weft.parts import Delta, Part, ReasoningDelta, TextDelta, ToolParamsDelta
from weft.relay.recording import UpstreamRecorder
from weft.relay.rendering import Renderer
from weft.sse import Event, Frame, FrameReader

_DATA = b"data: "
_json = msgspec.json.Encoder().encode
_BLOCK = 512
"""How many texts are kept one by one, at most."""

_is_plain = re.compile(rb'[^"\\\x00-\x1f]*+').fullmatch


class FastLane:
    """Copies deltas of one item of one response, until an event takes the ordinary way."""

    __slots__ = ("_after", "_before", "_between", "_buffer", "_count", "_events", "_findings",
                 "_frames", "_head", "_is_fixed", "_last", "_line", "_noted", "_recorder",
                 "_template", "_texts", "room", "size")  # fmt: skip

    @classmethod
    def open(
        cls, frame: Frame, parts: Sequence[Part], frames: FrameReader, pipe: Pipe,
        renderer: Renderer, recorder: UpstreamRecorder | None,
    ) -> "FastLane | None":  # fmt: skip
        """Returns the lane for events like this frame, the last one, which had these parts."""
        template, last = pipe.template, parts[-1] if parts else None
        if template is None or not isinstance(last, TextDelta | ReasoningDelta | ToolParamsDelta):
            return None
        events = renderer.delta_template(frame, last)
        if events is None:
            return None
        return cls(template, last, frames, pipe, events, recorder)

    def __init__(
        self,
        template: FrameTemplate,
        last: Delta,
        frames: FrameReader,
        pipe: Pipe,
        events: EventTemplate,
        recorder: UpstreamRecorder | None,
    ) -> None:
        self._template = template
        self._recorder = recorder
        self.room = 0
        """Bytes that may be copied before the response is over its limit; its reader sets it."""
        self.size = 0
        """Bytes that were copied and not settled."""
        self._noted = 0
        """How many of them the fold knows already."""
        self._texts: list[bytes] = []
        self._count = 0
        """How many events they are."""
        self._last = 0
        """The size of the last one, from its data line on."""
        # As nearly all servers write it. Anything else does not fit, and takes the ordinary way.
        name = b"event: %b\n" % template.event.encode() if template.event else b""
        self._head = name + _DATA
        before, after = template.fixed or (b"", b"")
        self._is_fixed = template.fixed is not None
        """Whether nothing differs between two events but their text. Then they look like this."""
        self._before, self._after = self._head + before, after + b"\n\n"
        self._between = self._after + self._before
        self._line = len(self._between) - len(name)
        """The size of the data line of an event, and of the blank one, without its text."""
        self._frames = frames
        self._findings = pipe.findings
        self._buffer = pipe.guard.fold.buffer(last)
        self._events = events

    def copy(self, data: bytes) -> list[Event] | None:
        """Returns the client's events, if these bytes are deltas in plain ASCII and nothing else.
        They must begin with an event."""
        # Few calls, on purpose: when streams are slow, what an event costs is how much code and
        # memory it touches. Everything that can wait is done by `settle`.
        before, after = self._before, self._after
        if not (self._is_fixed and data.startswith(before) and data.endswith(after)):
            return None
        text = data[len(before) : -len(after)]
        pieces = [text]
        if b"\n" in text:  # several events, whose texts have no line breaks
            pieces = text.split(self._between)
            text = b"".join(pieces)
        # Without an escape, and each of them certainly valid and not empty.
        if not (text.isascii() and _is_plain(text) and all(pieces)):
            return None
        size = self.size + len(data)
        if size > self.room:
            return None
        self.size = size
        self._texts.append(text)
        self._count += len(pieces)
        self._last = len(pieces[-1]) + self._line
        if len(self._texts) == _BLOCK:
            self._flush()
        if self._recorder is not None:
            self._recorder.read(data)
        if self._events.is_verbatim:
            pieces = data[len(self._head) : -2].split(b"\n\n" + self._head)
        return self._events.fill(pieces, len(text))

    def settle(self) -> int:
        """Tells the fold, the findings and the reader of frames about the events that were copied,
        and returns their size since the last call. Until then the response is incomplete."""
        size = self.size
        if size:
            self._flush()
            self.room -= size
            self.size = self._noted = 0
        return size

    def _flush(self) -> None:
        if self._texts:
            text, size = b"".join(self._texts).decode(), self.size - self._noted
            self._note(text, self._count, size, self._last)
            self._texts.clear()
            self._noted, self._count = self.size, 0

    def feed(self, data: bytes) -> tuple[list[Event], int]:
        """Returns the client's events, and how many of these bytes they stand for: with escapes,
        numbers, or more behind them. What follows must take the ordinary way."""
        template, head = self._template, self._head
        pieces: list[bytes] = []
        texts: list[str] = []
        last = at = 0
        while data.startswith(head, at):
            begin = at + len(head)
            found = template.find(data, begin)
            if found is None:
                break
            start, end, stop = found
            if start == end or not data.startswith(b"\n\n", stop):
                break
            piece = data[start:end]
            try:
                text = unescape(piece) if b"\\" in piece else piece.decode()
            except ValueError:
                break
            if not template.take(text, data[begin:stop]):
                break
            if self._events.is_verbatim:
                piece = data[begin:stop]
            elif b"\\" in piece:
                piece = _json(text)[1:-1]  # servers also escape what need not be
            pieces.append(piece)
            texts.append(text)
            last, at = begin - len(_DATA), stop + 2
        if not pieces:
            return [], 0
        text = "".join(texts)
        self._note(text, len(pieces), at, at - last)
        return self._events.fill(pieces, len(text)), at

    def _note(self, text: str, events: int, size: int, last: int) -> None:
        """So many events of this size had this text; `last` is the size of the last data line."""
        self._template.is_used = True
        self._buffer.add(text)
        self._findings.at, self._findings.offset = self._frames.skip(events, size, last)
