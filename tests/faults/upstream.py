"""An upstream on loopback that plays, for each model, what a test told it to.

    model = upstream.script((HEAD, chunk(b"data: …"), RESET))
    ...                                # ask the gateway for that model
    upstream.exchange(model).left()    # waits until the gateway has closed

The model is the key: tests of one worker share the server, and do not see each other. Scripts of
one model are played in their order, one a request; the last serves all that follow.
"""

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from urllib.parse import unquote

PATIENCE = 60.0
"""Seconds that a test waits for something that must happen."""

_GEMINI = re.compile(r"/v1beta/models/([^/?]+):")


class End(Enum):
    FIN = "fin"
    RESET = "reset"
    SILENCE = "silence"


FIN, RESET, SILENCE = End
"""How a script may end: by closing, by a reset, by saying nothing more until the peer leaves."""


class Hold:
    """A place in a script that goes on when it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.reached.set()
        await self.released.wait()

    def here(self) -> None:
        """Waits until the script has come to it."""
        assert self.reached.wait(PATIENCE), "the script did not come so far"

    def release(self) -> None:
        self.here()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.released.set)


@dataclass(frozen=True)
class Flood:
    """The same bytes again and again, as fast as they are taken."""

    piece: bytes
    times: int


Step = bytes | Hold | End | Flood


@dataclass
class Exchange:
    """One request, and what became of it."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""

    body: bytes
    came: float
    """When it was there (time.monotonic)."""

    sent: int = 0
    """Bytes that were given to the network."""

    moment: float = 0.0
    """When the peer was seen to be gone (time.monotonic)."""

    _gone: threading.Event = field(default_factory=threading.Event)

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    def leave(self) -> None:
        if not self._gone.is_set():
            self.moment = time.monotonic()
            self._gone.set()

    def left(self) -> float:
        """Waits until the peer is gone; returns when that was."""
        assert self._gone.wait(PATIENCE), "the upstream was not left"
        return self.moment


class _Over(Exception):
    """The connection has ended."""


class _Connection(asyncio.Protocol):
    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self._buffer = bytearray()
        self._came = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._lost = asyncio.Event()
        self._exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(0)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._came.set()

    def eof_received(self) -> None:
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def _leave(self) -> None:
        self._lost.set()
        self._came.set()
        self._drained.set()
        if self._exchange is not None:
            self._exchange.leave()
        self._task.cancel()

    async def _serve(self) -> None:
        try:
            while True:
                exchange = await self._read()
                self._exchange = exchange
                for step in self._upstream.begin(exchange):
                    await self._play(step, exchange)
                self._exchange = None
        except (_Over, asyncio.CancelledError):
            self._transport.close()

    async def _until(self, size: int) -> None:
        while len(self._buffer) < size:
            self._came.clear()
            await self._came.wait()

    async def _read(self) -> Exchange:
        while b"\r\n\r\n" not in self._buffer:
            await self._until(len(self._buffer) + 1)
            if self._buffer.startswith(b"\x16"):  # a TLS handshake
                raise _Over
        head, _, _ = bytes(self._buffer).partition(b"\r\n\r\n")
        del self._buffer[: len(head) + 4]
        line, *lines = head.decode("latin-1").split("\r\n")
        pairs = (one.partition(":") for one in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        size = int(headers.get("content-length", 0))
        await self._until(size)
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return Exchange(line.split(" ")[1], headers, body, time.monotonic())

    async def _play(self, step: Step, exchange: Exchange) -> None:
        match step:
            case bytes():
                await self._send(step, exchange)
            case Flood():
                for _ in range(step.times):
                    await self._send(step.piece, exchange)
            case Hold():
                await step.wait()
            case End.SILENCE:
                await self._lost.wait()
            case End.FIN:
                raise _Over
            case End.RESET:
                channel = self._transport.get_extra_info("socket")
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._transport.abort()
                raise _Over

    async def _send(self, piece: bytes, exchange: Exchange) -> None:
        self._transport.write(piece)
        await asyncio.sleep(0)  # others want to live, too
        await self._drained.wait()
        if self._lost.is_set():
            raise _Over
        exchange.sent += len(piece)


class Upstream:
    """The server. It lives in a thread of its own."""

    def __init__(self) -> None:
        self.port = 0
        self._scripts: dict[str, Sequence[Sequence[Step]]] = {}
        self._exchanges: dict[str, list[Exchange]] = defaultdict(list)
        self._changed = threading.Condition()
        self._numbers = count(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, *scripts: Sequence[Step], prefix: str = "model") -> str:
        """Returns the name of a model that plays these."""
        model = f"{prefix}-{next(self._numbers)}"
        self._scripts[model] = scripts
        return model

    def named(self, model: str, *scripts: Sequence[Step]) -> None:
        """Has a model of this name play these."""
        self._scripts[model] = scripts

    def exchanges(self, model: str, number: int = 0) -> list[Exchange]:
        """What came for a model so far; waits until so many have."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self._exchanges[model]) >= number, PATIENCE)
            assert came, f"waited in vain for {number} requests"
            return list(self._exchanges[model])

    def exchange(self, model: str) -> Exchange:
        """Waits for the first request of a model."""
        return self.exchanges(model, 1)[0]

    # In the thread

    def begin(self, exchange: Exchange) -> Sequence[Step]:
        model = _model_of(exchange)
        scripts = self._scripts.get(model, [[b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"]])
        with self._changed:
            met = self._exchanges[model]
            met.append(exchange)
            self._changed.notify_all()
        return scripts[min(len(met), len(scripts)) - 1]

    async def run(self, ready: threading.Event, over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=2048
        )
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await over.wait()
        server.close()


def _model_of(exchange: Exchange) -> str:
    found = _GEMINI.match(exchange.path)
    if found is not None:
        return unquote(found[1])
    # A request for the list of models has no body, and gets an answer at once: 410, as every model
    # without a script.
    return str(json.loads(exchange.body)["model"]) if exchange.body else ""


@contextmanager
def upstream(prepare: Callable[[], object] = lambda: None) -> Iterator[Upstream]:
    """A running upstream, in a thread that calls `prepare` first."""
    made, ready = Upstream(), threading.Event()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    def live() -> None:
        prepare()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(made.run(ready, over))

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


# Bytes of answers

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
"""The head of a stream in chunks."""

LAST = b"0\r\n\r\n"


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def stream(*frames: bytes) -> tuple[bytes, ...]:
    """A whole stream."""
    return (STREAM, *map(chunk, frames), LAST)


def answer(body: bytes, status: str = "200 OK", *lines: str) -> bytes:
    """A whole answer with a length; JSON, unless the lines say otherwise."""
    kind = () if any(one.lower().startswith("content-type") for one in lines) else _JSON
    head = "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *kind, *lines))
    return head.encode() + b"\r\n\r\n" + body


_JSON = ("Content-Type: application/json",)
