"""An upstream over HTTP: one pool of connections, one answer a request, no redirects, no cookies.

1. A request is sent once. The one exception is a pooled connection that the upstream had closed
   while it lay idle: it fails within a round trip and without a byte of an answer, so nobody has
   read the request, and it goes out again on a new connection.
2. A connection serves the next request only when the answer before it has ended where its
   framing says, and nothing came after it: one client never reads what was meant for another.
3. What came is handed on before the fault that cut it is told.
4. Whatever goes wrong on the wire is Unreachable, in words that name the upstream, and neither
   its address nor its key. ValueError is a fault of ours: settings or a path that cannot be sent.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from importlib.metadata import version
from urllib.parse import urlsplit

from weft.parts import ErrorKind
from weft.upstream.base import (
    Busy,
    Outgoing,
    Place,
    Tls,
    Unconnected,
    Unreachable,
    credentials,
    usual,
)
from weft.upstream.line import Broken, Line, State

IDLE_LIFE = 75.0
"""Seconds that a connection lies idle before we close it."""

STALE = 1.0
"""Seconds in which a connection that was closed while idle fails. Whatever fails later has been
read by the upstream, and whether to ask again is the relay's to say."""

FRAMING = frozenset(
    (
        "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer",
        "transfer-encoding", "upgrade",
    )
)  # fmt: skip
"""Headers that belong to the connection: nobody else sets them."""

_PATH = re.compile(r"/[!-\"$-~]*")  # printable and without a fragment: what is built, not typed
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_DEFAULTS = {
    "user-agent": f"weft/{version('weft')}",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
}


class _Gate:
    """So many answers at a time; whoever waits is let in in the order of coming."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._free = asyncio.Semaphore(place.concurrency) if place.concurrency else None

    async def enter(self) -> None:
        if self._free is None:
            return
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self._place.timeouts.connect):
                await self._free.acquire()
        except TimeoutError:
            number, name = self._place.concurrency, self._place.name
            words = f"all {number} requests allowed at a time are under way"
            raise Busy(f'upstream "{name}": {words}', "timeout") from None

    def leave(self) -> None:
        if self._free is not None:
            self._free.release()


# Answers


class HttpIncoming:
    """One answer. Cancelling a `read` loses nothing: the next one goes on."""

    __slots__ = ("_fault", "_line", "_taken", "_upstream", "headers", "status")

    def __init__(self, upstream: "HttpUpstream", line: Line) -> None:
        self._upstream = upstream
        self._line: Line | None = line
        self._fault: str | None = None
        """Why there is no more of it. No exception: one that was raised holds who raised it."""
        self._taken = False
        """Whether a part of what came was taken, perhaps in this turn of the loop."""
        self.status = line.status
        self.headers: Mapping[str, str] = line.headers

    async def read(self) -> bytes:
        line = self._line
        while line is not None:
            if line.pieces and self._taken:
                self._taken = False
                await asyncio.sleep(0)  # others have their turn
            elif line.pieces:
                try:
                    data = line.take()
                    self._taken = bool(line.pieces)
                    if data:
                        return data
                except Broken as problem:
                    line.fault = problem.with_traceback(None)  # its frames hold the line
                    self._cut(line)
            elif line.state is State.ANSWERING and line.fault is None:
                await line.change()
            elif line.state is State.COMPLETE:
                self._left(line)
                return b""
            else:
                self._cut(line)
            line = self._line
        if self._fault is not None:
            raise Unreachable(self._fault, "truncated")
        return b""

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        line = self._line
        going = line is not None and line.state is State.ANSWERING and line.fault is None
        if line is not None and going and not line.pieces:
            await line.flow(take)

    def abort(self) -> None:
        line = self._line
        if line is None:
            return
        self._fault = self._upstream.says("the response was cancelled")
        whole = line.state is State.COMPLETE
        self._left(line)
        if not whole:
            line.end(Broken("cancelled"))

    def _cut(self, line: Line) -> None:
        self._fault = self._upstream.says(_lost(line.fault, "during the response"))
        self._left(line)
        line.end(Broken("cut"))

    def _left(self, line: Line) -> None:
        self._line = None
        self._upstream.left(self, line)


# Asking


class HttpUpstream:
    """A place that is reached over HTTP. `close` when done; what is still open is aborted."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._address = _address(place)
        self._tls = _context(place) if self._address.secure else None
        own = {name.lower(): value for name, value in place.headers.items()}
        self._own = _sendable({**own, **credentials(place.dialect, place.key)})
        self._usual = {**_DEFAULTS, **usual(place.dialect)}
        self._gate = _Gate(place)
        self._idle: dict[Line, asyncio.TimerHandle] = {}
        self._open: set[HttpIncoming] = set()
        self._asking: set[Line] = set()
        """Lines that wait for the head of an answer."""
        self._closed = False

    @property
    def place(self) -> Place:
        return self._place

    async def ask(self, outgoing: Outgoing) -> HttpIncoming:
        request = self._request(outgoing)
        if self._closed:
            raise Unreachable(self.says("closed"))
        await self._gate.enter()
        try:
            line = await self._answered(request)
        except BaseException:
            self._gate.leave()
            raise
        answer = HttpIncoming(self, line)
        self._open.add(answer)
        return answer

    async def close(self) -> None:
        self._closed = True
        for answer in list(self._open):
            answer.abort()
        for line in (*self._idle, *self._asking):
            line.end(Broken("closed"))

    def left(self, answer: HttpIncoming, line: Line) -> None:
        """An answer was read to its end, or given up."""
        self._open.discard(answer)
        self._gate.leave()
        if line.reusable and not self._closed:
            line.rest()
            loop = asyncio.get_running_loop()
            self._idle[line] = loop.call_later(IDLE_LIFE, line.end, Broken("lay idle"))
        else:
            line.end(Broken("not to be used again"))

    # Connections

    async def _answered(self, request: bytes) -> Line:
        """Returns a line with the head of the answer."""
        line = self._pooled()
        if line is not None:
            sent = asyncio.get_running_loop().time()
            await self._head(line, request)
            if line.status:
                return line
            if not unasked(line, asyncio.get_running_loop().time() - sent):
                raise self._unreachable(line.fault)
        line = await self._connected()
        await self._head(line, request)
        if not line.status:
            raise self._unreachable(line.fault)
        return line

    def _pooled(self) -> Line | None:
        """The connection that lay idle for the shortest time."""
        if not self._idle:
            return None
        line, timer = self._idle.popitem()
        timer.cancel()
        return line

    async def _connected(self) -> Line:
        loop, place, limit = asyncio.get_running_loop(), self._address, self._place.timeouts.connect
        try:
            async with asyncio.timeout(limit):
                _, line = await loop.create_connection(
                    lambda: Line(self._lost), place.host, place.port, ssl=self._tls
                )
        except TimeoutError:
            raise self._unconnected(f"no connection within {limit:g} s", "timeout") from None
        except (OSError, ssl.SSLError) as error:
            raise self._unconnected(_unconnected(error)) from None
        return line

    def _lost(self, line: Line) -> None:
        timer = self._idle.pop(line, None)
        if timer is not None:
            timer.cancel()

    async def _head(self, line: Line, request: bytes) -> None:
        """Asks, and waits for the head; `status` stays 0 if there is none."""
        limit = self._place.timeouts.first_byte
        line.ask(request)
        self._asking.add(line)
        timer = asyncio.get_running_loop().call_later(limit, line.end, TimeoutError())
        try:
            while line.state is State.ASKED and line.fault is None:
                await line.change()
        except BaseException:
            line.end(Broken("cancelled"))
            raise
        finally:
            timer.cancel()
            self._asking.discard(line)
        if not line.status:
            line.end(Broken("no response"))

    def _unreachable(self, fault: BaseException | None) -> Unreachable:
        kind: ErrorKind = "upstream"
        words = _lost(fault, "before the response")
        if isinstance(fault, TimeoutError):
            kind = "timeout"
            words = f"no response within {self._place.timeouts.first_byte:g} s"
        return Unreachable(self.says(words), kind)

    def _unconnected(self, reason: str, kind: ErrorKind = "upstream") -> Unconnected:
        return Unconnected(f'cannot connect to upstream "{self._place.name}": {reason}', kind)

    def says(self, words: str) -> str:
        """What went wrong, and where."""
        return f'upstream "{self._place.name}": {words}'

    # What is sent

    def _request(self, outgoing: Outgoing) -> bytes:
        if not _PATH.fullmatch(outgoing.path):
            raise ValueError(f"invalid path: {outgoing.path!r}")
        given = {name.lower(): value for name, value in outgoing.headers.items()}
        headers = {**self._usual, **_sendable(given), **self._own}
        lines = [
            f"POST {self._address.path}{outgoing.path} HTTP/1.1",
            f"host: {self._address.name}",
            *(f"{name}: {value}" for name, value in headers.items()),
            f"content-length: {len(outgoing.body)}",
            "\r\n",
        ]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape") + outgoing.body


class _Address:
    """Where a base URL leads."""

    __slots__ = ("host", "name", "path", "port", "secure")

    def __init__(self, base_url: str) -> None:
        """Raises ValueError."""
        url = urlsplit(base_url)
        self.secure = url.scheme == "https"
        plain = url.scheme in ("http", "https") and "@" not in url.netloc and url.hostname
        if not plain or url.query or url.fragment or not _PATH.fullmatch(url.path or "/"):
            raise ValueError
        self.host = (url.hostname or "").encode("idna").decode()
        self.port = url.port or (443 if self.secure else 80)
        self.path = url.path.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.name = f"{host}:{url.port}" if url.port else host


def _address(place: Place) -> _Address:
    try:
        return _Address(place.base_url)
    except ValueError:
        raise ValueError(
            f'upstream "{place.name}": base_url must be http(s)://host[:port][/path], '
            "without user, query and fragment"
        ) from None


def _context(place: Place) -> ssl.SSLContext:
    tls = place.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, password="")  # never ask the terminal for one
    except (OSError, ValueError) as error:
        raise ValueError(f'upstream "{place.name}": tls: {_file(error, tls)}') from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _file(error: Exception, tls: Tls) -> str:
    files = " or ".join(one for one in (tls.ca, tls.certificate) if one is not None)
    return f"cannot read {files}: {_reason(error)}"


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    """The headers, if each of them can be one. A complaint names them, and not their values."""
    for name, value in headers.items():
        if name in FRAMING or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"header {name!r} cannot be sent")
    return headers


def unasked(line: Line, waited: float) -> bool:
    """Whether nobody has read the request that a line was lost with: it was closed before."""
    return not line.heard and waited < STALE and not isinstance(line.fault, TimeoutError)


# What went wrong, in words. What libraries say of it may hold addresses and bytes that came.


def _unconnected(error: Exception) -> str:
    match error:
        case socket.gaierror():
            return "host name not found"
        case ssl.SSLCertVerificationError():
            return f"certificate not trusted: {_reason(error)}"
        case ssl.SSLError():
            return f"TLS error: {_reason(error)}"
    return _reason(error)


def _lost(fault: BaseException | None, when: str) -> str:
    if isinstance(fault, Broken):
        return str(fault)
    return f"connection lost {when}: {_reason(fault)}"


def _named(errno: int) -> str:
    said = os.strerror(errno)
    return said[:1].lower() + said[1:]


def _reason(error: BaseException | None) -> str:
    match error:
        case ssl.SSLCertVerificationError(verify_message=str(said)):
            return said
        case ssl.SSLError(reason=str(said)):
            return said
        case OSError(errno=int(number)) if number > 0:
            return _named(number)
        case OSError() if found := _ERRNO.search(str(error)):  # of several addresses, the first
            return _named(int(found[1]))
    return "no reason given"
