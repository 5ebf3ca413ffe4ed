"""Which heads of requests are refused though the parser takes them: two readers of one connection,
such as a proxy and this server, could cut what follows differently, or read two hosts, two keys or
two origins from them.
"""

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""


_UNIQUE = {
    b"host": "Host",
    b"authorization": "Authorization",
    b"x-api-key": "x-api-key",
    b"x-goog-api-key": "x-goog-api-key",
    b"origin": "Origin",
}
"""What a request may say once: who decides by another of two decides about another request."""


def head_error(version: str, method: bytes, target: bytes, headers: Headers) -> str | None:
    """Returns what is wrong with a head, or None."""
    hosts = [value.lower() for name, value in headers if name == b"host"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if version not in ("1.0", "1.1"):
        return "HTTP/1.1 and HTTP/1.0 are spoken here."
    names = [name for name, _ in headers if name in _UNIQUE]
    twice = next((_UNIQUE[name] for name in _UNIQUE if names.count(name) > 1), None)
    if twice is not None or (version == "1.1" and not hosts):
        return f"A request has one {twice or 'Host'} header."
    if codings and (version == "1.0" or codings != [b"chunked"]):
        return "The only Transfer-Encoding is chunked, once, in HTTP/1.1."
    if method == b"CONNECT":
        return "This is not a proxy."
    if target != b"*" and not target.startswith(b"/") and not _names(target, hosts):
        return "The target of a request is a path, or a URL of the Host."
    return None


def _names(target: bytes, hosts: list[bytes]) -> bool:
    _, _, rest = target.partition(b"://")
    authority, slash, _ = rest.partition(b"/")
    return slash == b"/" and hosts == [authority.lower()]


def has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


def longest_line(target: bytes, headers: Headers) -> int:
    """Returns the bytes of the longest line."""
    return max([len(target), *(len(name) + len(value) for name, value in headers)])


def without_upgrade(headers: Headers) -> Headers:
    """Returns the headers without what asks for an upgrade."""
    found = []
    for name, value in headers:
        if name == b"connection":
            tokens = [token.strip() for token in value.split(b",")]
            value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
            if not value:
                continue
        if name not in _UPGRADE:
            found.append((name, value))
    return found


_UPGRADE = (b"upgrade", b"http2-settings")
