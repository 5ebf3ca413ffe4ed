"""The largest legal inputs of every kind, and some that are refused: what a loop may stall on."""

import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from websockets.sync.client import connect

from tests.faults.upstream import LAST, STREAM, Flood, Step, Upstream, answer, chunk, stream
from tests.faults.watched import Measured
from tests.faults.wires import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Object,
    body_of,
    event,
    path_of,
    posted,
    typed,
)
from tests.faults.world import places
from tests.gateway_process import gateway

MB = 1_000_000

PATIENCE = 60.0
"""Seconds that one event over a WebSocket may take."""


@dataclass(frozen=True)
class Case:
    """One request of a client, and the status of its answer."""

    name: str
    request: bytes
    status: int = 200
    client: str = CHAT


# Requests


def conversation(dialect: str, count: int) -> Object:
    """So many messages, as a client of this dialect sends them."""
    own = "model" if dialect == GEMINI else "assistant"
    said = [((own, "user")[(count - number) % 2], f"message {number}") for number in range(count)]
    match dialect:
        case "gemini":
            return {"contents": [{"role": role, "parts": [{"text": text}]} for role, text in said]}
        case "openai-responses":
            return {"input": [{"role": role, "content": text} for role, text in said]}
    return {"messages": [{"role": role, "content": text} for role, text in said]}


def spoken(dialect: str, text: str) -> Object:
    """One message with this text."""
    if dialect == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    if dialect == RESPONSES:
        return {"input": text}
    return {"messages": [{"role": "user", "content": text}]}


def texts(size: int) -> dict[str, str]:
    """Texts that are so many bytes of JSON."""
    return {
        "ascii": "a" * size,
        "lines": ("a" * 58 + "\n") * (size // 60),
        "quotes": '"' * (size // 2),
        "accents": "é" * (size // 6),  # six bytes each, as json.dumps writes them
    }


def arrays(size: int) -> list[object]:
    """As many empty arrays as may be."""
    return [[[]] * 49_000] * min(10, max(1, size // 300_000))


def deep(size: int) -> list[object]:
    """Objects as deep as they may be, one beside the other."""
    one: object = 1
    for _ in range(58):
        one = {"a": one}
    return [one] * min(15_000, size // 360)


def _asking(
    upstream: Upstream, name: str, pair: tuple[str, str], more: Object, status: int = 200
) -> Case:
    client, target = pair
    model = f"{target}/{upstream.script(stream(*SPEECHES[target].frames))}"
    body = body_of(client, model, True, **more)
    request = posted(path_of(client, model, True), body)
    return Case(f"{name}, {client} to {target}", request, status, client)


def conversations(
    upstream: Upstream, messages: int, pairs: Sequence[tuple[str, str]]
) -> Iterator[Case]:
    """Requests of so many messages, for each of these pairs of client and upstream."""
    for pair in pairs:
        yield _asking(upstream, f"{messages} messages", pair, conversation(pair[0], messages))


def shapes(upstream: Upstream, size: int, pairs: Sequence[tuple[str, str]]) -> Iterator[Case]:
    """Requests of so many bytes that are wide, deep, or too wide."""
    for pair in pairs:
        too_many: Object = {key: [[]] * (size // 4) for key in conversation(pair[0], 1)}
        yield _asking(upstream, "too many []", pair, too_many, 400)
        yield _asking(upstream, "wide", pair, {"x_wide": arrays(size)})
        yield _asking(upstream, "deep", pair, {"x_deep": deep(size)})


def strings(upstream: Upstream, size: int, pairs: Sequence[tuple[str, str]]) -> Iterator[Case]:
    """Requests with a text of so many bytes."""
    for pair in pairs:
        for name, text in texts(size).items():
            yield _asking(upstream, name, pair, spoken(pair[0], text))


# Answers


def _chat(delta: Object, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


def tiny(dialect: str) -> bytes:
    """One of many frames, as small as an upstream of this dialect can make it."""
    delta: Object = {"type": "text_delta", "text": "a"}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return {
        CHAT: event({"choices": [{"delta": {"content": "a"}}]}),
        RESPONSES: typed({"type": "response.output_text.delta", **place, "delta": "a"}),
        MESSAGES: typed({"type": "content_block_delta", "index": 0, "delta": delta}),
        GEMINI: event({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}),
    }[dialect]


def around(dialect: str) -> tuple[list[bytes], list[bytes]]:
    """What stands before and behind the deltas of a text, so that it is one whole answer."""
    frames, mark = SPEECHES[dialect].frames, b"Warp "
    first = next(number for number, one in enumerate(frames) if mark in one)
    if dialect == RESPONSES:  # which repeats the text
        completed = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m",
                     "status": "completed", "output": []}  # fmt: skip
        return list(frames[:first]), [
            typed({"type": "response.completed", "response": completed, "sequence_number": 9})
        ]
    return list(frames[:first]), list(frames[first + 2 :])


def flood(dialect: str, size: int) -> list[Step]:
    """So many bytes of tiny frames, as fast as they are taken."""
    before, after = around(dialect)
    frame = tiny(dialect)
    piece = chunk(frame * (65536 // len(frame)))
    return [STREAM, *map(chunk, before), Flood(piece, size // len(piece)), *map(chunk, after), LAST]


def arguments(size: int) -> str:
    """Structured arguments: many small values, nested a little."""
    one = {"path": "src/a.py", "lines": [1, 2, 3.5], "why": 'it "says" so', "on": True, "x": None}
    return json.dumps({"edits": [one] * (size // 88)}, separators=(",", ":"))


def called(size: int, piece: int) -> list[Step]:
    """A call in small deltas of its arguments."""
    text = arguments(size)
    first = {"index": 0, "id": "call_1", "type": "function",
             "function": {"name": "edit", "arguments": ""}}  # fmt: skip
    deltas = [
        _chat({"tool_calls": [{"index": 0, "function": {"arguments": text[at : at + piece]}}]})
        for at in range(0, len(text), piece)
    ]
    reads = [chunk(b"".join(deltas[at : at + 100])) for at in range(0, len(deltas), 100)]
    end = [chunk(_chat({}, "tool_calls")), chunk(b"data: [DONE]\n\n")]
    return [STREAM, chunk(_chat({"tool_calls": [first]})), *reads, *end, LAST]


def long_lines(dialect: str, size: int) -> list[Step]:
    """A text in a few frames, each nearly as long as a line may be."""
    before, after = around(dialect)
    text = "a line of text, and \\n" * (7 * MB // 22)
    frame = tiny(dialect).replace(b'"a"', json.dumps(text).encode())
    return [STREAM, *map(chunk, before), *[chunk(frame)] * max(1, size // (7 * MB)),
            *map(chunk, after), LAST]  # fmt: skip


def paragraphs(dialect: str, size: int) -> list[Step]:
    """A text in frames of 50 KB, with much to escape, and more than one byte for some letters."""
    before, after = around(dialect)
    text = 'a line of text that says: "well…"\n' * (50_000 // 38)
    frame = tiny(dialect).replace(b'"a"', json.dumps(text, ensure_ascii=False).encode())
    piece = chunk(frame)
    return [STREAM, *map(chunk, before), Flood(piece, size // len(piece)), *map(chunk, after), LAST]


def whole(dialect: str, size: int) -> list[Step]:
    """A body that is not streamed."""
    body = SPEECHES[dialect].body
    return [answer(body.replace(b"Warp and weft.", b"a line of text, and \\n" * (size // 22)))]


def _answered(name: str, client: str, target: str, model: str, stream: bool = True) -> Case:
    model = f"{target}/{model}"
    request = posted(path_of(client, model, stream), body_of(client, model, stream))
    return Case(f"{name}, {client} from {target}", request, client=client)


def flooded(upstream: Upstream, size: int, client: str, target: str) -> Case:
    name = f"{size // MB} MB of tiny frames"
    return _answered(name, client, target, upstream.script(flood(target, size)))


def answers(upstream: Upstream, size: int, pairs: Sequence[tuple[str, str]]) -> Iterator[Case]:
    """Answers of so many bytes, in tiny and in large events, and a body."""
    for client, target in pairs:
        yield flooded(upstream, size, client, target)
        lines = upstream.script(long_lines(target, size))
        yield _answered(f"{size // MB} MB in long lines", client, target, lines)
        body = upstream.script(whole(target, 7 * MB))
        yield _answered("a body of 7 MB", client, target, body, False)


def calls(upstream: Upstream, size: int, clients: Sequence[str]) -> Iterator[Case]:
    """Answers that call a tool with so many bytes of arguments, in small deltas."""
    for client in clients:
        model = upstream.script(called(size, 20))
        yield _answered(f"{size} bytes of arguments", client, CHAT, model)


# The client and the gateway


ENDS = {
    CHAT: re.compile(rb'"finish_reason":\s?"'),
    RESPONSES: re.compile(rb'"status":\s?"completed"'),
    MESSAGES: re.compile(rb'"stop_reason":\s?"'),
    GEMINI: re.compile(rb'"finishReason":\s?"'),
}
"""What only a whole answer says, streamed or not."""


@dataclass(frozen=True)
class Answered:
    """What came back: its status, its first and last bytes, and whether it was whole."""

    status: int
    is_whole: bool
    head: bytes
    tail: bytes


def ask(port: int, case: Case) -> Answered:
    """Sends a request, and reads its answer as fast as it comes."""
    with socket.create_connection(("127.0.0.1", port)) as channel:
        head, _, body = case.request.partition(b"\r\n\r\n")
        channel.sendall(head + b"\r\nConnection: close\r\n\r\n")
        channel.sendall(body)
        first = tail = b""
        is_whole = False
        while data := channel.recv(1 << 20):
            first += data[: max(0, 4096 - len(first))]
            is_whole = is_whole or ENDS[case.client].search(tail[-100:] + data) is not None
            tail = (tail + data)[-4096:]
    return Answered(int(first.split(b" ")[1]), is_whole, first, tail)


def fetching(path: str, client: str = CHAT) -> Case:
    return Case(path, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), client=client)


@dataclass(frozen=True)
class Watch:
    """A gateway whose loop is sampled."""

    port: int

    def stalls(self) -> Measured:
        """What was measured since it was asked last."""
        found = ask(self.port, fetching("/stalls"))
        return msgspec.json.decode(found.tail.partition(b"\r\n\r\n")[2], type=Measured)

    def run(self, case: Case) -> str:
        """Does it; returns what is wrong with the answer, or nothing."""
        return self._wrong(case, ask(self.port, case))

    def _wrong(self, case: Case, found: Answered) -> str:
        if found.status == case.status and found.is_whole == (found.status == 200):
            return ""
        return f"{case.name}: {found.status}, expected {case.status}: {found.tail[-300:]!r}"

    def store(self, case: Case) -> str:
        """Does it; if its client may fetch the answer, it does, whole and streamed."""
        found = ask(self.port, case)
        wrong = self._wrong(case, found)
        response = _RESPONSE_ID.search(found.head) if case.client == RESPONSES else None
        if wrong or response is None:
            return wrong
        path = f"/v1/responses/{response[0].decode()}"
        again = [fetching(path, RESPONSES), fetching(f"{path}?stream=true", RESPONSES)]
        return "".join(map(self.run, again))

    def store_over_websocket(self, model: str, **more: str) -> str:
        """Requests an answer over a WebSocket; returns what is wrong with it, or nothing."""
        create = {"type": "response.create", "model": model, "input": "Tell me.", **more}
        address = f"ws://127.0.0.1:{self.port}/v1/responses"
        with connect(address, max_size=None, ping_timeout=None) as socket:
            socket.send(json.dumps(create))
            status = ""
            while status in ("", "in_progress"):
                event = json.loads(socket.recv(PATIENCE))
                if event.get("stream_id") != more.get("stream_id"):
                    return f"an event of another stream: {str(event)[:300]}"
                status = event.get("response", {}).get("status", "")
        return "" if status == "completed" else f"over a websocket: {status}: {str(event)[-300:]}"


_RESPONSE_ID = re.compile(rb"resp_[0-9a-zA-Z]+")


def stored(upstream: Upstream, size: int, clients: Sequence[str]) -> Iterator[Case]:
    """Answers of so many bytes of text, streamed and whole, from an upstream of another dialect and
    of the client's own."""
    for client in clients:
        for target in {client: None, CHAT: None, MESSAGES: None}:
            name = f"{size // MB} MB"
            model = upstream.script(paragraphs(target, size))
            yield _answered(f"{name} streamed", client, target, model)
            model = upstream.script(whole(target, size))
            yield _answered(f"{name} whole", client, target, model, False)


@contextmanager
def watched(folder: Path, upstream: Upstream, *, stores: bool = False) -> Iterator[Watch]:
    """A gateway with an upstream of each dialect, which stores everything, or nothing."""
    demo = '[upstreams.demo]\nbase_url = "demo:fast"\ndialect = "openai-chat"\n'
    limits = "[server.limits]\nmemory = 2_000_000_000\n"  # two of the largest at a time
    store = "[store]\npersist = 'all'\n" if stores else "[store]\nenabled = false\n"
    settings = limits + store + demo + places(upstream.url)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = (sys.executable, "-m", "tests.faults.watched")
    with gateway(settings, folder, environment=environment, command=command) as running:
        made = Watch(int(running.url.rpartition(":")[2]))
        made.stalls()  # how long it took to start is no matter
        yield made
