"""`weft convert`: a capture, or a request body, in another dialect."""

import sys
from typing import NoReturn

import click

from weft.cli.captures import (
    UNREADABLE,
    WRITABLE,
    Capture,
    capture_argument,
    from_option,
    quiet_option,
)
from weft.codec import convert as convert_capture
from weft.codec import convert_request
from weft.dialects import dialect_named
from weft.errors import BadRequest, Refused, UnknownDialect, WeftError

REFUSED = 1
"""The exit code for a request that the target dialect cannot express."""


@click.command(short_help="Convert a capture, or a request, to another dialect.")
@capture_argument
@from_option
@quiet_option
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(WRITABLE),
    metavar="DIALECT",
    help=f"The dialect to write: {', '.join(WRITABLE)}.",
)
@click.option(
    "--request",
    "is_request",
    is_flag=True,
    help="CAPTURE is the JSON body of a request; --from is required.",
)
def convert(capture: str, source: str | None, quiet: bool, target: str, is_request: bool) -> None:
    """Write a CAPTURE as a stream of another dialect to standard output.

    Equal captures give equal bytes. Several responses follow one another. Findings (what was
    repaired, and what the target dialect cannot carry) go to standard error, one line each.

    With --request, CAPTURE is a request body. The body for the other dialect goes to standard
    output as one line. Each difference goes to standard error as one line: the path in CAPTURE,
    the outcome (adapted: the meaning is kept; warned: style or cost may differ), and the reason.

    Exit: 0, or 2 if the capture is unreadable. With --request also 1 if the target dialect cannot
    express the request: the line on standard error gives the path and the reason.

    \b
      weft convert stream.sse --to openai-responses
      weft convert --request body.json --from openai-chat --to gemini
    """
    if is_request and source is None:
        raise click.UsageError("--request needs --from: the dialect of a request is not detected.")
    read = Capture(capture, source)
    data, lines = _request(read, target) if is_request else _stream(read, target)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()  # while click can still be quiet about a reader that went away
    if not quiet:
        for line in lines:
            click.echo(line, err=True)


def _stream(read: Capture, target: str) -> tuple[bytes, list[str]]:
    """The stream for the target, and a line for each finding."""
    try:
        converted = convert_capture(read.raw, read.dialect, dialect_named(target).name)
    except WeftError as problem:
        raise read.unreadable(problem) from None
    return converted, [one.line(read.path) for one in converted.findings]


def _request(read: Capture, target: str) -> tuple[bytes, list[str]]:
    """The body for the target, and a line for each difference."""
    try:
        translated = convert_request(read.raw, read.dialect, dialect_named(target).name)
    except Refused as problem:
        _fail(str(problem), REFUSED)
    except BadRequest as problem:
        _fail(f"{read.path}: {problem}", UNREADABLE)
    except UnknownDialect as problem:
        _fail(str(problem), UNREADABLE)
    lines = [f"{loss.path}: {loss.outcome}: {loss.detail}" for loss in translated.losses]
    return translated.body + b"\n", lines


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"weft: {message}", err=True)
    sys.exit(code)
