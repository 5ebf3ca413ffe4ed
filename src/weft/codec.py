"""Whole streams, both ways: the verbs of the library.

`Decoder` is bytes in, guarded parts out: frames, the dialect's decoder, its stages, the guard.
`Encoder` is guarded parts in, bytes out. Both live for one response. The functions beside them
run them over iterators, and over captures that hold several responses.
"""

import secrets
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

import msgspec

from weft.assembler import Assembler, Response
from weft.context import Context
from weft.dialects import DIALECTS, dialect_named
from weft.dialects.base import Dialect, Stage
from weft.dialects.requests import Loss, Losses, Rendered, RequestCodec
from weft.dialects.stages.custom_bridge import CustomBridge
from weft.dialects.stages.names import RestoreNames
from weft.dialects.stages.parallel_calls import ParallelCalls
from weft.dialects.stages.stop_cut import StopCut
from weft.errors import Refused, TooLarge, UnknownDialect, Unreadable
from weft.findings import Finding, Findings
from weft.guard import Guard, Shown
from weft.ids import Ids
from weft.parts import ErrorPart, Part
from weft.request import Request
from weft.sse import Event, Frame, FrameReader, write


def fresh_context() -> Context:
    """A context for a live response: ids that nobody can guess, and the time of day."""
    return Context(ids=Ids(secrets.token_bytes(16)), now=int(time.time()))


def capture_context(raw: bytes) -> Context:
    """A context for recorded bytes: equal captures give equal ids."""
    return Context(ids=Ids(sha256(raw).digest()))


Stages = Callable[[Findings], Sequence[Stage]]


def _no_stages(findings: Findings) -> Sequence[Stage]:
    return ()


class Decoder:
    """Bytes of one response in any pieces in, guarded parts out."""

    def __init__(
        self, dialect: str, *, context: Context | None = None, stages: Stages = _no_stages
    ) -> None:
        """`stages` stand behind the dialect's own: those of a translated request."""
        self._dialect = _reader(dialect)
        self._reader = FrameReader()
        self._pipe = Pipe(self._dialect, context or fresh_context(), stages)

    def feed(self, data: bytes) -> list[Part]:
        """Returns the parts that these bytes complete, possibly none."""
        try:
            frames = self._reader.feed(data)
        except TooLarge as problem:
            return self._pipe.too_large(problem)
        return self._pipe.feed(frames)

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
                out += guard(parts)
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
        return self.guard.feed(parts) + self.guard.finish()

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
        return self.guard.feed([error])

    def too_large(self, problem: TooLarge) -> list[Part]:
        self.findings.at, self.findings.offset = problem.event, problem.offset
        return self.fail(ErrorPart("too-large", str(problem)))

    @property
    def response(self) -> Response:
        return self.guard.fold.response(tuple(self.findings.found), self._choice)


class Encoder:
    """Guarded parts of one response in, the dialect's events out, framed, each in one piece.

    Give it the fold of the guard that made the parts, and nothing is assembled twice.
    """

    def __init__(
        self, dialect: str, *, context: Context | None = None, fold: Assembler | None = None
    ) -> None:
        writer = dialect_named(dialect)
        if writer.encoder is None:
            raise UnknownDialect(f"{writer.name} cannot be written yet")
        self._idle = writer.idle
        self._findings = Findings()
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
        """What this dialect could not carry."""
        return self._findings.found


def _framed(events: Iterable[Event]) -> list[bytes]:
    return [write(event.name, event.data) for event in events]


class Decoded:
    """One response, and one choice, of a capture."""

    __slots__ = ("fold", "parts", "response")

    def __init__(self, parts: list[Part], fold: Assembler, response: Response) -> None:
        self.parts = parts
        self.fold = fold
        self.response = response


def _reader(name: str) -> Dialect:
    dialect = dialect_named(name)
    if dialect.decoder is None:
        raise UnknownDialect(f"{dialect.name} cannot be read yet")
    return dialect


def decode(
    chunks: Iterable[bytes], dialect: str, *, context: Context | None = None
) -> Iterator[Part]:
    """Yields the guarded parts of one response, as its bytes come."""
    decoder = Decoder(dialect, context=context)
    for chunk in chunks:
        yield from decoder.feed(chunk)
    yield from decoder.finish()


async def adecode(
    chunks: AsyncIterable[bytes], dialect: str, *, context: Context | None = None
) -> AsyncIterator[Part]:
    """As decode, from an asynchronous iterator."""
    decoder = Decoder(dialect, context=context)
    async for chunk in chunks:
        for part in decoder.feed(chunk):
            yield part
    for part in decoder.finish():
        yield part


def decode_all(raw: bytes, dialect: str, *, context: Context | None = None) -> list[Decoded]:
    """Returns every response of a capture, and every choice of each, in order."""
    found: list[Decoded] = []
    for reading in readings(raw, dialect, context=context):
        for pipe in reading.pipes:
            parts = pipe.feed(reading.frames) + pipe.finish()
            found.append(Decoded(parts, pipe.guard.fold, pipe.response))
    return found


class Reading:
    """One response of a capture that is still to be read: its frames, and a pipe a choice."""

    __slots__ = ("frames", "pipes")

    def __init__(self, frames: list[Frame], pipes: list[Pipe]) -> None:
        self.frames = frames
        self.pipes = pipes


def readings(raw: bytes, dialect: str, *, context: Context | None = None) -> Iterator[Reading]:
    """Yields every response of a capture, cut where the dialect says that another one begins."""
    reader = _reader(dialect)
    context = context or capture_context(raw)
    for number, frames in enumerate(_responses(reader, _frames(raw))):
        pipes: list[Pipe] = []
        for choice in _choices(reader, frames, context):
            seed = f"{context.ids.mint('seed')} {number} {choice}".encode()
            pipes.append(Pipe(reader, replace(context, ids=Ids(seed), choice=choice)))
        yield Reading(frames, pipes)


def _choices(dialect: Dialect, frames: list[Frame], context: Context) -> list[int]:
    """Which choices a response has: one, if one was asked for."""
    found = frozenset[int]().union(*map(dialect.choices, frames))
    if not found or (context.request is not None and context.request.choices == 1):
        return [context.choice]
    return sorted(found)


def _frames(raw: bytes) -> list[Frame]:
    reader = FrameReader()
    try:
        return reader.feed(raw) + reader.finish() + reader.finish()
    except TooLarge as problem:
        raise Unreadable(str(problem), offset=problem.offset, event=problem.event) from None


def _responses(dialect: Dialect, frames: list[Frame]) -> list[list[Frame]]:
    """Cuts a capture where another response begins. An empty capture is one empty response."""
    responses: list[list[Frame]] = [[]]
    ended = False
    for frame in frames:
        before = responses[-1]
        more = ended and dialect.speaks(frame) and not dialect.ends(frame)
        if before and (dialect.begins(frame, before) or more):
            responses.append([])
            ended = False
        responses[-1].append(frame)
        ended = ended or dialect.ends(frame)
    return responses


def detect(raw: bytes) -> str:
    """Returns the name of the dialect a capture speaks; raises Unreadable if it is not clear."""
    frames = _frames(raw)
    if not frames:
        raise Unreadable("no event in it: neither server-sent events nor JSON", offset=0, event=0)
    for frame in frames:
        speaking = [one.name for one in DIALECTS.values() if one.speaks(frame)]
        if len(speaking) == 1:
            return speaking[0]
    candidates = ", ".join(DIALECTS)
    raise Unreadable(
        f"cannot tell the dialect; say which with --from: {candidates}",
        offset=frames[0].offset,
        event=frames[0].number,
    )


def assemble(parts: Iterable[Part]) -> Response:
    """Returns the fold of one response. Parts that are not legal are made so first."""
    findings = Findings()
    guard = Guard(Ids(), findings)
    guard.feed(parts)
    guard.finish()
    return guard.fold.response(tuple(findings.found))


def encode(
    parts: Iterable[Part], dialect: str, *, context: Context | None = None
) -> Iterator[bytes]:
    """Yields one response as the dialect's events. Parts that are not legal are made so first."""
    context = context or fresh_context()
    guard = Guard(context.ids, Findings())
    encoder = Encoder(dialect, context=context, fold=guard.fold)
    for part in parts:
        yield from encoder.feed(guard.feed((part,)))
    yield from encoder.feed(guard.finish())
    yield from encoder.finish()


def convert(raw: bytes, source: str, target: str, *, context: Context | None = None) -> bytes:
    """Returns a capture in another dialect. Equal input gives equal bytes."""
    context = context or capture_context(raw)
    out: list[bytes] = []
    for number, one in enumerate(decode_all(raw, source, context=context)):
        seed = f"{context.ids.mint('seed')} {number}".encode()
        encoder = Encoder(target, context=replace(context, ids=Ids(seed)), fold=one.fold)
        out += encoder.feed(one.parts)
        out += encoder.finish()
    return b"".join(out)


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
    context = context or capture_context(raw)
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
