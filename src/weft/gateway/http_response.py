"""Responses over HTTP: bodies, errors, and streams.

The head of a stream waits for the first event, so that a failure before it is an error with its own
status; unless the upstream is silent for so long that a keepalive has to be sent.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Protocol

import msgspec

from weft.dialects import DIALECTS
from weft.dialects.error_classes import error_headers, new_error
from weft.errors import InternalError
from weft.gateway.access import note_response
from weft.gateway.auth import HttpRejection
from weft.gateway.keepalive_timer import KeepaliveTimer
from weft.gateway.writers import EventStreamWriter, JsonArrayWriter
from weft.parts import ErrorPart
from weft.relay.direct_line import DirectLine
from weft.relay.incoming import RequestFailed
from weft.relay.run import Run
from weft.relay.translation import RUN_HEADER
from weft.sse import Event

log = logging.getLogger("weft.gateway")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would hold events back until a buffer of several KiB is full.
    (b"x-accel-buffering", b"no"),
]
ARRAY_HEADERS: Headers = [JSON_TYPE, *STREAM_HEADERS[1:]]
SLICE = 256 * 1024
"""Bytes that are sent at a time: a large body is sent as fast as its client reads it."""
_VISIBLE = re.compile(r"[\x21-\x7e]{1,128}")
_FINDINGS = 2048
"""The longest Weft-Findings header, in bytes."""


def weft_headers(id: str, run: Run | None = None) -> Headers:
    """The headers with the id of the request, the upstream, and the findings before the head."""
    # The OpenAI SDKs show x-request-id in their errors.
    name = id.encode()
    found = [(b"weft-request-id", name), (b"x-request-id", name)]
    if run is None:
        return found
    found += run.headers
    if attempts := run.record.attempts:
        upstream = (b"weft-upstream", run.record.upstream.encode())
        found += (upstream, (b"weft-attempts", b"%d" % len(attempts)))
    if run.record.agent_run is not None:
        found.append((RUN_HEADER.encode(), run.record.agent_run.encode()))
    warnings, findings = run.record.losses and run.warnings, run.findings
    if warnings or findings:
        codes = dict.fromkeys(one.code for one in findings)
        words = [*(f"warned:{path}" for path in warnings), *(f"found:{code}" for code in codes)]
        found.append((b"weft-findings", _header_list(words)))
        found.append((b"weft-findings-count", b"%d" % (len(warnings) + len(findings))))
    return found


def _header_list(words: Iterable[str]) -> bytes:
    """As many of the words as fit, without characters that a header cannot have."""
    listed = ""
    for word in words:
        # Paths hold names of fields that the client chose, and a header is no place for a CR or LF.
        if not _VISIBLE.fullmatch(word):
            word = re.sub(r"[^\x21-\x7e]", "_", word)[:128]
        longer = f"{listed},{word}" if listed else word
        if len(longer) > _FINDINGS:
            return f"{listed},...".encode()
        listed = longer
    return listed.encode()


async def send_json(send: Send, id: str, data: bytes, more: Headers | None = None) -> None:
    """Sends a JSON body as the response to the request with this id."""
    await send_body(send, 200, data, [JSON_TYPE, *weft_headers(id), *(more or ())])


async def send_body(send: Send, status: int, data: bytes, headers: Headers) -> None:
    """Sends a response with this body."""
    note_response(status)
    length = (b"content-length", b"%d" % len(data))
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    if len(data) > SLICE:
        for one in slices(data):
            await send({"type": "http.response.body", "body": one, "more_body": True})
            await let_others_run(one)
        data = b""
    await send({"type": "http.response.body", "body": data})


def slices(data: bytes) -> Iterator[bytes]:
    """The data in pieces that a connection takes at once."""
    for start in range(0, len(data), SLICE):
        yield data[start : start + SLICE]


async def let_others_run(sent: bytes) -> None:
    """Ends the turn of the loop after a slice: whoever reads fast enough would otherwise get all
    slices of a large response in a single one.
    """
    if len(sent) >= SLICE:
        await asyncio.sleep(0)


def write_slices(
    writer: EventStreamWriter | JsonArrayWriter, events: Sequence[Event]
) -> Iterator[bytes]:
    """The bytes of events: all at once, or in slices if they are large."""
    if sum([len(event.data) for event in events]) <= SLICE:
        yield writer.write(events)
        return
    for event in events:
        if len(event.data) <= SLICE:
            yield writer.write((event,))
        else:
            before, data, after = writer.frame(event)
            yield before
            yield from slices(data)
            yield after


async def send_error(send: Send, dialect: str, failed: RequestFailed, headers: Headers) -> int:
    """Sends an error in a dialect; returns its status."""
    status, data = render_error(dialect, failed.error)
    more = [(name.encode(), value.encode()) for name, value in error_headers(failed.error).items()]
    if isinstance(failed, HttpRejection):
        status = failed.status
        more += failed.headers
    note_response(status, failed.error)
    # RFC 9110 (15.5.2): a 401 must name a scheme.
    if status == 401:
        more.append((b"www-authenticate", b"Bearer"))
    # 413: the rest of the body is not read. 421: a client must not try another host on a connection
    # that does not serve it.
    if status in (413, 421):
        more.append((b"connection", b"close"))
    await send_body(send, status, data, [JSON_TYPE, *headers, *more])
    return status


def render_error(dialect: str, error: ErrorPart) -> tuple[int, bytes]:
    """The status and the body of an error in a dialect."""
    write = DIALECTS[dialect].write_error
    if write is None:
        raise InternalError(f"{dialect} has no error bodies")
    return write(error)


def failure(id: str, problem: Exception) -> RequestFailed:
    """The error for the client. An exception that is not meant for clients is logged, and the
    client gets only the id of its request."""
    if isinstance(problem, RequestFailed):
        return problem
    log.error("internal error", exc_info=problem, extra={"request_id": id})
    return RequestFailed(
        new_error("server", f"internal error; see request {id} in the log of the gateway")
    )


class DirectWrites(Protocol):
    """Writes without waiting: `Exchange` documents the methods."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def start(self, headers: Headers, data: bytes) -> bool: ...

    def try_write(self, data: bytes) -> bool: ...

    def write(self, data: bytes) -> bool: ...

    def end(self) -> bool: ...

    def direct(self) -> DirectLine | None: ...


class ClientConnection(msgspec.Struct, frozen=True):
    """Where the response to one HTTP request is sent."""

    id: str
    dialect: str
    send: Send
    exchange: "DirectWrites"


class StreamResponse:
    """Streams one run to one client."""

    def __init__(
        self,
        run: Run,
        client: ClientConnection,
        keepalive: float,
        writer: EventStreamWriter | JsonArrayWriter,
    ) -> None:
        self._run = run
        self._client = client
        self._writer = writer
        self._headers = ARRAY_HEADERS if isinstance(writer, JsonArrayWriter) else STREAM_HEADERS
        self._loop = client.exchange.loop
        self._started = False
        self._writing = False
        self._keepalives: set[asyncio.Task[None]] = set()
        self._timer = KeepaliveTimer(keepalive, self._on_silence, self._loop)
        self._line: DirectLine | None = None
        """Where events can leave without `_write_now`."""

    async def send(self) -> None:
        run, writer = self._run, self._writer
        try:
            stream = await run.open()
            while events := await stream.next():
                # Again before each write: the log has an id once the first event is stored.
                if run.incoming.resumable and isinstance(writer, EventStreamWriter):
                    writer.log_id = stream.log_id
                await self._send_events(events)
                # `next` waits and may store or translate; `flow` then passes what the upstream
                # sends straight on, in the turn of the loop that brings it, until something has to
                # be waited for.
                # Events with an id, or in an array, are framed by the writer.
                is_plain = isinstance(writer, EventStreamWriter) and writer.log_id is None
                if self._line is None and is_plain and not run.incoming.resumable:
                    self._line = self._timer.line = self._client.exchange.direct()
                await stream.flow(self._write_now, self._line)
        except Exception as problem:
            await self._finish_keepalives()
            await self._fail(failure(self._client.id, problem))
        else:
            await self._finish_keepalives()
            await self._end()
        finally:
            self._stop_keepalives()

    async def _fail(self, failed: RequestFailed) -> None:
        # The status was sent: only the stream itself can still say that something failed.
        if self._started:
            await self._send_events(await self._run.error_events(failed.error))
            await self._end()
        else:
            client = self._client
            self._run.note_failure(failed.error)
            headers = weft_headers(client.id, self._run)
            status = await send_error(client.send, client.dialect, failed, headers)
            self._run.record.status = status

    def _write_now(self, events: list[Event]) -> bool:
        """Writes events without waiting; returns False if the client has to catch up first."""
        self._timer.last_activity = self._loop.time()
        data = self._writer.write(events)
        self._run.record.bytes_out += len(data)
        return self._client.exchange.write(data)

    async def _send_events(self, events: Sequence[Event]) -> None:
        size = 0
        for event in events:
            size += len(event.data)
        if size <= SLICE:
            await self._send_data(self._writer.write(events))
            return
        for data in write_slices(self._writer, events):
            await self._send_data(data)
            await let_others_run(data)

    async def _send_data(self, data: bytes) -> None:
        self._run.record.bytes_out += len(data)
        exchange = self._client.exchange
        if self._started:
            is_sent = exchange.try_write(data)
        else:
            # The head leaves with the first events, in one write.
            is_sent = self._started = exchange.start(self._head(), data)
        if not is_sent:
            await self._send_waiting(data)
        self._timer.last_activity = self._loop.time()

    async def _send_waiting(self, data: bytes) -> None:
        """Sends data as soon as the client has room for it."""
        self._writing = True
        try:
            if not self._started:
                await self._begin()
            message = {"type": "http.response.body", "body": data, "more_body": True}
            await self._client.send(message)
        finally:
            self._writing = False

    def _head(self) -> Headers:
        return [*self._headers, *weft_headers(self._client.id, self._run)]

    async def _begin(self) -> None:
        self._started = True
        start = {"type": "http.response.start", "status": 200, "headers": self._head()}
        await self._client.send(start)

    async def _end(self) -> None:
        if not self._started:  # there were no events, and no error
            await self._begin()
        last = self._writer.end()
        if last or not self._client.exchange.end():
            await self._client.send({"type": "http.response.body", "body": last})

    # Keepalives

    def _on_silence(self) -> None:
        if not self._writing:
            # A task, since a timer cannot wait; the set keeps a reference, without which the loop
            # may drop it.
            task = self._loop.create_task(self._send_keepalive())
            self._keepalives.add(task)
            task.add_done_callback(self._keepalives.discard)

    async def _send_keepalive(self) -> None:
        """Writes without waiting where possible: a numbered event must not be overtaken."""
        if self._writing:
            return
        data = self._writer.keepalive(self._run.keepalive())
        if self._started:
            self._client.exchange.write(data)
        else:
            await self._send_data(data)

    async def _finish_keepalives(self) -> None:
        self._timer.stop()
        if self._writing:
            # It waits for a client that does not read, with the head of the response: without that,
            # nothing can follow.
            await asyncio.wait(self._keepalives)
        self._stop_keepalives()

    def _stop_keepalives(self) -> None:
        self._timer.stop()
        for task in self._keepalives:
            task.cancel()
