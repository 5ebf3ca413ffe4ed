"""Responses whose process died: each gets the end that it would have had if its upstream had.

The log is read as the stream of an upstream of the client's own dialect that was cut: then its
end follows from what every cut stream gets. Nothing that was told is told again.
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
from weft.relay.incoming import codec_of
from weft.relay.rendering import ErrorStream, SentState
from weft.request import Request
from weft.sse import Event, Frame, write_events
from weft.store.records import Entry

GAP = 1_000_000
"""The numbers of events that a dead process may have told and not stored: they are left out."""

INTERRUPTED = ErrorPart(
    "internal", "the server stopped before the answer was complete", retryable=True
)


UNRECOVERABLE = ErrorPart(
    "internal",
    "the server stopped before the answer was complete, and what it left could not be read",
    retryable=True,
)
"""What is told of a response that could not be recovered, however often that was tried."""


class Recovery:
    """The end of a response that its process did not live to end. `feed` its log, in order; then
    `finish`, once."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._dialect = DIALECTS[entry.dialect]
        ids, now = fresh_context().ids, int(time.time())
        self._context = Context(request_of(entry), ids=ids, now=now, response_id=entry.id)
        self._pipe = Pipe(self._dialect, self._context)
        self._told = SentState(self._dialect)
        self._hash = sha256()
        self._count = 0

    def feed(self, events: Sequence[Event]) -> None:
        for frame, event in zip(frames_of(events, self._count), events, strict=True):
            self._told.add([(frame, event.number)], self._pipe.feed([frame]))
        self._count += len(events)
        self._hash.update(write_events(events))

    def finish(self, error: ErrorPart = INTERRUPTED) -> tuple[list[Event], Response, str]:
        """Returns the events that end it, the fold of all, and the digest of the whole log."""
        last, response = self._ended(error) if self._count else error_ending(self._entry, error)
        for event in last:
            self._hash.update(write_events([event]))
        return last, response, self._hash.hexdigest()

    def _ended(self, error: ErrorPart) -> tuple[list[Event], Response]:
        pipe = self._pipe
        encoder = self._told.encoder(self._context, pipe.guard.fold, Findings(), gap=GAP)
        parts = [] if pipe.ending else pipe.fail(error)
        return encoder.feed(parts + pipe.finish()), pipe.response


def error_ending(entry: Entry, error: ErrorPart, number: int = -1) -> tuple[list[Event], Response]:
    """The events that end a response of which nothing can be read, behind those numbered up to
    `number`; and the fold of them."""
    dialect = DIALECTS.get(entry.dialect)
    if dialect is None:  # another version of Weft may know it
        return [], Response(entry.id, error=Failure(error.kind, error.message))
    stream = ErrorStream(dialect, request_of(entry), int(entry.created), entry.id)
    events = stream.events(error, GAP) if number < 0 else stream.rest(error, number + GAP)
    return events, stream.response


def frames_of(log: Sequence[Event], first: int = 0) -> list[Frame]:
    """Stored events from this number on, as a reader of the stream would have them."""
    return [Frame(event.data, event.name, number=at) for at, event in enumerate(log, first)]


def request_of(entry: Entry) -> Request:
    """What was asked, as far as it can still be read, under the name that its client had for the
    model."""
    try:
        request = codec_of(entry.dialect).parse(entry.request, Context()).request
    except WeftError:
        return Request(entry.model)
    request = replace(request, model=entry.model, stream=entry.stream)
    return request if request.store is not None else replace(request, store=entry.visible)
