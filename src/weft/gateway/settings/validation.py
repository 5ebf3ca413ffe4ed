"""Checks of `[server]` and `[store]` beyond the types of their values."""

import re
from ipaddress import ip_address

from msgspec.structs import replace

from weft.gateway.settings.problems import Problems
from weft.gateway.settings.schema import ServerSettings, StoreSettings

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


def _is_address(host: str) -> bool:
    if _NAME.fullmatch(host):
        return True
    try:
        ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
