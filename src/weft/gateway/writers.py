"""Writes events as bytes: as server-sent events, as one JSON array, or as WebSocket messages.

A writer lives for one response to one client. Nothing after it reads the bytes again.
"""

from collections.abc import Sequence

import msgspec

from weft.sse import DONE, Event, frame, write, write_events


class EventStreamWriter:
    """Server-sent events. For a client that wants to resume, each has an id: the id of the log, and
    the number of the event in it.
    """

    def __init__(self, idle: bytes, log_id: str | None = None, first: int = 0) -> None:
        """`idle`: the keepalive of the dialect. `first`: the number of the first event."""
        self._idle = idle
        self.log_id = log_id
        self._number = first

    def write(self, events: Sequence[Event]) -> bytes:
        if self.log_id is None:
            if len(events) == 1:  # nearly always
                return write(events[0].name, events[0].data)
            return write_events(events)
        return b"".join([piece for event in events for piece in self.frame(event)])

    def frame(self, event: Event) -> tuple[bytes, bytes, bytes]:
        """The bytes before the data of an event, the data, and the bytes after it: the data of a
        large event is not copied."""
        before, data, after = frame(event.name, event.data)
        if self.log_id is not None:
            # In every event: a client reports the last id that it has seen (WHATWG HTML, 9.2.6),
            # and an event without one would be sent again.
            before = b"id: %b/%d\n%b" % (self.log_id.encode(), self._number, before)
            self._number += 1
        return before, data, after

    def keepalive(self, event: Event | None) -> bytes:
        """A keepalive: this event, if the dialect has one for it."""
        return self._idle if event is None else self.write((event,))

    def end(self) -> bytes:
        return b""


class JsonArrayWriter:
    """One JSON array: the data of each event is an element."""

    def __init__(self) -> None:
        self._before = b"["
        """Written before the next element."""

    def write(self, events: Sequence[Event]) -> bytes:
        return b"".join([piece for event in events for piece in self.frame(event)])

    def frame(self, event: Event) -> tuple[bytes, bytes, bytes]:
        """The same for one event, in pieces."""
        # The comma comes before the next element, not behind this one: nobody knows yet whether
        # there is another.
        before, self._before = self._before, b","
        return before, event.data, b"\n"

    def keepalive(self, event: Event | None) -> bytes:
        """A blank between elements. Clients expect the bracket to be the first byte."""
        if self._before != b"[":
            return b"\n"
        self._before = b""
        return b"["

    def end(self) -> bytes:
        return b"[]" if self._before == b"[" else b"]"


class SocketWriter:
    """WebSocket messages, without error events, whose error is in the failed response, and without
    the terminator. Events keep the numbers that they have in the log.
    """

    def __init__(self, stream_id: str | None = None) -> None:
        """`stream_id` is added to every event."""
        named = b'{"stream_id":%b,' % msgspec.json.encode(stream_id)
        self.begin = named if stream_id is not None else b""
        """What each message has in place of its brace, if it is not empty. A large message is not
        copied for that: it is sent in frames, and this changes only the first."""

    def write(self, events: Sequence[Event]) -> list[bytes]:
        return [one.data for one in events if one.name != "error" and one.data != DONE]
