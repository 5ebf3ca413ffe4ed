"""Whether to ask again, and when. Decisions only: time and chance are passed in.

1. Asking again is for what may be different next time: no connection, no answer in time, too
   many requests, a server at fault. Never for what is wrong with the request, the key or the bill.
2. A wait that is not worth it is none: the next target is asked instead.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime

from weft.dialects.error_classes import CLASSES, class_of, extra_of
from weft.parts import ErrorPart
from weft.upstream.base import RetryPolicy


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
