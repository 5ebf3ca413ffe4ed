"""The same as upstream.c, slower: for machines without a C compiler. See there."""

import asyncio
import json
import re
import sys

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


def chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
    return answer("chat.completion.chunk", {"delta": delta, "finish_reason": reason})


def framed(payload: bytes) -> bytes:
    event = b"data: %b\n\n" % payload
    return b"%x\r\n%b\r\n" % (len(event), event)


def texts(tokens: int) -> list[dict[str, object]]:
    """The role, and each token."""
    found: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    found += ({"content": f" tok{number:05}"} for number in range(tokens))
    return found


def arguments(text: str, **more: object) -> dict[str, object]:
    name = {"name": "write"} if more else {}
    return {"tool_calls": [{"index": 0, **more, "function": {**name, "arguments": text}}]}


def call(tokens: int) -> list[dict[str, object]]:
    found = (arguments(f" tok{number:05}, and so on") for number in range(tokens))
    first = arguments('{"text":"', id="call_1", type="function")
    return [first, *found, arguments('"}')]


def stream(tokens: int, deltas: list[dict[str, object]], reason: str = "stop") -> list[bytes]:
    """What is written at a time: each delta, and the end."""
    first, *others = (framed(chunk(one)) for one in deltas)
    counted = answer("chat.completion.chunk", None, usage=usage(tokens))
    end = b"".join(map(framed, (chunk({}, reason), counted, b"[DONE]")))
    return [STREAM + first, *others, end + b"0\r\n\r\n"]


def body(tokens: int) -> bytes:
    text = "".join(f" tok{number:05}" for number in range(tokens))
    message = {"role": "assistant", "content": text}
    choice: dict[str, object] = {"message": message, "finish_reason": "stop"}
    whole = answer("chat.completion", choice, usage=usage(tokens))
    return HEAD % (b"application/json", b"Content-Length: %d" % len(whole)) + whole


async def respond(model: str, writer: asyncio.StreamWriter) -> None:
    name, *numbers = model.split("-")
    if name == "plain":
        writer.write(body(int(numbers[0])))
    elif name == "burst":
        writer.write(b"".join(stream(int(numbers[0]), texts(int(numbers[0])))))
    elif name == "tool":
        writer.write(b"".join(stream(int(numbers[0]), call(int(numbers[0])), "tool_calls")))
    else:
        tokens = int(numbers[0]) if numbers else 2
        pieces = stream(tokens, texts(tokens))
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
            request = await reader.readexactly(int(length[1]) if length else 0)
            model = MODEL.search(request)
            await respond(model[1].decode() if model else "idle", writer)
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
