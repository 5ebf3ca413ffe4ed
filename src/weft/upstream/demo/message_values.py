"""Finds values for the fields of a schema in the message of a user."""

import re

_MAX_LENGTH = 4000
"""Characters of a message that are searched."""

_NUMBER = re.compile(r"(?<![\w.])-?\d{1,9}(?:\.\d{1,6})?(?![\w.]*\w)")
_QUOTED = re.compile('`([^`\n]{1,200})`|"([^"\n]{1,200})"|\u201c([^\u201d\n]{1,200})\u201d')
_NAME = r"[A-Z\u00c0-\u00de][\w'\u2019-]*"
# "the weather in New York", "a room for Ada".
_AFTER_PREPOSITION = re.compile(
    rf"\b(?:in|for|at|to|of|from|near|about|on)\s+({_NAME}(?:[ \t]+{_NAME})*)"
)
# Not the first word of a sentence, which has a capital anyway.
_CAPITALISED = re.compile(rf"(?<=[\w,] )({_NAME}(?:[ \t]+{_NAME})*)")
_LAST_WORD = re.compile(r"\A(?s:.*)\b([^\W\d_]{4,})")
_URL = re.compile(r"https?://[^\s<>\"'`)]{1,500}")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+")
_PATH = re.compile(r"(?<![\w:/])(?:[\w.-]+/)*[\w-]+\.\w{1,8}\b|(?<![\w:])/[\w./-]+")

_FIELDS: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = (
    (re.compile(r"ur[il]$|link|href"), _URL, "https://example.com/"),
    (re.compile(r"mail"), _EMAIL, "ada@example.com"),
    (re.compile(r"path|file|folder|dir"), _PATH, "weft-demo.txt"),
    (re.compile(r"command|cmd|script|shell"), _QUOTED, "echo hello"),
    (re.compile(r"code|program|source"), _QUOTED, "print(1)"),
)
"""Field names: what to look for in a message, and a harmless default."""

_FREE_TEXT = re.compile(
    r"^(q|query|question|prompt|text|message|content|input|body|answer|summary|description|search)$"
)
"""Field names that take the whole message."""


class MessageValues:
    """Searches one message."""

    def __init__(self, message: str) -> None:
        self._message = message[:_MAX_LENGTH]

    def numbers(self) -> list[float]:
        return [float(found) for found in _NUMBER.findall(self._message)]

    def mentions(self, word: str) -> bool:
        return bool(word) and re.search(rf"(?i)\b{re.escape(word)}\b", self._message) is not None

    def for_field(self, name: str) -> str:
        """Returns the text that is most likely meant for a field of this name."""
        name = name.lower()
        for field, pattern, default in _FIELDS:
            if field.search(name):
                return self._first(pattern) or default
        if _FREE_TEXT.match(name):
            return self._first(_QUOTED) or " ".join(self._message.split())[:200] or "example"
        return self._first(_QUOTED, _AFTER_PREPOSITION, _CAPITALISED, _LAST_WORD) or "example"

    def _first(self, *patterns: re.Pattern[str]) -> str | None:
        """The first group that matched of the first pattern that occurs; else the whole match."""
        found = next(filter(None, (pattern.search(self._message) for pattern in patterns)), None)
        return found and next((group for group in found.groups() if group), found[0])
