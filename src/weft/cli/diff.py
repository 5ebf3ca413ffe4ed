"""`weft diff`: two captures or stored responses, item by item."""

import sys
from pathlib import Path

import click

from weft.cli.captures import write
from weft.cli.trace import is_capture, trace_capture, trace_response
from weft.trace import TraceRow, row_line
from weft.trace_diff import diff, event_diff, is_different

DIFFERENT = 1
"""The exit code for two streams that differ."""


def run(a: str, b: str | None, sent: bool, show_all: bool, config: Path | None) -> None:
    if sent == (b is not None) or (sent and is_capture(a)):
        raise click.UsageError("expected two streams, or one stored response and --sent")
    if b is None:
        before: list[TraceRow] = []
        trace_response(a, None, config, before.extend, sent=True)
        rows = event_diff(before, _rows(a, config))
    else:
        rows = diff(_rows(a, config), _rows(b, config))
    write(row_line(row) for row in rows if show_all or row.op != "same")
    sys.exit(DIFFERENT if is_different(rows) else 0)


def _rows(name: str, config: Path | None) -> list[TraceRow]:
    rows: list[TraceRow] = []
    if is_capture(name):
        trace_capture(name, None, None, rows.extend)
    else:
        trace_response(name, None, config, rows.extend)
    return rows
