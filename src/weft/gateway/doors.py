"""Who may come in: the Host, the Origin and the key of a request, in this order.

Bound to loopback, a request must name a loopback host, with keys or without: a web page whose
name was pointed at us names another. Bound elsewhere, `hosts` are checked if there are any. What
changes something may not come from a foreign page. Without keys everybody who can reach us may
ask, but only in JSON, which no page can send unasked.
"""

import hmac
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

from weft.dialects.error_classes import new_error
from weft.gateway.settings.urls import loopback
from weft.parts import ErrorPart
from weft.relay.incoming import RequestFailed

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OPEN = frozenset(("/health", "/ready"))
"""Paths that need no key."""

PROBED = frozenset(("/", "/api/hello"))
"""Where clients look whether there is a server, before they show a key."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?", re.IGNORECASE)
_SAFE = ("GET", "HEAD")


class Shut(RequestFailed):
    """A request that was turned away, with the status that says why."""

    def __init__(self, status: int, error: ErrorPart) -> None:
        super().__init__(error)
        self.status = status


class Doors:
    """Decides on each request, by its head alone."""

    def __init__(self, bound: str, hosts: Iterable[str], keys: Mapping[str, str]) -> None:
        """`keys` are the secrets of clients, by their names."""
        named = tuple(host.lower() for host in hosts)
        self._hosts = frozenset((*LOOPBACK, *named) if loopback(bound) else named)
        self._keys = [(sha256(secret.encode()).digest(), name) for name, secret in keys.items()]

    def admit(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> str | None:
        """Returns the name of the key that asks, the empty one if there are no keys; None where
        everybody may ask without a key. Raises Shut."""
        host = self._host(headers)
        self._origin(method, host, headers)
        if path in OPEN or (method == "HEAD" and path in PROBED):
            return None
        if not self._keys:
            self._is_json(method, headers)
            return ""
        return self._name(headers)

    def _host(self, headers: Mapping[bytes, bytes]) -> str:
        told = headers.get(b"host", b"").decode("latin-1")
        found = _HOST.fullmatch(told)
        if found is None:
            raise Shut(400, new_error("bad-request", f"Host {told[:100]!r} is no host"))
        if self._hosts and not {found[1].lower(), told.lower()} & self._hosts:
            message = f"Host {told[:100]!r} is not served here; add it to server.hosts"
            raise Shut(421, new_error("bad-request", message))
        return told.lower()

    def _origin(self, method: str, host: str, headers: Mapping[bytes, bytes]) -> None:
        if method in _SAFE:
            return
        origin = headers.get(b"origin")
        if origin is not None:
            told = origin.decode("latin-1").lower()
            if told.partition("://")[2] != host:
                message = f"Origin {told[:100]!r}: requests of other pages are not taken"
                raise Shut(403, new_error("permission", message))
            self._is_json(method, headers)
        if headers.get(b"sec-fetch-site", b"") == b"cross-site":
            raise Shut(403, new_error("permission", "requests of other sites are not taken"))

    def _is_json(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        if method != "POST":
            return
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        is_empty = not kind and headers.get(b"content-length", b"0") == b"0"
        if is_empty and b"transfer-encoding" not in headers:
            return  # what is not there needs no type
        if kind != b"application/json":
            message = f"Content-Type {kind.decode('latin-1')[:100]!r}; expected application/json"
            raise Shut(415, new_error("bad-request", message))

    def _name(self, headers: Mapping[bytes, bytes]) -> str:
        told = shown_keys(headers)
        if not told:
            message = "no key; expected Authorization: Bearer, x-api-key or x-goog-api-key"
            raise Shut(401, new_error("auth", message))
        if len(told) > 1:
            message = "the request shows different keys; send one, or the same in each header"
            raise Shut(400, new_error("bad-request", message))
        digest = sha256(told.pop()).digest()
        found = [name for known, name in self._keys if hmac.compare_digest(known, digest)]
        if not found:
            raise Shut(401, new_error("auth", "the key is not one of this server's"))
        return found[0]


def shown_keys(headers: Mapping[bytes, bytes]) -> set[bytes]:
    """Returns the keys that a request shows, in whichever headers its client has for them."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    bearer = token.strip() if scheme.lower() == b"bearer" else b""
    shown = (bearer, headers.get(b"x-api-key", b""), headers.get(b"x-goog-api-key", b""))
    return {key for key in shown if key}
