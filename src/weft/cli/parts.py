"""`weft parts`: a capture as guarded canonical parts."""

from weft.captures import CaptureReader
from weft.cli.captures import FindingPrinter, UnreadableCapture, json_line, open_capture, write
from weft.errors import WeftError
from weft.parts import Part


def run(capture: str, source: str | None, quiet: bool) -> None:
    """Prints the parts of each event as it comes."""
    opened = open_capture(capture, source)
    findings = FindingPrinter(capture, quiet=quiet)
    reader = CaptureReader[Part](opened.dialect, lambda choice: choice, ended=findings.ended)
    try:
        for chunk in opened.chunks:
            write(map(json_line, reader.feed(chunk)))
            findings.print(reader.choices)
        write(map(json_line, reader.finish()))
        findings.print([])
    except WeftError as problem:
        raise UnreadableCapture(capture, problem) from None
