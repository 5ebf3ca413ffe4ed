"""The names of the dialects: importing this imports no codec, so help and completion are quick."""

from typing import Literal

DialectName = Literal[
    "openai-chat", "openai-responses", "anthropic-messages", "gemini", "ai-sdk", "open-responses"
]
"""The names of the dialects. `open-responses` is a second name of `openai-responses`."""
