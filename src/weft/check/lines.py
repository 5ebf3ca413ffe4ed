"""The rules of server-sent events: what the lines between the events must not do.

Weft's own reader forgives all of this without a finding, because nothing is lost by it. Readers
of other people are not all so patient.
"""

from bisect import bisect_right
from collections.abc import Sequence

from weft.dialects.rules import Rule
from weft.findings import Findings
from weft.sse import Frame

WIRE = "sse"

_BOM = b"\xef\xbb\xbf"
_NAMES = frozenset((b"data", b"event", b"id", b"retry"))
_JSON_STARTS = (b"{", b"[")
_LINE_ENDS = {b"\n": "LF", b"\r\n": "CRLF", b"\r": "CR"}
_EVENT = 'data: {"id":"r","choices":[{"delta":{"content":"Hi"}}]}'

RULES: tuple[Rule, ...] = (
    Rule(
        "byte-order-mark",
        "note",
        "The stream begins with its first line, not with a byte order mark.",
        "The standard allows one; readers that do not strip it lose the first event.",
        f"\\xef\\xbb\\xbf{_EVENT}\n\n",
    ),
    Rule(
        "comment-after-id",
        "warning",
        "Once an event had an id, no blank line comes without data before it.",
        "Readers that remember the id dispatch an empty event there, as after each keepalive "
        "comment, and fail to parse it.",
        f"id: 1\n{_EVENT}\n\n: keep-alive\n\n",
    ),
    Rule(
        "data-comment",
        "error",
        "A comment is a line of its own, not the data of an event.",
        "Clients parse it as JSON and raise.",
        f"data: : keep-alive\n\n{_EVENT}\n\n",
    ),
    Rule(
        "data-empty",
        "error",
        "An event has something in its data.",
        "Clients parse the empty text as JSON and raise.",
        f"data:\n\n{_EVENT}\n\n",
    ),
    Rule(
        "data-lines-several",
        "note",
        "An event stands on one data line.",
        "The standard joins several; readers that know only one keep the last and lose the rest.",
        'data: {"id":"r",\ndata: "choices":[]}\n\n',
    ),
    Rule(
        "event-without-data",
        "warning",
        "An event with a name, an id or a retry time has data as well.",
        "The standard drops it; readers that dispatch it fail to parse its empty data.",
        f"event: ping\n\n{_EVENT}\n\n",
    ),
    Rule(
        "field-unknown",
        "error",
        "A line is a comment, or one of data, event, id and retry.",
        "The standard drops every other line, with all that it says.",
        'error: {"message":"overloaded"}\n\n',
    ),
    Rule(
        "line-ends-crlf",
        "note",
        "Lines end with LF.",
        "The standard allows CRLF and CR; readers that look for two LF in a row see no event.",
        f"{_EVENT}\\r\\n\\r\\n",
    ),
    Rule(
        "line-ends-mixed",
        "warning",
        "All lines end in the same way.",
        "Readers that look for one kind of blank line join two events.",
        f"{_EVENT}\\r\\n\\r\\n{_EVENT}\\n\\n",
    ),
)


class Lines:
    """Watches the lines of one capture, and tells of each rule where it was broken first."""

    def __init__(self) -> None:
        self._broken: dict[str, tuple[int, str]] = {}
        self._times: dict[str, int] = {}
        self._ends: dict[bytes, int] = {}
        self._events = 0
        self._last_id = b""
        self._fields: list[bytes] = []
        self._data: list[bytes] = []

    def read(self, raw: bytes) -> None:
        offset = 0
        if raw.startswith(_BOM):
            self._note("byte-order-mark", 0, "the stream begins with a byte order mark")
            raw, offset = raw[len(_BOM) :], len(_BOM)
        for line in raw.splitlines(keepends=True):
            text = line.rstrip(b"\r\n")
            self._ends.setdefault(line[len(text) :], offset)
            if not text:
                self._blank(offset)
            elif not self._events and text.lstrip().startswith(_JSON_STARTS):
                return  # a body behind comments
            else:
                self._line(text, offset)
            offset += len(line)
        self._line_ends()

    def _line(self, text: bytes, offset: int) -> None:
        name, _, value = text.partition(b":")
        if not name:
            return
        if name not in _NAMES:
            shown = text[:40].decode("utf-8", "replace")
            self._note("field-unknown", offset, f"{shown!r}: every reader drops this line")
        elif name == b"data":
            self._data.append(value.strip())
            if self._data[-1].startswith(b":"):
                self._note("data-comment", offset, "a comment as the data of an event")
        else:
            self._fields.append(name)
            self._last_id = value.strip() if name == b"id" else self._last_id

    def _blank(self, offset: int) -> None:
        data, fields = self._data, self._fields
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

    def _line_ends(self) -> None:
        ends = {end: at for end, at in self._ends.items() if end}
        if len(ends) > 1:
            told = " and ".join(_LINE_ENDS[end] for end in ends)
            self._note("line-ends-mixed", max(ends.values()), f"lines end with {told}")
        elif ends and b"\n" not in ends:
            told = _LINE_ENDS[next(iter(ends))]
            self._note("line-ends-crlf", 0, f"lines end with {told}")

    def _note(self, rule: str, offset: int, detail: str) -> None:
        self._broken.setdefault(rule, (offset, detail))
        self._times[rule] = self._times.get(rule, 0) + 1

    def report(self, frames: Sequence[Frame], findings: Findings) -> None:
        """Notes each broken rule once, at the event that the line belongs to or follows."""
        offsets = [frame.offset for frame in frames]
        for rule, (offset, detail) in sorted(self._broken.items(), key=lambda row: row[1]):
            findings.at = max(bisect_right(offsets, offset) - 1, 0)
            findings.offset = offset
            times = self._times[rule]
            findings.broken(rule, f"{detail} ({times} times)" if times > 1 else detail)
