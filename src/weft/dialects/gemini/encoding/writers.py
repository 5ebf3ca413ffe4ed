"""Writers of frames and of bodies."""

from collections.abc import Sequence
from enum import Enum

import msgspec
from msgspec import Raw

from weft import large_json
from weft.dialects.delta_templates import EventTemplate
from weft.dialects.gemini import wire
from weft.dialects.raw_json import blank_line_ends
from weft.sse import Event

WrittenPart = wire.GeminiPart | Raw

# Frames of a response differ only in their text or part. The rest is encoded once, in `start`.
_FRAME_PREFIX = b'{"candidates":[{"content":{"parts":['
_TEXT_PREFIX = _FRAME_PREFIX + b'{"text":'
_EMPTY_PART = b'{"text":""}'
# U+0085, U+2028 and U+2029: JSON may hold them as they are (RFC 8259 §7), and str.splitlines, with
# which Python clients read lines, cuts at each.
_LINE_BREAKS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
"""Characters that some clients read as the end of a line, with their JSON escape. In JSON they
only occur inside strings."""

_json = msgspec.json.Encoder().encode


class ItemKind(Enum):
    TEXT = "text"
    REASONING = "reasoning"
    WHOLE = "whole"


def escape_line_breaks(data: bytes) -> bytes:
    """Returns JSON without the rarer characters that end a line."""
    if not data.isascii():
        for character, escaped in _LINE_BREAKS:
            data = data.replace(character, escaped)
    return data


def without_line_breaks(data: bytes) -> bytes:
    """Returns JSON of any origin on one line."""
    return escape_line_breaks(blank_line_ends(data))


class FrameWriter:
    """Writes the frames of one response."""

    def __init__(self) -> None:
        self.out: list[Event] = []
        self._suffix = b""
        """The JSON of a frame after the part in it; the others: after the text."""
        self._text_suffix = b""
        self._reasoning_suffix = b""

    def start(self, metadata: wire.GenerateContentResponse) -> None:
        suffix = b'],"role":"model"},"index":0}],%b' % escape_line_breaks(_json(metadata))[1:]
        self._suffix = suffix
        self._text_suffix = b"}" + suffix
        self._reasoning_suffix = b',"thought":true}' + suffix

    def text(self, kind: ItemKind, text: str) -> None:
        suffix = self._reasoning_suffix if kind is ItemKind.REASONING else self._text_suffix
        if len(text) <= large_json.SLICE:
            value = _json(text)
            if not value.isascii():
                value = escape_line_breaks(value)
            data = b"%b%b%b" % (_TEXT_PREFIX, value, suffix)
        else:
            # In slices, as both take long for a text of megabytes.
            escaped = map(escape_line_breaks, large_json.pieces(text))
            data = b"".join((_TEXT_PREFIX, *escaped, suffix))
        self.out.append(Event("", data))

    def text_template(self, kind: ItemKind) -> EventTemplate | None:
        """What `text` writes."""
        suffix = self._reasoning_suffix if kind is ItemKind.REASONING else self._text_suffix
        return _TextTemplate("", _TEXT_PREFIX + b'"', b'"' + suffix)

    def part(self, part: WrittenPart) -> None:
        data = b"%b%b%b" % (_FRAME_PREFIX, without_line_breaks(_json(part)), self._suffix)
        self.out.append(Event("", data))

    def signature(self, part: wire.GeminiPart) -> None:
        """Writes the signature of the text before it, in a part of its own."""
        self.part(part)

    def finish(self, response: wire.GenerateContentResponse) -> None:
        """Writes the last frame. It has one candidate with an empty text."""
        self.out.append(Event("", without_line_breaks(large_json.write(response))))

    def error(self, error: wire.GeminiError) -> None:
        self.out.append(Event("", without_line_breaks(wire.error_body(error))))


class _TextTemplate(EventTemplate):
    """A frame with a text."""

    __slots__ = ()

    def fill(self, pieces: Sequence[bytes], length: int) -> list[Event]:
        for piece in pieces:
            if not piece.isascii():
                pieces = list(map(escape_line_breaks, pieces))
                break
        return EventTemplate.fill(self, pieces, length)


# In a body, consecutive deltas are one part, as a client joins them from a stream.
class GeminiBodyWriter(FrameWriter):
    """Collects the response in one piece. A signature is on the text that it signs."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[WrittenPart] = []
        self.body = b""

    def start(self, metadata: wire.GenerateContentResponse) -> None:
        """The final response repeats the metadata."""

    def text(self, kind: ItemKind, text: str) -> None:
        is_reasoning = kind is ItemKind.REASONING
        last = self._parts[-1] if self._parts else None
        if (
            isinstance(last, wire.GeminiPart)
            and last.text is not None
            # Signed text is closed: more of it would be unsigned text in a signed part.
            and not last.thought_signature
            and (last.thought is True) == is_reasoning
        ):
            last.text += text
        else:
            self._parts.append(wire.GeminiPart(text=text, thought=is_reasoning or None))

    def text_template(self, kind: ItemKind) -> EventTemplate | None:
        return None

    def part(self, part: WrittenPart) -> None:
        self._parts.append(part)

    def signature(self, part: wire.GeminiPart) -> None:
        last = self._parts[-1]
        if isinstance(last, wire.GeminiPart):
            last.thought_signature = part.thought_signature

    def finish(self, response: wire.GenerateContentResponse) -> None:
        pieces = large_json.pieces(response)
        if self._parts:  # they may be large, so they are joined only once
            rest = b"".join(pieces).removeprefix(_FRAME_PREFIX + _EMPTY_PART)
            pieces = [_FRAME_PREFIX]
            for part in self._parts:
                pieces += (*large_json.pieces(part), b",")
            pieces[-1] = rest
        self.body = b"".join(map(without_line_breaks, pieces))

    def error(self, error: wire.GeminiError) -> None:
        self.body = wire.error_body(error)
