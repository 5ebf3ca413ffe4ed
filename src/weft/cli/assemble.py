"""`weft assemble`: each response of a capture as one JSON object."""

from weft.assembled import assembled
from weft.captures import CaptureReader, ChoiceReader
from weft.cli.captures import FindingPrinter, json_line, open_capture, read_live, write
from weft.parts import Part


def run(capture: str, source: str | None, quiet: bool) -> None:
    """Prints each response as soon as it has ended."""
    opened = open_capture(capture, source)
    findings = FindingPrinter(capture, quiet=quiet)

    # A response is complete when the next one begins, or at the end of the input: nothing of it is
    # printed before, because a late error makes its calls invalid.
    def ended(choices: list[ChoiceReader]) -> None:
        write(json_line(assembled(choice.response)) for choice in choices)
        findings.ended(choices)

    reader = CaptureReader[Part](opened.dialect, lambda choice: choice, ended=ended)
    for _ in read_live(opened, reader, findings):
        pass  # `ended` writes
