"""When a model or an upstream is paused, for how long, and what its clients are told."""

import logging
import re

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tests.strategies import QUICK
from weft.dialects.error_classes import class_of, extra_of, new_error
from weft.parts import ErrorKind, ErrorPart
from weft.upstream.base import BreakerPolicy, Busy, ConnectError, Unreachable, error_of
from weft.upstream.breaker import (
    ABANDONED,
    FAILURE,
    MODEL_NAME,
    MODELS,
    SUCCESS,
    BreakerEvent,
    RequestBreaker,
    UpstreamBreakers,
    connection_verdict,
    summary,
    verdict,
)


def told(
    status: int | None = None, code: str | None = None, kind: ErrorKind = "upstream"
) -> ErrorPart:
    return ErrorPart(kind, "what the upstream said", code, status)


REFUSED = error_of(ConnectError('cannot connect to upstream "far": connection refused'))
UNCONNECTED = error_of(ConnectError('cannot connect to upstream "far": not in time', "timeout"))
RESET = error_of(Unreachable('upstream "far": connection lost before the response'))
LATE = error_of(Unreachable('upstream "far": no response within 300 s', "timeout"))
CUT = error_of(Unreachable('upstream "far": closed during the response', "truncated"))
BUSY = error_of(Busy('upstream "far": all 2 requests allowed at a time are under way', "timeout"))

# error, what it says of the model, and of the upstream
ERRORS: list[tuple[ErrorPart, BreakerEvent, BreakerEvent]] = [
    (REFUSED, FAILURE, FAILURE),
    (UNCONNECTED, FAILURE, FAILURE),
    (RESET, FAILURE, SUCCESS),
    (LATE, FAILURE, SUCCESS),
    (CUT, FAILURE, SUCCESS),
    (told(kind="timeout"), FAILURE, SUCCESS),
    (told(kind="truncated"), FAILURE, SUCCESS),
    (told(500), FAILURE, SUCCESS),
    (told(502), FAILURE, SUCCESS),
    (told(503), FAILURE, SUCCESS),
    (told(504), FAILURE, SUCCESS),
    (told(520), FAILURE, SUCCESS),
    (told(529), FAILURE, SUCCESS),
    (told(200, "overloaded_error"), FAILURE, SUCCESS),
    (told(302), FAILURE, SUCCESS),
    (told(400), SUCCESS, SUCCESS),
    (told(401), SUCCESS, SUCCESS),
    (told(404), SUCCESS, SUCCESS),
    (told(408), SUCCESS, SUCCESS),
    (told(429), SUCCESS, SUCCESS),
    (told(429, "overloaded"), SUCCESS, SUCCESS),
    (told(501), SUCCESS, SUCCESS),  # about the request
    (told(kind="malformed"), SUCCESS, SUCCESS),
    (told(kind="empty"), SUCCESS, SUCCESS),
    (told(kind="too-large"), SUCCESS, SUCCESS),
    (BUSY, ABANDONED, ABANDONED),
    (told(kind="cancelled"), ABANDONED, ABANDONED),
    (told(kind="internal"), ABANDONED, ABANDONED),
    (new_error("bad-request", "ours"), ABANDONED, ABANDONED),
]


@pytest.mark.parametrize(("error", "of_model", "of_upstream"), ERRORS)
def test_what_an_error_means_for_the_breakers_of_model_and_upstream(
    error: ErrorPart, of_model: BreakerEvent, of_upstream: BreakerEvent
) -> None:
    assert (verdict(error), connection_verdict(error)) == (of_model, of_upstream)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (told(500), "HTTP 500"),
        (told(529, "overloaded_error"), "HTTP 529 overloaded_error"),
        (told(None, "server_error"), "server_error"),
        (told(None, "a prompt, perhaps"), "server"),
        (msgspec.structs.replace(told(500), code=17), "HTTP 500"),
        (REFUSED, 'cannot connect to upstream "far": connection refused'),
        (LATE, 'upstream "far": no response within 300 s'),
        (told(kind="truncated"), "what the upstream said"),
    ],
)
def test_clients_do_not_see_messages_that_others_caused(error: ErrorPart, words: str) -> None:
    assert summary(error) == words


# One model


def breakers(failures: int = 3, open_for: float = 30.0) -> UpstreamBreakers:
    return UpstreamBreakers("far", BreakerPolicy(failures, open_for))


def admitted(found: UpstreamBreakers, model: str = "m", now: float = 0.0) -> RequestBreaker:
    request = found.request(model)
    assert request.refusal(now) is None
    return request


def paused(failures: int = 3, now: float = 0.0, error: ErrorPart | None = None) -> UpstreamBreakers:
    """The breakers of an upstream whose model m has just been paused."""
    found = breakers(failures)
    for _ in range(failures):
        admitted(found, now=now).failed(error or told(500), now)
    return found


def refused(found: UpstreamBreakers, now: float, model: str = "m") -> str | None:
    error = found.request(model).refusal(now)
    return None if error is None else error.message


def test_a_number_of_failures_in_a_row_pauses_a_model_for_a_time() -> None:
    found = paused(now=100.0, error=told(503, "overloaded_error"))
    error = found.request("m").refusal(101.5)
    assert error is not None
    assert error.message == (
        'upstream "far", model "m": paused for 29 s after 3 failures in a row '
        "(last: HTTP 503 overloaded_error)"
    )
    assert (class_of(error), error.status, error.kind) == ("overloaded", 503, "internal")
    assert extra_of(error).retry_after == 29
    assert refused(found, 129.9) is not None
    assert refused(found, 130.0) is None


def test_a_paused_model_does_not_pause_others() -> None:
    assert refused(paused(), 0.0, "another") is None


def test_a_success_or_other_response_resets_the_count() -> None:
    found = breakers(failures=2)
    for number in range(6):
        admitted(found).failed(told(500), 0.0)
        last = admitted(found)
        last.succeeded(0.0) if number % 2 else last.failed(told(429), 0.0)
    assert refused(found, 0.0) is None
    assert len(found) == 0


def test_one_probe_at_a_time_closes_or_opens() -> None:
    found = paused()
    probe = admitted(found, now=30.0)
    waiting = found.request("m").refusal(1000.0)
    assert waiting is not None
    assert waiting.message == (
        'upstream "far", model "m": a trial request is under way after 3 failures in a row '
        "(last: HTTP 500)"
    )
    assert extra_of(waiting).retry_after == 1
    probe.failed(LATE, 1000.0)
    assert refused(found, 1000.0) == (
        'upstream "far", model "m": paused for 30 s after 4 failures in a row '
        '(last: upstream "far": no response within 300 s)'
    )
    admitted(found, now=1030.0).succeeded(1031.0)
    admitted(found, now=1031.0).failed(told(500), 1031.0)
    assert refused(found, 1031.0) is None


def test_an_abandoned_probe_is_repeated_at_once() -> None:
    found = paused()
    admitted(found, now=30.0).abandoned()
    again = admitted(found, now=30.0)
    assert refused(found, 30.0) is not None
    again.failed(told(kind="cancelled"), 31.0)
    admitted(found, now=31.0)


@pytest.mark.parametrize("late", [told(500), None])
def test_requests_from_before_a_pause_change_nothing(late: ErrorPart | None) -> None:
    found = breakers(failures=1)
    before = [admitted(found) for _ in range(3)]
    before.pop().failed(told(500), 0.0)
    probe = admitted(found, now=30.0)
    for request in before:  # while the probe is under way
        request.succeeded(30.0) if late is None else request.failed(late, 30.0)
    assert refused(found, 60.0) is not None
    probe.succeeded(61.0)
    assert refused(found, 61.0) is None


def test_a_disabled_breaker_never_opens() -> None:
    found = breakers(failures=0)
    for _ in range(1000):
        admitted(found).failed(REFUSED, 0.0)
    assert refused(found, 0.0) is None


# The whole upstream


def test_failed_connections_pause_the_whole_upstream() -> None:
    found = breakers()
    for model in ("a", "b", "c"):
        admitted(found, model).failed(REFUSED, 0.0)
    assert refused(found, 0.5, "d") == (
        'upstream "far": paused for 30 s after 3 failed connections in a row '
        '(last: cannot connect to upstream "far": connection refused)'
    )
    admitted(found, "d", 30.0).failed(told(500), 30.0)  # it can be reached
    admitted(found, "e", 30.0)


def test_a_failing_model_does_not_pause_its_upstream() -> None:
    found = breakers()
    for model in "abcdef":
        admitted(found, model).failed(told(500), 0.0)
        admitted(found, model).failed(RESET, 0.0)
    assert refused(found, 0.0, "a") is None


def test_one_request_probes_upstream_and_model_at_once() -> None:
    found = paused(error=REFUSED)
    assert str(refused(found, 0.0)).startswith('upstream "far": paused')
    admitted(found, now=30.0).succeeded(30.0)
    assert refused(found, 30.0) is None


# What is remembered


def test_the_number_of_remembered_models_is_limited() -> None:
    found = paused()
    for number in range(2 * MODELS):
        admitted(found, f"invented-{number}").failed(told(500), 0.0)
    assert len(found) == MODELS
    assert refused(found, 0.0) is not None  # a pause is kept rather than a first failure
    for number in range(2 * MODELS):
        for _ in range(3):
            admitted(found, f"other-{number}").failed(told(500), 0.0)
    assert len(found) == MODELS


def test_a_working_model_is_not_remembered() -> None:
    found = breakers()
    for number in range(10):
        admitted(found, f"m{number}").succeeded(0.0)
        admitted(found, f"n{number}").failed(told(404), 0.0)
        admitted(found, f"o{number}").abandoned()
    assert len(found) == 0


def test_long_model_names_are_cut() -> None:
    found = breakers(failures=1)
    admitted(found, "x" * 10_000_000).failed(told(500), 0.0)
    message = refused(found, 0.0, "x" * MODEL_NAME)
    assert message is not None
    assert len(message) < MODEL_NAME + 100


# The log


def test_opening_and_closing_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weft.upstream")
    found = paused(failures=2)
    admitted(found, now=30.0).abandoned()
    admitted(found, now=30.0).failed(told(503), 30.0)
    admitted(found, now=60.0).succeeded(60.0)
    admitted(found, now=60.0).succeeded(60.0)
    name = 'upstream "far", model "m"'
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("WARNING", f"{name}: paused for 30 s after 2 failures in a row (last: HTTP 500)"),
        ("INFO", f"{name}: trial request"),
        ("INFO", f"{name}: trial request"),
        ("WARNING", f"{name}: paused for 30 s after 3 failures in a row (last: HTTP 503)"),
        ("INFO", f"{name}: trial request"),
        ("INFO", f"{name}: no longer paused"),
    ]


# Any order of events


class BreakersBesideAModel(RuleBasedStateMachine):
    """The naive model has no states. For each breaker it keeps the whole list of ends and the
    times of pauses: requests know how many of those there were when they were admitted.
    """

    FAILURES = 3
    OPEN_FOR = 10.0
    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.breakers = breakers(self.FAILURES, self.OPEN_FOR)
        self.now = 0.0
        self.naive = {name: Naive(self.FAILURES, self.OPEN_FOR) for name in ("", "a", "b")}

    @rule(seconds=st.sampled_from([0.0, 0.5, 5.0, 9.5, 10.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=requests, model=st.sampled_from("ab"))
    def somebody_asks(self, model: str) -> "Asked | None":
        request = self.breakers.request(model)
        error = request.refusal(self.now)
        upstream, own = self.naive[""], self.naive[model]
        expected = upstream.passes(self.now) and own.passes(self.now)
        assert (error is None) is expected
        if error is None:
            return Asked(request, model, upstream.admit(), own.admit())
        refusing = own if upstream.passes(self.now) else upstream
        left = refusing.left(self.now)
        seconds = re.search(r"paused for (\d+) s", error.message)
        assert (int(seconds[1]) if seconds else None) == left
        assert extra_of(error).retry_after == (left or 1)
        assert f"after {refusing.row()} f" in error.message
        return None

    @rule(asked=consumes(requests))
    def one_succeeds(self, asked: "Asked | None") -> None:
        if asked is not None:
            asked.breaker.succeeded(self.now)
            self.naive[asked.model].ended(asked.own, True, self.now)
            self.naive[""].ended(asked.upstream, True, self.now)

    @rule(asked=consumes(requests), error=st.sampled_from([one for one, _, _ in ERRORS]))
    def one_fails(self, asked: "Asked | None", error: ErrorPart) -> None:
        if asked is not None:
            _, of_model, of_upstream = next(row for row in ERRORS if row[0] is error)
            asked.breaker.failed(error, self.now)
            self.naive[asked.model].ended(asked.own, GOOD[of_model], self.now)
            self.naive[""].ended(asked.upstream, GOOD[of_upstream], self.now)

    @rule(asked=consumes(requests))
    def one_is_abandoned(self, asked: "Asked | None") -> None:
        if asked is not None:
            asked.breaker.abandoned()
            self.naive[asked.model].ended(asked.own, None, self.now)
            self.naive[""].ended(asked.upstream, None, self.now)

    @invariant()
    def only_what_failed_is_remembered(self) -> None:
        assert len(self.breakers) <= len(self.naive) - 1


class Asked:
    """A request that was admitted, and when, in the count of each breaker."""

    def __init__(self, breaker: RequestBreaker, model: str, upstream: int, own: int) -> None:
        self.breaker = breaker
        self.model = model
        self.upstream = upstream
        self.own = own


GOOD = {SUCCESS: True, FAILURE: False, ABANDONED: None}


class Naive:
    def __init__(self, failures: int, open_for: float) -> None:
        self._failures, self._open_for = failures, open_for
        self.ends: list[bool] = []
        """How requests ended, as far as that counted."""
        self.changes: list[float | None] = []
        """Each time something changed: when it opened, or None where a probe began, was
        abandoned or closed it."""
        self.opened: float | None = None
        self.probing = False

    def passes(self, now: float) -> bool:
        due = self.opened is not None and now >= self.opened + self._open_for
        return self.opened is None or (due and not self.probing)

    def left(self, now: float) -> int | None:
        if self.probing or self.opened is None:
            return None
        whole, part = divmod(self.opened + self._open_for - now, 1)
        return int(whole) + bool(part)

    def row(self) -> int:
        return len(self.ends) - max((n for n, end in enumerate(self.ends, 1) if end), default=0)

    def admit(self) -> int:
        if self.opened is not None:
            self.probing = True
            self.changes.append(None)
        return len(self.changes)

    def ended(self, admitted: int, good: bool | None, now: float) -> None:
        if admitted != len(self.changes):
            return
        was_probe, self.probing = self.probing, False
        if good is not None:
            self.ends.append(good)
        if good is False and (was_probe or self.row() >= self._failures):
            self.opened = now
            self.changes.append(now)
        elif was_probe:
            self.opened = None if good else self.opened
            self.changes.append(None)


TestBreakersBesideAModel = BreakersBesideAModel.TestCase
TestBreakersBesideAModel.settings = QUICK
