"""Words and numbers that a user said, picked for the fields that ask for them."""

import re

_LONGEST = 4000
"""Characters of a message that are looked at."""

_NUMBER = re.compile(r"(?<![\w.])-?\d{1,9}(?:\.\d{1,6})?(?![\w.]*\w)")
_QUOTED = re.compile('`([^`\n]{1,200})`|"([^"\n]{1,200})"|\u201c([^\u201d\n]{1,200})\u201d')
_NAME = r"[A-Z\u00c0-\u00de][\w'\u2019-]*"
_PLACED = re.compile(rf"\b(?:in|for|at|to|of|from|near|about|on)\s+({_NAME}(?:[ \t]+{_NAME})*)")
_CAPITAL = re.compile(rf"(?<=[\w,] )({_NAME}(?:[ \t]+{_NAME})*)")
_WORD = re.compile(r"[^\W\d_]{4,}")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`)]{1,500}")
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+")
_PATH = re.compile(r"(?<![\w:/])(?:[\w.-]+/)*[\w-]+\.\w{1,8}\b|(?<![\w:])/[\w./-]+")

_FIELDS: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = (
    (re.compile(r"ur[il]$|link|href"), _ADDRESS, "https://example.com/"),
    (re.compile(r"mail"), _MAIL, "ada@example.com"),
    (re.compile(r"path|file|folder|dir"), _PATH, "weft-demo.txt"),
    (re.compile(r"command|cmd|script|shell"), _QUOTED, "echo hello"),
    (re.compile(r"code|program|source"), _QUOTED, "print(1)"),
)
"""Fields by their names: what to look for in a message, and what else will do no harm."""

_WHOLE = re.compile(
    r"^(q|query|question|prompt|text|message|content|input|body|answer|summary|description|search)$"
)
"""Fields that can take all of a message."""


class Picker:
    """Reads one message of a user."""

    def __init__(self, message: str) -> None:
        self._message = message[:_LONGEST]

    def numbers(self) -> list[float]:
        return [float(found) for found in _NUMBER.findall(self._message)]

    def names(self, word: str) -> bool:
        """Whether the message has this word."""
        return bool(word) and re.search(rf"(?i)\b{re.escape(word)}\b", self._message) is not None

    def word(self, field: str) -> str:
        """Returns what the message says that may be meant for a field of this name."""
        lower = field.lower()
        for name, wanted, harmless in _FIELDS:
            if name.search(lower):
                return self._first(wanted) or harmless
        quoted = self._first(_QUOTED)
        if quoted is None and _WHOLE.match(lower):
            return " ".join(self._message.split())[:200] or "example"
        return quoted or self._first(_PLACED) or self._first(_CAPITAL) or self._last() or "example"

    def _first(self, wanted: re.Pattern[str]) -> str | None:
        found = wanted.search(self._message)
        if found is None:
            return None
        return next((group for group in found.groups() if group), found[0])

    def _last(self) -> str | None:
        words = _WORD.findall(self._message)
        return words[-1] if words else None
