"""upstream.c once more, slower: for machines without a C compiler. See there."""

import asyncio
import json
import re
import sys
from itertools import chain

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n"
STREAM = HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
MODEL = re.compile(rb'"model": *"(?:[^"/]*/)*([^"/]*)"')


def answer(kind: str, choice: dict[str, object] | None, **more: object) -> bytes:
    body = {
        "id": "chatcmpl-Bq7uJXz2mYk0",
        "object": kind,
        "created": 1790000000,
        "model": "bench-model",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [] if choice is None else [{"index": 0, **choice}],
        **more,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 31, "completion_tokens": tokens, "total_tokens": tokens + 31}


def chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
    return answer("chat.completion.chunk", {"delta": delta, "finish_reason": reason})


def framed(payload: bytes) -> bytes:
    event = b"data: %b\n\n" % payload
    return b"%x\r\n%b\r\n" % (len(event), event)


def stream(tokens: int) -> list[bytes]:
    """What is written at a time: the role, each token, and the end."""
    texts = ({"content": f" tok{number:05}"} for number in range(tokens))
    deltas = [framed(chunk(one)) for one in chain([{"role": "assistant", "content": ""}], texts)]
    counted = answer("chat.completion.chunk", None, usage=usage(tokens))
    end = b"".join(map(framed, (chunk({}, "stop"), counted, b"[DONE]")))
    return [STREAM + deltas[0], *deltas[1:], end + b"0\r\n\r\n"]


def body(tokens: int) -> bytes:
    text = "".join(f" tok{number:05}" for number in range(tokens))
    message = {"role": "assistant", "content": text}
    choice: dict[str, object] = {"message": message, "finish_reason": "stop"}
    whole = answer("chat.completion", choice, usage=usage(tokens))
    return HEAD % (b"application/json", b"Content-Length: %d" % len(whole)) + whole


async def tell(model: str, writer: asyncio.StreamWriter) -> None:
    name, *numbers = model.split("-")
    if name == "plain":
        writer.write(body(int(numbers[0])))
    elif name == "burst":
        writer.write(b"".join(stream(int(numbers[0]))))
    else:
        pieces = stream(int(numbers[0]) if numbers else 2)
        writer.write(pieces[0] + pieces[1])
        if not numbers:
            await asyncio.Event().wait()  # idle: until the connection ends
        for piece in pieces[2:]:
            await asyncio.sleep(int(numbers[1]) / 1000)
            writer.write(piece)
    await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            asked = await reader.readexactly(int(length[1]) if length else 0)
            model = MODEL.search(asked)
            await tell(model[1].decode() if model else "idle", writer)
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
