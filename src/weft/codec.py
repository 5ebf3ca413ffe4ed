"""The public functions of the library: decode, encode and convert whole streams.

`Decoder` takes the bytes of one response and returns guarded parts. `Encoder` takes guarded parts
and returns the bytes of one response. `Pipe` is the part of a `Decoder` after the framing: the
dialect's frame decoder, its stages, and the guard. The functions run them over iterators;
`captures.py` reads what holds several responses.

What a dialect itself provides is called a frame decoder (frames in, unguarded parts out) and an
event encoder (guarded parts in, events out); see `dialects/base.py`.
"""

import secrets
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from hashlib import sha256
from typing import cast

import msgspec

from weft import large_json
from weft.arguments import (
    async_chunks_argument,
    bytes_argument,
    chunk_argument,
    chunks_argument,
    one_response,
    parts_argument,
)
from weft.assembler import Assembler, Response
from weft.context import Context
from weft.dialects import DialectName, dialect_named
from weft.dialects.base import Dialect, Stage
from weft.dialects.delta_templates import FrameTemplate
from weft.dialects.requests.codec import Loss, Losses, Rendered, RequestCodec
from weft.dialects.stages.custom_tools import CustomToolCalls
from weft.dialects.stages.parallel_calls import ParallelCalls
from weft.dialects.stages.restore_names import RestoreNames
from weft.dialects.stages.stop_sequences import StopSequences
from weft.errors import ArgumentTypeError, Refused, TooLarge, UnknownDialect
from weft.findings import Finding, Findings
from weft.guard import Guard, Redact
from weft.ids import Ids
from weft.parts import AnyPart, ErrorPart, Part
from weft.request import Request
from weft.sse import MAX_EVENT, Event, Frame, FrameReader, write


def fresh_context() -> Context:
    """Returns a context for a live response: ids that cannot be guessed, and the current time."""
    # The first clock and the first randomness: the modules before this one get them passed in.
    return Context(ids=Ids(secrets.token_bytes(16)), now=int(time.time()))


Stages = Callable[[Findings], Sequence[Stage]]
Tap = Callable[[Frame | None, Sequence[Part]], None]
Watch = Callable[[Sequence[Part], Sequence[Part]], None]


def _no_stages(findings: Findings) -> Sequence[Stage]:
    return ()


class Decoder:
    """Decodes the bytes of one response, in chunks of any size, into guarded parts."""

    def __init__(
        self,
        dialect: DialectName,
        *,
        context: Context | None = None,
        stages: Stages = _no_stages,
        limit: int = MAX_EVENT,
    ) -> None:
        """`stages` run after the dialect's own stages: pass `Translated.stages` to decode the
        response to a converted request. `limit` is the maximum size of an event, or a body, in
        bytes.
        """
        self._frames = FrameReader(limit=limit)
        self._pipe = Pipe(readable(dialect), context or fresh_context(), stages)

    def feed(self, data: bytes) -> list[AnyPart]:
        """Returns the parts that these bytes complete, possibly none."""
        if data.__class__ is not bytes:
            # The class, not isinstance: it is faster, and a subclass passes the check as well.
            data = chunk_argument(data)
        try:
            parts = self._pipe.feed(self._frames.feed(data))
        except TooLarge as problem:
            parts = self._pipe.too_large(problem)
        return cast("list[AnyPart]", parts)

    def steps(self, data: bytes) -> Iterator[list[AnyPart]]:
        """As feed, event by event: after each step, `findings` covers the events so far.

        Exhaust one iterator before the next call.
        """
        if data.__class__ is not bytes:
            data = chunk_argument(data)
        try:
            frames = self._frames.feed(data)
        except TooLarge as problem:
            yield cast("list[AnyPart]", self._pipe.too_large(problem))
        else:
            for frame in frames:
                yield cast("list[AnyPart]", self._pipe.feed((frame,)))

    def finish(self) -> list[AnyPart]:
        """Returns the remaining parts, the last of which is a finish.

        Call it when the stream has ended, also after an error. A second call returns nothing.
        """
        parts: list[Part] = []
        # Twice: the reader returns the frames before a failure, and raises at the next call.
        for _ in range(2):
            try:
                parts += self._pipe.feed(self._frames.finish())
            except TooLarge as problem:
                parts += self._pipe.too_large(problem)
        return cast("list[AnyPart]", parts + self._pipe.finish())

    @property
    def fold(self) -> Assembler:
        """The live fold of the parts returned so far, for `Encoder(fold=…)`."""
        return self._pipe.guard.fold

    @property
    def findings(self) -> list[Finding]:
        """What was repaired so far."""
        return self._pipe.findings.found

    @property
    def response(self) -> Response:
        """The response as far as it was decoded, with its findings."""
        return self._pipe.response

    @property
    def collector(self) -> Findings:
        """The collector of the findings, for `Encoder(collector=…)`."""
        return self._pipe.findings


class Pipe:
    """Decodes the frames of one choice of one response into guarded parts."""

    def __init__(
        self,
        dialect: Dialect,
        context: Context,
        stages: Stages = _no_stages,
        before: "Pipe | None" = None,
        redact: Redact | None = None,
    ) -> None:
        """`before` is the pipe whose response this one continues: they share a guard. `redact`
        changes an error before anyone sees it.
        """
        self.findings: Findings = Findings() if before is None else before.findings
        if before is None:
            self.guard: Guard = Guard(context.ids, self.findings, redact)
        else:
            self.guard = before.guard
        if dialect.decoder is None:
            raise UnknownDialect(f"{dialect.name} cannot be decoded")
        self._frame_decoder = dialect.decoder(context, self.findings)
        # First what belongs to the dialect (think tags become reasoning), then what a model did to
        # the calls, and last what undoes the conversion of the request: names are restored in calls
        # that exist only after the first two.
        self._stages: list[Stage] = [*dialect.stages(context, self.findings)]
        if context.request is not None and context.request.tools:
            names = [tool.name for tool in context.request.tools]
            self._stages.append(ParallelCalls(names, self.findings))
        self._stages += stages(self.findings)
        self._choice = context.choice
        self.tap: Tap | None = None
        """Called with each frame and the parts it completed; with None for the parts that the end
        of the input, or a failure, added."""
        self.watch: Watch | None = None
        """Called with the parts of each frame as the decoder returned them, and as the stages left
        them for the guard."""

    def feed(self, frames: Iterable[Frame]) -> list[Part]:
        out: list[Part] = []
        findings, decoder, guard = self.findings, self._frame_decoder, self.guard.feed
        for frame in frames:
            # Before the decoder runs: it, the stages and the guard all report at this position.
            findings.at = frame.number
            findings.offset = frame.offset
            # Most frames are ASCII, and to test that is much cheaper than to decode them.
            if not frame.data.isascii() and not large_json.is_utf8(frame.data):
                # Replaced here, so that no codec has to handle it.
                findings.once("frame-invalid-utf8", "", "bytes that are not UTF-8: replaced")
                data = frame.data.decode("utf-8", "replace").encode()
                frame = msgspec.structs.replace(frame, data=data)
            parts: list[Part]
            template = decoder.template
            text = None if template is None else template.match(frame)
            # A frame with an empty text opens no part and closes none: it is read like any other.
            if template is not None and text:
                parts = [template.kind(template.id, text)]
            else:
                decoder.template = None
                parts = decoder.feed(frame)
            decoded = parts
            if parts:
                for stage in self._stages:
                    parts = stage.feed(parts)
                if self.watch is not None:
                    self.watch(decoded, parts)
                parts = guard(parts)
                out += parts
            if self.tap is not None:
                self.tap(frame, parts)
        for stage in self._stages:
            if stage.passes:  # it has nothing left to do
                # At most one per call: the list must not change while it is iterated.
                self._stages.remove(stage)
                break
        return out

    def finish(self) -> list[Part]:
        parts = decoded = self._frame_decoder.finish()
        for stage in self._stages:
            # Stage by stage: what one held until now still passes those behind it.
            parts = stage.feed(parts) + stage.finish()
        if self.watch is not None:
            self.watch(decoded, parts)
        return self._tapped(self.guard.feed(parts) + self.guard.finish())

    def _tapped(self, parts: list[Part]) -> list[Part]:
        if self.tap is not None:
            self.tap(None, parts)
        return parts

    @property
    def template(self) -> FrameTemplate | None:
        """The template of frames that become one delta each, which nobody behind the decoder has to
        look at."""
        template = self._frame_decoder.template
        if template is None or self.watch is not None or self.guard.holding:
            return None
        for stage in self._stages:
            if stage.reads(template.kind, template.id):
                return None
        return template

    @property
    def ending(self) -> bool:
        """Whether the finish reason has come: only usage or the terminator may follow."""
        return self._frame_decoder.ending or self.guard.failed

    @property
    def holding(self) -> bool:
        """Whether content of the frames so far has not been returned as parts yet."""
        # No generator: this runs for every frame that is passed through.
        holding = self._frame_decoder.holding or self.guard.holding
        for stage in self._stages:
            holding = holding or stage.holding
        return holding

    def fail(self, error: ErrorPart) -> list[Part]:
        """Ends the content with an error from outside the stream, such as a timeout."""
        return self._tapped(self.guard.feed([error]))

    def too_large(self, problem: TooLarge) -> list[Part]:
        self.findings.at, self.findings.offset = problem.event, problem.offset
        return self.fail(ErrorPart("too-large", str(problem)))

    @property
    def response(self) -> Response:
        return self.guard.fold.response(tuple(self.findings.found), self._choice)


class Encoder:
    """Encodes the guarded parts of one response as the dialect's events, one `bytes` per event.

    With the `fold` of the decoder that returned the parts, nothing is assembled twice. With its
    `collector`, the findings of both are in one list, each at its event.
    """

    def __init__(
        self,
        dialect: DialectName,
        *,
        context: Context | None = None,
        fold: Assembler | None = None,
        collector: Findings | None = None,
    ) -> None:
        written = dialect_named(dialect)
        if written.encoder is None:
            raise UnknownDialect(f"{written.name} cannot be encoded")
        self._idle = written.idle
        self._findings = Findings() if collector is None else collector
        # Encoders read repeated text from the fold. Without the decoder's, the parts are folded
        # here.
        self._own = Assembler() if fold is None else None
        self._event_encoder = written.encoder(
            context or fresh_context(), fold or self._own or Assembler(), self._findings
        )

    def feed(self, parts: Iterable[Part]) -> list[bytes]:
        """Returns the events that these parts complete, possibly none."""
        return self.feed_guarded(list(parts_argument(parts)))

    def feed_guarded(self, parts: list[Part]) -> list[bytes]:
        """As feed, for parts that come from a guard and need no check."""
        if self._own is not None:
            for part in parts:
                self._own.feed(part)
        return _framed(self._event_encoder.feed(parts))

    def finish(self) -> list[bytes]:
        """Returns the remaining events. A second call returns nothing."""
        return _framed(self._event_encoder.finish())

    def keepalive(self) -> list[bytes]:
        """Returns what keeps an idle connection open: an event of the dialect, or a comment."""
        event = self._event_encoder.keepalive()
        return [self._idle] if event is None else _framed([event])

    @property
    def findings(self) -> list[Finding]:
        """What this dialect cannot carry, and all else that its collector holds."""
        return self._findings.found


def _framed(events: Iterable[Event]) -> list[bytes]:
    return [write(event.name, event.data) for event in events]


def readable(name: str) -> Dialect:
    """Returns the dialect of that name; raises UnknownDialect if it has no decoder."""
    dialect = dialect_named(name)
    if dialect.decoder is None:
        raise UnknownDialect(f"{dialect.name} cannot be decoded")
    return dialect


class DecodedStream(Iterator[AnyPart]):
    """The guarded parts of one response, as its bytes arrive; returned by `decode`.

    It can be iterated once. A list of its parts holds no findings: keep the stream to read them.
    """

    def __init__(self, chunks: Iterable[bytes] | bytes, decoder: Decoder) -> None:
        self.decoder = decoder
        self._parts = self._decoded(chunks_argument(chunks))

    def _decoded(self, chunks: Iterable[bytes]) -> Generator[AnyPart]:
        for chunk in chunks:
            for parts in self.decoder.steps(chunk):
                yield from parts
        yield from self.decoder.finish()

    def __next__(self) -> AnyPart:
        return next(self._parts)

    def close(self) -> None:
        """Ends the iteration."""
        self._parts.close()

    @property
    def findings(self) -> list[Finding]:
        """What was repaired so far, and what `encode` of this stream could not carry."""
        return self.decoder.findings

    @property
    def response(self) -> Response:
        """The response as far as it was iterated, with its findings."""
        return self.decoder.response


class AsyncDecodedStream(AsyncIterator[AnyPart]):
    """As DecodedStream, from an asynchronous iterator; returned by `adecode`."""

    def __init__(self, chunks: AsyncIterable[bytes], decoder: Decoder) -> None:
        self.decoder = decoder
        self._parts = self._decoded(async_chunks_argument(chunks))

    async def _decoded(self, chunks: AsyncIterable[bytes]) -> AsyncGenerator[AnyPart]:
        async for chunk in chunks:
            for parts in self.decoder.steps(chunk):
                for part in parts:
                    yield part
        for part in self.decoder.finish():
            yield part

    def __anext__(self) -> Awaitable[AnyPart]:
        return self._parts.__anext__()

    async def aclose(self) -> None:
        """Ends the iteration."""
        await self._parts.aclose()

    @property
    def findings(self) -> list[Finding]:
        """What was repaired so far."""
        return self.decoder.findings

    @property
    def response(self) -> Response:
        """The response as far as it was iterated, with its findings."""
        return self.decoder.response


def decode(
    chunks: Iterable[bytes] | bytes, dialect: DialectName, *, context: Context | None = None
) -> DecodedStream:
    """Returns an iterator over the guarded parts of one response.

    `chunks` is an iterable of bytes, cut anywhere; bytes are taken as one chunk. The iterator also
    has `findings` and `response`. A broken stream does not raise: it ends with an `error` part and
    a `finish` part. Wrong arguments raise here, not at the first part.
    """
    return DecodedStream(chunks, Decoder(dialect, context=context))


def adecode(
    chunks: AsyncIterable[bytes], dialect: DialectName, *, context: Context | None = None
) -> AsyncDecodedStream:
    """As decode, from an asynchronous iterator of bytes; iterate the result with `async for`."""
    return AsyncDecodedStream(chunks, Decoder(dialect, context=context))


def assemble(parts: Iterable[Part]) -> Response:
    """Returns the response that the parts make. Parts that break the lifecycle are repaired first.

    If `parts` is the iterator that `decode` returned, the findings are those of the decoder; of
    other parts, they are what had to be repaired. Raises ArgumentValueError if the parts are those
    of several responses.
    """
    # Guarded already, and its decoder has the fold: a second guard would find nothing.
    if isinstance(parts, DecodedStream):
        deque(parts, maxlen=0)
        return parts.response
    findings = Findings()
    guard = Guard(Ids(), findings)
    guard.feed(one_response(parts_argument(parts)))
    guard.finish()
    return guard.fold.response(tuple(findings.found))


class EncodedStream(Iterator[bytes]):
    """One response as the events of a dialect, one `bytes` per event; returned by `encode`."""

    def __init__(self, parts: Iterable[Part], dialect: DialectName, context: Context) -> None:
        self._collector = (
            parts.decoder.collector if isinstance(parts, DecodedStream) else Findings()
        )
        # Parts may come from anywhere, so they are guarded here; legal ones pass untouched (law 7).
        self._guard = Guard(context.ids, self._collector)
        self._encoder = Encoder(
            dialect, context=context, fold=self._guard.fold, collector=self._collector
        )
        self._events = self._encoded(parts_argument(parts))

    def _encoded(self, parts: Iterable[Part]) -> Generator[bytes]:
        for part in parts:
            yield from self._encoder.feed_guarded(self._guard.feed((part,)))
        yield from self._encoder.feed_guarded(self._guard.finish())
        yield from self._encoder.finish()

    def __next__(self) -> bytes:
        return next(self._events)

    def close(self) -> None:
        """Ends the iteration."""
        self._events.close()

    @property
    def findings(self) -> list[Finding]:
        """What was repaired so far, and what this dialect cannot carry. If the parts are the
        iterator that `decode` returned, the findings of its decoder come first.
        """
        return self._collector.found


def encode(
    parts: Iterable[Part], dialect: DialectName, *, context: Context | None = None
) -> EncodedStream:
    """Returns an iterator over the dialect's events for one response, one `bytes` per event.

    Parts that break the lifecycle are repaired first. The iterator also has `findings`.
    """
    return EncodedStream(parts, dialect, context or fresh_context())


class Converted(bytes):
    """A capture or a body in another dialect, with the findings of the conversion."""

    findings: tuple[Finding, ...]
    """What was repaired, and what the target cannot carry, in the order of the capture."""

    def __new__(cls, data: bytes, findings: Iterable[Finding]) -> "Converted":
        converted = super().__new__(cls, data)
        converted.findings = tuple(findings)
        return converted


def encode_body(
    response: Response, dialect: DialectName, *, context: Context | None = None
) -> Converted:
    """Returns the JSON body of a response that is not streamed, as bytes that also have `findings`.

    A failed response becomes the error body of the dialect.
    """
    if not isinstance(response, Response):
        raise ArgumentTypeError(
            f"response must be a weft.Response, not {response.__class__.__name__}; "
            "weft.assemble makes one from parts"
        )
    written = dialect_named(dialect)
    if written.body is None:
        raise UnknownDialect(f"{written.name} has streams only, and no bodies")
    findings = Findings()
    body = written.body(response, context or fresh_context(), findings)
    return Converted(body, findings.found)


class Translated(msgspec.Struct, frozen=True):
    """A request in another dialect: the body to send, and what is different in it."""

    request: Request
    rendered: Rendered
    losses: tuple[Loss, ...]
    """Every difference, with its path in the original body."""

    @property
    def body(self) -> bytes:
        """The body to send."""
        return self.rendered.body

    def stages(self, findings: Findings) -> list[Stage]:
        """Returns the stages that undo, in the response, what the conversion changed: renamed
        tools, free-form tools declared as functions, and stop sequences the target does not have.
        Pass this method to `Decoder(stages=…)`.
        """
        rendered, request = self.rendered, self.request
        stages: list[Stage] = []
        if rendered.names:
            stages.append(RestoreNames(rendered.names, tools=request.tools))
        if rendered.bridged:
            stages.append(CustomToolCalls(rendered.bridged, findings))
        if rendered.stop:
            stages.append(StopSequences(rendered.stop, findings))
        return stages


def convert_request(
    raw: bytes, source: DialectName, target: DialectName, *, context: Context | None = None
) -> Translated:
    """Returns a request body in another dialect.

    Raises BadRequest, which names a field of the original body, if the body is not valid in its
    dialect, and its subclass Refused if the target has no equivalent for something that changes
    the meaning of the request.
    """
    raw = bytes_argument(raw, "raw")
    # Ids from the body itself: equal input gives equal bytes here, too.
    context = context or Context(ids=Ids(sha256(raw).digest()))
    parsed = _request_codec(source).parse(raw, context)
    losses = Losses()
    rendered = _request_codec(target).render(parsed.request, context, losses)
    source_path = parsed.source_paths.source
    named = [Loss(source_path(one.path), one.outcome, one.detail) for one in losses.found]
    refused = next((loss for loss in named if loss.outcome == "refused"), None)
    if refused is not None:
        raise Refused(refused.path, refused.detail)
    return Translated(parsed.request, rendered, tuple(named))


def _request_codec(name: str) -> RequestCodec:
    dialect = dialect_named(name)
    if dialect.request is None:
        raise UnknownDialect(f"{dialect.name} has streams only, and no requests")
    return dialect.request
