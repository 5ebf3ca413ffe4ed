"""`weft convert`: a capture, or a request body, in another dialect."""

import sys
from typing import NoReturn

import click

from weft.captures import CaptureReader, ChoiceConverter
from weft.cli.captures import (
    UNREADABLE,
    FindingPrinter,
    chunks,
    open_capture,
    read_live,
    write,
)
from weft.codec import convert_request
from weft.dialects import dialect_named
from weft.errors import BadRequest, Refused, UnknownDialect

REFUSED = 1
"""The exit code for a request that the target dialect cannot express."""


def run(capture: str, source: str | None, quiet: bool, target: str, is_request: bool) -> None:
    """Writes the events of the target as those of the capture come; or the body of a request."""
    # `commands.py` requires --from with --request, because bodies of requests look alike.
    if is_request and source is not None:
        _convert_request(capture, source, target, quiet=quiet)
        return
    opened = open_capture(capture, source)
    findings = FindingPrinter(capture, quiet=quiet)
    written = dialect_named(target).name
    reader = CaptureReader[bytes](
        opened.dialect, lambda choice: ChoiceConverter(choice, written), ended=findings.ended
    )
    for events in read_live(opened, reader, findings):
        write(events)


def _convert_request(path: str, source: str, target: str, *, quiet: bool) -> None:
    """Writes the body for the target, and a line for each difference."""
    try:
        # Read whole: a request is one JSON value.
        translated = convert_request(
            b"".join(chunks(path)), dialect_named(source).name, dialect_named(target).name
        )
    except Refused as problem:
        # The body is good, but the target cannot express it. BadRequest: the body is wrong.
        _fail(str(problem), REFUSED)
    except BadRequest as problem:
        _fail(f"{path}: {problem}", UNREADABLE)
    except UnknownDialect as problem:
        _fail(str(problem), UNREADABLE)
    write((translated.body, b"\n"))
    if not quiet:
        for loss in translated.losses:
            click.echo(f"{loss.path}: {loss.outcome}: {loss.detail}", err=True)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"weft: {message}", err=True)
    sys.exit(code)
