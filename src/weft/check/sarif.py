"""What a check found, written down for code hosts: SARIF 2.1.0."""

from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import quote

import msgspec

from weft.check.report import Checked, explanation
from weft.check.rules import rule
from weft.dialects.rules import Severity
from weft.findings import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


# The objects of SARIF 2.1.0 (OASIS) that code hosts read, inner ones first.


class SarifText(msgspec.Struct):
    text: str


class SarifConfiguration(msgspec.Struct):
    # Our severities have the names that SARIF gives its levels.
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
    # Lines and columns are counted from 1, bytes from 0.
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
    rule_index: int  # in the `rules` of the driver, so that readers need not search them
    level: Severity
    message: SarifText
    locations: list[SarifLocation]
    properties: SarifProperties


class SarifNotification(msgspec.Struct):
    level: Severity
    message: SarifText


class SarifInvocation(msgspec.Struct, rename="camel"):
    # False if a capture could not be read: broken rules are results, not failures of the run.
    execution_successful: bool
    tool_execution_notifications: list[SarifNotification]


class SarifRun(msgspec.Struct, rename="camel"):
    tool: SarifTool
    invocations: list[SarifInvocation]
    results: list[SarifResult]
    # Without it, readers assume UTF-16 code units.
    column_kind: str = "unicodeCodePoints"


class SarifLog(msgspec.Struct):
    schema: str = msgspec.field(name="$schema")
    version: str
    runs: list[SarifRun]


def as_sarif(captures: Sequence[Checked], version: str) -> bytes:
    """Returns one run over all captures, as SARIF 2.1.0; `version` is Weft's own."""
    # Only rules that are broken, each once: with all of them the file would be mostly rules.
    broken = list(dict.fromkeys(one.code for each in captures for one in each.findings))
    problems = [each.error for each in captures if each.error]
    rules = [
        SarifRule(
            id=id,
            short_description=SarifText(found.promise),
            full_description=SarifText(f"{found.promise} {found.why}"),
            help=SarifText(explanation(id)),
            default_configuration=SarifConfiguration(found.severity),
        )
        for id, found in zip(broken, map(rule, broken), strict=True)
    ]
    run = SarifRun(
        tool=SarifTool(SarifDriver("weft", version, rules)),
        invocations=[
            SarifInvocation(
                execution_successful=not problems,
                tool_execution_notifications=[
                    SarifNotification("error", SarifText(problem)) for problem in problems
                ],
            )
        ],
        results=[
            _sarif_result(each, found, broken) for each in captures for found in each.findings
        ],
    )
    return msgspec.json.encode(SarifLog(SCHEMA, "2.1.0", [run])) + b"\n"


def _sarif_result(checked: Checked, found: Finding, broken: list[str]) -> SarifResult:
    path, position = PurePath(checked.path), checked.position(found)
    # A URI reference, not a path. Code hosts resolve a relative one at the root of the repository.
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    artifact = SarifArtifact("stdin" if checked.path == "-" else uri)
    region = SarifRegion(position.line, position.column, found.offset)
    return SarifResult(
        rule_id=found.code,
        rule_index=broken.index(found.code),
        level=rule(found.code).severity,
        message=SarifText(found.detail),
        locations=[SarifLocation(SarifPhysical(artifact, region))],
        properties=SarifProperties(found.at),
    )
