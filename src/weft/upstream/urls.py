"""Base URLs of upstreams."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

DEMO = ("demo:", "demo:fast")
"""The built-in model; the second one answers without delays."""

_PORTS = {"http": 80, "https": 443}
_LEGAL = re.compile(r"[\x21-\x7e]+")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A valid base URL, without a slash at its end."""

    url: str
    origin: str
    """The host, with its port unless that is the default."""

    exposed: bool = False
    """Requests are sent to another machine without TLS."""


def parse_base_url(text: str) -> BaseUrl:
    """Returns the base URL. Raises ValueError with a message that does not quote the text, which
    may contain a password."""
    if text in DEMO:
        return BaseUrl(text, "demo")
    if not _LEGAL.fullmatch(text):
        raise ValueError("a URL must not contain blanks or non-ASCII characters")
    parts = urlsplit(text)  # raises ValueError itself where brackets do not match
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("expected http://… or https://… with a host, or demo:")
    if "@" in parts.netloc:
        raise ValueError(
            "a user name or password in the URL is not supported; use api_key or headers"
        )
    if "?" in text or "#" in text:
        raise ValueError("a base URL must not have a query or fragment")
    if not _PATH.fullmatch(parts.path) or "\\" in text:
        raise ValueError("the path has characters that must be escaped")
    # Proxies resolve them, or not.
    if any(part in (".", "..") for part in parts.path.split("/")):
        raise ValueError("the path must not contain . or .. segments")
    port = parts.port  # raises ValueError itself
    if port == 0:
        raise ValueError("port 0 is not valid")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    url = f"{parts.scheme}://{origin}{parts.path.rstrip('/')}"
    return BaseUrl(url, origin, parts.scheme == "http" and not is_loopback(parts.hostname))


def is_loopback(host: str) -> bool:
    """Whether a host is always this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
