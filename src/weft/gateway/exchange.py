"""One request and its response on a connection: as ASGI has it, and beyond it."""

import asyncio
import re
import sys
import weakref
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

from weft.gateway.access import note_response
from weft.gateway.buffered_transport import BufferedTransport, DirectWriter
from weft.gateway.connections import ConnectionRegistry, TrackedConnection
from weft.gateway.error_responses import ErrorResponse
from weft.gateway.uvicorn_internals import (
    ASGIReceiveEvent,
    ASGISendEvent,
    RequestResponseCycle,
)

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

MAX_UNREAD_BODY = 262144
"""Bytes of a body that are read after its response, so that the connection can be reused."""

EXCHANGE = "weft.exchange"
"""The key of the Exchange in the scope."""

_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What the value of a header cannot hold (RFC 9110, 5.5)."""


class ServedConnection(TrackedConnection, Protocol):
    """A connection whose requests are answered."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def registry(self) -> ConnectionRegistry: ...


class Cycle(RequestResponseCycle):
    """One request and its response, as ASGI has it. A body that came with its head is not awaited,
    so there is no event for it before somebody waits."""

    exchange: "Exchange"
    has_news = False
    """Whether bytes of the body, or its end, have arrived since the last message."""

    arrival: asyncio.Event | None = None
    """Set when there is news, or none will come."""

    ends_with_connection = False
    """Whether the body of the response has neither a length nor chunks."""

    replacement: ErrorResponse | None = None
    """What the client gets instead of the app's response, if its body is refused. The app learns
    only that it need not answer."""

    def disconnect(self) -> None:
        """Tells the app that its client disconnected."""
        if not self.response_complete:
            self.disconnected = True
        if self.arrival is not None:
            self.arrival.set()
        self.exchange.notify_disconnect()

    async def receive(self) -> ASGIReceiveEvent:
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self.has_news:
                self.arrival = self.arrival or asyncio.Event()
                self.arrival.clear()
                await self.arrival.wait()
        if self.disconnected or self.response_complete:
            # Here, since this runs in the task of the request, which its access record belongs to;
            # and an app that misses a part of the body is waiting here for it.
            if self.replacement is not None:
                note_response(self.replacement.status, self.replacement.part)
            return {"type": "http.disconnect"}
        body, self.body, self.has_news = bytes(self.body), bytearray(), False
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: ASGISendEvent) -> None:
        # RFC 9112 (6.1, 6.3): HTTP/1.0 has no chunks, and a body without a length ends with its
        # connection. uvicorn counts it down as if it had one.
        if message["type"] == "http.response.start" and self.scope["http_version"] == "1.0":
            names = {name.lower() for name, _ in message.get("headers", ())}
            self.ends_with_connection = b"content-length" not in names
            if self.ends_with_connection:
                self.chunked_encoding, self.expected_content_length = False, sys.maxsize
        if self.ends_with_connection and message["type"] == "http.response.body":
            left = sys.maxsize if message.get("more_body") else 0
            self.expected_content_length = left + len(message.get("body", b""))
        await super().send(message)


class Exchange:
    """One request and its response, beyond ASGI: an app can write without waiting for a turn of
    the loop, and learns of a disconnect without a task that waits for it.
    """

    __slots__ = ("_callback", "_cycle", "_protocol", "_transport", "loop", "memory", "task")

    def __init__(
        self, protocol: "ServedConnection", cycle: Cycle, transport: BufferedTransport
    ) -> None:
        # Strong references would be a cycle (protocol, cycle, scope, this), and a closed connection
        # with its buffers would stay until the garbage collector runs.
        self._protocol = weakref.ref(protocol)
        self._cycle = weakref.ref(cycle)  # its scope holds this
        self._transport = transport
        self._callback: Callable[[], None] | None = None
        self.loop = protocol.loop
        self.memory = protocol.registry.memory
        """Where the app reserves memory for the body."""
        self.task: asyncio.Task[None] | None = None
        """That of the app, once it runs."""

    def mark_authenticated(self) -> None:
        """The request is authorized: its connection counts as one with a key from now on."""
        protocol = self._protocol()
        if protocol is not None:
            protocol.registry.forget(protocol)

    def close_if_unread(self) -> None:
        """To be called before the head of a response: says in it that the connection ends, if the
        body has not come. A client that is not told sends its next request on it (RFC 9112, 9.6).
        """
        cycle = self._cycle()
        if cycle is not None and cycle.more_body and not cycle.response_started:
            cycle.keep_alive = False

    def take_body(self) -> bytes | None:
        """Returns the body of the request, once, if all of it has arrived; None if it has to be
        received, as ASGI says."""
        cycle = self._cycle()
        if cycle is None or cycle.more_body or cycle.disconnected or cycle.response_complete:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.has_news = False
        if cycle.flow.read_paused:
            cycle.flow.resume_reading()
        return body

    def try_write(self, data: bytes) -> bool:
        """Sends a chunk of a stream that has begun. Returns False, and does nothing, if the client
        has to catch up first, or the ASGI way has to do it."""
        cycle = self._cycle()
        if cycle is None or cycle.disconnected or cycle.flow.write_paused or not data:
            return False
        if not cycle.response_started or cycle.response_complete or not cycle.chunked_encoding:
            return False
        self._transport.write_chunk(data)
        return True

    def write(self, data: bytes) -> bool:
        """Sends a piece of a response body that has begun and has no Content-Length; returns False
        if the client has to catch up first."""
        cycle = self._cycle()
        if cycle is None or cycle.disconnected or cycle.response_complete:
            return False
        if cycle.chunked_encoding:
            self._transport.write_chunk(data)
        else:  # HTTP/1.0
            self._transport.write(data)
        return not cycle.flow.write_paused

    def direct(self) -> DirectWriter | None:
        """A writer for chunks of a response body, which does what `write` does; None if that is not
        possible. No other may be in use."""
        cycle, protocol = self._cycle(), self._protocol()
        if cycle is None or protocol is None or cycle.disconnected or cycle.response_complete:
            return None
        if not cycle.response_started or not cycle.chunked_encoding:
            return None
        return self._transport.open_direct(paused=cycle.flow.write_paused)

    def respond(self, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Sends a whole response with status 200 in one write; returns False if the ASGI way has to
        do it, as for `start`."""
        cycle = self._cycle()
        head = self._head(cycle, headers, (b"content-length", b"%d" % len(body)))
        if cycle is None or head is None:
            return False
        self._transport.write(head + body)
        self._complete(cycle)
        return True

    def start(self, headers: list[tuple[bytes, bytes]], data: bytes) -> bool:
        """Sends the head of a stream with status 200 and its first chunk in one write. Returns
        False, and does nothing, if that has to wait, or the connection ends with the response."""
        if not data:  # an empty chunk would be the end
            return False
        cycle = self._cycle()
        head = self._head(cycle, headers, (b"transfer-encoding", b"chunked"))
        if cycle is None or head is None:
            return False
        cycle.chunked_encoding = True
        self._transport.write(b"%b%x\r\n%b\r\n" % (head, len(data), data))
        return True

    def end(self) -> bool:
        """Ends a stream that `start` began; returns False if the ASGI way has to do it."""
        cycle = self._cycle()
        if cycle is None or cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        if not cycle.response_started or cycle.response_complete or not cycle.chunked_encoding:
            return False
        self._transport.write(b"0\r\n\r\n")
        self._complete(cycle)
        return True

    def _head(
        self,
        cycle: Cycle | None,
        headers: list[tuple[bytes, bytes]],
        framing: tuple[bytes, bytes],
    ) -> bytes | None:
        """The head of a response, which is about to be sent; None if the ASGI way has to send
        it."""
        if cycle is None or cycle.disconnected or cycle.response_started:
            return None
        if cycle.flow.write_paused or not cycle.keep_alive:
            return None
        head, values = b"HTTP/1.1 200 OK\r\n", b""
        for name, value in (*cycle.default_headers, *headers, framing):
            head += b"%b: %b\r\n" % (name, value)
            values += value
        # Values that could end a line: uvicorn refuses them.
        if _CONTROLS.search(values):
            return None
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        return head + b"\r\n"

    def _complete(self, cycle: Cycle) -> None:
        """Does what uvicorn does after the last byte."""
        cycle.response_complete = True
        cycle.on_response()

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Calls this when the client disconnects before the response is complete; at once, if it
        has already."""
        self._callback = callback
        cycle = self._cycle()
        if cycle is None:  # complete
            return
        if cycle.flow.read_paused:
            cycle.flow.resume_reading()  # a disconnect is noticed only while reading
        if cycle.disconnected:
            self.notify_disconnect()

    def notify_disconnect(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


def may_be_left_unread(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body is so long that the connection ends if the app answers without reading it."""
    length = headers.get(b"content-length")
    return length is None or int(length) > MAX_UNREAD_BODY


def closing_if_unread(exchange: Exchange, send: Send) -> Send:
    """An ASGI `send` that says so in the head of such an answer."""

    def send_message(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            exchange.close_if_unread()
        return send(message)

    return send_message
