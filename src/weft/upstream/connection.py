"""One HTTP/1.1 connection to an upstream: one request and its response at a time.

httptools parses, as in the server, and appends the body to `chunks` itself, so no code of ours
runs per chunk of the transfer encoding. A slow reader makes the upstream wait.
"""

import asyncio
import zlib
from collections.abc import Callable
from enum import Enum
from typing import cast

import httptools

READ_SIZE = 64 * 1024
"""After twice this many unread bytes of a response, reading from the socket is paused."""

MAX_HEAD = 64 * 1024
"""Bytes of the head of a response, including interim (1xx) responses."""

MAX_HEADERS = 128
"""Headers of a response."""

MAX_CHUNK = 4 * 1024
"""Bytes of a response that are handed over in one turn of the event loop. They can hold hundreds
of events, all of which are decoded before anything else runs."""


class ConnectionFailure(Exception):
    """Why a connection cannot be used (any more), in our own words."""


class ConnectionState(Enum):
    IDLE = "idle"
    SENT = "sent"
    """A request was sent; the head of the response has not arrived."""

    RECEIVING = "receiving"
    """The head has arrived."""

    COMPLETE = "complete"
    """The whole response has arrived, but may not have been read."""

    LOST = "lost"


# A member of an enum is found by a call of its class, in Python 3.11: too slow for every read.
IDLE, SENT, RECEIVING, COMPLETE, LOST = ConnectionState


class HttpConnection(asyncio.Protocol):
    """Call `send`, then `wait` until `state` changes, and `take` what is in `chunks`; after
    `release` the next request may be sent. `failure` says why a connection was lost.
    """

    __slots__ = ("_consumer", "_framed", "_head_size", "_header_count", "_inflater", "_on_lost",
                 "_opened", "_parser", "_paused", "_reusable", "_unread", "_waiter", "chunks",
                 "failure", "headers", "loop", "on_body", "received", "state", "status",
                 "transport")  # fmt: skip

    def __init__(self, on_lost: Callable[["HttpConnection"], None]) -> None:
        self._on_lost = on_lost
        # Kept: `asyncio.get_running_loop` asks the kernel for the process, each time.
        self.loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._consumer: Callable[[bytes], bool] | None = None
        """Takes bytes at once. Only while a task waits for them, and nothing but bytes has come."""
        self._unread = 0
        self._paused = False
        self._head_size = 0
        self._header_count = 0
        self._framed = False
        self._reusable = False
        self._inflater: zlib._Decompress | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._opened = self.loop.time()
        self.transport: asyncio.Transport | None = None
        self.state: ConnectionState = IDLE
        self.failure: BaseException | None = None
        self.received = False
        """Whether any byte of the response has arrived."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []

    # Called by the upstream

    def send(self, request: bytes) -> None:
        self.state = SENT
        self.received = False
        self.status = self._head_size = self._header_count = self._unread = 0
        self.headers, self.chunks = {}, []
        # httptools looks up its callbacks when the parser is made: this one has to exist before,
        # anew for every request, since it is a method of that request's list.
        self.on_body = self.chunks.append
        self._framed, self._reusable, self._inflater = False, False, None
        # A new parser for each response: state that a broken one left behind cannot shift the next.
        self._parser = httptools.HttpResponseParser(self)
        if self.transport is not None:
            self.transport.write(request)

    async def wait(self) -> None:
        """Returns when more has arrived, or nothing more will. One caller at a time."""
        if self._waiter is not None:
            raise RuntimeError("two readers of one response")
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        """Calls `take` with the bytes in the turn of the loop that brings them. Returns when it
        returns False, or when more than bytes must be handled: the end, a failure, compression.
        """
        self._consumer = take if self._inflater is None else None
        try:
            await self.wait()
        finally:
            self._consumer = None

    def take(self) -> bytes:
        """Returns at most MAX_CHUNK unread bytes. The rest stays in `chunks`."""
        data = self._next_chunk()
        if (inflater := self._inflater) is not None:
            try:  # a small chunk may expand a thousandfold
                data = inflater.decompress(data, MAX_CHUNK)
            except zlib.error:
                raise ConnectionFailure("the response cannot be decompressed") from None
            if len(data) == MAX_CHUNK:  # there may be more of it
                self.chunks.insert(0, inflater.unconsumed_tail)
            if self.state is COMPLETE and not self.chunks and not inflater.eof:
                raise ConnectionFailure("the compressed response is cut off")
        # Resumed only when everything was taken: a reader that is a little too slow would otherwise
        # pause and resume at every chunk.
        if not self.chunks:
            self._unread = 0
            if self._paused and self.transport is not None:
                self._paused = False
                self.transport.resume_reading()
        return data

    def _next_chunk(self) -> bytes:
        chunks, size, count = self.chunks, 0, 0
        # Nearly always, and without a copy.
        if len(chunks) == 1 and len(chunks[0]) <= MAX_CHUNK:
            return chunks.pop()
        for chunk in chunks:
            size += len(chunk)
            count += 1
            if size >= MAX_CHUNK:
                break
        data = chunks[0] if count == 1 else b"".join(chunks[:count])
        if size <= MAX_CHUNK:
            del chunks[:count]
            return data
        # Behind an event, if possible: the relay has a fast lane for whole ones.
        end = data.rfind(b"\n\n", 0, MAX_CHUNK) + 2
        end = end if end > 1 else MAX_CHUNK
        chunks[:count] = [data[end:]]
        return data[:end]

    @property
    def reusable(self) -> bool:
        """Whether it may carry another request: the response ended where its framing says, and
        nothing came after it.
        """
        return self._reusable and self.transport is not None and self.failure is None

    @property
    def age(self) -> float:
        """Seconds since it was opened."""
        return self.loop.time() - self._opened

    def release(self) -> None:
        """Makes the connection idle after its response was read."""
        self.state = IDLE
        self._parser = None

    def close(self, failure: BaseException) -> None:
        """Closes it at once; unsent data is dropped."""
        self._consumer = None
        if self.failure is None:
            self.failure = failure.with_traceback(None)  # the frames refer to the connection
        if self.transport is not None:
            self.transport.abort()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        # Unsolicited bytes: they cannot be the response to the next request (rule 2 of http.py).
        if parser is None or self.state is COMPLETE:
            self._reusable = False
            self.close(ConnectionFailure("sent data before a request"))
            return
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, ConnectionFailure) as problem:
            self._on_parse_error(problem)
        take, chunks = self._consumer, self.chunks
        # A task that was woken or cancelled, but has not run yet, gets nothing more.
        if take is None or self._waiter is None or self._waiter.done():
            self._note_unread(len(data))
            self._wake()
        # Nearly every read of a stream: one event. Where few streams keep no cache warm, it costs
        # what it touches: here, one function of ours.
        elif len(chunks) == 1 and len(data) <= MAX_CHUNK and not self._unread:
            try:
                more = take(chunks.pop())
            except Exception as problem:
                more = self._raise_in_task(problem)
            if not more:
                self._wake()
        else:
            self._note_unread(len(data))
            if not self._consume(take):
                self._wake()

    def _note_unread(self, size: int) -> None:
        self.received = True
        # Still without a head: on_header counts only whole lines, this counts a line that does not
        # end.
        if self.state is SENT:
            self._head_size += size
            if self._head_size > MAX_HEAD:
                self.close(ConnectionFailure("the response head is too large"))
        self._unread += size
        # From here on the kernel's buffer fills, and TCP makes the upstream wait.
        if self._unread > 2 * READ_SIZE and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def _consume(self, take: Callable[[bytes], bool]) -> bool:
        """Whether everything was consumed, and the consumer wants more."""
        try:
            data = self.take() if self.chunks else b""
            more = not data or take(data)  # chunked framing without data is nothing to consume
            return more and not self.chunks  # the rest is for the next turn
        except Exception as problem:
            return self._raise_in_task(problem)

    def _raise_in_task(self, problem: Exception) -> bool:
        """Raises it where `stream_to` was called: in data_received it would only be logged. Returns
        False."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(problem)
        return False

    def _on_parse_error(self, problem: Exception) -> None:
        cause = problem.__context__  # httptools wraps what our callbacks raise
        if self.state is COMPLETE:
            self._reusable = False
        elif isinstance(cause, ConnectionFailure):
            self.close(cause)
        elif self.state is SENT:
            self.close(ConnectionFailure("the response is not HTTP"))
        else:
            self.close(ConnectionFailure("the framing of the response is invalid"))

    def eof_received(self) -> bool:
        """A response without a length ends with its connection (RFC 9112, 6.3)."""
        # With a length, an end before it is a cut: connection_lost reports that.
        if self.state is RECEIVING and not self._framed and self.failure is None:
            self.state = COMPLETE
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self.transport = self._parser = None  # they refer to the connection
        if self.failure is None:
            when = _CLOSED.get(self.state, "closed the connection")
            self.failure = (problem or ConnectionFailure(when)).with_traceback(None)
        # A whole response can still be read after the connection was lost.
        if self.state is not COMPLETE:
            self.state = LOST
        self._on_lost(self)
        self._wake()

    def _wake(self) -> None:
        self._consumer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.state is COMPLETE:
            raise ConnectionFailure("more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._head_size += len(name) + len(value)
        if self._header_count > MAX_HEADERS or self._head_size > MAX_HEAD:
            raise ConnectionFailure("the response head is too large")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        # RFC 9110 (5.3): several lines of one name are one list.
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        # RFC 9110 (15.2): there may be any number of them. 101 would switch protocols, which was
        # not requested: it is refused below.
        if status // 100 == 1 and status != 101:
            self.headers = {}  # interim: the final response follows
            return
        if not 200 <= status <= 599:
            raise ConnectionFailure(f"invalid HTTP status {status:03}")
        self.status = status
        self._framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        coding = self.headers.get("content-encoding", "identity").lower()
        # Some servers compress although `identity` was requested. Other codings are not decoded:
        # the dialect's decoder reports an error.
        if coding in ("gzip", "x-gzip", "deflate"):
            # +32 detects gzip and zlib by their headers; `deflate` means zlib (RFC 9110, 8.4.1.2).
            self._inflater = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
        self.state = RECEIVING

    def on_message_complete(self) -> None:
        if self.state is RECEIVING and self._parser is not None:
            self.state = COMPLETE
            self._consumer = None  # the rest is read with the end
            # RFC 9112 (6.3): these never have a body. A response without a length ends with its
            # connection.
            framed = self._framed or self.status in (204, 304)
            self._reusable = framed and self._parser.should_keep_alive()


_CLOSED = {
    SENT: "closed the connection before the response",
    RECEIVING: "closed the connection during the response",
}
