"""The checker: reads a capture as Weft does, and each wire's own rules beside it.

What the decoder and the guard found, what the wire's own rules found and what the lines of the
stream show become one list of findings whose codes are rule ids, in the order of the stream. A
defect that several of them show is in it once.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from weft.arguments import bytes_argument
from weft.captures import (
    MAX_CAPTURED_EVENT,
    CaptureFrames,
    CaptureReader,
    ChoiceReader,
    detect,
    in_order,
)
from weft.check import lifecycle
from weft.check.clients import Verdict, verdicts
from weft.check.deduplication import deduplicate
from weft.check.rules import EVERY_RULE, LIFECYCLE, SSE, Selection, rules_of
from weft.check.sse_lines import LineChecker, LineCounter, Position
from weft.context import Context
from weft.dialects import DialectName, dialect_named
from weft.dialects.base import Dialect
from weft.dialects.rules import JsonValue, Severity
from weft.findings import Finding, Findings
from weft.parts import ErrorPart, Part
from weft.sse import Frame

VIOLATIONS: frozenset[Severity] = frozenset(("error", "warning"))
"""What makes a check fail; notes do not."""


class Report(msgspec.Struct, frozen=True):
    """What the check of one capture found. The codes of its findings are rule ids."""

    dialect: str
    responses: int
    events: int
    findings: tuple[Finding, ...]
    implied: tuple[Finding, ...] = ()
    """What the findings say already: the same defects, by other rules."""
    # Not in `Finding`: decoders know bytes, and only the checker counts lines.
    positions: dict[int, Position] = {}
    """Line and column of each finding, by its offset."""
    earlier: dict[str, int] = {}
    """How many findings of each rule the checker was told to forget."""
    earlier_implied: frozenset[str] = frozenset()
    """The rules that those imply."""

    @property
    def broken(self) -> set[str]:
        """Every rule that is broken, reported or implied."""
        found = {found.code for found in (*self.findings, *self.implied)}
        return found.union(self.earlier, self.earlier_implied)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What known clients make of this stream."""
        return verdicts(self.dialect, self.broken)

    def position(self, finding: Finding) -> Position:
        return self.positions.get(finding.offset, Position())


def check(
    raw: bytes, dialect: DialectName | None = None, *, context: Context | None = None
) -> list[Finding]:
    """Returns what is wrong with a capture, in the order of the stream; a good one has nothing.

    One defect is one finding, by the most specific rule that it breaks.

    The `code` of a finding is a rule's id, such as `openai-chat/finish-reason-missing`. Without
    a dialect it is detected. Raises Unreadable if these bytes are no stream, or none that is
    known.
    """
    return list(examine(raw, dialect, context=context).findings)


def examine(
    raw: bytes,
    dialect: str | None = None,
    *,
    context: Context | None = None,
    selection: Selection = EVERY_RULE,
) -> Report:
    """As check, with what was read."""
    raw = bytes_argument(raw, "raw")
    # The whole capture is in memory already, so no event of it is too large.
    checker = Checker(dialect or detect(raw), context=context, selection=selection, limit=len(raw))
    checker.feed(raw)
    return checker.finish()


class Checker:
    """Checks a capture as its bytes come, in any pieces.

    No more of it is held than what is needed to check the response that is being read.
    """

    def __init__(
        self,
        dialect: str,
        *,
        context: Context | None = None,
        selection: Selection = EVERY_RULE,
        limit: int = MAX_CAPTURED_EVENT,
    ) -> None:
        self._wire = dialect_named(dialect)
        self._selection = selection
        self._frames = CaptureFrames(limit=limit)
        # Two readings of the same frames: the decoder and the guard, typed and lenient, for the
        # rules of every stream; the dialect's validator, untyped and strict, for those of its wire.
        self._reader = CaptureReader[Part](
            self._wire.name, _LifecycleCheck, context=context, ended=self._response_ended
        )
        self._response = _ResponseCheck(self._wire)
        self._lines = LineChecker()
        self._counter = LineCounter()
        self._responses = 0
        self._events = 0
        self._bodies = 0
        self._reported: list[Finding] = []
        self._implied: list[Finding] = []
        self._positions: dict[int, Position] = {}
        self._earlier: Counter[str] = Counter()
        self._earlier_implied: set[str] = set()

    def feed(self, data: bytes) -> list[Finding]:
        """Returns the findings of the responses that these bytes ended."""
        before = len(self._reported)
        # The pieces go to three readers: frames, lines, and the splitter, which needs to know where
        # an HTTP head begins another response.
        pieces = self._frames.heads.feed(data)
        # All bytes, heads included: lines are counted as an editor shows them.
        self._counter.feed(data)
        frames = self._frames.read(pieces)
        self._lines.feed(pieces, frames)
        self._reader.read((), pieces)
        self._read(frames)
        return self._reported[before:]

    def finish(self) -> Report:
        """Returns the report on the whole capture."""
        pieces = self._frames.heads.finish()
        frames = self._frames.read(pieces) + self._frames.finish()
        self._read(frames)
        self._reader.end()
        # A single JSON body is no stream: the rules about lines do not apply to it.
        if self._events != 1 or not self._bodies:
            found = self._lines.finish(pieces, frames)
            findings = _by_rule_id(SSE, [finding for finding, _ in found])
            self._reported += [one for one in findings if self._selection.reports(one.code)]
            self._positions |= {one.offset: position for one, position in found}
        return Report(
            self._wire.name,
            self._responses,
            self._events,
            tuple(in_order(self._reported)),
            tuple(in_order(self._implied)),
            self._positions,
            self._earlier,
            frozenset(self._earlier_implied),
        )

    def forget(self) -> None:
        """Keeps only the number of the findings that were returned so far: the memory of a capture
        without an end is then that of one response."""
        self._earlier.update(one.code for one in self._reported)
        self._earlier_implied.update(one.code for one in self._implied)
        self._reported, self._implied, self._positions = [], [], {}

    def position(self, finding: Finding) -> Position:
        """Returns the line and the column of a finding that was returned."""
        return self._positions.get(finding.offset, Position())

    def _read(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            # One by one: a response may end at any frame, and `_response_ended` has to see it
            # before the next frame is checked.
            self._reader.read((frame,))
            # After the reader, so that the findings that this frame caused are counted.
            self._response.feed(frame, self._reader.choices, self._counter.position(frame.offset))
            self._events += 1
            self._bodies += is_body(frame)

    def _response_ended(self, choices: list[ChoiceReader]) -> None:
        # Called by the reader, at the first frame of the next response or at the end of the input.
        response = self._response
        deduplicated = deduplicate(response.finish(choices), self._selection)
        self._reported += deduplicated.reported
        self._implied += deduplicated.implied
        for one in deduplicated.reported:
            self._positions[one.offset] = response.position(one)
        self._responses += 1
        self._response = _ResponseCheck(self._wire)


_UNTERMINATED = f"{LIFECYCLE}/frame-unterminated"


def is_body(frame: Frame) -> bool:
    """Whether this frame looks like a JSON body, and not like an event of a stream."""
    # Lines of JSON are bare too; the caller asks whether it is the only one.
    return frame.bare and frame.data.startswith(b"{")


class _LifecycleCheck:
    """Reads one choice of one response; how it fails breaks a rule too."""

    def __init__(self, choice: ChoiceReader) -> None:
        self._choice = choice

    def feed(self, frame: Frame) -> tuple[()]:
        return self._note(self._choice.feed(frame))

    def finish(self) -> tuple[()]:
        return self._note(self._choice.finish())

    def _note(self, parts: Iterable[Part]) -> tuple[()]:
        for part in parts:
            if isinstance(part, ErrorPart):
                rule = lifecycle.FAILURES[part.kind]
                self._choice.pipe.findings.broken(rule, part.message)
        return ()


class _ResponseCheck:
    """Checks one response by the rules of its wire, and collects what reading it found."""

    def __init__(self, wire: Dialect) -> None:
        self._wire = wire
        self._findings = Findings()
        self._validator = wire.validator(self._findings) if wire.validator else None
        self._body: Frame | None = None  # the only frame so far, if it may be a whole body
        self._last: tuple[Frame, Position] | None = None
        self._noted = 0
        self._positions: dict[int, Position] = {}

    def feed(self, frame: Frame, choices: Sequence[ChoiceReader], position: Position) -> None:
        # A frame that looks like a body is held back: if another follows, it was a line of JSON.
        if self._last is None and is_body(frame):
            self._body = frame
        else:
            if self._body is not None:
                self._validate(self._body)
                self._body = None
            self._validate(frame)
        noted = len(self._findings.found) + sum(len(one.findings) for one in choices)
        # Only positions that a finding may need: a capture can have millions of events.
        if noted != self._noted or self._last is None:
            self._positions[frame.offset] = position
        self._noted = noted
        self._last = frame, position

    def _validate(self, frame: Frame) -> None:
        if self._validator is not None:
            # Validators report rules only; where they are is set here.
            self._findings.at, self._findings.offset = frame.number, frame.offset
            self._validator.feed(frame, parse_leniently(frame.data))

    def finish(self, choices: Iterable[ChoiceReader]) -> list[Finding]:
        """Returns all findings of the response. A body is not checked by the rules of streams."""
        found: list[Finding] = []
        if self._validator is not None and self._body is None:
            self._validator.finish()
            found += _by_rule_id(self._wire.name, self._findings.found)
        for choice in choices:
            found += _by_rule_id(LIFECYCLE, choice.findings)
        # Each choice reports the same cut event.
        cut = [one for one in found if one.code == _UNTERMINATED]
        found = [one for one in found if one not in cut[1:]]  # only the last event can be cut
        if self._last is not None:
            frame, position = self._last
            self._positions[frame.offset] = position
            if frame.cut and not cut:  # it could be read as if it were whole, as terminators can
                detail = "the last event has no blank line after it"
                found.append(Finding(_UNTERMINATED, frame.number, frame.offset, detail))
        return found

    def position(self, finding: Finding) -> Position:
        """Returns the position of a finding, or of the nearest event before it that is known."""
        known = self._positions.get(finding.offset)
        if known is None:
            # What is found at the end may point to an event that had no finding when it came.
            before = [offset for offset in self._positions if offset <= finding.offset]
            known = self._positions[max(before)] if before else Position()
        return known


def parse_leniently(data: bytes) -> JsonValue:
    """Returns the JSON of a frame, as leniently as it can be read; None if it is none."""
    with suppress(ValueError, RecursionError):
        value: JsonValue = msgspec.json.decode(data)
        return value
    with suppress(ValueError, RecursionError):
        # Accepts what the decoders salvage too: bytes that are not UTF-8, NaN, lone surrogates, and
        # control characters inside strings, which RFC 8259 §7 forbids.
        lenient: JsonValue = json.loads(data.decode("utf-8", "replace"), strict=False)
        return lenient
    return None


def _by_rule_id(wire: str, found: Iterable[Finding]) -> list[Finding]:
    """Returns the findings with the ids of their rules: of the wire, or of all streams."""
    by_rule: list[Finding] = []
    for one in found:
        # Validators may also report a rule that every stream has.
        own = one.code in rules_of(wire)
        if own or one.code not in lifecycle.NOT_RULES:
            id = f"{wire if own else LIFECYCLE}/{one.code}"
            by_rule.append(msgspec.structs.replace(one, code=id))
    return by_rule
