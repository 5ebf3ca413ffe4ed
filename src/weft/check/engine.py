"""The checker: reads a capture as Weft does, and each wire's own rules beside it.

What the decoder and the guard found, what the wire's invariants found and what the lines of the
stream show become one list of findings whose codes are rule ids, in the order of the stream. A
defect that several of them show is in it once.
"""

import json
from collections.abc import Iterable, Iterator

import msgspec

from weft.check import lifecycle, lines
from weft.check.clients import verdicts
from weft.check.implied import sort_out
from weft.check.verdict import Verdict
from weft.codec import Reading, detect, in_order, readings
from weft.context import Context
from weft.dialects import DialectName, dialect_named
from weft.dialects.base import Dialect
from weft.dialects.rules import JsonValue, Rule, Severity
from weft.findings import Finding, Findings
from weft.parts import ErrorPart, Part
from weft.sse import Frame

VIOLATIONS: frozenset[Severity] = frozenset(("error", "warning"))
"""What makes a check fail; notes do not."""

_BODY_STARTS = (b"{", b"\xef\xbb\xbf{")


class Report(msgspec.Struct, frozen=True):
    """What the check of one capture found. The codes of its findings are rule ids."""

    dialect: str
    responses: int
    events: int
    findings: tuple[Finding, ...]
    implied: tuple[Finding, ...] = ()
    """What the findings say already: the same defects, by other rules."""

    @property
    def broken(self) -> set[str]:
        """Every rule that is broken, reported or implied."""
        return {found.code for found in (*self.findings, *self.implied)}

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What known clients make of this stream."""
        return verdicts(self.dialect, self.broken)


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


def examine(raw: bytes, dialect: str | None = None, *, context: Context | None = None) -> Report:
    """As check, with what was read."""
    wire = dialect_named(dialect or detect(raw))
    reported: list[Finding] = []
    implied: list[Finding] = []
    frames: list[Frame] = []
    responses = 0
    for reading in readings(raw, wire.name, context=context):
        responses += 1
        frames += reading.frames
        found = _of_the_wire(wire, reading.frames) if is_stream(raw, reading.frames) else []
        response = sort_out(found + _of_the_lifecycle(reading))
        reported += response.reported
        implied += response.implied
    if is_stream(raw, frames):
        reported += _of_the_lines(raw, frames)
    return Report(
        wire.name, responses, len(frames), tuple(in_order(reported)), tuple(in_order(implied))
    )


def is_stream(raw: bytes, frames: list[Frame]) -> bool:
    """Whether these frames came as events, and not as one JSON body."""
    if len(frames) > 1:
        return True
    start = frames[0].offset if frames else 0
    return not raw[start : start + 64].lstrip().startswith(_BODY_STARTS)


def _of_the_wire(wire: Dialect, frames: list[Frame]) -> list[Finding]:
    if wire.invariants is None:
        return []
    findings = Findings()
    watcher = wire.invariants(findings)
    for frame in frames:
        findings.at, findings.offset = frame.number, frame.offset
        watcher.feed(frame, untyped(frame.data))
    watcher.finish()
    return _named(wire.name, wire.rules, findings)


def untyped(data: bytes) -> JsonValue:
    """Returns the JSON of a frame, as leniently as it can be read; None if it is none."""
    try:
        value: JsonValue = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        value = _lenient(data)
    return value


def _lenient(data: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return value


def _of_the_lifecycle(reading: Reading) -> list[Finding]:
    found: list[Finding] = []
    for pipe in reading.pipes:
        for frame in reading.frames:
            _failures(pipe.feed((frame,)), pipe.findings)
        _failures(pipe.finish(), pipe.findings)
        found += _named(lifecycle.WIRE, lifecycle.RULES, pipe.findings)
    return found + _unterminated(reading.frames, found)


def _unterminated(frames: list[Frame], found: list[Finding]) -> list[Finding]:
    """A cut event that the decoder could read as if it were whole, such as a terminator."""
    code = f"{lifecycle.WIRE}/frame-unterminated"
    if not frames or not frames[-1].cut or any(one.code == code for one in found):
        return []
    last = frames[-1]
    return [Finding(code, last.number, last.offset, "the last event has no blank line after it")]


def _failures(parts: Iterable[Part], findings: Findings) -> None:
    for part in parts:
        if isinstance(part, ErrorPart):
            findings.broken(lifecycle.FAILURES[part.kind], part.message)


def _of_the_lines(raw: bytes, frames: list[Frame]) -> list[Finding]:
    findings = Findings()
    watcher = lines.Lines()
    watcher.read(raw)
    watcher.report(frames, findings)
    return _named(lines.WIRE, lines.RULES, findings)


def _named(wire: str, rules: tuple[Rule, ...], findings: Findings) -> list[Finding]:
    """The findings under their full ids. What is no rule of the wire is one of all streams."""
    own = {rule.name for rule in rules}
    return list(_renamed(wire, own, findings.found))


def _renamed(wire: str, own: set[str], found: list[Finding]) -> Iterator[Finding]:
    for one in found:
        if one.code in own or one.code not in lifecycle.NOT_RULES:
            home = wire if one.code in own else lifecycle.WIRE
            yield msgspec.structs.replace(one, code=f"{home}/{one.code}")
