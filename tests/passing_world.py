"""A gateway that stores everything, with an upstream of each dialect that sends given bytes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect

from tests.faults.upstream import LAST, STREAM, Step, Upstream, chunk, upstream
from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES, body_of, path_of
from tests.faults.world import places
from tests.gateway_process import Gateway, gateway
from tests.open_responses import TERMINAL
from tests.stores import Kind, empty
from tests.test_verify import verify

WIRES = (CHAT, RESPONSES, MESSAGES, GEMINI)
PATIENCE = 30.0
KEYS = {"one": "sk-of-the-first-client", "two": "sk-of-the-second-client"}
SETTINGS = """
[server]
grace = 0.3
[server.keys]
one = "sk-of-the-first-client"
two = "sk-of-the-second-client"
[upstreams.demo]
dialect = "openai-chat"
base_url = "demo:fast"
[store]
persist = "all"
"""


@dataclass
class Passing:
    """The gateway, who is behind it, and a client."""

    gateway: Gateway
    upstream: Upstream
    http: httpx.Client
    folder: Path

    def model(self, wire: str, *answers: Sequence[Step]) -> str:
        """The name of a model of this dialect that plays these answers, one a request."""
        return f"{wire}/{self.upstream.script(*answers)}"

    def says(self, wire: str, raw: bytes, size: int = 0) -> str:
        """A model that streams these bytes, in pieces of this size."""
        return self.model(wire, streamed(raw, size))

    def ask(
        self,
        client: str,
        model: str,
        *,
        stream: bool = True,
        key: str = "one",
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> httpx.Response:
        """Asks a model in a dialect."""
        return self.http.post(
            path_of(client, model, stream),
            content=body_of(client, model, stream, **more),
            headers={**_headers(key), "content-type": "application/json", **(headers or {})},
        )

    @contextmanager
    def ask_stream(self, client: str, model: str) -> Iterator[httpx.Response]:
        """Asks a model in a dialect, and reads its answer as it comes."""
        path, content = path_of(client, model, True), body_of(client, model, True)
        with self.http.stream("POST", path, content=content, headers=_headers("one")) as answer:
            yield answer

    def ask_over_socket(self, model: str, key: str = "one") -> list[bytes]:
        """The messages of a turn, up to its terminal event."""
        address = self.gateway.url.replace("http", "ws", 1) + "/v1/responses"
        create = {"type": "response.create", "model": model, "input": "hi"}
        messages: list[bytes] = []
        with connect(address, proxy=None, additional_headers=_headers(key)) as socket:
            socket.send(json.dumps(create))
            while not messages or json.loads(messages[-1])["type"] not in ("error", *TERMINAL):
                messages.append(socket.recv(PATIENCE, decode=False))
        return messages

    def get(self, path: str, key: str = "one") -> httpx.Response:
        return self.http.get(path, headers=_headers(key))

    def post(self, path: str, body: Mapping[str, Any], key: str = "one") -> httpx.Response:
        return self.http.post(path, json=body, headers=_headers(key))


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[key]}"}


def streamed(raw: bytes, size: int = 0, head: bytes = STREAM) -> tuple[Step, ...]:
    """An answer of these bytes, in pieces of this size."""
    size = size or len(raw) or 1
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    return (head, *map(chunk, pieces), LAST)


@contextmanager
def passing(folder: Path, store: Kind = "sqlite", *, stores: bool = True) -> Iterator[Passing]:
    """Whatever was stored is audited in the end, and nothing of it may be different."""
    settings = SETTINGS if stores else SETTINGS.replace('persist = "all"', "enabled = false")
    own = "" if store == "sqlite" else f'url = "{empty(store, folder)}"\n'
    with upstream() as staged:
        with (
            gateway(settings + own + places(staged.url), folder) as running,
            httpx.Client(base_url=running.url, timeout=30, trust_env=False) as client,
        ):
            yield Passing(running, staged, client, folder)
        errors = [line for line in running.stderr.splitlines() if '"level":"error"' in line]
        assert errors == [], errors[:3]
        if not stores:
            return
        found = verify(folder)
        assert (found.stdout.splitlines(), found.returncode) == ([], 0), found.stderr


def terminal(raw: bytes) -> dict[str, Any]:
    """The response that the last snapshot of a Responses stream tells."""
    found: dict[str, Any] = {}
    for line in raw.split(b"\n"):
        if line.startswith(b"data: {"):
            found = json.loads(line[6:]).get("response") or found
    return found
