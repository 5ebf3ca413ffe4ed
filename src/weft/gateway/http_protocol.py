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
import time
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, ClassVar
from urllib.parse import unquote

import httptools

from weft.gateway.access import AccessRecord
from weft.gateway.buffered_transport import BufferedTransport
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
from weft.gateway.exchange import EXCHANGE, MAX_UNREAD_BODY, Cycle, Exchange
from weft.gateway.request_head import has_body, head_error, longest_line, without_upgrade
from weft.gateway.uvicorn_internals import (
    HIGH_WATER_LIMIT,
    Config,
    FlowControl,
    HTTPScope,
    HttpToolsProtocol,
    ServerState,
)
from weft.log_events import log_event

MAX_PIPELINED = 65536
"""Bytes of pipelined requests that are buffered while one is answered."""

LINGER = 2.0
"""Seconds to keep reading after the last response (RFC 9112, 9.6): if the socket were closed at
once, the kernel would send a reset and a client that still writes would lose the response."""

MAX_WEBSOCKET_LINE = 8000
"""Bytes of one header, or of the target, in a WebSocket handshake: the websockets library neither
answers nor closes if a line is longer."""

MIN_CHECK_INTERVAL = 0.01
"""The shortest time between two checks of one connection, in seconds."""

_UNUSED_EVENT = asyncio.Event()
"""uvicorn sets it for each message of a request; nobody awaits it."""

log = logging.getLogger("weft.http")
_uvicorn_log = logging.getLogger("uvicorn.error")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection, and of all of them together. Times are seconds, sizes are bytes."""

    head_time: float = 10.0
    """From the connection, or from the first byte of a further request, to the end of its head."""

    body_time: float = 10.0
    """How long a body may be slower than `body_rate`."""

    body_rate: int = 1024
    """The slowest rate of a body, in bytes a second; 0: no limit."""

    head: int = 65536
    """Request line and headers; twice as much for a second request in the same packet."""

    fields: int = 100
    memory: int = 536_870_912
    """Of all request bodies and WebSocket messages together; see memory.py."""

    connections: int = 4096
    connections_without_key: int = 1024
    """Connections on which no request was authorized yet."""

    stalled: float = 60.0
    """How long a client may read nothing while data waits for it."""

    buffer: int = 262144
    """While more than this waits for a client, writing is paused, and so is its upstream."""


class ReadPhase(Enum):
    """What the next bytes of a connection are."""

    IDLE = auto()  # between two requests
    HEAD = auto()
    BODY = auto()
    REPARSING = auto()  # a head whose upgrade is ignored: it is parsed again without it
    DISCARDING = auto()  # read and thrown away
    WEBSOCKET = auto()  # read by the WebSocket protocol
    CLOSED = auto()


IDLE, HEAD, BODY, REPARSING, DISCARDING, WEBSOCKET, CLOSED = ReadPhase
_NOT_PARSING = (DISCARDING, WEBSOCKET, CLOSED)


class RejectedIn(Enum):
    """How far a request has come when it is rejected."""

    CONNECTION = auto()  # the app never sees it
    APP = auto()  # which has sent nothing
    RESPONSE = auto()  # of which the client has some, or all


class BodyRateLimit:
    """A token bucket of seconds: time drains it, received bytes refill it. It stays full while we
    do not read, or have not sent 100 Continue yet."""

    def __init__(self, limits: ConnectionLimits) -> None:
        # Bytes are added one piece at a time on the hot path, so they are only counted there; the
        # division happens when a deadline is checked.
        self.received = 0
        """Bytes since the last update."""

        self.left = limits.body_time
        self._allowance = limits.body_time
        self._rate = limits.body_rate
        self._updated = 0.0

    def start(self, now: float) -> None:
        self.left, self.received, self._updated = self._allowance, 0, now

    def update(self, now: float, paused: bool) -> float:
        """Returns the seconds that are left."""
        if paused or not self._rate:
            self.left = self._allowance
        else:
            earned = self.received / self._rate - (now - self._updated)
            self.left = min(self._allowance, self.left + earned)
        self.received, self._updated = 0, now
        return self.left


class HttpProtocol(HttpToolsProtocol):
    """One connection. Use `protocol(limits)`.

    Of uvicorn's protocol it keeps the state and the upgrades. What runs for every connection and
    every request is here, without what no gateway uses: addresses, an access log, a concurrency
    limit, a root path, the state of the lifespan.
    """

    limits: ClassVar[ConnectionLimits]
    registry: ClassVar[ConnectionRegistry]
    check_interval: ClassVar[float]
    """The longest time between two checks of one connection, in seconds."""

    transport: BufferedTransport
    cycle: Cycle

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        # Not uvicorn's constructor, which looks for its loggers and their handlers each time.
        if not config.loaded:
            config.load()
        self.config, self.app, self.app_state = config, config.loaded_app, app_state
        self.ws_protocol_class = config.ws_protocol_class
        self.loop = _loop or asyncio.get_running_loop()
        self.logger, self.client = _uvicorn_log, None
        self.parser = _new_parser(self)
        self.timeout_keep_alive_task = None
        self.timeout_keep_alive = config.timeout_keep_alive
        self.server_state = server_state
        self.connections, self.tasks = server_state.connections, server_state.tasks
        self.url = b""
        self._phase = IDLE
        self._deadline = math.inf  # for the head, or for the end of lingering
        self._began = self.loop.time()  # when a head was first waited for
        self._pending = 0  # bytes since the head began, or since the parser last reported a body
        self._fields = 0
        self._unread_allowance = 0
        self._body_rate = BodyRateLimit(self.limits)
        # Incomplete, in order. Only the app of the first one runs.
        self._responses: deque[Cycle] = deque()
        self._written_at_upgrade = 0
        self._pipelined = bytearray()
        self._rejection: ErrorResponse | None = None
        self._final_response: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others, now = len(self.connections), self.loop.time()
        self.connections.add(self)
        # asyncio resumes at a quarter of it (`low`), so a slow client is not paused at every event.
        transport.set_write_buffer_limits(high=self.limits.buffer)
        # uvicorn and the response cycles only ever see the counting transport: all their writes and
        # closes pass it.
        self.transport = BufferedTransport(transport, self._close, now)
        self.flow = FlowControl(self.transport)
        self._phase, self._deadline = HEAD, now + self.limits.head_time
        # A client that sends nothing never calls data_received, so the timer has to start here.
        self._timer = self.loop.call_at(now + self.check_interval, self._check_deadlines)
        if self.registry.admit(self, others):
            return
        # Clients understand an error better after their request, so a few connections above the
        # limit are read up to their head; above that there is no room.
        self.registry.overflow += 1
        self._reject_after_head(TOO_MANY_CONNECTIONS)
        allowed = max(16, self.limits.connections // 8)
        if self.registry.overflow > allowed or self.registry.descriptors.are_exhausted:
            self._reject(TOO_MANY_CONNECTIONS)
            # Not `transport.close()`: lingering would hold the descriptor that is missing.
            self.transport.inner.close()

    @property
    def is_idle(self) -> bool:
        """Whether no response is under way, and no error response either."""
        # BODY without a response: the request was answered before its body had arrived.
        return self._phase in (IDLE, HEAD, BODY) and not self._responses and self._rejection is None

    def _reject_after_head(self, error: ErrorResponse) -> None:
        self._rejection = error
        self._deadline = min(self._deadline, self.loop.time() + LINGER)
        self._check_deadlines()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.pause_direct(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.transport.pause_direct(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSED
        self.transport.pause_direct(True)
        self._cancel_timer()
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self.registry.forget(self)
        if self._rejection is TOO_MANY_CONNECTIONS:
            self.registry.overflow -= 1
        self.connections.discard(self)
        if self.flow.write_paused:
            self.flow.resume_writing()  # who waits for room learns that there is no client
        for cycle in self._responses:
            cycle.disconnect()
        del self.parser  # which holds this
        self.transport.detach()

    def shutdown(self) -> None:
        """Closes the connection: at once if it is idle, otherwise after its responses. A request
        whose head is just arriving gets 503."""
        # HEAD is also the phase of a new connection without a byte: that one is idle, and gets no
        # answer.
        if self._phase is HEAD and self._pending and not self._responses:
            self._reject_after_head(SHUTTING_DOWN)
        elif self._responses:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    # Reading

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        # uvicorn would parse everything at once, and queue a cycle for each pipelined request: a
        # packet of 64 KiB holds over a thousand of them. Here one is answered, one is parsed and
        # waits, and the rest stays bytes. A view, since a piece may be cut off in front many times.
        rest = memoryview(data)
        while rest and self._phase not in _NOT_PARSING:
            if self._pipelined or len(self._responses) > 1:
                self._pipelined += rest
                # Reading goes on for a while: a disconnect is noticed only while reading.
                if len(self._pipelined) > MAX_PIPELINED:
                    self.flow.pause_reading()
                return
            rest = self._parse(rest)

    def _parse_pipelined(self) -> None:
        data, self._pipelined = bytes(self._pipelined), bytearray()
        self.data_received(data)

    def _parse(self, data: memoryview) -> memoryview:
        """Parses a piece no longer than a head may be, and returns the rest."""
        if self._phase is IDLE:
            self._expect_head()
        room = self.limits.head
        # In a body the room is for what the parser does not report: chunk extensions and trailers
        # (RFC 9112, 7.1) have no limit of their own, and would be read for ever.
        if self._phase is HEAD:
            room -= self._pending
        size = min(room, len(data))
        self._pending += size
        self._body_rate.received += size
        try:
            self.parser.feed_data(data[:size])
        except httptools.HttpParserUpgrade as upgrade:
            # httptools stops behind every head that has an upgrade, whether it is taken or not.
            if self._phase is REPARSING:
                self._reparse_without_upgrade()
                return data[upgrade.args[0] :]
            self._deadline = self.loop.time() + self.limits.head_time
            # The WebSocket protocol has no timer for its handshake: ours runs until it has written.
            self._written_at_upgrade = self.transport.written
            self.registry.forget(self)  # the app authorizes by the head alone, at once
            self.handle_websocket_upgrade()
            self.parser = None  # type: ignore[assignment]  # it holds this, as in connection_lost
            # A client must wait for the response to its handshake (RFC 6455, 4.1): bytes behind it
            # are none of the protocol.
            return data[:0]
        except httptools.HttpParserError as error:
            self._reject(_error_response(error))
        if self._pending >= self.limits.head and self._phase not in _NOT_PARSING:
            self._reject(LONG_HEAD)
        return data[size:]

    def _expect_head(self) -> None:
        # It may have been set by the same packet: by the end of a body that was answered before.
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._phase = HEAD
        self._began = self.loop.time()
        self._deadline = self._began + self.limits.head_time
        self._pending = 0
        self.url = b""  # not that of the request before, if this one is refused without one

    def on_message_begin(self) -> None:
        if self._phase is IDLE:  # in the same packet as the end of the previous request
            self._expect_head()
        self._fields = 0
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        if self._fields > self.limits.fields:
            raise StopParsing(TOO_MANY_FIELDS)
        if self._phase is HEAD:  # a trailer comes after all checks: it is dropped (RFC 9110, 6.5.1)
            name = name.lower()
            self.headers.append((name, value))
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if self._rejection is not None:
            raise StopParsing(self._rejection)
        # Exceptions of these callbacks come out of feed_data as an HttpParserError: see
        # _error_response.
        method = self.parser.get_method()
        problem = head_error(version, method, self.url, self.headers)
        if problem is not None:
            raise StopParsing(ErrorResponse(400, problem))
        # Before the app starts: the parser stops behind the head of an upgrade, and a body that
        # follows would be read as the next request.
        if self.parser.should_upgrade():
            self._begin_upgrade(version, method)
            return
        self._phase, self._deadline = BODY, math.inf
        self._pending, self._unread_allowance = 0, MAX_UNREAD_BODY
        self._body_rate.start(self.loop.time())
        if version == "1.0":
            # RFC 9110 (10.1.1): the expectation must be ignored in HTTP/1.0.
            self.expect_100_continue = False  # the client would take it for the response
        self.scope = self._new_scope(version, method)
        self.cycle = Cycle(
            self.scope,
            self.transport,
            self.flow,
            _uvicorn_log,
            _uvicorn_log,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=_UNUSED_EVENT,
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        exchange = self.cycle.exchange = Exchange(self, self.cycle, self.transport)
        self.scope[EXCHANGE] = exchange  # type: ignore[literal-required]
        # Otherwise it waits. uvicorn would pause reading, but then nobody would notice that the
        # client left: see data_received.
        if not self._responses:
            self._start_app(self.cycle)
        self._responses.append(self.cycle)

    def _new_scope(self, version: str, method: bytes) -> HTTPScope:
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": None,
            "client": None,
            "scheme": "http",
            "method": method.decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
        }

    def on_body(self, body: bytes) -> None:
        self._pending, cycle = 0, self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.has_news = True
            if cycle.arrival is not None:
                cycle.arrival.set()
            return
        # The app answered without reading it all. A body that is nearly over is cheaper to read
        # than a new connection; a long one is not.
        self._unread_allowance -= len(body)
        if self._unread_allowance < 0:
            self.transport.close()

    def on_chunk_header(self) -> None:
        self._pending = 0

    def on_message_complete(self) -> None:
        # Called for the head of an upgrade, too.
        if self._phase is not BODY:
            return
        self._phase = IDLE
        self._pending = 0
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body, cycle.has_news = False, True
            if cycle.arrival is not None:
                cycle.arrival.set()
        if not self._responses and not self.transport.is_closing():
            # the response was complete before the body, and the body stopped uvicorn's own timer
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    # Upgrades

    def _begin_upgrade(self, version: str, method: bytes) -> None:
        if not self._should_upgrade():
            self._phase = REPARSING
            return
        # RFC 6455 (4.1) wants a GET. The parser does not read a body behind an upgrade: it would
        # arrive as frames. And a response under way has to be written first, by a protocol that is
        # replaced here.
        if has_body(self.headers) or self._responses or method != b"GET":
            raise StopParsing(
                ErrorResponse(400, "A WebSocket handshake must be a single GET without a body.")
            )
        if longest_line(self.url, self.headers) > MAX_WEBSOCKET_LINE:
            raise StopParsing(LONG_HEAD)
        self._phase = WEBSOCKET
        self.scope = self._new_scope(version, method)

    def _reparse_without_upgrade(self) -> None:
        """Parses the head once more, without its upgrade."""
        head = b"%s %s HTTP/%s\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        head += b"".join(b"%s: %s\r\n" % pair for pair in without_upgrade(self.headers))
        self.parser = _new_parser(self)
        self._expect_head()
        try:
            self.parser.feed_data(head + b"\r\n")
        except httptools.HttpParserError as error:
            self._reject(_error_response(error))

    # Responses

    def _start_app(self, cycle: Cycle) -> None:
        """Runs the app for a request. Its task has no frame of uvicorn's: each time that it goes
        on, all its frames do."""
        app = self.app(cycle.scope, cycle.receive, cycle.send)
        task = cycle.exchange.task = self.loop.create_task(app)
        task.add_done_callback(partial(self._on_app_ended, cycle))
        self.tasks.add(task)

    def _on_app_ended(self, cycle: Cycle, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        cycle.exchange.task = None
        ended = cycle.response_complete or cycle.disconnected
        if ended and not task.cancelled() and task.exception() is None:
            cycle.on_response = _nothing  # breaks a cycle
            return
        # It failed, or has not answered: uvicorn logs that, and answers.
        rest = self.loop.create_task(cycle.run_asgi(lambda *_: task))
        rest.add_done_callback(self.tasks.discard)
        self.tasks.add(rest)

    def on_response_complete(self) -> None:
        ended = self._responses.popleft()
        if ended.arrival is not None:
            ended.arrival.set()
        if self.transport.is_closing():
            return
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._responses:
            self._start_app(self._responses[0])
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        if self._pipelined and len(self._responses) < 2:
            # Not at once: this runs inside the app's last `send`, and parsing may start another
            # app.
            self.loop.call_soon(self._parse_pipelined)
        if self._responses:
            return
        if self._final_response is not None:
            self._send_final_response(self._final_response)
        elif self._phase is BODY and self.expect_100_continue:
            # RFC 9110 (10.1.1): a client that got a final status may leave out its body. Then the
            # next byte is a request, otherwise a body: nobody can tell, so the connection ends.
            self.transport.close()

    def _reject(self, error: ErrorResponse) -> None:
        response = render(error, self.url, self.server_state.default_headers)
        stage = RejectedIn.CONNECTION
        if self._phase is BODY:
            stage = self._drop_current_response(error)
        self._log_rejection(error, stage)
        self._phase, self._deadline = DISCARDING, math.inf
        if stage is RejectedIn.RESPONSE:
            self.transport.close()
        elif self._responses:
            self._final_response = response
        else:
            self._send_final_response(response)

    def _drop_current_response(self, error: ErrorResponse) -> RejectedIn:
        """Drops the response to the request being read, which `error` replaces if that is still
        possible."""
        if not self._responses or self._responses[-1] is not self.cycle:
            return RejectedIn.RESPONSE  # the client has all of it
        self._responses.pop()
        if self._responses:  # its app was not even started
            return RejectedIn.CONNECTION
        has_begun = self.cycle.response_started
        if not has_begun:
            self.cycle.replacement = error
        self.cycle.disconnect()
        return RejectedIn.RESPONSE if has_begun else RejectedIn.APP

    def _log_rejection(self, error: ErrorResponse, stage: RejectedIn) -> None:
        """Logs a rejection, unless the app will: each request has one line."""
        # Clients and load balancers open connections in advance: without a byte it is no request.
        is_request = self._pending > 0 or error is not SLOW_HEAD
        if stage is RejectedIn.RESPONSE or not is_request:
            log.info("closed a connection: %s", error.message, extra=log_event("connection-closed"))
        elif stage is RejectedIn.CONNECTION:
            # Without a target the parser has a method, but not the client's.
            method = self.parser.get_method().decode("latin-1") if self.url else ""
            started = time.time() - (self.loop.time() - self._began)
            record = AccessRecord(
                "", method, path_of(self.url), "", error.status, error.part, started
            )
            refused = {"refused_request": record}
            log.warning("refused a request: %d %s", error.status, error.message, extra=refused)

    def _send_final_response(self, response: bytes) -> None:
        self._final_response = None
        self.transport.write(response)
        self.transport.close()

    def _close(self) -> None:
        """Closes the transport: at once, or after the client had time to read the response."""
        self._unset_keepalive_if_required()
        inner = self.transport.inner
        if self._phase in (WEBSOCKET, CLOSED):
            inner.close()
        elif self._phase in (BODY, DISCARDING) and inner.can_write_eof():
            # Only in these phases the client may still be writing.
            self._phase, self._deadline = DISCARDING, self.loop.time() + LINGER
            inner.write_eof()
            self.flow.resume_reading()
            self._check_deadlines()
        else:
            self._phase, self._deadline = DISCARDING, math.inf
            inner.close()

    # Deadlines

    def _check_deadlines(self) -> None:
        """Checks whether the client is late or stalled, and schedules the next check.

        A deadline never comes before the next check, so that received bytes do not move the timer.
        """
        self._cancel_timer()
        now = self.loop.time()
        if self.transport.stalled_for(now) >= self.limits.stalled:
            # Aborted, not closed: to close means to write first what this client does not read.
            log.info("disconnected a client that read nothing for %g s", self.limits.stalled)
            self.transport.abort()
        elif self._is_late(now):
            self._on_timeout()
        # After an upgrade this timer goes on, for a WebSocket client that reads nothing, until the
        # protocol that took over has lost the connection.
        successor = self.transport.protocol
        if self._phase is CLOSED or (successor and successor not in self.connections):
            self.transport.detach()
        elif self._timer is None:  # _reject may have scheduled it already
            due = self._deadline if self._phase is not BODY else now + self._body_rate.left
            soonest, latest = now + MIN_CHECK_INTERVAL, now + self.check_interval
            self._timer = self.loop.call_at(max(min(due, latest), soonest), self._check_deadlines)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self, now: float) -> bool:
        if self._phase is BODY:
            paused = self._is_paused() or self.cycle.waiting_for_100_continue
            return self._body_rate.update(now, paused) <= 0
        # Bytes that we do not read cannot be late.
        if self._phase is HEAD and self._is_paused():
            self._deadline = now + self.limits.head_time
        # The handshake was answered: a WebSocket may be silent for as long as it likes.
        if self._phase is WEBSOCKET and self.transport.written > self._written_at_upgrade:
            self._deadline = math.inf
        return now >= self._deadline

    def _is_paused(self) -> bool:
        return self.flow.read_paused or len(self._responses) > 1

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
    """Returns a protocol class with these limits, for `uvicorn.Config(http=…)`. Its connections
    share a registry."""

    # uvicorn makes the protocol objects itself and passes nothing of ours, so limits and registry
    # are attributes of a class, and every server has a class of its own.
    class LimitedHttpProtocol(HttpProtocol):
        pass

    LimitedHttpProtocol.limits = limits
    # A quarter: `stalled_for` is exact only to the time between two checks.
    interval = min(limits.head_time, limits.body_time, limits.stalled / 4)
    LimitedHttpProtocol.check_interval = max(interval, MIN_CHECK_INTERVAL)
    LimitedHttpProtocol.registry = ConnectionRegistry(
        limits.connections, limits.connections_without_key, limits.memory
    )
    return LimitedHttpProtocol


def _new_parser(connection: HttpProtocol) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(connection)
    # As uvicorn's: otherwise bytes behind a request with `Connection: close` are an error of that
    # request, too.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def path_of(target: bytes) -> str:
    """The path of a target that may be cut off or malformed, without the user and the query that it
    may have; empty if there is none."""
    path = target.partition(b"?")[0].partition(b"#")[0]
    if not path.startswith(b"/"):  # of a whole URL, or of nothing that is allowed
        _, slash, rest = path.partition(b"://")[2].partition(b"/")
        path = slash + rest
    return unquote(path.decode("latin-1"))


def _nothing() -> None:
    pass


def _error_response(error: httptools.HttpParserError) -> ErrorResponse:
    # httptools raises HttpParserCallbackError while it handles what a callback raised.
    cause = error.__context__
    if isinstance(cause, StopParsing):
        return cause.response
    if cause is not None:
        log.error("cannot parse a request", exc_info=cause)
    return MALFORMED
