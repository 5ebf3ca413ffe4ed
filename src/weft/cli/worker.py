"""`weft worker`: works on runs and background responses, without listening for requests; for
metrics it may."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from weft.agent.dispatch import MissingQueue
from weft.cli.agents import silent_gateway
from weft.cli.open_store import UnusableStore, settings_of
from weft.cli.store_check import stored_keys
from weft.gateway.app import Gateway
from weft.gateway.settings import Settings
from weft.gateway.side_server import side_server
from weft.store.base import StoreError
from weft.upstream.urls import is_loopback

MAX_PORT = 65_535


def run(config: Path | None, concurrency: int | None, metrics: str | None) -> None:
    settings = settings_of(config, needs_store=True)
    if concurrency is not None:
        workers = msgspec.structs.replace(settings.workers, concurrency=concurrency)
        settings = replace(settings, workers=workers)
    if metrics is not None:
        settings = _with_metrics(settings, metrics)
    try:
        gateway = silent_gateway(settings)
        sys.exit(asyncio.run(_serve(gateway, settings, with_metrics=metrics is not None)))
    except MissingQueue as problem:
        raise click.ClickException(str(problem)) from None
    except StoreError as problem:
        raise UnusableStore(str(problem)) from None
    except OSError as problem:
        if metrics is None:
            raise
        message = f"cannot listen on {metrics}: {problem.strerror}"
        raise click.ClickException(message) from None


def _with_metrics(settings: Settings, address: str) -> Settings:
    """The settings of a worker that listens there for who asks for metrics. Raises
    ClickException."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise click.UsageError(f"--metrics {address!r}: expected HOST:PORT")
    mode = settings.server.metrics
    if mode == "off":
        raise click.ClickException('--metrics: server.metrics is "off" in the settings')
    # As for a gateway: anybody who can connect would see it.
    if not (is_loopback(host) or mode == "public" or settings.keys or stored_keys(settings)):
        raise click.ClickException(
            f"{host} is reachable from other machines and no client keys are set: run weft keys "
            'create, set [server.keys], or set server.metrics = "public"'
        )
    server = msgspec.structs.replace(settings.server, host=host, port=int(port))
    return replace(settings, server=server)


async def _serve(gateway: Gateway, settings: Settings, *, with_metrics: bool) -> int:
    stopped = asyncio.Event()

    def stop(number: int) -> None:
        if stopped.is_set():
            # At once: the leases expire, and others take the runs over.
            os._exit(128 + number)
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    async with gateway.running(), AsyncExitStack() as stack:
        if with_metrics:
            server = settings.server
            listening = side_server(gateway.probes, server.host, server.port)
            click.echo(f"metrics on {await stack.enter_async_context(listening)}/metrics")
        agents = ", ".join(settings.agents)
        runs = f" and the runs of {agents}" if agents else ""
        click.echo(f"working on background responses{runs}")
        await stopped.wait()
        gateway.drain()
    return 0
