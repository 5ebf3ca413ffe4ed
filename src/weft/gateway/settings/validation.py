"""Checks of `[server]`, `[store]` and `[prices]` beyond the types of their values."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from msgspec.structs import replace

from weft.gateway.settings.problems import Problems, unknown_name
from weft.gateway.settings.schema import BudgetSettings, KeySettings, ServerSettings, StoreSettings
from weft.store.base import UnknownStore
from weft.store.urls import store_from_url

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_SERVED_NAME = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"
)
_STORE_SCHEMES = ("sqlite:///", "postgresql://", "postgres://")


def validate_server(server: ServerSettings, problems: Problems) -> ServerSettings:
    """Returns the settings with the names of hosts in lower case, as they are compared."""
    if not _is_address(server.host):
        problems.add(
            ("server", "host"), "expected an IP address or host name, without scheme and port"
        )
    hosts = tuple(name.lower() for name in server.hosts)
    if not all(map(_SERVED_NAME.fullmatch, hosts)):
        problems.add(
            ("server", "hosts"), "expected host names, with or without a port, and no scheme"
        )
    # Sockets want an IPv6 address without brackets.
    return replace(server, host=server.host.strip("[]"), hosts=hosts)


def validate_store(store: StoreSettings, problems: Problems) -> None:
    if not store.url.startswith(_STORE_SCHEMES):
        problems.add(("store", "url"), "expected sqlite:///PATH or postgresql://…")
        return
    try:
        store_from_url(store.url)  # it is not opened
    except UnknownStore as problem:
        problems.add(("store", "url"), str(problem))


def validate_keys(server: ServerSettings, store: StoreSettings, problems: Problems) -> None:
    """Limits are shared through the store, and budgets are compared with its ledger."""
    if store.enabled:
        return
    for name, key in server.keys.items():
        at = ("server", "keys", name)
        if not isinstance(key, KeySettings):
            continue
        if key.budget != BudgetSettings():
            problems.add((*at, "budget"), "needs a store, and store.enabled is false")
        for field in ("requests_per_minute", "tokens_per_minute", "streams"):
            if server.workers > 1 and getattr(key, field) is not None:
                problems.add((*at, field), "needs a store if there are several workers")


def validate_prices(models: Iterable[str], upstreams: Sequence[str], problems: Problems) -> None:
    for model in models:
        upstream, slash, name = model.partition("/")
        if not slash or not name:
            problems.add(("prices", model), "expected the price of <upstream>/<model>")
        elif upstream not in upstreams:
            problems.add(("prices", model), unknown_name("upstream", upstream, upstreams))


def _is_address(host: str) -> bool:
    if _NAME.fullmatch(host):
        return True
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
