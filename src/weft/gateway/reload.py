"""New settings for a running gateway: what can change while it serves, and what needs a restart."""

import logging
from dataclasses import replace

import msgspec

from weft.gateway.settings import Settings
from weft.log_events import log_event

LIVE_SERVER = frozenset(("keys", "log", "log_format", "keepalive", "reject_lossy", "tool_session"))
"""The settings of `[server]` that apply to the next request; all others need a restart."""

RESTART = ("store", "agents", "mcp", "workers", "otel")
"""The other tables that need a restart."""

log = logging.getLogger("weft.server")


def applied(running: Settings, read: Settings) -> Settings:
    """The settings that are in force once new ones were read: what needs a restart is as it was."""
    live = {name: getattr(read.server, name) for name in LIVE_SERVER}
    started = {name: getattr(running, name) for name in RESTART}
    return replace(read, server=msgspec.structs.replace(running.server, **live), **started)


def needs_restart(running: Settings, read: Settings) -> list[str]:
    """Returns the settings that differ and cannot change while the server runs."""
    server = [
        f"server.{name}"
        for name in msgspec.structs.asdict(running.server)
        if name not in LIVE_SERVER and getattr(running.server, name) != getattr(read.server, name)
    ]
    tables = [name for name in RESTART if getattr(running, name) != getattr(read, name)]
    return [*server, *tables]


def log_reload(running: Settings, read: Settings) -> None:
    """Logs what was applied, and what was not. `running` are the settings in force, not those that
    were read last: what needed a restart then needs it still."""
    names = [one.name for one in read.upstreams]
    about = log_event("reloaded", upstreams=names, models=list(read.models))
    log.info("reloaded %s: upstreams %s", read.path, ", ".join(names), extra=about)
    for warning in read.warnings:
        log.warning("%s", warning, extra=log_event("setting-warning"))
    restart = needs_restart(running, read)
    if restart:
        changed = ", ".join(restart)
        about = log_event("restart-needed", settings=restart)
        log.warning("changed, but only a restart applies it: %s", changed, extra=about)
