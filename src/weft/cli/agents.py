"""What the commands about agents share: settings, exit codes, and a runtime that only writes."""

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from weft.agent.dispatch import dispatcher_from_url
from weft.agent.models import RelayModels
from weft.agent.runtime import AgentRuntime
from weft.cli.open_store import open_store
from weft.gateway.app import Gateway
from weft.gateway.settings import Settings, SettingsError
from weft.relay.incoming import RequestLimits
from weft.relay.persistence import Persistence
from weft.relay.routing import Routing
from weft.scrub import Scrubber
from weft.store.base import Store


def silent_gateway(settings: Settings, own_runs: bool = False) -> Gateway:
    """A gateway that does not listen, and works on runs."""
    if own_runs and not settings.agents:
        raise click.ClickException("the settings have no agents: add one as [agents.NAME]")
    try:
        return Gateway(settings, own_runs)
    except SettingsError as problem:
        raise click.ClickException(str(problem)) from None


@asynccontextmanager
async def runtime_to_write(
    settings: Settings, hints: bool
) -> AsyncIterator[tuple[AgentRuntime, Store]]:
    """A runtime that works on nothing: for reading runs, and for deciding about them. `hints`:
    whether other processes get a hint of what is written."""
    url = settings.store.url
    async with open_store(url) as store:
        kind = settings.workers.dispatcher if hints else "local"
        dispatcher = dispatcher_from_url(store, url, kind=kind, lease=settings.workers.lease)
        await dispatcher.open()
        try:
            routing, scrub = Routing({}, {}), Scrubber(settings.secrets)
            models = RelayModels(routing, Persistence(store), RequestLimits(), scrub)
            yield AgentRuntime(store, (), models, dispatcher=dispatcher), store
        finally:
            await dispatcher.close()


def who() -> str:
    """The name under which decisions of this terminal are logged."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without users
        return "cli"
