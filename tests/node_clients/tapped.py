"""A tap in front of the gateway: passes every byte on, and knows how each request was answered.

The gateway's log tells of what reached an upstream; a client may also be refused before that, ask
for paths that there are none of, or count tokens.
"""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"(?:^|(?<=\n)|(?<=[}\]0]))([A-Z]{3,7} /\S* HTTP/1\.1)\r\n")
_STATUS = re.compile(rb"(?:^|(?<=\n)|(?<=[}\]]))HTTP/1\.1 (\d{3}) [^\r]*\r\n")


@dataclass
class Connection:
    """What went each way."""

    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)

    def exchanges(self) -> list[tuple[str, int, str]]:
        """Each request line, the status of its answer, and the answer."""
        lines = [found[1].decode() for found in _REQUEST.finditer(bytes(self.asked))]
        heads = list(_STATUS.finditer(bytes(self.answered)))
        ends = [head.start() for head in heads[1:]] + [len(self.answered)]
        bodies = [
            bytes(self.answered[head.start() : end]).decode(errors="replace")
            for head, end in zip(heads, ends, strict=True)
        ]
        statuses = [int(head[1]) for head in heads]
        return list(zip(lines, statuses, bodies, strict=False))


class Tap:
    """Listens, and passes on to the gateway."""

    def __init__(self, base: str) -> None:
        self._target = urlsplit(base)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connections: list[Connection] = []
        self._threads: list[threading.Thread] = []
        self._open: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listening.accept()
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        connection = Connection()
        self._connections.append(connection)
        place = (self._target.hostname or "", self._target.port or 0)
        with client, socket.create_connection(place) as gateway:
            self._open.add(client)
            back = threading.Thread(target=_pass, args=(gateway, client, connection.answered))
            back.start()
            _pass(client, gateway, connection.asked)
            back.join()
            self._open.discard(client)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for client in list(self._open):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    @property
    def exchanges(self) -> list[tuple[str, int, str]]:
        return [one for connection in self._connections for one in connection.exchanges()]


def _pass(one: socket.socket, other: socket.socket, kept: bytearray) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            kept += data
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@contextmanager
def tapped(base: str) -> Iterator[Tap]:
    tap = Tap(base)
    thread = threading.Thread(target=tap.serve)
    thread.start()
    try:
        yield tap
    finally:
        tap.close()
        thread.join()
