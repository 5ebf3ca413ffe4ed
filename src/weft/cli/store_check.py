"""Whether the store of the settings can be used, before anything depends on it."""

import asyncio
import os
from pathlib import Path

import click

from weft.cli.open_store import FILE, UnusableStore, with_store
from weft.gateway.settings import Settings
from weft.store.accounts import StoredKey


def store_problem(settings: Settings, *, create: bool) -> str | None:
    """Opens the store; returns a sentence if that fails. `create`: an SQLite file that does not
    exist is created; otherwise it is only checked that it could be."""
    if not settings.store.enabled:
        return None
    file = Path(settings.store.url.removeprefix(FILE))
    is_new = settings.store.url.startswith(FILE) and not file.exists()
    reason: str | None = None
    if is_new and not file.parent.is_dir():
        reason = f"the folder {file.parent.absolute()} does not exist"
    elif is_new and not os.access(file.parent, os.W_OK):
        reason = f"the folder {file.parent.absolute()} is not writable"
    elif create or not is_new:
        try:
            with_store(settings.store.url, lambda store: asyncio.sleep(0), creates=True)
        except click.ClickException as problem:
            reason = problem.message
    if reason is None:
        return None
    name = store_name(settings)
    for prefix in (f"{file}: ", f"{name}: ", "SQLite: "):  # said once is enough
        reason = reason.removeprefix(prefix)
    return f"cannot open the store {name}: {reason}"


def stored_keys(settings: Settings) -> list[StoredKey]:
    """The client keys in the store, also revoked ones. Raises ClickException."""
    file = Path(settings.store.url.removeprefix(FILE))
    is_new = settings.store.url.startswith(FILE) and not file.exists()
    if is_new or not settings.store.enabled:
        return []
    try:
        return with_store(settings.store.url, lambda store: store.accounts.keys())
    except UnusableStore as problem:
        raise click.ClickException(f"the store cannot be used: {problem.message}") from None


def store_name(settings: Settings) -> str:
    """The store without what may be secret: the path of a file, the kind of other databases."""
    url = settings.store.url
    return str(Path(url.removeprefix(FILE)).absolute()) if url.startswith(FILE) else "PostgreSQL"
