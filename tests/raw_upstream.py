"""A server on loopback that sends the bytes it is told, and notes what it got and who left when.

    with raw_upstream((HEAD + b"one", hold, b"two", RESET)) as upstream:
        ...                        # ask upstream.url
        upstream.got(1)            # waits for the first request
        hold.reached.wait(5)       # "one" is on its way
        upstream.left()            # waits until the peer of the first connection is gone

Each argument is the script of one exchange: the first request, on whichever connection, gets the
first, and so on; the last serves all that follow. A script is played once its request has come,
and the connection waits for the next one after it, unless the script ended it.
"""

import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

PATIENCE = 60.0
"""Seconds that a test waits for something that must happen."""


class End(Enum):
    FIN = "fin"
    RESET = "reset"
    SILENCE = "silence"


FIN, RESET, SILENCE = End
"""How a script may end: by closing, by a reset, by saying nothing more until the peer leaves."""


class Hold:
    """A place in a script that goes on when it is let go, however often it is come to."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.wake, self._end = os.pipe()
        self._lock = threading.Lock()

    def release(self) -> None:
        with self._lock:
            if self._end != -1:
                os.close(self._end)  # whoever waits at the other end sees it
                self._end = -1

    def __del__(self) -> None:
        self.release()
        os.close(self.wake)


Step = bytes | Hold | End


@dataclass(frozen=True)
class Script:
    """Steps, and how much of the request is read before and while they are played."""

    steps: tuple[Step, ...]
    reads: Literal["all", "head"] = "all"


@dataclass(frozen=True)
class Request:
    """What came: header names are in lower case, in the order of the wire."""

    method: str
    path: str
    fields: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    """Which one, counted from 0."""

    moment: float

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.fields)


@dataclass(frozen=True)
class Left:
    """The moment (time.monotonic) at which a peer was seen to be gone, and how it went."""

    moment: float
    how: Literal["fin", "reset", "tls"]


class _Over(Exception):
    """The connection has ended, or the server is to stop."""


@dataclass
class _Connection:
    sock: socket.socket
    index: int
    buffer: bytearray = field(default_factory=bytearray)
    reading: bool = True
    sent: int = 0


class RawUpstream:
    def __init__(
        self, scripts: Sequence[Script], greeting: Script, tls: ssl.SSLContext | None
    ) -> None:
        self.requests: list[Request] = []
        self._scripts = scripts
        self._greeting = greeting
        self._tls = tls
        self._changed = threading.Condition()
        self._connections: list[_Connection] = []
        self._left: dict[int, Left] = {}
        self._threads: list[threading.Thread] = []
        self._stopping, self._stop = os.pipe()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many were made."""
        return len(self._connections)

    def sent(self, connection: int = 0) -> int:
        """Bytes that the kernel has taken from us on a connection."""
        return self._connections[connection].sent

    def accepted(self, number: int = 1) -> None:
        """Waits until so many connections were made."""
        self._wait(lambda: len(self._connections) >= number, f"{number} connections")

    def got(self, number: int = 1) -> list[Request]:
        """Waits until so many requests have come; returns all that have."""
        self._wait(lambda: len(self.requests) >= number, f"{number} requests")
        return list(self.requests)

    def left(self, connection: int = 0) -> Left:
        """Waits until the peer of a connection is gone."""
        self._wait(lambda: connection in self._left, f"the peer of {connection} to leave")
        return self._left[connection]

    def gone(self) -> int:
        """How many peers are gone by now."""
        return len(self._left)

    # The server's own threads: one that accepts, one a connection

    def start(self) -> None:
        self._threads.append(threading.Thread(target=self._accept, daemon=True))
        self._threads[0].start()

    def stop(self) -> None:
        os.close(self._stop)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a script hangs"
        self._listener.close()
        os.close(self._stopping)

    def _accept(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._stopping, select.POLLIN)
        while self._stopping not in dict(poll.poll()):
            sock, _ = self._listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(sock, len(self._connections))
            with self._changed:
                self._connections.append(connection)
                self._changed.notify_all()
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: _Connection) -> None:
        try:
            self._secure(connection)
            self._play(connection, self._greeting)
            while True:
                self._play(connection, self._requested(connection))
        except _Over:
            pass
        finally:
            connection.sock.close()

    def _secure(self, connection: _Connection) -> None:
        if self._tls is not None and SILENCE not in self._greeting.steps:
            connection.sock.settimeout(PATIENCE)
            try:
                connection.sock = self._tls.wrap_socket(connection.sock, server_side=True)
            except OSError:
                self._note(connection, "tls")
        connection.sock.setblocking(False)

    def _requested(self, connection: _Connection) -> Script:
        """Reads a request as far as its script wants it; returns the script."""
        connection.reading = True
        while b"\r\n\r\n" not in connection.buffer:
            self._turn(connection)
        head, _, rest = bytes(connection.buffer).partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = line.split(" ")
        pairs = (one.partition(":") for one in lines)
        fields = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        with self._changed:
            script = self._scripts[min(len(self.requests), len(self._scripts) - 1)]
        connection.reading = script.reads == "all"
        length = int(dict(fields).get("content-length", 0)) if connection.reading else 0
        connection.buffer[:] = rest
        while len(connection.buffer) < length:
            self._turn(connection)
        body = bytes(connection.buffer[:length])
        del connection.buffer[:length]
        request = Request(method, path, fields, body, connection.index, time.monotonic())
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return script

    def _play(self, connection: _Connection, script: Script) -> None:
        for step in script.steps:
            match step:
                case bytes():
                    self._send(connection, step)
                case Hold():
                    step.reached.set()
                    while not self._turn(connection, wake=step.wake):
                        pass
                case End():
                    self._end(connection, step)

    def _send(self, connection: _Connection, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            before = connection.sent
            self._turn(connection, view)
            view = view[connection.sent - before :]

    def _end(self, connection: _Connection, end: End) -> None:
        sock = connection.sock
        if end is RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise _Over
        if end is FIN:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        while True:
            self._turn(connection)

    def _turn(
        self, connection: _Connection, out: memoryview | bytes = b"", wake: int | None = None
    ) -> bool:
        """Waits for one thing to happen, and does it; returns whether `wake` woke it."""
        sock, poll = connection.sock, select.poll()
        reads = select.POLLIN if connection.reading else 0
        poll.register(sock, reads | (select.POLLOUT if out else 0))
        poll.register(self._stopping, select.POLLIN)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        found = dict(poll.poll())
        if self._stopping in found:
            raise _Over
        happened = found.get(sock.fileno(), 0)
        try:
            if happened & select.POLLIN:
                self._receive(connection)
            elif happened & (select.POLLHUP | select.POLLERR):
                self._note(connection, "reset")
            if happened & select.POLLOUT:
                connection.sent += sock.send(out)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            pass  # there was less to do than it seemed
        except OSError:  # of TLS, too: a peer may leave in the middle of a record
            self._note(connection, "reset")
        return wake is not None and wake in found

    def _receive(self, connection: _Connection) -> None:
        while True:
            piece = connection.sock.recv(1 << 16)
            if not piece:
                self._note(connection, "fin")
            connection.buffer += piece
            if not isinstance(connection.sock, ssl.SSLSocket):
                return

    def _note(self, connection: _Connection, how: Literal["fin", "reset", "tls"]) -> None:
        with self._changed:
            self._left.setdefault(connection.index, Left(time.monotonic(), how))
            self._changed.notify_all()
        raise _Over

    def _wait(self, true: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(true, PATIENCE), f"waited in vain for {what}"


@contextmanager
def raw_upstream(
    *scripts: Script | Sequence[Step],
    greeting: Sequence[Step] = (),
    tls: ssl.SSLContext | None = None,
) -> Iterator[RawUpstream]:
    """A server that plays these scripts. `greeting` is played on each new connection, before
    anything is read from it; SILENCE there is kept even to a TLS handshake.
    """
    made = [one if isinstance(one, Script) else Script(tuple(one)) for one in scripts]
    upstream = RawUpstream(made or [Script((SILENCE,))], Script(tuple(greeting)), tls)
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()


# Bytes of answers

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HEAD = EVENTS + b"Transfer-Encoding: chunked\r\n\r\n"
"""The head of a stream in chunks."""

LAST = b"0\r\n\r\n"


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def answer(body: bytes, status: str = "200 OK", *lines: str) -> bytes:
    """A whole answer with a length."""
    head = "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines))
    return head.encode() + b"\r\n\r\n" + body


# A certificate for localhost and 127.0.0.1 that nobody trusts, made for these tests

PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgBMOu9ez0cFVJW3OU
xoCM01dhgOH4Q5Xmzjg8myuJWImhRANCAATomdjtT/QjdPaH6AEQgFck1wFxkdfW
UN9eccs6mjAkvyNgoNBMTJt69Q8rTb+AXtyXATMrPnWyBOLb/Xkb2JSi
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBSDCB7qADAgECAgEBMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMMCWxvY2FsaG9z
dDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowFDESMBAGA1UEAwwJ
bG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6JnY7U/0I3T2h+gB
EIBXJNcBcZHX1lDfXnHLOpowJL8jYKDQTEybevUPK02/gF7clwEzKz51sgTi2/15
G9iUoqMvMC0wGgYDVR0RBBMwEYIJbG9jYWxob3N0hwR/AAABMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAJWvqh7jHwZqgYr7wJbbJv/jzqbJHNur
TWnISGadKQDXAiEAy0v5G+RoPHokBRfaUAqGx3wcwqtNPGiZciKefZTZj3k=
-----END CERTIFICATE-----
"""


def certified(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A context for a server on loopback, and the file that makes a client trust it."""
    file = folder / "localhost.pem"
    file.write_text(PEM)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, file
