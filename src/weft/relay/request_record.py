"""What is known about one request when it is over: for the access log, metrics and usage."""

import time
from collections.abc import Callable

import msgspec

from weft.assembler import Response
from weft.dialects.requests.codec import Loss
from weft.findings import Finding
from weft.parts import ErrorPart
from weft.relay.trace_context import TraceContext
from weft.request import Request


class Attempt(msgspec.Struct, gc=False):
    """One attempt at one target, and its error if it failed before there was content."""

    target: str
    error: ErrorPart | None = None
    started: float | None = None
    """When it was sent; None if it was not: the breaker is open, or it cannot be translated."""

    ended: float | None = None
    """When it failed. The last attempt of a request ends with the request."""


class RequestRecord(msgspec.Struct):
    """One request: filled while it runs, read when it is over."""

    id: str
    dialect: str
    model: str
    caller: str
    stream: bool
    started: float = msgspec.field(default_factory=time.time)
    first: float | None = None
    """When the first of the response was sent to the client."""

    ended: float | None = None
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    losses: tuple[Loss, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What was repaired in the response, and what the client's dialect could not carry."""

    response: Response | None = None
    error: ErrorPart | None = None
    agent_run: str | None = None
    """The run that answered it, if its model is an agent."""

    unstored: str | None = None
    """Why the response was not stored, though it should have been."""

    # 499 (nginx's) if the client left.
    status: int = 200
    bytes_in: int = 0
    bytes_out: int = 0
    events: int = 0
    """Events for the client."""

    trace: TraceContext | None = None
    request: Request | None = None
    """The request, once it is parsed."""

    @property
    def upstream(self) -> str:
        """The upstream of the last attempt."""
        return self.attempts[-1].target.partition("/")[0] if self.attempts else ""


Observer = Callable[[RequestRecord], None]
"""Called with every request when it is over."""
