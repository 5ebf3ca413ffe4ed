"""A stream that real hosts have sent, and that naive readers make 231 calls of."""

import json
from collections.abc import Iterator

# capture: id-in-every-chunk
CHUNKS = 231
TOOL = "run-sandbox"


def arguments() -> str:
    """What the one call of the stream is made with."""
    code = "".join(f"print({number})\n" for number in range(200))
    return json.dumps({"code": code})


def broken_stream() -> Iterator[bytes]:
    """One tool call as a DeepSeek-style upstream sends it: its id in each of 231 chunks, its
    name only in the first. Naive readers make 231 calls of it.
    """
    text = arguments()
    # Rounded up, so that the last chunk ends the text.
    size = -(-len(text) // (CHUNKS - 1))
    for number in range(CHUNKS):
        piece = text[(number - 1) * size : number * size] if number else ""
        name = TOOL if not number else ""
        yield _chunk(
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": f"functions.{TOOL}:2",
                        "type": "function",
                        "function": {"name": name, "arguments": piece},
                    }
                ]
            }
        )
    yield _chunk({}, "tool_calls")
    yield b"data: [DONE]\n\n"


def _chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
    chunk = {
        "id": "gen-231",
        "object": "chat.completion.chunk",
        "created": 1770595200,
        "model": "deepseek-style",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"
