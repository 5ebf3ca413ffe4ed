"""Circuit breakers: a model that keeps failing is paused, and an upstream that nobody reaches.

1. Each model of an upstream has a breaker. Connection failures, timeouts and 5xx count, once for
   each request, however often it was retried. Any other answer is a sign of life: 4xx, and also
   429, which is a limit of one key and must not pause the model for everybody; an answer that we
   could not read, since one client's odd request can bring that about; an error after content.
2. Each upstream has one more breaker, for which only failed connections count.
3. So many failures in a row open a breaker. After the pause one request may pass, the probe; its
   end closes the breaker, or opens it again.
4. What a request says counts only if nothing has changed since it was admitted: a request that was
   sent before the pause says nothing of the time after it.
5. What a paused client is told may have been caused by another client. So it names the status and
   the code of the last error, and its message only where the words are our own.

Time is passed in: `now` is any clock that does not go back.
"""

import logging
import math
import re
from enum import Enum

from weft.dialects.error_classes import ErrorClass, class_of, extra_of, new_error
from weft.parts import ErrorKind, ErrorPart
from weft.upstream.base import BreakerPolicy

MODELS = 256
"""Models of one upstream that are remembered for their failures: clients can invent names."""

MODEL_NAME = 200
"""Characters of a model's name; longer names that begin alike share a breaker."""

log = logging.getLogger("weft.upstream")


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


CLOSED, OPEN, HALF_OPEN = BreakerState


class BreakerEvent(Enum):
    """What happens to a breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    LAST_FAILURE = "last failure"
    """The one in a row that is too many."""

    ABANDONED = "abandoned"
    """A request ended and says nothing: its client left, or the fault is our own."""

    PROBE = "probe"
    """A request was admitted when the pause was over."""


SUCCESS, FAILURE, LAST_FAILURE, ABANDONED, PROBE = BreakerEvent

TRANSITIONS: dict[BreakerState, dict[BreakerEvent, BreakerState]] = {
    CLOSED: {SUCCESS: CLOSED, FAILURE: CLOSED, LAST_FAILURE: OPEN, ABANDONED: CLOSED},
    OPEN: {PROBE: HALF_OPEN},
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
    "malformed": SUCCESS,
    "empty": SUCCESS,
    "too-large": SUCCESS,
}


def verdict(error: ErrorPart) -> BreakerEvent:
    """Returns what a failed request says of the model that was asked."""
    if error.kind in _BY_KIND:
        return _BY_KIND[error.kind]
    refused = error.status is not None and error.status // 100 == 4
    return FAILURE if class_of(error) in _COUNTED and not refused else SUCCESS


def connection_verdict(error: ErrorPart) -> BreakerEvent:
    """Returns what a failed request says of the upstream: whether it could be reached."""
    found = verdict(error)
    if found is ABANDONED:
        return ABANDONED
    return FAILURE if extra_of(error).connected is False else SUCCESS


_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_OWN_WORDS = frozenset[ErrorKind](("timeout", "truncated"))
"""Kinds of errors that we notice ourselves."""


def summary(error: ErrorPart) -> str:
    """Returns what an error was, in words that any client may read."""
    if error.kind in _OWN_WORDS or extra_of(error).connected is not None:
        return error.message
    status = f"HTTP {error.status}" if error.status is not None else ""
    code = error.code if isinstance(error.code, str) and _CODE.fullmatch(error.code) else ""
    return f"{status} {code}".strip() or class_of(error)


class Breaker:
    """One breaker. A request that it `admits` is let pass by `admit`, and reported by `ended`, with
    the number that `admit` returned.
    """

    __slots__ = ("_due", "_failures", "_last", "_name", "_policy", "_round", "_state", "_what")

    def __init__(self, name: str, what: str, policy: BreakerPolicy) -> None:
        """`name` says whose it is, and `what` what it counts."""
        self._name = name
        self._what = what
        self._policy = policy
        self._state = CLOSED
        self._failures = 0
        self._last = ""
        self._due = 0.0
        self._round = 0
        """How often the state has changed."""

    @property
    def state(self) -> BreakerState:
        return self._state

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to remember."""
        return self._round == 0 and self._failures == 0

    def admits(self, now: float) -> bool:
        """Whether a request may pass now."""
        return self._state is CLOSED or (self._state is OPEN and now >= self._due)

    def admit(self) -> int:
        """Lets a request pass; returns the number of its round."""
        if self._state is OPEN:
            self._step(PROBE)
        return self._round

    def refusal(self, now: float) -> ErrorPart:
        """Returns what a request is told that may not pass."""
        if self._state is HALF_OPEN:
            return new_error(
                "overloaded", self._says("a trial request is under way"), retry_after=1
            )
        left = math.ceil(self._due - now)
        return new_error("overloaded", self._says(f"paused for {left} s"), retry_after=left)

    def ended(self, number: int, event: BreakerEvent, error: ErrorPart | None, now: float) -> None:
        """A request of this round ended: in success, in failure (then `error` says which), or
        abandoned. One of an earlier round changes nothing.
        """
        if number != self._round:
            return
        if event is SUCCESS:
            self._failures = 0
        elif event is FAILURE and error is not None:
            self._failures += 1
            self._last = summary(error)
            if 0 < self._policy.failures <= self._failures:
                event = LAST_FAILURE
        self._step(event)
        if self._round == number:
            return
        if self._state is CLOSED:
            log.info("%s: no longer paused", self._name)
        elif event is not ABANDONED:
            self._due = now + self._policy.open_for
            log.warning("%s", self._says(f"paused for {self._policy.open_for:g} s"))

    def _says(self, state: str) -> str:
        row = f"{self._failures} {self._what} in a row"
        return f"{self._name}: {state} after {row} (last: {self._last})"

    def _step(self, event: BreakerEvent) -> None:
        after = TRANSITIONS[self._state][event]
        self._round += after is not self._state
        self._state = after


class UpstreamBreakers:
    """The breakers of one upstream. Of its models only those are held that have failed."""

    def __init__(self, name: str, policy: BreakerPolicy) -> None:
        self._name = f'upstream "{name}"'
        self._policy = policy
        self._models: dict[str, Breaker] = {}
        self.connections = Breaker(self._name, "failed connections", policy)

    def __len__(self) -> int:
        return len(self._models)

    def request(self, model: str) -> "RequestBreaker":
        """Returns what one request for a model asks, and reports to."""
        return RequestBreaker(self, model[:MODEL_NAME])

    def of(self, model: str) -> Breaker:
        """Returns the breaker of a model; one that is not held is new."""
        found = self._models.get(model)
        return found or Breaker(f'{self._name}, model "{model}"', "failures", self._policy)

    def hold(self, model: str, breaker: Breaker) -> None:
        """Remembers a breaker as long as there is anything to remember."""
        if breaker.is_new:
            self._models.pop(model, None)
            return
        if model not in self._models and len(self._models) >= MODELS:
            closed = (name for name, one in self._models.items() if one.state is CLOSED)
            del self._models[next(closed, next(iter(self._models)))]
        self._models[model] = breaker


class RequestBreaker:
    """The breakers as one request meets them. `refusal` first; if it returns none, then exactly one
    of `succeeded`, `failed` and `abandoned`.
    """

    __slots__ = ("_breakers", "_connection_round", "_model", "_model_round")

    def __init__(self, breakers: UpstreamBreakers, model: str) -> None:
        self._breakers = breakers
        self._model = model
        self._connection_round = self._model_round = 0

    def refusal(self, now: float) -> ErrorPart | None:
        """Returns why the request may not be sent; None admits it, perhaps as the probe: then
        nobody else is admitted until it has ended.
        """
        upstream, model = self._breakers.connections, self._breakers.of(self._model)
        for breaker in (upstream, model):
            if not breaker.admits(now):
                return breaker.refusal(now)
        self._connection_round, self._model_round = upstream.admit(), model.admit()
        return None

    def succeeded(self, now: float) -> None:
        """There is content."""
        self._report(SUCCESS, SUCCESS, None, now)

    def failed(self, error: ErrorPart, now: float) -> None:
        """There is none, and will be none: whether that counts, the error says."""
        self._report(verdict(error), connection_verdict(error), error, now)

    def abandoned(self) -> None:
        """Nobody knows what would have come: the client left."""
        self._report(ABANDONED, ABANDONED, None, 0.0)

    def _report(
        self,
        for_model: BreakerEvent,
        for_upstream: BreakerEvent,
        error: ErrorPart | None,
        now: float,
    ) -> None:
        model = self._breakers.of(self._model)
        model.ended(self._model_round, for_model, error, now)
        self._breakers.hold(self._model, model)
        self._breakers.connections.ended(self._connection_round, for_upstream, error, now)
