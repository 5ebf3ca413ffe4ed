"""What the commands about agents share: settings, exit codes, and a runtime that only writes."""

import getpass
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from weft.agent.dispatch import dispatcher_from_url
from weft.agent.models import RelayModels
from weft.agent.runtime import Runtime
from weft.cli.captures import UNREADABLE
from weft.gateway.app import Gateway
from weft.gateway.settings import Settings, SettingsError, load
from weft.relay.incoming import RequestLimits
from weft.relay.persistence import Persistence
from weft.relay.routing import Routing
from weft.scrub import Scrubber
from weft.store.base import Store
from weft.store.urls import store_from_url

_FILE = "sqlite:///"


class StoreUnreadable(click.ClickException):
    exit_code = UNREADABLE


def settings_with_store(config: Path | None) -> Settings:
    try:
        settings = load(config, os.environ)
    except SettingsError as problem:
        raise StoreUnreadable(str(problem)) from None
    if not settings.store.enabled:
        raise StoreUnreadable("runs are in the store, and store.enabled is false")
    return settings


def gateway_with_agents(settings: Settings, own_runs: bool = False) -> Gateway:
    """A gateway that does not listen, and works on runs."""
    if not settings.agents:
        raise click.ClickException("the settings have no agents: add one as [agents.NAME]")
    try:
        return Gateway(settings, own_runs)
    except SettingsError as problem:
        raise click.ClickException(str(problem)) from None


@asynccontextmanager
async def runtime_to_write(settings: Settings, hints: bool) -> AsyncIterator[tuple[Runtime, Store]]:
    """A runtime that works on nothing: for reading runs, and for deciding about them. `hints`:
    whether others are told of what is written."""
    url = settings.store.url
    # SQLite would create the file, and an empty store has no runs.
    if url.startswith(_FILE) and not Path(url.removeprefix(_FILE)).is_file():
        raise StoreUnreadable(f"{url.removeprefix(_FILE)}: no such file")
    store = store_from_url(url)
    await store.open()
    try:
        kind = settings.workers.dispatcher if hints else "local"
        dispatcher = dispatcher_from_url(store, url, kind=kind, lease=settings.workers.lease)
        await dispatcher.open()
        try:
            routing, scrub = Routing({}, {}), Scrubber(settings.secrets)
            models = RelayModels(routing, Persistence(store), RequestLimits(), scrub)
            yield Runtime(store, (), models, dispatcher=dispatcher), store
        finally:
            await dispatcher.close()
    finally:
        await store.close()


def who() -> str:
    """The name under which decisions of this terminal are logged."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without users
        return "cli"
