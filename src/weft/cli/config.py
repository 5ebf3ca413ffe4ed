"""`weft config`: checks the settings, and lists the presets for upstreams."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from weft.cli.store_check import store_problem, stored_keys
from weft.cli.upstream_check import check_upstreams
from weft.gateway.agents import load_agents
from weft.gateway.hooks import load_hooks
from weft.gateway.settings import Settings, SettingsError, load
from weft.store.accounts import StoredKey
from weft.upstream.base import UpstreamConfig
from weft.upstream.catalog import HOSTS
from weft.upstream.urls import DEMO, is_loopback

WRONG = 1
"""The exit code for invalid settings."""


def check(config: Path | None, connect: bool) -> None:
    """Reads the settings as `weft serve` does, opens the store, and prints a summary."""
    try:
        # The same function as `weft serve`, so that what passes here starts there.
        settings = load(config, os.environ)
        load_agents(settings)
        load_hooks(settings)
    except SettingsError as error:
        # All of them at once, not one for each run.
        for problem in error.problems:
            click.echo(str(problem), err=True)
        sys.exit(WRONG)
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    reason = store_problem(settings, create=False)
    if reason is not None:
        click.echo(str(settings.problem(("store", "url"), reason)), err=True)
        sys.exit(WRONG)
    click.echo(summary(settings, stored_keys(settings)), nl=False)
    if connect:
        checks = check_upstreams(settings.upstreams)
        works = {True: "works", False: "fails"}
        rows = columns((one.name, works[one.works], one.detail) for one in checks)
        click.echo("\n".join(["connections", *(f"  {row}" for row in rows)]))
        sys.exit(0 if all(one.works for one in checks) else WRONG)


def presets() -> None:
    """Lists the built-in upstream presets."""
    head = ("preset", "dialect", "base_url", "key", "")
    rows = [
        (host.name, host.dialect, host.base_url or "-", host.variable or "-", host.note)
        for host in HOSTS.values()
    ]
    click.echo("\n".join(columns([head, *rows])))


def summary(settings: Settings, stored: Sequence[StoredKey]) -> str:
    """Returns a summary of the settings in a few lines, without any secret. `stored` are the
    client keys in the store."""
    server = settings.server
    # RFC 3986 §3.2.2: an IPv6 address in a URL is in brackets.
    host = f"[{server.host}]" if ":" in server.host else server.host
    workers = "1 worker" if server.workers == 1 else f"{server.workers} workers"
    users = "anyone who can reach it: no keys are set, so it starts only with --insecure"
    names = [one.name for one in settings.keys]
    names += [one.name for one in stored if one.revoked is None]
    if names:
        users = "the keys " + ", ".join(names)
    elif stored:
        users = "nobody: all keys in the store are revoked"
    elif is_loopback(server.host):
        users = "anyone on this machine: no keys are set"
    agents = [
        (name, agent.model, ", ".join(agent.tools) or "no tools")
        for name, agent in settings.agents.items()
    ]
    sections = (
        ("upstreams", columns(map(_place, settings.upstreams))),
        ("models", columns((name, _targets(settings, name)) for name in settings.models)),
        ("agents", columns(agents)),
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


def _targets(settings: Settings, name: str) -> str:
    policy = settings.policies.get(name)
    if policy is None or policy.balance == "order":
        return ", then ".join(settings.models[name])
    return f"{' or '.join(settings.models[name])} ({policy.balance})"


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the rows as lines with aligned cells."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]  # no rows: no columns
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def printable(text: str) -> str:
    """The text with escapes for what a terminal would obey: clients choose the names of models."""
    if text.isprintable():
        return text
    letters = (one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return "".join(letters)
