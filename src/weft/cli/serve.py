"""`weft serve`: the gateway."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from socket import socket

import click
import msgspec

from weft.gateway.app import Gateway
from weft.gateway.http_protocol import ConnectionLimits
from weft.gateway.server import serve as run_server
from weft.gateway.settings import Settings, SettingsError, load
from weft.gateway.settings.urls import is_loopback
from weft.gateway.workers import supervise


def run(
    config: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    insecure: bool,
    reject_lossy: bool,
) -> None:
    settings = _settings(config)
    server = settings.server
    changed = {"host": host, "port": port, "workers": workers, "reject_lossy": reject_lossy or None}
    # An option that was not given leaves the setting as it is; a flag can only switch on.
    given = {name: value for name, value in changed.items() if value is not None}
    settings = replace(settings, server=msgspec.structs.replace(server, **given))
    # An open gateway spends the owner's money: it has to be asked for.
    if not (settings.keys or insecure or is_loopback(settings.server.host)):
        raise click.ClickException(
            f"{settings.server.host} is reachable from other machines and no client keys are set: "
            "set [server.keys], or use --insecure"
        )
    try:
        sys.exit(_serve(settings))
    except OSError as problem:
        # The port is taken, or needs privileges.
        place = f"{settings.server.host}:{settings.server.port}"
        raise click.ClickException(f"cannot listen on {place}: {problem.strerror}") from None


def _settings(config: Path | None) -> Settings:
    try:
        return load(config, os.environ)
    except SettingsError as problem:
        raise click.ClickException(str(problem)) from None


def _serve(settings: Settings) -> int:
    server, limits = settings.server, settings.server.limits
    # The server below the gateway knows nothing of settings: it gets its limits as values.
    connection_limits = ConnectionLimits(
        head_time=limits.head_time,
        body_time=limits.body_time,
        body_rate=limits.body_rate,
        head=limits.head,
        fields=limits.fields,
        memory=limits.memory,
        connections=limits.connections,
        connections_without_key=limits.connections_without_key,
        stalled=limits.stalled,
        buffer=limits.buffer,
    )

    # Runs in this process, or once in each worker: so the gateway is made inside, after the fork.
    def work(sockets: list[socket] | None, ready: Callable[[], None] | None) -> int:
        try:
            return run_server(
                lambda: Gateway(settings),
                host=server.host,
                port=server.port,
                sockets=sockets,
                ready=ready,
                limits=connection_limits,
                drain=server.drain,
                websocket=server.websocket,
                websocket_message=limits.websocket_message,
            )
        # A tool that cannot be imported: only the process that runs it finds out.
        except SettingsError as problem:
            click.echo(f"Error: {problem}", err=True)
            return 1

    if server.workers == 1:
        return work(None, None)
    return supervise(server.workers, work, host=server.host, port=server.port)
