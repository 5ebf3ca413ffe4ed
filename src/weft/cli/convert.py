"""`weft convert`: a capture in another dialect."""

import sys

import click

from weft.cli.captures import WRITABLE, Capture, capture_argument, from_option
from weft.codec import convert as converted
from weft.errors import WeftError


@click.command(short_help="A capture as a stream of another dialect.")
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
def convert(capture: str, source: str | None, target: str) -> None:
    """Write a CAPTURE as a stream of another dialect to standard output.

    Equal captures give equal bytes. Several responses follow one another.

    Exit: 0, or 2 if the capture is unreadable.

    \b
      weft convert stream.sse --to openai-responses
    """
    read = Capture(capture, source)
    try:
        data = converted(read.raw, read.dialect, target)
    except WeftError as problem:
        raise read.unreadable(problem) from None
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()  # while click can still be quiet about a reader that went away
