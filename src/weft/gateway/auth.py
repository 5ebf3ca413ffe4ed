"""Which requests are allowed: their Host, Origin and key are checked, in this order.

On a loopback address the Host must be a loopback name, with or without keys: a web page that
reaches this server by DNS rebinding names another host. On other addresses `server.hosts` is
checked if it is set. A request that may change something must not come from a foreign page. Without
keys everybody who can connect is allowed, but only with JSON, which no page can send without a CORS
preflight.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from weft.dialects import KEY_HEADERS
from weft.dialects.error_classes import new_error
from weft.parts import ErrorPart
from weft.relay.incoming import RequestFailed
from weft.upstream.urls import is_loopback

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
PUBLIC_PATHS = frozenset(("/health", "/ready"))
"""Paths that need no key."""

PROBE_PATHS = frozenset(("/", "/api/hello"))
"""Paths where clients check that there is a server, with HEAD and without a key."""

PREFLIGHTED = frozenset(
    (
        b"application/json",
        # uploaded captures
        b"application/octet-stream",
        b"application/x-ndjson",
        b"text/event-stream",
    )
)
"""The types of bodies that a foreign page cannot send without asking first."""

MAX_HOSTS = 16
"""Values of Host that are remembered as checked."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?", re.IGNORECASE)
_SAFE_METHODS = ("GET", "HEAD")
_KEY_HEADERS = [
    (name.encode(), scheme.strip().lower().encode()) for name, scheme in KEY_HEADERS.items()
]


class HttpRejection(RequestFailed):
    """A request that is refused with this status, whatever the status of its error class is."""

    def __init__(self, status: int, error: ErrorPart) -> None:
        super().__init__(error)
        self.status = status
        self.headers: Sequence[tuple[bytes, bytes]] = ()


class UnknownKey(HttpRejection):
    """No client has this key."""

    def __init__(self) -> None:
        super().__init__(401, new_error("auth", "invalid API key"))


SOCKET_KEY = b"sec-websocket-key"
"""What is left of a handshake that HttpProtocol takes for an ordinary request."""


class WebSocketDisabled(HttpRejection):
    """A handshake where there are no WebSockets. Codex falls back to HTTP at once if it is answered
    with 426; on any other status it tries the socket several times first."""

    def __init__(self) -> None:
        error = new_error("bad-request", "WebSocket is disabled on this server")
        super().__init__(426, msgspec.structs.replace(error, status=426))
        # RFC 9110: a 426 names the protocol to use (15.5.22), Connection names that field (7.8).
        self.headers = ((b"upgrade", b"HTTP/1.1"), (b"connection", b"Upgrade"))


class Keys(Protocol):
    """The keys of clients."""

    @property
    def is_open(self) -> bool:
        """Whether there are none, so that none is needed."""
        ...

    def find_name(self, key: bytes) -> str | None:
        """The name of the client with this key. Takes the same time for all keys of a length."""
        ...


class RequestGuard:
    """Authorizes each request by its head alone."""

    def __init__(
        self, bound: str, hosts: Iterable[str], keys: Keys, readable: Iterable[str] = ()
    ) -> None:
        """`readable` are further paths that need no key to be read."""
        served = tuple(host.lower() for host in hosts)
        self._hosts = frozenset((*LOOPBACK_HOSTS, *served) if is_loopback(bound) else served)
        self._keys = keys
        self._readable = frozenset(readable)
        self._checked_host = lru_cache(maxsize=MAX_HOSTS)(self._check_host)

    def authorize(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> str | None:
        """Returns the name of the request's key: empty if no keys are set, None if the path needs
        none. Raises HttpRejection."""
        # The cheapest check first, and the Host before the key, so that a page behind DNS rebinding
        # learns nothing of the keys.
        host = self._checked_host(headers.get(b"host", b""))
        # A foreign page may send a GET, but without CORS headers its browser does not let it read
        # the response. WebSockets are no safe method: browsers open them across origins, and leave
        # it to the server to look at Origin (RFC 6455, 10.2).
        is_browser = b"origin" in headers or b"sec-fetch-site" in headers
        if is_browser and method not in _SAFE_METHODS:
            _check_origin(method, host, headers)
        if path in PUBLIC_PATHS or (method == "HEAD" and path in PROBE_PATHS):
            return None
        if method in _SAFE_METHODS and path in self._readable:
            return None
        if self._keys.is_open:
            _check_content_type(method, headers)
            return ""
        return self._key_name(headers)

    def _check_host(self, header: bytes) -> str:
        value = header.decode("latin-1")
        found = _HOST.fullmatch(value)
        if found is None:
            raise HttpRejection(400, new_error("bad-request", f"invalid Host {value[:100]!r}"))
        # `server.hosts` may name a host with its port, or without: then any port is right.
        hosts, name = self._hosts, found[1].lower()
        if hosts and name not in hosts and value.lower() not in hosts:
            message = f"Host {value[:100]!r} is not served here; add it to server.hosts"
            # Misdirected Request (RFC 9110, 15.5.20).
            raise HttpRejection(421, new_error("bad-request", message))
        return value.lower()

    def _key_name(self, headers: Mapping[bytes, bytes]) -> str:
        keys = request_keys(headers)
        if not keys:
            *others, last = (
                f"{name.capitalize()}: {scheme.strip()}" if scheme else name
                for name, scheme in KEY_HEADERS.items()
            )
            message = f"no API key; expected {', '.join(others)} or {last}"
            raise HttpRejection(401, new_error("auth", message))
        if len(keys) > 1:
            message = "the request has different API keys; send one, or the same in each header"
            raise HttpRejection(400, new_error("bad-request", message))
        name = self._keys.find_name(keys.pop())
        if name is None:
            raise UnknownKey
        return name


def _check_origin(method: str, host: str, headers: Mapping[bytes, bytes]) -> None:
    origin = headers.get(b"origin")
    if origin is not None:
        value = origin.decode("latin-1").lower()
        # `Origin: null` (a sandboxed frame, a local file) has nothing behind "://": it is foreign.
        if value.partition("://")[2] != host:
            message = f"requests from the origin {value[:100]!r} are not allowed"
            raise HttpRejection(403, new_error("permission", message))
        _check_content_type(method, headers)
    # Sent by browsers where there is no Origin, too.
    if headers.get(b"sec-fetch-site", b"") == b"cross-site":
        raise HttpRejection(403, new_error("permission", "cross-site requests are not allowed"))


def _check_content_type(method: str, headers: Mapping[bytes, bytes]) -> None:
    if method != "POST":
        return
    kind = headers.get(b"content-type", b"")
    if kind in PREFLIGHTED:  # as nearly all clients write it
        return
    kind = kind.partition(b";")[0].strip().lower()
    is_empty = not kind and headers.get(b"content-length", b"0") == b"0"
    if is_empty and b"transfer-encoding" not in headers:
        return  # an empty body needs no type
    # Without a preflight (Fetch, "CORS-safelisted request-header") a page can send only forms and
    # text/plain.
    if kind not in PREFLIGHTED:
        message = f"Content-Type {kind.decode('latin-1')[:100]!r}; expected application/json"
        raise HttpRejection(415, new_error("bad-request", message))


def request_keys(headers: Mapping[bytes, bytes]) -> set[bytes]:
    """Returns the different keys in the headers of a request, whichever its client uses."""
    keys: set[bytes] = set()
    for name, scheme in _KEY_HEADERS:
        if name in headers:
            value = headers[name]
            if scheme:
                # RFC 9110 (11.1): the name of a scheme has no case.
                given, _, token = value.partition(b" ")
                value = token.strip() if given.lower() == scheme else b""
            if value:
                keys.add(value)
    return keys
