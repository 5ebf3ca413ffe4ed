"""New settings for a running gateway: what can change while it serves, and what needs a restart."""

import logging

import msgspec

from weft.gateway.settings import Settings
from weft.log_events import log_event

LIVE_SERVER = frozenset(("keys", "log", "log_format", "keepalive", "reject_lossy", "tool_session"))
"""The settings of `[server]` that apply to the next request; all others need a restart."""

log = logging.getLogger("weft.server")


def needs_restart(before: Settings, after: Settings) -> list[str]:
    """Returns the settings that differ and cannot change while the server runs."""
    server = [
        f"server.{name}"
        for name in msgspec.structs.asdict(before.server)
        if name not in LIVE_SERVER and getattr(before.server, name) != getattr(after.server, name)
    ]
    tables = [
        name
        for name in ("store", "agents", "mcp", "workers", "otel")
        if getattr(before, name) != getattr(after, name)
    ]
    return [*server, *tables]


def log_reload(before: Settings, after: Settings) -> None:
    """Logs what was applied, and what was not."""
    names = [one.name for one in after.upstreams]
    about = log_event("reloaded", upstreams=names, models=list(after.models))
    log.info("reloaded %s: upstreams %s", after.path, ", ".join(names), extra=about)
    for warning in after.warnings:
        log.warning("%s", warning, extra=log_event("setting-warning"))
    restart = needs_restart(before, after)
    if restart:
        changed = ", ".join(restart)
        about = log_event("restart-needed", settings=restart)
        log.warning("changed, but only a restart applies it: %s", changed, extra=about)
