"""Secrets, and what keeps them out of everything that is shown: errors, logs, captures, pages."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

MARK = "***"


class Secret:
    """A text that prints as `***`. `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return MARK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        # pickle, copy and deepcopy all come here.
        raise TypeError("a secret is not to be written down")


_MASKED = r"(?:[A-Za-z0-9_\-*]|\.{2,}|…)"  # some hosts echo a key with its middle left out

_TOKENS = re.compile(
    rf"(?i)\b(?:sk|pk|rk|gsk|csk|xai|pplx|nvapi)-{_MASKED}{{8,}}"
    r"|\bkey-[A-Za-z0-9_\-]{16,}"
    r"|\bAIza[A-Za-z0-9_\-]{20,}"
    r"|\b(?:gh[opsu]|hf|github_pat)_[A-Za-z0-9_]{16,}"
    r"|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*"
    r"|(?<=://)[^\s/@:\"']+:[^\s/@\"']+(?=@)"
    r"|\*{4,}\w{1,8}\b"
)
"""What a key looks like, wherever it stands."""

_BEHIND = re.compile(
    r"(?i)(\bbearer\s+|[?&](?:key|api[_-]?key|access[_-]token)=|\bapi[_-]?key=)[^\s&\"',;]{6,}"
    r"|(\b(?:authorization|(?:x-)?(?:goog-)?api[_-]?key)[\"']?\s*:\s*[\"']?)[^\s\"',;]{16,}"
)
"""What stands where a key belongs, whatever it looks like."""


class Scrubber:
    """Replaces every known secret, however it is escaped, and what looks like one."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        forms: set[str] = set()
        for text in (one.reveal() for one in secrets):
            forms |= {text, json.dumps(text)[1:-1], quote(text, safe="")}  # as JSON, in a URL
        # The longest first: of two secrets, one may begin with the other.
        known = sorted(forms - {""}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        # First the secrets that are known: a pattern below might replace only part of one.
        if self._known is not None:
            text = self._known.sub(MARK, text)
        text = _TOKENS.sub(MARK, text)
        return _BEHIND.sub(lambda match: (match[1] or match[2]) + MARK, text)
