"""The coverage gate fails when it should, and says where."""

from tests.coverage_gate import AGENT_LAW, DECIDING, WANTED, Measured, Summary, gate, group
from tests.test_layers import MODULES, layer

WHOLE = Measured(Summary(10, 10, 4, 4), [], [])
EVERYTHING = {module: WHOLE for module in MODULES if group(module) in WANTED}


def test_full_coverage_passes_with_one_line_a_layer() -> None:
    table, passed = gate(EVERYTHING)
    assert passed
    assert len(table.splitlines()) == len(WANTED)


def test_one_missing_branch_of_the_law_fails_and_is_named() -> None:
    cut = Measured(Summary(10, 10, 4, 3), [], [(7, -1)])
    table, passed = gate({**EVERYTHING, "weft.guard": cut})
    assert not passed
    assert "  weft.guard 92.86 %: 7->exit" in table.splitlines()


def test_a_line_that_never_ran_is_listed_without_its_branches() -> None:
    cut = Measured(Summary(10, 9, 4, 2), [7], [(7, 8), (7, 9)])
    table, passed = gate({**EVERYTHING, "weft.parts": cut})
    assert not passed
    assert "  weft.parts 78.57 %: 7" in table.splitlines()


def test_codecs_may_miss_three_in_a_hundred() -> None:
    name = "weft.dialects.base"
    alone = {module: one for module, one in EVERYTHING.items() if layer(module) != "L2 dialects"}
    assert gate({**alone, name: Measured(Summary(100, 97, 0, 0), [1, 2, 3], [])})[1]
    assert not gate({**alone, name: Measured(Summary(100, 96, 0, 0), [1, 2, 3, 4], [])})[1]


def test_a_layer_that_was_not_measured_fails() -> None:
    assert not gate({})[1]


def test_the_command_line_is_not_asked() -> None:
    dark = Measured(Summary(10, 0, 4, 0), list(range(10)), [])
    assert gate({**EVERYTHING, "weft.cli.main": dark, "weft.codec": dark})[1]


def test_what_decides_in_the_agent_runtime_is_asked() -> None:
    assert [group(f"weft.agent.{name}") for name in DECIDING] == [AGENT_LAW] * len(DECIDING)
    assert {f"weft.agent.{name}" for name in DECIDING} <= {*MODULES}
    cut = Measured(Summary(1000, 900, 0, 0), [*range(100)], [])
    table, passed = gate({**EVERYTHING, "weft.agent.state": cut})
    assert (passed, f"{AGENT_LAW}: " in table) == (False, True)
