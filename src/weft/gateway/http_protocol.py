"""HTTP/1 connections: uvicorn's protocol, with limits that apply before the application runs.

- Time: a head must arrive in time and a body must keep its rate, otherwise 408. The clock stands
  still while we do not read.
- Size: a head or trailer that is too large, or has too many fields, is 431.
- Request smuggling: what two parsers could split differently is 400. httptools refuses bad
  lengths, bare CR and LF, folded lines and spaces before colons; `request_head.py` has the rest.
  An unsupported upgrade is ignored, as RFC 9110 (7.8) allows: httptools alone would take the body
  for the next request.
- Number: above the limit of connections, or without file descriptors for more, a new connection
  gets 503, unless an idle one without a key can be closed for it: the oldest makes room. Those
  without a key have a smaller limit of their own, so they cannot lock out one that has a key.
- A client that does not read is disconnected.

An error response is the last response of its connection. It waits for the responses before it and
replaces that of its own request; if that has begun, the connection is closed without it.
"""

import asyncio
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from weft.gateway.buffered_transport import BufferedTransport, set_buffer_limits
from weft.gateway.connections import ConnectionRegistry
from weft.gateway.error_responses import (
    LONG_HEAD,
    MALFORMED,
    SHUTTING_DOWN,
    SLOW_BODY,
    SLOW_HEAD,
    TOO_MANY_CONNECTIONS,
    TOO_MANY_FIELDS,
    ErrorResponse,
    StopParsing,
    render,
)
from weft.gateway.request_head import has_body, head_error, longest_line, without_upgrade

MAX_UNREAD_BODY = 262144
"""Bytes of a body that are read after its answer, so that the connection can be used again."""

MAX_PIPELINED = 65536
"""Bytes of further requests that are read while one is answered."""

LINGER = 2.0
"""Seconds to read on after the last answer: closed at once, the kernel would send a reset, and
the client would lose the answer while it still writes."""

MAX_WEBSOCKET_LINE = 8000
"""Bytes of one header, or of the target, of a request for a WebSocket: the reader of those gives
no answer to longer lines, and does not close."""

EXCHANGE = "weft.exchange"
"""Where a scope has its Exchange."""

MIN_CHECK_INTERVAL = 0.01
"""Seconds between two looks at one connection, at least."""

log = logging.getLogger("weft.http")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Times are seconds, sizes are bytes."""

    head_time: float = 10.0
    """From the connection, or from the first byte of a further request, to the end of its head."""

    body_time: float = 10.0
    """How long a body may stay below its rate."""

    body_rate: int = 1024
    """Bytes a second that a body must have; 0: any."""

    head: int = 65536
    """Request line and headers; a second request in the same packet may have twice as much."""

    fields: int = 100
    memory: int = 536_870_912
    """What bodies and messages of requests may take, all together; see memory.py."""

    connections: int = 4096
    connections_without_key: int = 1024
    """Of those that had no request admitted."""

    stalled: float = 60.0
    """So long a client may take nothing of what waits for it."""

    buffer: int = 262144
    """When more than this waits for a client, nothing more is written; so its upstream is read no
    further."""


class ReadPhase(Enum):
    """What is read from a connection next."""

    IDLE = auto()  # nothing is due
    HEAD = auto()
    BODY = auto()
    REPARSING = auto()  # a head with an upgrade to ignore: it is read again without it
    DISCARDING = auto()  # what comes is thrown away
    WEBSOCKET = auto()  # a WebSocket reads it
    CLOSED = auto()


IDLE, HEAD, BODY, REPARSING, DISCARDING, WEBSOCKET, CLOSED = ReadPhase
_NOT_PARSING = (DISCARDING, WEBSOCKET, CLOSED)


class BodyRateLimit:
    """How long a body may still take: time takes from that, bytes give to it, up to where it
    began. While we do not read, or have not said that we will, it stays full."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.received = 0
        """Bytes since the last look."""

        self.left = limits.body_time
        self._allowance = limits.body_time
        self._rate = limits.body_rate
        self._updated = 0.0

    def start(self, now: float) -> None:
        self.left, self.received, self._updated = self._allowance, 0, now

    def remaining(self, now: float, waited: bool) -> float:
        """Returns the seconds that are left."""
        if waited or not self._rate:
            self.left = self._allowance
        else:
            earned = self.received / self._rate - (now - self._updated)
            self.left = min(self._allowance, self.left + earned)
        self.received, self._updated = 0, now
        return self.left


class Exchange:
    """One request and its answer, for an app that knows more than ASGI: it need not wait a turn
    of the loop to write, nor keep a task to learn that the client left.
    """

    __slots__ = ("_callback", "_cycle", "_protocol", "_transport", "memory")

    def __init__(
        self, door: "HttpProtocol", cycle: RequestResponseCycle, outlet: BufferedTransport
    ) -> None:
        self._protocol = weakref.ref(door)
        self._cycle = weakref.ref(cycle)  # which has the scope, which has this
        self._transport = outlet
        self._callback: Callable[[], None] | None = None
        self.memory = door.registry.memory
        """Where the app reserves room for what it reads."""

    def mark_authenticated(self) -> None:
        """The request may come in: its connection is one of those that have a key."""
        door = self._protocol()
        if door is not None:
            door.registry.forget(door)

    def write(self, data: bytes) -> bool:
        """Sends a piece of a body that has begun, and has no length; tells whether there is room
        for more."""
        cycle = self._cycle()
        if cycle is None or cycle.disconnected or cycle.response_complete:
            return False
        self._transport.write_chunk(data)
        return not cycle.flow.write_paused

    def on_disconnect(self, left: Callable[[], None] | None) -> None:
        """Has this called when the client leaves before it was answered; at once, if it has."""
        self._callback = left
        cycle = self._cycle()
        if cycle is None:  # answered
            return
        cycle.flow.resume_reading()  # who does not read does not notice
        if cycle.disconnected:
            self.notify_disconnect()

    def notify_disconnect(self) -> None:
        """The client left."""
        left, self._callback = self._callback, None
        if left is not None:
            left()


class HttpProtocol(HttpToolsProtocol):
    """One connection. Use `protocol(limits)`."""

    limits: ClassVar[ConnectionLimits]
    registry: ClassVar[ConnectionRegistry]

    transport: BufferedTransport

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""
        self._phase = IDLE
        self._deadline = math.inf  # of a head, or of the end of lingering
        self._pending = 0  # bytes since the head began, or since the parser last told of the body
        self._fields = 0
        self._unread_allowance = 0
        self._body_rate = BodyRateLimit(self.limits)
        self._responses: deque[RequestResponseCycle] = deque()  # not complete, in their order
        self._written_at_upgrade = 0  # bytes written when the WebSocket took over
        self._pipelined = bytearray()
        self._rejection: ErrorResponse | None = None
        self._final_response: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = len(self.connections)
        super().connection_made(BufferedTransport(transport, self._close, self.loop.time()))
        set_buffer_limits(transport, self.limits.buffer)
        self._expect_head()
        self._check_deadlines()
        if not self.registry.admit(self, others):
            self._reject_overflow()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered, and nobody was refused."""
        return self._phase in (IDLE, HEAD, BODY) and not self._responses and self._rejection is None

    def _reject_overflow(self) -> None:
        """Above the limit there is a little room to hear the request before the answer, which
        clients understand better; above that there is none."""
        self.registry.overflow += 1
        self._reject_after_head(TOO_MANY_CONNECTIONS)
        if (
            self.registry.overflow > max(16, self.limits.connections // 8)
            or self.registry.descriptors.are_short
        ):
            self._reject(TOO_MANY_CONNECTIONS)
            self.transport.inner.close()

    def _reject_after_head(self, refusal: ErrorResponse) -> None:
        self._rejection = refusal
        self._deadline = min(self._deadline, self.loop.time() + LINGER)
        self._check_deadlines()

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSED
        self._cancel_timer()
        self._unset_keepalive_if_required()
        self.registry.forget(self)
        if self._rejection is TOO_MANY_CONNECTIONS:
            self.registry.overflow -= 1
        super().connection_lost(exc)
        for cycle in self._responses:  # uvicorn tells only the last of a pipeline
            _disconnect(cycle)
        self.transport.detach()

    def shutdown(self) -> None:
        """Ends the connection: at once when it is idle, else after the answers that are due. A
        request that is just coming in hears that it is too late."""
        if self._phase is HEAD and self._pending and not self._responses:
            self._reject_after_head(SHUTTING_DOWN)
        else:
            super().shutdown()

    # Reading

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        while rest and self._phase not in _NOT_PARSING:
            if self.pipeline or self._pipelined:
                self._buffer_pipelined(rest)
                return
            rest = self._parse(rest)

    def _buffer_pipelined(self, data: memoryview) -> None:
        """Keeps what comes while a request waits for its turn. Reading goes on for a while: who
        does not read does not notice that the client left."""
        self._pipelined += data
        if len(self._pipelined) > MAX_PIPELINED:
            self.flow.pause_reading()

    def _parse_pipelined(self) -> None:
        held, self._pipelined = bytes(self._pipelined), bytearray()
        self.data_received(held)

    def _parse(self, data: memoryview) -> memoryview:
        """Reads a piece no longer than a head may be, and returns the rest."""
        if self._phase is IDLE:
            self._expect_head()
        room = self.limits.head
        if self._phase is HEAD:
            room -= self._pending
        size = min(room, len(data))
        self._pending += size
        self._body_rate.received += size
        try:
            self.parser.feed_data(data[:size])
        except httptools.HttpParserUpgrade as upgrade:
            return self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._reject(_error_response(error))
        if self._pending >= self.limits.head and self._phase not in _NOT_PARSING:
            self._reject(LONG_HEAD)
        return data[size:]

    def _expect_head(self) -> None:
        self._phase = HEAD
        self._deadline = self.loop.time() + self.limits.head_time
        self._pending = 0

    def on_message_begin(self) -> None:
        if self._phase is IDLE:  # in the same piece as the end of the request before
            self._expect_head()
        self._fields = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        if self._fields > self.limits.fields:
            raise StopParsing(TOO_MANY_FIELDS)
        if self._phase is HEAD:  # else a trailer, after all checks: nobody may see it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if self._rejection is not None:
            raise StopParsing(self._rejection)
        wrong = head_error(version, self.parser.get_method(), self.url, self.headers)
        if wrong is not None:
            raise StopParsing(ErrorResponse(400, wrong))
        if self.parser.should_upgrade():
            self._begin_upgrade()
            return
        self._expect_body()
        if version == "1.0":
            self.expect_100_continue = False  # such a client would take it for the answer
        super().on_headers_complete()
        exchange = Exchange(self, self.cycle, self.transport)
        self.scope[EXCHANGE] = exchange  # type: ignore[literal-required]
        self._responses.append(self.cycle)
        if self.pipeline:
            self.flow.resume_reading()  # see _buffer_pipelined

    def _expect_body(self) -> None:
        self._phase, self._deadline = BODY, math.inf
        self._pending, self._unread_allowance = 0, MAX_UNREAD_BODY
        self._body_rate.start(self.loop.time())

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread_allowance -= len(body)
            if self._unread_allowance < 0:
                self.transport.close()

    def on_chunk_header(self) -> None:
        self._pending = 0

    def on_message_complete(self) -> None:
        if self._phase is not BODY:
            return
        self._phase = IDLE
        self._pending = 0
        super().on_message_complete()
        if not self._responses and not self.transport.is_closing():
            # answered before its body was there: uvicorn's own timer was stopped by the body
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # Upgrades

    def _begin_upgrade(self) -> None:
        if not self._should_upgrade():
            self._phase = REPARSING
            return
        if has_body(self.headers) or self._responses or self.parser.get_method() != b"GET":
            raise StopParsing(
                ErrorResponse(400, "A WebSocket begins alone, with a GET without a body.")
            )
        if longest_line(self.url, self.headers) > MAX_WEBSOCKET_LINE:
            raise StopParsing(LONG_HEAD)
        self._phase = WEBSOCKET
        super().on_headers_complete()

    def _upgrade(self, rest: memoryview) -> memoryview:
        if self._phase is REPARSING:
            self._reparse_without_upgrade()
            return rest
        self._deadline = self.loop.time() + self.limits.head_time
        self._written_at_upgrade = self.transport.written
        self.registry.forget(self)  # the app decides by the head alone, and at once
        self.handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # it holds the door, as in connection_lost
        return rest[:0]

    def _reparse_without_upgrade(self) -> None:
        """Reads the head once more, by a new parser and without its upgrade."""
        head = b"%s %s HTTP/%s\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        head += b"".join(b"%s: %s\r\n" % pair for pair in without_upgrade(self.headers))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._expect_head()
        try:
            self.parser.feed_data(head + b"\r\n")
        except httptools.HttpParserError as error:
            self._reject(_error_response(error))

    # Answers

    def on_response_complete(self) -> None:
        self._responses.popleft()
        super().on_response_complete()
        if self._pipelined and not self.pipeline:
            self.loop.call_soon(self._parse_pipelined)
        if self._responses or self.transport.is_closing():
            return
        if self._final_response is not None:
            self._send_final_response(self._final_response)
        elif self._phase is BODY and self.expect_100_continue:
            self.transport.close()  # whether the client still sends its body, nobody can know

    def _reject(self, refusal: ErrorResponse) -> None:
        log.info("refused: %d %s", refusal.status, refusal.message)
        said = render(refusal, self.url, self.server_state.default_headers)
        answered = self._phase is BODY and self._drop_current_response()
        self._phase, self._deadline = DISCARDING, math.inf
        if answered:
            self.transport.close()
        elif self._responses:
            self._final_response = said
        else:
            self._send_final_response(said)

    def _drop_current_response(self) -> bool:
        """Takes the answer of the request being read from those to come; returns whether the
        client has seen any of it."""
        if not self._responses or self._responses[-1] is not self.cycle:
            return True  # all of it
        self._responses.pop()
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()
            return False
        _disconnect(self.cycle)
        return self.cycle.response_started

    def _send_final_response(self, last_word: bytes) -> None:
        self._final_response = None
        self.transport.write(last_word)
        self.transport.close()

    def _close(self) -> None:
        """How the transport closes: at once, or when the client had time to read the answer."""
        self._unset_keepalive_if_required()
        inner = self.transport.inner
        if self._phase in (WEBSOCKET, CLOSED):
            inner.close()
        elif self._phase in (BODY, DISCARDING) and inner.can_write_eof():
            self._phase, self._deadline = DISCARDING, self.loop.time() + LINGER
            inner.write_eof()
            self.flow.resume_reading()
            self._check_deadlines()
        else:
            self._phase, self._deadline = DISCARDING, math.inf
            inner.close()

    # Time

    def _check_deadlines(self) -> None:
        """Looks whether the client is late or stuck, and when to look again.

        What is due is never due sooner than the next look, so that no byte moves the timer.
        """
        self._cancel_timer()
        now = self.loop.time()
        if self.transport.stalled_for(now) >= self.limits.stalled:
            log.info("dropped: the client took nothing for %g s", self.limits.stalled)
            self.transport.abort()
        elif self._is_late(now):
            self._on_timeout()
        if self._is_gone():
            self.transport.detach()
        elif self._timer is None:  # refusing may have looked already
            limits = self.limits
            later = now + min(limits.head_time, limits.body_time, limits.stalled / 4)
            due = self._deadline if self._phase is not BODY else now + self._body_rate.left
            self._timer = self.loop.call_at(
                max(min(due, later), now + MIN_CHECK_INTERVAL), self._check_deadlines
            )

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_gone(self) -> bool:
        reader = self.transport.protocol
        return self._phase is CLOSED or (reader is not None and reader not in self.connections)

    def _is_late(self, now: float) -> bool:
        if self._phase is BODY:
            waited = self._is_paused() or self.cycle.waiting_for_100_continue
            return self._body_rate.remaining(now, waited) <= 0
        if self._phase is HEAD and self._is_paused():
            self._deadline = now + self.limits.head_time
        if self._phase is WEBSOCKET and self.transport.written > self._written_at_upgrade:
            self._deadline = math.inf
        return now >= self._deadline

    def _is_paused(self) -> bool:
        return self.flow.read_paused or bool(self.pipeline)

    def _on_timeout(self) -> None:
        if self._phase is WEBSOCKET:
            self.transport.abort()
        elif self._phase is DISCARDING:
            self._deadline = math.inf
            self.transport.inner.close()
        elif self._phase is BODY:
            self._reject(SLOW_BODY)
        else:
            self._reject(self._rejection or SLOW_HEAD)


def protocol(limits: ConnectionLimits) -> type[HttpProtocol]:
    """Returns the class of protocols with these limits, for `uvicorn.Config(http=…)`. They share
    a lobby."""

    class LimitedHttpProtocol(HttpProtocol):
        pass

    LimitedHttpProtocol.limits = limits
    LimitedHttpProtocol.registry = ConnectionRegistry(
        limits.connections, limits.connections_without_key, limits.memory
    )
    return LimitedHttpProtocol


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Tells the app that its client is gone."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()
    exchange: Exchange = cycle.scope[EXCHANGE]  # type: ignore[literal-required]
    exchange.notify_disconnect()


def _error_response(error: httptools.HttpParserError) -> ErrorResponse:
    cause = error.__context__
    if isinstance(cause, StopParsing):
        return cause.refusal
    if cause is not None:
        log.error("a request could not be read", exc_info=cause)
    return MALFORMED
