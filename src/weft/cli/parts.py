"""`weft parts`: a capture as guarded canonical parts."""

from weft.captures import CaptureReader
from weft.cli.captures import FindingPrinter, json_line, open_capture, read_live, write
from weft.parts import Part


def run(capture: str, source: str | None, quiet: bool) -> None:
    """Prints the parts of each event as it comes."""
    opened = open_capture(capture, source)
    findings = FindingPrinter(capture, quiet=quiet)
    reader = CaptureReader[Part](opened.dialect, lambda choice: choice, ended=findings.ended)
    for found in read_live(opened, reader, findings):
        write(map(json_line, found))
