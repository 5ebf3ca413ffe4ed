"""Which requests are allowed: their Host, Origin and key are checked, in this order.

On a loopback address the Host must be a loopback name, with or without keys: a web page that
reaches this server by DNS rebinding names another host. On other addresses `server.hosts` is
checked if it is set. A request that may change something must not come from a foreign page. Without
keys everybody who can connect is allowed, but only with JSON, which no page can send without a CORS
preflight.
"""

import hmac
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

from weft.dialects import KEY_HEADERS
from weft.dialects.error_classes import new_error
from weft.gateway.settings.urls import is_loopback
from weft.parts import ErrorPart
from weft.relay.incoming import RequestFailed

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
PUBLIC_PATHS = frozenset(("/health", "/ready"))
"""Paths that need no key."""

PROBE_PATHS = frozenset(("/", "/api/hello"))
"""Paths where clients check that there is a server, with HEAD and without a key."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?", re.IGNORECASE)
_SAFE_METHODS = ("GET", "HEAD")


class HttpRejection(RequestFailed):
    """A request that is refused with this status, whatever the status of its error class is."""

    def __init__(self, status: int, error: ErrorPart) -> None:
        super().__init__(error)
        self.status = status


class RequestGuard:
    """Authorizes each request by its head alone."""

    def __init__(self, bound: str, hosts: Iterable[str], keys: Mapping[str, str]) -> None:
        """`keys` are the secrets of clients, by name."""
        served = tuple(host.lower() for host in hosts)
        self._hosts = frozenset((*LOOPBACK_HOSTS, *served) if is_loopback(bound) else served)
        self._keys = [(sha256(secret.encode()).digest(), name) for name, secret in keys.items()]

    def authorize(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> str | None:
        """Returns the name of the request's key: empty if no keys are set, None if the path needs
        none. Raises HttpRejection."""
        # The cheapest check first, and the Host before the key, so that a page behind DNS rebinding
        # learns nothing of the keys.
        host = self._check_host(headers)
        # A foreign page may send a GET, but without CORS headers its browser does not let it read
        # the response. WebSockets are no safe method: browsers open them across origins, and leave
        # it to the server to look at Origin (RFC 6455, 10.2).
        if method not in _SAFE_METHODS:
            _check_origin(method, host, headers)
        if path in PUBLIC_PATHS or (method == "HEAD" and path in PROBE_PATHS):
            return None
        if not self._keys:
            _check_content_type(method, headers)
            return ""
        return self._key_name(headers)

    def _check_host(self, headers: Mapping[bytes, bytes]) -> str:
        value = headers.get(b"host", b"").decode("latin-1")
        found = _HOST.fullmatch(value)
        if found is None:
            raise HttpRejection(400, new_error("bad-request", f"invalid Host {value[:100]!r}"))
        # `server.hosts` may name a host with its port, or without: then any port is right.
        if self._hosts and not {found[1].lower(), value.lower()} & self._hosts:
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
        # compare_digest tells the length of what it compares: digests are all of one length.
        digest = sha256(keys.pop()).digest()
        # Every key is compared, in constant time: how long it takes tells nothing.
        found = [name for known, name in self._keys if hmac.compare_digest(known, digest)]
        if not found:
            raise HttpRejection(401, new_error("auth", "invalid API key"))
        return found[0]


def _check_origin(method: str, host: str, headers: Mapping[bytes, bytes]) -> None:
    origin = headers.get(b"origin")
    if origin is not None:
        value = origin.decode("latin-1").lower()
        # `Origin: null` (a sandboxed frame, a local file) has nothing behind "://": it is foreign.
        if value.partition("://")[2] != host:
            message = f"requests from the origin {value[:100]!r} are not allowed"
            raise HttpRejection(403, new_error("permission", message))
        _check_content_type(method, headers)
    # Sent by browsers where there is no Origin, too; other clients send neither.
    if headers.get(b"sec-fetch-site", b"") == b"cross-site":
        raise HttpRejection(403, new_error("permission", "cross-site requests are not allowed"))


def _check_content_type(method: str, headers: Mapping[bytes, bytes]) -> None:
    if method != "POST":
        return
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    is_empty = not kind and headers.get(b"content-length", b"0") == b"0"
    if is_empty and b"transfer-encoding" not in headers:
        return  # an empty body needs no type
    # Without a preflight (Fetch, "CORS-safelisted request-header") a page can send only forms and
    # text/plain.
    if kind != b"application/json":
        message = f"Content-Type {kind.decode('latin-1')[:100]!r}; expected application/json"
        raise HttpRejection(415, new_error("bad-request", message))


def request_keys(headers: Mapping[bytes, bytes]) -> set[bytes]:
    """Returns the different keys in the headers of a request, whichever its client uses."""
    keys: set[bytes] = set()
    for name, scheme in KEY_HEADERS.items():
        value = headers.get(name.encode(), b"")
        if scheme:
            # RFC 9110 (11.1): the name of a scheme has no case.
            given, _, token = value.partition(b" ")
            value = token.strip() if given.lower() == scheme.strip().lower().encode() else b""
        keys.add(value)
    return keys - {b""}
