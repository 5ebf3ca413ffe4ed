"""Ends responses whose process has died, as if their upstream had died.

The log is decoded as the stream of an upstream that speaks the client's dialect and was cut: the
end is that of every cut stream. Nothing that was sent is sent again.
"""

import time
from collections.abc import Sequence
from hashlib import sha256

from msgspec.structs import replace

from weft.assembler import Failure, Response
from weft.codec import Pipe, fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import WeftError
from weft.findings import Findings
from weft.parts import ErrorPart
from weft.relay.incoming import api_of
from weft.relay.rendering import ErrorStream, SentState
from weft.request import Request
from weft.sse import Event, Frame, write_events
from weft.store.records import Entry

# A client that saw them would otherwise get other events under the same numbers, and drop them as
# already seen.
GAP = 1_000_000
"""Event numbers that are skipped: the dead process may have sent events that it did not store."""

INTERRUPTED = ErrorPart(
    "internal", "the server stopped before the response was complete", retryable=True
)


UNRECOVERABLE = ErrorPart(
    "internal",
    "the server stopped before the response was complete, and its log could not be read",
    retryable=True,
)
"""The error of a response that could not be recovered after several attempts."""


class Recovery:
    """The end of one response: `feed` its log, in order, then call `finish` once."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._dialect = DIALECTS[entry.dialect]
        ids, now = fresh_context().ids, int(time.time())
        self._context = Context(request_of(entry), ids=ids, now=now, response_id=entry.id)
        self._pipe = Pipe(self._dialect, self._context)
        self._sent = SentState(self._dialect)
        self._hash = sha256()
        self._count = 0

    def feed(self, events: Sequence[Event]) -> None:
        # One frame at a time: `SentState` has to know which parts each of them brought.
        for frame, event in zip(frames_of(events, self._count), events, strict=True):
            self._sent.add([(frame, event.number)], self._pipe.feed([frame]))
        self._count += len(events)
        self._hash.update(write_events(events))

    def finish(self, error: ErrorPart = INTERRUPTED) -> tuple[list[Event], Response, str]:
        """Returns the last events, the assembled response, and the digest of the whole log."""
        pipe = self._pipe
        if self._count:
            encoder = self._sent.encoder(self._context, pipe.guard.fold, Findings(), gap=GAP)
            # Its finish reason was stored: only the last events are missing, and the response is
            # whole.
            parts = [] if pipe.ending else pipe.fail(error)
            last, response = encoder.feed(parts + pipe.finish()), pipe.response
        else:
            last, response = error_ending(self._entry, error)
        for event in last:
            self._hash.update(write_events([event]))
        return last, response, self._hash.hexdigest()


def error_ending(entry: Entry, error: ErrorPart, number: int = -1) -> tuple[list[Event], Response]:
    """The last events of a response whose log is not read, after event `number`; and the response
    that they assemble to."""
    dialect = DIALECTS.get(entry.dialect)
    if dialect is None:  # stored by another version of Weft
        return [], Response(entry.id, error=Failure(error.kind, error.message))
    stream = ErrorStream(dialect, request_of(entry), int(entry.created), entry.id)
    events = stream.events(error, GAP) if number < 0 else stream.rest(error, number + GAP)
    return events, stream.response


def frames_of(log: Sequence[Event], first: int = 0) -> list[Frame]:
    """Stored events as frames, numbered from `first`."""
    return [Frame(event.data, event.name, number=at) for at, event in enumerate(log, first)]


def request_of(entry: Entry) -> Request:
    """The stored request, if it can be parsed, with the client's name for the model."""
    try:
        request = api_of(entry.dialect).request.parse(entry.request, Context()).request
    except WeftError:
        # Stored by another version, whose requests this one may refuse. What the response repeats
        # of its request is worth less than its end.
        return Request(entry.model)
    request = replace(request, model=entry.model, stream=entry.stream)
    return request if request.store is not None else replace(request, store=entry.visible)
