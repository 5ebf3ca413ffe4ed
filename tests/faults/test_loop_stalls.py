"""The event loop never freezes: the largest inputs of every kind, and how long others wait.

A stall is time of the CPU between two turns of the loop (`watched.py`), so a machine that is busy
with something else makes few. The aim is 50 ms. The bounds are generous, since the same work takes
two or three times as long where others use the caches of the core; what is looked for took 500 ms
and more. `python -m bench.gateway.stalls` prints the histogram.
"""

from collections.abc import Iterable, Iterator
from itertools import product

import pytest

from tests.faults import largest
from tests.faults.largest import MB, Case, Watch
from tests.faults.upstream import Upstream
from tests.faults.wires import CHAT, DIALECTS, GEMINI, MESSAGES, RESPONSES

BOUND = 200.0
"""Milliseconds."""

SOME = ((CHAT, CHAT), (RESPONSES, GEMINI), (GEMINI, MESSAGES), (MESSAGES, RESPONSES))


@pytest.fixture(scope="module")
def watch(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    with largest.watched(tmp_path_factory.mktemp("watched"), faulty) as made:
        yield made


def check(watch: Watch, cases: Iterable[Case]) -> None:
    for case in cases:
        assert watch.run(case) == ""
        found = watch.stalls()
        assert found.worst < BOUND, f"{case.name}: {found.worst:.0f} ms at\n{found.where}"


def test_large_requests_do_not_stall_the_loop(watch: Watch, faulty: Upstream) -> None:
    check(watch, largest.conversations(faulty, 10_000, SOME[:2]))
    check(watch, largest.shapes(faulty, 30 * MB, SOME[:1]))


def test_large_answers_do_not_stall_the_loop(watch: Watch, faulty: Upstream) -> None:
    check(watch, [largest.flooded(faulty, 7 * MB, RESPONSES, CHAT)])
    check(watch, largest.calls(faulty, MB, [CHAT]))


@pytest.mark.long
def test_messages_as_many_as_may_be_do_not_stall_the_loop(watch: Watch, faulty: Upstream) -> None:
    check(watch, largest.conversations(faulty, 10_000, list(product(DIALECTS, DIALECTS))))


@pytest.mark.long
def test_the_largest_requests_do_not_stall_the_loop(watch: Watch, faulty: Upstream) -> None:
    check(watch, largest.shapes(faulty, 30 * MB, SOME))
    check(watch, largest.strings(faulty, 30 * MB, SOME))


@pytest.mark.long
@pytest.mark.parametrize("client", DIALECTS)
def test_the_largest_answers_do_not_stall_the_loop(
    watch: Watch, faulty: Upstream, client: str
) -> None:
    check(watch, largest.answers(faulty, 7 * MB, [(client, target) for target in DIALECTS]))
    check(watch, largest.calls(faulty, 2 * MB, [client]))


@pytest.mark.long
def test_a_flood_of_tiny_frames_does_not_stall_the_loop(watch: Watch, faulty: Upstream) -> None:
    check(watch, [largest.flooded(faulty, 60 * MB, CHAT, MESSAGES)])


@pytest.fixture(scope="module")
def storing(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    with largest.watched(tmp_path_factory.mktemp("storing"), faulty, stores=True) as made:
        yield made


def check_stored(watch: Watch, cases: Iterable[Case]) -> None:
    for case in cases:
        assert watch.store(case) == ""
        found = watch.stalls()
        assert found.worst < BOUND, f"{case.name}: {found.worst:.0f} ms at\n{found.where}"


def test_large_stored_answers_do_not_stall_the_loop(storing: Watch, faulty: Upstream) -> None:
    check_stored(storing, largest.stored(faulty, 4 * MB, [RESPONSES]))


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"stream_id": "a lane"}], ids=["alone", "in a lane"])
def test_the_largest_answers_over_a_websocket_do_not_stall_the_loop(
    storing: Watch, faulty: Upstream, more: dict[str, str]
) -> None:
    model = faulty.script(largest.paragraphs(CHAT, 60 * MB))
    assert storing.store_over_websocket(f"{CHAT}/{model}", **more) == ""
    found = storing.stalls()
    assert found.worst < BOUND, f"{found.worst:.0f} ms at\n{found.where}"


@pytest.mark.long
@pytest.mark.parametrize("client", DIALECTS)
def test_the_largest_stored_answers_do_not_stall_the_loop(
    storing: Watch, faulty: Upstream, client: str
) -> None:
    check_stored(storing, largest.stored(faulty, 20 * MB, [client]))
    check_stored(storing, largest.stored(faulty, 60 * MB, [client]))
