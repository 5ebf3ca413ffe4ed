"""The store of the settings, for commands that use it without a gateway."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import click
from msgspec import ValidationError

from weft.cli.captures import UNREADABLE
from weft.errors import ClientError
from weft.gateway.settings import Settings, SettingsError, load
from weft.store.base import StoreError
from weft.store.sql import SqlStore
from weft.store.urls import store_from_url

T = TypeVar("T")

FILE = "sqlite:///"


class UnusableStore(click.ClickException):
    exit_code = UNREADABLE


def settings_of(config: Path | None, *, needs_store: bool = False) -> Settings:
    """Raises UnusableStore if the settings are invalid, or have no store that is needed."""
    try:
        settings = load(config, os.environ)
    except SettingsError as problem:
        raise UnusableStore(str(problem)) from None
    if needs_store and not settings.store.enabled:
        raise UnusableStore("this command needs the store, and store.enabled is false")
    return settings


@asynccontextmanager
async def open_store(url: str, *, creates: bool = False) -> AsyncIterator[SqlStore]:
    """`creates`: whether an SQLite file that does not exist is created. Raises UnusableStore,
    StoreError."""
    # SQLite would create the file, and an empty store holds nothing to read.
    if not creates and url.startswith(FILE) and not Path(url.removeprefix(FILE)).is_file():
        raise UnusableStore(f"{url.removeprefix(FILE)}: no such file")
    store = store_from_url(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def with_store(
    url: str,
    work: Callable[[SqlStore], Awaitable[T]],
    *,
    creates: bool = False,
    refused: type[click.ClickException] = UnusableStore,
) -> T:
    """Runs `work` with the open store; `creates` is as for `open_store`. Raises UnusableStore, and
    `refused` for what the store refuses to do."""

    async def main() -> T:
        async with open_store(url, creates=creates) as store:
            return await work(store)

    try:
        return asyncio.run(main())
    except (StoreError, ValidationError) as problem:  # the latter: a stored row cannot be read
        raise UnusableStore(str(problem)) from None
    except ClientError as problem:
        raise refused(str(problem)) from None
