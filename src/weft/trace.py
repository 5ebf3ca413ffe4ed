"""A stream run again, frame by frame: what each frame became.

A trace is a list of rows, numbered from 1. Each row is in a lane:

frame    what the upstream sent, as received
part     a guarded part, and the frame that completed it (none: the end of the input did)
finding  what was repaired there, with the parts before and after the repair
emit     an event for the client, and the part that it is made of
end      the assembled response, the digest of what was emitted, and what known clients make of it

Three laws tie it to the rest of Weft: the emitted events are those of `convert`, the parts those of
`decode_all`, and the findings those that both report.

`CaptureTracer` traces a capture; `StreamTracer` is one choice of one response, from whatever pipe.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import count
from typing import Protocol

import msgspec

from weft.assembled import Assembled, assembled
from weft.captures import (
    MAX_CAPTURED_EVENT,
    CaptureFrames,
    CaptureReader,
    Channel,
    ChoiceEncoder,
    ChoiceReader,
)
from weft.check.checker import Checker, Report
from weft.check.clients import Effect
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DialectName, dialect_named
from weft.findings import Finding
from weft.parts import (
    ItemPart,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)
from weft.sse import Event, Frame, write

# The rows


class TraceRow(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="lane"):
    """One line of a trace."""

    row: int = 0
    """From 1, strictly rising."""


class FrameRow(TraceRow, tag="frame", kw_only=True):
    """A frame of the upstream."""

    n: int
    t: float | None
    """Seconds from the request to its arrival, if that is known."""

    size: int
    event: str | None
    data: str


class PartRow(TraceRow, tag="part", kw_only=True):
    """A guarded part."""

    n: int
    frame: int | None
    """None: it comes from the end of the input."""

    item: str | None
    """The id of the text, reasoning or call that it belongs to."""

    end: int | None
    """The length of the item's text after this part, in code points."""

    part: Part
    before: list[Part] | None = None
    """What the decoder returned, if a stage made this part of it."""

    stream: int = 0
    """Which response and choice of a capture it belongs to."""


class FindingRow(TraceRow, tag="finding", kw_only=True):
    """What was noticed or repaired."""

    frame: int | None
    part: int | None
    code: str
    before: list[Part] | None
    """The parts of the frame that did not pass as they were."""

    after: list[Part] | None
    """What passed in their place."""

    detail: str
    stream: int = 0


class EmitRow(TraceRow, tag="emit", kw_only=True):
    """An event for the client."""

    n: int
    part: int | None
    event: str | None
    data: str
    passthrough: bool = False
    """Whether it is the upstream's own event."""

    takeover: bool = False
    """Whether the encoder goes on from here, after the upstream's own events."""

    stream: int = 0


class TracedItem(msgspec.Struct):
    """The finished text of an item: `PartRow.end` says where it was at each moment."""

    item: str
    kind: str
    text: str


class TraceDigest(msgspec.Struct):
    """SHA-256 of the events: of those that were sent, and of those of this trace."""

    stored: str | None
    now: str | None


class TracedVerdict(msgspec.Struct):
    """What a known client makes of the stream of the upstream, or of ours."""

    client: str
    version: str
    effect: Effect
    says: str
    rule: str
    on: str
    """`upstream` or `emitted`."""

    row: int | None
    """Where the rule is broken first."""


class EndRow(TraceRow, tag="end", kw_only=True):
    """The end of one response."""

    response: Assembled
    items: list[TracedItem]
    digest: TraceDigest
    verdicts: list[TracedVerdict]
    differ: int | None
    """How many events differ from those that were sent; None: nothing was sent in this dialect."""

    stream: int = 0


def row_line(row: msgspec.Struct) -> bytes:
    """A row as one line of JSON, even if raw JSON inside of it has line breaks."""
    data = msgspec.json.encode(row)
    return (msgspec.json.format(data, indent=-1) if b"\n" in data else data) + b"\n"


# One choice of one response

ITEM_KINDS: dict[type[Part], str] = {
    TextStart: "text",
    TextDelta: "text",
    TextEnd: "text",
    ReasoningStart: "reasoning",
    ReasoningDelta: "reasoning",
    ReasoningEnd: "reasoning",
    ToolParamsStart: "call",
    ToolParamsDelta: "call",
    ToolParamsEnd: "call",
    ToolCall: "call",
}
"""The kind of item of each part that has text."""

_DELTAS = (TextDelta, ReasoningDelta, ToolParamsDelta)

MAX_COMPARED = 50
"""Parts of a frame that are shown before and after a repair."""


class Emitter(Protocol):
    """Guarded parts in, events for the client out."""

    @property
    def passes(self) -> bool:
        """Whether the upstream's own events are forwarded."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """What could not be carried, unless the pipe has these findings, too."""
        ...

    def feed(self, parts: Sequence[Part]) -> list[Event]: ...

    def finish(self) -> list[Event]: ...


class Counters:
    """Numbers parts and events of a whole trace."""

    def __init__(self) -> None:
        self.parts = count()
        self.events = count()


class StreamTracer:
    """Traces one choice of one response."""

    def __init__(
        self,
        pipe: Pipe,
        decode: Callable[[Frame], list[Part]],
        emitter: Emitter,
        counters: Counters,
        stream: int = 0,
    ) -> None:
        """`decode` feeds a frame to the pipe."""
        self._pipe = pipe
        self._decode = decode
        self._emitter = emitter
        self._counters = counters
        self._stream = stream
        self._noted = 0
        self._lost = 0
        """Findings of the pipe and of the emitter that have a row."""
        self.first_frame = 0
        """The number of the first frame, after those of earlier turns."""
        self._lengths: dict[tuple[str, str], int] = {}
        """The length of each item's text."""
        self._passed = False
        """Whether the last event was the upstream's own."""
        self._last: int | None = None
        """The number of the last part."""
        self._decoded: list[Part] = []
        self._staged: list[Part] = []
        self.hash = sha256()
        """Of the emitted events, as they are sent."""
        self.follow(pipe)

    def follow(self, pipe: Pipe) -> None:
        """Goes on with the pipe of the next turn of the same response."""
        self._pipe.watch = None
        self._pipe = pipe
        pipe.watch = self._watch

    def _watch(self, decoded: Sequence[Part], staged: Sequence[Part]) -> None:
        self._decoded += decoded
        self._staged += staged

    # Input

    def read(self, frames: Iterable[Frame], t: float | None = None) -> list[TraceRow]:
        """The rows of frames that arrived together, at `t`."""
        rows: list[TraceRow] = []
        parts: list[tuple[int, Part]] = []
        for frame in frames:
            number = self.first_frame + frame.number
            rows.append(frame_row(frame, number, t))
            rows += self._become(number, self._decode(frame), parts)
        return rows + self._emit(parts)

    def end(self, parts: Sequence[Part]) -> list[TraceRow]:
        """The rows of what the end of the input added."""
        numbered: list[tuple[int, Part]] = []
        rows = self._become(None, parts, numbered)
        rows += self._emit(numbered)
        return rows + self._event_rows(self._emitter.finish(), self._last)

    def keepalive(self, event: Event) -> list[TraceRow]:
        """The row of an event that was sent because there was none."""
        return self._event_rows([event], None)

    # Rows

    def _become(
        self, frame: int | None, parts: Sequence[Part], numbered: list[tuple[int, Part]]
    ) -> list[TraceRow]:
        """The rows of the parts of a frame, and of the findings there."""
        decoded, staged = self._decoded, self._staged
        self._decoded, self._staged = [], []
        rows: list[TraceRow] = []
        made = _difference(decoded, staged) if decoded != staged else None
        first: int | None = None
        for part in parts:
            number = next(self._counters.parts)
            first = number if first is None else first
            row = self._part_row(number, frame, part)
            if made is not None and part not in decoded:
                row.before, made = made, None
            rows.append(row)
            numbered.append((number, part))
            self._last = number
        found = self._pipe.findings.found
        if len(found) > self._noted:
            before, after = _difference(decoded, parts), _difference(parts, decoded)
            rows += self._finding_rows(frame, first, before, after)
        return rows

    def _part_row(self, number: int, frame: int | None, part: Part) -> PartRow:
        kind, item, end = ITEM_KINDS.get(part.__class__), None, None
        if isinstance(part, ItemPart):
            item = part.id
        elif isinstance(part, Source):
            item = part.text_id
        if kind is not None and item is not None:
            end = self._lengths.get((kind, item), 0)
            if isinstance(part, _DELTAS):
                end += len(part.delta)
            elif isinstance(part, ToolCall) and (kind, item) not in self._lengths:
                end = len(part.params)  # a call that was not announced has no deltas
            self._lengths[kind, item] = end
        return PartRow(n=number, frame=frame, item=item, end=end, part=part, stream=self._stream)

    def _finding_rows(
        self,
        frame: int | None,
        part: int | None,
        before: list[Part] | None = None,
        after: list[Part] | None = None,
    ) -> list[TraceRow]:
        """The rows of the findings since the last call."""
        found, lost = self._pipe.findings.found, self._emitter.findings
        if len(found) == self._noted and len(lost) == self._lost:
            return []
        found = [*found[self._noted :], *lost[self._lost :]]
        self._noted, self._lost = len(self._pipe.findings.found), len(lost)
        return [
            FindingRow(
                frame=frame,
                part=part,
                code=one.code,
                before=before or None,
                after=after or None,
                detail=one.detail,
                stream=self._stream,
            )
            for one in found
        ]

    def _emit(self, parts: Sequence[tuple[int, Part]]) -> list[TraceRow]:
        if self._emitter.passes or self._passed:
            # Frames are forwarded, not parts: all at once, as they were read.
            first = parts[0][0] if parts else self._last
            rows = self._event_rows(self._emitter.feed([part for _, part in parts]), first)
            return rows + self._finding_rows(self._frame, first)
        rows = []
        for number, part in parts:
            # One by one, so that each event has its part. Encoders look at one part at a time.
            rows += self._event_rows(self._emitter.feed((part,)), number)
            # What the target cannot carry is noticed here.
            rows += self._finding_rows(self._frame, number)
        return rows

    @property
    def _frame(self) -> int:
        return self.first_frame + self._pipe.findings.at

    def _event_rows(self, events: Iterable[Event], part: int | None) -> list[TraceRow]:
        rows: list[TraceRow] = []
        passes = self._emitter.passes
        for event in events:
            self.hash.update(write(event.name, event.data))
            rows.append(
                EmitRow(
                    n=next(self._counters.events),
                    part=part,
                    event=event.name or None,
                    data=event.data.decode("utf-8", "replace"),
                    passthrough=passes,
                    takeover=self._passed and not passes,
                    stream=self._stream,
                )
            )
            self._passed = passes
        return rows

    def end_row(self, *, stored: str | None = None) -> EndRow:
        """The last row, without verdicts."""
        fold = self._pipe.guard.fold
        texts = {"text": fold.text, "reasoning": fold.reasoning, "call": fold.joined}
        items = [TracedItem(item, kind, texts[kind](item)) for kind, item in self._lengths]
        return EndRow(
            response=assembled(self._pipe.response),
            items=items,
            digest=TraceDigest(stored, self.hash.hexdigest()),
            verdicts=[],
            differ=None,
            stream=self._stream,
        )


def frame_row(frame: Frame, number: int, t: float | None) -> FrameRow:
    return FrameRow(
        n=number,
        t=t,
        size=len(frame.data),
        event=frame.event or None,
        data=frame.data.decode("utf-8", "replace"),
    )


def _difference(parts: Sequence[Part], others: Sequence[Part]) -> list[Part]:
    """The parts that are not among the others."""
    rest, found = list(others[:MAX_COMPARED]), []
    for part in parts[:MAX_COMPARED]:
        if part in rest:
            rest.remove(part)
        else:
            found.append(part)
    return found


# Verdicts


def verdict_rows(report: Report, on: str, rows: dict[int, int]) -> list[TracedVerdict]:
    """What known clients make of a stream that was checked; `rows` has the row of each event."""
    first: dict[str, Finding] = {}
    for found in (*report.findings, *report.implied):
        first.setdefault(found.code, found)
    return [
        TracedVerdict(
            one.client.name,
            one.client.version,
            one.effect,
            one.says,
            one.rule,
            on,
            rows.get(first[one.rule].at) if one.rule in first else None,
        )
        for one in report.verdicts
    ]


class Verdicts:
    """Checks what was received and what was emitted while a trace is made."""

    def __init__(self, source: str, target: str) -> None:
        self._received = Checker(source)
        self._has_received = False
        self._emitted = Checker(target)
        self._frame_rows: dict[int, int] = {}
        self._event_rows: dict[int, int] = {}

    def received(self, data: bytes) -> None:
        """The bytes of the upstream."""
        self._has_received = True
        self._received.feed(data)

    def rows(self, rows: Iterable[TraceRow]) -> None:
        """Numbered rows, in order."""
        for row in rows:
            if isinstance(row, FrameRow):
                self._frame_rows[row.n] = row.row
            elif isinstance(row, EmitRow):
                self._event_rows[len(self._event_rows)] = row.row
                self._emitted.feed(write(row.event or "", row.data.encode()))

    def finish(self) -> list[TracedVerdict]:
        found: list[TracedVerdict] = []
        if self._has_received:
            found += verdict_rows(self._received.finish(), "upstream", self._frame_rows)
        if self._event_rows:
            found += verdict_rows(self._emitted.finish(), "emitted", self._event_rows)
        return found


# Captures

# A comment, so that every reader of server-sent events can read a capture with times.
TIME_COMMENT = re.compile(rb"^: weft t=(\d{1,9}\.\d{1,6})\r?$", re.MULTILINE)


def time_comment(t: float) -> bytes:
    """The line before the frames that arrived at `t`, in a capture with times."""
    return b": weft t=%.6f\n\n" % t


class _CapturedTimes:
    """The arrival times in a capture, by the offset of the comments that tell them."""

    def __init__(self) -> None:
        self._line = b""
        self._offset = 0
        self._times: deque[tuple[int, float]] = deque()
        self._now: float | None = None

    def feed(self, data: bytes) -> None:
        data = self._line + data
        end = data.rfind(b"\n") + 1
        for found in TIME_COMMENT.finditer(data, 0, end):
            self._times.append((self._offset + found.start(), float(found[1])))
        # Only a line that may be such a comment is needed again.
        rest = data[end:]
        self._offset += end
        if len(rest) > 64:
            self._offset, rest = self._offset + len(rest) - 1, rest[-1:]
        self._line = rest

    def at(self, offset: int) -> float | None:
        """The time of the frame at this offset; to be called in order."""
        while self._times and self._times[0][0] <= offset:
            self._now = self._times.popleft()[1]
        return self._now


class _CaptureEmitter:
    """The encoder of a choice, as an Emitter."""

    passes = False
    findings = ()  # they are the pipe's

    def __init__(self, encoder: ChoiceEncoder) -> None:
        self.feed = encoder.feed
        self.finish = encoder.finish


class _TracedChoice:
    """One choice of one response of a capture: frames in, rows out."""

    def __init__(
        self, choice: ChoiceReader, target: DialectName, counters: Counters, stream: int
    ) -> None:
        self._choice = choice
        self._encoder = ChoiceEncoder(choice, target)
        self._tracer = StreamTracer(
            choice.pipe, choice.feed, _CaptureEmitter(self._encoder), counters, stream
        )

    def feed(self, frame: Frame) -> list[TraceRow]:
        self._encoder.read(frame)
        return self._tracer.read((frame,))

    def finish(self) -> list[TraceRow]:
        rows = self._tracer.end(self._choice.finish())
        return [*rows, self._tracer.end_row()]


class CaptureTracer:
    """Bytes of a capture in any pieces in, rows out."""

    def __init__(
        self,
        source: DialectName,
        target: DialectName | None = None,
        *,
        context: Context | None = None,
        limit: int = MAX_CAPTURED_EVENT,
    ) -> None:
        """`target`: the dialect of the emitted events; without it, that of the capture."""
        self.source = source
        self.target: DialectName = dialect_named(target or source).name
        written = self.target
        self._frames = CaptureFrames(limit=limit)
        self._times = _CapturedTimes()
        counters, streams = Counters(), count()

        def channel(choice: ChoiceReader) -> Channel[TraceRow]:
            return _TracedChoice(choice, written, counters, next(streams))

        self._reader = CaptureReader[TraceRow](source, channel, context=context, limit=limit)
        self._verdicts = Verdicts(source, written)
        self._shown: set[int] = set()
        """The frames that have a row: each choice reads them all."""
        self._arrivals: dict[int, float | None] = {}
        self._count = 0

    def feed(self, data: bytes) -> list[TraceRow]:
        """Returns the rows that these bytes complete. Raises TooLarge."""
        self._times.feed(data)
        self._verdicts.received(data)
        pieces = self._frames.heads.feed(data)
        frames = self._frames.read(pieces)
        self._reader.read((), pieces)
        return self._numbered(self._read(frames))

    def finish(self) -> list[TraceRow]:
        """Returns the rest. The last row has the verdicts."""
        rows = self._read(self._frames.finish()) + self._reader.end()
        last = rows.pop()
        done = self._numbered(rows)
        if isinstance(last, EndRow):
            last.verdicts = self._verdicts.finish()
        return done + self._numbered([last])

    def _read(self, frames: Sequence[Frame]) -> list[TraceRow]:
        for frame in frames:
            self._arrivals[frame.number] = self._times.at(frame.offset)
        return self._reader.read(frames)

    def _numbered(self, rows: Iterable[TraceRow]) -> list[TraceRow]:
        out: list[TraceRow] = []
        for row in rows:
            if isinstance(row, FrameRow):
                if row.n in self._shown:
                    continue
                self._shown.add(row.n)
                row.t = self._arrivals.pop(row.n, None)
            self._count += 1
            row.row = self._count
            out.append(row)
        self._verdicts.rows(out)
        return out


def trace(
    raw: bytes,
    source: DialectName,
    target: DialectName | None = None,
    *,
    context: Context | None = None,
) -> list[TraceRow]:
    """Returns the trace of a capture: what each of its frames became."""
    tracer = CaptureTracer(source, target, context=context, limit=len(raw))
    return tracer.feed(raw) + tracer.finish()


def parts_of(rows: Iterable[TraceRow]) -> list[Part]:
    """The parts of a trace, in order."""
    return [row.part for row in rows if isinstance(row, PartRow)]
