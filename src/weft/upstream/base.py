"""What an upstream is: a place that speaks a dialect, and answers what it is asked.

`ask` returns when the head of the answer is there. Its bytes are then read piece by piece, as
the network gives them; nothing is decoded here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

import msgspec
from msgspec import Raw

from weft.context import Quirks
from weft.dialects import http_of
from weft.dialects.error_classes import CLASSES, ErrorClass, ErrorPartExtra, new_error
from weft.errors import UpstreamError
from weft.parts import ErrorKind, ErrorPart
from weft.scrub import Secret


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds."""

    connect: float = 10.0
    """To the connection, TLS included."""

    first_byte: float = 300.0
    """From the request to the head of the answer."""

    between_events: float = 300.0
    """Silence inside an answer."""


@dataclass(frozen=True, slots=True)
class Tls:
    verify: bool = True
    """Whether the certificate of the host is checked."""

    ca: str | None = None
    """A file with the certificates to trust; None: those of the system."""

    certificate: str | None = None
    """A file with our own certificate and its key."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    attempts: int = 3
    """Tries of one target, the first included."""

    base: float = 0.25
    """Seconds before the second try; doubled before each one after it."""

    longest: float = 8.0
    """A longer wait, also one that the upstream asked for, is not worth it: go on to the next."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    failures: int = 5
    """Failed requests for a model in a row that pause the model, or failed connections in a row
    that pause the upstream; 0: never."""

    open_for: float = 30.0
    """Seconds that the pause lasts. Then one request tries whether it is over."""


@dataclass(frozen=True, slots=True)
class Place:
    """One upstream, as the settings describe it."""

    name: str
    dialect: str
    base_url: str
    """`demo:` is the built-in model."""

    key: Secret | None = None
    quirks: Quirks | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    concurrency: int | None = None
    """Answers at a time; None: any number."""

    tls: Tls = Tls()
    retry: RetryPolicy = RetryPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    models: tuple[str, ...] = ()
    """Models to list; others may be asked for all the same."""

    betas: tuple[str, ...] | None = None
    """The beta flags of a client that are passed on; None: all of them."""

    origin: str = ""
    """Whose proofs of reasoning this upstream takes back: its host."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One request to an upstream. `path` hangs below its base URL."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Unreachable(UpstreamError):
    """There is no answer, or no more of it: refused, reset, timed out, not HTTP.

    `kind` is that of the error part it becomes: `upstream` before the head, `truncated` after it,
    `timeout` where a limit ran out.
    """

    def __init__(self, message: str, kind: ErrorKind = "upstream") -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


class Unconnected(Unreachable):
    """There was no connection: refused, no address, no TLS, not in time."""


class Busy(Unreachable):
    """So many answers are under way that the upstream was not asked: this says nothing of it."""


def error_of(problem: Unreachable) -> ErrorPart:
    """Returns the error part of a request that got no answer."""
    if isinstance(problem, Busy):
        return new_error("overloaded", str(problem), retry_after=1)
    found: ErrorClass = "timeout" if problem.kind == "timeout" else "bad-upstream-answer"
    extra = ErrorPartExtra(connected=not isinstance(problem, Unconnected))
    return ErrorPart(
        problem.kind,
        str(problem),
        status=CLASSES[found].status,
        retryable=True,
        extra=Raw(msgspec.json.encode(extra)),
    )


class Incoming(Protocol):
    """The answer to one request: its head, and its bytes to come."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By names in lower case."""
        ...

    async def read(self) -> bytes:
        """Returns the next bytes, at least one; none at the end. Raises Unreachable."""
        ...

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """Hands on what comes, each time in the very turn of the loop that brings it, until it is
        told that this is enough. Returns at the latest when nothing more comes: how it ended, and
        what was not handed on, `read` tells.
        """
        ...

    def abort(self) -> None:
        """Closes the connection at once; a read that waits raises Unreachable. Any number of
        times, also after the end."""
        ...


class Upstream(Protocol):
    """A place that can be asked."""

    @property
    def place(self) -> Place: ...

    async def ask(self, outgoing: Outgoing) -> Incoming:
        """Returns the answer when its head is there, whatever its status. Raises Unreachable.

        Whoever asked must read to the end, or abort. Cancelling it cancels the request.
        """
        ...

    async def close(self) -> None: ...


def endpoint(dialect: str, model: str, stream: bool) -> str:
    """Returns the path, below the base URL, where a model is asked."""
    return http_of(dialect).path(quote(model, safe=""), stream)


def usual(dialect: str) -> dict[str, str]:
    """Returns the headers that a dialect wants beside the body, where a client has no other."""
    return dict(http_of(dialect).headers)


def credentials(dialect: str, key: Secret | None) -> dict[str, str]:
    """Returns the header that shows the key."""
    if key is None:
        return {}
    name, prefix = http_of(dialect).key
    return {name: prefix + key.reveal()}
