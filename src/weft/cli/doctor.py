"""`weft doctor`: checks everything that the gateway depends on, and says what to do."""

import os
import platform
import socket
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import click

from weft.cli.store_check import store_name, store_problem, stored_keys
from weft.cli.upstream_check import check_upstreams
from weft.gateway.agents import load_agents
from weft.gateway.hooks import load_hooks
from weft.gateway.probes import MIN_FREE_DISK, disk_of, free_bytes
from weft.gateway.settings import Settings, SettingsError, load
from weft.store.accounts import StoredKey
from weft.upstream.urls import is_loopback

SKEW = 30.0
"""Seconds that a clock may be wrong before signed requests and leases suffer."""

_PACKAGES = ("msgspec", "click", "starlette", "uvicorn", "httptools", "uvloop", "asyncpg")
_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the report."""

    state: Literal["ok", "warning", "failed"]
    subject: str
    detail: str
    advice: str = ""


def run(config: Path | None) -> None:
    failed = 0
    for one in _diagnoses(config):
        failed += one.state == "failed"
        state = click.style(f"{one.state:8}", fg=_COLOURS[one.state])
        click.echo(f"{state} {one.subject}: {one.detail}")
        if one.advice:
            click.echo(f"{'':8} -> {one.advice}")
    sys.exit(1 if failed else 0)


def _diagnoses(config: Path | None) -> Iterator[Diagnosis]:
    """Checks one thing after another; each line is printed as soon as it is known."""
    found = [f"weft {version('weft')}", f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    found.append(f"SQLite {sqlite3.sqlite_version}")
    yield Diagnosis("ok", "versions", ", ".join(found))
    try:
        # As `weft serve` does, so that what is ok here starts there.
        settings = load(config, os.environ)
        load_agents(settings)
        load_hooks(settings)
    except SettingsError as error:
        for problem in error.problems:
            advice = "mend this setting; docs/settings.md describes each"
            yield Diagnosis("failed", "settings", str(problem), advice)
        return
    source = "none: built-in defaults" if settings.path is None else str(settings.path)
    yield Diagnosis("ok", "settings", source)
    for warning in settings.warnings:
        yield Diagnosis("warning", "settings", str(warning))
    store = _store(settings)
    yield store
    yield _access(settings, () if store.state == "failed" else stored_keys(settings))
    yield _port(settings)
    yield from _upstreams(settings)


def _access(settings: Settings, stored: Sequence[StoredKey]) -> Diagnosis:
    server = settings.server
    valid = [one for one in stored if one.revoked is None]
    if settings.keys or valid:
        counts = f"{len(settings.keys)} in the settings, {len(valid)} in the store"
        return Diagnosis("ok", "access", f"client keys: {counts}")
    if stored:
        detail = "all client keys are revoked: nobody can use it"
        return Diagnosis("warning", "access", detail, "make a key: weft keys create NAME")
    if is_loopback(server.host):
        return Diagnosis("ok", "access", "no client keys: only this machine can connect")
    advice = "run weft keys create NAME, set [server.keys], or start it with --insecure"
    detail = f"{server.host} is reachable from other machines, and no client keys are set"
    return Diagnosis("failed", "access", detail, advice)


def _store(settings: Settings) -> Diagnosis:
    if not settings.store.enabled:
        return Diagnosis("warning", "store", "off: nothing is stored")
    problem = store_problem(settings, create=False)
    if problem is not None:
        return Diagnosis("failed", "store", problem, "set store.url to a database that can be used")
    disk = disk_of(settings.store.url)
    if disk is not None and free_bytes(disk) < MIN_FREE_DISK:
        return Diagnosis("failed", "store", f"the disk of {disk} is full", "free some space")
    return Diagnosis("ok", "store", store_name(settings))


def _port(settings: Settings) -> Diagnosis:
    host, port = settings.server.host, settings.server.port
    try:
        for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(address)
    except OSError as problem:
        # A gateway that runs already is no mistake.
        advice = "unless it is a running gateway: choose another --port"
        return Diagnosis("warning", "port", f"{host}:{port}: {problem.strerror}", advice)
    return Diagnosis("ok", "port", f"{host}:{port} is free")


def _upstreams(settings: Settings) -> Iterator[Diagnosis]:
    checks = check_upstreams(settings.upstreams)
    for one in checks:
        state: Literal["ok", "failed"] = "ok" if one.works else "failed"
        yield Diagnosis(state, f"upstream {one.name}", one.detail, one.advice)
    clocks = [one.clock for one in checks if one.clock is not None]
    if not clocks:
        yield Diagnosis("ok", "clock", "not compared: no upstream sent its time")
        return
    # The one that differs least: a single upstream may be wrong itself.
    ahead = min(clocks, key=abs)
    if abs(ahead) <= SKEW:
        yield Diagnosis("ok", "clock", f"within {SKEW:g} s of the upstreams'")
        return
    side = "ahead of" if ahead > 0 else "behind"
    detail = f"{abs(ahead):.0f} s {side} the upstreams'"
    yield Diagnosis("failed", "clock", detail, "synchronise the clock of this machine (NTP)")
