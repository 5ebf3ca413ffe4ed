"""An upstream over HTTP: one connection pool, no redirects, no cookies.

1. A request is sent once. The one exception is a pooled connection that the upstream closed while
   it was idle: it fails within a round trip, without a byte of a response, so the upstream has not
   read the request, and it is sent again on a new connection.
2. A connection is reused only if the response before ended where its framing says, and nothing
   came after it: one client never reads what was meant for another.
3. Bytes that arrived are delivered before the failure that cut them off.
4. Every failure on the wire is Unreachable, with a message that names the upstream, but neither
   its address nor its key. ValueError is our own fault: a setting or a path that cannot be sent.
"""

import asyncio
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib.metadata import version
from urllib.parse import urlsplit

from weft.parts import ErrorKind
from weft.upstream.base import (
    Busy,
    ConnectError,
    OutgoingRequest,
    Unreachable,
    UpstreamConfig,
    credentials,
    default_headers,
)
from weft.upstream.connection import ConnectionFailure, ConnectionState, HttpConnection
from weft.upstream.dialing import ProxyError, open_connection, parse_proxy

STALE_TIMEOUT = 1.0
"""Seconds within which a connection that was closed while idle fails. If it fails later, the
upstream has read the request, and the relay decides whether to retry."""

CONNECTION_HEADERS = frozenset(
    (
        "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer",
        "transfer-encoding", "upgrade",
    )
)  # fmt: skip
"""Headers that only the connection sets."""

# Nothing that could end a line or a request (CR, LF, blanks) gets into a head: names and values are
# RFC 9110 tokens and field values (5.1, 5.5).
_PATH = re.compile(r"/[!-\"$-~]*")  # printable, without a fragment
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
# A short response takes about ten turns of the loop. If a flood of tiny events had a chunk in each,
# all others would wait for ten of its chunks.
OTHERS_TURNS = 4
"""Turns of the event loop that others get between two chunks of a response that is received faster
than it is read."""

_DEFAULTS = {
    "user-agent": f"weft/{version('weft')}",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    # A compressing proxy would collect events to compress them.
    "accept-encoding": "identity",
}


class HttpResponse:
    """One response. Cancelling `read` loses nothing: the next call continues."""

    __slots__ = ("_connection", "_failure", "_has_rest", "_upstream", "headers", "status")

    def __init__(self, upstream: "HttpUpstream", connection: HttpConnection) -> None:
        self._upstream = upstream
        self._connection: HttpConnection | None = connection
        self._failure: str | None = None
        """A message rather than an exception, whose traceback would refer to this response."""
        self._has_rest = False
        """Whether chunks were left by the last `take`, perhaps in this turn of the loop."""
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    async def read(self) -> bytes:
        connection = self._connection
        while connection is not None:
            if connection.chunks and self._has_rest:
                self._has_rest = False
                for _ in range(OTHERS_TURNS):
                    await asyncio.sleep(0)
            elif connection.chunks:
                try:
                    data = connection.take()
                    self._has_rest = bool(connection.chunks)
                    if data:
                        return data
                except ConnectionFailure as problem:
                    self._cut(connection, problem)
            elif connection.state is ConnectionState.RECEIVING and connection.failure is None:
                await connection.wait()
            elif connection.state is ConnectionState.COMPLETE:
                self._release(connection)
                return b""
            else:
                self._cut(connection, connection.failure)
            connection = self._connection
        if self._failure is not None:
            raise Unreachable(self._failure, "truncated")
        return b""

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        connection = self._connection
        # Whatever is buffered is read first, in order.
        if connection is None or connection.chunks or connection.failure is not None:
            return
        if connection.state is ConnectionState.RECEIVING:
            await connection.stream_to(take)

    def abort(self) -> None:
        connection = self._connection
        if connection is None:
            return
        self._failure = self._upstream.message("the response was cancelled")
        complete = connection.state is ConnectionState.COMPLETE
        self._release(connection)
        if not complete:
            connection.close(ConnectionFailure("cancelled"))

    def _cut(self, connection: HttpConnection, failure: BaseException | None) -> None:
        self._failure = self._upstream.message(_describe_loss(failure, "during the response"))
        connection.close(ConnectionFailure("cut"))  # first: it must not go back to the pool
        self._release(connection)

    def _release(self, connection: HttpConnection) -> None:
        self._connection = None
        self._upstream.release(self, connection)


class Slots:
    """A limit of concurrent requests; those that wait are served in order."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        """More than 0 only while nobody waits: a slot is passed on to the next."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Takes a slot, if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Waits for a slot, after `take` returned False."""
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was passed on just before
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # not cancelled
                following.set_result(None)
                return
        self._free += 1


class HttpUpstream:
    """An upstream that is reached over HTTP. `close` aborts what is in progress."""

    config: UpstreamConfig

    def __init__(self, config: UpstreamConfig) -> None:
        """Raises ValueError for a base URL, header or TLS file that cannot be used."""
        self.config = config
        try:
            self._address = _Address(config.base_url)
        except ValueError:
            form = "base_url must be http(s)://host[:port][/path], without user, query and fragment"
            raise ValueError(self.message(form)) from None
        self._proxy = None if config.proxy is None else parse_proxy(config.proxy.reveal())
        # Once for all connections: it reads the certificates of the system.
        self._tls = _tls_context(config) if self._address.secure else None
        # RFC 9112 (3.2.2): a proxy gets the whole URL, unless it is a tunnel for TLS.
        forwards = self._proxy is not None and self._tls is None
        self._target = f"http://{self._address.name}" if forwards else ""
        self._proxy_headers = []
        if forwards and self._proxy is not None and self._proxy.authorization is not None:
            self._proxy_headers = [f"proxy-authorization: {self._proxy.authorization.reveal()}"]
        own = {name.lower(): value for name, value in config.headers.items()}
        self._own_headers = _checked({**own, **credentials(config.dialect, config.key)})
        self._default_headers = {**_DEFAULTS, **default_headers(config.dialect)}
        self._slots = Slots(config.concurrency) if config.concurrency else None
        # Nearly all are the same few; but each traced request has one of its own.
        self._head = lru_cache(maxsize=256)(self._render_head)
        self._idle: dict[HttpConnection, asyncio.TimerHandle] = {}
        self._open: set[HttpResponse] = set()
        self._awaiting_head: set[HttpConnection] = set()
        self._closed = False
        self._retired = False

    async def send(self, outgoing: OutgoingRequest) -> HttpResponse:
        head = self._head(outgoing.method, outgoing.path, tuple(outgoing.headers.items()))
        # RFC 9110 (8.6): a request without content sends none, unless its method expects some.
        length = (
            b"content-length: %d\r\n" % len(outgoing.body) if outgoing.method == "POST" else b""
        )
        # Head and body in one write: one packet for most requests.
        request = b"%b%b\r\n%b" % (head, length, outgoing.body)
        if self._closed:
            raise Unreachable(self.message("closed"))
        # A slot is held until the response was read, not until its head came: a stream is what an
        # upstream counts as concurrent.
        if self._slots is not None and not self._slots.take():
            try:
                async with asyncio.timeout(self.config.timeouts.connect):
                    await self._slots.wait()
            except TimeoutError:
                full = f"all {self.config.concurrency} requests allowed at a time are under way"
                raise Busy(self.message(full), "timeout") from None
        try:
            connection = self._reused()
            if connection is not None:
                sent = connection.loop.time()
                await self._send_on(connection, request)
                # The server's FIN may be under way while we write. RFC 9110 (9.2.2) leaves a retry
                # of a POST to clients that know that it was not processed: no byte came, and it
                # failed within a round trip.
                taken = connection.loop.time() - sent
                if not connection.status and was_closed_while_idle(connection, taken):
                    connection = None
            if connection is None:
                connection = await self._connect()
                await self._send_on(connection, request)
            if not connection.status:
                failure = connection.failure
                if isinstance(failure, TimeoutError):
                    late = f"no response within {self.config.timeouts.first_byte:g} s"
                    raise Unreachable(self.message(late), "timeout")
                raise Unreachable(self.message(_describe_loss(failure, "before the response")))
        except BaseException:
            # Cancelled, too: a slot that is not given back is lost for ever.
            if self._slots is not None:
                self._slots.release()
            raise
        response = HttpResponse(self, connection)
        self._open.add(response)
        return response

    def retire(self) -> None:
        """No further request will come: closes each connection once its response was read."""
        self._retired = True
        for connection in list(self._idle):
            connection.close(ConnectionFailure("no longer used"))

    @property
    def busy(self) -> bool:
        """Whether a response is still being read, or waited for."""
        return bool(self._open or self._awaiting_head)

    async def close(self) -> None:
        self._closed = True
        for response in list(self._open):
            response.abort()
        # Connections with an open response are aborted through it, above, so that its reader gets
        # an error.
        for connection in (*self._idle, *self._awaiting_head):
            connection.close(ConnectionFailure("closed"))

    def release(self, response: HttpResponse, connection: HttpConnection) -> None:
        """Returns the connection of a response that was read to its end, or given up."""
        self._open.discard(response)
        if self._slots is not None:
            self._slots.release()
        pool = self.config.pool
        is_kept = not (self._closed or self._retired) and pool.idle > 0
        if is_kept and connection.reusable and connection.age < pool.age:
            connection.release()
            if len(self._idle) >= pool.idle:
                oldest = next(iter(self._idle))
                self._forget(oldest)
                oldest.close(ConnectionFailure("too many idle connections"))
            expired = ConnectionFailure("idle for too long")
            self._idle[connection] = connection.loop.call_later(
                pool.idle_time, connection.close, expired
            )
        else:
            connection.close(ConnectionFailure("not reusable"))

    def message(self, problem: str) -> str:
        """Returns the message of a problem with this upstream."""
        return f'upstream "{self.config.name}": {problem}'

    # Connections

    def _reused(self) -> HttpConnection | None:
        """Returns the connection that was idle for the shortest time; closes those that are too
        old."""
        while self._idle:
            connection, timer = self._idle.popitem()
            timer.cancel()
            if connection.age < self.config.pool.age:
                return connection
            connection.close(ConnectionFailure("too old"))
        return None

    async def _connect(self) -> HttpConnection:
        address, limit = self._address, self.config.timeouts.connect
        kind: ErrorKind = "upstream"
        try:
            # asyncio has no timeout of its own for DNS, TCP and TLS together.
            async with asyncio.timeout(limit):
                factory = partial(HttpConnection, self._on_lost)
                return await open_connection(
                    factory, address.host, address.port, self._tls, self._proxy
                )
        except TimeoutError:
            kind, reason = "timeout", f"no connection within {limit:g} s"
        except socket.gaierror:
            reason = "host name not found"
        except ssl.SSLCertVerificationError as error:
            reason = f"certificate not trusted: {_reason(error)}"
        except ssl.SSLError as error:
            reason = f"TLS error: {_reason(error)}"
        except ProxyError as error:
            reason = str(error)
        except OSError as error:
            reason = _reason(error)
        if self._proxy is not None:
            reason += " (through a proxy)"
        raise ConnectError(f'cannot connect to upstream "{self.config.name}": {reason}', kind)

    def _on_lost(self, connection: HttpConnection) -> None:
        # Closed by the upstream while it was idle: it leaves the pool before a request is sent on
        # it.
        self._forget(connection)

    def _forget(self, connection: HttpConnection) -> None:
        timer = self._idle.pop(connection, None)
        if timer is not None:
            timer.cancel()

    async def _send_on(self, connection: HttpConnection, request: bytes) -> None:
        """Sends the request and waits for the head; `status` stays 0 if none comes."""
        limit = self.config.timeouts.first_byte
        connection.send(request)
        self._awaiting_head.add(connection)
        # Closing ends the wait below, whoever waits; a timeout around it would have to close as
        # well.
        timer = connection.loop.call_later(limit, connection.close, TimeoutError())
        try:
            while connection.state is ConnectionState.SENT and connection.failure is None:
                await connection.wait()
        except BaseException:
            # Nobody will read the response: on a pooled connection it would answer the next
            # request.
            connection.close(ConnectionFailure("cancelled"))
            raise
        finally:
            timer.cancel()
            self._awaiting_head.discard(connection)
        if not connection.status:
            connection.close(ConnectionFailure("no response"))

    def _render_head(self, method: str, path: str, sent: tuple[tuple[str, str], ...]) -> bytes:
        """The head, without its last lines. Raises ValueError."""
        if not _PATH.fullmatch(path):
            raise ValueError(f"invalid path: {path!r}")
        given = {name.lower(): value for name, value in sent}
        # Later ones win: the settings and the key over the client's headers, and those over our
        # defaults.
        headers = {**self._default_headers, **_checked(given), **self._own_headers}
        lines = [
            f"{method} {self._target}{self._address.path}{path} HTTP/1.1",
            f"host: {self._address.name}",
            *self._proxy_headers,
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
        ]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def was_closed_while_idle(connection: HttpConnection, seconds: float) -> bool:
    """Whether a request was lost unread, since the upstream had closed the pooled connection."""
    timed_out = isinstance(connection.failure, TimeoutError)
    return not connection.received and seconds < STALE_TIMEOUT and not timed_out


class _Address:
    """The parts of a base URL."""

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


def _tls_context(config: UpstreamConfig) -> ssl.SSLContext:
    tls = config.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, password="")  # never prompt on the terminal
    except (OSError, ValueError) as error:
        files = " or ".join(one for one in (tls.ca, tls.certificate) if one is not None)
        reason = f"cannot read {files}: {_reason(error)}"
        raise ValueError(f'upstream "{config.name}": tls: {reason}') from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Otherwise a host may choose HTTP/2, of which this connection reads nothing.
    context.set_alpn_protocols(["http/1.1"])
    return context


def _checked(headers: dict[str, str]) -> dict[str, str]:
    """Returns the headers. Raises ValueError, which names the header, but not its value."""
    for name, value in headers.items():
        if name in CONNECTION_HEADERS or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"header {name!r} cannot be sent")
    return headers


# Failures in our own words: messages of libraries may hold addresses and received bytes.


def _describe_loss(failure: BaseException | None, when: str) -> str:
    if isinstance(failure, ConnectionFailure):
        return str(failure)
    return f"connection lost {when}: {_reason(failure)}"


def _reason(error: BaseException | None) -> str:
    match error:
        case ssl.SSLCertVerificationError(verify_message=str(message)):
            return message
        case ssl.SSLError(reason=str(message)):
            return message
        case OSError(errno=int(number)) if number > 0:
            message = os.strerror(number)
        case OSError() if found := _ERRNO.search(str(error)):  # of several addresses, the first
            message = os.strerror(int(found[1]))
        case _:
            return "no reason given"
    return message[:1].lower() + message[1:]
