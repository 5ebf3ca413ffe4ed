"""Responses whose process died: each gets the end that it would have had if its upstream had.

The log is read as the stream of an upstream of the client's own dialect that was cut: then its
end follows from what every cut stream gets. Nothing that was told is told again.
"""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from weft.assembler import Response
from weft.codec import Pipe, fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import WeftError
from weft.findings import Findings
from weft.parts import ErrorPart
from weft.relay.incoming import codec_of
from weft.relay.rendering import ErrorStream, Told
from weft.request import Request
from weft.sse import Event, Frame
from weft.store.records import Entry

GAP = 1_000_000
"""The numbers of events that a dead process may have told and not stored: they are left out."""

INTERRUPTED = ErrorPart(
    "internal", "the server stopped before the answer was complete", retryable=True
)


def ended(
    entry: Entry, log: Sequence[Event], error: ErrorPart = INTERRUPTED
) -> tuple[list[Event], Response]:
    """Returns the events that end a response of which this was stored, and the fold of it all."""
    request, dialect = request_of(entry), DIALECTS[entry.dialect]
    if not log:
        nothing = ErrorStream(dialect, request, int(entry.created), entry.id)
        return nothing.events(error, GAP), nothing.response
    ids = fresh_context().ids
    context = Context(request, ids=ids, now=int(time.time()), response_id=entry.id)
    pipe = Pipe(dialect, context)
    told = Told(dialect)
    for frame, event in zip(frames_of(log), log, strict=True):
        told.add([(frame, event.number)], pipe.feed([frame]))
    encoder = told.encoder(context, pipe.guard.fold, Findings(), gap=GAP)
    parts = [] if pipe.ending else pipe.fail(error)
    return encoder.feed(parts + pipe.finish()), pipe.response


def frames_of(log: Sequence[Event]) -> list[Frame]:
    """Stored events, as a reader of the stream would have them."""
    return [Frame(event.data, event.name, number=at) for at, event in enumerate(log)]


def request_of(entry: Entry) -> Request:
    """What was asked, as far as it can still be read, under the name that its client had for the
    model."""
    try:
        request = codec_of(entry.dialect).parse(entry.request, Context()).request
    except WeftError:
        return Request(entry.model)
    request = replace(request, model=entry.model, stream=entry.stream)
    return request if request.store is not None else replace(request, store=entry.visible)
