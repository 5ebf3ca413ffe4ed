"""The requests of the clients: the same question in each dialect, as one HTTP request."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

INSTRUCTIONS = (
    "You are a careful assistant. Answer in plain text, without markup, in at most two hundred "
    "words, and say so when you do not know something."
)
QUESTION = (
    "Compare the ways in which a river delta forms on a tidal coast and on a sheltered one, and "
    "name one example of each."
)
MAX_TOKENS = 2048
KEY = f"sk-{secrets.token_hex(32)}"
"""The key of the clients, a new one in each run."""

Body = dict[str, object]


def _chat(model: str, stream: bool) -> Body:
    body: Body = {
        "model": model,
        "messages": [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": QUESTION},
        ],
        "max_completion_tokens": MAX_TOKENS,
        "stream": stream,
    }
    return {**body, "stream_options": {"include_usage": True}} if stream else body


def _responses(model: str, stream: bool) -> Body:
    return {
        "model": model,
        "instructions": INSTRUCTIONS,
        "input": [{"role": "user", "content": QUESTION}],
        "max_output_tokens": MAX_TOKENS,
        "stream": stream,
    }


def _messages(model: str, stream: bool) -> Body:
    return {
        "model": model,
        "system": INSTRUCTIONS,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MAX_TOKENS,
        "stream": stream,
    }


@dataclass(frozen=True, slots=True)
class Client:
    """How a dialect is requested, and how its answer is recognised without parsing it."""

    name: str
    path: str
    body: Callable[[str, bool], Body]
    mark: str
    """What the data of an event that brings a token contains."""

    last: str
    """What the data of the last event contains."""

    def request(self, model: str, stream: bool, port: int) -> bytes:
        """One whole HTTP request."""
        body = msgspec.json.encode(self.body(model, stream))
        head = (
            f"POST {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "User-Agent: bench/1",
            "Accept: */*",
            f"Authorization: Bearer {KEY}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body


CHAT = Client("chat", "/v1/chat/completions", _chat, "chat.completion.chunk", "[DONE]")
RESPONSES = Client(
    "responses", "/v1/responses", _responses, '"response.output_text.delta"', '"response.completed"'
)
MESSAGES = Client("messages", "/v1/messages", _messages, '"text_delta"', '"message_stop"')
