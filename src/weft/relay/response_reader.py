"""One answer of an upstream, as it comes: bytes, frames, parts.

An answer always ends in a finish part. What cuts it short becomes an error part first: a
connection that breaks, a silence that is too long, an answer that is too large, a stop from
outside. Nothing of that matters once the wire has told why it ends.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from weft.codec import Pipe
from weft.errors import TooLarge
from weft.parts import ErrorPart, Finish, Part
from weft.relay.offload import offload
from weft.sse import Frame, FrameReader
from weft.upstream.base import Unreachable, UpstreamResponse

T = TypeVar("T")

LARGE = 128 * 1024
"""Bytes of one event, or of one answer: what is made of more takes long."""


class ResponseReader:
    """Reads one answer. `read` again and again until `ended`."""

    def __init__(
        self, incoming: UpstreamResponse, pipe: Pipe, limit: int, *, keep: bool = False
    ) -> None:
        """`keep`: remember the bytes, for `data`."""
        self._incoming = incoming
        self._kept: list[bytes] | None = [] if keep else None
        self._reader = FrameReader(limit=limit)  # one event may be all of the answer
        self._limit = limit
        self.pipe = pipe
        self.size = 0
        self.parts: Sequence[Part] = ()
        """What the last read meant."""
        self.ended = False
        self.is_long = False
        """Whether the last read ended a large event."""
        self._unread = b""
        """What came, and was not taken at once."""
        self._unwanted = False  # whether it ended here, and not where it comes from
        self._aborted = False
        self._over = False  # whether nothing more can come
        self.broken: Unreachable | None = None
        """How the connection broke, if it did."""

    async def read(self) -> None:
        """Reads what the network has next, and leaves what it means in `parts`."""
        data, self._unread = self._unread, b""
        if not data:
            try:
                data = await self._incoming.read()
            except Unreachable as problem:
                self.broken = problem.with_traceback(None)  # its frames hold this
        self.is_long = self.ends_large_event(data)
        if not data:
            self._over = True
            await self._do(self._end, self._verdict())
        else:
            await self._do(self._take, data)
            self._leave()

    async def _do(self, work: Callable[[T], None], argument: T) -> None:
        """Reads some of it: beside the loop, if that takes long."""
        if self.is_long:
            await offload(work, argument)
        else:
            work(argument)

    def ends_large_event(self, data: bytes) -> bool:
        """Whether these bytes, or the end of all, tell that a large event is whole."""
        is_end = not data or b"\n" in data or b"\r" in data
        return is_end and self._reader.pending > LARGE

    def _verdict(self) -> ErrorPart | None:
        """What a broken connection means; nothing, if the wire told before why it ends."""
        if self.broken is None or self.pipe.ending:
            return None
        return ErrorPart(self.broken.kind, str(self.broken), retryable=True)

    async def flow(self, taken: Callable[[bytes], bool]) -> None:
        """Has what comes taken at once; see UpstreamResponse.stream_to."""
        if not self.ended and not self._unread:
            await self._incoming.stream_to(taken)

    def take(self, data: bytes) -> bool:
        """These bytes came. Returns False if it takes long to find out what they mean: the next
        `read` does."""
        if self.ends_large_event(data):
            self._unread = data
            return False
        self.is_long = False
        self._take(data)
        self._leave()
        return True

    def _take(self, data: bytes) -> None:
        self.size += len(data)
        if self._kept is not None:
            self._kept.append(data)
        if self.size > self._limit:
            error = ErrorPart("too-large", f"the answer is over {self._limit} bytes")
            return self._give_up(error)
        try:
            frames = self._reader.feed(data)
        except TooLarge as problem:
            return self._give_up(ErrorPart("too-large", str(problem)))
        self.parts = parts = self.pipe.feed(frames)
        if parts and parts[-1].__class__ is Finish:
            self.ended = True
        return None

    def _give_up(self, error: ErrorPart) -> None:
        """Ends the answer with this error, perhaps not on the loop."""
        self._unwanted = True
        self._end(None if self.pipe.ending else error)

    def _leave(self) -> None:
        """Closes the connection, if no more is wanted of it."""
        if self._unwanted:
            self.abort()

    def fail(self, error: ErrorPart) -> None:
        """Ends the answer with this error, unless the wire told before why it ends."""
        self.cut(None if self.pipe.ending else error)

    def cut(self, error: ErrorPart | None) -> None:
        """Ends the answer now, with this error, if there is one."""
        self.abort()
        self._end(error)

    def _end(self, error: ErrorPart | None) -> None:
        """The input is over, however it ended."""
        if self.ended:
            self.parts = ()
            return
        self.ended = True
        parts = [] if error else self.pipe.feed(self._rest())
        if error is not None:
            parts += self.pipe.fail(error)
        self.parts = parts + self.pipe.finish()

    def _rest(self) -> list[Frame]:
        """An event without its blank line."""
        try:
            return self._reader.finish()
        except TooLarge:
            return []

    @property
    def data(self) -> bytes:
        """All bytes that came."""
        return b"".join(self._kept or ())

    @property
    def is_body(self) -> bool:
        """Whether it is one JSON value, and not a stream."""
        kind = self._incoming.headers.get("content-type", "")
        return kind.startswith("application/json")

    def abort(self) -> None:
        """Closes the connection. Once that is done, `fail` need not be called on the loop."""
        if not self._aborted:
            self._aborted = True
            self._incoming.abort()

    async def drain(self, grace: float, limit: int = 65536) -> None:
        """Reads what little may come after the end, so that the connection can be used again."""
        if self._over:
            return
        size = 0
        try:
            async with asyncio.timeout(grace):
                while size < limit and (data := await self._incoming.read()):
                    size += len(data)
        except (Unreachable, TimeoutError):
            size = limit
        if size >= limit:
            self.abort()
