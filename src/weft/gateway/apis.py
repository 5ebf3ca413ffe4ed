"""The APIs that the gateway serves, by the names of their dialects."""

from typing import Final

CHAT_COMPLETIONS: Final = "openai-chat"
RESPONSES: Final = "openai-responses"
MESSAGES: Final = "anthropic-messages"
GENERATE_CONTENT: Final = "gemini"
