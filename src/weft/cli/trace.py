"""`weft trace`: what each frame of a capture, or of a stored response, became."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from weft.cli.captures import UnreadableCapture, open_capture, write
from weft.cli.open_store import UnusableStore, settings_of, with_store
from weft.context import Context
from weft.dialects import DialectName, dialect_named
from weft.errors import Unreadable, WeftError
from weft.relay.persistence import Persistence
from weft.relay.redaction import ErrorRedactor
from weft.relay.rerun import ResponseTrace
from weft.scrub import Scrubber
from weft.store.base import Store
from weft.store.records import Entry
from weft.trace import CaptureTracer, EndRow, TraceRow, row_line
from weft.upstream.catalog import parse_quirks

DIFFERENT = 1
"""The exit code for a response whose events are not those that were sent."""

Show = Callable[[Iterable[TraceRow]], None]


def run(
    traced: str, source: str | None, target: str | None, quirks: str | None, config: Path | None
) -> None:
    """Prints the rows as they come."""
    written = None if target is None else dialect_named(target).name
    if is_capture(traced):
        trace_capture(traced, source, written, _print, quirks)
        return
    if quirks is not None:
        raise click.UsageError("--quirks is for captures: a stored response has its own")
    last = trace_response(traced, written, config, _print)
    sys.exit(DIFFERENT if last is not None and last.differ else 0)


def is_capture(name: str) -> bool:
    """Whether an argument names a capture: else it is the id of a response."""
    return name == "-" or Path(name).exists() or "/" in name or "." in name


def trace_capture(
    path: str,
    source: str | None,
    target: DialectName | None,
    show: Show,
    quirks: str | None = None,
) -> None:
    """Raises UnreadableCapture."""
    opened = open_capture(path, source)
    dialect = dialect_named(opened.dialect).name
    try:
        named = None if quirks is None else parse_quirks(quirks, dialect)
    except Unreadable as problem:
        raise click.UsageError(f"--quirks: {problem}") from None
    tracer = CaptureTracer(dialect, target, context=Context(quirks=named))
    try:
        for chunk in opened.chunks:
            show(tracer.feed(chunk))
        show(tracer.finish())
    except WeftError as problem:
        raise UnreadableCapture(path, problem) from None


def trace_response(
    id: str, target: DialectName | None, config: Path | None, show: Show, *, sent: bool = False
) -> EndRow | None:
    """Traces a response of the store that the settings name; with `sent`, from the events that its
    client was sent. Returns its last row. Raises UnusableStore."""
    settings = settings_of(config)
    redact = ErrorRedactor(Scrubber(settings.secrets))

    async def work(store: Store) -> EndRow | None:
        trace = ResponseTrace(Persistence(store), await stored_response(store, id), redact)
        await trace.open(target, sent=sent)
        last: TraceRow | None = None
        async for rows in trace.rows():
            show(rows)
            last = rows[-1] if rows else last
        return last if isinstance(last, EndRow) else None

    return with_store(settings.store.url, work)


async def stored_response(store: Store, id: str) -> Entry:
    """Raises UnusableStore if there is none."""
    entry = await store.entry(id)
    if entry is None:
        raise UnusableStore(f"{id}: neither a file nor a stored response")
    return entry


def _print(rows: Iterable[TraceRow]) -> None:
    write(map(row_line, rows))
