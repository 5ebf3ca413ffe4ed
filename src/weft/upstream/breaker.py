"""Circuit breakers: a model that keeps failing is paused, and so is an unreachable upstream.

1. Each model of an upstream has a breaker. Connection failures, timeouts and 5xx count, once per
   request, however often it was retried. Everything else shows that the model works: 4xx, and also
   429, which is a limit of one key and must not pause the model for everybody; a response that we
   could not decode, since one client's unusual request can cause that; an error after content.
2. Each upstream has one more breaker, for which only failed connections count.
3. A number of failures in a row opens a breaker. After the pause one request is admitted, the
   probe; its result closes the breaker, or opens it again.
4. The result of a request counts only if the state has not changed since it was admitted: a request
   that was sent before the pause says nothing about the time after it.
5. The last error may have been caused by another client. So the message to a refused client names
   its status and code, and quotes its message only if the words are our own.

Time is passed in: `now` is any monotonic clock.
"""

import logging
import math
import re
from enum import Enum

from weft.dialects.error_classes import ErrorClass, class_of, extra_of, new_error
from weft.log_events import log_event
from weft.parts import ErrorKind, ErrorPart
from weft.upstream.base import BreakerPolicy

MODELS = 256
"""Models per upstream whose failures are remembered: clients can invent names."""

MODEL_NAME = 200
"""Characters of a model's name; longer names with the same beginning share a breaker."""

log = logging.getLogger("weft.upstream")


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


CLOSED, OPEN, HALF_OPEN = BreakerState


class BreakerEvent(Enum):
    """What changes the state of a breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    LAST_FAILURE = "last failure"
    """The failure that reaches the limit."""

    ABANDONED = "abandoned"
    """A request ended without a result: its client left, or the error is our own."""

    PROBE = "probe"
    """A request was admitted after the pause."""


SUCCESS, FAILURE, LAST_FAILURE, ABANDONED, PROBE = BreakerEvent

TRANSITIONS: dict[BreakerState, dict[BreakerEvent, BreakerState]] = {
    # Requests pass, and failures in a row are counted.
    CLOSED: {SUCCESS: CLOSED, FAILURE: CLOSED, LAST_FAILURE: OPEN, ABANDONED: CLOSED},
    # Results of requests that were admitted before have another round: they never get here.
    OPEN: {PROBE: HALF_OPEN},
    # The probe is under way: one failure is enough.
    HALF_OPEN: {
        SUCCESS: CLOSED,
        FAILURE: OPEN,
        LAST_FAILURE: OPEN,
        ABANDONED: OPEN,  # the pause is over: the next request is the probe
    },
}

_COUNTED: frozenset[ErrorClass] = frozenset(
    ("server", "bad-upstream-answer", "overloaded", "timeout")
)
_BY_KIND: dict[ErrorKind, BreakerEvent] = {
    "cancelled": ABANDONED,
    "internal": ABANDONED,
    # One client's request can make any model answer with nothing, too much, or what is no JSON.
    "malformed": SUCCESS,
    "empty": SUCCESS,
    "too-large": SUCCESS,
}


def verdict(error: ErrorPart) -> BreakerEvent:
    """Returns what a failed request means for the breaker of its model."""
    if error.kind in _BY_KIND:
        return _BY_KIND[error.kind]
    refused = error.status is not None and error.status // 100 == 4
    return FAILURE if class_of(error) in _COUNTED and not refused else SUCCESS


def connection_verdict(error: ErrorPart) -> BreakerEvent:
    """Returns what a failed request means for the breaker of connections."""
    found = verdict(error)
    if found is ABANDONED:
        return ABANDONED
    # Any response, also a 500, shows that the host can be reached.
    return FAILURE if extra_of(error).connected is False else SUCCESS


_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OWN_WORDS = frozenset[ErrorKind](("timeout", "truncated"))
"""Kinds of errors with a message of our own."""


def summary(error: ErrorPart) -> str:
    """Returns a description of an error that any client may read."""
    if error.kind in _OWN_WORDS or extra_of(error).connected is not None:
        return error.message
    status = f"HTTP {error.status}" if error.status is not None else ""
    code = error.code if isinstance(error.code, str) and _CODE.fullmatch(error.code) else ""
    return f"{status} {code}".strip() or class_of(error)


class Breaker:
    """One breaker. Call `admit` for a request that it `admits`, and `ended` at its end, with the
    number that `admit` returned.
    """

    __slots__ = ("_due", "_failures", "_last", "_name", "_policy", "_what", "round", "state")

    def __init__(self, name: str, what: str, policy: BreakerPolicy) -> None:
        """`name` says whose breaker it is, and `what` what it counts."""
        self._name = name
        self._what = what
        self._policy = policy
        self.state = CLOSED
        self._failures = 0
        self._last = ""
        self._due = 0.0
        self.round = 0
        """How often the state has changed."""

    @property
    def is_new(self) -> bool:
        """Whether it has no failures and never had another state."""
        return self.round == 0 and self._failures == 0

    def admits(self, now: float) -> bool:
        """Whether a request would be admitted now."""
        return self.state is CLOSED or (self.state is OPEN and now >= self._due)

    def admit(self) -> int:
        """Admits a request; returns the number of its round."""
        if self.state is OPEN:
            self._step(PROBE)
            log.info("%s: trial request", self._name, extra=log_event("breaker-probe"))
        return self.round

    def refusal(self, now: float) -> ErrorPart:
        """Returns the error for a request that is not admitted."""
        if self.state is HALF_OPEN:
            return new_error(
                "overloaded", self._message("a trial request is under way"), retry_after=1
            )
        left = math.ceil(self._due - now)
        return new_error("overloaded", self._message(f"paused for {left} s"), retry_after=left)

    def ended(self, number: int, event: BreakerEvent, error: ErrorPart | None, now: float) -> None:
        """Counts the end of a request: success, failure (with its error), or abandoned. A request
        of an earlier round changes nothing.
        """
        # Rule 4.
        if number != self.round:
            return
        if event is SUCCESS:
            self._failures = 0
            if self.state is CLOSED:  # nearly every request
                return
        elif event is FAILURE and error is not None:
            self._failures += 1
            self._last = summary(error)
            if 0 < self._policy.failures <= self._failures:
                event = LAST_FAILURE
        self._step(event)
        if self.round == number:
            return
        if self.state is CLOSED:
            log.info("%s: no longer paused", self._name, extra=log_event("breaker-closed"))
        elif event is not ABANDONED:
            # An abandoned probe says nothing: the old due time stays, which is over, so the next
            # request is the probe.
            self._due = now + self._policy.open_for
            paused = self._message(f"paused for {self._policy.open_for:g} s")
            log.warning("%s", paused, extra=log_event("breaker-opened"))

    def _message(self, state: str) -> str:
        failures = f"{self._failures} {self._what} in a row"
        return f"{self._name}: {state} after {failures} (last: {self._last})"

    def _step(self, event: BreakerEvent) -> None:
        after = TRANSITIONS[self.state][event]
        self.round += after is not self.state
        self.state = after


class UpstreamBreakers:
    """The breakers of one upstream: one for connections, and one per model that has failed."""

    def __init__(self, name: str, policy: BreakerPolicy) -> None:
        self._name = f'upstream "{name}"'
        self._policy = policy
        self.models: dict[str, Breaker] = {}
        """Those that have failed."""
        self.connections = Breaker(self._name, "failed connections", policy)

    def __len__(self) -> int:
        return len(self.models)

    @property
    def states(self) -> list[tuple[str, BreakerState]]:
        """The states of the breakers that have counted a failure, by model; "" is that of the
        connections."""
        known = {"": self.connections, **self.models}
        return [(model, one.state) for model, one in known.items() if not one.is_new]

    def request(self, model: str) -> "RequestBreaker":
        """Returns the breakers of one request for a model."""
        return RequestBreaker(self, model)

    def of(self, model: str) -> Breaker:
        """Returns the breaker of a model; a new one if none is stored."""
        # Not stored yet: a model that never failed costs no memory.
        found = self.models.get(model)
        return found or Breaker(f'{self._name}, model "{model}"', "failures", self._policy)

    def store(self, model: str, breaker: Breaker) -> None:
        """Stores a breaker, unless it is like a new one."""
        if breaker.is_new:
            self.models.pop(model, None)
            return
        if model not in self.models and len(self.models) >= MODELS:
            # A pause is worth more than a count: those that are open go last.
            closed = (name for name, one in self.models.items() if one.state is CLOSED)
            del self.models[next(closed, next(iter(self.models)))]
        self.models[model] = breaker


class RequestBreaker:
    """The breakers of one request. Call `refusal` first; if it returns None, then exactly one of
    `succeeded`, `failed` and `abandoned`.
    """

    __slots__ = ("_breakers", "_connection_round", "_model", "_model_round")

    def __init__(self, breakers: UpstreamBreakers, model: str) -> None:
        self._breakers = breakers
        self._model = model[:MODEL_NAME]
        self._connection_round = self._model_round = 0

    def refusal(self, now: float) -> ErrorPart | None:
        """Returns why the request may not be sent. None admits it, perhaps as the probe: then no
        other request is admitted until it has ended.
        """
        upstream, model = self._breakers.connections, self._breakers.models.get(self._model)
        if model is None:  # it has never failed
            if upstream.state is CLOSED:  # nearly always
                self._connection_round = upstream.round
                return None
            if not upstream.admits(now):
                return upstream.refusal(now)
            self._connection_round = upstream.admit()
            return None
        # Both are checked before either changes: if one admitted the request as its probe and the
        # other refused it, that probe would never end.
        for breaker in (upstream, model):
            if not breaker.admits(now):
                return breaker.refusal(now)
        self._connection_round, self._model_round = upstream.admit(), model.admit()
        return None

    def succeeded(self, now: float) -> None:
        """The response has content."""
        if self._model in self._breakers.models:
            self._report(SUCCESS, SUCCESS, None, now)
        else:  # a new breaker that counts no failure stays a new one
            self._breakers.connections.ended(self._connection_round, SUCCESS, None, now)

    def failed(self, error: ErrorPart, now: float) -> None:
        """The request failed before any content; the error decides whether that counts."""
        self._report(verdict(error), connection_verdict(error), error, now)

    def abandoned(self) -> None:
        """The client left before there was a result."""
        self._report(ABANDONED, ABANDONED, None, 0.0)

    def _report(
        self,
        for_model: BreakerEvent,
        for_upstream: BreakerEvent,
        error: ErrorPart | None,
        now: float,
    ) -> None:
        # A new breaker that counts no failure stays a new one.
        if for_model is FAILURE or self._model in self._breakers.models:
            model = self._breakers.of(self._model)
            model.ended(self._model_round, for_model, error, now)
            self._breakers.store(self._model, model)
        self._breakers.connections.ended(self._connection_round, for_upstream, error, now)
