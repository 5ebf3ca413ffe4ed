"""A gateway that can be killed, its database, an upstream that stops where it is told to, and
clients that keep every byte they were sent.
"""

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
import httpx

from tests.faults.upstream import Upstream
from tests.faults.world import place, until
from tests.gateway_process import Gateway, gateway
from tests.stored_logs import as_sent, events_of
from tests.stores import Kind, audit, empty, whole_log
from weft import check
from weft.store.base import Store
from weft.store.records import Block, Entry
from weft.store.urls import store_from_url

T = TypeVar("T")
Object = dict[str, Any]

SOON = 30.0
"""Seconds within which what a dead process left has ended, also on a busy machine."""

PATIENCE = 120.0
"""Seconds without a byte after which a client calls it a hang. A request may wait for the lease,
for its beginning and for its end, and a database that is away is waited for each time."""

SERVER = "[server]\ngrace = 20.0\nkeepalive = 0\n"
"""After its finish reason an upstream may take its time: a test decides when it ends."""

ASKED_ONCE: Object = {"retry": {"attempts": 1}, "breaker": {"failures": 0}}


class Stream:
    """One answer as it comes. `seen` is all of it so far."""

    def __init__(self, url: str, path: str, body: Object | None, key: str = "") -> None:
        """Asks; nothing is read yet."""
        self.seen = b""
        self.status = 0
        self.broken = False
        """Whether the connection broke before the answer was complete."""
        self._raw = b""
        self._over = False
        host, _, port = url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self._socket.sendall(_request(path, body, key))

    def until(self, mark: bytes) -> "Stream":
        while mark not in self.seen:
            assert self._more(), f"over before {mark!r}: {self.status} {self.seen!r}"
        return self

    def begins(self) -> bool:
        """Whether the head has come; reads what is there, and waits for nothing."""
        self._socket.setblocking(False)
        try:
            while not self.status and self._more():
                pass
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(PATIENCE)
        return bool(self.status)

    def rest(self) -> bytes:
        """All of it, as far as it came."""
        while self._more():
            pass
        return self.seen

    def tail(self, size: int = 65536) -> bytes:
        """The last bytes, with the chunk headers; the others are dropped."""
        found = self._raw[-size:]
        while not found.endswith(b"0\r\n\r\n") and (piece := self._socket.recv(1 << 20)):
            found = (found + piece)[-size:]
        return found

    def _more(self) -> bool:
        """Reads the next bytes; returns whether there were any."""
        if self._over or self.broken:
            return False
        try:
            piece = self._socket.recv(65536)
        except ConnectionError:
            piece = b""
        if not piece:
            self.broken = True
            return False
        self._raw += piece
        if not self.status and b"\r\n\r\n" in self._raw:
            head, _, self._raw = self._raw.partition(b"\r\n\r\n")
            self.status = int(head.split()[1])
            if b"content-length" in head:
                size = int(head.partition(b"content-length: ")[2].split()[0])
                self._raw = b"%x\r\n%b" % (size, self._raw)
                self._last = b""
        if self.status:
            self._unchunk()
        return True

    def _unchunk(self) -> None:
        while not self._over:
            size, mark, rest = self._raw.partition(b"\r\n")
            if not mark or len(rest) < int(size, 16) + len(self._last):
                return
            self.seen += rest[: int(size, 16)]
            self._raw = rest[int(size, 16) + len(self._last) :]
            self._over = not int(size, 16) or not self._last

    _last = b"\r\n"
    """What ends a chunk."""

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _request(path: str, body: Object | None, key: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"] if data else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def _sent(blocks: Sequence[Block]) -> bytes:
    """What a client was sent, of which these blocks are the log."""
    return as_sent(events_of(blocks))


class Database:
    """What the gateway stores in, seen from another process."""

    def __init__(self, kind: Kind, folder: Path, url: str = "") -> None:
        """Without a URL: an empty database."""
        self.kind = kind
        self.url = url or empty(kind, folder)
        self._runner = asyncio.Runner()
        self._store: Store | None = None

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = store_from_url(self.url)
            self.run(self._store.open())
        return self._store

    def entry(self, id: str) -> Entry | None:
        return self.run(self.store.entry(id))

    def entries(self) -> list[Entry]:
        return self.run(self.store.entries())

    def log(self, id: str) -> bytes:
        """What is stored of a log by now."""
        return _sent(self.run(whole_log(self.store, id)))

    def audit(self) -> dict[str, Entry]:
        return self.run(audit(self.store, _sent))

    def holds(self, id: str, mark: bytes) -> None:
        """Waits until the log of a response holds this."""
        until(lambda: mark in self.log(id), f"{mark!r} in the store")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else can write; everybody can read."""
        if self.kind == "sqlite":
            other = sqlite3.connect(self.path, isolation_level=None, timeout=10)
            try:
                other.execute("BEGIN IMMEDIATE")
                yield
            finally:
                other.close()
        else:
            held = self.run(asyncpg.connect(self.url))
            try:
                self.run(held.execute("BEGIN; LOCK TABLE response, block IN EXCLUSIVE MODE"))
                yield
            finally:
                self.run(held.close())

    def close(self) -> None:
        if self._store is not None:
            self.run(self._store.close())
        self._runner.close()


@dataclass
class Scene:
    upstream: Upstream
    database: Database
    folder: Path
    more: str = ""
    """Further lines of `[store]`."""

    keys: str = ""
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def settings(self) -> str:
        url = self.upstream.url
        return "\n".join(
            (
                SERVER + self.keys,
                f"[store]\nurl = {json.dumps(self.database.url)}\n{self.more}",
                place("chat", "openai-chat", url, **ASKED_ONCE),
                place("echo", "openai-responses", url, **ASKED_ONCE),
            )
        )

    def start(
        self, prefix: Sequence[str] = (), environment: dict[str, str] | None = None
    ) -> Gateway:
        """One more gateway on the same database; `prefix` is the command that runs it."""
        made = gateway(self.settings, self.folder, prefix=prefix, environment=environment)
        return self._running.enter_context(made)

    def start_and_kill(self, when: Callable[[], bool]) -> None:
        """Starts one, and kills it as soon as this is true, wherever it is on its way."""
        command = Path(sys.executable).with_name("weft")
        with subprocess.Popen(
            [str(command), "serve", "--config", "weft.toml", "--port", "0"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                until(when, "a gateway on its way")
            finally:
                process.kill()

    def begin(self, model: str, **more: object) -> Object:
        """The body of a request."""
        return {"model": model, "input": "Hello?", **more}

    def close(self) -> None:
        self._running.close()
        self.database.close()


def kill(running: Gateway) -> None:
    """Ends a gateway between two of its instructions."""
    running.process.kill()
    running.process.wait()


@contextmanager
def scene(kind: Kind, folder: Path, upstream: Upstream, more: str = "") -> Iterator[Scene]:
    made = Scene(upstream, Database(kind, folder), folder, more)
    try:
        yield made
    finally:
        made.close()


# Asking

http = httpx.Client(
    verify=False,
    timeout=PATIENCE,
    limits=httpx.Limits(max_keepalive_connections=0),
    trust_env=False,
)
"""A connection for each request: who answered the last one may be dead."""


def get(running: Gateway, path: str, key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return http.get(running.url + path, headers=headers)


def post(running: Gateway, path: str, body: Object | None = None, key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return http.post(running.url + path, json=body, headers=headers)


def ended(running: Gateway, id: str, patience: float = SOON, key: str = "") -> Object:
    """The response as soon as it has ended."""
    found: Object = {}

    def over() -> bool:
        found.update(get(running, f"/v1/responses/{id}", key).json())
        return found["status"] not in ("queued", "in_progress")

    until(over, f"the end of {id}", patience)
    return found


def resumed(running: Gateway, id: str, after: int | None = None) -> bytes:
    """What a client is sent that saw the events up to this one."""
    more = "" if after is None else f"&starting_after={after}"
    with Stream(running.url, f"/v1/responses/{id}?stream=true{more}", None) as stream:
        told = stream.rest()
        assert (stream.status, stream.broken) == (200, False), told
        return told


def idle(running: Gateway) -> None:
    """Returns when the gateway has turned to whatever came before this."""
    for _ in range(3):
        assert get(running, "/health").status_code == 200


# Events


def events(raw: bytes) -> list[Object]:
    """The events of a stream, as far as they are whole; without its terminator."""
    frames = [one for one in raw.split(b"\n\n")[:-1] if not one.startswith(b":")]
    data = [one.partition(b"data: ")[2] for one in frames]
    return [json.loads(one) for one in data if one != b"[DONE]"]


def id_in(raw: bytes) -> str:
    """The id of the response that a stream begins with."""
    return str(events(raw)[0]["response"]["id"])


def numbers(raw: bytes) -> list[int]:
    return [int(event["sequence_number"]) for event in events(raw)]


def text_of(raw: bytes) -> str:
    told = (one for one in events(raw) if one["type"] == "response.output_text.delta")
    return "".join(str(one["delta"]) for one in told)


def arguments_of(raw: bytes) -> str:
    kind = "response.function_call_arguments.delta"
    return "".join(str(one["delta"]) for one in events(raw) if one["type"] == kind)


TERMINAL = ("response.completed", "response.incomplete", "response.failed")
DONE = b"data: [DONE]\n\n"


def broken_rules(log: bytes) -> list[str]:
    """The rules that a log breaks."""
    return sorted({finding.code for finding in check(log, dialect="openai-responses")})
