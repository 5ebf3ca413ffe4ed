"""HTTP by hand: a tiny app behind the gateway's own server, and a client that sends any bytes."""

import asyncio
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import uvicorn
from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    HTTPScope,
    Scope,
)

from weft.gateway import http_protocol
from weft.gateway.exchange import EXCHANGE
from weft.gateway.exchange import Exchange as HttpExchange
from weft.gateway.http_protocol import ConnectionLimits
from weft.gateway.server import GatewayServer, listen, serve
from weft.gateway.workers import supervise

PATIENCE = 20.0
"""Seconds that a test waits for what must come; far more than it takes."""


# The server's side


class Tiny:
    """An app with one path for each thing that can happen. `say` is told what happened."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.loop: asyncio.AbstractEventLoop | None = None
        self.going_on = asyncio.Event()
        self.cutting = asyncio.Event()
        self.sent = 0
        self._paths: dict[str, Callable[[Exchange], object]] = {}

    @property
    def app(self) -> ASGI3Application:
        return self._serve

    def drain(self) -> None:
        self.say("drain")

    def abort(self) -> None:
        self.say("cut")
        self.cutting.set()

    def go_on(self) -> None:
        """Lets the streams end; from any thread."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.going_on.set)

    async def _serve(
        self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope["path"], receive, send)
        else:
            exchange = Exchange(self, scope, receive, send)
            exchange.exchange.mark_authenticated()
            await getattr(exchange, scope["path"].strip("/").replace("/", "_") or "echo")()

    async def _live(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        self.loop = asyncio.get_running_loop()
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.say("shutdown")
        await send({"type": "lifespan.shutdown.complete"})

    async def _socket(
        self, path: str, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        await receive()
        if path == "/silent":
            await self.going_on.wait()
        await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
        self.say("accepted")
        try:
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": str(message.get("text"))})
        finally:
            self.say("socket-gone")


@dataclass
class Exchange:
    """One request to the tiny app: a method for each path."""

    tiny: Tiny
    scope: HTTPScope
    receive: ASGIReceiveCallable
    send: ASGISendCallable

    async def echo(self) -> None:
        """What came, as JSON."""
        body = await self._body()
        if body is None:
            self.tiny.say("gone")
            return
        names = sorted(name.decode() for name, _ in self.scope["headers"])
        said = {"method": self.scope["method"], "body": body.decode("latin-1"), "headers": names}
        await self._answer(200, json.dumps(said).encode())

    v1_messages = v1beta_x = echo

    async def pid(self) -> None:
        await self._answer(200, b"%d" % os.getpid())

    async def early(self) -> None:
        """An answer before the body."""
        await self._answer(200, b"early")

    async def patient(self) -> None:
        """Reads the body when it is told to."""
        self.tiny.say("waiting")
        await self.tiny.going_on.wait()
        await self.echo()

    async def too_large(self) -> None:
        await self._answer(413, b"too large", (b"connection", b"close"))

    async def half(self) -> None:
        """A begun answer; the rest comes after the body."""
        await self._start(200)
        await self._piece(b"begun", more=True)
        body = await self._body()
        self.tiny.say("gone" if body is None else "whole")
        await self._piece(b"", more=False)

    async def stream(self) -> None:
        """An answer that ends when it is told to, or cut."""
        await self._start(200)
        await self._piece(b"one,", more=True)
        self.tiny.say("streaming")
        waits = (self.tiny.going_on.wait(), self.tiny.cutting.wait(), self._gone())
        tasks = [asyncio.ensure_future(one) for one in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        said = next(word for task, word in zip(tasks, _ENDS, strict=True) if task.done())
        self.tiny.say(said)
        for task in tasks:
            task.cancel()
        await self._piece(said.encode(), more=False)

    async def watched(self) -> None:
        """As `stream`; but the client is watched, and only its body is waited for."""
        self.tiny.say("waiting")
        await self._body()
        over = asyncio.Event()
        self.exchange.on_disconnect(lambda: self._left(over))
        await self._start(200)
        await self._piece(b"one,", more=True)
        self.tiny.say("streaming")
        waits = (self.tiny.going_on.wait(), self.tiny.cutting.wait(), over.wait())
        tasks = [asyncio.ensure_future(one) for one in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await self._piece(b"two", more=False)
        if not over.is_set():
            self.exchange.on_disconnect(lambda: self.tiny.say("left, though answered"))
        self.tiny.say("told")

    async def watched_late(self) -> None:
        """Watches the client when it is told to."""
        self.tiny.say("waiting")
        await self.tiny.going_on.wait()
        self.exchange.on_disconnect(lambda: self.tiny.say("left"))
        self.tiny.say("watched")

    async def poured(self) -> None:
        """As much as there is room for, written at once; then the rest."""
        await self._start(200)
        await self._piece(b"one,", more=True)
        while self.exchange.write(bytes(16384)):
            self.tiny.sent += 16384
        self.tiny.sent += 16384
        self.tiny.say("full")
        await self._piece(b",two", more=False)
        self.tiny.say("more" if self.exchange.write(b"three") else "over")

    async def direct(self) -> None:
        """As `echo` of the body alone, past ASGI where that is possible."""
        body = await self._body() or b""
        passed = self.exchange.respond([(b"x-kind", b"whole")], body)
        if not passed:
            await self._answer(200, body, (b"x-kind", b"whole"))
        self.tiny.say("past ASGI" if passed else "by ASGI")

    async def direct_stream(self) -> None:
        """A stream of the body and of its end, past ASGI where that is possible."""
        body = await self._body() or b""
        passed = self.exchange.start([(b"x-kind", b"stream")], body or b"-")
        if not passed:
            await self._start(200, (b"x-kind", b"stream"))
            await self._piece(body or b"-", more=True)
        self.exchange.write(b",more")
        ended = self.exchange.end()
        if not ended:
            await self._piece(b"", more=False)
        self.tiny.say("past ASGI" if passed and ended else "by ASGI")

    async def direct_body(self) -> None:
        """The body, taken if it has arrived; then that there is no second one."""
        taken = self.exchange.take_body()
        self.tiny.say("begun")
        body = (await self._body() or b"") if taken is None else taken
        said = b"received " if taken is None else b"taken "
        waits = asyncio.ensure_future(self.receive())
        await asyncio.sleep(0)
        self.tiny.say("told" if waits.done() else "waiting")
        assert not self.exchange.try_write(b"too early")
        assert self.exchange.start([], said)
        assert self.exchange.try_write(body) or not body  # an empty chunk would be the end
        assert self.exchange.end()
        assert not self.exchange.try_write(b"too late")
        self.tiny.say((await waits)["type"])

    async def failing(self) -> None:
        """Fails before it answers."""
        raise RuntimeError("on purpose")

    async def failing_late(self) -> None:
        """Fails while it answers."""
        await self._start(200, (b"content-length", b"8"))
        await self._piece(b"half", more=True)
        raise RuntimeError("on purpose")

    async def failing_silently(self) -> None:
        """Does not answer."""

    async def direct_broken(self) -> None:
        """A header that would be two, and an empty chunk, which would be the end."""
        headers = [(b"x-kind", b"a%bx-forged: b" % (await self._body() or b""))]
        words = (
            self.exchange.respond(headers, b"a"),
            self.exchange.start(headers, b"a"),
            self.exchange.start([], b""),
        )
        await self._answer(200, b"sent" if any(words) else b"refused")

    async def direct_gone(self) -> None:
        """Writes to a client that has left."""
        left = asyncio.Event()
        await self._body()
        self.exchange.on_disconnect(left.set)
        self.tiny.say("waiting")
        await left.wait()
        words = (
            self.exchange.respond([], b"a"),
            self.exchange.start([], b"a"),
            self.exchange.end(),
        )
        self.tiny.say("written" if any(words) else "gone")

    def _left(self, over: asyncio.Event) -> None:
        self.tiny.say("left" if not over.is_set() else "left again")
        over.set()

    @property
    def exchange(self) -> HttpExchange:
        exchange: HttpExchange = self.scope[EXCHANGE]  # type: ignore[literal-required]
        return exchange

    async def flood(self) -> None:
        """More than anyone reads."""
        gone = asyncio.ensure_future(self._gone())
        await self._start(200)
        while not gone.done():
            await self._piece(bytes(16384), more=True)
            self.tiny.sent += 16384
            await asyncio.sleep(0)
        self.tiny.say("gone")

    async def tail(self) -> None:
        """An answer that is soon over, and longer than the client's buffers."""
        await self._start(200)
        await self._piece(bytes(4_000_000), more=False)
        self.tiny.say("over")

    async def stubborn(self) -> None:
        """Work that does not end, whoever asks."""
        self.tiny.say("working")
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    async def block(self) -> None:
        """Work that lets nobody else work."""
        time.sleep(0.3)
        await self._answer(200, b"blocked")

    async def _body(self) -> bytes | None:
        body = b""
        while (message := await self.receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                return body
        return None

    async def _gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _answer(self, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
        await self._start(status, (b"content-length", b"%d" % len(body)), *more)
        await self._piece(body, more=False)

    async def _start(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        start: ASGISendEvent = {
            "type": "http.response.start",
            "status": status,
            "headers": list(headers),
        }
        await self.send(start)

    async def _piece(self, body: bytes, *, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})


_ENDS = ("two", "cut", "gone")


@dataclass
class Running:
    """A server in this process."""

    port: int
    tiny: Tiny
    server: GatewayServer
    said: "queue.Queue[str]"

    def client(self) -> "Client":
        return Client(self.port)

    def expect(self, *words: str) -> None:
        """Waits until these were said, in this order."""
        assert tuple(self.said.get(timeout=PATIENCE) for _ in words) == words


@contextmanager
def running(
    limits: ConnectionLimits, *, loop: str = "auto", keep_alive: float = 75.0
) -> Iterator[Running]:
    """A server with these limits, in a thread."""
    said: queue.Queue[str] = queue.Queue()
    tiny = Tiny(said.put)
    config = uvicorn.Config(
        tiny.app,
        http=http_protocol.protocol(limits),
        loop=loop,
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=keep_alive,  # type: ignore[arg-type]
    )
    ready = threading.Event()
    server = GatewayServer(config, tiny, drain=0.0, ready=ready.set)
    sockets = listen("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield Running(port, tiny, server, said)
    finally:
        server.stop()
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


# The client's side


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection. Whatever does not come in time fails the test."""

    OPEN: ClassVar[set["Client"]] = set()

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        self.OPEN.add(self)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        self._read = b""
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.OPEN.discard(self)
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until(self, mark: bytes) -> bytes:
        """What comes up to the mark, and the mark."""
        while mark not in self._read:
            piece = self.socket.recv(65536)
            assert piece, f"closed before {mark!r}: {self._read!r}"
            self._read += piece
        found, _, self._read = self._read.partition(mark)
        return found + mark

    def exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            piece = self.socket.recv(65536)
            assert piece, f"closed before {size} bytes: {self._read!r}"
            self._read += piece
        found, self._read = self._read[:size], self._read[size:]
        return found

    def rest(self) -> bytes:
        """What comes until the server closes."""
        found, self._read = self._read, b""
        while piece := self._receive():
            found += piece
        return found

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""

    def answer(self) -> Answer:
        """The next whole answer."""
        status, headers = self.head()
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, self._chunks())
        return Answer(status, headers, self.exactly(int(headers.get("content-length", "0"))))

    def head(self) -> tuple[int, dict[str, str]]:
        line, *lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]
        return int(line.split()[1]), dict(one.split(": ", 1) for one in lines)

    def _chunks(self) -> bytes:
        found = b""
        while size := int(self.until(b"\r\n"), 16):
            found += self.exactly(size)
            assert self.exactly(2) == b"\r\n"
        assert self.exactly(2) == b"\r\n"
        return found

    def answers(self) -> list[Answer]:
        """All answers until the server closes."""
        self._read = self.rest()
        found = []
        while self._read:
            found.append(self.answer())
        return found

    def ask(self, path: str = "/echo", body: bytes = b"") -> Answer:
        self.send(request(path, body))
        return self.answer()

    def upgrade(self, path: str) -> None:
        """Makes a WebSocket of the connection, whose frames are made by hand."""
        key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: Upgrade",
                 "Upgrade: websocket", "Sec-WebSocket-Version: 13", key, "", ""]  # fmt: skip
        self.send("\r\n".join(lines).encode())
        assert self.head()[0] == 101

    def is_closed(self) -> bool:
        """Whether the server has closed; waits for it."""
        return self.rest() == b""


def refuses(port: int) -> bool:
    """Whether nobody listens at a port any more: who waited there when it was closed is reset."""
    try:
        Client(port).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    return False


def frame(opcode: int, data: bytes, *, last: bool = True, size: int | None = None) -> bytes:
    """A WebSocket frame of a client, whose mask changes nothing; `size` is told instead of its
    own."""
    told = len(data) if size is None else size
    head = bytes([opcode | (0x80 if last else 0)])
    length = bytes([0xFE]) + told.to_bytes(2) if told < 65536 else b"\xff" + told.to_bytes(8)
    return head + (bytes([0x80 | told]) if told < 126 else length) + bytes(4) + data


def request(path: str = "/echo", body: bytes = b"", *headers: str) -> bytes:
    lines = ["POST " + path + " HTTP/1.1", "Host: localhost", *headers]
    if not any(one.lower().startswith(("content-length", "transfer-encoding")) for one in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


# Whole processes


def _heard() -> None:
    """A job in the background ignores this signal, and would hand that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """`python -m tests.raw_http …`: says on stdout what happens, goes on at a line on stdin."""

    def __init__(self, mode: str, drain: float = 30.0) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.raw_http", mode, str(drain)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_heard,
            process_group=0,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        self.logged: list[str] = []
        self._threads = [
            threading.Thread(target=self._hear, daemon=True),
            threading.Thread(target=self._keep_log, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _hear(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("(end)")

    def _keep_log(self) -> None:
        assert self.popen.stderr is not None
        self.logged.extend(self.popen.stderr)

    def log(self) -> str:
        """All that it logged, when it is over."""
        self._threads[1].join(PATIENCE)
        return "".join(self.logged)

    def expect(self, start: str) -> str:
        """Waits for a line that starts so."""
        end = time.monotonic() + PATIENCE
        while True:
            line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            self.said.append(line)
            if line.startswith(start):
                return line
            assert line != "(end)", (self.said, self.logged)

    @cached_property
    def port(self) -> int:
        return int(self.expect("listening on ").rpartition(":")[2])

    def client(self) -> Client:
        return Client(self.port)

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def go_on(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def exit_code(self) -> int:
        return self.popen.wait(PATIENCE)


def _say(word: str) -> None:
    os.write(1, f"{word}\n".encode())  # in one piece: several processes say something


def _tiny() -> Tiny:
    tiny = Tiny(_say)
    threading.Thread(target=_hear, args=(tiny,), daemon=True).start()
    return tiny


def _hear(tiny: Tiny) -> None:
    for _ in sys.stdin:
        tiny.go_on()


class Broken(Tiny):
    """An app that does not start."""

    async def _live(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})


def main(mode: str, drain: str) -> int:
    limit = float(drain)
    if mode.endswith("-signalled"):  # once more, on its last steps
        code = main(mode.removesuffix("-signalled"), drain)
        os.kill(os.getpid(), signal.SIGTERM)
        return code
    if mode == "one":
        return serve(_tiny, host="127.0.0.1", port=0, drain=limit)
    if mode == "one-broken":
        return serve(lambda: Broken(_say), host="127.0.0.1", port=0, drain=limit)
    life = die if mode == "two-dying" else partial(live, mode, limit)
    return supervise(2, life, host="127.0.0.1", port=0)


def live(mode: str, limit: float, sockets: list[socket.socket], ready: Callable[[], None]) -> int:
    tiny = Broken(_say) if mode == "two-broken" else Tiny(_say)
    return serve(lambda: tiny, sockets=sockets, ready=ready, drain=limit)


def die(sockets: list[socket.socket], ready: Callable[[], None]) -> int:
    _say(f"started {time.monotonic()}")
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
