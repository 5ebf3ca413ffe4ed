"""One string inside JSON text that is still growing: what it says, as far as it is there.

Hosted calls carry their code or their diff as a string inside their params; the wire has events
of its own for it, without the JSON around. So the way back needs the string again, piece by
piece, and each character of the text is read once.
"""

import json
import re
from enum import Enum

from weft.partial_json import join_halves

_SAYING = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
"""As much of a string as is whole: an escape that is cut waits for its rest."""

_BETWEEN = re.compile(r'[^"{}\[\],:]*')


class _At(Enum):
    BETWEEN = "between"
    STRING = "string"
    WANTED = "wanted"
    OVER = "over"


class InnerString:
    """Follows JSON text and returns what the string under `path` says.

    Text that is no JSON gives nothing, or nothing more: it is never an error here.
    """

    __slots__ = ("_at", "_half", "_held", "_keys", "_word", "found", "path")

    def __init__(self, *path: str) -> None:
        self.path = path
        self.found = False
        """Whether the string has begun."""
        self._at = _At.BETWEEN
        self._keys: list[str | None] = []
        """At which key each open object stands, outermost first; None before one, and in arrays."""
        self._word = ""
        """The last string, perhaps a key."""
        self._held = ""
        """The beginning of an escape."""
        self._half = ""

    def feed(self, piece: str) -> str:
        """Returns what this piece adds to the string, mostly all or nothing."""
        piece, self._held = self._held + piece, ""
        said: list[str] = []
        position = 0
        while position < len(piece) and self._at is not _At.OVER:
            step = self._between if self._at is _At.BETWEEN else self._inside
            position = step(piece, position, said)
        return "".join(said)

    def _between(self, piece: str, position: int, said: list[str]) -> int:
        match = _BETWEEN.match(piece, position)
        position = match.end() if match else position
        if position == len(piece):
            return position
        _STEPS[piece[position]](self)
        return position + 1

    def _inside(self, piece: str, position: int, said: list[str]) -> int:
        match = _SAYING.match(piece, position)
        end = match.end() if match else position
        text = _unescaped(piece[position:end])
        if self._at is _At.WANTED:
            shown, self._half = join_halves(self._half, text)
            said.append(shown)
        else:
            self._word += text
        if piece[end : end + 1] == '"':
            self._at = _At.OVER if self._at is _At.WANTED else _At.BETWEEN
            return end + 1
        if len(piece) - end > 5:  # no escape is that long
            self._at = _At.OVER
        self._held = piece[end:]
        return len(piece)

    def _quote(self) -> None:
        self._word = ""
        self.found = tuple(self._keys) == self.path
        self._at = _At.WANTED if self.found else _At.STRING

    def _colon(self) -> None:
        self._keys[-1:] = [self._word]

    def _comma(self) -> None:
        self._keys[-1:] = [None]

    def _enter(self) -> None:
        self._keys.append(None)

    def _leave(self) -> None:
        self._keys[-1:] = []
        if not self._keys:
            self._at = _At.OVER


_STEPS = {
    '"': InnerString._quote,
    ":": InnerString._colon,
    ",": InnerString._comma,
    "{": InnerString._enter,
    "[": InnerString._enter,
    "}": InnerString._leave,
    "]": InnerString._leave,
}


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return str(json.loads(f'"{text}"', strict=False))
