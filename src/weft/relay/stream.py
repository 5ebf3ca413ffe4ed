"""A response that has begun: its events as they arrive, or all of it as a body.

`OpenStream` reads the response of an upstream and renders it. It is pulled: if the client reads
slowly, so does the gateway from its upstream. It belongs to one task.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec.structs import replace

from weft.assembler import Assembler, Response
from weft.codec import Pipe
from weft.context import Context
from weft.dialects.base import Stage
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.findings import Finding, Findings
from weft.parts import ErrorPart, Part, ReasoningDelta, TextDelta, ToolParamsDelta
from weft.relay.deadlines import Deadlines, Interrupt, RequestStopped
from weft.relay.direct_line import DirectLine
from weft.relay.fast_lane import DirectLane
from weft.relay.incoming import IncomingRequest, RequestFailed, RequestLimits, api_of
from weft.relay.metering import Meter
from weft.relay.offload import offload
from weft.relay.paused_turns import PausedTurns
from weft.relay.recording import UpstreamRecorder, renamed_ids
from weft.relay.redaction import ErrorRedactor
from weft.relay.rendering import BodyOnly, Encoded, ErrorStream, Passthrough, Renderer
from weft.relay.request_record import RequestRecord
from weft.relay.response_reader import LARGE, ResponseReader
from weft.relay.translation import UpstreamRequest
from weft.request import Request
from weft.sse import Event, Frame
from weft.upstream.base import Unreachable, UpstreamResponse, error_of

ERROR_BODY = 64 * 1024
"""Bytes that are read of an error body, at most."""

_ERRORS = (b'{"type":"error"', b'{"error"')
"""How a body begins that a dialect writes for a response that it cannot express."""


class RequestState(msgspec.Struct, frozen=True):
    """What all parts of the relay share for one request."""

    incoming: IncomingRequest
    limits: RequestLimits
    redact: ErrorRedactor
    record: RequestRecord
    interrupt: Interrupt
    deadlines: Deadlines
    meter: Meter
    before_end: Callable[[Response], Awaitable[None]] | None = None
    """Called when the response is complete, before the end is sent to the client."""

    records: bool = False
    """Whether it is recorded what the upstream sends."""


_DELTAS = frozenset((TextDelta, ReasoningDelta, ToolParamsDelta))


def _is_slow_to_render(reader: ResponseReader) -> bool:
    """Whether the last read is a large event, or the end of a large response, in which some
    dialects repeat all of it."""
    return reader.is_large or (
        reader.size > LARGE and not all(part.__class__ in _DELTAS for part in reader.parts)
    )


class Stream(Protocol):
    """A response on its way to a client."""

    @property
    def response(self) -> Response:
        """The response so far."""
        ...

    @property
    def findings(self) -> list[Finding]:
        """What the client's dialect could not carry."""
        ...

    @property
    def repairs(self) -> list[Finding]:
        """What was repaired in the response so far."""
        ...

    @property
    def log_id(self) -> str | None:
        """The id under which the response is stored, if it is."""
        ...

    async def next(self) -> list[Event]:
        """Returns the next events for the client; none at the end. Raises RequestFailed if they
        must be stored and cannot be."""
        ...

    async def flow(
        self, write: Callable[[list[Event]], bool], line: DirectLine | None = None
    ) -> None:
        """Writes events in the same turn of the event loop in which they arrive, as long as nothing
        else has to be done and `write` returns True. `next` continues from there. What `line` can
        send may be sent there instead.
        """
        ...

    async def read_body(self) -> tuple[int, bytes]:
        """Returns status and body of a response that is not streamed. Raises RequestFailed."""
        ...

    def keepalive(self) -> Event | None:
        """The keepalive event to send now, if the dialect has one."""
        ...

    async def fail(self, error: ErrorPart) -> list[Event]:
        """Returns the events that end the response with this error."""
        ...

    async def abandon(self, error: ErrorPart) -> None:
        """Ends the response without a client: it has disconnected, or got the error otherwise."""
        ...

    async def close(self) -> None:
        """The client has the whole response."""
        ...

    @property
    def sent(self) -> UpstreamRequest: ...

    @property
    def delivered(self) -> bool:
        """Whether the client got the whole response, or its error."""
        ...

    @property
    def bytes_in(self) -> int:
        """Bytes received from the upstream."""
        ...


class OpenStream:
    """The response of an upstream, rendered in the client's dialect."""

    def __init__(
        self, state: RequestState, sent: UpstreamRequest, incoming: UpstreamResponse
    ) -> None:
        self._state = state
        self._sent = sent
        client, upstream = api_of(state.incoming.body.dialect), api_of(sent.config.dialect)
        # A client whose dialect knows pauses continues the turn itself, and may want to decide
        # about it.
        pauses = upstream.request.continued is not None and client.request.continued is None
        self._paused_turns = PausedTurns() if pauses else None
        self.recorder: UpstreamRecorder | None = None
        """Records what the upstream sends, if that is stored."""
        if state.records:
            self.recorder = UpstreamRecorder(sent, state.record.started, pauses=pauses)
        self._reader = self._read_from(incoming, None)
        self._renderer: Renderer
        dialect, content_type = state.incoming.dialect, incoming.headers.get("content-type", "")
        if not state.incoming.stream:
            self._renderer = BodyOnly(sent.encoding)
        elif sent.passes and content_type.startswith("text/event-stream"):
            # An upstream may answer a request for a stream with a body: frames of that are no
            # events.
            self._renderer = Passthrough(dialect, sent.encoding, self._reader.pipe)
            if self.recorder is not None:
                self.recorder.passthrough = True
        else:
            self._renderer = Encoded(dialect, sent.encoding, self._reader.pipe)
        self._whole: tuple[ResponseReader, Response] | None = None
        """The last reader, and its response once that has ended."""
        self._bytes_before = 0
        """The size of the turns before this one, if they paused."""
        self._first: list[Part] | None = []
        """All parts so far, until the first of them is sent."""
        self._waiting: list[Event] = []
        """Events that `next` returns before it reads on."""
        self._unrendered = False
        """Whether the parts of the last read are not rendered yet."""
        self._before_end = state.before_end
        self.delivered = False
        """Whether the client got the whole response, or its error."""

    def _read_from(self, incoming: UpstreamResponse, before: Pipe | None) -> ResponseReader:
        """A reader of this response; `before` is the pipe of the turn that it continues."""
        sent, paused_turns, state = self._sent, self._paused_turns, self._state

        def stages(findings: Findings) -> list[Stage]:
            own = sent.translated.stages(findings)
            return own if paused_turns is None else [*own, paused_turns]

        pipe = Pipe(sent.dialect, sent.decoding, stages, before, state.redact)
        config, limit = sent.config, state.limits.response
        # Anew for each turn and attempt: another upstream has another timeout.
        state.deadlines.set_idle_timeout(config.name, config.timeouts.between_events)
        return ResponseReader(
            incoming, pipe, limit, keep=not state.incoming.stream, recorder=self.recorder
        )

    # Properties

    @property
    def sent(self) -> UpstreamRequest:
        return self._sent

    @property
    def response(self) -> Response:
        reader = self._reader
        if not reader.ended:
            return reader.pipe.response
        # Of a response that has ended it is asked for several times.
        if self._whole is None or self._whole[0] is not reader:
            self._whole = reader, reader.pipe.response
        return self._whole[1]

    @property
    def fold(self) -> Assembler:
        return self._reader.pipe.guard.fold

    @property
    def response_id(self) -> str:
        """The id that the client sees."""
        # A body that is passed on has the upstream's id; everything that we write has one of ours.
        if isinstance(self._renderer, BodyOnly) and self._body_passes:
            return self.response.id
        return self._renderer.context.response_id or ""

    @property
    def encoding(self) -> Context:
        context, id = self._renderer.context, self.response_id
        return context if context.response_id == id else replace(context, response_id=id)

    @property
    def findings(self) -> list[Finding]:
        return self._renderer.findings

    @property
    def repairs(self) -> list[Finding]:
        return self._reader.pipe.findings.found

    @property
    def log_id(self) -> str | None:
        return None

    @property
    def ended(self) -> bool:
        """Whether nothing follows but the waiting events."""
        return self._reader.ended

    # Before there is content

    async def read_until(self, has_content: Callable[[Sequence[Part]], bool]) -> None:
        """Reads until there is content; raises RequestFailed if the response fails before."""
        reader = self._reader
        while not reader.ended:
            # Rendered, but not sent: if the response fails before there is content, the next target
            # begins with a new stream, and these events are dropped with this one.
            self._waiting += await self._read(reader)
            if has_content(reader.parts):
                break
            error = next((one for one in reader.parts if isinstance(one, ErrorPart)), None)
            if error is not None:
                raise RequestFailed(error)

    def rename(self, id: str) -> None:
        """Renders the response under another id. Nothing of it has been sent."""
        if self._first is None:
            raise InternalError("a response cannot be renamed after its first events were sent")
        # Ids of its own: how many the first renderer has minted must not decide about them.
        ids = renamed_ids(self._sent.encoding.ids)
        context = replace(self._sent.encoding, response_id=id, ids=ids)
        if self.recorder is not None:
            self.recorder.rename(context)
        if isinstance(self._renderer, BodyOnly):
            self._renderer = BodyOnly(context)
            return
        dialect = self._state.incoming.dialect
        self._renderer = Encoded(dialect, context, self._reader.pipe)
        # From the parts, which are kept for this: the events that are waiting have the other id.
        self._waiting = self._renderer.render(self._first)

    @property
    def waiting(self) -> list[Event]:
        """The events that `next` returns next."""
        return self._waiting

    # Events

    async def fill(self) -> None:
        """Reads until events are waiting, or the response has ended."""
        # A read may bring no event at all: a part of a frame, or what the guard holds back.
        while not self._waiting and (self._unrendered or not self._reader.ended):
            self._waiting = await self._more()

    async def next(self) -> list[Event]:
        await self.fill()
        self._first = None
        # Before the last events leave: a client may send the next request as soon as it has them.
        if self._reader.ended:
            self._state.meter.ended(self.fold)
            await self._do_before_end()
        events, self._waiting = self._waiting, []
        # Only an empty list ends a stream: until the caller comes back for it, the client may not
        # have the events before.
        self.delivered = not events
        return self._note_sent(events)

    async def _more(self) -> list[Event]:
        """Reads on, or requests the next turn if this one paused."""
        if self._unrendered:
            return await self._render(self._reader)
        if self._paused_turns is not None and self._paused_turns.paused:
            return await self._continue(self._paused_turns)
        return await self._read(self._reader)

    async def _read(self, reader: ResponseReader) -> list[Event]:
        """Reads on; the response ends if the request was stopped."""
        state = self._state
        if state.interrupt.reason is not None:
            # The stop becomes the end of the response, in the client's dialect, instead of an
            # exception.
            reader.fail(state.interrupt.reason)
        else:
            try:
                await state.interrupt.wait(reader.read())
                self._note_activity(reader)
            except RequestStopped as stopped:
                reader.fail(stopped.error)
        return await self._render(reader)

    def _note_activity(self, reader: ResponseReader) -> None:
        self._state.deadlines.note_activity()
        # The finish reason has come. Chat hosts send usage in a chunk of its own behind it, or
        # never, and some keep the connection open for minutes.
        if not reader.ended and reader.pipe.ending:
            self._state.deadlines.expect_end()

    async def _render(self, reader: ResponseReader) -> list[Event]:
        if _is_slow_to_render(reader):
            return await offload(self._rendered, reader)
        return self._rendered(reader)

    def _rendered(self, reader: ResponseReader) -> list[Event]:
        self._unrendered = False
        if self._first is not None:
            self._first += reader.parts
        events = reader.copied + self._renderer.render(reader.parts)
        if self._first is None and self._state.incoming.stream:
            reader.open_lane(self._renderer)
        if reader.ended and reader.size > LARGE:
            _ = reader.pipe.response  # joins large texts here, not on the event loop
        return events

    async def flow(
        self, write: Callable[[list[Event]], bool], line: DirectLine | None = None
    ) -> None:
        await self.flow_through(write, None, line)

    async def flow_through(
        self,
        write: Callable[[list[Event]], bool],
        try_store: Callable[[list[Event]], bool] | None,
        line: DirectLine | None,
    ) -> None:
        """As `flow`; `try_store` is called before anything is written."""
        reader, record = self._reader, self._state.record
        deadlines, now = self._state.deadlines, self._state.interrupt.loop.time
        if self._state.interrupt.reason is not None or self._waiting or self._unrendered:
            return
        if self._has_paused:
            return

        def take(data: bytes) -> bool:
            lane = reader.lane
            copied = None if lane is None else lane.copy(data)
            if copied is None:
                return self._take(data, write, try_store)
            # What `_take` does, for deltas alone.
            deadlines.last_activity = now()
            if not copied:  # the client's dialect shows nothing of these deltas
                return True
            if try_store is not None and not try_store(copied):
                self._waiting += copied
                return False
            record.events += len(copied)
            return write(copied)

        if reader.lane is None:  # the events of the first read had to be sent before
            reader.open_lane(self._renderer)
        consumer = take
        if line is not None:
            deadlines.line, sent = line, (line.events, line.size)
            consumer = DirectLane(line, lambda: reader.lane, take, try_store, now).take
        try:
            await self._state.interrupt.wait(reader.flow(consumer))
        except RequestStopped:
            pass  # `next` ends the response
        finally:
            reader.settle()
            if line is not None:
                record.events += line.events - sent[0]
                record.bytes_out += line.size - sent[1]

    def _take(
        self,
        data: bytes,
        write: Callable[[list[Event]], bool],
        try_store: Callable[[list[Event]], bool] | None,
    ) -> bool:
        """Processes bytes inside data_received, which cannot await. Whatever has to be awaited (a
        write to the store, offloaded work, the end) makes it return False, and `next` does it."""
        reader = self._reader
        if not reader.take(data):
            return False
        self._note_activity(reader)
        if _is_slow_to_render(reader):
            self._unrendered = True
            return False
        events = reader.copied + self._renderer.render(reader.parts)
        reader.open_lane(self._renderer)
        # The end is stored before it is sent.
        waits = reader.ended and (try_store is not None or self._before_end is not None)
        if events and (waits or (try_store is not None and not try_store(events))):
            self._waiting += events
            return False
        if reader.ended:
            self._state.meter.ended(self.fold)
        room = write(self._note_sent(events)) if events else True
        return room and not reader.ended and not self._has_paused

    @property
    def _has_paused(self) -> bool:
        """Whether the turn paused, and the next one is to be requested."""
        return self._paused_turns is not None and self._paused_turns.paused

    def _note_sent(self, events: list[Event]) -> list[Event]:
        record = self._state.record
        record.events += len(events)
        if record.first is None and events:
            record.first = time.time()
        return events

    async def read_body(self) -> tuple[int, bytes]:
        self._first = None
        await self.read_all()
        self.deliver()
        return await self.body()

    def deliver(self) -> None:
        """The whole response is sent at once."""
        self._state.record.first = time.time()
        self.delivered = True

    async def read_all(self) -> None:
        while not self._reader.ended:
            await self._more()
        self._state.meter.ended(self.fold)
        await self._do_before_end()

    async def _do_before_end(self) -> None:
        """Calls `RequestState.before_end`, once."""
        before_end, self._before_end = self._before_end, None
        if before_end is not None:
            await before_end(self.response)

    async def body(self) -> tuple[int, bytes]:
        """The status and the body of the response."""
        if self._reader.size > LARGE:
            return await offload(self._rendered_body)
        return self._rendered_body()

    def _rendered_body(self) -> tuple[int, bytes]:
        incoming, reader = self._state.incoming, self._reader
        api = api_of(incoming.body.dialect)
        response = self.response
        failure = response.error
        if failure is not None:
            error = ErrorPart(failure.kind, failure.message, failure.code, failure.status)
            return api.write_error(self._state.redact(error))
        if self._body_passes:
            # The bytes as they came, so that fields we do not know reach the client.
            body, rename = reader.data, incoming.dialect.with_model
            if rename is not None and response.model not in (None, incoming.model):
                body = rename(Frame(body), incoming.model)
            return 200, body
        # With our own id, which the context has: only a body that passes has the upstream's.
        body = api.body(response, self._renderer.context, Findings())
        return 502 if body.startswith(_ERRORS) else 200, body

    @property
    def _body_passes(self) -> bool:
        """Whether the client gets the body of the upstream."""
        sent, reader = self._sent, self._reader
        renamed = self._renderer.context.response_id != sent.encoding.response_id
        return sent.passes and reader.is_body and not renamed and not reader.pipe.findings.found

    def keepalive(self) -> Event | None:
        """None while an event with a smaller number is waiting."""
        # Not waiting for the upstream: then an event is being made that will have the next number.
        if not self._state.interrupt.waiting or self._waiting:
            return None
        event = self._renderer.keepalive()
        if event is not None and self.recorder is not None:
            self.recorder.keepalive()
        return event

    # Turns that paused

    async def _continue(self, paused_turns: PausedTurns) -> list[Event]:
        """Requests the next turn. If that fails, the response ends with the error."""
        reader, sent = self._reader, self._sent
        paused_turns.next_turn()
        reader.abort()
        self._state.meter.continued()
        api = api_of(sent.config.dialect)
        if api.request.continued is None:
            raise InternalError(f"{sent.config.dialect} does not pause")
        so_far = api.body(reader.pipe.response, sent.decoding, Findings())
        # The request as it was sent, with the output so far as its last message.
        body = api.request.continued(sent.translated.body, so_far)
        self._state.deadlines.stop_idle_timeout()  # which is `grace`, since the turn has ended
        try:
            incoming = await self._state.interrupt.wait(send(sent, body))
        except RequestFailed as failed:
            reader.cut(self._state.redact(failed.error))  # the finish reason before was a pause
            return self._rendered(reader)
        # The new pipe goes on with the guard and the fold of the old one: to the client it is one
        # response.
        if self.recorder is not None:
            self.recorder.turn()
        self._reader = self._read_from(incoming, reader.pipe)
        self._bytes_before += reader.size
        return []

    # The end

    async def fail(self, error: ErrorPart) -> list[Event]:
        self._state.meter.ended(self.fold)
        if not self._reader.ended:
            self._reader.abort()  # only the event loop closes connections
        if self._reader.size > LARGE:
            return await offload(self._failed, error)
        return self._failed(error)

    def _failed(self, error: ErrorPart) -> list[Event]:
        self.delivered = True
        waiting, self._waiting = self._waiting, []
        with suppress(Exception):  # what failed before may fail again
            if self._unrendered:
                waiting += self._rendered(self._reader)
            if self._reader.ended:
                return waiting
            self._reader.fail(error)
            return waiting + self._rendered(self._reader)
        # Our own code failed twice: an error from a fresh encoder is still better than a stream
        # without an end.
        return waiting + error_stream(self._state, self._sent.request).rest(error, -1)

    async def abandon(self, error: ErrorPart) -> None:
        await self.fail(error)
        self.abort()

    def abort(self) -> None:
        """Closes the connection to the upstream."""
        self._reader.abort()
        self._reader.pipe.tap = None  # which breaks the reference cycle with the renderer

    async def close(self) -> None:
        self._reader.pipe.tap = None
        await self._reader.drain(self._state.limits.grace)

    @property
    def bytes_in(self) -> int:
        return self._bytes_before + self._reader.size


def error_stream(state: RequestState, request: Request) -> ErrorStream:
    """The stream that reports an error where there is no response."""
    incoming = state.incoming
    return ErrorStream(incoming.dialect, request, int(time.time()), incoming.response_id)


async def send(sent: UpstreamRequest, body: bytes | None = None) -> UpstreamResponse:
    """Sends a request, perhaps with another body. Raises RequestFailed unless it succeeds."""
    try:
        incoming = await sent.target.upstream.send(sent.outgoing(body))
    except Unreachable as problem:
        raise RequestFailed(error_of(problem)) from None
    if incoming.status // 100 != 2:
        raise RequestFailed(await _read_error(incoming, sent))
    return incoming


async def _read_error(incoming: UpstreamResponse, sent: UpstreamRequest) -> ErrorPart:
    """The error of a response whose status is not a success."""
    body, config, status = b"", sent.config, incoming.status
    try:
        # No idle timeout runs yet: that of a response begins with its stream.
        async with asyncio.timeout(config.timeouts.between_events):
            while len(body) < ERROR_BODY and (data := await incoming.read()):
                body += data
    except (Unreachable, TimeoutError):
        pass  # what has arrived is used
    finally:
        incoming.abort()
    # Never followed: the key would go to whatever host the upstream names.
    if status // 100 == 3:
        return new_error(
            "bad-upstream-answer", f'upstream "{config.name}" responded with a redirect'
        )
    read_error = api_of(config.dialect).read_error
    return read_error(status, body, incoming.headers.get("retry-after"))
