"""Any dialect into any other: what comes out is legal, and says the same or says why not."""

from pathlib import Path

import pytest

from tests.matrix.facts import facts
from tests.matrix.run import cell, decoded
from tests.matrix.scenarios import CAPTURES, PAIRS, SCENARIOS
from tests.tables import each_row
from weft.assembler import Assembler
from weft.check import examine
from weft.check.rules import rule
from weft.dialects import DIALECTS, DialectName
from weft.lifecycle import violations

CELLS = each_row("scenario, one, other", PAIRS)


@CELLS
def test_what_is_written_passes_the_checker(scenario: str, one: str, other: DialectName) -> None:
    report = examine(cell(scenario, one, other).raw, other)
    assert [found for found in report.findings if rule(found.code).severity != "note"] == []
    assert report.responses == 1


@CELLS
def test_what_is_written_is_read_without_a_repair(
    scenario: str, one: str, other: DialectName
) -> None:
    back = cell(scenario, one, other).back
    assert back.response.findings == ()
    assert violations(back.parts, Assembler()) == []


@CELLS
def test_parts_in_are_parts_out_and_findings(scenario: str, one: str, other: DialectName) -> None:
    assert cell(scenario, one, other).unexplained == []


@each_row("dialect", DIALECTS)
@each_row("scenario", [name for name in SCENARIOS if name != "cut-stream"])
def test_a_scenario_says_something_in_every_dialect(scenario: str, dialect: str) -> None:
    found = decoded(dialect, scenario)
    assert found.response.findings == ()
    assert facts(found.response)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_cut_stream_is_an_error_in_every_dialect(dialect: str) -> None:
    response = decoded(dialect, "cut-stream").response
    assert response.error is not None
    assert response.error.kind == "truncated"


def test_native_captures_are_of_dialects_and_scenarios() -> None:
    known = {Path(dialect) / f"{scenario}.sse" for dialect in DIALECTS for scenario in SCENARIOS}
    assert {path.relative_to(CAPTURES) for path in CAPTURES.rglob("*.sse")} <= known
