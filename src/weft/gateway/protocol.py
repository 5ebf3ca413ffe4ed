"""The outermost door: what a connection may do before any code of the app runs.

uvicorn speaks HTTP/1 here; `Door` adds what it leaves open:

- time: a head is there in time and a body keeps coming, else 408. While we do not read, nobody is
  late;
- size: of a head, of a trailer, number of fields, else 431;
- smuggling: whatever two readers could cut differently is 400. The parser refuses bad lengths,
  bare CR and LF, folded lines and spaces before colons; which requests it lets through is told by
  `_fault_of_head`. An upgrade that nobody here speaks is ignored, as if it was not asked for: the
  parser alone would take the body for the next request;
- number: above so many connections a new one gets 503;
- a client that does not read is dropped.

A refusal is the last answer of its connection. It waits for the answers before it, and replaces
that of the request it is about, unless that has begun: then the connection just ends.
"""

import asyncio
import http
import logging
import math
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from weft.dialects import DIALECTS
from weft.dialects.faults import ErrorClass, fault

BUFFER = 65536
"""Bytes that may wait in the process for one client, and again so many in the kernel, unsent."""

SPARE = 262144
"""Bytes of a body that are read after its answer, so that the connection can be used again."""

LINGER = 2.0
"""Seconds to read on after the last answer: closed at once, the kernel would send a reset, and
the client would lose the answer while it still writes."""

SHORTEST = 0.01
"""Seconds between two looks at one connection, at least."""

log = logging.getLogger("weft.door")


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Times are seconds, sizes are bytes."""

    head_time: float = 10.0
    """From the connection, or from the first byte of a further request, to the end of its head."""

    body_time: float = 10.0
    """How long a body may stay below its rate."""

    body_rate: int = 1024
    """Bytes a second that a body must have, at least 1."""

    head: int = 65536
    """Request line and headers; a second request in the same packet may have twice as much."""

    fields: int = 100
    connections: int = 4096
    stalled: float = 60.0
    """So long a client may take nothing of what waits for it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client is told that goes no further."""

    status: int
    message: str
    kind: ErrorClass = "bad-request"
    headers: tuple[tuple[bytes, bytes], ...] = ()


MALFORMED = Refusal(400, "The request is not valid HTTP/1.1.")
SLOW_HEAD = Refusal(408, "The head of the request did not come in time.")
SLOW_BODY = Refusal(408, "The body of the request came too slowly.")
LONG_HEAD = Refusal(431, "The request line and headers are too large.")
MANY_FIELDS = Refusal(431, "The request has too many header fields.")
_LATER = ((b"retry-after", b"1"),)
CROWDED = Refusal(503, "Too many connections; try again later.", "overloaded", _LATER)
LEAVING = Refusal(503, "The server is shutting down; try again.", "overloaded", _LATER)

_SHAPES = (
    (b"/v1/messages", "anthropic-messages"),
    (b"/v1beta", "gemini"),
    (b"/v1/responses", "openai-responses"),
)
_CLOSING = ((b"content-type", b"application/json"), (b"connection", b"close"))


def answer(refusal: Refusal, target: bytes, more: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the whole HTTP answer, in the error shape of the dialect that the target names."""
    name = next((name for prefix, name in _SHAPES if target.startswith(prefix)), "openai-chat")
    write = DIALECTS[name].write_error
    assert write is not None
    _, body = write(fault(refusal.kind, refusal.message))
    length = (b"content-length", b"%d" % len(body))
    phrase = http.HTTPStatus(refusal.status).phrase.encode()
    lines = [b"HTTP/1.1 %d %s" % (refusal.status, phrase)]
    lines += [b"%s: %s" % pair for pair in (*more, *refusal.headers, *_CLOSING, length)]
    return b"\r\n".join([*lines, b"", body])


class Refused(Exception):
    """Raised inside a callback of the parser, which then stops."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Outlet(asyncio.Transport):
    """The transport of one connection. Counts what it is given; its owner says how it closes."""

    def __init__(self, inner: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self.inner = inner
        self.written = 0
        self.reader: asyncio.BaseProtocol | None = None
        self._close: Callable[[], None] | None = close

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += len(data)
        self.inner.write(data)

    def is_closing(self) -> bool:
        return self._close is None or self.inner.is_closing()

    def close(self) -> None:
        if not self.is_closing() and self._close is not None:
            close, self._close = self._close, None
            close()

    def abort(self) -> None:
        self.inner.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.reader = protocol
        self.inner.set_protocol(protocol)

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self.inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)


class Phase(Enum):
    """What is read from a connection next."""

    REST = auto()  # nothing is due
    HEAD = auto()
    BODY = auto()
    ASIDE = auto()  # a head with an upgrade to ignore: it is read again without it
    DEAF = auto()  # what comes is thrown away
    SOCKET = auto()  # a WebSocket reads it
    LOST = auto()


REST, HEAD, BODY, ASIDE, DEAF, SOCKET, LOST = Phase
_OVER = (DEAF, SOCKET, LOST)


class Crowd:
    """Connections above the limit, that wait for their refusal."""

    def __init__(self) -> None:
        self.size = 0


class Door(HttpToolsProtocol):
    """One connection. Use `protocol(limits)`."""

    limits: ClassVar[DoorLimits]
    crowd: ClassVar[Crowd]

    transport: Outlet

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
        self._received = 0  # bytes since the body was last looked at
        self._spare = 0
        self._looked = 0.0
        self._allowance = 0.0
        self._drained = 0
        self._moved = 0.0
        self._answers: deque[RequestResponseCycle] = deque()  # not complete, in their order
        self._unwelcome: Refusal | None = None
        self._last_word: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        crowded = len(self.connections) - self.crowd.size >= self.limits.connections
        super().connection_made(Outlet(transport, self._end))
        _tune(transport)
        self._moved = self.loop.time()
        self._expect_head()
        self._look()
        if crowded:
            self._turn_away()

    def _turn_away(self) -> None:
        """Above the limit there is a little room to hear the request before the answer, which
        clients understand better; above that there is none."""
        self.crowd.size += 1
        self._hear_and_refuse(CROWDED)
        if self.crowd.size > max(16, self.limits.connections // 8):
            self._refuse(CROWDED)
            self.transport.inner.close()

    def _hear_and_refuse(self, refusal: Refusal) -> None:
        self._unwelcome = refusal
        self._due = min(self._due, self.loop.time() + LINGER)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = LOST
        self._stop_looking()
        self._unset_keepalive_if_required()
        if self._unwelcome is CROWDED:
            self.crowd.size -= 1
        super().connection_lost(exc)
        for cycle in self._answers:  # uvicorn tells only the last of a pipeline
            _leave(cycle)

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
            rest = self._read(rest)

    def _read(self, data: memoryview) -> memoryview:
        """Reads a piece no longer than a head may be, and returns the rest."""
        if self._phase is REST:
            self._expect_head()
        room = self.limits.head
        if self._phase is HEAD:
            room -= self._pending
        size = min(room, len(data))
        self._pending += size
        self._received += size
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
            raise Refused(MANY_FIELDS)
        if self._phase is HEAD:  # else a trailer, after all checks: nobody may see it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if self._unwelcome is not None:
            raise Refused(self._unwelcome)
        wrong = self._fault_of_head(version)
        if wrong is not None:
            raise Refused(Refusal(400, wrong))
        if self.parser.should_upgrade():
            self._consider_upgrade()
            return
        self._expect_body()
        if version == "1.0":
            self.expect_100_continue = False  # such a client would take it for the answer
        super().on_headers_complete()
        self._answers.append(self.cycle)

    def _expect_body(self) -> None:
        self._phase, self._due = BODY, math.inf
        self._pending = self._received = 0
        self._spare = SPARE
        self._allowance = self.limits.body_time
        self._looked = self.loop.time()

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

    # Smuggling

    def _fault_of_head(self, version: str) -> str | None:
        hosts = [value for name, value in self.headers if name == b"host"]
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if version not in ("1.0", "1.1"):
            return "HTTP/1.1 and HTTP/1.0 are spoken here."
        if len(hosts) > 1 or (version == "1.1" and not hosts):
            return "A request has one Host header."
        if codings and (version == "1.0" or codings != [b"chunked"]):
            return "The only Transfer-Encoding is chunked, once, in HTTP/1.1."
        return self._fault_of_target(hosts)

    def _fault_of_target(self, hosts: list[bytes]) -> str | None:
        if self.parser.get_method() == b"CONNECT":
            return "This is not a proxy."
        if self.url == b"*" or self.url.startswith(b"/"):
            return None
        _, _, rest = self.url.partition(b"://")
        authority, slash, _ = rest.partition(b"/")
        if not slash or hosts != [authority]:
            return "The target of a request is a path, or a URL of the Host."
        return None

    # Upgrades

    def _consider_upgrade(self) -> None:
        if not self._should_upgrade():
            self._phase = ASIDE
            return
        framing = {b"content-length", b"transfer-encoding"}
        body = not framing.isdisjoint(name for name, _ in self.headers)
        if body or self._answers or self.parser.get_method() != b"GET":
            raise Refused(Refusal(400, "A WebSocket begins alone, with a GET without a body."))
        self._phase, self._due = SOCKET, math.inf
        super().on_headers_complete()

    def _upgrade(self, rest: memoryview) -> memoryview:
        if self._phase is ASIDE:
            self._read_again()
            return rest
        self.handle_websocket_upgrade()
        return rest[:0]

    def _read_again(self) -> None:
        """Reads the head once more, by a new parser and without its upgrade."""
        head = b"%s %s HTTP/%s\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        head += b"".join(b"%s: %s\r\n" % pair for pair in _plain(self.headers))
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
        if self._answers or self.transport.is_closing():
            return
        if self._last_word is not None:
            self._say(self._last_word)
        elif self._phase is BODY and self.expect_100_continue:
            self.transport.close()  # whether the client still sends its body, nobody can know

    def _refuse(self, refusal: Refusal) -> None:
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
        if self._stuck(now):
            log.info("dropped: the client took nothing for %g s", self.limits.stalled)
            self.transport.abort()
        elif self._late(now):
            self._too_late()
        if self._timer is None and not self._gone():  # refusing may have looked already
            limits = self.limits
            later = now + min(limits.head_time, limits.body_time, limits.stalled / 4)
            due = self._due if self._phase is not BODY else now + self._allowance
            self._timer = self.loop.call_at(max(min(due, later), now + SHORTEST), self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _gone(self) -> bool:
        reader = self.transport.reader
        return self._phase is LOST or (reader is not None and reader not in self.connections)

    def _stuck(self, now: float) -> bool:
        waiting = self.transport.get_write_buffer_size()
        drained = self.transport.written - waiting
        if not waiting or drained != self._drained:
            self._drained, self._moved = drained, now
        return now - self._moved >= self.limits.stalled

    def _late(self, now: float) -> bool:
        if self._phase is BODY:
            self._judge_body(now)
            return self._allowance <= 0
        if self._phase is HEAD and self.flow.read_paused:
            self._due = now + self.limits.head_time
        return self._phase in (HEAD, DEAF) and now >= self._due

    def _judge_body(self, now: float) -> None:
        """A body has an allowance of seconds: time takes from it, bytes give to it, up to where
        it began. While we do not read, or have not said that we will, it stays full."""
        limits = self.limits
        earned = self._received / limits.body_rate - (now - self._looked)
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            earned = limits.body_time
        self._allowance = min(limits.body_time, self._allowance + earned)
        self._looked, self._received = now, 0

    def _too_late(self) -> None:
        if self._phase is DEAF:
            self._due = math.inf
            self.transport.inner.close()
        elif self._phase is BODY:
            self._refuse(SLOW_BODY)
        else:
            self._refuse(self._unwelcome or SLOW_HEAD)


def protocol(limits: DoorLimits) -> type[Door]:
    """Returns the class of protocols with these limits, for `uvicorn.Config(http=…)`."""

    class LimitedDoor(Door):
        pass

    LimitedDoor.limits = limits
    LimitedDoor.crowd = Crowd()
    return LimitedDoor


def _tune(transport: asyncio.Transport) -> None:
    """Small events leave at once, and little waits for a client that does not read."""
    transport.set_write_buffer_limits(high=BUFFER)
    channel = transport.get_extra_info("socket")
    if channel is None or channel.family not in (socket.AF_INET, socket.AF_INET6):
        return
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, BUFFER)


def _leave(cycle: RequestResponseCycle) -> None:
    """Tells the app that its client is gone."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _refusal(error: httptools.HttpParserError) -> Refusal:
    cause = error.__context__
    if isinstance(cause, Refused):
        return cause.refusal
    if cause is not None:
        log.error("a request could not be read", exc_info=cause)
    return MALFORMED


def _plain(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers without what asks for an upgrade."""
    found = []
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
            if not value:
                continue
        if name not in _UPGRADE:
            found.append((name, value))
    return found


_UPGRADE = (b"upgrade", b"http2-settings")
