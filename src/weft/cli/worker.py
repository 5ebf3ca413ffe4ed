"""`weft worker`: works on the runs of agents, without listening for requests."""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from weft.agent.dispatch import MissingQueue
from weft.cli.agents import StoreUnreadable, gateway_with_agents, settings_with_store
from weft.gateway.app import Gateway
from weft.store.base import StoreError


def run(config: Path | None, concurrency: int | None) -> None:
    settings = settings_with_store(config)
    if concurrency is not None:
        workers = msgspec.structs.replace(settings.workers, concurrency=concurrency)
        settings = replace(settings, workers=workers)
    try:
        sys.exit(asyncio.run(_serve(gateway_with_agents(settings), list(settings.agents))))
    except MissingQueue as problem:
        raise click.ClickException(str(problem)) from None
    except StoreError as problem:
        raise StoreUnreadable(str(problem)) from None


async def _serve(gateway: Gateway, agents: list[str]) -> int:
    stopped = asyncio.Event()

    def stop(number: int) -> None:
        if stopped.is_set():
            # At once: the leases expire, and others take the runs over.
            os._exit(128 + number)
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    async with gateway.running():
        click.echo(f"working on runs of {', '.join(agents)}")
        await stopped.wait()
        gateway.drain()
    return 0
