"""`weft parts`: a capture as guarded canonical parts."""

import click

from weft.cli.captures import Capture, capture_argument, from_option, write_lines
from weft.codec import decode_all
from weft.errors import WeftError


@click.command(short_help="A capture as canonical parts, one JSON a line.")
@capture_argument
@from_option
def parts(capture: str, source: str | None) -> None:
    """Print the guarded canonical parts of a CAPTURE, one JSON object a line.

    `type` comes first. Fields that hold their default are left out. Several responses, or
    choices, follow one another: each begins with response-metadata and ends with finish.

    Exit: 0, or 2 if the capture is unreadable.

    \b
      weft parts stream.sse
      curl -sN … | weft parts - --from openai-chat
    """
    read = Capture(capture, source)
    try:
        decoded = decode_all(read.raw, read.dialect)
    except WeftError as problem:
        raise read.unreadable(problem) from None
    write_lines(part for one in decoded for part in one.parts)
