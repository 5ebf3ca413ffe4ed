"""`weft convert`: a capture, or a request body, in another dialect."""

import sys
from typing import NoReturn

import click

from weft.cli.captures import UNREADABLE, WRITABLE, Capture, capture_argument, from_option
from weft.codec import convert as converted
from weft.codec import convert_request
from weft.errors import BadRequest, Refused, UnknownDialect, WeftError

REFUSED = 1
"""The exit code for a request that the target cannot say."""


@click.command(short_help="A capture, or a request, in another dialect.")
@capture_argument
@from_option
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
def convert(capture: str, source: str | None, target: str, is_request: bool) -> None:
    """Write a CAPTURE as a stream of another dialect to standard output.

    Equal captures give equal bytes. Several responses follow one another.

    With --request, CAPTURE is a request body. The body for the other dialect goes to standard
    output as one line; each thing that it says differently goes to standard error, one line each:
    the path in CAPTURE, the outcome (adapted: the meaning is kept; warned: style or cost may
    differ), and why.

    Exit: 0, or 2 if the capture is unreadable. With --request also 1 if the target cannot say
    what is asked: the line on standard error tells the path and the reason.

    \b
      weft convert stream.sse --to openai-responses
      weft convert --request body.json --from openai-chat --to gemini
    """
    if is_request and source is None:
        raise click.UsageError("--request needs --from: a request does not tell its dialect.")
    read = Capture(capture, source)
    data = _request(read, target) if is_request else _stream(read, target)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()  # while click can still be quiet about a reader that went away


def _stream(read: Capture, target: str) -> bytes:
    try:
        return converted(read.raw, read.dialect, target)
    except WeftError as problem:
        raise read.unreadable(problem) from None


def _request(read: Capture, target: str) -> bytes:
    """The body for the target; what gets lost is told on standard error."""
    try:
        translated = convert_request(read.raw, read.dialect, target)
    except Refused as problem:
        _fail(str(problem), REFUSED)
    except BadRequest as problem:
        _fail(f"{read.path}: {problem}", UNREADABLE)
    except UnknownDialect as problem:
        _fail(str(problem), UNREADABLE)
    for loss in translated.losses:
        click.echo(f"{loss.path}: {loss.outcome}: {loss.detail}", err=True)
    return translated.body + b"\n"


def _fail(told: str, code: int) -> NoReturn:
    click.echo(f"weft: {told}", err=True)
    sys.exit(code)
