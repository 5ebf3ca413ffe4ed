"""Whole streams, both ways: the verbs of the library.

`Decoder` is bytes in, guarded parts out: frames, the dialect's decoder, its stages, the guard.
`Encoder` is guarded parts in, bytes out. Both live for one response. The functions beside them
run them over iterators. `captures.py` reads what holds several responses.
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
from itertools import chain

import msgspec

from weft.assembler import Assembler, Response
from weft.context import Context
from weft.dialects import dialect_named
from weft.dialects.base import Dialect, Stage
from weft.dialects.requests import Loss, Losses, Rendered, RequestCodec
from weft.dialects.stages.custom_bridge import CustomBridge
from weft.dialects.stages.names import RestoreNames
from weft.dialects.stages.parallel_calls import ParallelCalls
from weft.dialects.stages.stop_cut import StopCut
from weft.errors import Refused, TooLarge, UnknownDialect
from weft.findings import Finding, Findings
from weft.guard import Guard, Shown
from weft.ids import Ids
from weft.parts import ErrorPart, Part
from weft.request import Request
from weft.sse import MAX_EVENT, Event, Frame, FrameReader, write


def fresh_context() -> Context:
    """A context for a live response: ids that nobody can guess, and the time of day."""
    return Context(ids=Ids(secrets.token_bytes(16)), now=int(time.time()))


Stages = Callable[[Findings], Sequence[Stage]]
Tap = Callable[[Frame | None, Sequence[Part]], None]


def _no_stages(findings: Findings) -> Sequence[Stage]:
    return ()


class Decoder:
    """Bytes of one response in any pieces in, guarded parts out."""

    def __init__(
        self,
        dialect: str,
        *,
        context: Context | None = None,
        stages: Stages = _no_stages,
        limit: int = MAX_EVENT,
    ) -> None:
        """`stages` stand behind the dialect's own: those of a translated request. `limit` is how
        many bytes one event, or a body, may have."""
        self._dialect = readable(dialect)
        self._reader = FrameReader(limit=limit)
        self._pipe = Pipe(self._dialect, context or fresh_context(), stages)

    def feed(self, data: bytes) -> list[Part]:
        """Returns the parts that these bytes complete, possibly none."""
        return list(chain.from_iterable(self.steps(data)))

    def steps(self, data: bytes) -> Iterator[list[Part]]:
        """As feed, event by event: between two steps, the findings are those of what came so far.

        Use up one iterator before the next call.
        """
        try:
            frames = self._reader.feed(data)
        except TooLarge as problem:
            yield self._pipe.too_large(problem)
        else:
            for frame in frames:
                yield self._pipe.feed((frame,))

    def finish(self) -> list[Part]:
        """Returns the rest. The last part ever is a finish; a second call returns nothing."""
        parts: list[Part] = []
        for _ in range(2):  # what came before a failure, and the failure
            try:
                parts += self._pipe.feed(self._reader.finish())
            except TooLarge as problem:
                parts += self._pipe.too_large(problem)
        return parts + self._pipe.finish()

    @property
    def fold(self) -> Assembler:
        """The live fold of what was returned so far: an encoder can read it."""
        return self._pipe.guard.fold

    @property
    def findings(self) -> list[Finding]:
        return self._pipe.findings.found

    @property
    def response(self) -> Response:
        """The fold as it stands, with the findings."""
        return self._pipe.response

    @property
    def collector(self) -> Findings:
        """Where the findings are collected: an encoder can add its own, each at its event."""
        return self._pipe.findings


class Pipe:
    """Frames of one response and one choice in, guarded parts out."""

    def __init__(
        self,
        dialect: Dialect,
        context: Context,
        stages: Stages = _no_stages,
        before: "Pipe | None" = None,
        shown: Shown | None = None,
    ) -> None:
        """`before` is the pipe whose response this one goes on with: they share a guard. `shown`
        is what of an error may be told.
        """
        self.findings: Findings = Findings() if before is None else before.findings
        if before is None:
            self.guard: Guard = Guard(context.ids, self.findings, shown)
        else:
            self.guard = before.guard
        if dialect.decoder is None:
            raise UnknownDialect(f"{dialect.name} cannot be read yet")
        self._decoder = dialect.decoder(context, self.findings)
        tools = context.request.tools if context.request is not None else ()
        parallel = ParallelCalls([tool.name for tool in tools], self.findings)
        self._stages: list[Stage] = [
            *dialect.stages(context, self.findings),
            *([] if parallel.passes else [parallel]),
            *stages(self.findings),
        ]
        self._choice = context.choice
        self.tap: Tap | None = None
        """Called with each frame and the parts that came out when it was read; without a frame for
        parts that the end of the input, or a failure, brought."""

    def feed(self, frames: Iterable[Frame]) -> list[Part]:
        out: list[Part] = []
        findings, decode, guard = self.findings, self._decoder.feed, self.guard.feed
        for frame in frames:
            findings.at = frame.number
            findings.offset = frame.offset
            if not frame.data.isascii():
                frame = self._readable(frame)
            parts = decode(frame)
            if parts:
                for stage in self._stages:
                    parts = stage.feed(parts)
                parts = guard(parts)
                out += parts
            if self.tap is not None:
                self.tap(frame, parts)
        for stage in self._stages:
            if stage.passes:  # it has done its work
                self._stages.remove(stage)
                break
        return out

    def _readable(self, frame: Frame) -> Frame:
        """Replaces what is not UTF-8, so that no codec has to think of it."""
        try:
            frame.data.decode()
        except UnicodeDecodeError:
            self.findings.once("frame-invalid-utf8", "", "bytes that are not UTF-8: replaced")
            return msgspec.structs.replace(
                frame, data=frame.data.decode("utf-8", "replace").encode()
            )
        return frame

    def finish(self) -> list[Part]:
        parts = self._decoder.finish()
        for stage in self._stages:
            parts = stage.feed(parts) + stage.finish()
        return self._tapped(self.guard.feed(parts) + self.guard.finish())

    def _tapped(self, parts: list[Part]) -> list[Part]:
        if self.tap is not None:
            self.tap(None, parts)
        return parts

    @property
    def ending(self) -> bool:
        """Whether the wire told why it ends, and only its usage or its terminator may follow."""
        return self._decoder.ending or self.guard.failed

    @property
    def holding(self) -> bool:
        """Whether something that the frames so far said has not come out as parts yet."""
        waits = self._decoder.holding or self.guard.holding
        return waits or any(stage.holding for stage in self._stages)

    def fail(self, error: ErrorPart) -> list[Part]:
        """Ends the content: what went wrong is outside of the stream."""
        return self._tapped(self.guard.feed([error]))

    def too_large(self, problem: TooLarge) -> list[Part]:
        self.findings.at, self.findings.offset = problem.event, problem.offset
        return self.fail(ErrorPart("too-large", str(problem)))

    @property
    def response(self) -> Response:
        return self.guard.fold.response(tuple(self.findings.found), self._choice)


class Encoder:
    """Guarded parts of one response in, the dialect's events out, framed, each in one piece.

    Give it the fold of the guard that made the parts, and nothing is assembled twice; give it
    the collector of their decoder, and its findings stand there too, each at its event.
    """

    def __init__(
        self,
        dialect: str,
        *,
        context: Context | None = None,
        fold: Assembler | None = None,
        collector: Findings | None = None,
    ) -> None:
        writer = dialect_named(dialect)
        if writer.encoder is None:
            raise UnknownDialect(f"{writer.name} cannot be written yet")
        self._idle = writer.idle
        self._findings = Findings() if collector is None else collector
        self._own = Assembler() if fold is None else None
        self._encoder = writer.encoder(
            context or fresh_context(), fold or self._own or Assembler(), self._findings
        )

    def feed(self, parts: Iterable[Part]) -> list[bytes]:
        """Returns the events that these parts make, possibly none."""
        parts = list(parts)
        if self._own is not None:
            for part in parts:
                self._own.feed(part)
        return _framed(self._encoder.feed(parts))

    def finish(self) -> list[bytes]:
        return _framed(self._encoder.finish())

    def keepalive(self) -> list[bytes]:
        """What to send while there is nothing to say."""
        event = self._encoder.keepalive()
        return [self._idle] if event is None else _framed([event])

    @property
    def findings(self) -> list[Finding]:
        """What this dialect could not carry, and whatever else its collector holds."""
        return self._findings.found


def _framed(events: Iterable[Event]) -> list[bytes]:
    return [write(event.name, event.data) for event in events]


def readable(name: str) -> Dialect:
    """Returns the dialect of that name; raises UnknownDialect if it has no decoder."""
    dialect = dialect_named(name)
    if dialect.decoder is None:
        raise UnknownDialect(f"{dialect.name} cannot be read yet")
    return dialect


class DecodedStream(Iterator[Part]):
    """The guarded parts of one response, as its bytes come; what `decode` returns.

    It can be iterated once. A list made of it has the parts alone: ask the stream for the rest.
    """

    def __init__(self, chunks: Iterable[bytes], decoder: Decoder) -> None:
        self.decoder = decoder
        self._parts = self._decoded(chunks)

    def _decoded(self, chunks: Iterable[bytes]) -> Generator[Part]:
        for chunk in chunks:
            for parts in self.decoder.steps(chunk):
                yield from parts
        yield from self.decoder.finish()

    def __next__(self) -> Part:
        return next(self._parts)

    def close(self) -> None:
        """Ends the iteration."""
        self._parts.close()

    @property
    def findings(self) -> list[Finding]:
        """What was repaired so far, and what an encoder of these parts could not carry."""
        return self.decoder.findings

    @property
    def response(self) -> Response:
        """The fold of what was iterated so far, with the findings."""
        return self.decoder.response


class AsyncDecodedStream(AsyncIterator[Part]):
    """As DecodedStream, from an asynchronous iterator; what `adecode` returns."""

    def __init__(self, chunks: AsyncIterable[bytes], decoder: Decoder) -> None:
        self.decoder = decoder
        self._parts = self._decoded(chunks)

    async def _decoded(self, chunks: AsyncIterable[bytes]) -> AsyncGenerator[Part]:
        async for chunk in chunks:
            for parts in self.decoder.steps(chunk):
                for part in parts:
                    yield part
        for part in self.decoder.finish():
            yield part

    def __anext__(self) -> Awaitable[Part]:
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
        """The fold of what was iterated so far, with the findings."""
        return self.decoder.response


def decode(
    chunks: Iterable[bytes], dialect: str, *, context: Context | None = None
) -> DecodedStream:
    """Returns an iterator over the guarded parts of one response, which also has `findings`."""
    return DecodedStream(chunks, Decoder(dialect, context=context))


def adecode(
    chunks: AsyncIterable[bytes], dialect: str, *, context: Context | None = None
) -> AsyncDecodedStream:
    """As decode, from an asynchronous iterator."""
    return AsyncDecodedStream(chunks, Decoder(dialect, context=context))


def assemble(parts: Iterable[Part]) -> Response:
    """Returns the fold of one response. Parts that are not legal are made so first.

    The findings are those of the decoder, if `parts` is what `decode` returned; of other parts,
    they are what had to be made legal.
    """
    if isinstance(parts, DecodedStream):
        deque(parts, maxlen=0)
        return parts.response
    findings = Findings()
    guard = Guard(Ids(), findings)
    guard.feed(parts)
    guard.finish()
    return guard.fold.response(tuple(findings.found))


class EncodedStream(Iterator[bytes]):
    """One response as the events of a dialect, each in one piece; what `encode` returns."""

    def __init__(self, parts: Iterable[Part], dialect: str, context: Context) -> None:
        self._collector = (
            parts.decoder.collector if isinstance(parts, DecodedStream) else Findings()
        )
        self._guard = Guard(context.ids, self._collector)
        self._encoder = Encoder(
            dialect, context=context, fold=self._guard.fold, collector=self._collector
        )
        self._events = self._encoded(parts)

    def _encoded(self, parts: Iterable[Part]) -> Generator[bytes]:
        for part in parts:
            yield from self._encoder.feed(self._guard.feed((part,)))
        yield from self._encoder.feed(self._guard.finish())
        yield from self._encoder.finish()

    def __next__(self) -> bytes:
        return next(self._events)

    def close(self) -> None:
        """Ends the iteration."""
        self._events.close()

    @property
    def findings(self) -> list[Finding]:
        """What was repaired so far, by the decoder too if the parts are what `decode` returned,
        and what this dialect could not carry.
        """
        return self._collector.found


def encode(parts: Iterable[Part], dialect: str, *, context: Context | None = None) -> EncodedStream:
    """Returns an iterator over one response as the dialect's events, which also has `findings`.

    Parts that are not legal are made so first.
    """
    return EncodedStream(parts, dialect, context or fresh_context())


class Translated(msgspec.Struct, frozen=True):
    """A request in another dialect: what to send, what that changes, how to read the answer."""

    request: Request
    rendered: Rendered
    losses: tuple[Loss, ...]
    """Every difference, by its path in the body that was given."""

    @property
    def body(self) -> bytes:
        return self.rendered.body

    def stages(self, findings: Findings) -> list[Stage]:
        """What gives an answer the names, the free text and the end that were asked for."""
        rendered, request = self.rendered, self.request
        stages: list[Stage] = []
        if rendered.names:
            stages.append(RestoreNames(rendered.names, tools=request.tools))
        if rendered.bridged:
            stages.append(CustomBridge(rendered.bridged, findings))
        if rendered.stop:
            stages.append(StopCut(rendered.stop, findings))
        return stages


def convert_request(
    raw: bytes, source: str, target: str, *, context: Context | None = None
) -> Translated:
    """Returns a request in another dialect.

    Raises BadRequest, which names a field of the given body, if the body is none of its dialect;
    Refused, which is one, if the target cannot say what it asks for.
    """
    context = context or Context(ids=Ids(sha256(raw).digest()))
    parsed = _asker(source).parse(raw, context)
    losses = Losses()
    rendered = _asker(target).render(parsed.request, context, losses)
    source_path = parsed.places.source
    named = [Loss(source_path(one.path), one.outcome, one.detail) for one in losses.found]
    refused = next((loss for loss in named if loss.outcome == "refused"), None)
    if refused is not None:
        raise Refused(refused.path, refused.detail)
    return Translated(parsed.request, rendered, tuple(named))


def _asker(name: str) -> RequestCodec:
    dialect = dialect_named(name)
    if dialect.request is None:
        raise UnknownDialect(f"{dialect.name} has streams only, and no requests")
    return dialect.request
