"""What a rule's captures are made with, and how a stream is held to the rules of its wire."""

import json
from dataclasses import dataclass

from weft.dialects import DIALECTS
from weft.dialects.base import Dialect
from weft.dialects.rules import JsonValue
from weft.findings import Finding, Findings
from weft.sse import Frame, FrameReader

Event = dict[str, object]


@dataclass(frozen=True, slots=True)
class Case:
    """A rule, a stream that breaks none, and its twin that breaks this one."""

    rule: str
    good: bytes
    bad: bytes
    suffix: str = "sse"


def dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def frames_of(raw: bytes) -> list[Frame]:
    reader = FrameReader()
    return reader.feed(raw) + reader.finish()


def responses_of(dialect: Dialect, frames: list[Frame]) -> list[list[Frame]]:
    """A capture, cut as the decoders cut it: where another response begins."""
    responses: list[list[Frame]] = [[]]
    ended = False
    for frame in frames:
        before = responses[-1]
        if before and (dialect.begins(frame, before) or (ended and dialect.speaks(frame))):
            responses.append([])
            ended = False
        responses[-1].append(frame)
        ended = ended or dialect.ends(frame)
    return responses


def event_of(frame: Frame) -> JsonValue:
    try:
        value: JsonValue = json.loads(frame.data)
    except (ValueError, RecursionError):
        return None
    return value


def watched(dialect: Dialect, frames: list[Frame]) -> list[Finding]:
    """What the rules of a wire find in the frames of one response."""
    findings = Findings()
    assert dialect.validator is not None
    watch = dialect.validator(findings)
    for frame in frames:
        findings.at, findings.offset = frame.number, frame.offset
        watch.feed(frame, event_of(frame))
    watch.finish()
    watch.finish()
    return findings.found


def found(name: str, raw: bytes, *, cut: bool = True) -> list[Finding]:
    """What the rules of a wire find in a capture, response by response or in one piece."""
    dialect, frames = DIALECTS[name], frames_of(raw)
    pieces = responses_of(dialect, frames) if cut else [frames]
    return [finding for piece in pieces for finding in watched(dialect, piece)]


def broken(name: str, raw: bytes, *, cut: bool = True) -> list[str]:
    """The rules that a capture breaks, each once."""
    return sorted({finding.code for finding in found(name, raw, cut=cut)})
