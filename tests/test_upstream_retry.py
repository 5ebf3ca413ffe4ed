"""What is asked again, and when."""

from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import QUICK, THOROUGH
from tests.tables import each_row
from weft.dialects.error_classes import CLASSES, ErrorPartExtra, new_error
from weft.parts import ErrorKind, ErrorPart
from weft.upstream.base import RetryPolicy
from weft.upstream.retry import retry_delay, retryable

NOW = 1_700_000_000.0


def told(
    status: int | None = None, code: str | None = None, kind: ErrorKind = "upstream"
) -> ErrorPart:
    return ErrorPart(kind, "so it is", code, status)


def asked(retry_after: float | str | None) -> ErrorPart:
    extra = Raw(msgspec.json.encode(ErrorPartExtra(retry_after=retry_after)))
    return ErrorPart("upstream", "slowly", None, 429, extra=extra)


# error, whether it is retried
ERRORS: list[tuple[ErrorPart, bool]] = [
    (told(), True),  # no connection
    (told(kind="timeout"), True),
    (told(kind="truncated"), True),
    (told(408), True),
    (told(409), True),
    (told(429), True),
    (told(500), True),
    (told(502), True),
    (told(503), True),
    (told(504), True),
    (told(520), True),
    (told(529), True),
    (told(200, "overloaded_error"), True),
    (told(302), True),
    (told(kind="malformed"), True),
    (told(kind="empty"), True),
    (told(kind="too-large"), True),
    (told(400), False),
    (told(400, "context_length_exceeded"), False),
    (told(401), False),
    (told(402), False),
    (told(403), False),
    (told(404), False),
    (told(413), False),
    (told(422), False),
    (told(429, "insufficient_quota"), False),
    (told(501), False),
    (told(kind="cancelled"), False),
    (told(499), False),
    (told(kind="internal"), False),
    (new_error("bad-request", "ours"), False),
]


@each_row("error, again", ERRORS)
def test_which_errors_are_retried(error: ErrorPart, again: bool) -> None:
    assert retryable(error) is again


@pytest.mark.parametrize("name", CLASSES)
def test_each_error_class_is_retried_as_its_row_says(name: str) -> None:
    found = CLASSES[name]  # type: ignore[index]
    error = new_error(name, "so it is", kind="upstream")  # type: ignore[arg-type]
    assert retryable(error) is found.retryable


# Waiting

POLICY = RetryPolicy(attempts=4, base=0.5, longest=8.0)


@pytest.mark.parametrize(
    ("attempt", "jitter", "seconds"),
    [
        (1, 1.0, 0.5),
        (1, 0.0, 0.25),
        (2, 1.0, 1.0),
        (3, 1.0, 2.0),
        (3, 0.5, 1.5),
        (4, 1.0, None),  # it was asked four times
        (9, 1.0, None),
    ],
)
def test_the_delay_doubles_with_jitter(attempt: int, jitter: float, seconds: float | None) -> None:
    assert retry_delay(POLICY, attempt, told(503), jitter=jitter, now=NOW) == seconds


def at(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, 0.5),
        (0.0, 0.5),
        (3.0, 3.5),
        (7.9, 8.0),  # never longer than allowed
        (8.0, 8.0),
        (8.1, None),
        (3600.0, None),
        (-5.0, 0.5),
        (at(3), 3.5),
        (at(9), None),
        (at(-100), 0.5),
        ("Tue, 14 Nov 2023 22:13:23", 3.5),  # no zone: that of Greenwich
        ("Tue, 99 Nov 2023 22:13:23 GMT", 0.5),
        ("Tue, 14 Nov 99999 22:13:23 GMT", 0.5),
        ("soon", 0.5),
        ("", 0.5),
    ],
)
def test_retry_after_is_respected(retry_after: float | str | None, seconds: float | None) -> None:
    assert retry_delay(POLICY, 1, asked(retry_after), jitter=1.0, now=NOW) == seconds


def test_an_error_that_is_not_retryable_has_no_delay() -> None:
    assert retry_delay(POLICY, 1, told(400), jitter=0.5, now=NOW) is None


def test_a_backoff_that_is_too_long_is_no_retry() -> None:
    patient = RetryPolicy(attempts=100, base=0.5, longest=8.0)
    waits = [
        retry_delay(patient, attempt, told(503), jitter=0.0, now=NOW) for attempt in range(1, 100)
    ]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0] + [None] * 94


AFTER = st.none() | st.floats(0, 1e9) | st.text(max_size=40) | st.datetimes().map(format_datetime)


@THOROUGH
@given(
    policy=st.builds(
        RetryPolicy, st.integers(0, 50), st.floats(0, 100), st.floats(0, 1000, exclude_min=False)
    ),
    attempt=st.integers(1, 100_000),
    retry_after=AFTER,
    jitter=st.floats(0, 1),
    now=st.floats(0, 4e9),
)
def test_a_delay_is_within_the_policy_and_not_below_retry_after(
    policy: RetryPolicy, attempt: int, retry_after: float | str | None, jitter: float, now: float
) -> None:
    error = asked(retry_after)
    seconds = retry_delay(policy, attempt, error, jitter=jitter, now=now)
    if seconds is None:
        return
    assert attempt < policy.attempts
    assert 0.0 <= seconds <= policy.longest
    if isinstance(retry_after, float):
        assert seconds >= retry_after
    latest = retry_delay(policy, attempt, error, jitter=1.0, now=now)
    assert latest is not None
    assert latest >= seconds


@QUICK
@given(jitter=st.floats(0, 1), attempt=st.integers(1, 2))
def test_delays_never_become_shorter(jitter: float, attempt: int) -> None:
    latest = retry_delay(POLICY, attempt, told(503), jitter=1.0, now=NOW)
    later = retry_delay(POLICY, attempt + 1, told(503), jitter=jitter, now=NOW)
    assert latest is not None
    assert later is not None
    assert later >= latest
