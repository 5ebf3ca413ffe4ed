"""`weft verify`: the audit of the store."""

import asyncio
import os
import sys
from pathlib import Path

import click
from msgspec import ValidationError

from weft.cli.captures import UNREADABLE
from weft.errors import ClientError
from weft.gateway.settings import Settings, SettingsError, load
from weft.relay.audit import Audited, Difference, audit
from weft.store.base import StoreError
from weft.store.opening import store_at

DIFFERENT = 1
"""The exit code for a store that holds something else than was told."""

_FILE = "sqlite:///"


@click.command(short_help="Audit the store: what is kept is what was told.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The settings. Left out: WEFT_CONFIG, else weft.toml here, else the defaults.",
)
def verify(config: Path | None) -> None:
    """Compare every stored response with the log of what its client was told.

    The log must have the digest, the events and the size that were noted when the response
    ended; the stored record, body and status must say what the log says; and whatever a response
    goes on from must belong to the same key. A log that was removed for its age
    (store.log_retention) and a response that still runs are counted, and not compared. The server
    may be running meanwhile.

    Prints each difference on a line: the id of the response, the part of it that differs, and
    how; at the end, how many responses were compared, to standard error.

    Exit: 0 if there is no difference, 1 if there is one, 2 if the store cannot be read.

    \b
      weft verify
      weft verify --config /etc/weft.toml
    """
    settings = _settings(config)
    try:
        done = asyncio.run(_audited(settings.store.url))
    except (StoreError, ClientError, ValidationError) as problem:  # the last: a row that is none
        raise _Unreadable(str(problem)) from None
    click.echo(summary(done), err=True)
    sys.exit(DIFFERENT if done.differences else 0)


def summary(done: Audited) -> str:
    """One line about a whole store."""
    found = "no difference" if not done.differences else f"{done.differences} differences"
    found = "1 difference" if done.differences == 1 else found
    compared = f"{done.whole} compared with their logs"
    return f"{found}: {compared}, {done.pruned} without a log, {done.running} running"


def _settings(config: Path | None) -> Settings:
    try:
        return load(config, os.environ)
    except SettingsError as problem:
        raise _Unreadable(str(problem)) from None


async def _audited(url: str) -> Audited:
    if url.startswith(_FILE) and not Path(url.removeprefix(_FILE)).is_file():
        raise _Unreadable(f"{url.removeprefix(_FILE)}: there is no such store")
    store = store_at(url)
    await store.open()
    try:
        return await audit(store, _told)
    finally:
        await store.close()


def _told(difference: Difference) -> None:
    click.echo(str(difference))


class _Unreadable(click.ClickException):
    exit_code = UNREADABLE
