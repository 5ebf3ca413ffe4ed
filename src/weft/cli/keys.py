"""`weft keys`: makes, lists, revokes and rotates client keys in the store."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click
import msgspec

from weft.cli.config import columns
from weft.cli.open_store import settings_of, with_store
from weft.gateway.keys import decode_rules, new_key
from weft.gateway.settings.schema import BudgetSettings, KeyRules

REFUSED = click.ClickException
"""What the store refuses, such as a name that is taken, exits with 1."""

SHOWN_ONCE = "Store the key now: it is not shown again."


def create(
    config: Path | None,
    name: str,
    models: tuple[str, ...],
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    streams: int | None,
    budget_day: float | None,
    budget_month: float | None,
    budget_total: float | None,
    usage: Literal["own", "all"],
) -> None:
    rules = KeyRules(
        models or None,
        requests_per_minute,
        tokens_per_minute,
        streams,
        BudgetSettings(budget_day, budget_month, budget_total),
        usage,
    )
    if not name.strip() or not name.isprintable():
        raise click.ClickException("the name of a key must be printable")
    key, stored = new_key(name, rules)

    settings = settings_of(config, needs_store=True)
    if name in (one.name for one in settings.keys):
        raise click.ClickException(f"the settings have a key with the name {name!r}")
    url = settings.store.url
    with_store(url, lambda store: store.accounts.create_key(stored), creates=True, refused=REFUSED)
    _show(key)


def rotate(config: Path | None, name: str) -> None:
    key, new = new_key(name, KeyRules())

    url = settings_of(config, needs_store=True).store.url
    rotated = (name, new.digest, new.hint)
    with_store(url, lambda store: store.accounts.rotate_key(*rotated), refused=REFUSED)
    _show(key)


def revoke(config: Path | None, name: str) -> None:
    url, now = settings_of(config, needs_store=True).store.url, time.time()
    with_store(url, lambda store: store.accounts.revoke_key(name, now), refused=REFUSED)
    click.echo(f"{name} is revoked; running gateways refuse it within a second or two", err=True)


def list_keys(config: Path | None, as_json: bool) -> None:
    settings = settings_of(config, needs_store=True)
    stored = with_store(settings.store.url, lambda store: store.accounts.keys())
    rows: list[dict[str, object]] = [
        {"name": one.name, "source": "settings", "rules": one.rules} for one in settings.keys
    ]
    rows += [
        {
            "name": one.name,
            "source": "store",
            "hint": one.hint,
            "created": _time(one.created),
            "revoked": None if one.revoked is None else _time(one.revoked),
            "rules": decode_rules(one.rules),
        }
        for one in stored
    ]
    if as_json:
        for row in rows:
            click.echo(msgspec.json.encode(row))
        return
    table = [("name", "key", "created", "state", "rules")]
    for row in rows:
        rules = msgspec.to_builtins(row["rules"])
        limits = {name: one for name, one in rules.items() if one != {}}
        table.append(
            (
                str(row["name"]),
                f"…{row['hint']}" if "hint" in row else "in the settings",
                str(row.get("created") or "-"),
                "revoked" if row.get("revoked") else "valid",
                msgspec.json.encode(limits).decode() if limits else "-",
            )
        )
    click.echo("\n".join(columns(table)))


def _show(key: str) -> None:
    """The key alone on standard output, so that a script can take it."""
    click.echo(key)
    click.echo(SHOWN_ONCE, err=True)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
