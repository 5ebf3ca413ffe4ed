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

from weft.gateway.buffered_transport import BufferedTransport, tune
from weft.gateway.connections import ConnectionRegistry
from weft.gateway.error_responses import (
    CROWDED,
    LEAVING,
    LONG_HEAD,
    MALFORMED,
    MANY_FIELDS,
    SLOW_BODY,
    SLOW_HEAD,
    ErrorResponse,
    StopParsing,
    answer,
)
from weft.gateway.request_head import fault_of, has_body, longest, plain

SPARE = 262144
"""Bytes of a body that are read after its answer, so that the connection can be used again."""

SPARE_REQUESTS = 65536
"""Bytes of further requests that are read while one is answered."""

LINGER = 2.0
"""Seconds to read on after the last answer: closed at once, the kernel would send a reset, and
the client would lose the answer while it still writes."""

LINE = 8000
"""Bytes of one header, or of the target, of a request for a WebSocket: the reader of those gives
no answer to longer lines, and does not close."""

EXCHANGE = "weft.exchange"
"""Where a scope has its Exchange."""

SHORTEST = 0.01
"""Seconds between two looks at one connection, at least."""

log = logging.getLogger("weft.door")


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

    REST = auto()  # nothing is due
    HEAD = auto()
    BODY = auto()
    ASIDE = auto()  # a head with an upgrade to ignore: it is read again without it
    DEAF = auto()  # what comes is thrown away
    SOCKET = auto()  # a WebSocket reads it
    LOST = auto()


REST, HEAD, BODY, ASIDE, DEAF, SOCKET, LOST = ReadPhase
_OVER = (DEAF, SOCKET, LOST)


class BodyRateLimit:
    """How long a body may still take: time takes from that, bytes give to it, up to where it
    began. While we do not read, or have not said that we will, it stays full."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.received = 0
        """Bytes since the last look."""

        self.left = limits.body_time
        self._full = limits.body_time
        self._rate = limits.body_rate
        self._looked = 0.0

    def start(self, now: float) -> None:
        self.left, self.received, self._looked = self._full, 0, now

    def look(self, now: float, waited: bool) -> float:
        """Returns the seconds that are left."""
        if waited or not self._rate:
            self.left = self._full
        else:
            earned = self.received / self._rate - (now - self._looked)
            self.left = min(self._full, self.left + earned)
        self.received, self._looked = 0, now
        return self.left


class Exchange:
    """One request and its answer, for an app that knows more than ASGI: it need not wait a turn
    of the loop to write, nor keep a task to learn that the client left.
    """

    __slots__ = ("_cycle", "_door", "_left", "_outlet", "memory")

    def __init__(
        self, door: "HttpProtocol", cycle: RequestResponseCycle, outlet: BufferedTransport
    ) -> None:
        self._door = weakref.ref(door)
        self._cycle = weakref.ref(cycle)  # which has the scope, which has this
        self._outlet = outlet
        self._left: Callable[[], None] | None = None
        self.memory = door.lobby.memory
        """Where the app reserves room for what it reads."""

    def admit(self) -> None:
        """The request may come in: its connection is one of those that have a key."""
        door = self._door()
        if door is not None:
            door.lobby.leave(door)

    def write(self, data: bytes) -> bool:
        """Sends a piece of a body that has begun, and has no length; tells whether there is room
        for more."""
        cycle = self._cycle()
        if cycle is None or cycle.disconnected or cycle.response_complete:
            return False
        self._outlet.write_chunk(data)
        return not cycle.flow.write_paused

    def watch(self, left: Callable[[], None] | None) -> None:
        """Has this called when the client leaves before it was answered; at once, if it has."""
        self._left = left
        cycle = self._cycle()
        if cycle is None:  # answered
            return
        cycle.flow.resume_reading()  # who does not read does not notice
        if cycle.disconnected:
            self.end()

    def end(self) -> None:
        """The client left."""
        left, self._left = self._left, None
        if left is not None:
            left()


class HttpProtocol(HttpToolsProtocol):
    """One connection. Use `protocol(limits)`."""

    limits: ClassVar[ConnectionLimits]
    lobby: ClassVar[ConnectionRegistry]

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
        self._phase = REST
        self._due = math.inf  # of a head, or of the end of lingering
        self._pending = 0  # bytes since the head began, or since the parser last told of the body
        self._fields = 0
        self._spare = 0
        self._pace = BodyRateLimit(self.limits)
        self._answers: deque[RequestResponseCycle] = deque()  # not complete, in their order
        self._greeted = 0  # bytes written when the WebSocket took over
        self._held = bytearray()
        self._unwelcome: ErrorResponse | None = None
        self._last_word: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = len(self.connections)
        super().connection_made(BufferedTransport(transport, self._end, self.loop.time()))
        tune(transport, self.limits.buffer)
        self._expect_head()
        self._look()
        if not self.lobby.enter(self, others):
            self._turn_away()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered, and nobody was refused."""
        return self._phase in (REST, HEAD, BODY) and not self._answers and self._unwelcome is None

    def _turn_away(self) -> None:
        """Above the limit there is a little room to hear the request before the answer, which
        clients understand better; above that there is none."""
        self.lobby.crowd += 1
        self._hear_and_refuse(CROWDED)
        if (
            self.lobby.crowd > max(16, self.limits.connections // 8)
            or self.lobby.descriptors.are_short
        ):
            self._refuse(CROWDED)
            self.transport.inner.close()

    def _hear_and_refuse(self, refusal: ErrorResponse) -> None:
        self._unwelcome = refusal
        self._due = min(self._due, self.loop.time() + LINGER)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = LOST
        self._stop_looking()
        self._unset_keepalive_if_required()
        self.lobby.leave(self)
        if self._unwelcome is CROWDED:
            self.lobby.crowd -= 1
        super().connection_lost(exc)
        for cycle in self._answers:  # uvicorn tells only the last of a pipeline
            _leave(cycle)
        self.transport.release()

    def shutdown(self) -> None:
        """Ends the connection: at once when it is idle, else after the answers that are due. A
        request that is just coming in hears that it is too late."""
        if self._phase is HEAD and self._pending and not self._answers:
            self._hear_and_refuse(LEAVING)
        else:
            super().shutdown()

    # Reading

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        while rest and self._phase not in _OVER:
            if self.pipeline or self._held:
                self._hold(rest)
                return
            rest = self._read(rest)

    def _hold(self, data: memoryview) -> None:
        """Keeps what comes while a request waits for its turn. Reading goes on for a while: who
        does not read does not notice that the client left."""
        self._held += data
        if len(self._held) > SPARE_REQUESTS:
            self.flow.pause_reading()

    def _catch_up(self) -> None:
        held, self._held = bytes(self._held), bytearray()
        self.data_received(held)

    def _read(self, data: memoryview) -> memoryview:
        """Reads a piece no longer than a head may be, and returns the rest."""
        if self._phase is REST:
            self._expect_head()
        room = self.limits.head
        if self._phase is HEAD:
            room -= self._pending
        size = min(room, len(data))
        self._pending += size
        self._pace.received += size
        try:
            self.parser.feed_data(data[:size])
        except httptools.HttpParserUpgrade as upgrade:
            return self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(_refusal(error))
        if self._pending >= self.limits.head and self._phase not in _OVER:
            self._refuse(LONG_HEAD)
        return data[size:]

    def _expect_head(self) -> None:
        self._phase = HEAD
        self._due = self.loop.time() + self.limits.head_time
        self._pending = 0

    def on_message_begin(self) -> None:
        if self._phase is REST:  # in the same piece as the end of the request before
            self._expect_head()
        self._fields = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        if self._fields > self.limits.fields:
            raise StopParsing(MANY_FIELDS)
        if self._phase is HEAD:  # else a trailer, after all checks: nobody may see it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if self._unwelcome is not None:
            raise StopParsing(self._unwelcome)
        wrong = fault_of(version, self.parser.get_method(), self.url, self.headers)
        if wrong is not None:
            raise StopParsing(ErrorResponse(400, wrong))
        if self.parser.should_upgrade():
            self._consider_upgrade()
            return
        self._expect_body()
        if version == "1.0":
            self.expect_100_continue = False  # such a client would take it for the answer
        super().on_headers_complete()
        exchange = Exchange(self, self.cycle, self.transport)
        self.scope[EXCHANGE] = exchange  # type: ignore[literal-required]
        self._answers.append(self.cycle)
        if self.pipeline:
            self.flow.resume_reading()  # see _hold

    def _expect_body(self) -> None:
        self._phase, self._due = BODY, math.inf
        self._pending, self._spare = 0, SPARE
        self._pace.start(self.loop.time())

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._spare -= len(body)
            if self._spare < 0:
                self.transport.close()

    def on_chunk_header(self) -> None:
        self._pending = 0

    def on_message_complete(self) -> None:
        if self._phase is not BODY:
            return
        self._phase = REST
        self._pending = 0
        super().on_message_complete()
        if not self._answers and not self.transport.is_closing():
            # answered before its body was there: uvicorn's own timer was stopped by the body
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # Upgrades

    def _consider_upgrade(self) -> None:
        if not self._should_upgrade():
            self._phase = ASIDE
            return
        if has_body(self.headers) or self._answers or self.parser.get_method() != b"GET":
            raise StopParsing(
                ErrorResponse(400, "A WebSocket begins alone, with a GET without a body.")
            )
        if longest(self.url, self.headers) > LINE:
            raise StopParsing(LONG_HEAD)
        self._phase = SOCKET
        super().on_headers_complete()

    def _upgrade(self, rest: memoryview) -> memoryview:
        if self._phase is ASIDE:
            self._read_again()
            return rest
        self._due = self.loop.time() + self.limits.head_time
        self._greeted = self.transport.written
        self.lobby.leave(self)  # the app decides by the head alone, and at once
        self.handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # it holds the door, as in connection_lost
        return rest[:0]

    def _read_again(self) -> None:
        """Reads the head once more, by a new parser and without its upgrade."""
        head = b"%s %s HTTP/%s\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        head += b"".join(b"%s: %s\r\n" % pair for pair in plain(self.headers))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._expect_head()
        try:
            self.parser.feed_data(head + b"\r\n")
        except httptools.HttpParserError as error:
            self._refuse(_refusal(error))

    # Answers

    def on_response_complete(self) -> None:
        self._answers.popleft()
        super().on_response_complete()
        if self._held and not self.pipeline:
            self.loop.call_soon(self._catch_up)
        if self._answers or self.transport.is_closing():
            return
        if self._last_word is not None:
            self._say(self._last_word)
        elif self._phase is BODY and self.expect_100_continue:
            self.transport.close()  # whether the client still sends its body, nobody can know

    def _refuse(self, refusal: ErrorResponse) -> None:
        log.info("refused: %d %s", refusal.status, refusal.message)
        said = answer(refusal, self.url, self.server_state.default_headers)
        answered = self._phase is BODY and self._forget()
        self._phase, self._due = DEAF, math.inf
        if answered:
            self.transport.close()
        elif self._answers:
            self._last_word = said
        else:
            self._say(said)

    def _forget(self) -> bool:
        """Takes the answer of the request being read from those to come; returns whether the
        client has seen any of it."""
        if not self._answers or self._answers[-1] is not self.cycle:
            return True  # all of it
        self._answers.pop()
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()
            return False
        _leave(self.cycle)
        return self.cycle.response_started

    def _say(self, last_word: bytes) -> None:
        self._last_word = None
        self.transport.write(last_word)
        self.transport.close()

    def _end(self) -> None:
        """How the transport closes: at once, or when the client had time to read the answer."""
        self._unset_keepalive_if_required()
        inner = self.transport.inner
        if self._phase in (SOCKET, LOST):
            inner.close()
        elif self._phase in (BODY, DEAF) and inner.can_write_eof():
            self._phase, self._due = DEAF, self.loop.time() + LINGER
            inner.write_eof()
            self.flow.resume_reading()
            self._look()
        else:
            self._phase, self._due = DEAF, math.inf
            inner.close()

    # Time

    def _look(self) -> None:
        """Looks whether the client is late or stuck, and when to look again.

        What is due is never due sooner than the next look, so that no byte moves the timer.
        """
        self._stop_looking()
        now = self.loop.time()
        if self.transport.stuck_for(now) >= self.limits.stalled:
            log.info("dropped: the client took nothing for %g s", self.limits.stalled)
            self.transport.abort()
        elif self._late(now):
            self._too_late()
        if self._gone():
            self.transport.release()
        elif self._timer is None:  # refusing may have looked already
            limits = self.limits
            later = now + min(limits.head_time, limits.body_time, limits.stalled / 4)
            due = self._due if self._phase is not BODY else now + self._pace.left
            self._timer = self.loop.call_at(max(min(due, later), now + SHORTEST), self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _gone(self) -> bool:
        reader = self.transport.reader
        return self._phase is LOST or (reader is not None and reader not in self.connections)

    def _late(self, now: float) -> bool:
        if self._phase is BODY:
            waited = self._paused() or self.cycle.waiting_for_100_continue
            return self._pace.look(now, waited) <= 0
        if self._phase is HEAD and self._paused():
            self._due = now + self.limits.head_time
        if self._phase is SOCKET and self.transport.written > self._greeted:
            self._due = math.inf
        return now >= self._due

    def _paused(self) -> bool:
        return self.flow.read_paused or bool(self.pipeline)

    def _too_late(self) -> None:
        if self._phase is SOCKET:
            self.transport.abort()
        elif self._phase is DEAF:
            self._due = math.inf
            self.transport.inner.close()
        elif self._phase is BODY:
            self._refuse(SLOW_BODY)
        else:
            self._refuse(self._unwelcome or SLOW_HEAD)


def protocol(limits: ConnectionLimits) -> type[HttpProtocol]:
    """Returns the class of protocols with these limits, for `uvicorn.Config(http=…)`. They share
    a lobby."""

    class LimitedHttpProtocol(HttpProtocol):
        pass

    LimitedHttpProtocol.limits = limits
    LimitedHttpProtocol.lobby = ConnectionRegistry(
        limits.connections, limits.connections_without_key, limits.memory
    )
    return LimitedHttpProtocol


def _leave(cycle: RequestResponseCycle) -> None:
    """Tells the app that its client is gone."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()
    exchange: Exchange = cycle.scope[EXCHANGE]  # type: ignore[literal-required]
    exchange.end()


def _refusal(error: httptools.HttpParserError) -> ErrorResponse:
    cause = error.__context__
    if isinstance(cause, StopParsing):
        return cause.refusal
    if cause is not None:
        log.error("a request could not be read", exc_info=cause)
    return MALFORMED
