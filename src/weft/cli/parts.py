"""`weft parts`: a capture as guarded canonical parts."""

import click

from weft.cli.captures import (
    Capture,
    capture_argument,
    from_option,
    quiet_option,
    write_lines,
)


@click.command(short_help="Print a capture as canonical parts, one JSON object a line.")
@capture_argument
@from_option
@quiet_option
def parts(capture: str, source: str | None, quiet: bool) -> None:
    """Print the guarded canonical parts of a CAPTURE, one JSON object a line.

    `type` comes first. Fields that hold their default are left out. Several responses, or
    choices, follow one another: each begins with response-metadata and ends with finish.
    Findings (what was repaired) go to standard error, one line each.

    Exit: 0, or 2 if the capture is unreadable.

    \b
      weft parts stream.sse
      curl -sN … | weft parts - --from openai-chat
    """
    read = Capture(capture, source)
    decoded = read.decoded()
    write_lines(part for one in decoded for part in one.parts)
    if not quiet:
        read.report(decoded)
