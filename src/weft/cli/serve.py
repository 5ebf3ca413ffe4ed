"""`weft serve`: the gateway."""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from socket import socket

import click
import msgspec

from weft.cli.banner import banner
from weft.cli.store_check import store_problem, stored_keys
from weft.gateway import logs
from weft.gateway.app import Gateway
from weft.gateway.http_protocol import ConnectionLimits
from weft.gateway.server import serve as run_server
from weft.gateway.settings import Settings, SettingsError, load
from weft.gateway.settings.schema import LimitSettings
from weft.gateway.worker_metrics import MetricsFolder
from weft.gateway.workers import supervise
from weft.log_events import log_event
from weft.scrub import Scrubber
from weft.upstream.urls import is_loopback

log = logging.getLogger("weft.server")

Load = Callable[[], Settings]
"""Reads the settings, with the options of the command line. Raises ClickException."""


def run(
    config: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    insecure: bool,
    reject_lossy: bool,
) -> None:
    changed = {"host": host, "port": port, "workers": workers, "reject_lossy": reject_lossy or None}
    # An option that was not given leaves the setting as it is; a flag can only switch on.
    given = {name: value for name, value in changed.items() if value is not None}

    def read() -> Settings:
        settings = _settings(config)
        settings = replace(settings, server=msgspec.structs.replace(settings.server, **given))
        # An open gateway spends the owner's money: it has to be asked for.
        if not (settings.keys or may_be_open):
            raise click.ClickException(
                f"{settings.server.host} is reachable from other machines and no client keys are "
                "set: run weft keys create, set [server.keys], or use --insecure"
            )
        return settings

    first = _settings(config)
    # Here rather than in each worker: it is one sentence, and not one for each of them.
    if (reason := store_problem(first, create=True)) is not None:
        raise click.ClickException(reason)
    # Also revoked ones: if there are no others nobody may come in, which is safe.
    has_stored_keys = bool(stored_keys(first))
    may_be_open = insecure or is_loopback(host or first.server.host) or has_stored_keys
    settings = read()
    logs.begin(settings.server.log, Scrubber(settings.secrets), settings.server.log_format)
    for warning in settings.warnings:
        log.warning("%s", warning, extra=log_event("setting-warning"))
    try:
        sys.exit(_serve(settings, read, needs_key=has_stored_keys or bool(settings.keys)))
    except OSError as problem:
        # The port is taken, or needs privileges.
        place = f"{settings.server.host}:{settings.server.port}"
        raise click.ClickException(f"cannot listen on {place}: {problem.strerror}") from None


def _settings(config: Path | None) -> Settings:
    try:
        return load(config, os.environ)
    except SettingsError as problem:
        raise click.ClickException(str(problem)) from None


def _reload(gateway: Gateway, read: Load) -> None:
    """Applies the settings as they are now; invalid ones change nothing."""
    try:
        gateway.reload(read())
    except (click.ClickException, ValueError) as problem:
        about = log_event("reload-failed")
        log.error("not reloaded, the settings are as before: %s", problem, extra=about)


def connection_limits_of(limits: LimitSettings) -> ConnectionLimits:
    """Returns the limits as values: the server below the gateway knows nothing of settings."""
    return ConnectionLimits(
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


def _serve(settings: Settings, read: Load, *, needs_key: bool) -> int:
    server, limits = settings.server, settings.server.limits

    def announce(url: str) -> None:
        print(banner(settings, url, needs_key=needs_key), flush=True)

    # Runs in this process, or once in each worker: so the gateway is made inside, after the fork.
    def work(sockets: list[socket] | None, ready: Callable[[], None] | None) -> int:
        try:
            gateway = Gateway(settings)
            _reload(gateway, read)  # a worker that is restarted: they may have been reloaded since
            return run_server(
                lambda: gateway,
                host=server.host,
                port=server.port,
                sockets=sockets,
                ready=ready,
                announce=announce,
                limits=connection_limits_of(limits),
                drain=server.drain,
                websocket=server.websocket,
                websocket_message=limits.websocket_message,
                reload=lambda: _reload(gateway, read),
            )
        # A tool that cannot be imported: only the process that runs it finds out.
        except SettingsError as problem:
            click.echo(f"Error: {problem}", err=True)
            return 1

    if server.workers == 1:
        return work(None, None)
    with MetricsFolder() as metrics:
        return supervise(
            server.workers,
            work,
            host=server.host,
            port=server.port,
            ready=announce,
            started=metrics.join,
            ended=metrics.leave,
        )
