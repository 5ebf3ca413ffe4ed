"""A fast path for the most common chunk: the previous one again, with another text.

A server writes all chunks of a response from one template. After a chunk that held text and
nothing else, the next one with the same bytes before and after its `content` string means the
same, with that text, so only the string is decoded. Every other chunk (another id, a finish
reason, half a surrogate pair) is parsed in full.
"""

from typing import Self

import msgspec

from weft.sse import Frame

MAX_TEMPLATES = 8
"""How many templates are made for one response: where all chunks differ they save nothing."""

_CONTENT = b'"content"'
_decode_string = msgspec.json.Decoder(str).decode


class ChunkTemplate:
    """The bytes of a chunk before and after its text."""

    __slots__ = ("_after", "_before", "_end", "_start")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._start = len(before)
        self._end = -len(after)

    @classmethod
    def from_chunk(cls, frame: Frame, text: str) -> Self | None:
        """Returns the template of a chunk with this text, or None if it is not certain which
        bytes are the text: the key must occur once, and nothing around it may be escaped."""
        before, key, rest = frame.data.partition(_CONTENT)
        colon = b": " if rest.startswith(b": ") else b":"
        value = colon + msgspec.json.encode(text)
        # Not equal if the server escapes other characters than msgspec does: no template then.
        if not _is_bare(frame) or not rest.startswith(value):
            return None
        after = rest[len(value) :]
        # With an empty `after` the slice in `match` would end at 0. An escape could hide a quote,
        # so that strings begin and end elsewhere than they seem to.
        if not after or _CONTENT in after or b"\\" in before or b"\\" in after:
            return None
        return cls(b"".join((before, key, colon)), after)

    def match(self, frame: Frame) -> str | None:
        """Returns the text of a chunk that fits this template and holds ASCII only, possibly an
        empty string; None if the chunk must be parsed in full."""
        data = frame.data
        if (
            not data.startswith(self._before)
            or not data.endswith(self._after)
            or not _is_bare(frame)
        ):
            return None
        try:
            # A chunk so short that both ends overlap leaves an empty slice, which is not JSON.
            text = _decode_string(data[self._start : self._end])
        except ValueError:
            return None
        # Half a surrogate pair, which must be joined with the next delta, is not ASCII.
        return text if text.isascii() else None


def _is_bare(frame: Frame) -> bool:
    """Whether an event is only data: no `event:` or `id:` line, and framed correctly."""
    return frame.id is None and not (frame.event or frame.cut or frame.split)
