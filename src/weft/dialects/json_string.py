"""Extracts one string from JSON text that arrives in pieces.

Some wires wrap text in the arguments of a call: code or a diff of a hosted tool, the free text of a
custom tool. Others stream that text by itself, so its value is needed piece by piece. Each
character is scanned once.
"""

import json
import re
from typing import Literal

from weft.partial_json import join_halves, whole_characters

# RFC 8259, section 7. Raw control characters are accepted: models write newlines into strings.
_STRING_CHARACTERS = re.compile(r'(?:[^"\\]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
"""The complete characters and escapes at the beginning of a string."""

_PARTIAL_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_OUTSIDE_STRINGS = re.compile(r'[^"{}\[\],:]*')


# Strings, not an enum, whose members take longer to look up than a call (Python 3.11): every piece
# compares one.
_ScanPosition = Literal["outside", "string", "target", "finished"]


class JsonStringExtractor:
    """Scans the text of a JSON object and returns the value of the string at `path`.

    Invalid JSON is not an error: it returns nothing, or nothing more.
    """

    __slots__ = (
        "_keys",
        "_last_string",
        "_position",
        "_surrogate",
        "_unread",
        "found",
        "is_broken",
        "path",
    )

    def __init__(self, *path: str) -> None:
        self.path = path
        self.found = False
        """Whether the string was found."""
        self.is_broken = False
        """Whether the string has an escape that JSON does not have: `flush` returns it."""
        self._position: _ScanPosition = "outside"
        # As a stack: its length is the depth.
        self._keys: list[str | None] = []
        """The current key in each open object, outermost first; None before a key and in arrays."""
        self._last_string = ""
        """The last string, which may turn out to be a key."""
        self._unread = ""
        """An incomplete escape; or what follows an invalid one."""
        self._surrogate = ""

    @property
    def pending(self) -> bool:
        """Whether a part of the text waits for more."""
        return bool(self._unread or self._surrogate)

    def feed(self, piece: str) -> str:
        """Returns what this piece adds to the string."""
        if (
            self._position == "target"
            and not self.pending
            and piece.isascii()
            and '"' not in piece
            and "\\" not in piece
        ):
            # Ends, escapes and halves of characters are the only things that need the scanner.
            return piece  # nearly always
        piece, self._unread = self._unread + piece, ""
        extracted: list[str] = []
        offset = 0
        while offset < len(piece) and self._position != "finished":
            scan = self._scan_outside if self._position == "outside" else self._scan_string
            offset = scan(piece, offset, extracted)
        return "".join(extracted)

    def flush(self) -> str:
        """Returns what was held back, as it is: nothing follows, or the string is broken."""
        rest = whole_characters(self._surrogate) + self._unread
        self._surrogate = self._unread = ""
        return rest

    def _scan_outside(self, piece: str, offset: int, extracted: list[str]) -> int:
        match = _OUTSIDE_STRINGS.match(piece, offset)
        end = match.end() if match else offset
        # An empty slice is in every string: at the end of a piece nothing is decided yet.
        if not self._keys and (piece[offset:end].strip() or piece[end : end + 1] not in "{["):
            self._position = "finished"  # something else than an object or array
        elif end < len(piece):
            _TOKEN_HANDLERS[piece[end]](self)
            return end + 1
        return end

    def _scan_string(self, piece: str, offset: int, extracted: list[str]) -> int:
        match = _STRING_CHARACTERS.match(piece, offset)
        end = match.end() if match else offset
        text = piece[offset:end]
        if "\\" in text:
            # Whole escapes only, so this cannot fail.
            text = str(json.loads(f'"{text}"', strict=False))
        is_target = self._position == "target"
        if is_target:
            joined, self._surrogate = join_halves(self._surrogate, text)
            extracted.append(joined)
        else:
            self._last_string += text
        if piece[end : end + 1] == '"':
            self._position = "finished" if is_target else "outside"
            extracted.append(self.flush())  # half a character is left alone
            return end + 1
        self._unread = piece[end:]
        # The string cannot be continued: either more of the escape comes, or it is not JSON.
        if self._unread and not _PARTIAL_ESCAPE.fullmatch(self._unread):
            self.is_broken = is_target
            self._position = "finished"
        return len(piece)

    def _quote(self) -> None:
        self._last_string = ""
        # A string that is a key never matches: until its colon the last entry is None.
        self.found = tuple(self._keys) == self.path
        self._position = "target" if self.found else "string"

    def _colon(self) -> None:
        self._keys[-1:] = [self._last_string]

    def _comma(self) -> None:
        self._keys[-1:] = [None]

    def _enter(self) -> None:
        self._keys.append(None)

    def _leave(self) -> None:
        self._keys[-1:] = []
        if not self._keys:
            self._position = "finished"


_TOKEN_HANDLERS = {
    '"': JsonStringExtractor._quote,
    ":": JsonStringExtractor._colon,
    ",": JsonStringExtractor._comma,
    "{": JsonStringExtractor._enter,
    "[": JsonStringExtractor._enter,
    "}": JsonStringExtractor._leave,
    "]": JsonStringExtractor._leave,
}
