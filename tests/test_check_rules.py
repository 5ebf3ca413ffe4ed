"""Every rule of every wire is proved by two captures: one that breaks it, and one that does not.

They are `captures/check/<wire>/<rule>.bad.sse` and `.good.sse` (`.jsonl` for one JSON event a
line). A bad capture breaks its rule and nothing else, save the rules, and notes, that its
`.expect` lists, one id a line; notes need not be listed. A good one has at most notes.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.captures import HERE
from weft.check.engine import examine
from weft.check.lifecycle import WIRE as LIFECYCLE
from weft.check.rulebook import RULES, WIRES

FOLDER = HERE / "check"
SUFFIXES = (".sse", ".jsonl")
KINDS = ("bad", "good")
PROVED = {wire: rules for wire, rules in WIRES.items() if wire != LIFECYCLE}
"""The rules of the lifecycle are proved by the captures of `docs/findings.md`."""
SHOWN_IN = {"sse": "openai-chat"}
"""The dialect of captures for rules that belong to none."""


@dataclass(frozen=True)
class Proof:
    """One capture of one rule."""

    path: Path

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def rule(self) -> str:
        return f"{self.path.parent.name}/{self.path.name.split('.')[0]}"

    @property
    def kind(self) -> str:
        return self.path.name.split(".")[1]

    @property
    def expected(self) -> set[str]:
        listed = self.path.with_suffix(".expect")
        return set(listed.read_text().split()) if listed.exists() else set()

    def broken(self) -> set[str]:
        wire = self.path.parent.name
        report = examine(self.path.read_bytes(), SHOWN_IN.get(wire, wire))
        return {found.code for found in report.findings}


PROOFS = [Proof(path) for path in sorted(FOLDER.glob("*/*")) if path.suffix in SUFFIXES]
NEEDED = [
    f"{wire}/{rule.name}.{kind}"
    for wire, rules in PROVED.items()
    for rule in rules
    for kind in KINDS
]


def serious(rules: set[str]) -> set[str]:
    return {rule for rule in rules if RULES[rule].severity != "note"}


@pytest.mark.parametrize("needed", NEEDED)
def test_every_rule_has_a_capture_that_breaks_it_and_one_that_does_not(needed: str) -> None:
    assert [str(proof) for proof in PROOFS if str(proof).rpartition(".")[0] == needed]


@pytest.mark.parametrize("proof", PROOFS, ids=str)
def test_every_capture_belongs_to_a_rule(proof: Proof) -> None:
    assert str(proof).rpartition(".")[0] in NEEDED


def test_what_is_expected_beside_a_rule_belongs_to_a_capture_and_is_a_rule() -> None:
    for path in FOLDER.glob("*/*.expect"):
        assert path.name.endswith(".bad.expect")
        assert any(path.with_suffix(suffix).exists() for suffix in SUFFIXES), path.name
        assert set(path.read_text().split()) <= set(RULES), path.name


@pytest.mark.parametrize("proof", [one for one in PROOFS if one.kind == "bad"], ids=str)
def test_a_bad_capture_breaks_its_rule_and_no_other(proof: Proof) -> None:
    broken = proof.broken()
    assert proof.rule in broken
    assert serious(broken - {proof.rule}) == serious(proof.expected - {proof.rule})
    assert proof.expected <= broken


@pytest.mark.parametrize("proof", [one for one in PROOFS if one.kind == "good"], ids=str)
def test_a_good_capture_breaks_no_rule(proof: Proof) -> None:
    assert serious(proof.broken()) == set()
    assert proof.rule not in proof.broken()


@pytest.mark.parametrize("wire", WIRES)
def test_the_rules_of_a_wire_have_different_names_and_are_all_told(wire: str) -> None:
    rules = WIRES[wire]
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.name == rule.name.strip().lower().replace(" ", "-")
        assert rule.promise.endswith(".")
        assert rule.why.endswith(".")
        assert rule.example.strip()
