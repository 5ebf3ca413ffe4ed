"""A short way for the chunk that nearly every chunk is: the last one once more, with other text.

Servers write all chunks of an answer by one template. Once a chunk has brought text and nothing
else, another one with the same bytes before and after its `content` means the same with that
text: whatever stands around it has been read already. Only the string between is decoded. All
else (another id, a finish reason, an escape that is cut in two) goes the long way.
"""

import msgspec

from weft.sse import Frame

CASTS = 8
"""How many moulds are made for one response: a wire whose chunks all differ has no use for them."""

_CONTENT = b'"content"'
_string = msgspec.json.Decoder(str).decode


class Mould:
    """A chunk without its text."""

    __slots__ = ("_after", "_before", "_end", "_start")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._start = len(before)
        self._end = -len(after)

    def text(self, frame: Frame) -> str | None:
        """Returns the text of a chunk that fits, if it is plain ASCII; None: read it the long way.

        It may be empty, which is no text either.
        """
        data = frame.data
        if not data.startswith(self._before) or not data.endswith(self._after) or not _plain(frame):
            return None
        try:
            text = _string(data[self._start : self._end])
        except ValueError:
            return None
        return text if text.isascii() else None


def mould(frame: Frame, text: str) -> Mould | None:
    """Returns the mould of a chunk that brought this text; None where its place is not certain:
    the key must stand there once, and be spelled plainly, as all around it."""
    before, key, rest = frame.data.partition(_CONTENT)
    gap = b": " if rest.startswith(b": ") else b":"
    value = gap + msgspec.json.encode(text)
    if not _plain(frame) or not rest.startswith(value):
        return None
    after = rest[len(value) :]
    if not after or _CONTENT in after or b"\\" in before or b"\\" in after:
        return None
    return Mould(b"".join((before, key, gap)), after)


def _plain(frame: Frame) -> bool:
    return frame.id is None and not (frame.event or frame.cut or frame.split)
