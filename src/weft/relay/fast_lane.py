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

`FastLane` makes events. `DirectLane` also writes them to the client's connection, if that offers a
`DirectLine`: then an event runs through one function, from the upstream's bytes to the client's.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from weft.codec import Pipe
from weft.dialects.delta_templates import EventTemplate, FrameTemplate, unescape
from weft.parts import Delta, Part, ReasoningDelta, TextDelta, ToolParamsDelta
from weft.relay.direct_line import DirectLine
from weft.relay.recording import UpstreamRecorder
from weft.relay.rendering import Renderer
from weft.sse import Event, Frame, FrameReader, frame

_DATA = b"data: "
_json = msgspec.json.Encoder().encode
_BLOCK = 512
"""How many texts are kept one by one, at most."""

_is_plain = re.compile(rb'[^"\\\x00-\x1f]*+').fullmatch
_is_printable = re.compile(rb"[ !#-\[\]-~]++").fullmatch
"""Plain, ASCII, and not empty."""


_MAY_BE_ESCAPED = (b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""Line breaks of Unicode: some encoders escape them."""


def _count_characters(pieces: Sequence[bytes]) -> int | None:
    """Returns how many they have together; None if one of them is not valid by itself."""
    try:
        return sum([len(piece.decode()) for piece in pieces])
    except UnicodeDecodeError:
        return None


def _is_readable(text: bytes) -> bool:
    """Whether this is the text of a delta in any language that every encoder writes as it is."""
    if not text or not _is_plain(text) or _count_characters((text,)) is None:
        return False
    return not any(one in text for one in _MAY_BE_ESCAPED)


class FastLane:
    """Copies deltas of one item of one response, until an event takes the ordinary way."""

    __slots__ = ("_between", "_buffer", "_findings", "_frames", "_name_size", "_noted", "_template",
                 "after", "before", "before_padding", "events", "head", "is_fixed", "last",
                 "recorder", "room", "size", "texts")  # fmt: skip

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
        self.recorder = recorder
        self.room = 0
        """Bytes that may be copied before the response is over its limit; its reader sets it."""
        self.size = 0
        """Bytes that were copied and not settled."""
        self._noted = 0
        """How many of them the fold knows already."""
        self.texts: list[bytes] = []
        """Those of the events that were copied and not flushed, one for each."""
        # As nearly all servers write it. Anything else does not fit, and takes the ordinary way.
        name = b"event: %b\n" % template.event.encode() if template.event else b""
        self.head = name + _DATA
        fixed = template.fixed
        before, after, self.before_padding = fixed or (b"", b"", None)
        self.is_fixed = fixed is not None
        """Whether nothing differs between two events but their text, and padding after it if there
        is something before that. Then they look like this."""
        self.before, self.after = self.head + before, after + b"\n\n"
        self._between = self.after + self.before
        self._name_size = len(name)
        self.last = 0
        """The size of the last event."""
        self._frames = frames
        self._findings = pipe.findings
        self._buffer = pipe.guard.fold.buffer(last)
        self.events = events

    def copy(self, data: bytes) -> list[Event] | None:
        """Returns the client's events, if these bytes are deltas without escapes and nothing else.
        They must begin with an event."""
        # Few calls, on purpose: when streams are slow, what an event costs is how much code and
        # memory it touches. Everything that can wait is done by `settle`.
        before, after = self.before, self.after
        if not (self.is_fixed and data.startswith(before) and data.endswith(after)):
            return None
        if self.before_padding is not None:
            return None
        text = data[len(before) : -len(after)]
        pieces = [text]
        if b"\n" in text:  # several events, whose texts have no line breaks
            pieces = text.split(self._between)
            text = b"".join(pieces)
        # Without an escape, and each of them certainly valid and not empty.
        if not (_is_plain(text) and all(pieces)):
            return None
        length = len(text) if text.isascii() else _count_characters(pieces)
        if length is None:
            return None
        size = self.size + len(data)
        if size > self.room:
            return None
        self.size = size
        self.texts += pieces
        self.last = len(pieces[-1]) + len(self._between)
        if len(self.texts) >= _BLOCK:
            self.flush()
        if self.recorder is not None:
            self.recorder.read(data)
        if self.events.is_verbatim:
            pieces = data[len(self.head) : -2].split(b"\n\n" + self.head)
        return self.events.fill(pieces, length)

    def settle(self) -> int:
        """Tells the fold, the findings and the reader of frames about the events that were copied,
        and returns their size since the last call. Until then the response is incomplete."""
        size = self.size
        if size:
            self.flush()
            self.room -= size
            self.size = self._noted = 0
        return size

    def flush(self) -> None:
        """Tells them about the events since the last call."""
        texts = self.texts
        if texts:
            text, last = b"".join(texts).decode(), self.last - self._name_size
            self._note(text, len(texts), self.size - self._noted, last)
            texts.clear()
            self._noted = self.size

    def feed(self, data: bytes) -> tuple[list[Event], int]:
        """Returns the client's events, and how many of these bytes they stand for: with escapes,
        numbers, or more behind them. What follows must take the ordinary way."""
        template, head = self._template, self.head
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
            if self.events.is_verbatim:
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
        return self.events.fill(pieces, len(text)), at

    def _note(self, text: str, events: int, size: int, last: int) -> None:
        """So many events of this size had this text; `last` is the size of the last data line."""
        self._template.is_used = True
        self._buffer.add(text)
        self._findings.at, self._findings.offset = self._frames.skip(events, size, last)


_NEVER = b"\0"
"""No event begins like this."""


class DirectLane:
    """Takes the bytes of an upstream as they arrive. Events that fit the fast lane are written at
    once; all others take the ordinary way."""

    # In one small object, on purpose: with many streams, this is most of what an event has to fetch
    # from memory.
    __slots__ = ("_after", "_before", "_before_padding", "_counter", "_format", "_frame", "_head",
                 "_lane", "_lane_of", "_line", "_name", "_now", "_otherwise", "_start", "_stop",
                 "_try_store")  # fmt: skip

    def __init__(
        self,
        line: DirectLine,
        lane_of: Callable[[], FastLane | None],
        otherwise: Callable[[bytes], bool],
        try_store: Callable[[list[Event]], bool] | None,
        now: Callable[[], float],
    ) -> None:
        """`otherwise` is the ordinary way; `lane_of` returns the lane for what comes after it."""
        self._line = line
        self._lane_of = lane_of
        self._otherwise = otherwise
        self._try_store = try_store
        self._now = now
        self._lane: FastLane | None = None
        self._follow()

    def _follow(self) -> None:
        """Takes the lane that is open now."""
        lane = self._lane_of()
        if lane is self._lane:
            return
        self._lane, self._before = lane, _NEVER
        if lane is None or not lane.is_fixed or lane.events.format is None:
            return
        self._before, self._after = lane.before, lane.after
        self._before_padding = lane.before_padding
        self._head = len(lane.head)
        self._start, self._stop = len(lane.before), -len(lane.after)
        self._counter = lane.events.counter
        self._name = lane.events.name
        self._format = None if lane.events.is_verbatim else lane.events.format
        self._frame = frame(self._name, b"")[0]

    def take(self, data: bytes) -> bool:
        """Writes the event in these bytes. Returns False if somebody has to wait before more is
        read, or `otherwise` does."""
        lane, line = self._lane, self._line
        if lane is None or not (data.startswith(self._before) and data.endswith(self._after)):
            return self._take_otherwise(data)
        text = data[self._start : self._stop]
        if self._before_padding is not None:
            text, _, padding = text.partition(self._before_padding)
            if not padding.isalnum():  # or there is none
                return self._take_otherwise(data)
        size = lane.size + len(data)
        # A line break is not printable: several events are for FastLane.copy.
        if line.paused or size > lane.room or not (_is_printable(text) or _is_readable(text)):
            return self._take_otherwise(data)
        counter, number = self._counter, None
        if self._format is None:
            event = data[self._head : -2]
        elif counter is None:
            event = self._format % text
        else:
            number = counter.number
            event = self._format % (text, number)
        if self._try_store is not None and not self._try_store([Event(self._name, event, number)]):
            return self._take_otherwise(data)
        if counter is not None and number is not None:
            counter.number = number + 1
        lane.size, lane.last = size, len(data)
        lane.texts.append(text)
        if len(lane.texts) >= _BLOCK:
            lane.flush()
        if lane.recorder is not None:
            lane.recorder.read(data)
        # RFC 9112 (7.1): size in hex, data. The frame ends in a blank line.
        before = self._frame
        size = len(before) + len(event) + 2
        chunk = b"%x\r\n%b%b\n\n\r\n" % (size, before, event)
        line.send(chunk)
        line.events += 1
        line.size += size
        line.sent += len(chunk)
        line.last_activity = self._now()
        return not line.paused

    def _take_otherwise(self, data: bytes) -> bool:
        more = self._otherwise(data)
        self._follow()
        return more
