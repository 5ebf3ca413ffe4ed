"""What goes back to a client over HTTP: bodies, errors, and streams.

A stream's head waits for the first of its answer, so that what fails before is an error with a
status of its own; unless the upstream is silent for so long that the client must hear something.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from weft.dialects import DIALECTS
from weft.dialects.faults import headers as error_headers
from weft.errors import InternalError
from weft.gateway.doors import Shut
from weft.parts import ErrorPart
from weft.relay.asked import Failed
from weft.relay.run import Run

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_VISIBLE = re.compile(r"[\x21-\x7e]{1,128}")
_FINDINGS = 2048
"""Bytes of the header that lists what the upstream was not told."""


def about(id: str, run: Run | None = None) -> Headers:
    """The headers that say which request this is, who answers, and what got lost on the way."""
    found = [(b"weft-request-id", id.encode()), (b"x-request-id", id.encode())]
    if run is None:
        return found
    if run.upstream:
        found.append((b"weft-upstream", run.upstream.encode()))
    lost = _listed(f"warned:{path}" for path in run.warnings)
    if lost:
        found.append((b"weft-findings", lost))
    return found


def _listed(words: Iterable[str]) -> bytes:
    """The words that may stand in a header, as many as there is room for."""
    listed = ""
    for word in words:
        if not _VISIBLE.fullmatch(word):
            word = re.sub(r"[^\x21-\x7e]", "_", word)[:128]
        longer = f"{listed},{word}" if listed else word
        if len(longer) > _FINDINGS:
            return f"{listed},…".encode("ascii", "replace")
        listed = longer
    return listed.encode()


async def body(send: Send, status: int, data: bytes, headers: Headers) -> None:
    """Sends an answer in one piece."""
    length = (b"content-length", b"%d" % len(data))
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": data})


async def failure(send: Send, dialect: str, failed: Failed, headers: Headers) -> int:
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


class Stream:
    """Tells one run to one client, as it comes."""

    def __init__(self, run: Run, send: Send, id: str, dialect: str, keepalive: float) -> None:
        self._run = run
        self._send = send
        self._id = id
        self._dialect = dialect
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._begun = False
        self._writing = False
        self._last = self._loop.time()
        self._beats: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        if keepalive:
            self._timer = self._loop.call_later(keepalive, self._beat)

    async def tell(self) -> None:
        run = self._run
        try:
            await run.open()
        except Failed as failed:
            await self._failed(failed)
            return
        try:
            while block := await run.next():
                await self._write(block)
        finally:
            self._quiet()
        await self._end()

    async def _failed(self, failed: Failed) -> None:
        self._quiet()
        if self._begun:
            await self._write(self._run.ending(failed.error))
            await self._end()
        else:
            headers = about(self._id, self._run)
            self._run.record.status = await failure(self._send, self._dialect, failed, headers)

    async def _write(self, block: bytes) -> None:
        self._writing = True
        try:
            if not self._begun:
                await self._begin()
            await self._send({"type": "http.response.body", "body": block, "more_body": True})
        finally:
            self._writing = False
        self._last = self._loop.time()

    async def _begin(self) -> None:
        self._begun = True
        headers = [*STREAM, *about(self._id, self._run)]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end(self) -> None:
        if not self._begun:  # nothing was told, and nothing failed
            await self._begin()
        await self._send({"type": "http.response.body", "body": b""})

    # While there is nothing to say

    def _beat(self) -> None:
        left = self._last + self._keepalive - self._loop.time()
        if left > 0.001:
            self._timer = self._loop.call_later(left, self._beat)
            return
        self._timer = self._loop.call_later(self._keepalive, self._beat)
        if not self._writing:
            self._last = self._loop.time()
            task = self._loop.create_task(self._alive())
            self._beats.add(task)
            task.add_done_callback(self._beats.discard)

    async def _alive(self) -> None:
        if not self._writing:
            await self._write(self._run.keepalive())

    def _quiet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._beats:
            task.cancel()
