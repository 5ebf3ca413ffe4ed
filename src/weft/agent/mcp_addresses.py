"""Which addresses a URL of the settings may lead to.

Settings are trusted, the DNS is not: a name that is meant to be a public server could lead to one
that only this machine can reach, the metadata service of a cloud for example. So the addresses of
a name are checked, and the connection goes to one of those that were: to resolve the name again for
it could give another answer (DNS rebinding).
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""The IP addresses of a host and port, the best one first. Raises OSError."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052, 2.1
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # RFC 4291, 2.4


async def system_resolver(host: str, port: int) -> list[str]:
    """As the system does it. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(where[0]) for *_, where in found)
    # One with a zone (`fe80::1%eth0`) cannot stand in a URL.
    return [address for address in addresses if "%" not in address]


def is_public(address: str) -> bool:
    """Whether it is an address of the public internet, also if it is an IPv4 address in IPv6."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(ip.packed[-4:])
        if inner is None:
            return ip in _GLOBAL_UNICAST and ip.is_global
        ip = inner
    return ip.is_global and not ip.is_multicast


def is_literal(host: str) -> bool:
    """Whether a host is an address itself, and nothing has to be resolved."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
