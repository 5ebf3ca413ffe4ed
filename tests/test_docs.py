"""The documents keep their word: their code runs, their commands print what they show, and their
links lead somewhere.

A `python` block is run; the blocks of one page share their names. A `console` block holds lines
`$ command`, each followed by what it prints; a line `…` stands for any lines. Blocks of another
language are for reading. A command that starts a server, or is a `make` target, is not run: the
target must exist.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tables import each_row

ROOT = Path(__file__).parents[1]
PAGES = [
    path
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")))
    if path.exists()
]
NOT_RUN = ("make", "git clone", "cd", "pip install", "apt-get", "weft serve")
"""Commands that are shown and not run: they build, fetch, or go on for ever."""
ANYTHING = "…"

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
TARGET = re.compile(r"^([\w-]+):", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One fenced block of a page."""

    language: str
    body: str
    line: int


@dataclass(frozen=True)
class Command:
    line: str
    expected: str


def examples(text: str) -> list[Example]:
    found = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        body = "".join(
            line.removeprefix(indent) for line in match["body"].splitlines(keepends=True)
        )
        line = text.count("\n", 0, match.start()) + 1
        found.append(Example(match["language"], body, line))
    return found


def commands(body: str) -> list[Command]:
    """The `$ command` lines of a console block; a trailing backslash goes on with the next."""
    found: list[Command] = []
    for piece in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        match = re.match(r"(?:.*\\\n)*.*\n?", piece)
        head = match.group() if match else piece
        found.append(Command(head.rstrip("\n"), piece[len(head) :]))
    return found


def prints(expected: str, printed: str) -> bool:
    """Whether this is what was shown, where a line `…` stands for any lines, or none."""
    pieces = [
        ".*" if line.strip() == ANYTHING else re.escape(line.rstrip()) + "\n"
        for line in expected.splitlines()
    ]
    tidy = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    return re.fullmatch("".join(pieces), tidy, re.DOTALL) is not None


def is_run(command: str) -> bool:
    return not any(command == word or command.startswith(word + " ") for word in NOT_RUN)


def make_targets() -> set[str]:
    return set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))


def blocks(page: Path, *languages: str) -> list[Example]:
    found = examples(page.read_text("utf-8"))
    return [example for example in found if example.language in languages]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(io.StringIO()):
        for example in blocks(page, "python"):
            above = "\n" * example.line  # so that a traceback names the line of the page
            exec(compile(above + example.body, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_commands_of_a_page_print_what_it_shows(page: Path) -> None:
    for example in blocks(page, "console"):
        for command in commands(example.body):
            if is_run(command.line):
                printed = output(command.line)
                place = f"{name(page)}, line {example.line}: $ {command.line}"
                assert prints(command.expected, printed), f"{place}\n{printed}"


def output(command: str) -> str:
    """What a command prints, on either stream, in the repository and with its `weft`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


@each_row("page", PAGES, ids=name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    shown = "\n".join(one.body for one in blocks(page, "console", "sh", "bash", ""))
    named = re.findall(r"`make ([\w-]+)", text) + re.findall(
        r"^(?:\$ )?make ([\w-]+)", shown, re.MULTILINE
    )
    assert set(named) <= make_targets()


def broken_links(text: str, folder: Path) -> list[str]:
    plain = FENCE.sub("", text)
    targets = [match["target"] or match["image"] for match in LINK.finditer(plain)]
    relative = [one.partition("#")[0] for one in targets if not re.match(r"[a-z]+:|#", one)]
    return [one for one in relative if not (folder / one).exists()]


@each_row("page", PAGES, ids=name)
def test_every_link_inside_the_repository_leads_to_a_file(page: Path) -> None:
    assert broken_links(page.read_text("utf-8"), page.parent) == []


# The reading of pages itself


def test_the_blocks_of_a_page_are_found_with_their_language_and_line() -> None:
    page = "# A\n\n```python\nx = 1\n```\n\n1. so\n\n   ```console\n   $ a\n   b\n   ```\n"
    assert examples(page) == [
        Example("python", "x = 1\n", 3),
        Example("console", "$ a\nb\n", 9),
    ]


def test_a_console_block_is_commands_with_what_they_print() -> None:
    body = "$ one\na\nb\n$ two \\\n    more\n$ three\n…\n"
    assert commands(body) == [
        Command("one", "a\nb\n"),
        Command("two \\\n    more", ""),
        Command("three", "…\n"),
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a  \n", True),
        ("a\n", "a\nb\n", False),
        ("a\n…\n", "a\nb\nc\n", True),
        ("a\n…\n", "a\n", True),
        ("a\n…\nz\n", "a\nb\n", False),
        ("…\nz\n", "a\nz\n", True),
        ("", "", True),
        ("", "a\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_what_is_printed_is_compared_line_by_line(expected: str, printed: str, same: bool) -> None:
    assert prints(expected, printed) is same


def test_what_is_not_run_is_an_explicit_list() -> None:
    assert [is_run(line) for line in ("make test", "weft serve", "make")] == [False] * 3
    assert [is_run(line) for line in ("weft parts a", "makefile", "echo make")] == [True] * 3


def test_a_link_to_nowhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "there.md").touch()
    text = "[a](there.md#x) [b](https://x.example) [c](#here) [d](gone.md) ![e](gone.png)"
    assert broken_links(text, tmp_path) == ["gone.md", "gone.png"]
