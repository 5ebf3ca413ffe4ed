"""Traces of stored responses: what the upstream sent is decoded and encoded once more.

A recording gives the same events again, because it has all that decided about them; if Weft has
changed since, the trace says how many differ. Without a recording, the events that were sent to the
client are decoded instead: there are no frames then.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from weft.cases import CaseContext, case_context
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS, DialectName, dialect_named
from weft.dialects.base import Stage
from weft.findings import Finding, Findings
from weft.guard import Redact
from weft.ids import Ids
from weft.parts import ErrorPart, Finish, Part
from weft.relay.incoming import api_of
from weft.relay.log import BODY, StoredLog, follow
from weft.relay.offload import offload_inspection
from weft.relay.paused_turns import PausedTurns
from weft.relay.persistence import Persistence
from weft.relay.recording import Op, RecordingReader, ReplayContext, capture_of, scrub_op
from weft.relay.recovery import frames_of, request_of
from weft.relay.rendering import Encoded, Passthrough
from weft.scrub import Scrubber
from weft.sse import Event, Frame, FrameReader
from weft.store.records import Entry
from weft.trace import (
    Counters,
    EmitRow,
    EndRow,
    FindingRow,
    FrameRow,
    PartRow,
    StreamTracer,
    TraceRow,
    Verdicts,
)

_error = msgspec.json.Decoder(ErrorPart).decode
OPS_AT_A_TIME = 64
"""Steps of a recording that are traced in one go."""


class _RenderedEmitter:
    """A renderer of the relay, as an Emitter."""

    def __init__(self, renderer: Encoded | Passthrough) -> None:
        self.renderer = renderer

    @property
    def passes(self) -> bool:
        return isinstance(self.renderer, Passthrough) and self.renderer.passes

    @property
    def findings(self) -> Sequence[Finding]:
        return self.renderer.findings

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        return self.renderer.render(parts)

    def finish(self) -> list[Event]:
        return []


class Rerun:
    """Traces the recording of one response: steps in, rows out."""

    def __init__(self, recorded: ReplayContext, target: str, redact: Redact) -> None:
        """`target` is the dialect of the emitted events."""
        self._recorded = recorded
        self._redact = redact
        self._paused_turns = PausedTurns() if recorded.pauses else None
        self._decoding, encoding = recorded.contexts()
        self._frames = FrameReader()
        self._pipe = self._next_pipe(None)
        self.is_original = target == recorded.client and recorded.is_stream
        """Whether the client was sent the events of this trace."""
        if target != recorded.client:
            # Other ids than the decoder's: what it mints must not depend on the target.
            ids = Ids(b"trace " + recorded.seed)
            dialect = DIALECTS[target]
            encoding = replace(encoding, ids=ids, quirks=None, response_id=dialect.new_id(ids))
        make = Passthrough if self.is_original and recorded.passthrough else Encoded
        self._renderer: Encoded | Passthrough = make(DIALECTS[target], encoding, self._pipe)
        self._tracer = StreamTracer(
            self._pipe, self._decode, _RenderedEmitter(self._renderer), Counters()
        )
        self._frame_count = 0
        self._ended = False
        self.verdicts = Verdicts(recorded.dialect, target)

    def _next_pipe(self, before: Pipe | None) -> Pipe:
        translated, paused_turns = self._recorded.translated, self._paused_turns

        def stages(findings: Findings) -> list[Stage]:
            own = translated.stages(findings)
            return own if paused_turns is None else [*own, paused_turns]

        dialect = DIALECTS[self._recorded.dialect]
        return Pipe(dialect, self._decoding, stages, before, self._redact)

    def _decode(self, frame: Frame) -> list[Part]:
        self._frame_count += 1
        parts = self._pipe.feed((frame,))
        self._ended = self._ended or bool(parts and isinstance(parts[-1], Finish))
        return parts

    def feed(self, ops: Iterable[Op]) -> list[TraceRow]:
        rows: list[TraceRow] = []
        for op in ops:
            rows += self._step(op)
        return rows

    def _step(self, op: Op) -> list[TraceRow]:
        match op.kind:
            case "read":
                self.verdicts.received(op.data)
                return self._tracer.read(self._frames.feed(op.data), round(op.t, 6))
            case "turn":
                if self._paused_turns is not None:
                    self._paused_turns.next_turn()
                # The request of the next turn had the response so far, whose ids were minted here.
                body = api_of(self._recorded.dialect).body
                body(self._pipe.response, self._decoding, Findings())
                self._frames = FrameReader()
                self._tracer.first_frame = self._frame_count
                # As in the relay: the pipe goes on with the guard, and the renderer with the pipe.
                self._pipe = self._next_pipe(self._pipe)
                self._tracer.follow(self._pipe)
                return []
            case "keepalive":
                event = self._renderer.keepalive()
                return [] if event is None else self._tracer.keepalive(event)
            case _:
                return self._end(_error(op.data) if op.data else None, op.t)

    def _end(self, error: ErrorPart | None, t: float) -> list[TraceRow]:
        if self._ended:
            return []
        self._ended = True
        if error is not None:
            return self._tracer.end(self._pipe.fail(error) + self._pipe.finish())
        rows = self._tracer.read(self._frames.finish(), round(t, 6))
        return rows + self._tracer.end(self._pipe.finish())

    def finish(self, stored: str | None) -> list[TraceRow]:
        """The last rows; `stored` is the digest of what was sent."""
        last = self._tracer.end_row(stored=stored)
        if not self.is_original:
            last.digest.stored = None
        return [last]


class LogRerun:
    """Traces the events that a client was sent, as if they were those of its upstream."""

    def __init__(self, entry: Entry, target: str) -> None:
        dialect = DIALECTS[entry.dialect]
        ids = Ids(entry.id.encode())
        context = Context(request_of(entry), ids=ids, now=int(entry.created))
        self._pipe = Pipe(dialect, context)
        self.is_original = target == entry.dialect and entry.stream
        response_id = entry.id if self.is_original else DIALECTS[target].new_id(ids)
        encoding = replace(context, ids=Ids(b"trace"), response_id=response_id)
        renderer = Encoded(DIALECTS[target], encoding, self._pipe)
        self._log = _LogEmitter()
        emitter = self._log if self.is_original else _RenderedEmitter(renderer)
        self._tracer = StreamTracer(self._pipe, self._decode, emitter, Counters())
        self._count = 0
        self.verdicts = Verdicts(entry.dialect, target)

    def _decode(self, frame: Frame) -> list[Part]:
        return self._pipe.feed((frame,))

    def feed(self, events: Sequence[Event]) -> list[TraceRow]:
        rows: list[TraceRow] = []
        for frame, event in zip(frames_of(events, self._count), events, strict=True):
            if event.name == BODY:
                frame = Frame(event.data, bare=True)
            else:
                self._log.waiting.append(event)
            rows += self._tracer.read((frame,))
        self._count += len(events)
        # The frames are not the upstream's.
        return [_without_frame(row) for row in rows if row.__class__ is not FrameRow]

    def finish(self, stored: str | None) -> list[TraceRow]:
        rows = self._tracer.end(self._pipe.finish())
        last = self._tracer.end_row(stored=stored if self.is_original else None)
        return [*(_without_frame(row) for row in rows), last]


class _LogEmitter:
    """The events of a log, as an Emitter: they were sent as they are."""

    passes = True
    findings = ()

    def __init__(self) -> None:
        self.waiting: list[Event] = []

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        events, self.waiting = self.waiting, []
        return events

    def finish(self) -> list[Event]:
        return []


def _without_frame(row: TraceRow) -> TraceRow:
    if isinstance(row, PartRow | FindingRow):
        row.frame = None
    return row


class ResponseTrace:
    """The trace of a stored response, from its recording or from its log; it may be running."""

    def __init__(self, persistence: Persistence, entry: Entry, redact: Redact) -> None:
        self._store = persistence.store
        self._reader = RecordingReader(persistence.store, persistence.recordings, entry.id)
        self._logs = persistence.logs
        self._entry = entry
        self._redact = redact
        self._sent: list[int] = []
        """A hash of each emitted event."""
        self._count = 0

    async def open(self, target: str | None, *, sent: bool = False) -> "TraceSource":
        """Returns what the trace is made of; with `sent`, of the events that were sent to the
        client, whether what the upstream sent is known or not. Raises StoreError."""
        self._target = target or self._entry.dialect
        self._recorded = None if sent else await self._reader.replay()
        if self._recorded is None:
            return TraceSource("log", self._entry.dialect, self._target)
        return TraceSource("upstream", self._recorded.dialect, self._target)

    async def rows(self) -> AsyncIterator[list[TraceRow]]:
        """Yields the rows as they come, until the response has ended. Raises StoreError."""
        tracer: Rerun | LogRerun
        if self._recorded is not None:
            tracer = Rerun(self._recorded, self._target, self._redact)
            async for ops in self._reader.ops():
                for start in range(0, len(ops), OPS_AT_A_TIME):
                    some = ops[start : start + OPS_AT_A_TIME]
                    yield await offload_inspection(self._numbered, tracer, tracer.feed, some)
        else:
            tracer = LogRerun(self._entry, self._target)
            async for events in follow(self._store, self._logs, self._entry.id):
                yield await offload_inspection(self._numbered, tracer, tracer.feed, events)
        entry = await self._store.entry(self._entry.id) or self._entry
        digest = None if entry.ended is None else entry.digest
        rows = await offload_inspection(tracer.finish, digest)
        last = rows[-1]
        if isinstance(last, EndRow):
            yield await offload_inspection(self._numbered, tracer, iter, rows[:-1])
            if tracer.is_original and entry.ended is not None:
                last.differ = await self._differences(entry, last)
            last.verdicts = await offload_inspection(tracer.verdicts.finish)
            yield self._number([last])

    def _numbered(
        self,
        tracer: "Rerun | LogRerun",
        make: Callable[[Any], Iterable[TraceRow]],
        argument: Any,
    ) -> list[TraceRow]:
        rows = self._number(make(argument))
        tracer.verdicts.rows(rows)
        return rows

    def _number(self, rows: Iterable[TraceRow]) -> list[TraceRow]:
        out = list(rows)
        for row in out:
            self._count += 1
            row.row = self._count
            if isinstance(row, EmitRow):
                self._sent.append(hash((row.event or "", row.data)))
        return out

    async def _differences(self, entry: Entry, last: EndRow) -> int | None:
        """How many events differ from those that were sent; None if that is not known."""
        if last.digest.now == entry.digest:
            return 0
        if entry.pruned:
            return None
        stored: list[int] = []
        async for events in StoredLog(self._store, entry.id).read(ended=True):
            stored += [hash((one.name, one.data.decode("utf-8", "replace"))) for one in events]
        return sum(bool(one != other) for one, other in zip_longest(self._sent, stored))


class TraceSource(NamedTuple):
    """What a trace is made of."""

    source: str
    """`upstream`: what the upstream sent; `log`: what the client was sent."""

    dialect: str
    """The dialect of that."""

    target: str
    """The dialect of the emitted events."""


async def recorded_capture(
    persistence: Persistence, id: str, scrub: Scrubber
) -> tuple[bytes, DialectName, CaseContext] | None:
    """What the upstream of a response sent, as a scrubbed capture, and what must be known beside
    it; None if it was not kept. Raises StoreError."""
    reader = RecordingReader(persistence.store, persistence.recordings, id)
    recorded = await reader.replay()
    if recorded is None:
        return None
    ops: list[Op] = []
    async for some in reader.ops():
        # One by one: a search of a long text holds the interpreter.
        ops += [await offload_inspection(scrub_op, op, scrub) for op in some]
    known = case_context(recorded.request, recorded.quirks)
    return await offload_inspection(capture_of, ops), dialect_named(recorded.dialect).name, known
