"""Extracts one string from JSON text that arrives in pieces.

Hosted calls have their code or diff as a string inside their params. The API has events for that
string alone, so the encoder needs its value piece by piece. Each character is scanned once.
"""

import json
import re
from enum import Enum

from weft.partial_json import join_halves

_STRING_CHARACTERS = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
"""The complete characters and escapes at the beginning of a string."""

_OUTSIDE_STRINGS = re.compile(r'[^"{}\[\],:]*')


class _ScanPosition(Enum):
    OUTSIDE = "outside"
    STRING = "string"
    TARGET = "target"
    FINISHED = "finished"


class JsonStringExtractor:
    """Scans JSON text and returns the value of the string at `path`.

    Invalid JSON is not an error: it returns nothing, or nothing more.
    """

    __slots__ = (
        "_keys",
        "_last_string",
        "_partial_escape",
        "_position",
        "_surrogate",
        "found",
        "path",
    )

    def __init__(self, *path: str) -> None:
        self.path = path
        self.found = False
        """Whether the string was found."""
        self._position = _ScanPosition.OUTSIDE
        self._keys: list[str | None] = []
        """The current key in each open object, outermost first; None before a key and in arrays."""
        self._last_string = ""
        """The last string, which may turn out to be a key."""
        self._partial_escape = ""
        """An incomplete escape."""
        self._surrogate = ""

    def feed(self, piece: str) -> str:
        """Returns what this piece adds to the string."""
        piece, self._partial_escape = self._partial_escape + piece, ""
        extracted: list[str] = []
        offset = 0
        while offset < len(piece) and self._position is not _ScanPosition.FINISHED:
            scan = (
                self._scan_outside if self._position is _ScanPosition.OUTSIDE else self._scan_string
            )
            offset = scan(piece, offset, extracted)
        return "".join(extracted)

    def _scan_outside(self, piece: str, offset: int, extracted: list[str]) -> int:
        match = _OUTSIDE_STRINGS.match(piece, offset)
        offset = match.end() if match else offset
        if offset == len(piece):
            return offset
        _TOKEN_HANDLERS[piece[offset]](self)
        return offset + 1

    def _scan_string(self, piece: str, offset: int, extracted: list[str]) -> int:
        match = _STRING_CHARACTERS.match(piece, offset)
        end = match.end() if match else offset
        text = piece[offset:end]
        if "\\" in text:
            text = str(json.loads(f'"{text}"', strict=False))
        if self._position is _ScanPosition.TARGET:
            joined, self._surrogate = join_halves(self._surrogate, text)
            extracted.append(joined)
        else:
            self._last_string += text
        if piece[end : end + 1] == '"':
            self._position = (
                _ScanPosition.FINISHED
                if self._position is _ScanPosition.TARGET
                else _ScanPosition.OUTSIDE
            )
            return end + 1
        if len(piece) - end > 5:  # longer than any escape: not JSON
            self._position = _ScanPosition.FINISHED
        self._partial_escape = piece[end:]
        return len(piece)

    def _quote(self) -> None:
        self._last_string = ""
        self.found = tuple(self._keys) == self.path
        self._position = _ScanPosition.TARGET if self.found else _ScanPosition.STRING

    def _colon(self) -> None:
        self._keys[-1:] = [self._last_string]

    def _comma(self) -> None:
        self._keys[-1:] = [None]

    def _enter(self) -> None:
        self._keys.append(None)

    def _leave(self) -> None:
        self._keys[-1:] = []
        if not self._keys:
            self._position = _ScanPosition.FINISHED


_TOKEN_HANDLERS = {
    '"': JsonStringExtractor._quote,
    ":": JsonStringExtractor._colon,
    ",": JsonStringExtractor._comma,
    "{": JsonStringExtractor._enter,
    "[": JsonStringExtractor._enter,
    "}": JsonStringExtractor._leave,
    "]": JsonStringExtractor._leave,
}
