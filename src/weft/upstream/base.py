"""The interface of an upstream: a server of models that speaks one dialect.

`send` returns when the head of the response has arrived. The body is then read in the pieces that
the network delivers; nothing is decoded here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

import msgspec
from msgspec import Raw

from weft.context import Quirks
from weft.dialect_names import DialectName
from weft.dialects import http_of
from weft.dialects.error_classes import CLASSES, ErrorClass, ErrorPartExtra, new_error
from weft.errors import UpstreamError
from weft.parts import ErrorKind, ErrorPart
from weft.scrub import Secret


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds."""

    connect: float = 10.0
    """Until the connection is open, including the TLS handshake."""

    # Minutes: without streaming, the head comes when the whole response is there.
    first_byte: float = 300.0
    """From sending the request until the head of the response."""

    between_events: float = 300.0
    """Without a byte inside a response."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a connection is encrypted."""

    verify: bool = True
    """Whether the certificate of the server is verified."""

    ca: str | None = None
    """A file with the certificates to trust; None: those of the system."""

    certificate: str | None = None
    """A file with the client certificate and its key."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed request is sent again."""

    # Three attempts and at most 8 s are also what the SDKs of OpenAI and Anthropic do.
    attempts: int = 3
    """Attempts per target, including the first."""

    base: float = 0.25
    """Seconds before the second attempt; doubled before each later one."""

    longest: float = 8.0
    """Seconds. If the wait would be longer, even because the upstream asked for it, the next target
    is tried instead."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a failing model or upstream is paused."""

    failures: int = 5
    """Failed requests for a model in a row that pause the model, or failed connections in a row
    that pause the upstream; 0: never."""

    open_for: float = 30.0
    """Seconds that the pause lasts. Then one request tries whether it is over."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Connections that are kept for the next request."""

    # As many as a busy process has streams: each connection more is a TLS handshake less.
    idle: int = 256
    """Connections that may be idle; beyond that, the oldest is closed."""

    idle_time: float = 75.0
    """Seconds until an idle connection is closed."""

    # A host that moves, or spreads its load by DNS, is followed after that time.
    age: float = 600.0
    """Seconds after which a connection is not used again."""


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """One upstream as the settings describe it."""

    name: str
    dialect: str
    base_url: str
    """`demo:` is the built-in model."""

    key: Secret | None = None
    quirks: Quirks | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    concurrency: int | None = None
    """Requests in progress at a time; None: unlimited."""

    tls: Tls = Tls()
    proxy: Secret | None = None
    """The URL of an HTTP proxy, which may contain a password."""

    pool: Pool = Pool()
    retry: RetryPolicy = RetryPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    models: tuple[str, ...] = ()
    """Models to list; requests may name others."""

    discover: bool = True
    """Whether the upstream is asked for its models, to list them too."""

    betas: tuple[str, ...] | None = None
    """The beta flags of a client that are forwarded; None: all of them."""

    origin: str = ""
    """The host. Encrypted reasoning and signatures go back only to the origin that made them."""


class OutgoingRequest(msgspec.Struct, frozen=True):
    """One HTTP request to an upstream. `path` is appended to its base URL."""

    path: str
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    caller: str = ""
    """The name of the client's API key, for an upstream in this process. It is not sent."""

    key: str | None = None
    """For an upstream in this process: two requests of a caller with the same key are one."""

    idempotency_key: str | None = None
    """As `key`, but chosen by the client: another request with it is an error."""

    method: str = "POST"
    client: DialectName | None = None
    """The dialect of the client, for an upstream in this process."""


class Unreachable(UpstreamError):
    """There is no response, or only part of one: refused, reset, timed out, not HTTP.

    `kind` is the kind of the error part it becomes: `upstream` before the head of the response,
    `truncated` after it, `timeout` if a timeout expired.
    """

    def __init__(self, message: str, kind: ErrorKind = "upstream") -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


class ConnectError(Unreachable):
    """No connection could be opened: refused, host not found, TLS failed, timed out."""


class Busy(Unreachable):
    """The request was not sent, since too many are in progress. Not a failure of the upstream."""


def error_of(problem: Unreachable) -> ErrorPart:
    """Returns the error part for a request that got no response."""
    # Its kind is `internal`: a breaker does not count what the upstream never saw.
    if isinstance(problem, Busy):
        return new_error("overloaded", str(problem), retry_after=1)
    found: ErrorClass = "timeout" if problem.kind == "timeout" else "bad-upstream-answer"
    extra = ErrorPartExtra(connected=not isinstance(problem, ConnectError))
    return ErrorPart(
        problem.kind,
        str(problem),
        status=CLASSES[found].status,
        retryable=True,
        extra=Raw(msgspec.json.encode(extra)),
    )


class UpstreamResponse(Protocol):
    """The response to one request: its head, and the body to be read."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are in lower case."""
        ...

    async def read(self) -> bytes:
        """Returns the next bytes, at least one; b"" at the end. Raises Unreachable."""
        ...

    async def stream_to(self, take: Callable[[bytes], bool]) -> None:
        """Calls `take` with the bytes as they arrive, in the same turn of the event loop, until it
        returns False. Returns at the latest when no more bytes come. The rest of the body, and how
        it ended, come from `read`.
        """
        ...

    def abort(self) -> None:
        """Closes the connection at once; a pending `read` raises Unreachable. May be called any
        number of times, also after the end."""
        ...


class Upstream(Protocol):
    """A server of models that requests can be sent to."""

    @property
    def config(self) -> UpstreamConfig: ...

    async def send(self, outgoing: OutgoingRequest) -> UpstreamResponse:
        """Returns the response when its head has arrived, whatever its status. Raises Unreachable.

        The caller must read the response to the end, or abort it. Cancelling `send` cancels the
        request.
        """
        ...

    async def close(self) -> None: ...


@lru_cache(maxsize=1024)
def endpoint(dialect: str, model: str, stream: bool) -> str:
    """Returns the path below the base URL for requests to this model."""
    # `safe=""` escapes the slash as well: the name of a model is one segment, and cannot climb out
    # of the path (`../files`) or add a query.
    return http_of(dialect).path(quote(model, safe=""), stream)


def default_headers(dialect: str) -> dict[str, str]:
    """Returns the headers that the dialect requires, unless the client sent its own."""
    return dict(http_of(dialect).headers)


def credentials(dialect: str, key: Secret | None) -> dict[str, str]:
    """Returns the header with the API key."""
    # Local servers have none.
    if key is None:
        return {}
    name, prefix = http_of(dialect).key
    return {name: prefix + key.reveal()}
