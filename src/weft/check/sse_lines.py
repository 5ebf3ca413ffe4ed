"""Checks the lines of a capture by the rules of server-sent events, which are in `sse.toml`."""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from weft.captures import CapturePiece
from weft.findings import Finding
from weft.sse import Frame

_BOM = b"\xef\xbb\xbf"
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # the bytes of a character in UTF-8 behind the first one
# WHATWG HTML, 9.2.6 "Interpreting an event stream": a field of any other name is ignored.
_NAMES = frozenset((b"data", b"event", b"id", b"retry"))
_JSON_STARTS = (b"{", b"[")
_LINE_ENDS = {b"\n": "LF", b"\r\n": "CRLF", b"\r": "CR"}


class Position(msgspec.Struct, frozen=True):
    """Where a finding is, as editors count: from 1. A line ends with LF; a column is a character,
    that is, a code point.
    """

    line: int = 1
    column: int = 1


class LineCounter:
    """Finds the line and the column of byte offsets, which must be asked for in order."""

    __slots__ = ("_column", "_first", "_line", "_offset", "_pieces", "_used")

    def __init__(self) -> None:
        # Offsets are asked for in order, so that pieces before the last one can be dropped.
        self._pieces: deque[bytes] = deque()
        self._used = 0  # bytes of the first piece, before that offset
        self._offset = 0  # the last one that was asked for
        self._line = 1
        self._column = 1
        self._first = b""

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        if len(self._first) < len(_BOM):
            self._first += data[: len(_BOM) - len(self._first)]

    def position(self, offset: int) -> Position:
        while self._offset < offset and self._pieces:
            piece = self._pieces[0]
            end = min(self._used + offset - self._offset, len(piece))
            self._count(piece[self._used : end])
            self._used = end
            if end == len(piece):
                self._pieces.popleft()
                self._used = 0
        # SARIF 2.1.0 and editors: a byte order mark is not part of the text.
        marked = self._line == 1 and offset > 0 and self._first == _BOM
        return Position(self._line, self._column - marked)

    def _count(self, passed: bytes) -> None:
        self._offset += len(passed)
        lines = passed.count(b"\n")
        if lines:
            self._line += lines
            self._column = 1
            passed = passed[passed.rindex(b"\n") + 1 :]
        # Of each character the first byte, which one piece has if it is cut in two.
        self._column += len(passed.translate(None, _CONTINUATIONS))


class _Violation(msgspec.Struct):
    """A rule that was broken: where first, and how often."""

    offset: int
    position: Position
    detail: str
    event: int = 0
    """The last event that begins before the line."""
    times: int = 1


LineFinding = tuple[Finding, Position]


class LineChecker:
    """Checks the lines of one capture, and reports where each rule was broken first."""

    def __init__(self) -> None:
        self._broken: dict[str, _Violation] = {}
        self._ends: dict[bytes, _Violation] = {}  # where each kind of line end came first
        self._counter = LineCounter()
        self._event = 0  # the last one that was read
        self._tail: list[bytes] = []  # pieces of an unfinished line
        self._offset = 0  # of that line
        self._is_first = True
        self._is_json = False
        self._events = 0
        self._last_id = b""
        self._fields: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, pieces: Iterable[CapturePiece], frames: Sequence[Frame]) -> None:
        """Reads the next pieces of a capture, and the frames that they completed."""
        # Lines are noted with the last event so far, and moved to the right one by `_locate`, when
        # the frames of these pieces are known.
        for piece in pieces:
            if not self._is_json:
                self._counter.feed(piece.data)
                if not piece.is_head:
                    self._read(piece)
                self._counter.position(self._offset)  # what is behind it need not be kept
        self._locate(frames)

    def _locate(self, frames: Sequence[Frame]) -> None:
        """Finds the last event that begins before each line that was noted."""
        if not frames:
            return
        for noted in (*self._broken.values(), *self._ends.values()):
            if frames[0].offset <= noted.offset:
                numbers = [frame.number for frame in frames if frame.offset <= noted.offset]
                noted.event = max(noted.event, *numbers)
        self._event = frames[-1].number

    def _read(self, piece: CapturePiece) -> None:
        if not self._tail:
            self._offset = piece.offset
        self._tail.append(piece.data)
        if b"\n" not in piece.data and b"\r" not in piece.data:
            return
        data = b"".join(self._tail)
        # bytes.splitlines knows LF, CR and CRLF, and no others: those of 9.2.5 "Parsing an event
        # stream".
        lines = self._without_mark(data).splitlines(keepends=True)
        # the last line may go on, if only with the LF of a CRLF
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        self._lines(lines)
        self._tail = [rest] if rest else []

    def _without_mark(self, data: bytes) -> bytes:
        # The standard strips one mark, at the very beginning.
        if self._is_first and data.startswith(_BOM):
            self._note("byte-order-mark", self._offset, "the stream begins with a byte order mark")
            self._offset += len(_BOM)
            data = data[len(_BOM) :]
        self._is_first = False
        return data

    def _lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            text = line.rstrip(b"\r\n")
            end = line[len(text) :]
            if end not in self._ends:
                position = self._counter.position(self._offset)
                self._ends[end] = _Violation(self._offset, position, "", self._event)
            if not text:
                self._blank(self._offset)
            elif not self._events and text.lstrip().startswith(_JSON_STARTS):
                # A body, perhaps behind comments. After the first event such a line is a field
                # that no reader knows.
                self._is_json = True
                return
            else:
                self._line(text, self._offset)
            self._offset += len(line)

    def _line(self, text: bytes, offset: int) -> None:
        name, _, value = text.partition(b":")
        if not name:  # a comment
            return
        if name not in _NAMES:
            shown = text[:40].decode("utf-8", "replace")
            self._note("field-unknown", offset, f"{shown!r}: every reader drops this line")
        elif name == b"data":
            # The standard strips one space; how many there are makes no difference to these rules.
            self._data.append(value.strip())
            if self._data[-1].startswith(b":"):
                self._note("data-comment", offset, "a comment as the data of an event")
        else:
            self._fields.append(name)
            # An id stays in force for all later events, as the standard has it.
            self._last_id = value.strip() if name == b"id" else self._last_id

    def _blank(self, offset: int) -> None:
        data, fields = self._data, self._fields
        # A blank line dispatches an event. Without data the standard dispatches none; with an empty
        # data line it does.
        if data and not any(data):
            self._note("data-empty", offset, "an event whose data is empty")
        elif len(data) > 1:
            self._note("data-lines-several", offset, f"an event on {len(data)} data lines")
        elif not data and fields:
            names = b", ".join(fields).decode()
            self._note("event-without-data", offset, f"an event of nothing but {names}")
        elif not data and self._last_id:
            self._note("comment-after-id", offset, "a blank line without data, after an id")
        self._events += bool(data)
        self._data, self._fields = [], []

    def _note(self, rule: str, offset: int, detail: str) -> None:
        known = self._broken.get(rule)
        if known is None:
            position = self._counter.position(offset)
            self._broken[rule] = _Violation(offset, position, detail, self._event)
        else:
            # Counted instead of listed: a defect of the framing is in every event.
            known.times += 1

    def finish(self, pieces: Iterable[CapturePiece], frames: Sequence[Frame]) -> list[LineFinding]:
        """Returns each broken rule once, at the event that the line belongs to or follows.

        The pieces and the frames are those that the end of the input leaves.
        """
        self.feed(pieces, ())
        if self._tail and not self._is_json:
            self._lines([self._without_mark(b"".join(self._tail))])
        self._locate(frames)
        ends = {} if self._is_json else {end: noted for end, noted in self._ends.items() if end}
        if len(ends) > 1:
            names = " and ".join(_LINE_ENDS[end] for end in ends)
            # Reported where the second kind of line end begins.
            last = max(ends.values(), key=lambda noted: noted.offset)
            last.detail = f"lines end with {names}"
            self._broken["line-ends-mixed"] = last
        elif ends and b"\n" not in ends:
            (name,) = (_LINE_ENDS[end] for end in ends)
            self._broken["line-ends-crlf"] = _Violation(0, Position(), f"lines end with {name}")
        return [
            (
                Finding(
                    rule,
                    one.event,
                    one.offset,
                    f"{one.detail} ({one.times} times)" if one.times > 1 else one.detail,
                ),
                one.position,
            )
            for rule, one in sorted(self._broken.items(), key=lambda row: row[1].offset)
        ]
