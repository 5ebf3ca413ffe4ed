"""Many connections: who has a key comes in, and who runs out of descriptors says so once."""

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.faults.upstream import Upstream
from tests.faults.world import World, places, until, world
from tests.gateway_process import gateway
from tests.raw_http import Answer, Client
from weft.gateway.descriptors import RESERVE, FileDescriptors
from weft.gateway.server import SPARE_DESCRIPTORS

KEY = "Alice-0123456789abcdef-Planted"
STRANGERS, ALL = 20, 40


NO_STORE = "[store]\nenabled = false\n"
"""A store opens files when it likes: descriptors can be counted without one."""


def limits(**more: object) -> str:
    own = {"connections": ALL, "connections_without_key": STRANGERS, "head_time": 60.0, **more}
    return "\n".join(["[server.limits]", *(f"{name} = {value}" for name, value in own.items()), ""])


@contextmanager
def locked(faulty: Upstream, folder: Path, **more: object) -> Iterator[World]:
    keys = f'[server.keys]\nalice = "{KEY}"\n'
    settings = keys + limits(**more) + NO_STORE + places(faulty.url)
    with world(settings, folder, faulty) as made:
        yield made


def idle(made: World, number: int) -> list[Client]:
    """So many connections that say nothing, or not all of a head."""
    found = [made.client() for _ in range(number)]
    for one in found[::2]:
        with suppress(OSError):
            one.send(b"GET /v1/models HTTP/1.1\r\n")
    return found


def rule(connection: Client, *headers: str) -> Answer:
    lines = ["GET /v1/rules/call-id-repeated HTTP/1.1", "Host: localhost", *headers, "", ""]
    connection.send("\r\n".join(lines).encode())
    return connection.answer()


def with_key(connection: Client) -> int:
    return rule(connection, f"x-api-key: {KEY}").status


def flooded(made: World, number: int) -> None:
    """However many connect without a key, those that have one are answered."""
    with ExitStack() as stack:
        known = stack.enter_context(made.client())
        assert with_key(known) == 200
        for one in idle(made, number):
            stack.callback(one.close)
        with made.client() as new:
            assert with_key(new) == 200
        assert with_key(known) == 200
        address = made.gateway.url.replace("http", "ws", 1) + "/v1/responses"
        with connect(address, proxy=None, additional_headers={"x-api-key": KEY}):
            pass
        with made.client() as wrong:
            assert rule(wrong).status == 401


def test_connections_without_a_key_do_not_shut_out_one_with_a_key(
    faulty: Upstream, tmp_path: Path
) -> None:
    with locked(faulty, tmp_path) as made:
        before = made.descriptors
        flooded(made, 3 * ALL)
        until(lambda: made.descriptors <= before + 1, "all to be closed")


@pytest.mark.long
def test_4096_connections_without_a_key_do_not_shut_out_one_with_a_key(
    faulty: Upstream, tmp_path: Path
) -> None:
    """With the limits that there are without settings."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    keys = f'[server.keys]\nalice = "{KEY}"\n'
    try:
        with world(keys + places(faulty.url), tmp_path, faulty) as made:
            flooded(made, 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_above_its_limit_the_oldest_connection_without_a_key_makes_room(
    faulty: Upstream, tmp_path: Path
) -> None:
    with locked(faulty, tmp_path) as made, ExitStack() as stack:
        refused = stack.enter_context(made.client())
        assert rule(refused).status == 401  # which is no key
        first, *others = [stack.enter_context(made.client()) for _ in range(STRANGERS - 1)]
        assert rule(refused).status == 401  # it is the oldest, and still there
        stack.enter_context(made.client())
        assert refused.is_closed()
        stack.enter_context(made.client())
        assert first.is_closed()
        assert [with_key(one) for one in others] == [200] * len(others)


def test_connections_with_a_key_are_never_dropped_for_others(
    faulty: Upstream, tmp_path: Path
) -> None:
    with locked(faulty, tmp_path) as made, ExitStack() as stack:
        known: list[Client] = []
        for _ in range(ALL):
            known.append(stack.enter_context(made.client()))
            assert with_key(known[-1]) == 200
        with made.client() as late:
            found = rule(late, f"x-api-key: {KEY}")
            assert (found.status, found.headers["retry-after"]) == (503, "1")
        assert [with_key(one) for one in known] == [200] * ALL
        known[0].close()
        until(lambda: _is_answered(made), "room for another")


def _is_answered(made: World) -> bool:
    with made.client() as one:
        return with_key(one) == 200


def test_without_keys_those_who_say_nothing_make_room_for_those_who_ask(
    faulty: Upstream, tmp_path: Path
) -> None:
    with world(limits() + places(faulty.url), tmp_path, faulty) as made, ExitStack() as stack:
        known = stack.enter_context(made.client())
        assert rule(known).status == 200
        for one in idle(made, 3 * ALL):
            stack.callback(one.close)
        assert rule(stack.enter_context(made.client())).status == 200
        assert rule(known).status == 200


# Descriptors

SHORT, ENOUGH = "out of file descriptors", "file descriptors are available again"


def cpu(pid: int) -> float:
    """Seconds that a process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def allow(made: World, number: int) -> None:
    """How many descriptors the gateway may have from now on."""
    _, hard = resource.prlimit(made.gateway.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(made.gateway.pid, resource.RLIMIT_NOFILE, (number, hard))


def fill(made: World, stack: ExitStack, number: int) -> list[int]:
    """So many connections that ask, and stay; returns how they are answered, 0 if not at all."""
    found = []
    for _ in range(number):
        connection = stack.enter_context(made.client())
        try:
            found.append(rule(connection).status)
        except (OSError, AssertionError):
            found.append(0)
    return found


@pytest.mark.parametrize("reserve", [RESERVE, 0], ids=["the last ones", "none at all"])
def test_without_descriptors_new_connections_are_refused_and_the_log_says_so_once(
    faulty: Upstream, tmp_path: Path, reserve: int
) -> None:
    with gateway(places(faulty.url), tmp_path) as running, ExitStack() as stack:
        made = World(running, faulty)
        known = stack.enter_context(made.client())
        assert rule(known).status == 200
        # The least of several counts: for moments, some are open for files.
        least = min(made.descriptors for _ in range(50))
        allow(made, least + reserve + (5 if reserve else 0))
        with ExitStack() as crowd:
            found = fill(made, crowd, 30)
            assert found[-1] == (503 if reserve else 0)
            assert all(one >= other or other == 503 for one, other in pairwise(found))
            made.logged(SHORT)
            began, worked = time.monotonic(), cpu(running.pid)
            threading.Event().wait(1.5)
            assert cpu(running.pid) - worked < (time.monotonic() - began) / 2  # no hot loop
            assert rule(known).status == 200
        allow(made, 4096)
        made.logged(ENOUGH)
        assert fill(made, stack, 40) == [200] * 40
        lines = made.lines
    told = [str(line["message"]) for line in lines if "descriptors" in str(line.get("message"))]
    assert [SHORT in told[0], ENOUGH in told[1], len(told)] == [True, True, 2]
    assert not any("stack" in line for line in lines)


def test_it_has_as_many_descriptors_as_its_connections_need(
    faulty: Upstream, tmp_path: Path
) -> None:
    fewer = ("sh", "-c", 'ulimit -Sn 100; exec "$0" "$@"')
    with gateway(limits() + places(faulty.url), tmp_path, prefix=fewer) as running:
        soft, hard = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
    assert soft == min(hard, 2 * ALL + SPARE_DESCRIPTORS)


def test_idle_connections_make_room_when_descriptors_run_out(
    faulty: Upstream, tmp_path: Path
) -> None:
    with gateway(NO_STORE + places(faulty.url), tmp_path) as running, ExitStack() as stack:
        made = World(running, faulty)
        before = min(made.descriptors for _ in range(50))  # as above
        allow(made, before + RESERVE + 5)
        for one in idle(made, 5):
            stack.callback(one.close)
        until(lambda: made.descriptors == before + 5, "all to be there")
        assert fill(made, stack, 5) == [200] * 5


@pytest.mark.parametrize("number", [RESERVE - 1, RESERVE, 2 * RESERVE])
def test_the_last_descriptors_are_kept(number: int) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert FileDescriptors().allow(limit - 1 - number) is (number >= RESERVE)
