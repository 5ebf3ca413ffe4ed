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


# Some hosts echo a key with its middle left out.
_MASKED = r"(?:[A-Za-z0-9_\-*]|\.{2,}|…)"
# After `hf_` and the like, only what no name in a program or a database looks like.
_UNBROKEN = r"(?:[A-Za-z0-9]{16,}|[A-Za-z0-9]{2,}(?:\*{2,}|\.{2,}|…)[A-Za-z0-9*]*)"

_TOKENS = re.compile(
    # OpenAI, Anthropic, OpenRouter and most others; Cerebras, xAI, Perplexity, NVIDIA, Tavily,
    # GitLab, Slack
    rf"(?i)\b(?:sk|pk|rk|gsk|csk|xai|pplx|nvapi|tvly|glpat|xox[a-z])-{_MASKED}{{8,}}"
    # Groq, Hugging Face, Replicate, Fireworks, Vercel, GitHub, and hosts with `sk_`
    rf"|\b(?:gsk|hf|r8|fw|vck|gh[oprsu]|sk)_{_UNBROKEN}"
    # GitHub, Together, Stripe
    r"|\b(?:github_pat|tgp_v1|[spr]k_(?:live|test))_[A-Za-z0-9_\-*]{16,}"
    r"|\bkey-[A-Za-z0-9_\-]{16,}"
    r"|(?-i:"
    r"\bAIza[A-Za-z0-9_\-]{20,}|\b(?:AQ|ya29)\.[A-Za-z0-9_\-.]{16,}"  # Google
    r"|\bA[KS]IA[A-Z0-9]{16}\b|\bABSK[A-Za-z0-9+/=]{32,}"  # AWS
    r"|\bdapi[0-9a-f]{32}|\b[0-9a-f]{32}\.[A-Za-z0-9]{16}\b"  # Databricks, Zhipu
    # Signed and encrypted tokens, RFC 7515 and RFC 7516: three parts or five, of which the second
    # may be empty.
    r"|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*\.[A-Za-z0-9_\-]*(?:\.[A-Za-z0-9_\-]+){0,2}"
    r")"
    r"|(?<=://)[^\s/@:\"']+:[^\s/@\"']+(?=@)"
    r"|\*{4,}\w{1,8}\b"
)
"""What a key looks like, wherever it stands."""

_NAMES = (
    r"(?:authorization|api[_-]?key|subscription[_-]key|(?:access|auth|session)[_-]token"
    r"|client[_-]secret|secret[_-]access[_-]key)"
)
_QUOTES = r"[\\\"']*"  # also those of JSON inside of a string

# Mistral, Together, Azure and others have keys without any mark, which only their place tells from
# a request id.
_BEHIND = re.compile(
    rf"(?i)(\bbearer\s+|[?&](?:key|token)=|{_NAMES}\s*=\s*{_QUOTES})[^\s&\"',;\\]{{6,}}"
    rf"|(\bauthorization{_QUOTES}\s*[:=]\s*{_QUOTES}(?:basic|token|key|apikey)\s+)[^\s\"',;\\]{{6,}}"
    rf"|({_NAMES}{_QUOTES}\s*:\s*{_QUOTES})[^\s\"',;\\]{{16,}}"
    r"|(\bapi key(?: \w+){0,2}(?::\s*[\"'`]?|\s[\"'`]))(?=[A-Za-z_\-]*\d)[A-Za-z0-9_\-]{16,}"
)
"""What stands where a key belongs, whatever it looks like."""


_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|passphrase|auth|credential|cookie|dsn")


def names_secret(name: str) -> bool:
    """Whether a header or variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


class Scrubber:
    """Replaces every known secret, however it is escaped, and what looks like one."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._forms: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[Secret]) -> None:
        """Further secrets. Those before stay: what was a secret is still one."""
        for text in (one.reveal() for one in secrets):
            # As JSON, in a URL.
            self._forms |= {text, json.dumps(text)[1:-1], quote(text, safe="")}
        # The longest first: of two secrets, one may begin with the other.
        known = sorted(self._forms - {""}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self._known_bytes = [text.encode() for text in known]

    def known(self, data: bytes) -> bytes:
        """Replaces the known secrets only. This is much faster, and returns the same object if
        there are none."""
        for secret in self._known_bytes:
            if secret in data:
                data = data.replace(secret, MARK.encode())
        return data

    def __call__(self, text: str) -> str:
        # First the secrets that are known: a pattern below might replace only part of one.
        if self._known is not None:
            text = self._known.sub(MARK, text)
        text = _TOKENS.sub(MARK, text)
        return _BEHIND.sub(lambda match: "".join(filter(None, match.groups())) + MARK, text)
