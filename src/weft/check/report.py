"""What a check found, written down: for people, for programs (JSON) and for code hosts (SARIF)."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePath
from urllib.parse import quote

import msgspec

from weft.check.checker import VIOLATIONS, Report
from weft.check.clients import verdicts_on
from weft.check.lifecycle import WIRE as ANY_WIRE
from weft.check.rules import RULES, WIRES
from weft.check.sse_lines import WIRE as LINES
from weft.check.sse_lines import Position
from weft.check.verdict import UNKNOWN, Verdict
from weft.dialects.rules import Severity
from weft.findings import Finding

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

Paint = Callable[[str, Severity], str]
"""Colours a word by how bad it is."""


class Checked(msgspec.Struct, frozen=True):
    """One capture: its report, or why there is none."""

    path: str
    report: Report | None = None
    error: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.report.findings if self.report else ()


def count_by_severity(captures: Sequence[Checked]) -> dict[Severity, int]:
    """How many findings of each severity there are."""
    found = Counter(RULES[one.code].severity for each in captures for one in each.findings)
    return {severity: found[severity] for severity in SEVERITIES}


def has_violations(captures: Sequence[Checked]) -> bool:
    """Whether any capture breaks a rule. Notes break nothing."""
    counts = count_by_severity(captures)
    return any(counts[severity] for severity in VIOLATIONS)


# For people


def finding_line(path: str, found: Finding, position: Position, paint: Paint) -> str:
    """One line that editors can open: file, line and column come first."""
    severity = RULES[found.code].severity
    return (
        f"{path}:{position.line}:{position.column}: {paint(severity, severity)} {found.code}: "
        f"{found.printable_detail} (event {found.at}, byte {found.offset})"
    )


def finding_lines(checked: Checked, paint: Paint) -> list[str]:
    report = checked.report
    if report is None:
        return []
    return [finding_line(checked.path, one, report.position(one), paint) for one in report.findings]


def verdict_lines(checked: Checked) -> list[str]:
    """What clients make of a capture."""
    return [f"{checked.path}: {verdict_line(row)} [{row.rule}]" for row in _verdicts(checked)]


def text(captures: Sequence[Checked], paint: Paint) -> str:
    """Of each capture, one line a finding, then what clients make of it; then the sum."""
    lines = [
        line for each in captures for line in (*finding_lines(each, paint), *verdict_lines(each))
    ]
    return "\n".join([*lines, summary(captures)]) + "\n"


def _verdicts(checked: Checked) -> tuple[Verdict, ...]:
    return checked.report.verdicts if checked.report else ()


def verdict_line(row: Verdict) -> str:
    """What one client does, in one line."""
    client = row.client
    name = client.name if client.version == UNKNOWN else f"{client.name} {client.version}"
    return f"{name} ({row.evidence} {client.date}) {row.effect}: {row.says}"


def summary(captures: Sequence[Checked], skipped: int = 0) -> str:
    """How many captures were checked, and what was found; `skipped` files were no captures."""
    read = [each for each in captures if each.report]
    counts = count_by_severity(captures)
    found = ", ".join(_many(counts[severity], severity) for severity in SEVERITIES)
    unread = len(captures) - len(read)
    lost = f"; {_many(unread, 'capture')} unreadable" if unread else ""
    others = f"; {_many(skipped, 'other file')} skipped" if skipped else ""
    return f"{_many(len(read), 'capture')} checked: {found}{lost}{others}"


def _many(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def explanation(id: str) -> str:
    """What a rule means, why it is there, an example, and who breaks without it."""
    rule = RULES[id]
    wire = id.partition("/")[0]
    of = {ANY_WIRE: "streams of every dialect", LINES: "server-sent events of every dialect"}
    rows = verdicts_on(id)
    example = "".join(f"    {line}".rstrip() + "\n" for line in rule.example.rstrip().split("\n"))
    clients = "".join(f"    {row.dialect}: {verdict_line(row)}\n" for row in rows)
    return (
        f"{id}\n\n"
        f"Severity: {rule.severity}\n"
        f"Holds for: {of.get(wire, wire)}\n"
        f"Promise: {rule.promise}\n"
        f"Why: {rule.why}\n"
        f"Broken by:\n{example}" + (f"Clients:\n{clients}" if rows else "")
    )


def list_rules() -> str:
    """Every rule on a line of its own."""
    width = max(map(len, RULES))
    lines = [f"{id:{width}}  {rule.severity:7}  {rule.promise}" for id, rule in RULES.items()]
    return "\n".join(lines) + "\n"


# For programs


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
    return JsonCapture(
        file=checked.path,
        error=checked.error,
        dialect=report.dialect if report else None,
        responses=report.responses if report else 0,
        events=report.events if report else 0,
        findings=[_json_finding(one, report) for one in report.findings] if report else [],
        verdicts=[_json_verdict(row) for row in _verdicts(checked)],
    )


def _json_finding(one: Finding, report: Report) -> JsonFinding:
    position = report.position(one)
    return JsonFinding(
        code=one.code,
        severity=RULES[one.code].severity,
        at=one.at,
        offset=one.offset,
        line=position.line,
        column=position.column,
        detail=one.detail,
    )


def _json_verdict(row: Verdict) -> JsonVerdict:
    client = row.client
    return JsonVerdict(
        client=client.name,
        version=client.version,
        date=client.date,
        rule=row.rule,
        effect=row.effect,
        says=row.says,
        evidence=row.evidence,
        source=row.source,
    )


# For code hosts: SARIF 2.1.0


class SarifText(msgspec.Struct):
    text: str


class SarifConfiguration(msgspec.Struct):
    level: Severity


class SarifRule(msgspec.Struct, rename="camel"):
    id: str
    short_description: SarifText
    full_description: SarifText
    help: SarifText
    default_configuration: SarifConfiguration


class SarifDriver(msgspec.Struct, rename="camel"):
    name: str
    semantic_version: str
    rules: list[SarifRule]


class SarifTool(msgspec.Struct):
    driver: SarifDriver


class SarifArtifact(msgspec.Struct):
    uri: str


class SarifRegion(msgspec.Struct, rename="camel"):
    start_line: int
    start_column: int
    byte_offset: int


class SarifPhysical(msgspec.Struct, rename="camel"):
    artifact_location: SarifArtifact
    region: SarifRegion


class SarifLocation(msgspec.Struct, rename="camel"):
    physical_location: SarifPhysical


class SarifProperties(msgspec.Struct):
    event: int


class SarifResult(msgspec.Struct, rename="camel"):
    rule_id: str
    rule_index: int
    level: Severity
    message: SarifText
    locations: list[SarifLocation]
    properties: SarifProperties


class SarifNotification(msgspec.Struct):
    level: Severity
    message: SarifText


class SarifInvocation(msgspec.Struct, rename="camel"):
    execution_successful: bool
    tool_execution_notifications: list[SarifNotification]


class SarifRun(msgspec.Struct, rename="camel"):
    tool: SarifTool
    invocations: list[SarifInvocation]
    results: list[SarifResult]


class SarifLog(msgspec.Struct):
    schema: str = msgspec.field(name="$schema")
    version: str
    runs: list[SarifRun]


def as_sarif(captures: Sequence[Checked], version: str) -> bytes:
    """Returns one run over all captures, as SARIF 2.1.0; `version` is Weft's own."""
    broken = list(dict.fromkeys(one.code for each in captures for one in each.findings))
    problems = [each.error for each in captures if each.error]
    run = SarifRun(
        tool=SarifTool(SarifDriver("weft", version, [_sarif_rule(id) for id in broken])),
        invocations=[
            SarifInvocation(
                execution_successful=not problems,
                tool_execution_notifications=[
                    SarifNotification("error", SarifText(problem)) for problem in problems
                ],
            )
        ],
        results=[result for each in captures for result in _sarif_results(each, broken)],
    )
    return msgspec.json.encode(SarifLog(SARIF_SCHEMA, "2.1.0", [run])) + b"\n"


def _sarif_rule(id: str) -> SarifRule:
    rule = RULES[id]
    return SarifRule(
        id=id,
        short_description=SarifText(rule.promise),
        full_description=SarifText(f"{rule.promise} {rule.why}"),
        help=SarifText(explanation(id)),
        default_configuration=SarifConfiguration(rule.severity),
    )


def _sarif_results(checked: Checked, broken: list[str]) -> list[SarifResult]:
    report = checked.report
    if report is None:
        return []
    return [
        SarifResult(
            rule_id=one.code,
            rule_index=broken.index(one.code),
            level=RULES[one.code].severity,
            message=SarifText(one.detail),
            locations=[_sarif_location(checked.path, one, report.position(one))],
            properties=SarifProperties(one.at),
        )
        for one in report.findings
    ]


def _sarif_location(path: str, found: Finding, position: Position) -> SarifLocation:
    region = SarifRegion(position.line, position.column, found.offset)
    return SarifLocation(SarifPhysical(SarifArtifact(_uri(path)), region))


def _uri(path: str) -> str:
    if path == "-":
        return "stdin"
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())


# For the documentation


def reference() -> str:
    """The page of all rules, as Markdown."""
    pages = [_wire_reference(wire) for wire, rules in WIRES.items() if rules]
    return _HEAD + "".join(pages)


_HEAD = """# Rules

Every rule that `weft check` knows, by its id. This page is written from the rules themselves:
`python -m tests.docs_update` writes it anew.

An *error* breaks clients or loses something, a *warning* does so with some of them, and a *note*
is legal but worth knowing. Errors and warnings make the check fail; notes do not.
"""


def _wire_reference(wire: str) -> str:
    of = {ANY_WIRE: "streams of every dialect", LINES: "server-sent events"}
    title = f"`{wire}`: {of[wire]}" if wire in of else f"`{wire}`"
    rules = "".join(_rule_reference(f"{wire}/{rule.name}") for rule in WIRES[wire])
    return f"\n## {title}\n{rules}"


def _rule_reference(id: str) -> str:
    rule = RULES[id]
    rows = verdicts_on(id)
    clients = "".join(f"- {row.dialect}: {verdict_line(row)}\n" for row in rows)
    return (
        f"\n### `{id}`\n*{rule.severity}* · {rule.promise}\n\n{rule.why}\n\n"
        f"```text\n{rule.example.rstrip()}\n```\n" + (f"\n{clients}" if rows else "")
    )
