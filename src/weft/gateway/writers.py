"""How events leave the process: as server-sent events, as one JSON array, over a WebSocket.

A writer lives for one response to one client. Nothing behind it looks into bytes again.
"""

from collections.abc import Iterable

import msgspec

from weft.sse import DONE, Event, frame, write


class EventStreamWriter:
    """Server-sent events. Where the client wants to resume, each has an id: what the response is
    stored under, and the number of the event in its log.
    """

    def __init__(self, idle: bytes, log_id: str | None = None, first: int = 0) -> None:
        """`idle` is what the dialect sends while there is nothing to say. `first` is the number of
        the first event that is written."""
        self._idle = idle
        self.log_id = log_id
        self._number = first

    def write(self, events: Iterable[Event]) -> bytes:
        if self.log_id is None:
            return b"".join([write(event.name, event.data) for event in events])
        return b"".join([piece for event in events for piece in self.frame(event)])

    def frame(self, event: Event) -> tuple[bytes, bytes, bytes]:
        """The same of one event: what stands before its data, the data, and what stands behind. Of
        a large one nothing is copied."""
        before, data, after = frame(event.name, event.data)
        if self.log_id is not None:
            before = b"id: %b/%d\n%b" % (self.log_id.encode(), self._number, before)
            self._number += 1
        return before, data, after

    def keepalive(self, event: Event | None) -> bytes:
        """What to send while there is nothing to say: an event, if the dialect has one for that."""
        return self._idle if event is None else self.write((event,))

    def end(self) -> bytes:
        return b""


class JsonArrayWriter:
    """One JSON array that grows: the data of each event is an element of it."""

    def __init__(self) -> None:
        self._before = b"["
        """What goes before the next element."""

    def write(self, events: Iterable[Event]) -> bytes:
        return b"".join([piece for event in events for piece in self.frame(event)])

    def frame(self, event: Event) -> tuple[bytes, bytes, bytes]:
        """The same of one event, in pieces."""
        before, self._before = self._before, b","
        return before, event.data, b"\n"

    def keepalive(self, event: Event | None) -> bytes:
        """Blanks mean nothing between elements; readers want the bracket to be the first byte."""
        if self._before != b"[":
            return b"\n"
        self._before = b""
        return b"["

    def end(self) -> bytes:
        return b"[]" if self._before == b"[" else b"]"


class SocketWriter:
    """Messages of a WebSocket: without errors, which the failed response tells, and without the
    terminator. Events keep the numbers that they have in the log.
    """

    def __init__(self, stream_id: str | None = None) -> None:
        """`stream_id` is a name that every event gets."""
        named = b'{"stream_id":%b,' % msgspec.json.encode(stream_id)
        self._begin = named if stream_id is not None else b"{"

    def write(self, events: Iterable[Event]) -> list[bytes]:
        told = [one.data for one in events if one.name != "error" and one.data != DONE]
        return told if self._begin == b"{" else [self._begin + data[1:] for data in told]
