"""What the commands that read a capture share: the input, errors, findings, lines of JSON."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from weft.captures import CaptureReader, ChoiceReader, Detector
from weft.dialects import dialect_named
from weft.errors import TooLarge, Unreadable, WeftError
from weft.findings import Finding

T = TypeVar("T")

UNREADABLE = 2
"""The exit code for a capture that cannot be read."""

# The capacity of a pipe on Linux (man 7 pipe).
_CHUNK = 64 * 1024
_STDIN = 0


class UnreadableCapture(click.ClickException):
    """A capture that cannot be read, as one line: the file, the byte, the event, the reason."""

    exit_code = UNREADABLE

    def __init__(self, path: str, problem: WeftError | str) -> None:
        offset, event = 0, 0
        # Others, such as a file that does not exist, have no place in the stream.
        if isinstance(problem, Unreadable | TooLarge):
            offset, event = problem.offset, problem.event
        super().__init__(f"{path}: byte {offset}, event {event}: {problem}")

    def show(self, file: Any = None) -> None:
        # click would print `Error: …`; tools that read captures have one form for all messages.
        click.echo(f"weft: {self.format_message()}", err=True)


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that only its owner can read: it may hold what people and models said."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def chunks(path: str) -> Iterator[bytes]:
    """Yields the bytes of a file, or of standard input, as they come."""
    try:
        if path == "-":
            # Returns what is there. sys.stdin.buffer.read would wait until the chunk is full, and a
            # live stream would stand still.
            while data := os.read(_STDIN, _CHUNK):
                yield data
        else:
            with Path(path).open("rb", buffering=0) as file:  # the chunks are large enough
                while data := file.read(_CHUNK):
                    yield data
    except OSError as problem:
        raise UnreadableCapture(path, problem.strerror or str(problem)) from None


@dataclass(frozen=True)
class OpenCapture:
    """A capture whose dialect is known."""

    path: str
    dialect: str
    chunks: Iterator[bytes]
    """All of its bytes, as they come."""


def open_capture(
    path: str, dialect: str | None, read: Callable[[str], Iterator[bytes]] = chunks
) -> OpenCapture:
    """Reads a capture as far as it takes to know its dialect, or that it is a stream at all.

    Raises UnreadableCapture.
    """
    detector = Detector(None if dialect is None else dialect_named(dialect).name)
    rest = read(path)
    # What detection has read is read again by the command: a pipe cannot be rewound.
    begin: list[bytes] = []
    try:
        for chunk in rest:
            begin.append(chunk)
            found = detector.feed(chunk)
            if found is not None:
                return OpenCapture(path, found, chain(begin, rest))
        return OpenCapture(path, detector.finish(), iter(begin))
    except WeftError as problem:
        raise UnreadableCapture(path, problem) from None


class FindingPrinter:
    """Prints the findings of a capture to standard error as they come, each once."""

    def __init__(self, path: str, *, quiet: bool) -> None:
        self._path = path
        self._quiet = quiet
        # How many findings of each choice were collected: `choice.findings` grows while it is read.
        self._shown: dict[ChoiceReader, int] = {}
        self._seen: set[Finding] = set()
        # Collected, not printed, while the reader runs: `ended` may be called in the middle of a
        # piece, before the output that the piece completes is written.
        self._ready: list[Finding] = []

    def ended(self, choices: list[ChoiceReader]) -> None:
        """Collects what is left of a response that has ended."""
        self._collect(choices)
        # Nothing of this response is reported again, so that memory does not grow with a capture.
        self._shown.clear()
        self._seen.clear()

    def print(self, choices: list[ChoiceReader]) -> None:
        """Prints what is new, also of the response that is being read."""
        self._collect(choices)
        for found in self._ready:
            click.echo(found.line(self._path), err=True)
        self._ready.clear()

    def _collect(self, choices: list[ChoiceReader]) -> None:
        if self._quiet:
            return
        for choice in choices:
            for found in choice.findings[self._shown.get(choice, 0) :]:
                if found not in self._seen:  # what several choices share is reported once
                    self._seen.add(found)
                    self._ready.append(found)
            self._shown[choice] = len(choice.findings)


def read_live(
    opened: OpenCapture, reader: CaptureReader[T], findings: FindingPrinter
) -> Iterator[list[T]]:
    """Yields what each piece of a capture completes, then prints the findings of that piece.

    Raises UnreadableCapture.
    """
    try:
        for chunk in opened.chunks:
            yield reader.feed(chunk)
            # After the consumer has written what was yielded, so that a finding follows its event.
            findings.print(reader.choices)
        yield reader.finish()
        findings.print([])
    except WeftError as problem:
        raise UnreadableCapture(opened.path, problem) from None


def write(data: Iterable[bytes]) -> None:
    """Writes at once: the reader of a pipe sees it as soon as it is known."""
    # One write for all that a piece completes, not one for each part.
    sys.stdout.buffer.write(b"".join(data))
    sys.stdout.buffer.flush()


def json_line(value: msgspec.Struct) -> bytes:
    """The value on one line, even if raw JSON inside it has line breaks."""
    data = msgspec.json.encode(value)
    return (msgspec.json.format(data, indent=-1) if b"\n" in data else data) + b"\n"
