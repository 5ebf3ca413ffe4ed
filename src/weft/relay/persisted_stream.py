"""A stream whose events are stored before they are sent to the client."""

from collections.abc import Callable, Coroutine
from contextlib import suppress

import msgspec

from weft.assembler import Response
from weft.dialects.error_classes import new_error
from weft.findings import Finding
from weft.parts import ErrorPart
from weft.relay.direct_line import DirectLine
from weft.relay.incoming import RequestFailed
from weft.relay.persistence import TAKEN_OVER, ResponseWriter
from weft.relay.recording import LARGE_RECORDING
from weft.relay.stream import OpenStream, RequestState, error_stream
from weft.relay.translation import UpstreamRequest
from weft.sse import Event
from weft.store.base import AlreadyExists, StoreError


class PersistedStream:
    """An open stream whose events are stored before they are sent."""

    def __init__(self, state: RequestState, inner: OpenStream, writer: ResponseWriter) -> None:
        self._state = state
        self._inner = inner
        self._writer: ResponseWriter | None = writer
        """None once storing has failed."""
        self._number = -1
        """The number of the last event sent, if the dialect numbers them."""
        self._last: list[Event] = []
        """The last events, if they were sent but are not stored yet."""
        self._recorder = inner.recorder
        self._record_upstream(writer)

    @property
    def response(self) -> Response:
        return self._inner.response

    @property
    def findings(self) -> list[Finding]:
        return self._inner.findings

    @property
    def repairs(self) -> list[Finding]:
        return self._inner.repairs

    def _record(self) -> Response:
        """The response with the findings of the renderer."""
        response, found = self.response, self.findings
        if not found:
            return response
        return msgspec.structs.replace(response, findings=(*response.findings, *found))

    @property
    def sent(self) -> UpstreamRequest:
        return self._inner.sent

    @property
    def delivered(self) -> bool:
        return self._inner.delivered

    @property
    def bytes_in(self) -> int:
        return self._inner.bytes_in

    @property
    def log_id(self) -> str | None:
        writer = self._writer
        return writer.log.id if writer is not None and writer.has_begun else None

    # Events

    async def next(self) -> list[Event]:
        inner, writer = self._inner, self._writer
        stored = False
        if writer is not None and not writer.has_begun:
            await inner.fill()  # only then is the id known that the client sees
            # The first events are stored in the transaction that begins the response.
            first = [] if inner.ended else inner.waiting
            await self._store(self._begin(writer))
            stored = bool(first)
        events = await inner.next()
        if self._writer is not None and not stored:
            await self._store(self._append(self._writer, events))
        return self._note_number(events)

    async def _begin(self, writer: ResponseWriter) -> None:
        """Stores the beginning, under a new id if this one exists already. A response that has
        ended is stored with its end."""
        inner = self._inner
        try:
            if not writer.accepts(inner.response_id):
                raise AlreadyExists("the id cannot be used")
            await writer.begin(inner.response_id, () if inner.ended else inner.waiting)
        except AlreadyExists:
            self._rename()
            await writer.begin(inner.response_id, () if inner.ended else inner.waiting)
        self._record_upstream(writer)

    def _rename(self) -> None:
        """An upstream may use an id again, or send one that is empty or too long. From here on the
        response is encoded, not passed through: the id is in every frame."""
        inner = self._inner
        inner.rename(self._state.incoming.dialect.new_id(inner.sent.encoding.ids))

    def _record_upstream(self, writer: ResponseWriter) -> None:
        """Once the response is stored, what its upstream sends can be stored with it."""
        if self._recorder is not None and writer.running:
            writer.recordings.begin(writer.log.id, self._recorder)

    async def _append(self, writer: ResponseWriter, events: list[Event]) -> None:
        if not writer.running:
            return
        if self._inner.ended:  # even without events
            await writer.finish(events, self._record, self._inner.encoding, self._state.meter.cost)
        elif events:
            await writer.append(events)

    async def _store(self, work: Coroutine[None, None, None]) -> None:
        """Raises RequestFailed if it must be stored and cannot be."""
        try:
            await work
        except (StoreError, AlreadyExists) as problem:
            self._storing_failed(problem)

    def _storing_failed(self, problem: StoreError | AlreadyExists) -> None:
        """Raises RequestFailed if it must be stored."""
        # Without a writer the stream goes on unstored, if `store.required` is off.
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.give_up()
        self._state.record.unstored = str(problem)
        # Even if storing is not required: another server has ended this response, and its end can
        # be read by then. Two ends of one response would contradict each other.
        if isinstance(problem, StoreError) and problem.kind == "fenced":
            raise RequestFailed(TAKEN_OVER) from None  # the store has another ending
        if isinstance(problem, StoreError) and writer.required:
            error = new_error("server", "the response could not be stored")
            raise RequestFailed(error) from None

    def _note_number(self, events: list[Event]) -> list[Event]:
        for event in reversed(events):
            if event.number is not None:
                self._number = event.number
                break
        self._save_large_recording()
        return events

    def _save_large_recording(self) -> None:
        recorder, writer = self._recorder, self._writer
        if recorder is not None and recorder.size > LARGE_RECORDING and writer is not None:
            writer.recordings.save_part(writer.log.id, has_findings=bool(self.repairs))

    async def flow(
        self, write: Callable[[list[Event]], bool], line: DirectLine | None = None
    ) -> None:
        writer, recorder = self._writer, self._recorder
        if writer is None or not writer.has_begun:
            try_append = None if writer is None else writer.try_append
            await self._inner.flow_through(
                lambda events: write(self._note_number(events)), try_append, None
            )
            return
        log = writer.log
        append = log.try_append

        def try_store(events: list[Event]) -> bool:
            if recorder is not None and recorder.size > LARGE_RECORDING:
                self._save_large_recording()
            return append(events)

        try:
            await self._inner.flow_through(write, try_store, line)
        finally:
            # What is appended is sent, but for the end, which is not appended here.
            self._number = self._number if log.number is None else log.number

    async def read_body(self) -> tuple[int, bytes]:
        inner = self._inner
        await inner.read_all()
        status, body = await inner.body()
        # An error has no response object, so it is not stored.
        if self._writer is not None and status == 200:
            body = await self._store_body(self._writer, body)
        inner.deliver()
        return status, body

    async def _store_body(self, writer: ResponseWriter, body: bytes) -> bytes:
        """Returns the body that is stored: under a new id if this one exists already."""
        inner, recorder, cost = self._inner, self._recorder, self._state.meter.cost
        try:
            if not (writer.has_begun or writer.accepts(inner.response_id)):
                raise AlreadyExists("the id cannot be used")
            await writer.add_body(inner.response_id, body, self._record, cost, recorder)
        except AlreadyExists:
            self._rename()
            _, body = await inner.body()  # the id stands in it
            again = writer.add_body(inner.response_id, body, self._record, cost, recorder)
            await self._store(again)
        except StoreError as problem:
            self._storing_failed(problem)
        return body

    def keepalive(self) -> Event | None:
        """A keepalive event is stored like any other."""
        event, writer = self._inner.keepalive(), self._writer
        # It has a number: one that was sent and not stored would be used again after a resume.
        if event is not None and writer is not None and not writer.try_append([event]):
            return None
        return event

    # The end

    async def fail(self, error: ErrorPart) -> list[Event]:
        if self._inner.ended:  # and the end could not be stored: it must not be sent
            return error_stream(self._state, self.sent.request).rest(error, self._number)
        events = await self._inner.fail(error)
        # Stored in `close`, after the client got it: the store may be what failed.
        self._last = [] if self._writer is None else events
        return events

    async def abandon(self, error: ErrorPart) -> None:
        """Stores what has arrived, with the error as its end."""
        self._last = await self._inner.fail(error)
        self._inner.abort()
        await self._settle()

    async def close(self) -> None:
        await self._settle()
        await self._inner.close()

    async def _settle(self) -> None:
        """Stores the end, unless it is stored already."""
        writer = self._writer
        if writer is not None and writer.running and self._inner.ended:
            # The client is gone or has its error; what is stored is ended by `Sessions`.
            with suppress(StoreError):
                await writer.finish(
                    self._last, self._record, self._inner.encoding, self._state.meter.cost
                )
