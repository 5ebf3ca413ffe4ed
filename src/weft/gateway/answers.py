"""What goes back to a client over HTTP: bodies, errors, and streams.

A stream's head waits for the first of its answer, so that what fails before is an error with a
status of its own; unless the upstream is silent for so long that the client must hear something.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.dialects import DIALECTS
from weft.dialects.error_classes import error_headers as error_headers
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.gateway.doors import Shut
from weft.gateway.pulse import Pulse
from weft.gateway.writers import EventStreamWriter, JsonArrayWriter
from weft.parts import ErrorPart
from weft.relay.incoming import RequestFailed
from weft.relay.run import Run
from weft.sse import Event

log = logging.getLogger("weft.gateway")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
ARRAY: Headers = [JSON, *STREAM[1:]]
SLICE = 256 * 1024
"""Bytes that are sent at a time: what is large leaves as fast as its client reads it."""
_VISIBLE = re.compile(r"[\x21-\x7e]{1,128}")
_FINDINGS = 2048
"""Bytes of the header that lists what the upstream was not told, and what was repaired before the
head of the answer."""


def about(id: str, run: Run | None = None) -> Headers:
    """The headers that say which request this is, who answers, and what got lost on the way."""
    found = [(b"weft-request-id", id.encode()), (b"x-request-id", id.encode())]
    if run is None:
        return found
    if run.upstream:
        found.append((b"weft-upstream", run.upstream.encode()))
    codes = dict.fromkeys(one.code for one in run.findings)
    words = [*(f"warned:{path}" for path in run.warnings), *(f"found:{code}" for code in codes)]
    if words:
        count = len(run.warnings) + len(run.findings)
        found.append((b"weft-findings", _listed(words)))
        found.append((b"weft-findings-count", b"%d" % count))
    return found


def _listed(words: Iterable[str]) -> bytes:
    """The words that may stand in a header, as many as there is room for."""
    listed = ""
    for word in words:
        if not _VISIBLE.fullmatch(word):
            word = re.sub(r"[^\x21-\x7e]", "_", word)[:128]
        longer = f"{listed},{word}" if listed else word
        if len(longer) > _FINDINGS:
            return f"{listed},...".encode()
        listed = longer
    return listed.encode()


async def body(send: Send, status: int, data: bytes, headers: Headers) -> None:
    """Sends an answer in one piece."""
    length = (b"content-length", b"%d" % len(data))
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    if len(data) > SLICE:
        for one in sliced(data):
            await send({"type": "http.response.body", "body": one, "more_body": True})
        data = b""
    await send({"type": "http.response.body", "body": data})


def sliced(data: bytes) -> Iterator[bytes]:
    """What is sent, in pieces that a connection takes at once."""
    for start in range(0, len(data), SLICE):
        yield data[start : start + SLICE]


def in_slices(
    writer: EventStreamWriter | JsonArrayWriter, events: Sequence[Event]
) -> Iterator[bytes]:
    """Events as they are sent: all at once, or, if they are large, in slices."""
    if sum([len(event.data) for event in events]) <= SLICE:
        yield writer.write(events)
        return
    for event in events:
        if len(event.data) <= SLICE:
            yield writer.write((event,))
        else:
            before, data, after = writer.frame(event)
            yield before
            yield from sliced(data)
            yield after


async def failure(send: Send, dialect: str, failed: RequestFailed, headers: Headers) -> int:
    """Sends an error in the client's dialect; returns its status."""
    status, data = written(dialect, failed.error)
    if isinstance(failed, Shut):
        status = failed.status
    more = [(name.encode(), value.encode()) for name, value in error_headers(failed.error).items()]
    if status == 401:
        more.append((b"www-authenticate", b"Bearer"))
    if status in (413, 421):
        more.append((b"connection", b"close"))
    await body(send, status, data, [JSON, *headers, *more])
    return status


def written(dialect: str, error: ErrorPart) -> tuple[int, bytes]:
    """The status and the body of an error in a dialect."""
    write = DIALECTS[dialect].write_error
    if write is None:
        raise InternalError(f"{dialect} has no errors")
    return write(error)


def own_fault(id: str, problem: Exception) -> RequestFailed:
    """Keeps what went wrong for the log; a client is told that something did, and no more."""
    log.error("a request failed", exc_info=problem, extra={"request_id": id})
    return RequestFailed(new_error("server", f"an error of our own; it is logged as {id}"))


@dataclass(frozen=True, slots=True)
class Client:
    """Who is told: one request over HTTP."""

    id: str
    dialect: str
    send: Send
    write: Callable[[bytes], bool]
    """Writes to a body that has begun, at once; tells whether there is room for more."""


class StreamAnswer:
    """Tells one run to one client, as it comes."""

    def __init__(
        self,
        run: Run,
        client: Client,
        keepalive: float,
        writer: EventStreamWriter | JsonArrayWriter,
    ) -> None:
        self._run = run
        self._client = client
        self._writer = writer
        self._headers = ARRAY if isinstance(writer, JsonArrayWriter) else STREAM
        self._loop = asyncio.get_running_loop()
        self._begun = False
        self._writing = False
        self._beats: set[asyncio.Task[None]] = set()
        self._pulse = Pulse(keepalive, self._beat)

    async def tell(self) -> None:
        run, writer = self._run, self._writer
        try:
            stream = await run.open()
            while events := await stream.next():
                if run.incoming.resumable and isinstance(writer, EventStreamWriter):
                    writer.log_id = stream.log_id
                await self._put_events(events)
                await stream.flow(self._pass_on)
        except RequestFailed as failed:
            await self._failed(failed)
        except Exception as problem:
            await self._failed(own_fault(self._client.id, problem))
        else:
            self._quiet()
            await self._end()
        finally:
            self._quiet()

    async def _failed(self, failed: RequestFailed) -> None:
        self._quiet()
        if self._begun:
            await self._put_events(await self._run.error_events(failed.error))
            await self._end()
        else:
            client = self._client
            headers = about(client.id, self._run)
            status = await failure(client.send, client.dialect, failed, headers)
            self._run.record.status = status

    def _pass_on(self, events: list[Event]) -> bool:
        """Writes events at once; tells whether there is room for more."""
        self._pulse.said()
        data = self._writer.write(events)
        self._run.record.bytes_out += len(data)
        return self._client.write(data)

    async def _put_events(self, events: Sequence[Event]) -> None:
        for data in in_slices(self._writer, events):
            await self._put(data)

    async def _put(self, data: bytes) -> None:
        self._writing = True
        try:
            if not self._begun:
                await self._begin()
            self._run.record.bytes_out += len(data)
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._writing = False
        self._pulse.said()

    @property
    def _send(self) -> Send:
        return self._client.send

    async def _begin(self) -> None:
        self._begun = True
        headers = [*self._headers, *about(self._client.id, self._run)]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end(self) -> None:
        if not self._begun:  # nothing was told, and nothing failed
            await self._begin()
        await self._send({"type": "http.response.body", "body": self._writer.end()})

    # While there is nothing to say

    def _beat(self) -> None:
        if not self._writing:
            task = self._loop.create_task(self._alive())
            self._beats.add(task)
            task.add_done_callback(self._beats.discard)

    async def _alive(self) -> None:
        """What has a number goes out at once: the next event must not overtake it."""
        if self._writing:
            return
        data = self._writer.keepalive(self._run.keepalive())
        if self._begun:
            self._client.write(data)
        else:
            await self._put(data)

    def _quiet(self) -> None:
        self._pulse.stop()
        for task in self._beats:
            task.cancel()
