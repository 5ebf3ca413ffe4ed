"""Opens TCP connections: to the first address that answers (RFC 8305), or through a proxy."""

import asyncio
import base64
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from weft.scrub import Secret

ATTEMPT_DELAY = 0.25
"""Seconds until the next address is tried beside the last one (RFC 8305, 5)."""

MAX_PROXY_HEAD = 16 * 1024

# Two minutes until a peer that vanished without a word is noticed. A response may be silent for
# longer than that, and a firewall forgets connections that are silent for minutes.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

P = TypeVar("P", bound=asyncio.Protocol)
Address = tuple[int, tuple[object, ...]]
"""A family, and an address of it."""


class ProxyError(OSError):
    """The proxy did not open a tunnel; the message says why."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy."""

    host: str
    port: int
    authorization: Secret | None = None
    """The value of Proxy-Authorization."""


def parse_proxy(url: str) -> Proxy:
    """Returns the proxy at `[http://][user:password@]host[:port]`. Raises ValueError, which does
    not quote the URL: it may contain a password."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("expected http://[user:password@]host[:port]")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = Secret(f"Basic {base64.b64encode(pair.encode()).decode()}")
    return Proxy(parts.hostname, parts.port or 80, authorization)


async def dial(host: str, port: int) -> socket.socket:
    """Returns a connected socket. Raises OSError, that of the first address if all fail."""
    return await race(await _resolve(host, port))


async def race(addresses: Sequence[Address]) -> socket.socket:
    """Returns a socket that is connected to one of the addresses: the first that answers, where
    each is tried some time after the one before it. Raises OSError, as `dial`."""
    if len(addresses) == 1:
        return await _connect(addresses[0])
    left = list(addresses)
    pending: set[asyncio.Task[socket.socket]] = set()
    errors: list[OSError] = []
    try:
        while left or pending:
            if left:
                pending.add(asyncio.create_task(_connect(left.pop(0))))
            # The next one is tried after the delay, or at once if this one fails.
            wait = ATTEMPT_DELAY if left else None
            done, pending = await asyncio.wait(
                pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    pending |= done - {task}
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                errors.append(error)
        raise errors[0]
    finally:
        for task in pending:
            task.add_done_callback(_close)
            task.cancel()


@lru_cache(maxsize=256)
def is_address(host: str) -> bool:
    """Whether this is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host, IPv6 and IPv4 in turn (RFC 8305, 4)."""
    if is_address(host):
        return [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys((one[0], one[4]) for one in found))
    first = [one for one in addresses if one[0] == addresses[0][0]]
    second = [one for one in addresses if one[0] != addresses[0][0]]
    return [one for one in chain(*zip_longest(first, second)) if one is not None]


async def _connect(address: Address) -> socket.socket:
    family, where = address
    channel = socket.socket(family, socket.SOCK_STREAM)
    try:
        channel.setblocking(False)
        keep_alive(channel)
        await asyncio.get_running_loop().sock_connect(channel, where)
    except BaseException:
        channel.close()
        raise
    return channel


def _close(task: asyncio.Task[socket.socket]) -> None:
    """Closes the socket of an attempt that nobody waits for any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def keep_alive(channel: socket.socket) -> None:
    """Makes the kernel notice a peer that vanished."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system
            channel.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def open_connection(
    factory: Callable[[], P],
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    proxy: Proxy | None,
) -> P:
    """Returns a connected protocol. With TLS the connection goes through a tunnel of the proxy;
    without, the proxy itself is connected, and gets requests with absolute targets. Raises
    OSError."""
    loop = asyncio.get_running_loop()
    name = host if tls is not None else None
    if proxy is None and is_address(host):
        # There is nothing to resolve and nothing to race: the loop does it in half the time.
        transport, protocol = await loop.create_connection(
            factory, host, port, ssl=tls, server_hostname=name
        )
        keep_alive(transport.get_extra_info("socket"))
        return protocol
    there = (host, port) if proxy is None else (proxy.host, proxy.port)
    channel = await dial(*there)
    try:
        if proxy is not None and tls is not None:
            await _tunnel(channel, host, port, proxy)
        _, protocol = await loop.create_connection(
            factory, sock=channel, ssl=tls, server_hostname=name
        )
    except BaseException:
        channel.close()
        raise
    return protocol


async def _tunnel(channel: socket.socket, host: str, port: int, proxy: Proxy) -> None:
    """Asks a proxy for a tunnel (RFC 9110, 9.3.6). Raises ProxyError."""
    loop = asyncio.get_running_loop()
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
    if proxy.authorization is not None:
        lines.append(f"proxy-authorization: {proxy.authorization.reveal()}")
    await loop.sock_sendall(channel, "\r\n".join([*lines, "", ""]).encode())
    head = b""
    # Byte by byte at the end of the head would be exact; but the other side says nothing before we
    # do, so nothing can follow it.
    while b"\r\n\r\n" not in head:
        data = await loop.sock_recv(channel, 4096)
        head += data
        if not data or len(head) > MAX_PROXY_HEAD:
            raise ProxyError("the proxy closed the connection")
    status = head.split(b" ", 2)[1:2]
    if not status or not status[0][:3].isdigit() or status[0][:1] != b"2":
        shown = status[0][:3].decode("latin-1") if status else "nothing"
        raise ProxyError(f"the proxy refused the tunnel (HTTP {shown})")


def bypasses(host: str, port: int, no_proxy: Sequence[str]) -> bool:
    """Whether a host is in NO_PROXY: names match with their subdomains, with or without a leading
    dot; addresses and networks match addresses; `*` is everything; a port limits an entry."""
    for entry in (one.strip().lower() for one in no_proxy):
        if entry == "*":
            return True
        name, colon, number = entry.rpartition(":")
        if colon and number.isdigit() and ":" not in name:
            if int(number) != port:
                continue
            entry = name
        if entry and _matches(host.lower(), entry.strip("[]")):
            return True
    return False


def _matches(host: str, entry: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        name = entry.removeprefix("*").lstrip(".")
        return host == name or host.endswith(f".{name}")
