"""`weft verify`: checks every stored response against the log of what was streamed."""

import sys
from pathlib import Path

import click

from weft.cli.open_store import settings_of, with_store
from weft.relay.audit import AuditSummary, Difference, audit
from weft.store.base import Store

DIFFERENT = 1
"""The exit code for a store that differs from what was streamed."""


def run(config: Path | None) -> None:
    done = with_store(settings_of(config).store.url, _audited)
    # On standard error: standard output has the differences alone, one a line.
    click.echo(summary(done), err=True)
    sys.exit(DIFFERENT if done.differences else 0)


def summary(done: AuditSummary) -> str:
    """One line about a whole store."""
    found = "no difference" if not done.differences else f"{done.differences} differences"
    found = "1 difference" if done.differences == 1 else found
    compared = f"{done.compared} compared with their logs"
    return f"{found}: {compared}, {done.pruned} without a log, {done.running} running"


async def _audited(store: Store) -> AuditSummary:
    # Differences are printed as they are found: a store may be large.
    return await audit(store, _print)


def _print(difference: Difference) -> None:
    click.echo(str(difference))
