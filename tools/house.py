"""Measures how a Python source tree is cut up, as one table: `python tools/house.py [SRC]`.

SRC is a folder, `src/weft` unless given; several folders become several columns. The numbers:

- A file's size is its lines. A function's size is its lines from `def` to its end, decorators not
  included; methods and nested functions count as functions.
- A private function has a name with one leading underscore. It counts if its name occurs exactly
  once, as a name or as an attribute, in the Python files of its own folder, its own definition
  aside. "Called once" are those whose one occurrence is a call; "referenced once" are the others:
  handlers in tables, callbacks, properties, decorators. Both percentages are of all functions.
- A class name is used more than once if several classes of the tree have it. The percentage is of
  all class names.
- A comment line holds a comment, alone or behind code. A docstring line is a line of a string that
  stands alone as a statement. Both percentages are of all lines.
"""

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Literal

DEFAULT = Path(__file__).parents[1] / "src" / "weft"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One source file."""

    path: Path
    lines: int
    comments: int
    nodes: tuple[ast.AST, ...]
    """Every node of its syntax tree, walked once: that takes longer than to parse it."""

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    def class_names(self) -> Iterator[str]:
        return (node.name for node in self.nodes if isinstance(node, ast.ClassDef))

    def references(self) -> Iterator[str]:
        """Every name and attribute that is used, as often as it is."""
        for node in self.nodes:
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr

    def calls(self) -> Iterator[str]:
        """Every name and attribute that is called, as often as it is."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    yield node.func.id
                elif isinstance(node.func, ast.Attribute):
                    yield node.func.attr

    def docstring_lines(self) -> int:
        """The lines of all strings that stand alone as statements, those below fields included."""
        return sum(
            _lines(node)
            for node in self.nodes
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """The median, the 90th percentile and the maximum of some sizes."""

    median: int
    p90: int
    maximum: int

    @classmethod
    def of(cls, sizes: Iterable[int]) -> "Sizes":
        found = sorted(sizes)
        if not found:
            return cls(0, 0, 0)
        ninth = found[0] if len(found) == 1 else quantiles(found, n=10, method="inclusive")[-1]
        return cls(round(median(found)), round(ninth), found[-1])

    def __str__(self) -> str:
        return f"{self.median} / {self.p90} / {self.maximum}"


@dataclass(frozen=True, slots=True)
class Measures:
    """The numbers of one tree."""

    files: Sizes
    functions: Sizes
    longest_function: str
    function_count: int
    called_once: int
    referenced_once: int
    class_count: int
    shared_names: int
    comment_lines: int
    docstring_lines: int
    lines: int
    dialect_lines: int

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("file median / p90 / max", str(self.files)),
            ("function median / p90 / max", str(self.functions)),
            ("longest function", self.longest_function),
            ("functions", f"{self.function_count:,}"),
            ("private functions called once", _percent(self.called_once, self.function_count)),
            (
                "private functions referenced once, not called",
                _percent(self.referenced_once, self.function_count),
            ),
            ("class names used more than once", _percent(self.shared_names, self.class_count)),
            ("comment lines", _percent(self.comment_lines, self.lines)),
            ("docstring lines", _percent(self.docstring_lines, self.lines)),
            ("source lines", f"{self.lines:,}"),
            ("source lines in dialects/", f"{self.dialect_lines:,}"),
        ]


def read(source: Path) -> list[Module]:
    """Returns the modules below a folder; raises SyntaxError if one cannot be parsed."""
    return [_module(path) for path in sorted(source.rglob("*.py"))]


def _module(path: Path) -> Module:
    text = path.read_text("utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = sum(token.type == tokenize.COMMENT for token in tokens)
    nodes = tuple(ast.walk(ast.parse(text, str(path))))
    return Module(path, len(text.splitlines()), comments, nodes)


def measure(source: Path) -> Measures:
    modules = read(source)
    functions = [
        (_lines(function), f"{function.name} ({module.path.relative_to(source).as_posix()})")
        for module in modules
        for function in module.functions()
    ]
    names = Counter(name for module in modules for name in module.class_names())
    once = [found for package in _packages(modules) for found in _used_once(package)]
    dialects = source / "dialects"
    return Measures(
        files=Sizes.of(module.lines for module in modules),
        functions=Sizes.of(size for size, _ in functions),
        longest_function=max(functions, default=(0, "none"))[1],
        function_count=len(functions),
        called_once=once.count("called"),
        referenced_once=once.count("referenced"),
        class_count=len(names),
        shared_names=sum(count > 1 for count in names.values()),
        comment_lines=sum(module.comments for module in modules),
        docstring_lines=sum(module.docstring_lines() for module in modules),
        lines=sum(module.lines for module in modules),
        dialect_lines=sum(one.lines for one in modules if one.path.is_relative_to(dialects)),
    )


def _packages(modules: list[Module]) -> list[list[Module]]:
    """The modules, by the folder they are in."""
    packages: dict[Path, list[Module]] = {}
    for module in modules:
        packages.setdefault(module.path.parent, []).append(module)
    return list(packages.values())


def _used_once(package: list[Module]) -> list[Literal["called", "referenced"]]:
    """How each private function is used whose name occurs once in the folder."""
    used = Counter(name for module in package for name in module.references())
    called = Counter(name for module in package for name in module.calls())
    return [
        "called" if called[function.name] else "referenced"
        for module in package
        for function in module.functions()
        if _is_private(function.name) and used[function.name] == 1
    ]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"


def table(sources: Sequence[Path]) -> str:
    """Returns a Markdown table with one column for each source tree."""
    columns = [measure(source).rows() for source in sources]
    lines = ["| | " + " | ".join(source.name for source in sources) + " |"]
    lines.append("|---|" + "---|" * len(sources))
    lines += [
        f"| {cells[0][0]} | " + " | ".join(value for _, value in cells) + " |"
        for cells in zip(*columns, strict=True)
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure how a Python source tree is cut up.")
    parser.add_argument("src", nargs="*", type=Path, default=[DEFAULT], help="source folders")
    sources: list[Path] = parser.parse_args(arguments).src
    for source in sources:
        if not any(source.rglob("*.py")):
            parser.error(f"no Python files in {source}")
    sys.stdout.write(table([source.resolve() for source in sources]))


if __name__ == "__main__":
    main()
