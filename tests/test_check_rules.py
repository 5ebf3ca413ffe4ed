"""Every rule of every wire is proved by two captures: one that breaks it, and one that does not.

They are `captures/check/<wire>/<rule>.bad.sse` and `.good.sse` (`.jsonl` for one JSON event a
line). A bad capture has one defect, which is reported once, by its rule. Its `.expect` lists what
else is reported, with the reason, one a line; notes need not be listed. A good capture has at
most notes.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import pytest

import weft
from tests import chat
from tests.captures import HERE
from tests.tables import each_row
from weft.check.checker import VIOLATIONS, Report, examine
from weft.check.deduplication import deduplicate
from weft.check.rules import LIFECYCLE, SSE, WIRES, all_rules, rules_of
from weft.dialects.rules import Rule
from weft.errors import WeftError
from weft.findings import Finding

FOLDER = HERE / "check"
SOURCE = Path(weft.__file__).parent
SUFFIXES = (".sse", ".jsonl")
KINDS = ("bad", "good")
RULES = all_rules()
PROVED = [wire for wire in WIRES if wire != LIFECYCLE]
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
    def expected(self) -> Counter[str]:
        listed = self.path.with_suffix(".expect")
        return Counter(expectations(listed) if listed.exists() else [])

    @property
    def report(self) -> Report:
        wire = self.path.parent.name
        return examine(self.path.read_bytes(), SHOWN_IN.get(wire, wire))

    @property
    def reported(self) -> Counter[str]:
        return Counter(found.code for found in self.report.findings)


def expectations(path: Path) -> list[str]:
    """The rules that a file lists, each followed by a reason."""
    return [line.partition(" ")[0] for line in path.read_text().splitlines()]


PROOFS = [Proof(path) for path in sorted(FOLDER.glob("*/*")) if path.suffix in SUFFIXES]
NEEDED = [f"{wire}/{name}.{kind}" for wire in PROVED for name in rules_of(wire) for kind in KINDS]


def serious(rules: Counter[str]) -> Counter[str]:
    return Counter({id: n for id, n in rules.items() if RULES[id].severity in VIOLATIONS})


def test_every_rule_has_a_capture_that_breaks_it_and_one_that_does_not() -> None:
    """And every capture belongs to a rule."""
    assert sorted({str(proof).rpartition(".")[0] for proof in PROOFS}) == sorted(NEEDED)


def test_what_is_expected_beside_a_rule_belongs_to_a_capture_and_is_a_rule() -> None:
    for path in FOLDER.glob("*/*.expect"):
        assert path.name.endswith(".bad.expect")
        assert any(path.with_suffix(suffix).exists() for suffix in SUFFIXES), path.name
        assert set(expectations(path)) <= set(RULES), path.name
        assert all(" " in line for line in path.read_text().splitlines()), "a reason for each"


@each_row("proof", [one for one in PROOFS if one.kind == "bad"], ids=str)
def test_the_one_defect_of_a_bad_capture_is_reported_once_by_its_rule(proof: Proof) -> None:
    assert proof.rule in proof.reported
    assert serious(proof.reported) == serious(Counter([proof.rule]) + proof.expected)


@each_row("proof", [one for one in PROOFS if one.kind == "good"], ids=str)
def test_a_good_capture_breaks_no_rule(proof: Proof) -> None:
    assert serious(Counter(proof.report.broken)) == Counter()
    assert proof.rule not in proof.report.broken


IMPLIED = [
    (id, implied, here)
    for id, rule in RULES.items()
    for here, ids in ((True, rule.implies_at_event), (False, rule.implies_in_response))
    for implied in ids
]


@each_row("rule, implied, here", IMPLIED)
def test_a_capture_shows_that_a_rule_implies_another(rule: str, implied: str, here: bool) -> None:
    wire = rule.partition("/")[0]
    assert implied.partition("/")[0] in (LIFECYCLE, wire)
    assert RULES[rule].severity in VIOLATIONS or RULES[implied].severity not in VIOLATIONS
    folders = FOLDER / wire, HERE / wire.replace("-", "_")
    paths = [path for folder in folders for path in folder.glob("*") if path.suffix in SUFFIXES]
    assert any(shows(path, wire, rule, implied, here=here) for path in paths)


@cache
def report_of(path: Path, wire: str) -> Report | None:
    try:
        return examine(path.read_bytes(), wire)
    except WeftError:
        return None


def shows(path: Path, wire: str, rule: str, implied: str, *, here: bool) -> bool:
    """Whether the first rule is broken in a capture, and the second one implied."""
    report = report_of(path, wire)
    if report is None:
        return False
    found = [*report.findings, *report.implied]
    events = {one.at for one in found if one.code == rule}
    others = {one.at for one in report.implied if one.code == implied}
    return bool(events & others) if here else bool(events and others)


def test_a_second_defect_is_not_taken_for_the_first() -> None:
    def at(event: int, code: str) -> Finding:
        return Finding(code, event, event * 100, "")

    wire, lifecycle = "openai-chat/call-nameless", "lifecycle/call-nameless"
    deduplicated = deduplicate([at(9, lifecycle), at(4, wire), at(5, lifecycle)])
    assert deduplicated.reported == [at(4, wire), at(9, lifecycle)]
    assert deduplicated.implied == [at(5, lifecycle)]
    coerced = at(3, "lifecycle/field-coerced")
    assert deduplicate([at(2, "gemini/usage-shape"), coerced]).implied == []


@pytest.mark.parametrize("wire", WIRES)
def test_a_rule_has_a_name_of_lower_case_words_and_says_everything_in_sentences(wire: str) -> None:
    for name, rule in rules_of(wire).items():
        assert name == name.strip().lower().replace(" ", "-")
        assert rule.promise.endswith(".")
        assert rule.why.endswith(".")
        assert rule.example.strip()


def test_what_is_not_a_wire_has_no_rules() -> None:
    """So a dialect whose row has no validator needs no `rules.toml`."""
    assert rules_of("no-such-wire") == {}


REPORTS = re.compile(r"_?(report|broken|once|note)\w*")
"""The methods of validators that report a broken rule, whose name comes first."""


@pytest.mark.parametrize("wire", PROVED)
def test_code_reports_the_rules_that_are_listed_and_no_others(wire: str) -> None:
    """Read from the syntax trees. The codes of the lifecycle are typed: see test_check.py."""
    folder = SOURCE / "check" if wire == SSE else SOURCE / "dialects" / wire.replace("-", "_")
    patterns = ("sse_lines.py",) if wire == SSE else ("validator.py", "validation/*.py")
    nodes = [
        node
        for pattern in patterns
        for path in folder.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    ]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    reported = {
        node.args[0].value
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and REPORTS.fullmatch(node.func.attr)
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert set(rules_of(wire)) - texts == set()
    assert reported - set(rules_of(wire)) == set()
    assert reported


def test_a_file_with_a_key_that_no_rule_has_or_a_severity_that_is_none_is_not_loaded() -> None:
    rule = 'severity = "error"\npromise = "A."\nwhy = "B."\nexample = "C"\n'
    assert msgspec.toml.decode(f"[a]\n{rule}", type=dict[str, Rule])["a"].severity == "error"
    for wrong in (f"{rule}wy = 1", rule.replace("error", "fatal"), rule.replace("why", "reason")):
        with pytest.raises(msgspec.ValidationError):
            msgspec.toml.decode(f"[a]\n{wrong}", type=dict[str, Rule])


LOADED = """
import sys
from pathlib import Path
import weft
from weft.check import rules, clients

raw = Path(sys.argv[1]).read_bytes()
weft.decode_all(raw, "openai-chat")
weft.check(raw)
print(rules.rules_of.cache_info().currsize, clients.all_verdicts.cache_info().currsize)
"""


def test_decoding_and_the_check_of_a_good_stream_read_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "plain.sse"
    path.write_bytes(chat.stream([chat.chunk({"role": "assistant", "content": "Hi"})]))
    command: list[str | Path] = [sys.executable, "-c", LOADED, path]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"0 0\n"
