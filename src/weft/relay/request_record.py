"""What is known of one request when it is over: for the log, and whoever else wants to know."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.assembler import Response
from weft.dialects.requests.codec import Loss
from weft.findings import Finding
from weft.parts import ErrorPart


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one target, and how it failed, if it did."""

    target: str
    error: ErrorPart | None = None


@dataclass(slots=True)
class RequestRecord:
    """One request. Filled while it runs; read when it is over."""

    id: str
    dialect: str
    model: str
    caller: str
    stream: bool
    started: float = field(default_factory=time.time)
    first: float | None = None
    """When the client was told the first of the answer."""

    ended: float | None = None
    attempts: list[Attempt] = field(default_factory=list)
    losses: tuple[Loss, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What was repaired in the answer, and what the client's dialect could not carry."""

    response: Response | None = None
    error: ErrorPart | None = None
    unstored: str | None = None
    """Why the answer was not stored, though it should have been."""

    status: int = 200
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def upstream(self) -> str:
        """Who was asked last."""
        return self.attempts[-1].target.partition("/")[0] if self.attempts else ""


Observer = Callable[[RequestRecord], None]
"""SentState of every request when it is over."""
