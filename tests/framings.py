"""Every way in which one event can stand on the wire: line ends, spaces, comments, marks.

None of them says anything, so a stream means the same in each of them.
"""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

Told = tuple[str, bytes]
"""An event before it is framed: its name, or nothing, and its data."""

BOM = b"\xef\xbb\xbf"
LINE_ENDS = (b"\n", b"\r\n", b"\r")


def _lines(event: Told, data: bytes = b"data: ") -> list[bytes]:
    name, value = event
    named = [b"event: " + name.encode()] if name else []
    return [*named, *(data + line for line in value.split(b"\n"))]


def _joined(events: Sequence[Told], end: bytes = b"\n", data: bytes = b"data: ") -> bytes:
    return b"".join(line + end for event in events for line in [*_lines(event, data), b""])


def _commented(events: Sequence[Told]) -> bytes:
    return b": hello\n\n" + b"".join(b": ping\n" + _joined([event]) + b":\n\n" for event in events)


FRAMINGS: dict[str, Callable[[Sequence[Told]], bytes]] = {
    "LF": _joined,
    "CRLF": lambda events: _joined(events, b"\r\n"),
    "CR": lambda events: _joined(events, b"\r"),
    "no space": lambda events: _joined(events, data=b"data:"),
    "comments": _commented,
    "BOM": lambda events: BOM + _joined(events),
}


def over_lines(data: bytes) -> bytes:
    """The same JSON over two lines, if it is an object: each gets a `data:` of its own."""
    return data[:1] + b"\n" + data[1:] if data[:1] == b"{" and b"\n" not in data else data


@st.composite
def framed(draw: st.DrawFn, events: Sequence[Told]) -> bytes:
    """These events in any accent: each line may have its own."""
    end = draw(st.sampled_from([*LINE_ENDS, None]))  # None: mixed
    space = draw(st.sampled_from([b"data: ", b"data:"]))
    noise = draw(st.booleans())
    out = BOM if draw(st.booleans()) else b""
    for number, event in enumerate(events):
        if noise and draw(st.integers(0, 3)) == 0:
            out += draw(st.sampled_from([b": ping\n\n", b":\r\n\r\n", b"\n", b"retry: 5\n\n"]))
        lines = _lines(event, space)
        if noise and draw(st.integers(0, 3)) == 0:
            lines.insert(draw(st.integers(0, len(lines))), b": between")
        if noise and draw(st.integers(0, 3)) == 0:
            lines.insert(0, b"id: %d" % number)
        for line in [*lines, b""]:
            out += line + (end or draw(st.sampled_from(LINE_ENDS[:2])))
    if draw(st.integers(0, 3)) == 0:  # the last event lacks its blank line
        out = out.rstrip(b"\r\n")
    return out


def data_of(raw: bytes) -> list[bytes]:
    """The data of each event, read as the standard says; an event without its blank line counts,
    a comment that a proxy wrapped does not."""
    lines = raw.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    found: list[bytes] = []
    data: list[bytes] = []
    for line in [*lines, b""]:
        field, _, value = line.partition(b":")
        if field == b"data" and value.strip() and not value.strip().startswith(b":"):
            data.append(value.strip())
        elif not line and data:
            found.append(b"\n".join(data))
            data = []
    return found
