"""The transport of a client connection: how much was written to it, and whether it is read."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

MAX_UNSENT = 65536
"""Bytes for one client that the kernel buffers before it has sent them (TCP_NOTSENT_LOWAT)."""


class DirectWriter:
    """Sends chunks of one response without any step in between; see relay.direct_line."""

    __slots__ = ("events", "last_activity", "paused", "send", "sent", "size")

    def __init__(self, send: Callable[[bytes], None], *, paused: bool) -> None:
        self.send = send
        self.paused = paused
        self.events = self.size = self.sent = 0
        self.last_activity = 0.0


class BufferedTransport(asyncio.Transport):
    """Counts the bytes written to one connection; its owner decides how it is closed."""

    def __init__(self, inner: asyncio.Transport, close: Callable[[], None], now: float) -> None:
        # Without the constructor of its base class, which only makes a place for extra information:
        # `inner` has that.
        self.inner = inner
        self.written = 0
        """Bytes, without those that `direct` has sent."""
        self.direct: DirectWriter | None = None
        """Of the response that is being sent, if it has one."""
        self._head: bytes | None = None
        self._sent = 0
        self._last_progress = now
        self.protocol: asyncio.BaseProtocol | None = None
        self._close: Callable[[], None] | None = close

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends the data. A response head waits for what follows it in the same turn of the loop:
        both leave in one packet, by one system call.
        """
        self.written += len(data)
        if self._head is not None:
            head, self._head = self._head, None
            self.inner.write(head + bytes(data))
        elif data[:5] == b"HTTP/" and data[-4:] == b"\r\n\r\n":
            # uvicorn writes a head in one piece. What looks like one and is not (100 Continue, or a
            # body that quotes HTTP) leaves a turn of the loop later, nothing else changes.
            self._head = bytes(data)
            asyncio.get_running_loop().call_soon(self._flush_head)
        else:
            self.inner.write(data)

    def write_chunk(self, data: bytes) -> None:
        """Sends a chunk of a body without Content-Length."""
        # RFC 9112 (7.1): size in hex, data. An empty chunk would end the body; callers never write
        # one.
        chunk = b"%x\r\n%b\r\n" % (len(data), data)
        self.written += len(chunk)
        if self._head is not None:
            self._flush_head()
        self.inner.write(chunk)

    def _flush_head(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self.inner.write(head)

    def open_direct(self, *, paused: bool) -> DirectWriter:
        """Returns a writer for the response that has begun."""
        self._flush_head()
        if self.direct is not None:
            self.written += self.direct.sent
        self.direct = DirectWriter(self.inner.write, paused=paused)
        return self.direct

    def pause_direct(self, paused: bool) -> None:
        if self.direct is not None:
            self.direct.paused = paused

    def stalled_for(self, now: float) -> float:
        """Returns the seconds since the client last read something, while data waits for it. Exact
        only to the time between two calls."""
        waiting = self.inner.get_write_buffer_size()
        taken = self.written - waiting
        if self.direct is not None:
            taken += self.direct.sent
        # Progress is what the kernel took, not what was written: an upstream that keeps sending
        # must not make its client look alive.
        if not waiting or taken != self._sent:
            self._sent, self._last_progress = taken, now
        return now - self._last_progress

    def is_closing(self) -> bool:
        return self._close is None or self.inner.is_closing()

    def close(self) -> None:
        self._flush_head()
        # Once: uvicorn closes in connection_lost again.
        if not self.is_closing() and self._close is not None:
            close, self._close = self._close, None
            close()

    def detach(self) -> None:
        """Drops the references to the owner and the protocol, which hold this one."""
        self._close = self.protocol = None

    def abort(self) -> None:
        self.inner.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol
        self.inner.set_protocol(protocol)

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def can_write_eof(self) -> bool:
        return self.inner.can_write_eof()

    def write_eof(self) -> None:
        self._flush_head()
        self.inner.write_eof()

    def get_write_buffer_size(self) -> int:
        return self.inner.get_write_buffer_size() + len(self._head or b"")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)


def set_socket_options(listener: socket.socket) -> None:
    """Sends small events at once, and lets the kernel buffer little of what is not sent. All
    connections of a listening socket inherit it."""
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Otherwise the kernel takes megabytes for a client that does not read: our own buffer would be
    # a small part of what waits, and the upstream would be read on for as long.
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT)
