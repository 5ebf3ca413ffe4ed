"""The dialects, by name. Adding one is a folder and a row here."""

from weft.dialects.ai_sdk.dialect import AI_SDK
from weft.dialects.anthropic_messages.dialect import ANTHROPIC_MESSAGES
from weft.dialects.base import Dialect
from weft.dialects.gemini.dialect import GENERATE_CONTENT
from weft.dialects.openai_chat.dialect import OPENAI_CHAT
from weft.dialects.openai_responses.dialect import OPENAI_RESPONSES
from weft.errors import UnknownDialect

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC_MESSAGES, GENERATE_CONTENT, AI_SDK)
}

_ALIASES = {alias: dialect for dialect in DIALECTS.values() for alias in dialect.aliases}


def dialect_named(name: str) -> Dialect:
    """Returns the dialect of that name or alias; raises UnknownDialect with what there is."""
    found = DIALECTS.get(name) or _ALIASES.get(name)
    if found is None:
        known = ", ".join((*DIALECTS, *_ALIASES))
        raise UnknownDialect(f"no dialect is called {name!r}; there are {known}")
    return found
