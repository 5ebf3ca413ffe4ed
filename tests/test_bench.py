"""The table of `make bench`: what it says about figures; and how many calls a request makes."""

import re
import subprocess
import sys

import pytest
from bench.gateway.load import BURST, PACED, PLAIN, STORING_LOAD, Load, Memory, Report, Run
from bench.gateway.table import LIMITS, Limit, Row, markdown, measure


def run(load: Load, cost: float, first: float = 1.0) -> Run:
    """A run that took so many microseconds an event."""
    answers = [first] * load.answers
    report = Report(load.answers, 0, "", 0, 0, 0, 0, 1.0, 0.0, answers)
    events = load.answers * load.events
    return Run(report, events, cost * events / 1e6)


def test_figures_are_within_the_limit_the_aim_or_neither() -> None:
    limit = Limit("", (5, 6), 8)
    found = [limit.verdict(one) for one in ((5, 6), (5, 7), (5, 8), (9, 5), None)]
    assert found == ["ok", "ok, aim missed", "ok, aim missed", "over the limit", "not measured"]
    least = Limit("", (1.9,), 1.7, at_least=True)
    found = [least.verdict((one,)) for one in (2.0, 1.8, 1.6)]
    assert found == ["ok", "ok, aim missed", "below the limit"]


def test_what_was_not_measured_has_a_row_and_no_figure() -> None:
    rows = markdown(measure([], []))
    assert len(rows) == 2 + len(LIMITS)
    assert all(row.endswith("| - | not measured |") for row in rows[2:])


def test_ratios_are_those_of_each_round() -> None:
    weft = Row("weft", "responses", memory=Memory(55_000_000, 65_000_000, 1.0))
    nginx, direct = Row("nginx", "chat"), Row("direct", "chat")
    kept = Row("weft, stored", "responses")
    for factor in (1.0, 5.0, 10.0):  # the machine was slower from round to round
        weft.runs[PACED].append(run(PACED, 30 * factor, first=3.0))
        nginx.runs[PACED].append(run(PACED, 20 * factor))
        weft.runs[STORING_LOAD].append(run(STORING_LOAD, 10 * factor))
        kept.runs[STORING_LOAD].append(run(STORING_LOAD, 11 * factor))
    direct.runs[PACED].append(run(PACED, 0.0))
    weft.runs[PLAIN].append(run(PLAIN, 300))
    weft.runs[BURST].append(run(BURST, 6))
    found = measure([weft, nginx, direct, kept], [1.8, 1.9, 2.0])
    expected = {
        "paced": (1.5,),
        "plain": (0.3,),
        "first": (2.0,),
        "stored": (10.0,),
        "memory": (55.0, 65.0),
        "workers": (1.9,),
    }
    assert {name: found[name] for name in expected} == {
        name: pytest.approx(figures) for name, figures in expected.items()
    }
    assert [name for name in LIMITS if found[name] is None] == ["burst", "few", "many"]


def test_a_gateway_whose_answers_were_wrong_is_not_measured() -> None:
    weft = Row("weft", "responses", broken="a token is missing")
    weft.runs[PLAIN].append(run(PLAIN, 300))
    assert measure([weft], [])["plain"] is None


@pytest.mark.long
def test_a_request_makes_few_calls() -> None:
    """About 460 of functions, and fewer of built-in ones. Timers may add some."""
    command = [sys.executable, "-m", "bench.gateway.calls", "--plain"]
    counted = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    last = counted.stdout.splitlines()[-1]
    functions, built_in = map(int, re.findall(r"\d+", last))
    assert 100 < functions < 700, last
    assert 100 < built_in < 600, last
