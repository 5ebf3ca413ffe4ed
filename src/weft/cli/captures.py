"""What the commands that read a capture share: argument, options, error and finding lines."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from weft.codec import Decoded, decode_all, detect, in_order
from weft.dialects import DIALECTS, dialect_named
from weft.errors import Unreadable, WeftError

F = TypeVar("F", bound=Callable[..., Any])

UNREADABLE = 2
"""The exit code for a capture that cannot be read."""

READABLE = sorted(
    name
    for dialect in DIALECTS.values()
    if dialect.decoder is not None
    for name in (dialect.name, *dialect.aliases)
)
WRITABLE = sorted(
    name
    for dialect in DIALECTS.values()
    if dialect.encoder is not None
    for name in (dialect.name, *dialect.aliases)
)


class Capture:
    """The bytes of a capture, and the dialect they are in."""

    def __init__(self, path: str, source: str | None) -> None:
        self.path = path
        self.raw = _read(path)
        try:
            self.dialect = dialect_named(source).name if source else detect(self.raw)
        except WeftError as problem:
            raise self.unreadable(problem) from None

    def unreadable(self, problem: WeftError) -> click.ClickException:
        """One line: the file, the byte, the event, and what is wrong."""
        place = problem if isinstance(problem, Unreadable) else Unreadable("")
        return _OneLine(f"{self.path}: byte {place.offset}, event {place.event}: {problem}")

    def decoded(self) -> list[Decoded]:
        """Every response of the capture, and every choice of each."""
        try:
            return decode_all(self.raw, self.dialect)
        except WeftError as problem:
            raise self.unreadable(problem) from None

    def report(self, decoded: list[Decoded]) -> None:
        """Writes the findings to standard error, one line each, in the order of the capture."""
        for found in in_order(found for one in decoded for found in one.response.findings):
            click.echo(found.line(self.path), err=True)


class _OneLine(click.ClickException):
    exit_code = UNREADABLE

    def show(self, file: Any = None) -> None:
        click.echo(f"weft: {self.format_message()}", err=True)


def _read(path: str) -> bytes:
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        return Path(path).read_bytes()
    except OSError as problem:
        raise _OneLine(f"{path}: byte 0, event 0: {problem.strerror}") from None


def capture_argument(function: F) -> F:
    return click.argument("capture", metavar="CAPTURE")(function)


def from_option(function: F) -> F:
    return click.option(
        "--from",
        "source",
        type=click.Choice(READABLE),
        metavar="DIALECT",
        help=f"The dialect of the capture: {', '.join(READABLE)}; detected if left out.",
    )(function)


def quiet_option(function: F) -> F:
    return click.option(
        "--quiet", "-q", is_flag=True, help="Do not print findings to standard error."
    )(function)


def write_lines(values: Iterable[msgspec.Struct]) -> None:
    """Writes each value on one line, even if raw JSON inside it has line breaks."""
    for value in values:
        data = msgspec.json.encode(value)
        if b"\n" in data:
            data = msgspec.json.format(data, indent=-1)
        sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()  # while click can still be quiet about a reader that went away
