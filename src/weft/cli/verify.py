"""`weft verify`: checks every stored response against the log of what was streamed."""

import asyncio
import os
import sys
from pathlib import Path

import click
from msgspec import ValidationError

from weft.cli.captures import UNREADABLE
from weft.errors import ClientError
from weft.gateway.settings import Settings, SettingsError, load
from weft.relay.audit import AuditSummary, Difference, audit
from weft.store.base import StoreError
from weft.store.urls import store_from_url

DIFFERENT = 1
"""The exit code for a store that differs from what was streamed."""

_FILE = "sqlite:///"


def run(config: Path | None) -> None:
    settings = _settings(config)
    try:
        done = asyncio.run(_audited(settings.store.url))
    except (StoreError, ClientError, ValidationError) as problem:  # the last: a row that is none
        raise _Unreadable(str(problem)) from None
    # On standard error: standard output has the differences alone, one a line.
    click.echo(summary(done), err=True)
    sys.exit(DIFFERENT if done.differences else 0)


def summary(done: AuditSummary) -> str:
    """One line about a whole store."""
    found = "no difference" if not done.differences else f"{done.differences} differences"
    found = "1 difference" if done.differences == 1 else found
    compared = f"{done.compared} compared with their logs"
    return f"{found}: {compared}, {done.pruned} without a log, {done.running} running"


def _settings(config: Path | None) -> Settings:
    try:
        return load(config, os.environ)
    except SettingsError as problem:
        raise _Unreadable(str(problem)) from None


async def _audited(url: str) -> AuditSummary:
    # SQLite would create the file, and an empty store has no difference.
    if url.startswith(_FILE) and not Path(url.removeprefix(_FILE)).is_file():
        raise _Unreadable(f"{url.removeprefix(_FILE)}: no such file")
    store = store_from_url(url)
    await store.open()
    try:
        # Differences are printed as they are found: a store may be large.
        return await audit(store, _print)
    finally:
        await store.close()


def _print(difference: Difference) -> None:
    click.echo(str(difference))


class _Unreadable(click.ClickException):
    exit_code = UNREADABLE
