"""One request on its way, from the first target that is tried to the line in the log.

A run belongs to one task; `stop` may be called from anywhere on its loop.
"""

import time
from collections.abc import Sequence
from functools import partial

from weft.assembler import Response
from weft.context import Context
from weft.findings import Finding
from weft.parts import ErrorPart
from weft.relay.deadlines import Deadlines, Interrupt
from weft.relay.failover import open_target
from weft.relay.incoming import IncomingRequest, RequestFailed, RequestLimits
from weft.relay.persistence import ResponseWriter
from weft.relay.reasoning import Restored, restore, save
from weft.relay.redaction import ErrorRedactor
from weft.relay.rendering import ErrorStream
from weft.relay.request_record import Observer, RequestRecord
from weft.relay.routing import Target
from weft.relay.stream import PersistedStream, RequestState, Stream, error_stream
from weft.request import Request
from weft.scrub import Scrubber
from weft.sse import Event
from weft.store.base import Store

CLIENT_DISCONNECTED = ErrorPart("cancelled", "the client went away")


class Run:
    """One request. `open` it, tell what the stream says, and at last `close` it."""

    def __init__(
        self,
        incoming: IncomingRequest,
        targets: Sequence[Target],
        limits: RequestLimits,
        scrub: Scrubber,
        observers: Sequence[Observer] = (),
        writer: ResponseWriter | None = None,
        reasoning: Store | None = None,
    ) -> None:
        """`reasoning` is where the reasoning of tool calls is kept, for clients that do not send it
        back."""
        self.incoming = incoming
        self.writer = writer
        """How the answer is stored, if it is."""
        self.record = RequestRecord(
            incoming.id,
            incoming.body.dialect,
            incoming.model,
            incoming.caller,
            incoming.stream,
        )
        self._reasoning = None if incoming.dialect.returns_reasoning else reasoning
        self._targets = targets
        self._observers = observers
        interrupt = Interrupt()
        self._state = RequestState(
            incoming,
            limits,
            ErrorRedactor(scrub),
            self.record,
            interrupt,
            Deadlines(interrupt, limits),
            None
            if self._reasoning is None
            else partial(_save_reasoning, self._reasoning, incoming.caller, writer),
        )
        self._request = Request(incoming.model)
        """What was asked, once it was read."""
        self._stream: Stream | None = None
        self._error: ErrorPart | None = None
        """Why the client was told that it failed."""

    async def open(self) -> Stream:
        """Returns when there is content; raises RequestFailed if no target has any."""
        state = self._state
        try:
            restored = await self._restored(self.incoming.checked(state.limits))
            self._request = restored.request
            stream = await state.interrupt.wait(open_target(state, restored, self._targets))
        except RequestFailed as failed:
            self._conclude(failed.error)
            raise
        self.record.losses = stream.sent.translated.losses
        writer = self.writer
        self._stream = stream if writer is None else PersistedStream(state, stream, writer)
        return self._stream

    async def _restored(self, request: Request) -> Restored:
        """The request with the reasoning of its calls that its client did not bring back."""
        if self._reasoning is None:
            return Restored(request)
        restored = await restore(self._reasoning, self.incoming.caller, request)
        restored.place(self.incoming.body.parsed.source_paths)
        return restored

    def stop(self, error: ErrorPart) -> None:
        """Ends the answer with this error, as soon as the client has what came before."""
        self._state.interrupt.stop(error)

    # What the client is told beside the answer

    @property
    def upstream(self) -> str:
        """Who answers."""
        return "" if self._stream is None else self._stream.sent.place.name

    @property
    def warnings(self) -> list[str]:
        """The fields of the request that the upstream was told less of."""
        stream = self._stream
        return [] if stream is None else [loss.path for loss in stream.sent.warnings]

    @property
    def findings(self) -> list[Finding]:
        """What was repaired in the answer so far, and what the client's dialect cannot carry."""
        stream = self._stream
        return [] if stream is None else [*stream.repairs, *stream.findings]

    def keepalive(self) -> Event | None:
        """The event to send, at once, while there is nothing to say, on a wire that has one."""
        if self._stream is None or self.record.first is None:
            return self._error_stream().keepalive()
        return self._stream.keepalive()

    def note_failure(self, error: ErrorPart) -> None:
        """The client is told, apart from any stream, that there is no answer."""
        self._error = error

    async def error_events(self, error: ErrorPart) -> list[Event]:
        """The events that end a stream that began, and then had no answer, or one that broke."""
        self._error = error
        if self._stream is None or self.record.first is None:
            return self._error_stream().events(error)
        return await self._stream.fail(error)

    def _error_stream(self) -> ErrorStream:
        return error_stream(self._state, self._request)

    # The end

    async def fail(self, error: ErrorPart) -> None:
        """Stores that it failed, where nobody is told. Raises StoreError."""
        writer, stream = self.writer, self._stream
        if writer is None or not writer.running:
            return
        if stream is None or not writer.log.events:
            nothing = self._error_stream()
            await writer.finish(nothing.events(error), lambda: nothing.response, Context())
        else:
            await stream.abandon(error)

    async def close(self) -> None:
        """Ends whatever goes on: the client is gone, or has all of it."""
        self._state.deadlines.cancel()
        stream = self._stream
        if self.record.ended is not None:
            return
        if stream is None:
            self._left()
        elif stream.delivered:
            self._conclude(self._error)
            await stream.close()
        elif self._error is not None:
            await stream.abandon(self._error)
            self._conclude(self._error)
        else:
            await stream.abandon(CLIENT_DISCONNECTED)
            self._left()

    def _left(self) -> None:
        self.record.status = 499
        self._conclude(CLIENT_DISCONNECTED)

    def _conclude(self, error: ErrorPart | None) -> None:
        """Notes what is known of the request, and tells whoever wants to know."""
        record, stream = self.record, self._stream
        record.ended = time.time()
        record.error = error
        if error is not None and record.first is None and record.status == 200:
            write = self.incoming.dialect.write_error
            record.status = 500 if write is None else write(error)[0]
        if stream is not None:
            record.bytes_in = stream.bytes_in
            record.response = stream.response
            record.findings = (*record.response.findings, *stream.findings)
        for observer in self._observers:
            observer(record)


async def _save_reasoning(
    store: Store, owner: str, writer: ResponseWriter | None, response: Response
) -> None:
    """Keeps what the next request must bring back, before the client is told the end."""
    id = writer.log.id if writer is not None and writer.has_begun else ""
    await save(store, owner, response, id)
