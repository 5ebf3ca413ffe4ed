"""The Python of the documents passes `mypy --strict`, in one run of mypy for all of it.

The `python` blocks of a page are one module, as they share their names when they are run; a `py`
block is a module by itself. Every block keeps its line, so an error names the line of the page.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.test_docs import PAGES, ROOT, Example, blocks
from weft.parts import AnyPart

NARROWED = """\
from typing import assert_type

import weft


def narrowed(part: weft.AnyPart) -> None:
{branches}


def matched(part: weft.AnyPart) -> str:
    match part.type:
{cases}


def first(stream: weft.DecodedStream) -> str:
    for part in stream:
        if part.type == "text-delta":
            return part.delta
    return ""
"""


def padded(page: list[Example]) -> str:
    """The blocks as one module, each at the line where it stands in its page."""
    lines: list[str] = []
    for example in page:
        lines += [""] * (example.line - len(lines))
        lines += example.body.splitlines()
    return "\n".join(lines) + "\n"


def narrowing() -> str:
    """A module that is right only if the type of each part narrows the union to its class."""
    parts = [(one.type, one.__name__) for one in get_args(AnyPart)]
    branches = [
        f'    if part.type == "{type}":\n        assert_type(part, weft.{name})'
        for type, name in parts
    ]
    cases = [
        f'        case "{type}":\n            return assert_type(part, weft.{name}).type'
        for type, name in parts
    ]
    return NARROWED.format(branches="\n".join(branches), cases="\n".join(cases))


def modules(folder: Path) -> list[Path]:
    """Writes every example to a file of its own name."""
    found: dict[str, str] = {"narrowing": narrowing()}
    for page in PAGES:
        stem = re.sub(r"\W", "_", page.stem).lower()
        if shared := blocks(page, "python"):
            found[f"{stem}_page"] = padded(shared)
        for example in blocks(page, "py"):
            found[f"{stem}_line_{example.line}"] = padded([example])
    for name, text in found.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    return sorted(folder.iterdir())


def mypy(files: list[Path]) -> str:
    """What mypy prints. The settings are those of `make check`, so the cache is shared with it."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.long
def test_the_python_of_the_documents_passes_mypy(tmp_path: Path) -> None:
    assert mypy(modules(tmp_path)) == ""


def test_an_example_keeps_its_line() -> None:
    page = [Example("python", "a = 1\n", 3), Example("python", "b = 2\nc = 3\n", 8)]
    lines = padded(page).splitlines()
    assert (lines[3], lines[8], lines[9]) == ("a = 1", "b = 2", "c = 3")
