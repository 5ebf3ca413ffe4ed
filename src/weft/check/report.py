"""What a check found, written down for people and for programs (JSON)."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from weft.check.checker import VIOLATIONS, Report
from weft.check.clients import UNKNOWN, Verdict, verdicts_on
from weft.check.rules import LIFECYCLE, SSE, all_rules, rule
from weft.check.sse_lines import Position
from weft.dialects.rules import Severity
from weft.findings import Finding

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # as the summary counts them

Paint = Callable[[str, Severity], str]
"""Colours a word by its severity."""


class Checked(msgspec.Struct, frozen=True):
    """One capture: its report, or why there is none."""

    path: str
    report: Report | None = None
    error: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.report.findings if self.report else ()

    @property
    def counts(self) -> Counter[str]:
        """How many findings of each rule there are."""
        counts = Counter(one.code for one in self.findings)
        return counts + Counter(self.report.earlier) if self.report else counts

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.report.verdicts if self.report else ()

    def position(self, finding: Finding) -> Position:
        return self.report.position(finding) if self.report else Position()


def count_by_severity(captures: Sequence[Checked]) -> dict[Severity, int]:
    """How many findings of each severity there are."""
    found: Counter[Severity] = Counter()
    for each in captures:
        for code, count in each.counts.items():
            found[rule(code).severity] += count
    return {severity: found[severity] for severity in SEVERITIES}


def has_violations(captures: Sequence[Checked]) -> bool:
    """Whether any capture breaks a rule. Notes break nothing."""
    counts = count_by_severity(captures)
    return any(counts[severity] for severity in VIOLATIONS)


# For people


def finding_line(path: str, found: Finding, position: Position, paint: Paint) -> str:
    """One line that editors can open: file, line and column come first."""
    severity = rule(found.code).severity
    return (
        # The form of compilers, `file:line:column: severity`, which editors turn into links.
        f"{path}:{position.line}:{position.column}: {paint(severity, severity)} {found.code}: "
        # Details quote the stream, whose control characters must not reach the terminal.
        f"{found.printable_detail} (event {found.at}, byte {found.offset})"
    )


def verdict_lines(checked: Checked) -> list[str]:
    """One line for each verdict of a client on a capture."""
    return [f"{checked.path}: {verdict_line(row)} [{row.rule}]" for row in checked.verdicts]


def verdict_line(row: Verdict) -> str:
    """What one client does, in one line."""
    client = row.client
    name = client.name if client.version == UNKNOWN else f"{client.name} {client.version}"
    return f"{name} ({row.evidence} {client.date}) {row.effect}: {row.says}"


def summary(captures: Sequence[Checked], skipped: int = 0) -> str:
    """How many captures were checked, and what was found. `skipped` other files were ignored."""
    read = [each for each in captures if each.report]
    counts = count_by_severity(captures)
    found = ", ".join(_count(counts[severity], severity) for severity in SEVERITIES)
    unread = len(captures) - len(read)
    lost = f"; {_count(unread, 'capture')} unreadable" if unread else ""
    others = f"; {_count(skipped, 'other file')} skipped" if skipped else ""
    return f"{_count(len(read), 'capture')} checked: {found}{lost}{others}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def explanation(id: str) -> str:
    """What a rule means, why it is there, an example, and who breaks without it."""
    found = rule(id)
    wire = id.partition("/")[0]
    of = {LIFECYCLE: "streams of every dialect", SSE: "server-sent events of every dialect"}
    rows = verdicts_on(id)
    example = "".join(f"    {line}".rstrip() + "\n" for line in found.example.rstrip().split("\n"))
    clients = "".join(f"    {row.dialect}: {verdict_line(row)}\n" for row in rows)
    return (
        f"{id}\n\n"
        f"Severity: {found.severity}\n"
        f"Holds for: {of.get(wire, wire)}\n"
        f"Promise: {found.promise}\n"
        f"Why: {found.why}\n"
        f"Broken by:\n{example}" + (f"Clients:\n{clients}" if rows else "")
    )


def list_rules() -> str:
    """Every rule on a line of its own."""
    rules = all_rules()
    width = max(map(len, rules))
    lines = [f"{id:{width}}  {one.severity:7}  {one.promise}" for id, one in rules.items()]
    return "\n".join(lines) + "\n"


# For programs


# Own structs instead of `Finding` and `Verdict`: the output is stable, those may change.


class JsonFinding(msgspec.Struct):
    code: str
    severity: Severity
    at: int
    offset: int
    line: int
    column: int
    detail: str


class JsonVerdict(msgspec.Struct):
    client: str
    version: str
    date: str
    rule: str
    effect: str
    says: str
    evidence: str
    source: str


class JsonCapture(msgspec.Struct):
    file: str
    error: str | None
    dialect: str | None
    responses: int
    events: int
    findings: list[JsonFinding]
    verdicts: list[JsonVerdict]


class JsonReport(msgspec.Struct):
    """The object that `weft check --format json` prints. Its keys are stable."""

    captures: list[JsonCapture]
    errors: int
    warnings: int
    notes: int


def as_json(captures: Sequence[Checked]) -> bytes:
    counts = count_by_severity(captures)
    report = JsonReport(
        [_json_capture(each) for each in captures],
        counts["error"],
        counts["warning"],
        counts["note"],
    )
    return msgspec.json.encode(report) + b"\n"


def _json_capture(checked: Checked) -> JsonCapture:
    report = checked.report
    findings: list[JsonFinding] = []
    for one in checked.findings:
        severity, position = rule(one.code).severity, checked.position(one)
        line, column = position.line, position.column
        findings.append(
            JsonFinding(one.code, severity, one.at, one.offset, line, column, one.detail)
        )
    verdicts: list[JsonVerdict] = []
    for row in checked.verdicts:
        name, version, date = row.client.name, row.client.version, row.client.date
        verdicts.append(
            JsonVerdict(
                name, version, date, row.rule, row.effect, row.says, row.evidence, row.source
            )
        )
    return JsonCapture(
        file=checked.path,
        error=checked.error,
        dialect=report.dialect if report else None,
        responses=report.responses if report else 0,
        events=report.events if report else 0,
        findings=findings,
        verdicts=verdicts,
    )
