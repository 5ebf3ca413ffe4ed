"""`weft config`: checks the settings, and lists the presets for upstreams."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from weft.gateway.agents import load_agents
from weft.gateway.settings import AgentSettings, Settings, SettingsError, load
from weft.gateway.settings.urls import DEMO, is_loopback
from weft.upstream.base import UpstreamConfig
from weft.upstream.catalog import HOSTS

WRONG = 1
"""The exit code for invalid settings."""


def check(config: Path | None) -> None:
    """Reads the settings as `weft serve` does, and prints a summary."""
    try:
        # The same function as `weft serve`, so that what passes here starts there.
        settings = load(config, os.environ)
        load_agents(settings)
    except SettingsError as error:
        # All of them at once, not one for each run.
        for problem in error.problems:
            click.echo(str(problem), err=True)
        sys.exit(WRONG)
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(summary(settings), nl=False)


def presets() -> None:
    """Lists the built-in upstream presets."""
    head = ("preset", "dialect", "base_url", "key", "")
    rows = [
        (host.name, host.dialect, host.base_url or "-", host.variable or "-", host.note)
        for host in HOSTS.values()
    ]
    click.echo("\n".join(columns([head, *rows])))


def summary(settings: Settings) -> str:
    """Returns what the settings come to, in a few lines, without any secret."""
    server = settings.server
    # RFC 3986 §3.2.2: an IPv6 address in a URL is in brackets.
    host = f"[{server.host}]" if ":" in server.host else server.host
    workers = "1 worker" if server.workers == 1 else f"{server.workers} workers"
    users = "anyone who can reach it: no keys are set, so it starts only with --insecure"
    if settings.keys:
        users = "the keys " + ", ".join(key.name for key in settings.keys)
    elif is_loopback(server.host):
        users = "anyone on this machine: no keys are set"
    sections = (
        ("upstreams", columns(map(_place, settings.upstreams))),
        ("models", columns((name, ", then ".join(one)) for name, one in settings.models.items())),
        ("agents", columns(_agent(*one) for one in settings.agents.items())),
        ("server", [f"http://{host}:{server.port}, {workers}", f"open to {users}"]),
    )
    source = "no settings file: built-in defaults" if settings.path is None else str(settings.path)
    lines = [source]
    for title, rows in sections:
        if rows:
            lines += [title, *(f"  {row}" for row in rows)]
    return "\n".join(lines) + "\n"


def _place(place: UpstreamConfig) -> tuple[str, ...]:
    where = "built in" if place.base_url in DEMO else place.base_url
    # Whether there is one, never which.
    key = "key found" if place.key is not None else "no key"
    return (place.name, place.dialect, where, "" if place.base_url in DEMO else key)


def _agent(name: str, agent: AgentSettings) -> tuple[str, ...]:
    return (name, agent.model, ", ".join(agent.tools) or "no tools")


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the rows as lines whose cells stand below one another."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]  # no rows: no columns
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
