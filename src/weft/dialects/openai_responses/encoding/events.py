"""The events of one response, as they are written."""

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import msgspec
from msgspec import Raw

from weft import large_json
from weft.dialects.delta_templates import EventTemplate, as_format
from weft.sse import Event

T = TypeVar("T")

_json = msgspec.json.Encoder().encode


class DeltaPrefix(msgspec.Struct, frozen=True):
    """A delta event up to its delta."""

    type: str
    data: bytes


SentEvents = frozenset[tuple[str, int, int]]
"""Events that a client received before: their type, output index and part index."""

NO_ITEM = (-1, -1)
"""The position of an event that is not about an item."""


class EventWriter(msgspec.Struct, eq=False):
    """Appends the events of one response to `out`, numbered from 0."""

    discards: ClassVar[bool] = False

    number: int = 0
    out: list[Event] = []
    sent: SentEvents = frozenset()
    """Events that the client received by passthrough and that are not written again."""

    def write(
        self, type: str, position: tuple[int, int], *body: bytes, snapshot: bytes | None = None
    ) -> None:
        """Writes one event about the item and the part at `position`. The body may be large, so it
        is joined only once. `snapshot` is the response object in the body, if it has one.
        """
        # Only after passthrough. Deltas are not looked up: they are never repeated.
        if self.sent and (type, *position) in self.sent:
            return
        number = self.number
        self.number = number + 1
        # Joined by hand: all but a few numbers is constant, and the body is often prepared or raw.
        head = b'{"type":"%b","sequence_number":%d,' % (type.encode(), number)
        # Raw JSON may contain newlines, at which a data line ends (WHATWG HTML 9.2.6). Several data
        # lines are legal, but the reader of the compliance suite keeps only the last.
        for piece in body:
            if b"\n" in piece or b"\r" in piece:
                body = (msgspec.json.format(b"{%b}" % b"".join(body), indent=-1)[1:-1],)
                break
        self.out.append(Event(type, b"".join((head, *body, b"}")), number, snapshot))

    def write_value(
        self, type: str, position: tuple[int, int], *before: bytes, value: T, short: bool = False
    ) -> T | Raw:
        """Writes one event whose last field is this value. Returns what is to be kept for the
        events that repeat it: its JSON, or the value itself if it has a long string. `short`: it
        certainly has none.
        """
        # Of a long string only one copy may exist at a time, so each event encodes it anew.
        pieces = [_json(value)] if short else large_json.pieces(value)
        self.write(type, position, *before, *pieces)
        return Raw(pieces[0]) if len(pieces) == 1 else value

    def delta(self, prefix: DeltaPrefix, delta: str) -> None:
        """Writes a delta event with a prepared prefix (see `delta_prefix`)."""
        number = self.number
        self.number = number + 1
        # A delta may be as large as an answer, if the upstream does not stream. It is encoded in
        # slices, so that other threads get their turn.
        if len(delta) > large_json.SLICE:
            end = b',"sequence_number":%d}' % number
            data = b"".join((prefix.data, *large_json.pieces(delta), end))
        else:
            # The number stands last, so that everything before the delta is one constant for the
            # whole part.
            data = b'%b%b,"sequence_number":%d}' % (prefix.data, _json(delta), number)
        self.out.append(Event(prefix.type, data, number))

    def delta_template(self, prefix: DeltaPrefix) -> EventTemplate | None:
        """What `delta` writes."""
        return NumberedTemplate(self, prefix)

    def ping(self) -> Event:
        # It has a number of the stream, like every event of the specification.
        number = self.number
        self.number = number + 1
        return Event("ping", b'{"type":"ping","sequence_number":%d}' % number, number)


class NumberedTemplate(EventTemplate):
    """A delta event, numbered by its writer."""

    __slots__ = ("_writer",)

    def __init__(self, writer: EventWriter, prefix: DeltaPrefix) -> None:
        super().__init__(prefix.type, prefix.data + b'"', b'","sequence_number":', writer)
        self._writer = writer

    @property
    def format(self) -> bytes | None:
        return b"%b%%b%b%%d}" % (as_format(self._before), as_format(self._after))

    def fill(self, pieces: Sequence[bytes], length: int) -> list[Event]:
        name, before, after, writer = self._name, self._before, self._after, self._writer
        number = writer.number
        writer.number = number + len(pieces)
        if len(pieces) == 1:  # nearly always
            return [Event(name, b"%b%b%b%d}" % (before, pieces[0], after, number), number)]
        return [
            Event(name, b"%b%b%b%d}" % (before, piece, after, number), number)
            for number, piece in enumerate(pieces, number)
        ]


class NullEventWriter(EventWriter):
    """Discards all events, for a response that is returned as a body."""

    discards = True

    def write(
        self, type: str, position: tuple[int, int], *body: bytes, snapshot: bytes | None = None
    ) -> None:
        pass

    def write_value(
        self, type: str, position: tuple[int, int], *before: bytes, value: T, short: bool = False
    ) -> T | Raw:
        return value

    def delta(self, prefix: DeltaPrefix, delta: str) -> None:
        pass

    def delta_template(self, prefix: DeltaPrefix) -> EventTemplate | None:
        return None


def delta_prefix(type: str, locator: bytes) -> DeltaPrefix:
    return DeltaPrefix(type, b'{"type":"%b",%b,"delta":' % (type.encode(), locator))
