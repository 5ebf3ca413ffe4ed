"""Whether and when a failed request is sent again. Pure: time and chance are passed in.

1. A request is retried only if the next attempt may succeed: no connection, a timeout, too many
   requests, a server error. Never if the request, the key or the billing is at fault.
2. If the wait would be too long, there is no retry: the next target is tried instead.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime

from weft.dialects.error_classes import CLASSES, class_of, extra_of
from weft.parts import ErrorPart
from weft.upstream.base import RetryPolicy


def retryable(error: ErrorPart) -> bool:
    """Whether the same request may succeed later. An internal error of Weft would only repeat."""
    return error.kind != "internal" and CLASSES[class_of(error)].retryable


def retry_delay(
    policy: RetryPolicy, attempt: int, error: ErrorPart, *, jitter: float, now: float
) -> float | None:
    """Returns the seconds to wait before the next attempt at the same target; None: do not retry.

    `attempt` counts the attempts so far, at least 1; `jitter` is between 0 and 1, so that requests
    that failed together are not repeated together; `now` is a Unix time. The delay is never shorter
    than the upstream's Retry-After, and never longer than the policy allows.
    """
    if attempt >= policy.attempts or not retryable(error):
        return None
    # Bounded, since 2.0 ** 1024 overflows; 64 doublings are beyond any `longest`.
    backoff = policy.base * 2.0 ** min(attempt - 1, 64)
    retry_after = _retry_after(error, now)
    if backoff > policy.longest or retry_after > policy.longest:
        return None
    # Behind Retry-After, not instead of it: everybody who was refused at once was given the same
    # time.
    return min(retry_after + backoff * (1 + jitter) / 2, policy.longest)


def _retry_after(error: ErrorPart, now: float) -> float:
    """Returns the seconds of a Retry-After header, which may be a date (RFC 9110, 10.2.3); 0 if
    there is none, or it cannot be parsed.
    """
    value = extra_of(error).retry_after
    if isinstance(value, str):
        try:
            date = parsedate_to_datetime(value)
            # An HTTP date is always GMT; "-0000" is parsed as a date without a zone.
            value = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):
            return 0.0
    return max(value or 0.0, 0.0)
