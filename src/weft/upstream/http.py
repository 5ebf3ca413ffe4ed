"""An upstream over HTTP: one pool of connections, one answer a request, no redirects, no cookies.

1. A request is sent once. The one exception is a pooled connection that the upstream had closed
   while it lay idle: it fails within a round trip and without a byte of an answer, so nobody has
   read the request, and it goes out again on a new connection.
2. A connection serves the next request only when the answer before it has ended where its
   framing says, and nothing came after it: one client never reads what was meant for another.
3. What came of an answer is handed on before the fault that cut it is told.
4. Whatever goes wrong on the wire is Unreachable, in words that name the upstream, and neither
   its address nor its key. ValueError is a fault of ours: settings or a path that cannot be sent.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from enum import Enum
from importlib.metadata import version
from io import BytesIO
from typing import NoReturn
from weakref import WeakSet

from aiohttp import (
    ClientConnectionError,
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientOSError,
    ClientPayloadError,
    ClientRequest,
    ClientResponse,
    ClientResponseError,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    StreamReader,
    TCPConnector,
)
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from aiohttp.tracing import Trace
from yarl import URL

from weft.parts import ErrorKind
from weft.upstream.base import Busy, Outgoing, Place, Tls, Unreachable, credentials, usual

DNS_LIFE = 300
IDLE_LIFE = 75.0
"""Seconds that a connection lies idle before we close it."""

READ_SIZE = 64 * 1024
"""Twice this much of an answer waits unread; then the upstream is read no further."""

AT_ONCE = 256 * 1024
"""A body up to here is written in one go; a larger one piece by piece, to hold up nobody else."""

LINE_SIZE = 8 * 1024
FIELD_SIZE = 32 * 1024
FIELDS = 128
STALE = 1.0
"""Seconds in which a connection that was closed while idle fails. Whatever fails later has been
read by the upstream, and whether to ask again is the relay's to say."""

FRAMING = frozenset(
    (
        "connection", "content-length", "expect", "keep-alive", "te", "trailer",
        "transfer-encoding", "upgrade",
    )
)  # fmt: skip
"""Headers that belong to the connection: nobody else sets them."""

_PATH = re.compile(r"/[!-\"$-~]*")  # printable and without a fragment: what is built, not typed
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_DEFAULTS = {
    "user-agent": f"weft/{version('weft')}",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
}


# Connections


class Attempt:
    """One request on one connection, from looking for the connection to the head."""

    __slots__ = ("connected", "first_byte", "limit", "reused", "transport")

    def __init__(self, limit: asyncio.Timeout, first_byte: float, reused: bool) -> None:
        self.limit = limit
        self.first_byte = first_byte
        self.reused = reused
        """Whether a pooled connection may be used; then, whether one is."""
        self.transport: asyncio.Transport | None = None
        self.connected = 0.0

    def begin(self, connection: Connection, reused: bool, now: float) -> None:
        """The connection is there: the time to answer runs."""
        self.reused = reused
        self.connected = now
        self.transport = connection.transport
        self.limit.reschedule(now + self.first_byte)

    def stale(self, error: Exception, now: float) -> bool:
        """Whether the upstream had closed the connection before it saw this request."""
        begun = isinstance(error, ServerDisconnectedError) and not isinstance(error.message, str)
        lost = isinstance(error, ClientOSError | ServerDisconnectedError)
        return self.reused and lost and not begun and now - self.connected < STALE

    def drop(self) -> None:
        """Ends the connection now, also where a request that nobody reads is not sent yet."""
        if self.transport is not None:
            self.transport.abort()


_ATTEMPT: ContextVar[Attempt] = ContextVar("attempt")


class _Connector(TCPConnector):
    """Tells the attempt which connection it got, and gives it none that has something to say."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(
            limit=0,
            ttl_dns_cache=DNS_LIFE,
            keepalive_timeout=IDLE_LIFE,
            ssl=tls if tls is not None else True,
        )
        self._known: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        attempt = _ATTEMPT.get()
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            assert protocol is not None
            reused = protocol in self._known
            if not protocol.should_close and (attempt.reused or not reused):
                if not reused:
                    self._known.add(protocol)
                    _when_lost(protocol, _unnoticed)
                attempt.begin(connection, reused, self._loop.time())
                return connection
            connection.close()
            if not reused:
                raise ClientConnectionError("spoke before it was asked")


def _when_lost(protocol: ResponseHandler, call: Callable[["asyncio.Future[None]"], None]) -> None:
    closed = protocol.closed
    if closed is not None:
        closed.add_done_callback(call)


def _unnoticed(lost: "asyncio.Future[None]") -> None:
    """Looks at how an idle connection went, or else the loop complains that nobody did."""
    lost.exception()


class _Gate:
    """So many answers at a time; whoever waits is let in in the order of coming."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._free = asyncio.Semaphore(place.concurrency) if place.concurrency else None

    async def enter(self) -> None:
        if self._free is None:
            return
        try:
            async with asyncio.timeout(self._place.timeouts.connect):
                await self._free.acquire()
        except TimeoutError:
            number, name = self._place.concurrency, self._place.name
            raise Busy(f"all {number} places at {name} are taken", "timeout") from None

    def leave(self) -> None:
        if self._free is not None:
            self._free.release()


# Answers


class State(Enum):
    """Where an answer stands."""

    OPEN = "open"
    ENDED = "ended"
    CUT = "cut"
    ABORTED = "aborted"


class HttpIncoming:
    """One answer. Cancelling a `read` loses nothing: the next one goes on."""

    __slots__ = (
        "_fault", "_headers", "_leave", "_name", "_next", "_protocol", "_response", "_state",
        "_status",
    )  # fmt: skip

    def __init__(
        self, name: str, response: ClientResponse, leave: Callable[["HttpIncoming"], None]
    ) -> None:
        self._name = name
        self._response = response
        self._leave = leave
        self._status = response.status
        self._headers = _lowered(response)
        self._state = State.OPEN
        self._fault: Unreachable | None = None
        self._next: Callable[[], Awaitable[bytes]] = response.content.readany
        self._protocol = response.connection.protocol if response.connection else None
        if self._protocol is not None:  # else all of the answer is here
            _when_lost(self._protocol, self._lost)

    @property
    def status(self) -> int:
        return self._status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    async def read(self) -> bytes:
        try:
            piece = await self._next()
        except (ClientError, OSError, RuntimeError) as error:
            return self._broken(error)
        if not piece and self._state is State.OPEN:
            self._ended()
        return piece

    def abort(self) -> None:
        if self._state is not State.OPEN:
            return
        self._fault = Unreachable(f"the answer of {self._name} was given up", "truncated")
        self._end(State.ABORTED, self._tell)
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()  # closing alone would first send what is left to send
        self._response.close()

    def _lost(self, _: object) -> None:
        """Wakes whoever reads an answer whose framing went wrong: the library forgets to."""
        assert self._protocol is not None
        if isinstance(self._protocol.exception(), HttpProcessingError):
            self._response.content.set_exception(ClientPayloadError())

    def _ended(self) -> None:
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        fault = self._protocol.exception() if self._protocol is not None else None
        if not framed and isinstance(fault, ClientOSError):
            self._broken(fault)  # it was to end with its connection, and that did not end well
        self._end(State.ENDED, _nothing)

    def _broken(self, error: Exception) -> bytes:
        """Returns what had come before the fault; raises it where there is nothing."""
        if self._state is not State.OPEN:
            self._raise()
        connected = self._protocol is not None and self._protocol.connected
        if isinstance(error, RuntimeError) and connected:
            raise error  # two readers: our own fault
        self._fault = Unreachable(f"{self._name}: {_cut(error)}", "truncated")
        self._end(State.CUT, self._tell)
        rest = _unread(self._response.content)
        self._response.close()
        return rest or self._raise()

    def _end(self, state: State, after: Callable[[], Awaitable[bytes]]) -> None:
        self._state = state
        self._next = after
        if self._protocol is not None and self._protocol.closed is not None:
            self._protocol.closed.remove_done_callback(self._lost)
        self._leave(self)

    async def _tell(self) -> bytes:
        self._raise()

    def _raise(self) -> NoReturn:
        assert self._fault is not None
        raise self._fault from None


async def _nothing() -> bytes:
    return b""


def _unread(content: StreamReader) -> bytes:
    """Returns what a reader holds back once it has failed: it tells its fault first."""
    rest = b"".join(content._buffer)
    content._buffer.clear()
    return rest


def _lowered(response: ClientResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in response.headers.items():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


# Asking


class HttpUpstream:
    """A place that is reached over HTTP. `close` when done; what is still open is aborted."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._base, secure = _base(place)
        self._tls = _context(place) if secure else None
        own = {name.lower(): value for name, value in place.headers.items()}
        self._own = _sendable({**own, **credentials(place.dialect, place.key)})
        self._gate = _Gate(place)
        self._session: ClientSession | None = None
        self._open: set[HttpIncoming] = set()

    @property
    def place(self) -> Place:
        return self._place

    async def ask(self, outgoing: Outgoing) -> HttpIncoming:
        if not _PATH.fullmatch(outgoing.path):
            raise ValueError(f"not a path: {outgoing.path!r}")
        url = URL(self._base + outgoing.path, encoded=True)
        given = {name.lower(): value for name, value in outgoing.headers.items()}
        usually = {**_DEFAULTS, **usual(self._place.dialect)}
        headers = {**usually, **_sendable(given), **self._own}
        await self._gate.enter()
        try:
            response = await self._sent(url, headers, outgoing.body)
        except BaseException:
            self._gate.leave()
            raise
        answer = HttpIncoming(self._place.name, response, self._left)
        self._open.add(answer)
        return answer

    async def close(self) -> None:
        for answer in list(self._open):
            answer.abort()
        if self._session is not None:
            await self._session.close()

    def _left(self, answer: HttpIncoming) -> None:
        self._open.remove(answer)
        self._gate.leave()

    async def _sent(self, url: URL, headers: dict[str, str], body: bytes) -> ClientResponse:
        found = await self._tried(url, headers, body, reused=True)
        if found is None:
            found = await self._tried(url, headers, body, reused=False)
        assert found is not None
        return found

    async def _tried(
        self, url: URL, headers: dict[str, str], body: bytes, reused: bool
    ) -> ClientResponse | None:
        """Returns the answer; None if the connection was stale, which only a reused one can be."""
        limits = self._place.timeouts
        async_limit = asyncio.timeout(limits.connect)
        attempt = Attempt(async_limit, limits.first_byte, reused)
        token = _ATTEMPT.set(attempt)
        try:
            async with async_limit:
                return _checked(await self._posted(url, headers, body))
        except BaseException as error:
            attempt.drop()
            if not isinstance(error, ClientError | OSError):  # also TimeoutError is an OSError
                raise
            if attempt.stale(error, asyncio.get_running_loop().time()):
                return None
            raise self._unreachable(error, attempt) from None
        finally:
            _ATTEMPT.reset(token)

    async def _posted(self, url: URL, headers: dict[str, str], body: bytes) -> ClientResponse:
        return await self._opened().post(
            url,
            data=body if len(body) <= AT_ONCE else BytesIO(body),
            headers=headers,
            allow_redirects=False,
        )

    def _opened(self) -> ClientSession:
        if self._session is None:
            self._session = ClientSession(
                connector=_Connector(self._tls),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=None),
                trust_env=False,
                raise_for_status=False,
                read_bufsize=READ_SIZE,
                max_line_size=LINE_SIZE,
                max_field_size=FIELD_SIZE,
                max_headers=FIELDS,
            )
        if self._session.closed:
            raise ClientConnectionError("is closed")
        return self._session

    def _unreachable(self, error: Exception, attempt: Attempt) -> Unreachable:
        name, limits = self._place.name, self._place.timeouts
        kind: ErrorKind = "upstream"
        words = _uncut(error)
        if isinstance(error, TimeoutError):
            kind = "timeout"
            reached = attempt.transport is not None
            missing = "answer" if reached else "connection"
            seconds = limits.first_byte if reached else limits.connect
            words = f"no {missing} within {seconds:g} s"
        return Unreachable(f"{name}: {words}", kind)


def _checked(response: ClientResponse) -> ClientResponse:
    """The answer, if its status is one: 101, too, leads to no answer."""
    if not 200 <= response.status <= 599:
        response.close()
        raise ClientConnectionError(f"answered with the status {response.status:03}")
    return response


# What is sent


def _base(place: Place) -> tuple[str, bool]:
    """The base URL without a slash at its end, and whether it is a TLS one."""
    try:
        url = URL(place.base_url)
        (url.raw_host or "").encode("idna")  # as the resolver will
    except ValueError:
        url = URL()
    plain = url.scheme in ("http", "https") and url.host
    if not plain or url.user or url.password or url.query_string or url.fragment:
        raise ValueError(
            f"upstream {place.name}: base_url is http(s)://host[:port][/path], "
            "without user, query and fragment"
        )
    return str(url).rstrip("/"), url.scheme == "https"


def _context(place: Place) -> ssl.SSLContext:
    tls = place.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, password="")  # never ask the terminal for one
    except (OSError, ValueError) as error:
        raise ValueError(f"upstream {place.name}: tls: {_file(error, tls)}") from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _file(error: Exception, tls: Tls) -> str:
    files = " or ".join(one for one in (tls.ca, tls.certificate) if one is not None)
    return f"{files} cannot be read: {_reason(error)}"


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    """The headers, if each of them can be one. A complaint names them, and not their values."""
    for name, value in headers.items():
        if name in FRAMING or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"not a header to send: {name!r}")
    return headers


# What went wrong, in words. What libraries say of it may hold addresses and bytes that came.


def _uncut(error: Exception) -> str:
    """Of a request that got no head."""
    match error:
        case ClientConnectorDNSError():
            return "its host name cannot be resolved"
        case ClientConnectorCertificateError(certificate_error=reason):
            return f"its certificate is not trusted: {_reason(reason)}"
        case ClientSSLError(os_error=reason):
            return f"TLS failed: {_reason(reason)}"
        case ClientConnectorError(os_error=reason):
            return f"cannot be connected: {_reason(reason)}"
        case ServerDisconnectedError():
            return "closed the connection before it answered"
        case ClientResponseError():
            return "what it sent is not HTTP"
        case OSError():
            return f"connection lost before it answered: {_reason(error)}"
    return str(error)


def _cut(error: Exception) -> str:
    """Of an answer that broke off."""
    if isinstance(error, OSError):
        return f"connection lost inside the answer: {_reason(error)}"
    return "the answer broke off, or its framing is wrong"


def _reason(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError(verify_message=str(said)):
            return said
        case ssl.SSLError(reason=str(said)):
            return said
        case OSError(errno=int(number)) if number > 0:
            return os.strerror(number)
    return "no reason given"
