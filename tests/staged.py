"""What the tests of stages do with one."""

from weft.assembler import Assembler, Response
from weft.dialects.base import Stage
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.lifecycle import violations
from weft.parts import Part


def run(stage: Stage, findings: Findings, parts: list[Part]) -> tuple[list[Part], Response]:
    """The guarded parts of a stream, fed to a stage part by part, and their fold."""
    guard = Guard(Ids(b"1"), findings)
    out: list[Part] = []
    for part in parts:
        out += guard.feed(stage.feed([part]))
    out += guard.feed(stage.finish())
    assert stage.finish() == []
    out += guard.finish()
    assert violations(out, Assembler()) == []
    return out, guard.fold.response(tuple(findings.found))
