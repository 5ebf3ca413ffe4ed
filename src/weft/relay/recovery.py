"""Responses whose process died: each gets the end that it would have had if its upstream had.

The log is read as the stream of an upstream of the client's own dialect that was cut: then its
end follows from what every cut stream gets. Nothing that was told is told again.
"""

import time
from collections.abc import Callable

from msgspec.structs import replace

from weft.assembler import Response
from weft.codec import Pipe, fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import WeftError
from weft.parts import ErrorPart
from weft.relay.answer import Answer
from weft.relay.asked import codec_of
from weft.relay.telling import Echo, Unanswered
from weft.request import Request
from weft.store.records import Entry

GAP = 1_000_000
"""The numbers of events that a dead process may have told and not stored: they are left out."""

INTERRUPTED = ErrorPart(
    "internal", "the server stopped before the answer was complete", retryable=True
)


class _Over:
    """There is no more than what the log holds."""

    def __init__(self) -> None:
        self.status = 200
        self.headers = {"content-type": "text/event-stream"}

    async def read(self) -> bytes:
        return b""

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        pass

    def abort(self) -> None:
        pass


def ended(entry: Entry, log: bytes, error: ErrorPart = INTERRUPTED) -> tuple[bytes, Response]:
    """Returns the events that end a response of which this was stored, and the fold of it all."""
    request = request_of(entry)
    if not log:
        nothing = Unanswered(entry.dialect, request, int(entry.created), entry.id)
        return nothing.failed(error, GAP), nothing.response
    fresh = fresh_context()
    context = Context(request, ids=fresh.ids, now=int(time.time()), response_id=entry.id)
    pipe = Pipe(DIALECTS[entry.dialect], context)
    answer = Answer(_Over(), pipe, len(log) + 1)
    echo = Echo(entry.dialect, context, pipe, GAP)
    answer.take(log)
    echo.tell(answer)
    answer.fail(error)
    return echo.tell(answer), pipe.response


def request_of(entry: Entry) -> Request:
    """What was asked, as far as it can still be read."""
    try:
        asked = codec_of(entry.dialect).parse(entry.request, Context()).request
    except WeftError:
        return Request(entry.model)
    return asked if asked.store is not None else replace(asked, store=entry.visible)
