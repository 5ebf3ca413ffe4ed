"""Base URLs: what may be one, and whose it is."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

DEMO = ("demo:", "demo:fast")
"""The built-in model; the second one does not take its time."""

_PORTS = {"http": 80, "https": 443}
_LEGAL = re.compile(r"[\x21-\x7e]+")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A base URL that can be used, without a slash at its end."""

    url: str
    origin: str
    """The host, with its port if that is not the usual one."""

    exposed: bool = False
    """What is sent can be read on the way: no TLS, and another machine."""


def parse_base_url(text: str) -> BaseUrl:
    """Returns the address; raises ValueError with what is wrong. The text itself is not told,
    for it may hold a password."""
    if text in DEMO:
        return BaseUrl(text, "demo")
    if not _LEGAL.fullmatch(text):
        raise ValueError("an address has no blanks and no letters outside ASCII")
    parts = urlsplit(text)  # raises ValueError itself where brackets do not match
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("expected http://… or https://… with a host, or demo:")
    if "@" in parts.netloc:
        raise ValueError("a name or password in the address is not used; see api_key and headers")
    if "?" in text or "#" in text:
        raise ValueError("an address ends with its path: no query, no fragment")
    if not _PATH.fullmatch(parts.path) or "\\" in text:
        raise ValueError("the path has characters that need to be escaped")
    if any(part in (".", "..") for part in parts.path.split("/")):
        raise ValueError("the path must not go up or stay: no . and no ..")
    port = parts.port  # raises ValueError itself
    if port == 0:
        raise ValueError("there is no port 0 to connect to")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    url = f"{parts.scheme}://{origin}{parts.path.rstrip('/')}"
    return BaseUrl(url, origin, parts.scheme == "http" and not is_loopback(parts.hostname))


def is_loopback(host: str) -> bool:
    """Whether a host can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
