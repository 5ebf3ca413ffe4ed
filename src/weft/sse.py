"""Frames: bytes in, events out, and events back into bytes.

Three forms are read, told apart by looking at the bytes: server-sent events, one JSON value a
line, and one JSON body. The rules are those of WHATWG HTML, "9.2.5 Parsing an event stream" and
"9.2.6 Interpreting an event stream", made laxer where servers need it; each with the rows of the
catalogue (`tests/captures/catalogue.py`) that it serves:

- A line ends at LF, CR or CRLF, mixed at will; a CR ends its line at once (Q06, Q07).
- One space after the colon is dropped, none is required; data is trimmed (Q05, Q18).
- An event is dispatched at a blank line if it has data (Q01, Q03, Q04), and at the end of the
  input even without one: it is then marked `cut` (Q08).
- Several data lines are one JSON value, or else one event each (Q09, Q10).
- Data that starts with a colon is a comment that a proxy wrapped (Q02).
- `error:` is a field here, although the standard ignores it (Q113). An `id:` belongs to its own
  event and to no later one: it tells a replay from an equal event.
- Bytes are never decoded before an event is whole (Q13, Q14); invalid UTF-8 is for the reader
  of the frame to replace and to report.
"""

import re
from collections.abc import Sequence
from enum import Enum

import msgspec

from weft.errors import TooLarge
from weft.large_json import is_json, trimmed
from weft.partial_json import Scan

MAX_EVENT = 64 * 1024 * 1024
"""Bytes of one event, and so of one line, unless the caller says otherwise. A legal event may be as
large as its answer: the last snapshot of a Responses stream repeats all of it, an image in a Gemini
stream is one line. So there is no smaller limit for lines."""
DONE = b"[DONE]"

# 9.2.5: one byte order mark at the start of the stream is not part of it.
# capture: retry-id-and-byte-order-mark
_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = b"\r\n"
_BLANK_LINES = frozenset((b"\n", b"\r\n", b"\r"))
# A terminator right behind the closing brace of a body. It is searched for only where it can stand:
# in a body of megabytes, a search of all of it would hold the interpreter.
_GLUED = re.compile(rb"(?<=\})data: ?\[DONE\]\s*\Z")
_GLUED_SIZE = len(b"data: [DONE]")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event as it stood on the wire, not yet understood."""

    data: bytes
    event: str = ""
    id: str | None = None
    number: int = 0
    """Counted from 0 over the whole input."""
    offset: int = 0
    """Of its first byte in the whole input."""
    cut: bool = False
    """The input ended before the event did."""
    split: bool = False
    """One of several data lines of one event that turned out to be events of their own."""
    bare: bool = False
    """A JSON value by itself, and not the data of a server-sent event."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event on its way out. It is a value until a writer at the edge frames it."""

    name: str
    """Empty: the wire has no names, and the frame has no `event:` line."""
    data: bytes
    number: int | None = None
    """The number that the data tells, on a wire that numbers its events."""
    snapshot: bytes | None = None
    """The response object that the data tells, on a wire whose events tell it."""


def replace_data(frame: Frame, data: bytes) -> Frame:
    """Returns the frame with other data, or the same one."""
    return frame if data is frame.data else msgspec.structs.replace(frame, data=data)


class _Form(Enum):
    UNKNOWN = "unknown"  # until the first line that is not blank
    EVENTS = "events"  # becomes JSON where a bare object stands between events
    JSON = "json"  # becomes EVENTS behind a whole value, as in a body and then `data: [DONE]`
    DEAD = "dead"  # something was over the limit: nothing more is read


class FrameReader:
    """Turns bytes in any pieces into frames. Where they are cut changes nothing."""

    def __init__(self, *, limit: int = MAX_EVENT) -> None:
        """`limit`: the bytes of a line, and of an event, that are read at most."""
        self._limit = limit
        self._form = _Form.UNKNOWN
        self._failure: TooLarge | None = None
        self._number = 0
        self._offset = 0  # of the line being read
        self._after_cr = False
        self._tail: list[bytes] = []  # pieces of the unfinished line
        self._tail_size = 0
        self._data: list[bytes] = []  # of the event being read
        self._size = 0
        self._start = 0
        self._event = ""
        self._id: str | None = None
        self._scan: Scan  # of the JSON value being read
        self.fresh = False
        """Whether the next byte begins an event."""

    @property
    def pending(self) -> int:
        """Bytes of the event that is being read."""
        return self._tail_size + self._size

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that these bytes complete.

        Raises TooLarge once a line or an event is over the limit, after all frames before it
        were returned.
        """
        out: list[Frame] = []
        is_first = self._form is _Form.UNKNOWN and not (self._offset or self._tail)
        if is_first and data.startswith((b"data:", b"event:")):
            # The usual beginnings of a stream: nothing but server-sent events begins so.
            self._form, self.fresh = _Form.EVENTS, True
        # The usual read: the last event is over, and lines end in LF. Splitting such a read at its
        # blank lines takes about a quarter less time per event than going line by line.
        if self.fresh and b"\r" not in data:
            data = self._plain(data, out)
            if not data:
                return out
        if self._form is _Form.DEAD:
            return self._fail(out)
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":  # the second half of a CRLF that was cut in two
                self._offset += 1
                data = data[1:]
        # bytes.splitlines ends a line at LF, CR and CRLF, exactly as 9.2.5 has it. str.splitlines
        # would also cut at U+2028 and others, which JSON strings may contain as they are.
        lines = data.splitlines(keepends=True)
        rest = b""
        if lines and lines[-1][-1:] not in (b"\n", b"\r"):
            rest = lines.pop()
        elif data[-1:] == b"\r":
            # A CR ends its line at once. Waiting for an LF behind it would hold back the last event
            # of a stream with CR line ends until more bytes come.
            # capture: cr-line-ends, mixed-line-ends
            self._after_cr = True
        try:
            if lines and self._tail:
                lines[0] = self._tail_with(lines[0])
            self._lines(lines, out)
            if rest:
                self._tail.append(rest)
                self._tail_size += len(rest)
                if self._tail_size > self._limit:
                    raise self._too_large("line")
        except TooLarge as failure:
            # The frames before it are returned first, and the failure is raised by the next call:
            # an exception now would take them with it.
            self._failure, self._form = failure, _Form.DEAD
            self.fresh = False
            return self._fail(out)
        self.fresh = not (self._tail or self._after_cr) and self._between_events()
        return out

    def _plain(self, data: bytes, out: list[Frame]) -> bytes:
        """Takes whole events of one data line each, perhaps with a name before it, as nearly all
        are, as long as there are; returns the rest.
        """
        number, offset, longest = self._number, self._offset, self._limit
        begin = offset
        events = data.split(b"\n\n")
        rest = events.pop()
        for event in events:
            name, line, start = "", event, offset
            if event[:6] == b"event:":
                head, _, line = event.partition(b"\n")
                start += len(head) + 1
                name = _event_name(head[6:].removeprefix(b" "))
            if line[:5] != b"data:" or b"\n" in line or len(event) >= longest:
                # An id, a comment, several lines, or a size near the limit: from here on line by
                # line.
                rest = data[offset - begin :]
                break
            value = line[5:].strip()
            # Heartbeats of a proxy: `data:` without data, and a comment that it wrapped as data.
            # capture: empty-data-heartbeats, comment-wrapped-as-data
            if value and value[:1] != b":":
                out.append(Frame(value, name, None, number, start))
                number += 1
            offset += len(event) + 2
        self._number = number
        self._offset = offset
        return rest

    def skip(self, count: int, size: int, last: int) -> tuple[int, int]:
        """Counts whole events of this size that were read elsewhere. Returns the number and the
        offset of the last one, whose size from its data line on is `last`."""
        self._number += count
        self._offset += size
        return self._number - 1, self._offset - last

    def finish(self) -> list[Frame]:
        """Returns what the end of the input leaves: an unterminated event, marked `cut`."""
        out: list[Frame] = []
        if self._form is _Form.DEAD:
            return self._fail(out)
        try:
            # 9.2.6 discards an event that the input ends inside of. Gateways close right behind the
            # last line, so it is returned; whether it is complete is for the decoder to find out.
            # capture: last-event-unterminated, last-event-one-newline
            if self._tail:
                self._line(self._tail_with(b""), out)
            if self._data:
                self._dispatch(out, cut=True)
        except TooLarge as failure:
            self._failure, self._form = failure, _Form.DEAD
            return self._fail(out)
        return out

    def _fail(self, out: list[Frame]) -> list[Frame]:
        """Returns the frames that came before the failure; raises it when there are none."""
        failure = self._failure
        if out or failure is None:
            return out
        # Raised once; from then on the reader returns nothing, and holds nothing.
        self._failure = None
        self._tail.clear()
        self._data.clear()
        raise failure

    def _tail_with(self, line: bytes) -> bytes:
        self._tail.append(line)
        whole = b"".join(self._tail)
        self._tail.clear()
        self._tail_size = 0
        return whole

    def _too_large(self, what: str) -> TooLarge:
        return TooLarge(what, self._limit, offset=self._offset, event=self._number)

    def _lines(self, lines: list[bytes], out: list[Frame]) -> None:
        """All lines in order. One data line and a blank one, which is nearly every event, take
        a short way to the same frame.
        """
        position, last = 0, len(lines) - 1
        between_events = self._between_events()
        while position <= last:
            line = lines[position]
            if (
                between_events
                and position < last
                and lines[position + 1] == b"\n"
                and line[:5] == b"data:"
                and len(line) <= self._limit
            ):
                value = trimmed(line, 5)
                if value and not value.startswith(b":"):
                    out.append(Frame(value, "", None, self._number, self._offset))
                    self._number += 1
                self._offset += len(line) + 1
                position += 2
            else:
                self._line(line, out)
                between_events = self._between_events()
                position += 1

    def _between_events(self) -> bool:
        return (
            self._form is _Form.EVENTS and not self._data and not self._event and self._id is None
        )

    def _line(self, line: bytes, out: list[Frame]) -> None:
        # The limit does not count the line end, else a CRLF stream would have another one than an
        # LF stream. The first comparison saves the copy.
        if len(line) > self._limit and len(line.rstrip(_LINE_ENDS)) > self._limit:
            raise self._too_large("line")
        if self._form is _Form.EVENTS:
            self._event_line(line, out)
        else:
            self._first_line(line, out)
        self._offset += len(line)

    def _first_line(self, line: bytes, out: list[Frame]) -> None:
        """A line while the form is still open: at the start, and around each JSON value."""
        text = line.removeprefix(_BOM) if not self._offset else line
        if self._data:
            self._json_line(text, out)
        elif not text.strip():
            return
        elif text.lstrip()[:1] in (b"{", b"["):
            # No field of 9.2.6 begins so: `stream: true` was answered by a body, or by one array.
            # capture: body-instead-of-stream, stream-as-one-array
            self._form = _Form.JSON
            self._json_line(text, out)
        else:
            self._form = _Form.EVENTS
            self._event_line(text, out)

    def _json_line(self, line: bytes, out: list[Frame]) -> None:
        """A JSON value may stand on one line or span many; it ends where it is finished."""
        glued = _GLUED.search(line, len(line.rstrip()) - _GLUED_SIZE)
        if glued is not None:
            # A gateway that adds the terminator to everything it returns, also to a body.
            # capture: body-and-done-on-one-line
            self._json_line(line[: glued.start()], out)
            self._first_line(line[glued.start() :], out)
            return
        if not self._data:
            if is_json(line):  # whole, as nearly every body is
                self._add(line)
                self._dispatch(out, cut=False)
                return
            self._scan = Scan()
        self._scan.feed(line.decode("utf-8", "replace"))
        if self._data and not self._scan.viable:
            self._dispatch(out, cut=False)  # what came before this line never closed
            self._first_line(line, out)
            return
        text = line.rstrip(_LINE_ENDS)
        self._add(text if text == line else text + b"\n")  # a CRLF may have been cut in two
        if self._scan.finished or not self._scan.viable:
            self._dispatch(out, cut=False)

    def _event_line(self, line: bytes, out: list[Frame]) -> None:
        if line.startswith(b"data:"):
            value = trimmed(line, 5)
            if value and not value.startswith(b":"):
                self._add(value)
        elif line in _BLANK_LINES:
            # Without data there is no event, whatever id or comment came before the blank line.
            # capture: comment-after-id, comments-as-keepalive
            if self._data:
                self._dispatch(out, cut=False)
            # 9.2.6 keeps the last id for the events behind it. Here a frame without an `id:` line
            # has none: with an inherited one, two equal deltas would look like a replay, and one
            # would be lost.
            self._event, self._id = "", None
        else:
            name, _, value = line.rstrip(_LINE_ENDS).partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                self._event = _event_name(value)
            elif name == b"id":
                self._id = value.decode("utf-8", "replace") or None
            elif name == b"error" and value.strip():
                # 9.2.6 ignores fields it does not know; this one holds the reason why the stream
                # ends.
                # capture: error-as-field-name
                self._event = "error"
                self._add(value.strip())
            elif name[:1] == b"{" and not self._data:
                # An object between events, perhaps over several lines: a body behind keepalive
                # comments, or an error that a host writes into its stream without `data:`.
                # capture: body-behind-comments, error-as-bare-json
                self._form = _Form.JSON
                self._json_line(line, out)

    def _add(self, value: bytes) -> None:
        if not self._data:
            self._start = self._offset
        self._data.append(value)
        self._size += len(value)
        if self._size > self._limit:
            raise self._too_large("event")

    def _dispatch(self, out: list[Frame], *, cut: bool) -> None:
        lines, self._data, self._size = self._data, [], 0
        if self._form is _Form.JSON:
            out.append(self._frame(trimmed(b"".join(lines)), cut))
            self._event, self._id = "", None
        elif len(lines) == 1:
            out.append(self._frame(lines[0], cut))
        else:
            # 9.2.6 joins them with LF. If that is no JSON but a line by itself is, blank lines were
            # forgotten between events. If neither is JSON, they stay together: it is one unreadable
            # event, not many.
            joined = b"\n".join(lines)
            if is_json(joined) or not any(_is_whole(line) for line in lines):
                # A server that prints its JSON indented.
                # capture: json-over-several-data-lines
                out.append(self._frame(joined, cut))
            else:
                # capture: one-newline-between-events
                last = len(lines) - 1
                for number, line in enumerate(lines):
                    out.append(self._frame(line, cut and number == last, split=True))

    def _frame(self, data: bytes, cut: bool, split: bool = False) -> Frame:
        number = self._number
        self._number = number + 1
        bare = self._form is _Form.JSON
        return Frame(data, self._event, self._id, number, self._start, cut, split, bare)


def _event_name(value: bytes) -> str:
    # `message` is the name of an event without one (9.2.6).
    # capture: event-named-message
    return "" if value == b"message" else value.decode("utf-8", "replace")


def _is_whole(line: bytes) -> bool:
    """One data line that can only be an event of its own."""
    return line == DONE or (line.startswith(b"{") and is_json(line))


def write(name: str, data: bytes) -> bytes:
    """Returns one event in one piece; without a name there is no `event:` line."""
    if b"\n" in data:  # of an upstream that writes its JSON over several lines
        # Each line of it needs a field name of its own (9.2.6); JSON has no line breaks in strings.
        data = data.replace(b"\n", b"\ndata: ")
    if not name:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def frame(name: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the same in three pieces, for data that is too large to copy: the middle one is the
    data, in the lines of the event."""
    before, _, after = write(name, b"\0").partition(b"\0")
    return before, data.replace(b"\n", b"\ndata: ") if b"\n" in data else data, after


_MANY = 8
"""Events from which on it pays to find out whether they are alike."""


def write_events(events: Sequence[Event]) -> bytes:
    """Returns events as they stand in a stream, one behind the other."""
    if len(events) >= _MANY:
        names, data = {event.name for event in events}, [event.data for event in events]
        if len(names) == 1 and not any(b"\n" in one for one in data):
            # Deltas of one kind, nearly always: what stands between two of them is written once.
            before, _, after = frame(names.pop(), b"")
            return b"".join((before, (after + before).join(data), after))
    pieces: list[bytes] = []
    for event in events:  # as `write` does, without a call for each
        lines = event.data.replace(b"\n", b"\ndata: ") if b"\n" in event.data else event.data
        if event.name:
            pieces += (b"event: ", event.name.encode(), b"\ndata: ", lines, b"\n\n")
        else:
            pieces += (b"data: ", lines, b"\n\n")
    return b"".join(pieces)


def comment(text: str) -> bytes:
    """Returns a comment, which every reader ignores: the keepalive of most dialects."""
    return b": " + text.encode() + b"\n\n"
