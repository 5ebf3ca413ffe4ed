"""What is asked again, when, and whom we leave alone."""

from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Raw

from tests.strategies import QUICK, THOROUGH
from weft.dialects.faults import CLASSES, Extra, fault
from weft.parts import ErrorKind, ErrorPart
from weft.upstream.base import BreakerPolicy, RetryPolicy
from weft.upstream.retry import (
    BREAKER,
    CLOSED,
    FAILURE,
    HALF_OPEN,
    NOTHING,
    OPEN,
    SUCCESS,
    Breaker,
    Event,
    State,
    retryable,
    verdict,
    wait,
)

NOW = 1_700_000_000.0


def told(
    status: int | None = None, code: str | None = None, kind: ErrorKind = "upstream"
) -> ErrorPart:
    return ErrorPart(kind, "so it is", code, status)


def asked(retry_after: float | str | None) -> ErrorPart:
    extra = Raw(msgspec.json.encode(Extra(retry_after=retry_after)))
    return ErrorPart("upstream", "slowly", None, 429, extra=extra)


# error, whether it is retried, what it says of the upstream
ERRORS: list[tuple[ErrorPart, bool, Event]] = [
    (told(), True, FAILURE),  # no connection
    (told(kind="timeout"), True, FAILURE),
    (told(kind="truncated"), True, FAILURE),
    (told(408), True, FAILURE),
    (told(409), True, SUCCESS),
    (told(429), True, SUCCESS),
    (told(500), True, FAILURE),
    (told(502), True, FAILURE),
    (told(503), True, FAILURE),
    (told(504), True, FAILURE),
    (told(520), True, FAILURE),
    (told(529), True, FAILURE),
    (told(200, "overloaded_error"), True, FAILURE),
    (told(302), True, FAILURE),
    (told(kind="malformed"), True, SUCCESS),
    (told(kind="empty"), True, SUCCESS),
    (told(kind="too-large"), True, SUCCESS),
    (told(400), False, SUCCESS),
    (told(400, "context_length_exceeded"), False, SUCCESS),
    (told(401), False, SUCCESS),
    (told(402), False, SUCCESS),
    (told(403), False, SUCCESS),
    (told(404), False, SUCCESS),
    (told(413), False, SUCCESS),
    (told(422), False, SUCCESS),
    (told(429, "insufficient_quota"), False, SUCCESS),
    (told(501), False, SUCCESS),
    (told(kind="cancelled"), False, NOTHING),
    (told(499), False, SUCCESS),
    (told(kind="internal"), False, NOTHING),
    (fault("bad-request", "ours"), False, NOTHING),
]  # fmt: skip


@pytest.mark.parametrize(("error", "again", "said"), ERRORS)
def test_what_an_error_means_for_the_next_try_and_for_the_breaker(
    error: ErrorPart, again: bool, said: Event
) -> None:
    assert (retryable(error), verdict(error)) == (again, said)


def test_a_good_end_is_a_success() -> None:
    assert verdict(None) is SUCCESS


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_error_is_retried_as_its_row_says(name: str) -> None:
    found = CLASSES[name]  # type: ignore[index]
    error = fault(name, "so it is", kind="upstream")  # type: ignore[arg-type]
    assert retryable(error) is found.retryable


# Waiting

POLICY = RetryPolicy(attempts=4, base=0.5, longest=8.0)


@pytest.mark.parametrize(
    ("attempt", "chance", "seconds"),
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
def test_the_wait_doubles_and_is_spread(attempt: int, chance: float, seconds: float | None) -> None:
    assert wait(POLICY, attempt, told(503), chance=chance, now=NOW) == seconds


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
def test_the_upstream_is_left_alone_as_long_as_it_asked_for(
    retry_after: float | str | None, seconds: float | None
) -> None:
    assert wait(POLICY, 1, asked(retry_after), chance=1.0, now=NOW) == seconds


def test_what_is_not_retryable_is_not_waited_for() -> None:
    assert wait(POLICY, 1, told(400), chance=0.5, now=NOW) is None


def test_a_wait_of_our_own_that_is_too_long_is_none() -> None:
    patient = RetryPolicy(attempts=100, base=0.5, longest=8.0)
    waits = [wait(patient, attempt, told(503), chance=0.0, now=NOW) for attempt in range(1, 100)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0] + [None] * 94


AFTER = st.none() | st.floats(0, 1e9) | st.text(max_size=40) | st.datetimes().map(format_datetime)


@THOROUGH
@given(
    policy=st.builds(
        RetryPolicy, st.integers(0, 50), st.floats(0, 100), st.floats(0, 1000, exclude_min=False)
    ),
    attempt=st.integers(1, 100_000),
    retry_after=AFTER,
    chance=st.floats(0, 1),
    now=st.floats(0, 4e9),
)
def test_a_wait_is_never_too_long_and_never_shorter_than_asked_for(
    policy: RetryPolicy, attempt: int, retry_after: float | str | None, chance: float, now: float
) -> None:
    error = asked(retry_after)
    seconds = wait(policy, attempt, error, chance=chance, now=now)
    if seconds is None:
        return
    assert attempt < policy.attempts
    assert 0.0 <= seconds <= policy.longest
    if isinstance(retry_after, float):
        assert seconds >= retry_after
    latest = wait(policy, attempt, error, chance=1.0, now=now)
    assert latest is not None
    assert latest >= seconds


@QUICK
@given(chance=st.floats(0, 1), attempt=st.integers(1, 2))
def test_each_wait_is_at_least_as_long_as_any_before(chance: float, attempt: int) -> None:
    latest = wait(POLICY, attempt, told(503), chance=1.0, now=NOW)
    later = wait(POLICY, attempt + 1, told(503), chance=chance, now=NOW)
    assert latest is not None
    assert later is not None
    assert later >= latest


# The breaker


def test_the_table_says_where_each_event_leads_from_each_state() -> None:
    assert {state: set(row) for state, row in BREAKER.items()} == {
        state: set(Event) for state in State
    }


def opened(failures: int = 3, now: float = 0.0) -> Breaker:
    breaker = Breaker(BreakerPolicy(failures, open_for=30.0))
    for _ in range(failures):
        assert breaker.admits(now)
        breaker.failed(now)
    return breaker


def test_so_many_failures_in_a_row_open_it_for_so_long() -> None:
    breaker = opened(now=100.0)
    assert breaker.state is OPEN
    assert [breaker.admits(now) for now in (100.0, 129.9)] == [False, False]
    assert [breaker.pause(now) for now in (100.0, 129.0, 131.0)] == [30.0, 1.0, 0.0]
    assert breaker.admits(130.0)
    assert breaker.state is HALF_OPEN


def test_a_success_between_them_starts_the_count_anew() -> None:
    breaker = Breaker(BreakerPolicy(failures=2))
    for _ in range(5):
        breaker.failed(0.0)
        breaker.succeeded()
    assert (breaker.state, breaker.admits(0.0)) == (CLOSED, True)


def test_one_probe_at_a_time_decides() -> None:
    breaker = opened()
    assert [breaker.admits(now) for now in (30.0, 30.0, 1000.0)] == [True, False, False]
    breaker.failed(50.0)
    assert (breaker.state, breaker.pause(50.0)) == (OPEN, 30.0)
    assert [breaker.admits(now) for now in (79.9, 80.0)] == [False, True]
    breaker.succeeded()
    assert (breaker.state, breaker.admits(80.0)) == (CLOSED, True)
    breaker.failed(81.0)
    assert breaker.state is CLOSED  # the count starts at nothing


def test_a_probe_whose_client_left_is_made_again_at_once() -> None:
    breaker = opened()
    assert breaker.admits(30.0)
    breaker.abandoned()
    assert (breaker.state, breaker.pause(30.0)) == (OPEN, 0.0)
    assert [breaker.admits(30.0), breaker.admits(30.0)] == [True, False]


def test_what_was_asked_before_it_opened_changes_nothing() -> None:
    breaker = opened()
    breaker.succeeded()
    breaker.abandoned()
    breaker.failed(29.0)
    assert (breaker.state, breaker.pause(29.0)) == (OPEN, 1.0)


def test_no_number_of_failures_opens_one_that_is_off() -> None:
    breaker = Breaker(BreakerPolicy(failures=0))
    for _ in range(1000):
        breaker.failed(0.0)
    assert (breaker.state, breaker.admits(0.0)) == (CLOSED, True)


def test_it_judges_errors_by_itself() -> None:
    breaker = Breaker(BreakerPolicy(failures=2))
    for error in (told(500), told(kind="cancelled"), told(503)):
        assert breaker.state is CLOSED
        breaker.ended(error, 0.0)
    assert breaker.state is OPEN


@pytest.mark.parametrize("end", [None, told(429), told(400)])
def test_any_answer_shows_that_the_upstream_is_back(end: ErrorPart | None) -> None:
    breaker = opened()
    assert breaker.admits(30.0)
    breaker.ended(end, 31.0)
    assert breaker.state is CLOSED


class BreakerBesideAModel(RuleBasedStateMachine):
    """The model keeps the whole history since the last change, and no states: the pause since
    which a probe is due, the probe that is under way, and the outcomes in a row.
    """

    FAILURES = 3
    OPEN_FOR = 10.0

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(BreakerPolicy(self.FAILURES, self.OPEN_FOR))
        self.now = 0.0
        self.outcomes: list[bool] = []
        self.shut_at: float | None = None
        self.probing = False

    def shuts(self) -> None:
        self.shut_at, self.probing = self.now, False

    @rule(seconds=st.sampled_from([0.0, 0.1, 5.0, 10.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def somebody_asks(self) -> None:
        due = self.shut_at is not None and self.now >= self.shut_at + self.OPEN_FOR
        expected = self.shut_at is None or (due and not self.probing)
        assert self.breaker.admits(self.now) is expected
        self.probing = self.probing or (expected and self.shut_at is not None)

    @rule()
    def one_succeeds(self) -> None:
        self.breaker.succeeded()
        self.outcomes.append(True)
        if self.probing:
            self.shut_at, self.probing = None, False

    @rule()
    def one_fails(self) -> None:
        self.breaker.failed(self.now)
        self.outcomes.append(False)
        row = self.outcomes[-self.FAILURES :]
        if self.probing or (self.shut_at is None and row == [False] * self.FAILURES):
            self.shuts()

    @rule()
    def one_is_given_up(self) -> None:
        self.breaker.abandoned()
        self.probing = False

    @precondition(lambda self: self.shut_at is not None and not self.probing)
    @rule()
    def it_never_stays_shut_for_ever(self) -> None:
        self.now += self.breaker.pause(self.now)
        self.somebody_asks()
        assert self.breaker.state is HALF_OPEN

    @invariant()
    def it_stands_where_the_model_does(self) -> None:
        expected = CLOSED if self.shut_at is None else HALF_OPEN if self.probing else OPEN
        assert self.breaker.state is expected


TestBreakerBesideAModel = BreakerBesideAModel.TestCase
TestBreakerBesideAModel.settings = QUICK
