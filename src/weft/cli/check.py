"""`weft check`: the linter for captured streams."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from importlib.metadata import version
from pathlib import Path

import click

from weft.check.checker import Checker, Report
from weft.check.report import (
    Checked,
    as_json,
    explanation,
    finding_line,
    has_violations,
    list_rules,
    summary,
    verdict_lines,
)
from weft.check.rules import Selection, rules_named, selection
from weft.check.sarif import as_sarif
from weft.check.sse_lines import Position
from weft.cli.captures import (
    UNREADABLE,
    OpenCapture,
    UnreadableCapture,
    chunks,
    open_capture,
    write,
)
from weft.dialects import dialect_named
from weft.dialects.rules import Severity
from weft.errors import WeftError
from weft.findings import Finding

VIOLATIONS = 1
"""The exit code for readable captures that break a rule."""

CAPTURE_SUFFIXES = (".sse", ".http")
"""In a folder, a file that ends so is a capture. Any other is one if it holds a known dialect."""

_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}


def run(
    captures: tuple[str, ...],
    dialect: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    form: str,
    explain: str | None,
    rules: bool,
) -> None:
    # Before any file is read: a misspelt rule must not make a check that finds nothing.
    try:
        chosen = selection(select, ignore)
        explained = rules_named(explain) if explain is not None else []
    except WeftError as problem:
        raise click.UsageError(str(problem)) from None
    if rules:
        click.echo(list_rules(), nl=False)
    elif explained:
        click.echo("\n".join(explanation(id) for id in explained), nl=False)
    else:
        sys.exit(_Check(list(_expand(captures)), dialect, chosen, form).run())


# Which files


@dataclass(frozen=True)
class _Target:
    """A file to check."""

    path: str
    is_certain: bool = True
    """False: a file of a folder that may be something else than a capture."""
    folder: str | None = None
    """The folder it was found in, if that was named and not the file."""


def _expand(arguments: Iterable[str]) -> Iterator[_Target]:
    """Yields files as they are named, and what folders and patterns hold, in order of name."""
    for argument in arguments:
        # A file may have `[` in its name, so that an existing path is no pattern. Patterns are
        # expanded for shells that do not, and for `**`, which most shells do not expand by default.
        if argument != "-" and not Path(argument).exists() and has_magic(argument):
            matches = sorted(glob(argument, recursive=True))  # noqa: PTH207 - also absolute ones
        else:
            matches = [argument]
        if not matches:
            yield _Target(argument)  # it is reported as a file that does not exist
        for match in matches:
            if match != "-" and Path(match).is_dir():
                yield from _folder(match)
            else:
                yield _Target(match)


def _folder(folder: str) -> Iterator[_Target]:
    """Yields the files of a folder, at any depth, or the folder itself if it has none. What begins
    with a dot is left out."""
    is_empty = True
    for where, folders, names in os.walk(folder):
        # In place: os.walk descends into what is left. Sorted, because the order of a file system
        # is not the same everywhere.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                is_certain = name.endswith(CAPTURE_SUFFIXES)
                is_empty = False
                yield _Target(str(Path(where) / name), is_certain, folder)
    if is_empty:
        yield _Target(folder, False, folder)


# Checking them


class _Progress:
    """How far a long check is: one line on standard error, if that is a terminal."""

    _MANY_FILES = 50
    _MANY_BYTES = 4 << 20

    def __init__(self, targets: list[_Target]) -> None:
        paths = [Path(one.path) for one in targets]
        self._total = sum(path.stat().st_size for path in paths if path.is_file())
        is_long = len(targets) > self._MANY_FILES or self._total > self._MANY_BYTES
        self._is_shown = is_long and sys.stderr.isatty()
        self._read = 0
        self._line = ""

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yields the bytes of a capture, and shows how far they are."""
        for chunk in chunks(path):
            self._read += len(chunk)
            percent = min(100 * self._read // max(self._total, 1), 100)
            line = f"{percent:3} % {path}"[:79]
            # The terminal is written to at each new percent, not at each chunk.
            if self._is_shown and line != self._line:
                self._line = line
                # Back to the first column, and what is left of a longer line erased (ECMA-48, EL).
                sys.stderr.write(f"\r{line}\x1b[K")
                sys.stderr.flush()
            yield chunk

    def clear(self) -> None:
        """Erases the line, so that something else can be printed."""
        if self._line:
            self._line = ""
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class _Check:
    """One run over all captures. Text is printed as soon as it is known."""

    def __init__(
        self, targets: list[_Target], dialect: str | None, chosen: Selection, form: str
    ) -> None:
        self._targets = targets
        self._dialect = None if dialect is None else dialect_named(dialect).name
        self._chosen = chosen
        self._form = form
        self._progress = _Progress(targets)
        self._checked: list[Checked] = []
        self._skipped = 0

    def run(self) -> int:
        """Checks all captures, prints the report and returns the exit code."""
        # A folder without any capture is probably a wrong path, which must not pass as good.
        empty = dict.fromkeys(one.folder for one in self._targets if one.folder is not None)
        for target in self._targets:
            if self._check(target) and target.folder is not None:
                empty.pop(target.folder, None)
        for folder in empty:
            self._unreadable(folder, UnreadableCapture(folder, "no capture in this folder"))
        self._progress.clear()
        if self._form == "text":
            click.echo(summary(self._checked, self._skipped))
        else:
            is_json = self._form == "json"
            report = as_json(self._checked) if is_json else as_sarif(self._checked, version("weft"))
            write((report,))
        # The worst counts: an unreadable capture may hide anything.
        if any(each.error for each in self._checked):
            return UNREADABLE
        return VIOLATIONS if has_violations(self._checked) else 0

    def _check(self, target: _Target) -> bool:
        """Checks one file; returns False for one of a folder that is no capture."""
        if target.path == target.folder:
            return False
        # Other files of a folder are detected: with a dialect given, any text could be read as one.
        dialect = self._dialect if target.is_certain else None
        try:
            opened = open_capture(target.path, dialect, self._progress.chunks)
        except UnreadableCapture as problem:
            if target.is_certain:
                self._unreadable(target.path, problem)
            else:
                self._skipped += 1
            return target.is_certain
        if self._dialect not in (None, opened.dialect):  # a folder may hold several dialects
            self._skipped += 1
            return False
        try:
            self._checked.append(Checked(target.path, self._report(opened)))
        except WeftError as problem:
            self._unreadable(target.path, UnreadableCapture(target.path, problem))
        except UnreadableCapture as problem:
            self._unreadable(target.path, problem)
        else:
            self._print(verdict_lines(self._checked[-1]))
        return True

    def _report(self, opened: OpenCapture) -> Report:
        """Checks one capture. What comes through a pipe is reported response by response."""
        checker = Checker(opened.dialect, selection=self._chosen)
        printed: set[Finding] = set()
        for chunk in opened.chunks:
            found = checker.feed(chunk)
            # Only a pipe may be slow. Findings of a file are printed at its end, in their order.
            if opened.path == "-":
                self._print_findings(opened.path, found, checker.position)
                if self._form == "text":
                    checker.forget()  # a pipe may have no end
                else:
                    printed.update(found)
        report = checker.finish()
        rest = [one for one in report.findings if one not in printed]
        self._print_findings(opened.path, rest, report.position)
        return report

    def _print_findings(
        self, path: str, found: Iterable[Finding], position: Callable[[Finding], Position]
    ) -> None:
        self._print([finding_line(path, one, position(one), _paint) for one in found])

    def _print(self, lines: list[str]) -> None:
        if lines and self._form == "text":
            self._progress.clear()
            click.echo("\n".join(lines))

    def _unreadable(self, path: str, problem: UnreadableCapture) -> None:
        """Reports an unreadable capture at once; the others are still checked."""
        self._progress.clear()
        problem.show()  # on standard error, in every format
        self._checked.append(Checked(path, error=problem.format_message()))


def _paint(word: str, severity: Severity) -> str:
    return click.style(word, fg=_COLOURS[severity])  # echo takes it away where it is no terminal
