"""Chat Completions streams for tests: chunks as a server sends them."""

import json
from collections.abc import Mapping, Sequence

Delta = Mapping[str, object]


def chunk(delta: Delta, reason: str | None = None, **more: object) -> bytes:
    """One event of one choice."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "m-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        **more,
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def entry(
    index: int | None = None,
    id: str | None = None,
    name: str | None = None,
    arguments: str | None = None,
) -> dict[str, object]:
    """One entry of `tool_calls`; what is None is absent."""
    function = {"name": name, "arguments": arguments}
    told = {key: value for key, value in function.items() if value is not None}
    known: dict[str, object] = {"index": index, "id": id, "type": "function", "function": told}
    return {key: value for key, value in known.items() if value is not None}


def calls(*entries: dict[str, object]) -> bytes:
    """One event with these entries."""
    return chunk({"tool_calls": list(entries)})


def stream(events: Sequence[bytes], reason: str | None = "stop") -> bytes:
    """The events, a finish reason, and the terminator."""
    end = [chunk({}, reason)] if reason else []
    return b"".join([*events, *end, b"data: [DONE]\n\n"])
