"""Reads one response of an upstream: bytes, frames, parts.

A response always ends in a finish part. What cuts it short becomes an error part first: a broken
connection, the idle timeout, the size limit, a stop from outside. None of them matters once the
upstream has sent its finish reason.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from weft.codec import Pipe
from weft.errors import TooLarge
from weft.parts import ErrorPart, Finish, Part
from weft.relay.fast_lane import FastLane
from weft.relay.offload import offload
from weft.relay.recording import UpstreamRecorder
from weft.relay.rendering import Renderer
from weft.sse import Event, Frame, FrameReader
from weft.upstream.base import Unreachable, UpstreamResponse

T = TypeVar("T")

LARGE = 128 * 1024
"""Bytes of one event, or of one response, from which on work on it is offloaded."""


class ResponseReader:
    """Reads one response: call `read` until `ended`."""

    def __init__(
        self,
        incoming: UpstreamResponse,
        pipe: Pipe,
        limit: int,
        *,
        keep: bool = False,
        recorder: UpstreamRecorder | None = None,
    ) -> None:
        """`keep`: whether the bytes are kept, for `data`."""
        self._incoming = incoming
        self._recorder = recorder
        self._keep = keep
        self._data: list[bytes] = []
        self._frames = FrameReader(limit=limit)  # the whole response may be one event
        self._limit = limit
        self.pipe = pipe
        self.size = 0
        self.copied: list[Event] = []
        """The events that the fast lane made of the beginning of the last read."""
        self.parts: Sequence[Part] = ()
        """The parts of the rest of the last read."""
        self._lane: FastLane | None = None
        self.lane: FastLane | None = None
        """The fast lane, if the next bytes may take it. What it copied counts once it is
        settled."""
        self._last_frame: Frame | None = None
        self.ended = False
        self.is_large = False
        """Whether the last read completed a large event."""
        self._unread = b""
        """Bytes that `take` did not process."""
        self._over_limit = False
        self._aborted = False
        self._at_end = False
        """Whether the connection has no more bytes."""

    async def read(self) -> None:
        """Reads the next bytes from the network, and sets `parts`."""
        data, self._unread = self._unread, b""
        broken: ErrorPart | None = None
        if not data:
            try:
                data = await self._incoming.read()
            except Unreachable as problem:
                # Not raised: what has come is rendered first, and the error is the last that the
                # client gets.
                broken = ErrorPart(problem.kind, str(problem), retryable=True)
        if data and self._copy(data):
            return
        self.is_large = self._completes_large_event(data)
        if data:
            await self._run(self._process, data)
            # Not in `_process`, which may be offloaded: only the event loop closes connections.
            if self._over_limit:
                self.abort()
        else:
            self._at_end = True
            # A connection that breaks behind the finish reason has broken nothing.
            await self._run(self._end, None if self.pipe.ending else broken)

    async def _run(self, work: Callable[[T], None], argument: T) -> None:
        if self.is_large:
            await offload(work, argument)
        else:
            work(argument)

    def _completes_large_event(self, data: bytes) -> bool:
        # Without a line end no event can be complete, so nothing is decoded: bytes are only
        # appended.
        is_end = not data or b"\n" in data or b"\r" in data
        return is_end and self._frames.pending > LARGE

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """Calls `take` with bytes as they arrive; see UpstreamResponse.stream_to."""
        if not self.ended and not self._unread:
            await self._incoming.stream_to(take)

    def settle(self) -> None:
        """Counts what the fast lane has copied."""
        if self.lane is not None:
            self.size += self.lane.settle()

    def take(self, data: bytes) -> bool:
        """Processes these bytes, which the fast lane could not copy, and sets `parts`. Returns
        False if that would take long: then the next `read` does it."""
        # Between two events nothing is pending, so nothing large.
        if not self._frames.fresh and self._completes_large_event(data):
            self._unread = data
            return False
        self.is_large = False
        self._process(data)
        if self._over_limit:
            self.abort()
        return True

    def _copy(self, data: bytes) -> bool:
        """Lets the fast lane copy these bytes. Returns False if they do not fit."""
        copied = None if self.lane is None else self.lane.copy(data)
        if copied is None:
            return False
        self.settle()
        self.is_large = False
        self.copied, self.parts, self._last_frame = copied, (), None
        return True

    def _process(self, data: bytes) -> None:
        self.settle()
        lane, self.lane = self.lane, None
        self.size += len(data)
        if self._keep:
            self._data.append(data)
        # Before anything is decoded. The limit is for the whole response, so an event has none of
        # its own.
        if self.size > self._limit:
            self._end_over_limit(f"the response is over {self._limit} bytes")
            return
        if self._recorder is not None:
            self._recorder.read(data)
        self.copied, size = [], 0
        if lane is not None:
            self.copied, size = lane.feed(data)
        if size == len(data):
            self.parts, self._last_frame = (), None
            return
        try:
            frames = self._frames.feed(data[size:] if size else data)
        except TooLarge as problem:
            self._end_over_limit(str(problem))
            return
        self._last_frame = frames[-1] if frames else None
        self.parts = parts = self.pipe.feed(frames)
        # A class is compared, not isinstance: this runs for every read of every stream.
        if parts and parts[-1].__class__ is Finish:
            self.ended = True

    def open_lane(self, renderer: Renderer) -> None:
        """Opens a fast lane for what comes next, if the last read allows it, and this renderer has
        written its parts."""
        # Anew after every event that took the ordinary way: it may have changed anything. A read
        # without one, such as a comment, has changed nothing.
        if self._last_frame is not None:
            self._lane = FastLane.open(
                *(self._last_frame, self.parts, self._frames, self.pipe, renderer),
                self._recorder,
            )
        self.lane = self._lane if self._frames.fresh else None
        if self.lane is not None:
            self.lane.room = self._limit - self.size

    def _end_over_limit(self, message: str) -> None:
        self._over_limit = True
        self._end(None if self.pipe.ending else ErrorPart("too-large", message))

    def fail(self, error: ErrorPart) -> None:
        """Ends the response with this error, unless the upstream has sent its finish reason."""
        self.cut(None if self.pipe.ending else error)

    def cut(self, error: ErrorPart | None) -> None:
        """Ends the response now, with this error if there is one."""
        self.abort()
        self._end(error)

    def _end(self, error: ErrorPart | None) -> None:
        """The input has ended, for whatever reason."""
        self.settle()
        self.lane = None
        self.copied = []
        if self.ended:
            self.parts = ()
            return
        self.ended = True
        if self._recorder is not None:
            self._recorder.end(error)
        if error is not None:
            self.parts = self.pipe.fail(error) + self.pipe.finish()
            return
        try:
            # WHATWG HTML (9.2.6) discards it; some servers close without the last blank line, and
            # the pipe judges what it says.
            frames = self._frames.finish()  # an event without its blank line
        except TooLarge:
            frames = []
        self.parts = self.pipe.feed(frames) + self.pipe.finish()

    @property
    def data(self) -> bytes:
        """All bytes so far, if they are kept."""
        return b"".join(self._data)

    @property
    def is_body(self) -> bool:
        """Whether the response is one JSON value, not a stream."""
        return self._incoming.headers.get("content-type", "").startswith("application/json")

    def abort(self) -> None:
        """Closes the connection. After that, `fail` may be called outside the event loop."""
        if not self._aborted:
            self._aborted = True
            self._incoming.abort()

    async def drain(self, grace: float, limit: int = 65536) -> None:
        """Reads the little that may follow the end, so that the connection can be reused."""
        if self._at_end:
            return
        size = 0
        try:
            # A new connection costs a TLS handshake; usage or `[DONE]` behind the finish cost
            # milliseconds.
            async with asyncio.timeout(grace):
                while size < limit and (data := await self._incoming.read()):
                    size += len(data)
        except (Unreachable, TimeoutError):
            size = limit
        if size >= limit:
            self.abort()
