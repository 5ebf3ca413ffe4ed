"""An answer that has begun: its events as they come, or all of it as a body.

`OpenStream` reads an upstream's answer and renders it. `PersistedStream` is one whose events are
stored before they are told. Both are pulled: whoever reads them slowly has the upstream read
slowly. They belong to one task.
"""

import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from weft.assembler import Response
from weft.codec import Pipe
from weft.context import Context
from weft.dialects.base import Stage
from weft.dialects.error_classes import new_error
from weft.errors import InternalError, WeftError
from weft.findings import Finding, Findings
from weft.parts import ErrorPart, Part, ReasoningDelta, TextDelta, ToolParamsDelta
from weft.relay.deadlines import Deadlines, Interrupt, RequestStopped
from weft.relay.incoming import IncomingRequest, RequestFailed, RequestLimits, codec_of
from weft.relay.offload import offload
from weft.relay.paused_turns import PausedTurns
from weft.relay.persistence import TAKEN_OVER, ResponseWriter
from weft.relay.redaction import ErrorRedactor
from weft.relay.rendering import BodyOnly, Encoded, ErrorStream, Passthrough, Renderer
from weft.relay.request_record import RequestRecord
from weft.relay.response_reader import LARGE, ResponseReader
from weft.relay.translation import UpstreamRequest
from weft.request import Request
from weft.sse import Event, Frame
from weft.store.base import AlreadyExists, StoreError
from weft.upstream.base import Unreachable, UpstreamResponse, error_of

ERROR_BODY = 64 * 1024
"""As much of an error body is read."""

_ERRORS = (b'{"type":"error"', b'{"error"')
"""How a body begins that a dialect writes for an answer that it cannot express."""


@dataclass(frozen=True, slots=True)
class RequestState:
    """What everything that serves one request shares."""

    incoming: IncomingRequest
    limits: RequestLimits
    redact: ErrorRedactor
    record: RequestRecord
    interrupt: Interrupt
    deadlines: Deadlines
    before_end: Callable[[Response], Awaitable[None]] | None = None
    """Done when all of an answer has come, before its client is told the end."""


_DELTAS = frozenset((TextDelta, ReasoningDelta, ToolParamsDelta))


def _takes_long(reader: ResponseReader) -> bool:
    """Whether it takes long to render the last read: a large event, or an end, with which some
    dialects repeat all that came."""
    return reader.is_long or (
        reader.size > LARGE and not all(part.__class__ in _DELTAS for part in reader.parts)
    )


class Stream(Protocol):
    """An answer on its way to a client."""

    @property
    def response(self) -> Response:
        """What came so far."""
        ...

    @property
    def findings(self) -> list[Finding]:
        """What the client's dialect could not carry."""
        ...

    @property
    def repairs(self) -> list[Finding]:
        """What was repaired in the upstream's answer so far."""
        ...

    @property
    def log_id(self) -> str | None:
        """What the answer is stored under, if it is."""
        ...

    async def next(self) -> list[Event]:
        """Returns the next events for the client; none at the end. Raises RequestFailed if they
        must be stored and cannot be."""
        ...

    async def flow(self, write: Callable[[list[Event]], bool]) -> None:
        """Has events written in the turn of the loop that brings them, while that is all there is
        to do, and `write` says that there is room for more. `next` goes on from there.
        """
        ...

    async def read_body(self) -> tuple[int, bytes]:
        """Returns status and body of a response that is not streamed. Raises RequestFailed."""
        ...

    def keepalive(self) -> Event | None:
        """The event to send, at once, while there is nothing to say, on a wire that has one."""
        ...

    async def fail(self, error: ErrorPart) -> list[Event]:
        """Returns the events that end the answer with this error."""
        ...

    async def abandon(self, error: ErrorPart) -> None:
        """Ends the answer for nobody: its client left, or is told otherwise why there is none."""
        ...

    async def close(self) -> None:
        """The client has all of it."""
        ...

    @property
    def sent(self) -> UpstreamRequest: ...

    @property
    def delivered(self) -> bool:
        """Whether the client was told all of it, or how it failed."""
        ...

    @property
    def bytes_in(self) -> int:
        """Bytes that came from the upstream."""
        ...


class OpenStream:
    """An answer with content: what came before it was told, and what is to come."""

    def __init__(
        self, state: RequestState, sent: UpstreamRequest, incoming: UpstreamResponse
    ) -> None:
        self._state = state
        self._sent = sent
        own, theirs = codec_of(state.incoming.body.dialect), codec_of(sent.place.dialect)
        pauses = theirs.continued is not None and own.continued is None
        self._paused_turns = PausedTurns() if pauses else None
        self._reader = self._read_from(incoming, None)
        self._renderer = self._renderer_of(incoming)
        self._bytes_before = 0
        """Of answers that paused, before the one that is read."""
        self._first: list[Part] | None = []
        """All parts so far, until something is told."""
        self._waiting: list[Event] = []
        """Events that `next` returns before it reads on."""
        self._unrendered = False
        """Whether the parts of the last read are still to be rendered."""
        self._before_end = state.before_end
        self.delivered = False
        """Whether the client was told all of it, or how it failed."""

    def _read_from(self, incoming: UpstreamResponse, before: Pipe | None) -> ResponseReader:
        """Makes what reads an answer; `before` is what it goes on with."""
        sent, paused_turns, state = self._sent, self._paused_turns, self._state

        def stages(findings: Findings) -> list[Stage]:
            own = sent.translated.stages(findings)
            return own if paused_turns is None else [*own, paused_turns]

        pipe = Pipe(sent.dialect, sent.decoding, stages, before, state.redact)
        place, limit = sent.place, state.limits.response
        state.deadlines.allow_silence(place.name, place.timeouts.between_events)
        return ResponseReader(incoming, pipe, limit, keep=not state.incoming.stream)

    def _renderer_of(self, incoming: UpstreamResponse) -> Renderer:
        sent, pipe, dialect = self._sent, self._reader.pipe, self._state.incoming.dialect
        if not self._state.incoming.stream:
            return BodyOnly(sent.encoding)
        kind = incoming.headers.get("content-type", "")
        passes = sent.passes and kind.startswith("text/event-stream")
        return (Passthrough if passes else Encoded)(dialect, sent.encoding, pipe)

    # What is known of it

    @property
    def sent(self) -> UpstreamRequest:
        return self._sent

    @property
    def response(self) -> Response:
        return self._reader.pipe.response

    @property
    def response_id(self) -> str:
        """The id that the client is told."""
        if isinstance(self._renderer, BodyOnly) and self._body_passes:
            return self.response.id
        return self._renderer.context.response_id or ""

    @property
    def encoding(self) -> Context:
        return replace(self._renderer.context, response_id=self.response_id)

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
        """Whether nothing more comes of it but what waits."""
        return self._reader.ended

    # Before there is content

    async def read_until(self, is_content: Callable[[Part], bool]) -> None:
        """Reads until there is content; raises RequestFailed if the answer fails before."""
        reader = self._reader
        while not reader.ended:
            self._waiting += await self._read(reader)
            content = any(map(is_content, reader.parts))
            error = next((one for one in reader.parts if isinstance(one, ErrorPart)), None)
            if error is not None and not content:
                raise RequestFailed(error)
            if content:
                break

    def rename(self, id: str) -> None:
        """Has the answer told under another id. Nothing of it was told yet."""
        if self._first is None:
            raise InternalError("what was told cannot be told otherwise")
        context = replace(self._sent.encoding, response_id=id)
        if isinstance(self._renderer, BodyOnly):
            self._renderer = BodyOnly(context)
            return
        dialect = self._state.incoming.dialect
        self._renderer = Encoded(dialect, context, self._reader.pipe)
        self._waiting = self._renderer.render(self._first)

    @property
    def waiting(self) -> list[Event]:
        """What is told next."""
        return self._waiting

    # Telling

    async def fill(self) -> None:
        """Reads until there is something to tell, or all has come."""
        while not self._waiting and (self._unrendered or not self._reader.ended):
            self._waiting = await self._more()

    async def next(self) -> list[Event]:
        await self.fill()
        self._first = None
        if self._reader.ended:
            await self._do_before_end()
        events, self._waiting = self._waiting, []
        self.delivered = not events
        return self._told(events)

    async def _more(self) -> list[Event]:
        """Reads the next of the response, or asks for its rest where it paused."""
        if self._unrendered:
            return await self._render(self._reader)
        if self._paused_turns is not None and self._paused_turns.paused:
            return await self._continue(self._paused_turns)
        return await self._read(self._reader)

    async def _read(self, reader: ResponseReader) -> list[Event]:
        """Reads the next of an answer; it ends if the request was stopped."""
        state = self._state
        if state.interrupt.reason is not None:
            reader.fail(state.interrupt.reason)
        else:
            try:
                await state.interrupt.wait(reader.read())
                self._heard(reader)
            except RequestStopped as stopped:
                reader.fail(stopped.error)
        return await self._render(reader)

    def _heard(self, reader: ResponseReader) -> None:
        """Something came."""
        self._state.deadlines.activity()
        if not reader.ended and reader.pipe.ending:
            self._state.deadlines.expect_end()

    async def _render(self, reader: ResponseReader) -> list[Event]:
        if _takes_long(reader):
            return await offload(self._rendered, reader)
        return self._rendered(reader)

    def _rendered(self, reader: ResponseReader) -> list[Event]:
        self._unrendered = False
        if self._first is not None:
            self._first += reader.parts
        events = self._renderer.render(reader.parts)
        if reader.ended and reader.size > LARGE:
            _ = reader.pipe.response  # a large text is joined here, and not on the loop
        return events

    async def flow(self, write: Callable[[list[Event]], bool]) -> None:
        await self.flow_through(write, None)

    async def flow_through(
        self,
        write: Callable[[list[Event]], bool],
        try_store: Callable[[list[Event]], bool] | None,
    ) -> None:
        """As `flow`; events are written only if they could be stored first, where they must be."""
        reader, paused_turns, renderer = self._reader, self._paused_turns, self._renderer
        if self._state.interrupt.reason is not None or self._waiting or self._unrendered:
            return
        if paused_turns is not None and paused_turns.paused:  # nothing more of it is wanted
            return

        def waits(events: list[Event]) -> bool:
            """Whether something is to be done before these events may be written."""
            if reader.ended and (try_store is not None or self._before_end is not None):
                return True
            return try_store is not None and not try_store(events)

        def take(data: bytes) -> bool:
            if not reader.take(data):
                return False
            self._heard(reader)
            if _takes_long(reader):
                self._unrendered = True
                return False
            events = renderer.render(reader.parts)
            if events and waits(events):
                self._waiting += events
                return False
            room = write(self._told(events)) if events else True
            return room and not reader.ended and (paused_turns is None or not paused_turns.paused)

        with suppress(RequestStopped):  # `next` tells it
            await self._state.interrupt.wait(reader.flow(take))

    def _told(self, events: list[Event]) -> list[Event]:
        record = self._state.record
        if record.first is None and events:
            record.first = time.time()
        return events

    async def read_body(self) -> tuple[int, bytes]:
        self._first = None
        await self.read_all()
        self.deliver()
        return await self.body()

    def deliver(self) -> None:
        """The client is told all of it at once."""
        self._state.record.first = time.time()
        self.delivered = True

    async def read_all(self) -> None:
        while not self._reader.ended:
            await self._more()
        await self._do_before_end()

    async def _do_before_end(self) -> None:
        """Does once what is to be done before the client is told the end."""
        before_end, self._before_end = self._before_end, None
        if before_end is not None:
            await before_end(self.response)

    async def body(self) -> tuple[int, bytes]:
        """The status and the body of all that came."""
        if self._reader.size > LARGE:
            return await offload(self._rendered_body)
        return self._rendered_body()

    def _rendered_body(self) -> tuple[int, bytes]:
        dialect, reader = self._state.incoming.dialect, self._reader
        if dialect.body is None or dialect.write_error is None:
            raise InternalError(f"{dialect.name} has no bodies")
        response, failure = self.response, self.response.error
        if failure is not None:
            error = ErrorPart(failure.kind, failure.message, failure.code, failure.status)
            return dialect.write_error(self._state.redact(error))
        if self._body_passes:
            return 200, self._own_body(reader.data, response)
        body = dialect.body(response, self.encoding, Findings())
        return 502 if body.startswith(_ERRORS) else 200, body

    def _own_body(self, body: bytes, response: Response) -> bytes:
        """The upstream's body, with the model under the client's name for it."""
        asked, rename = self._state.incoming.model, self._state.incoming.dialect.with_model
        if rename is None or response.model in (None, asked):
            return body
        return rename(Frame(body), asked)

    @property
    def _body_passes(self) -> bool:
        """Whether the client is told the upstream's own body."""
        sent, reader = self._sent, self._reader
        renamed = self._renderer.context.response_id != sent.encoding.response_id
        return sent.passes and reader.is_body and not renamed and not reader.pipe.findings.found

    def keepalive(self) -> Event | None:
        """None is made while one with a smaller number is on its way."""
        if not self._state.interrupt.waiting or self._waiting:
            return None
        return self._renderer.keepalive()

    # The rest of an answer that paused

    async def _continue(self, paused_turns: PausedTurns) -> list[Event]:
        reader = self._reader
        paused_turns.next_turn()
        reader.abort()
        try:
            error = await self._state.interrupt.wait(self._ask_for_rest(reader))
        except RequestStopped as stopped:
            error = stopped.error
        if error is None:
            return []
        reader.cut(self._state.redact(error))  # that it paused is told, and is no end
        return self._rendered(reader)

    async def _ask_for_rest(self, reader: ResponseReader) -> ErrorPart | None:
        sent = self._sent
        continued, writer = codec_of(sent.place.dialect).continued, sent.dialect.body
        if continued is None or writer is None:
            raise InternalError(f"{sent.place.dialect} does not pause")
        so_far = writer(reader.pipe.response, sent.decoding, Findings())
        outgoing = sent.outgoing(continued(sent.translated.body, so_far))
        try:
            incoming = await sent.target.upstream.send(outgoing)
        except Unreachable as problem:
            return error_of(problem)
        if incoming.status // 100 != 2:
            return await refusal(incoming, sent)
        self._reader = self._read_from(incoming, reader.pipe)
        self._bytes_before += reader.size
        return None

    # The end

    async def fail(self, error: ErrorPart) -> list[Event]:
        if not self._reader.ended:
            self._reader.abort()  # which may only be done on the loop
        if self._reader.size > LARGE:
            return await offload(self._failed, error)
        return self._failed(error)

    def _failed(self, error: ErrorPart) -> list[Event]:
        self.delivered = True
        waiting, self._waiting = self._waiting, []
        with suppress(Exception):  # what broke it may break this too
            if self._unrendered:
                waiting += self._rendered(self._reader)
            if self._reader.ended:
                return waiting
            self._reader.fail(error)
            return waiting + self._rendered(self._reader)
        return waiting + error_stream(self._state, self._sent.request).rest(error, -1)

    async def abandon(self, error: ErrorPart) -> None:
        await self.fail(error)
        self.abort()

    def abort(self) -> None:
        """Nothing of it is wanted."""
        self._reader.abort()
        self._reader.pipe.tap = None  # else pipe and renderer would hold one another

    async def close(self) -> None:
        self._reader.pipe.tap = None
        await self._reader.drain(self._state.limits.grace)

    @property
    def bytes_in(self) -> int:
        return self._bytes_before + self._reader.size


class PersistedStream:
    """An open stream whose events are stored before they are told."""

    def __init__(self, state: RequestState, inner: OpenStream, writer: ResponseWriter) -> None:
        self._state = state
        self._inner = inner
        self._writer: ResponseWriter | None = writer
        """None once the store takes no more."""
        self._number = -1
        """Of the last event told, on a wire that numbers them."""
        self._last: list[Event] = []
        """What the client was told at last, and is not stored yet."""

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
        """What is stored: with what the client's dialect could not carry."""
        response = self.response
        found = (*response.findings, *self.findings)
        return msgspec.structs.replace(response, findings=found) if self.findings else response

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

    # Telling

    async def next(self) -> list[Event]:
        inner, writer = self._inner, self._writer
        stored = False
        if writer is not None and not writer.has_begun:
            await inner.fill()  # only then is it known which id the client is told
            first = [] if inner.ended else inner.waiting
            await self._store(self._begin(writer, is_body=False))
            stored = bool(first)
        events = await inner.next()
        if self._writer is not None and not stored:
            await self._store(self._keep(self._writer, events))
        return self._told(events)

    async def _begin(self, writer: ResponseWriter, *, is_body: bool) -> None:
        """Stores the beginning, under an id that nobody has. What ends at once is stored then."""
        inner = self._inner
        try:
            if not writer.accepts(inner.response_id):
                raise AlreadyExists("an id that cannot be used")
            first = () if is_body or inner.ended else inner.waiting
            await writer.begin(inner.response_id, first)
        except AlreadyExists:
            inner.rename(self._state.incoming.dialect.new_id(inner.sent.encoding.ids))
            first = () if is_body or inner.ended else inner.waiting
            await writer.begin(inner.response_id, first)

    async def _keep(self, writer: ResponseWriter, events: list[Event]) -> None:
        if not writer.running:
            return
        if self._inner.ended:  # an end may have no words
            await writer.finish(events, self._record, self._inner.encoding)
        elif events:
            await writer.append(events)

    async def _store(self, work: Coroutine[None, None, None]) -> None:
        """Raises RequestFailed if it cannot be stored, and must be."""
        try:
            await work
        except (StoreError, AlreadyExists) as problem:
            self._give_up(problem)

    def _give_up(self, problem: WeftError) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.give_up()
        self._state.record.unstored = str(problem)
        if isinstance(problem, StoreError) and problem.kind == "fenced":
            raise RequestFailed(TAKEN_OVER) from None  # the store has another end of it
        if writer.required and isinstance(problem, StoreError):
            raise RequestFailed(new_error("server", "the answer could not be stored")) from None

    def _told(self, events: list[Event]) -> list[Event]:
        for event in reversed(events):
            if event.number is not None:
                self._number = event.number
                break
        return events

    async def flow(self, write: Callable[[list[Event]], bool]) -> None:
        writer = self._writer

        def told(events: list[Event]) -> bool:
            return write(self._told(events))

        await self._inner.flow_through(told, None if writer is None else writer.try_append)

    async def read_body(self) -> tuple[int, bytes]:
        inner = self._inner
        await inner.read_all()
        status, body = await inner.body()
        if self._writer is not None and status == 200 and not self._writer.has_begun:
            id = inner.response_id
            await self._store(self._begin(self._writer, is_body=True))
            status, body = (status, body) if inner.response_id == id else await inner.body()
        if self._writer is not None and status == 200:
            await self._store(self._writer.finish_body(body, self._record))
        inner.deliver()
        return status, body

    def keepalive(self) -> Event | None:
        """Where there is such an event it is stored like any other."""
        event, writer = self._inner.keepalive(), self._writer
        if event is not None and writer is not None and not writer.try_append([event]):
            return None
        return event

    # The end

    async def fail(self, error: ErrorPart) -> list[Event]:
        if self._inner.ended:  # and the end could not be stored: it is not told
            return error_stream(self._state, self.sent.request).rest(error, self._number)
        events = await self._inner.fail(error)
        self._last = [] if self._writer is None else events
        return events

    async def abandon(self, error: ErrorPart) -> None:
        """Stores what had come, with the end that nobody is told."""
        self._last = await self._inner.fail(error)
        self._inner.abort()
        await self._settle()

    async def close(self) -> None:
        await self._settle()
        await self._inner.close()

    async def _settle(self) -> None:
        """Stores how it ended, if that is not stored yet."""
        writer = self._writer
        if writer is not None and writer.running and self._inner.ended:
            with suppress(StoreError):
                await writer.finish(self._last, self._record, self._inner.encoding)


def error_stream(state: RequestState, request: Request) -> ErrorStream:
    """The stream that reports an error where there is no response."""
    incoming = state.incoming
    return ErrorStream(incoming.dialect, request, int(time.time()), incoming.response_id)


async def refusal(incoming: UpstreamResponse, sent: UpstreamRequest) -> ErrorPart:
    """What an answer with a status that is no success means."""
    body, place, status = b"", sent.place, incoming.status
    try:
        while len(body) < ERROR_BODY and (data := await incoming.read()):
            body += data
    except Unreachable:
        pass  # what came must do
    finally:
        incoming.abort()
    if status // 100 == 3:
        return new_error("bad-upstream-answer", f'upstream "{place.name}" answered with a redirect')
    if sent.dialect.read_error is None:
        raise InternalError(f"{place.dialect} has no errors")
    return sent.dialect.read_error(status, body, incoming.headers.get("retry-after"))
