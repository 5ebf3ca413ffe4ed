"""One request, from the first target that is tried to the line in the access log.

A run belongs to one task; `stop` may be called from anywhere on its loop.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial

from weft.assembler import Response
from weft.context import Context
from weft.findings import Finding
from weft.parts import ErrorPart
from weft.relay.deadlines import Deadlines, Interrupt
from weft.relay.failover import open_target
from weft.relay.incoming import IncomingRequest, RequestFailed, RequestLimits, api_of
from weft.relay.metering import ChargeAttempt, Meter
from weft.relay.persisted_stream import PersistedStream
from weft.relay.persistence import ResponseWriter
from weft.relay.reasoning import Restored, restore, save
from weft.relay.redaction import ErrorRedactor
from weft.relay.rendering import ErrorStream
from weft.relay.request_record import Observer, RequestRecord
from weft.relay.routing import Target
from weft.relay.stream import RequestState, Stream, error_stream
from weft.request import Request
from weft.scrub import Scrubber
from weft.sse import Event
from weft.store.base import Store

log = logging.getLogger("weft.relay")

CLIENT_DISCONNECTED = ErrorPart("cancelled", "the client disconnected")


class Run:
    """One request: `open` it, send what the stream returns, and `close` it."""

    def __init__(
        self,
        incoming: IncomingRequest,
        targets: Sequence[Target],
        limits: RequestLimits,
        scrub: Scrubber,
        observers: Sequence[Observer] = (),
        writer: ResponseWriter | None = None,
        reasoning: Store | None = None,
        charge: ChargeAttempt | None = None,
    ) -> None:
        """`reasoning` is where the reasoning of tool calls is stored for clients that do not send
        it back. `charge` is called with what each attempt has used, before the client gets the end
        of the response."""
        self.incoming = incoming
        self.writer = writer
        """Stores the response, if it is to be stored."""
        self.record = RequestRecord(
            incoming.id,
            incoming.body.dialect,
            incoming.model,
            incoming.caller,
            incoming.stream,
            trace=incoming.trace,
        )
        self.headers: Sequence[tuple[bytes, bytes]] = ()
        """Further headers for the client."""
        # Clients of a dialect that returns reasoning own it: what they leave out is left out on
        # purpose.
        self._reasoning = None if incoming.body.row.returns_reasoning else reasoning
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
            Meter(incoming, charge),
            None
            if self._reasoning is None
            else partial(_save_reasoning, self._reasoning, incoming.caller, writer),
            writer is not None and writer.recordings.policy != "none",
        )
        self._request = Request(incoming.model)
        """The request, once it is parsed."""
        self._stream: Stream | None = None
        self._error: ErrorPart | None = None
        """The error that the client got, if it got one."""

    async def open(self) -> Stream:
        """Returns when there is content; raises RequestFailed if no target has any."""
        state = self._state
        try:
            restored = Restored(self.incoming.checked(state.limits))
            if self._reasoning is not None:
                owner = self.incoming.caller
                restored = await restore(self._reasoning, owner, restored.request)
                # Restored contents move others: errors and warnings must still name the client's
                # own fields.
                restored.update_paths(self.incoming.body.parsed.source_paths)
            self._request = self.record.request = restored.request
            stream = await state.interrupt.wait(open_target(state, restored, self._targets))
        except RequestFailed as failed:
            self._conclude(failed.error)
            raise
        self.record.losses = stream.sent.translated.losses
        writer = self.writer
        self._stream = stream if writer is None else PersistedStream(state, stream, writer)
        return self._stream

    def stop(self, error: ErrorPart) -> None:
        """Ends the response with this error, after what has already arrived."""
        self._state.interrupt.stop(error)

    @property
    def stopped_by(self) -> ErrorPart | None:
        """The error it was stopped with, if it was."""
        return self._state.interrupt.reason

    # What the client learns beside the response

    @property
    def upstream(self) -> str:
        """The name of the upstream that responds."""
        return "" if self._stream is None else self._stream.sent.config.name

    @property
    def target(self) -> str:
        """The name of the target that was tried last, or will be tried first."""
        attempts = self.record.attempts
        return attempts[-1].target if attempts else self._targets[0].name

    @property
    def warnings(self) -> list[str]:
        """The fields of the request that could not be carried in full."""
        losses = self.record.losses
        return [loss.path for loss in losses if loss.outcome == "warned"] if losses else []

    @property
    def findings(self) -> list[Finding]:
        """What was repaired in the response so far, and what the client's dialect cannot carry."""
        stream = self._stream
        return [] if stream is None else [*stream.repairs, *stream.findings]

    def keepalive(self) -> Event | None:
        """The keepalive event to send now, if the dialect has one."""
        if self._stream is None or self.record.first is None:
            return self._error_stream().keepalive()
        return self._stream.keepalive()

    def note_failure(self, error: ErrorPart) -> None:
        """The client gets this error instead of a stream."""
        self._error = error

    async def error_events(self, error: ErrorPart) -> list[Event]:
        """The events that end a stream whose head was sent with this error."""
        self._error = error
        # Nothing of the response was sent, only keepalives: the error is a whole stream of its own.
        if self._stream is None or self.record.first is None:
            return self._error_stream().events(error)
        return await self._stream.fail(error)

    def _error_stream(self) -> ErrorStream:
        return error_stream(self._state, self._request)

    # The end

    async def fail(self, error: ErrorPart) -> None:
        """Stores the error of a response without a client. Raises StoreError."""
        writer, stream = self.writer, self._stream
        if writer is None or not writer.running:
            return
        # The response was announced, and no event of it was stored.
        if stream is None or not writer.log.events:
            nothing, cost = self._error_stream(), self._state.meter.cost
            await writer.finish(nothing.events(error), lambda: nothing.response, Context(), cost)
        else:
            await stream.abandon(error)

    async def close(self) -> None:
        """Ends the request: the client has disconnected, or has the whole response."""
        # Also if it has ended: the timers would stay scheduled for up to `duration`.
        self._state.deadlines.cancel()
        stream = self._stream
        if self.record.ended is not None:
            return
        if stream is None and self._error is None:
            self._conclude_disconnected()
        elif stream is None:
            self._conclude(self._error)
        elif stream.delivered:
            # In this order: the log has its line before the connection is drained, which may take a
            # second.
            self._conclude(self._error)
            await stream.close()
        elif self._error is not None:
            await stream.abandon(self._error)
            self._conclude(self._error)
        else:
            await stream.abandon(CLIENT_DISCONNECTED)
            self._conclude_disconnected()

    def _conclude_disconnected(self) -> None:
        self.record.status = 499
        self._conclude(CLIENT_DISCONNECTED)

    def _conclude(self, error: ErrorPart | None) -> None:
        """Completes the record of the request, and calls the observers."""
        record, stream = self.record, self._stream
        record.ended = time.time()
        record.error = error
        # With a stream that has begun, the status was 200, whatever came later.
        if error is not None and record.first is None and record.status == 200:
            record.status = api_of(record.dialect).write_error(error)[0]
        if stream is not None:
            record.bytes_in = stream.bytes_in
            record.response = stream.response
            record.findings = (*record.response.findings, *stream.findings)
        for observer in self._observers:
            try:
                observer(record)
            except Exception:  # the client has its response: that nobody counts it is not its fault
                log.exception("request %s: an observer failed", record.id)


async def _save_reasoning(
    store: Store, owner: str, writer: ResponseWriter | None, response: Response
) -> None:
    """Saves what the next request must send back, before the end is sent to the client."""
    id = writer.log.id if writer is not None and writer.has_begun else ""
    await save(store, owner, response, id)
