"""One connection to an upstream: it carries one request and its answer at a time.

The parser is httptools', as in the server; the body is kept in the pieces it came in. So nothing
of ours runs for a chunk, and little for a read. Whoever reads slowly has the upstream wait.
"""

import asyncio
import zlib
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import cast

import httptools

READ_SIZE = 64 * 1024
"""Twice this much of an answer waits unread; then the upstream is read no further."""

HEAD_SIZE = 64 * 1024
"""Bytes of the head of an answer, interim answers included."""

FIELDS = 128
"""Headers of an answer."""

TURN = 4 * 1024
"""Bytes of an answer that are handed on in one turn of the loop. They may be hundreds of events,
and what each of them means is found out before anybody else is served."""


class Broken(Exception):
    """What an upstream sent is no answer, or no more of one; said in our own words."""


class State(Enum):
    """Where a line stands."""

    IDLE = "idle"
    ASKED = "asked"
    ANSWERING = "answering"
    """The head is there."""

    COMPLETE = "complete"
    """So is the rest, though perhaps unread."""

    LOST = "lost"


class Line(asyncio.Protocol):
    """Use it for one request after the other: `ask`, then wait for a change of `state`, and take
    what is in `pieces`. `fault` tells why a line was lost.
    """

    def __init__(self, lost: Callable[["Line"], None]) -> None:
        self._on_lost = lost
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._taker: Callable[[bytes], bool] | None = None
        self._unread = 0
        self._paused = False
        self._head_size = 0
        self._framed = False
        self._reusable = False
        self._inflater: zlib._Decompress | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self.transport: asyncio.Transport | None = None
        self.state = State.IDLE
        self.fault: BaseException | None = None
        self.used = False
        """Whether it carried an answer before."""
        self.heard = False
        """Whether a byte of the answer came."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []

    # For whoever asks

    def ask(self, request: bytes) -> None:
        self.state = State.ASKED
        self.heard = False
        self.status = self._head_size = self._unread = 0
        self.headers, self.pieces = {}, []
        self.on_body = self.pieces.append
        self._framed, self._reusable, self._inflater = False, False, None
        self._fields = 0
        self._parser = httptools.HttpResponseParser(self)
        if self.transport is not None:
            self.transport.write(request)

    async def change(self) -> None:
        """Returns when more has come, or nothing will. One at a time."""
        if self._waiter is not None:
            raise RuntimeError("two readers of one answer")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """Hands on what comes, in the turn that brings it, until that is enough, or there is more
        to it than bytes: the end, a fault, a compressed answer.
        """
        self._taker = take
        try:
            await self.change()
        finally:
            self._taker = None

    def take(self) -> bytes:
        """Returns what has come and was not taken: so much of it as one turn of the loop is for.
        The rest stays in `pieces`.
        """
        data = self._next_piece()
        if self._inflater is not None:
            data = self._inflated(data, self._inflater)
        if not self.pieces:
            self._unread = 0
            if self._paused and self.transport is not None:
                self._paused = False
                self.transport.resume_reading()
        return data

    def _next_piece(self) -> bytes:
        pieces, size, count = self.pieces, 0, 0
        if len(pieces) == 1 and len(pieces[0]) <= TURN:
            return pieces.pop()
        for piece in pieces:
            size += len(piece)
            count += 1
            if size >= TURN:
                break
        data = pieces[0] if count == 1 else b"".join(pieces[:count])
        if size <= TURN:
            del pieces[:count]
            return data
        pieces[:count] = [data[TURN:]]
        return data[:TURN]

    @property
    def reusable(self) -> bool:
        """Whether it may carry another request: the answer ended where its framing says, and
        nothing came after it.
        """
        return self._reusable and self.transport is not None and self.fault is None

    def rest(self) -> None:
        """The answer was taken; another may be asked for."""
        self.state = State.IDLE
        self.used = True
        self._parser = None

    def end(self, fault: BaseException) -> None:
        """Closes it at once: what was not sent yet is dropped."""
        if self.fault is None:
            self.fault = fault.with_traceback(None)  # its frames hold the line
        if self.transport is not None:
            self.transport.abort()

    # The transport's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own is none by its class

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None or self.state is State.COMPLETE:
            self._reusable = False
            self.end(Broken("sent data before a request"))
            return
        self.heard = True
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, Broken) as problem:
            self._misread(problem)
        if self.state is State.ASKED:
            self._head_size += len(data)
            if self._head_size > HEAD_SIZE:
                self.end(Broken("the response head is too large"))
        self._unread += len(data)
        if self._unread > 2 * READ_SIZE and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        if self._taker is None or not self._handed_on(self._taker):
            self._wake()

    def _handed_on(self, take: Callable[[bytes], bool]) -> bool:
        """Whether all that there is was taken, and more is wanted."""
        waiter = self._waiter
        if waiter is None or waiter.done():  # whoever waited has not heard it yet
            return False
        if self.state is not State.ANSWERING or self.fault is not None or self._inflater:
            return False
        try:
            data = self.take() if self.pieces else b""
            more = not data or take(data)  # framing alone is nothing to hand on
            more = more and not self.pieces  # the rest is for the next turn
        except Exception as problem:
            waiter.set_exception(problem)
            more = False
        if not more:
            self._taker = None
        return more

    def _misread(self, problem: Exception) -> None:
        inner = problem.__context__
        if self.state is State.COMPLETE:
            self._reusable = False
        elif isinstance(inner, Broken):
            self.end(inner)
        elif self.state is State.ASKED:
            self.end(Broken("the response is not HTTP"))
        else:
            self.end(Broken("the framing of the response is invalid"))

    def eof_received(self) -> bool:
        """An answer without a length ends with its connection."""
        if self.state is State.ANSWERING and not self._framed and self.fault is None:
            self.state = State.COMPLETE
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self.transport = self._parser = None  # they hold the line
        if self.fault is None:
            self.fault = (problem or Broken(_CLOSED[self.state])).with_traceback(None)
        if self.state is not State.COMPLETE:
            self.state = State.LOST
        self._on_lost(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The parser's

    def on_message_begin(self) -> None:
        if self.state is State.COMPLETE:
            raise Broken("more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._head_size += len(name) + len(value)
        if self._fields > FIELDS or self._head_size > HEAD_SIZE:
            raise Broken("the response head is too large")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status // 100 == 1 and status != 101:
            self.headers = {}  # an interim answer: the real one follows
            return
        if not 200 <= status <= 599:
            raise Broken(f"invalid HTTP status {status:03}")
        self.status = status
        self._framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        coding = self.headers.get("content-encoding", "identity").lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._inflater = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
        self.state = State.ANSWERING

    def on_message_complete(self) -> None:
        if self.state is State.ANSWERING and self._parser is not None:
            self.state = State.COMPLETE
            framed = self._framed or self.status in (204, 304)
            self._reusable = framed and self._parser.should_keep_alive()

    def _inflated(self, data: bytes, inflater: "zlib._Decompress") -> bytes:
        """What a piece becomes: again no more than one turn is for."""
        found: bytes | None = None
        with suppress(zlib.error):
            found = inflater.decompress(data, TURN)
        if found is None:
            raise Broken("the response cannot be decompressed")
        if len(found) == TURN:  # there may be more of it
            self.pieces.insert(0, inflater.unconsumed_tail)
        if self.state is State.COMPLETE and not self.pieces and not inflater.eof:
            raise Broken("the compressed response is cut off")
        return found


_CLOSED = {
    State.IDLE: "closed the connection",
    State.ASKED: "closed the connection before the response",
    State.ANSWERING: "closed the connection during the response",
    State.COMPLETE: "closed the connection",
    State.LOST: "closed the connection",
}
