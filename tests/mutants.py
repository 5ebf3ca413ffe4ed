"""The mutants: small breaks of the law, each of which some test must notice.

One for each row of the lifecycle's tables and each of its predicates, made from the source, so
that a new row has its mutant at once. One for each identity step of the ledger and each repair
by which the guard keeps a law: those are listed in `mutants.diff`, a heading
`== file: what is broken` and the lines to take out and to put in, as in a patch.
`test_mutants.py` applies them one at a time.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "weft"
TABLES = ("TEXT", "REASONING", "TOOL", "RESPONSE")
LISTED = Path(__file__).with_name("mutants.diff")
KILLERS = {
    "lifecycle.py": ("tests/test_law.py", "tests/test_lifecycle.py"),
    "calls.py": ("tests/test_identity.py", "tests/test_calls.py", "tests/test_captures.py"),
    "guard.py": ("tests/test_law.py", "tests/test_guard.py", "tests/test_captures.py"),
}
"""Which tests must notice a break of a file: the file's own first, then what it serves."""


@dataclass(frozen=True)
class Mutant:
    """`old` stands exactly once in the file; with `new` in its place a killer must fail."""

    name: str
    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        if text.count(self.old) != 1:
            times = text.count(self.old)
            raise LookupError(f"{self.name}: found {times} times in {self.file}:\n{self.old}")
        return text.replace(self.old, self.new)


# The lifecycle: rows and predicates, read from the source


def lifecycle() -> list[Mutant]:
    text = (SOURCE / "lifecycle.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    found: list[Mutant] = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            if name in TABLES and isinstance(node.value, ast.Dict):
                found += _rows(text, name, node.value)
            elif name == "_CONTENT" and isinstance(node.value, ast.Call):
                found += _without(text, "RESPONSE open", node.value.args[0])
            elif name == "PREDICATES":
                found += _without(text, "predicate", node.value)
    return found


def _rows(text: str, table: str, states: ast.Dict) -> list[Mutant]:
    found = []
    for state, row in zip(states.keys, states.values, strict=True):
        assert isinstance(row, ast.Dict)
        for event, target in zip(row.keys, row.values, strict=True):
            if state is not None and event is not None:
                name = f"lifecycle.py: {table} {ast.unparse(state).lower()}: {ast.unparse(event)}"
                found.append(_cut(text, name, event, target))
    return found


def _without(text: str, name: str, elements: ast.expr | None) -> list[Mutant]:
    assert isinstance(elements, ast.Tuple)
    found = []
    for element in elements.elts:
        last = element.elts[-1] if isinstance(element, ast.Tuple) else element
        found.append(_cut(text, f"lifecycle.py: {name}: {ast.unparse(last)}", element, element))
    return found


def _cut(text: str, name: str, first: ast.expr, last: ast.expr) -> Mutant:
    """A mutant without what stands from one node to another. The whole file is its `old`, since
    rows of different tables may read alike.
    """
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: first.lineno - 1])) + first.col_offset
    end = sum(map(len, lines[: (last.end_lineno or 1) - 1])) + (last.end_col_offset or 0)
    if text[end : end + 1] == ",":
        end += 1
    return Mutant(name, "lifecycle.py", text, text[:start] + text[end:])


def listed(text: str) -> list[Mutant]:
    """The mutants of a list. A line that is neither of a heading nor of a patch is a remark."""
    found = []
    for piece in text.split("\n== ")[1:]:
        heading, _, body = piece.partition("\n")
        file, _, name = heading.partition(": ")
        lines = [line for line in body.splitlines() if line[:1] in ("-", "+", " ")]
        old = "".join(line[1:] + "\n" for line in lines if line[0] != "+")
        new = "".join(line[1:] + "\n" for line in lines if line[0] != "-")
        found.append(Mutant(f"{file}: {name}", file, old, new))
    return found


MUTANTS = lifecycle() + listed(LISTED.read_text(encoding="utf-8"))
