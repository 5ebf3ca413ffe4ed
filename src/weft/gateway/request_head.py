"""Checks of a request head that httptools accepts, but two parsers of one connection, such as a
proxy and this server, could read differently: where the body ends, or which of two hosts, keys or
origins counts (request smuggling, RFC 9112, 11.2).
"""

from weft.dialects import KEY_HEADERS

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""


_UNIQUE = {
    b"host": "Host",
    **{
        name.encode(): name.capitalize() if scheme else name for name, scheme in KEY_HEADERS.items()
    },
    b"origin": "Origin",
}
"""Headers that a request may have once."""


def head_error(version: str, method: bytes, target: bytes, headers: Headers) -> str | None:
    """Returns what is wrong with a head, for its client; None if nothing is."""
    fields = dict(headers)
    host, coding = fields.get(b"host"), fields.get(b"transfer-encoding")
    # httptools accepts 0.9 and 2.0, too.
    if version not in ("1.0", "1.1"):
        return "The HTTP version must be 1.1 or 1.0."
    names = []
    if len(fields) != len(headers):
        # RFC 9112 (3.2): none or two Hosts are a 400. The others are not lists either, so of two
        # values one parser may take the first, another the last.
        names = [name for name, _ in headers]
        repeated = next((_UNIQUE[name] for name in _UNIQUE if names.count(name) > 1), None)
        if repeated is not None:
            return f"The request must have exactly one {repeated} header."
    if host is None and version == "1.1":
        return "The request must have exactly one Host header."
    # RFC 9112 (6.1): faulty framing in HTTP/1.0, whose proxies do not know the header. httptools
    # refuses it beside a Content-Length, but takes `gzip, chunked`, and reports compressed bytes as
    # the body.
    if coding is not None:
        is_chunked = coding.lower() == b"chunked" and names.count(b"transfer-encoding") <= 1
        if version == "1.0" or not is_chunked:
            return "Transfer-Encoding must be chunked, once, and only in HTTP/1.1."
    if method == b"CONNECT":
        return "CONNECT is not supported: this server is not a proxy."
    if target.startswith(b"/") or target == b"*":
        return None
    # RFC 9112 (3.2.2): a server must accept a whole URL as target. The app checks Host alone,
    # against DNS rebinding, so the URL may not name another one.
    authority, slash, _ = target.partition(b"://")[2].partition(b"/")
    if slash and host is not None and host.lower() == authority.lower():
        return None
    return "The request target must be a path, or a URL of the Host."


def has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


def longest_line(target: bytes, headers: Headers) -> int:
    """Returns the length of the longest line, in bytes."""
    return max([len(target), *(len(name) + len(value) for name, value in headers)])


def without_upgrade(headers: Headers) -> Headers:
    """Returns the headers without a request for an upgrade."""
    found = []
    for name, value in headers:
        # RFC 9110 (7.6.1): its tokens name the headers that go with it.
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
            if not value:
                continue
        if name not in _UPGRADE:
            found.append((name, value))
    return found


# curl --http2 sends both with every first request over plain HTTP.
_UPGRADE = (b"upgrade", b"http2-settings")
