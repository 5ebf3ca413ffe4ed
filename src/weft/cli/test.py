"""`weft test`: decodes the captures of a folder, and compares the parts with their goldens."""

import sys
from difflib import unified_diff
from pathlib import Path

import click

from weft.captures import detect
from weft.cases import CONTEXT, GOLDEN, golden_of, read_context, stated_dialect
from weft.cli.captures import UnreadableCapture
from weft.dialects import DIALECTS, DialectName
from weft.errors import WeftError

FAILED = 1
"""The exit code for a capture that differs from its golden, or has none."""

SUFFIXES = (".sse", ".json", ".jsonl", ".ndjson")
LINES = 20
"""Lines of a difference that are printed."""


def run(folder: Path, update: bool) -> None:
    captures = find_captures(folder)
    if not captures:
        raise UnreadableCapture(str(folder), "no capture in this folder")
    failed = sum(not _passes(path, update=update) for path in captures)
    word = "written" if update else "passed"
    click.echo(f"{len(captures) - failed} {word}, {failed} failed", err=True)
    sys.exit(FAILED if failed else 0)


def find_captures(folder: Path) -> list[Path]:
    """The captures below a folder: of files other than .sse, only those that have a golden."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES
        and not path.name.endswith((GOLDEN, CONTEXT))
        and (path.suffix == ".sse" or golden_path(path).exists())
    )


def golden_path(path: Path) -> Path:
    return path.with_name(path.stem + GOLDEN)


def _passes(path: Path, *, update: bool) -> bool:
    """Compares a capture with its golden, or writes it."""
    raw, golden = path.read_bytes(), golden_path(path)
    try:
        parts = golden_of(raw, _dialect(path, raw), read_context(path))
    except WeftError as problem:
        click.echo(f"{path}: {problem}")
        return False
    if update:
        golden.write_bytes(parts)
        return True
    if not golden.exists():
        click.echo(f"{path}: no {golden.name}; `weft test --update` writes it")
        return False
    expected = golden.read_bytes()
    if parts == expected:
        return True
    lines = unified_diff(
        expected.decode("utf-8", "replace").splitlines(),
        parts.decode("utf-8", "replace").splitlines(),
        str(golden),
        str(path),
        lineterm="",
        n=1,
    )
    shown = list(lines)
    click.echo("\n".join(shown[:LINES]))
    if len(shown) > LINES:
        click.echo(f"({len(shown) - LINES} more lines)")
    return False


def _dialect(path: Path, raw: bytes) -> DialectName:
    """What the capture says; otherwise the folder that has the name of a dialect, or what the
    capture looks like. Raises Unreadable."""
    stated = stated_dialect(raw)
    if stated is not None:
        return stated
    for folder in path.parents:
        named = DIALECTS.get(folder.name.replace("_", "-"))
        if named is not None:
            return named.name
    return detect(raw)
