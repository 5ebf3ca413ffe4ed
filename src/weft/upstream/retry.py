"""Whether to ask again, and when; and whether to ask at all. Decisions only: time and chance are
passed in.

1. Asking again is for what may be different next time: no connection, no answer in time, too
   many requests, a server at fault. Never for what is wrong with the request, the key or the bill.
2. A wait that is not worth it is none: the next target is asked instead.
3. Who fails again and again is left alone for a while, and then tried by one request at a time.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum

from weft.dialects.faults import CLASSES, ErrorClass, class_of, extra_of
from weft.parts import ErrorKind, ErrorPart
from weft.upstream.base import BreakerPolicy, RetryPolicy

# Asking again


def retryable(error: ErrorPart) -> bool:
    """Whether the same request may fare better another time. An error of our own making that is
    nobody's answer (`internal`) would only be made again.
    """
    return error.kind != "internal" and CLASSES[class_of(error)].retryable


def wait(
    policy: RetryPolicy, attempt: int, error: ErrorPart, *, chance: float, now: float
) -> float | None:
    """Returns the seconds to wait before the same target is asked again; None: it is not to be.

    `attempt` says how often it was asked by now, at least once; `chance` is anything from 0 to 1,
    and `now` the seconds since 1970. The wait is never shorter than the upstream asked for, and
    never longer than the policy allows. What each waits on top differs, so that those who failed
    together do not come back together.
    """
    if attempt >= policy.attempts or not retryable(error):
        return None
    own = policy.base * 2.0 ** min(attempt - 1, 64)
    asked = _asked(error, now)
    if own > policy.longest or asked > policy.longest:
        return None
    return min(asked + own * (1 + chance) / 2, policy.longest)


def _asked(error: ErrorPart, now: float) -> float:
    """Seconds that the upstream wants to be left alone: 0 where it does not say so legibly."""
    told = extra_of(error).retry_after
    if isinstance(told, str):
        told = _until(told, now)
    return max(told or 0.0, 0.0)


def _until(date: str, now: float) -> float | None:
    try:
        found = parsedate_to_datetime(date)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, OverflowError):
        return None


# Asking at all


class State(Enum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


CLOSED, OPEN, HALF_OPEN = State


class Event(Enum):
    """What happens to a breaker."""

    SUCCESS = "success"
    FAILURE = "failure"
    LAST_FAILURE = "last failure"
    """The one in a row that is too many."""

    NOTHING = "nothing"
    """A request ended and tells nothing: its client left."""

    PROBE = "probe"
    """A request asks to be let through, and the pause is over."""


SUCCESS, FAILURE, LAST_FAILURE, NOTHING, PROBE = Event

BREAKER: dict[State, dict[Event, State]] = {
    CLOSED: {
        SUCCESS: CLOSED,
        FAILURE: CLOSED,
        LAST_FAILURE: OPEN,
        NOTHING: CLOSED,
        PROBE: CLOSED,
    },
    OPEN: {
        # what was asked before it opened says nothing of now
        SUCCESS: OPEN,
        FAILURE: OPEN,
        LAST_FAILURE: OPEN,
        NOTHING: OPEN,
        PROBE: HALF_OPEN,
    },
    HALF_OPEN: {
        SUCCESS: CLOSED,
        FAILURE: OPEN,
        LAST_FAILURE: OPEN,
        NOTHING: OPEN,  # the pause is over already: the next request is the probe
        PROBE: HALF_OPEN,
    },
}

_FAILURES: frozenset[ErrorClass] = frozenset(
    ("server", "bad-upstream-answer", "overloaded", "timeout")
)
_VERDICTS: dict[ErrorKind, Event] = {
    "cancelled": NOTHING,
    "internal": NOTHING,
    "malformed": SUCCESS,
    "empty": SUCCESS,
    "too-large": SUCCESS,
}


def verdict(error: ErrorPart | None) -> Event:
    """Returns what the end of a request says of the upstream's health; None is a good end.

    Its own faults count against it: no connection, no answer in time, an answer cut off, 5xx,
    overload. Any other answer is a sign of life: 4xx and also 429, which is a limit of one key,
    is kept by waiting, and must not shut the upstream for everybody. So is an answer that we
    could not read or that was too long, since one client's odd request can bring that about.
    """
    if error is None:
        return SUCCESS
    if error.kind in _VERDICTS:
        return _VERDICTS[error.kind]
    return FAILURE if class_of(error) in _FAILURES else SUCCESS


class Breaker:
    """Leaves an upstream alone that failed `failures` times in a row, for `open_for` seconds;
    then one request at a time may try it, until one succeeds.

    Each request that was admitted ends in exactly one of `succeeded`, `failed` and `abandoned`
    (or in `ended`, which chooses). `now` is any clock that does not go back.
    """

    __slots__ = ("_due", "_policy", "_row", "_state")

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._state = CLOSED
        self._row = 0
        self._due = 0.0

    @property
    def state(self) -> State:
        return self._state

    def admits(self, now: float) -> bool:
        """Whether a request may be sent. The one that is let through an open breaker is a probe,
        and nobody else is let through until it has ended.
        """
        if self._state is OPEN and now >= self._due:
            self._step(PROBE)
            return True
        return self._state is CLOSED

    def pause(self, now: float) -> float:
        """Returns the seconds until a request may be let through: what to tell who was not."""
        return max(self._due - now, 0.0) if self._state is OPEN else 0.0

    def succeeded(self) -> None:
        """The upstream answered."""
        self._row = 0
        self._step(SUCCESS)

    def failed(self, now: float) -> None:
        """The upstream is at fault."""
        self._row += 1
        before = self._state
        self._step(LAST_FAILURE if 0 < self._policy.failures <= self._row else FAILURE)
        if self._state is OPEN and before is not OPEN:
            self._due = now + self._policy.open_for

    def abandoned(self) -> None:
        """The request ended, and nobody knows what would have come of it."""
        self._step(NOTHING)

    def ended(self, error: ErrorPart | None, now: float) -> None:
        """The request ended so: the breaker judges for itself."""
        match verdict(error):
            case Event.SUCCESS:
                self.succeeded()
            case Event.NOTHING:
                self.abandoned()
            case _:
                self.failed(now)

    def _step(self, event: Event) -> None:
        self._state = BREAKER[self._state][event]
