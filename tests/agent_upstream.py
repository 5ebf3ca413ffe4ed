"""A model on loopback that speaks Chat Completions and follows a script.

What it answers depends on the request alone: the number of assistant messages in it is the number
of the turn. So a turn that is asked again gets the same answer, from whichever process.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Chunks = Sequence[dict[str, object]]
Script = Callable[[list[dict[str, Any]]], Chunks | int]
"""The chunks of the answer to these messages, or a status without one."""


def call(index: int, id: str, name: str | None, arguments: object) -> dict[str, object]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text} if name is not None else {"arguments": text}
    return {"index": index, "id": id, "type": "function", "function": function}


def calls(*made: dict[str, object]) -> Chunks:
    return [
        {"delta": {"role": "assistant", "tool_calls": list(made)}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]


def text(words: str) -> Chunks:
    return [
        {"delta": {"role": "assistant", "content": words}},
        {"delta": {}, "finish_reason": "stop"},
    ]


def billed(chunks: Chunks, input: int, output: int) -> Chunks:
    """The chunks, with these tokens at their end."""
    usage = {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}
    return [*chunks[:-1], {**chunks[-1], "usage": usage}]


def by_turn(*turns: Chunks | int) -> Script:
    """The nth entry answers the nth turn; the last one all that follow."""

    def script(messages: list[dict[str, Any]]) -> Chunks | int:
        turn = len([one for one in messages if one["role"] == "assistant"])
        return turns[min(turn, len(turns) - 1)]

    return script


def by_agent(**scripts: Script) -> Script:
    """Each agent has its own script, by the first letter of its instructions."""

    def script(messages: list[dict[str, Any]]) -> Chunks | int:
        return scripts[messages[0]["content"][0]](messages)

    return script


@dataclass
class AgentUpstream:
    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """The `Authorization` of each request that has one."""


@contextmanager
def agent_upstream(script: Script) -> Iterator[AgentUpstream]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            upstream.requests.append(body)
            upstream.keys += self.headers.get_all("authorization", [])
            answer = script(body["messages"])
            if isinstance(answer, int):
                self._send(answer, "application/json", b'{"error":{"message":"not today"}}')
                return
            lines = []
            for choice in answer:
                told = {name: choice[name] for name in ("usage",) if name in choice}
                rest = {name: value for name, value in choice.items() if name not in told}
                chunk = {
                    "id": "chatcmpl-1",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "m",
                    "choices": [{"index": 0, "finish_reason": None, **rest}],
                    **told,
                }
                lines.append(f"data: {json.dumps(chunk)}\n\n")
            self._send(200, "text/event-stream", ("".join(lines) + "data: [DONE]\n\n").encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the tests look at the requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    upstream = AgentUpstream(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
