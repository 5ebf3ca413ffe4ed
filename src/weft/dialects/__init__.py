"""The dialects, by name. Adding one is a folder and a row here."""

from collections.abc import Mapping
from difflib import get_close_matches

from weft.dialect_names import DialectName
from weft.dialects.ai_sdk.dialect import AI_SDK
from weft.dialects.anthropic_messages.dialect import ANTHROPIC_MESSAGES
from weft.dialects.base import Dialect, HttpApi
from weft.dialects.gemini.dialect import GENERATE_CONTENT
from weft.dialects.openai_chat.dialect import OPENAI_CHAT
from weft.dialects.openai_responses.dialect import OPENAI_RESPONSES
from weft.errors import ArgumentTypeError, InternalError, UnknownDialect

__all__ = [
    "DIALECTS",
    "KEY_HEADERS",
    "Dialect",
    "DialectName",
    "dialect_named",
    "dialect_of",
    "http_of",
]

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC_MESSAGES, GENERATE_CONTENT, AI_SDK)
}

_ALIASES: dict[str, Dialect] = {
    alias: dialect for dialect in DIALECTS.values() for alias in dialect.aliases
}


# Two dialects share a header; they also agree on what stands before the key.
KEY_HEADERS: dict[str, str] = dict(
    dialect.http.key for dialect in DIALECTS.values() if dialect.http is not None
)
"""The headers in which requests have their API key, each with what is before the key."""


def dialect_named(name: str) -> Dialect:
    """Returns the dialect of that name or alias; raises UnknownDialect with the names there are."""
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f'the dialect must be a name such as "openai-chat", not {name.__class__.__name__}'
        )
    found = DIALECTS.get(name) or _ALIASES.get(name)
    if found is None:
        known = (*DIALECTS, *_ALIASES)
        # Modules have underscores, dialects hyphens: `openai_chat` must find its dialect.
        close = get_close_matches(name.lower().replace("_", "-"), known, n=1)
        hint = f' (did you mean "{close[0]}"?)' if close else ""
        raise UnknownDialect(f'unknown dialect "{name}"{hint}; known: {", ".join(known)}')
    return found


def http_of(name: str) -> HttpApi:
    """Returns the HTTP API of a dialect."""
    found = DIALECTS[name].http
    if found is None:
        raise InternalError(f"{name} has no HTTP API")
    return found


def dialect_of(path: str, headers: Mapping[bytes, bytes]) -> str:
    """Returns the dialect of a request to the gateway, and so of its response and errors.

    The names of headers are in lower case.
    """
    found, longest = "", -1
    for name, dialect in DIALECTS.items():
        if (http := dialect.http) is None:
            continue
        if http.known_by is not None:
            # Clients of OpenAI and of Anthropic both list models under /v1/models.
            shared, header = http.known_by
            if path.startswith(shared) and header.encode() in headers:
                return name
        # The empty prefix belongs to one dialect, so that every path has one.
        length = max((len(one) for one in http.prefixes if path.startswith(one)), default=-1)
        if length > longest:
            found, longest = name, length
    return found
