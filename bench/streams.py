"""The streams that are measured: clean Chat Completions, as a good server sends them."""

import json
from collections.abc import Iterator

READ = 16 * 1024
"""Bytes per network read."""


def event(delta: dict[str, object], reason: str | None = None) -> bytes:
    chunk = {
        "id": "chatcmpl-Bq7uJXz2mYk0",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "bench-model-2026-11-01",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def text(events: int, size: int = 6) -> Iterator[bytes]:
    """A text answer with that many deltas."""
    yield event({"role": "assistant", "content": ""})
    for number in range(events):
        yield event({"content": f" {number % 97:0{size - 1}}"})
    yield event({}, "stop")
    yield b"data: [DONE]\n\n"


def arguments(deltas: int, size: int = 20) -> Iterator[bytes]:
    """One call whose arguments come in that many deltas."""
    call: dict[str, object] = {"index": 0, "id": "call_1", "type": "function"}
    yield event({"tool_calls": [{**call, "function": {"name": "write", "arguments": ""}}]})
    for number in range(deltas):
        piece = (
            '{"text":"' if not number else '"}' if number == deltas - 1 else "abcd " * (size // 5)
        )
        yield event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield event({}, "tool_calls")
    yield b"data: [DONE]\n\n"


def reads(events: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, as the network hands them over."""
    held = b""
    for one in events:
        held += one
        while len(held) >= READ:
            yield held[:READ]
            held = held[READ:]
    yield held
