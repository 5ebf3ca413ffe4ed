"""Templates of the most common events: the previous one again, with another text.

A server writes all deltas of a text, of a reasoning or of the arguments of a call from one
template. After a frame that held such a delta and nothing else, the next one with the same bytes
around that string means the same, with another text. Two things may differ besides: the number of
the event, which is the next one, and padding that hides the length of the text. So a decoder that
has a `FrameTemplate` decodes only the string; and the relay's fast lane copies it, still escaped,
into the `EventTemplate` that an encoder offers. Every other frame (another id, a finish reason,
half a surrogate pair) is parsed in full.
"""

import re
from collections.abc import Callable, Sequence
from typing import Protocol, Self

import msgspec

from weft.parts import Delta
from weft.sse import Event, Frame

MAX_TEMPLATES = 8
"""How many templates of one response may be of no use: where all frames differ they save
nothing."""

Note = Callable[[str, bytes], bool]
"""Takes the text and the data of a frame that fits its template, for what a decoder remembers of
each frame. Returns False, and takes nothing, if the decoder must read the frame itself."""

_json = msgspec.json.Encoder().encode
_decode_string = msgspec.json.Decoder(str).decode

# A JSON string between its quotes. Possessive: it ends at the first quote that is not escaped, and
# there is no other way to read it.
_string_at = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+').match

# OpenAI adds it to each delta, so that packets tell nothing about the length of a token.
# capture: unknown-fields
_padding_in = re.compile(rb'("obfuscation": ?")[A-Za-z0-9]*+').search
_padding_at = re.compile(rb"[A-Za-z0-9]*+").match


Span = tuple[int, int, int]
"""Where a string starts and ends, between its quotes, and where the data ends that it is in."""


class FrameTemplate:
    """A frame that is one delta: the part that it becomes, its event name, and its data around the
    string: before it, up to its opening quote; after it, from the closing one; and, if `after` ends
    where padding begins, after that.
    """

    __slots__ = ("_around", "_number", "event", "id", "is_used", "kind", "note")

    def __init__(self, part: Delta, event: str, before: bytes, after: bytes) -> None:
        self.kind = part.__class__
        self.id = part.id
        self.event = event
        self._around = [before, after]
        padding = _padding_in(after)
        if padding is not None and _is_top_level(after[padding.end() :]):
            self._around[1:] = [after[: padding.end(1)], after[padding.end() :]]
        self.note: Note | None = None
        self.is_used = False
        """Whether a frame fitted."""
        self._number: tuple[int, bytes, int, bytes] | None = None
        """In which of `_around` the number of the event stands, what is before it, the number of
        the next frame, and what is behind it."""

    @classmethod
    def of(cls, frame: Frame, key: bytes, part: Delta) -> Self | None:
        """Returns the template of a frame with this delta under this key, or None if it is not
        certain which bytes are the delta: the key must occur once, and nothing around it may be
        escaped."""
        before, _, rest = frame.data.partition(key)
        colon = _colon(rest)
        value = colon + _json(part.delta)
        # Not equal if the server escapes other characters than msgspec does: no template then.
        if not rest.startswith(value) or frame.id is not None or frame.cut or frame.split:
            return None
        after = rest[len(value) :]
        # An escape could hide a quote, so that strings begin and end elsewhere than they seem to.
        if not after or key in after or b"\\" in before or b"\\" in after:
            return None
        return cls(part, frame.event, b'%b%b%b"' % (before, key, colon), b'"' + after)

    def count(self, key: bytes, number: int) -> bool:
        """The frame had this number under this key, and the next one has the next number. Returns
        False if it is not certain which bytes are the number."""
        found = [(at, bytes) for at, bytes in enumerate(self._around) if key in bytes]
        if len(found) != 1 or found[0][1].count(key) != 1:
            return False
        at, around = found[0]
        left, _, rest = around.partition(key)
        value = _colon(rest) + b"%d" % number
        right = rest[len(value) :]
        if not rest.startswith(value) or right[:1] not in (b",", b"}"):
            return False
        left += key + _colon(rest)
        self._number = (at, left, number + 1, right)
        self._around[at] = b"%b%d%b" % (left, number + 1, right)
        return True

    @property
    def fixed(self) -> tuple[bytes, bytes, bytes | None] | None:
        """The data before and after the string, if only that can differ, and the decoder remembers
        nothing of it. If there is padding as well, `after` is what follows that, and the last one
        what stands between string and padding."""
        if self.note is not None or self._number is not None:
            return None
        before, after, *padded = self._around
        return (before, padded[0], after) if padded else (before, after, None)

    def find(self, data: bytes, at: int) -> Span | None:
        """Returns where the string stands if the data of a frame from here on fits. Something else
        may follow it."""
        before, after, *padding = self._around
        if not data.startswith(before, at):
            return None
        start = at + len(before)
        found = _string_at(data, start)
        if found is None or not data.startswith(after, found.end()):
            return None
        stop = found.end() + len(after)
        for end in padding:
            padded = _padding_at(data, stop)
            if padded is None or not data.startswith(end, padded.end()):
                return None
            stop = padded.end() + len(end)
        return start, found.end(), stop

    def match(self, frame: Frame) -> str | None:
        """Returns the text of a frame that fits this template, possibly an empty one; None if the
        frame must be parsed in full."""
        data, around = frame.data, self._around
        if frame.event != self.event or frame.id is not None or frame.cut or frame.split:
            return None  # a frame that is not whole, or may be a replay
        if len(around) == 2:
            # What stands between the two is one string, or it cannot be decoded.
            before, after = around
            start, end = len(before), len(data) - len(after)
            if end < start or not data.startswith(before) or not data.endswith(after):
                return None
        else:
            found = self.find(data, 0)
            if found is None or found[2] != len(data):
                return None
            start, end, _ = found
        try:
            text = _decode_string(data[start - 1 : end + 1])
        except ValueError:
            return None
        if text:
            if self.note is None and self._number is None:
                self.is_used = True
            elif not self.take(text, data):
                return None
        return text

    def take(self, text: str, data: bytes) -> bool:
        """A frame fitted; its text is not empty. Returns False if the decoder must read it."""
        if self.note is not None and not self.note(text, data):
            return False
        if self._number is not None:
            at, left, number, right = self._number
            self._number = (at, left, number + 1, right)
            self._around[at] = b"%b%d%b" % (left, number + 1, right)
        self.is_used = True
        return True


def unescape(string: bytes) -> str:
    """Returns the text of a JSON string without its quotes. Raises ValueError if it is not valid,
    or has half a surrogate pair, which must be joined with the next delta."""
    return _decode_string(b'"%b"' % string)


def _is_top_level(rest: bytes) -> bool:
    """Whether what is left of an object, behind a string without its closing quote, closes no other
    one."""
    outside = b"".join(rest.split(b'"')[1::2])  # of strings: nothing is escaped here
    return outside.count(b"}") - outside.count(b"{") == 1 and b"]" not in outside


def _colon(rest: bytes) -> bytes:
    """What stands between a key and its value."""
    return b": " if rest.startswith(b": ") else b":"


class Counter(Protocol):
    """What numbers the events of a stream."""

    number: int
    """Of the next event."""


class EventTemplate:
    """An event with one delta: its name, and its data before and after the text."""

    __slots__ = ("_after", "_before", "_name", "counter")
    is_verbatim = False
    """Whether `fill` takes the data of the frames, and not their texts."""

    def __init__(
        self, name: str, before: bytes, after: bytes, counter: Counter | None = None
    ) -> None:
        """`counter` numbers the events, if they are numbered."""
        self._name = name
        self._before = before
        self._after = after
        self.counter = counter

    @property
    def name(self) -> str:
        return self._name

    @property
    def format(self) -> bytes | None:
        """The data of an event, to be filled in with a text that needs no escape, and with its
        number if there is a counter. None if there is no such event."""
        return as_format(self._before) + b"%b" + as_format(self._after)

    def fill(self, pieces: Sequence[bytes], length: int) -> list[Event]:
        """Returns the events with these texts, which are escaped as our encoders escape them.
        `length` is how many characters they have together."""
        name, before, after = self._name, self._before, self._after
        if len(pieces) == 1:  # nearly always
            return [Event(name, b"%b%b%b" % (before, pieces[0], after))]
        return [Event(name, b"%b%b%b" % (before, piece, after)) for piece in pieces]


class SilentTemplate(EventTemplate):
    """A delta that this wire has no event for."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", b"", b"")

    @property
    def format(self) -> bytes | None:
        return None

    def fill(self, pieces: Sequence[bytes], length: int) -> list[Event]:
        return []


def as_format(data: bytes) -> bytes:
    """What `%` turns into this data again."""
    return data.replace(b"%", b"%%")
