"""Large answers: an upstream that sends them, and clients that read them without our own readers.

The name of a model says what it answers: `20` so many megabytes of text and the end, `20-held` the
text, without what ends it, and then nothing until the client leaves, `0` a few words.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import httpx

MEGABYTE = 1_000_000
PIECE = 50_000
LINE = 'He said, as he so often does when nobody asks him anything: "well…"\n'
TEXT = LINE * (PIECE // len(LINE.encode()))
"""What comes at a time: with all that JSON escapes, and more than one byte a character."""

Object = dict[str, Any]


def pieces_in(model: str) -> int:
    """How many pieces an answer has."""
    size = int(model.rpartition("/")[2].partition("-")[0]) * MEGABYTE
    return max(1, size // len(TEXT.encode()))


def text_in(model: str) -> str:
    return TEXT * pieces_in(model)


def _chunk(delta: Object, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return (
        b"data: "
        + json.dumps({"id": "c", "choices": [choice]}, ensure_ascii=False).encode()
        + b"\n\n"
    )


class LargeUpstream(http.server.ThreadingHTTPServer):
    """A chat upstream."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.held = threading.Semaphore(0)
        """Released by each answer that is held and of which nothing more will come."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LargeUpstream

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.close_connection = True
        self.send_response(200)
        is_stream = asked.get("stream", False)
        self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
        self.end_headers()
        try:
            if is_stream:
                self._stream(asked["model"])
            else:
                self._whole(asked["model"])
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was killed

    def _stream(self, model: str) -> None:
        piece = _chunk({"content": TEXT})
        for _ in range(pieces_in(model)):
            self.wfile.write(piece)
        if model.endswith("-held"):
            self._hold()
        else:
            self.wfile.write(_chunk({}, "stop") + b"data: [DONE]\n\n")

    def _whole(self, model: str) -> None:
        message = {"role": "assistant", "content": text_in(model)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "c", "object": "chat.completion", "model": model, "choices": [choice]}
        data = json.dumps(body, ensure_ascii=False).encode()
        if model.endswith("-held"):
            self.wfile.write(data[: data.rindex(b'"}')])
            self._hold()
        else:
            self.wfile.write(data)

    def _hold(self) -> None:
        """Returns when the client has left."""
        self.wfile.flush()
        self.server.held.release()
        self.rfile.read(1)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@contextmanager
def large_upstream() -> Iterator[LargeUpstream]:
    """A running one."""
    with LargeUpstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# Clients

MESSAGE = {"role": "user", "content": "Tell me."}


def asked(client: str, model: str, *, stream: bool) -> tuple[str, Object]:
    """The path and the body of a request."""
    match client:
        case "openai-responses":
            return "/v1/responses", {"model": model, "input": "Tell me.", "stream": stream}
        case "openai-chat":
            body = {"model": model, "messages": [MESSAGE], "stream": stream, "store": True}
            return "/v1/chat/completions", body
        case "anthropic-messages":
            body = {"model": model, "messages": [MESSAGE], "stream": stream, "max_tokens": 10**9}
            return "/v1/messages", body
        case _:
            verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
            contents = [{"role": "user", "parts": [{"text": "Tell me."}]}]
            return f"/v1beta/models/{model}:{verb}", {"contents": contents}


class Told:
    """What a client received: the text, and the end."""

    def __init__(self) -> None:
        self._hash = sha256()
        self.size = 0
        self.id = ""
        self.last: Object = {}
        self.snapshot = ""
        """The text once more, where the last event holds all of it."""

    def add(self, text: str) -> None:
        data = text.encode()
        self._hash.update(data)
        self.size += len(data)

    @property
    def text(self) -> tuple[int, str]:
        return self.size, self._hash.hexdigest()


def told_text(text: str) -> tuple[int, str]:
    data = text.encode()
    return len(data), sha256(data).hexdigest()


def read_event(told: Told, client: str, event: Object) -> None:
    match client:
        case "openai-responses":
            kind = event["type"]
            if kind == "response.output_text.delta":
                told.add(event["delta"])
            if kind in ("response.created", "response.completed", "response.failed"):
                told.id, told.last = event["response"]["id"], event["response"]
                told.snapshot = output_text(event["response"])
        case "openai-chat":
            told.id = event.get("id", told.id)
            for choice in event.get("choices", []):
                told.add(choice["delta"].get("content") or "")
                told.last = choice
        case "anthropic-messages":
            told.last = event
            if event["type"] == "content_block_delta":
                told.add(event["delta"]["text"])
        case _:
            told.last = event
            for part in event["candidates"][0].get("content", {}).get("parts", []):
                told.add(part.get("text", ""))


def output_text(response: Object) -> str:
    parts = [part for item in response["output"] for part in item.get("content", [])]
    return "".join(part.get("text", "") for part in parts)


def read_stream(client: str, lines: Iterator[str]) -> Told:
    """Reads what a server says, line by line."""
    told = Told()
    for line in lines:
        if line.startswith("data: ") and line != "data: [DONE]":
            read_event(told, client, json.loads(line[6:]))
    return told


def lines_of(response: httpx.Response) -> Iterator[str]:
    """Lines that end at LF and nowhere else."""
    rest: list[bytes] = []
    for data in response.iter_raw():
        *whole, last = data.split(b"\n")
        for line in whole:
            yield (b"".join([*rest, line])).decode()
            rest = []
        rest.append(last)


def text_of(client: str, body: Object) -> str:
    """The text of an answer in one piece."""
    match client:
        case "openai-responses":
            return output_text(body)
        case "openai-chat":
            text: str = body["choices"][0]["message"]["content"]
            return text
        case "anthropic-messages":
            return "".join(block["text"] for block in body["content"])
        case _:
            return "".join(part["text"] for part in body["candidates"][0]["content"]["parts"])
