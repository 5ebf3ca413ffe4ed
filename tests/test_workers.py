"""Several processes behind one socket, and the one that looks after them."""

import os
import signal
import time

import pytest

from tests.raw_http import PATIENCE, Process, request


def pids(server: Process) -> set[int]:
    """The workers that answer: all of them, after enough tries."""
    found: set[int] = set()
    end = time.monotonic() + PATIENCE
    while len(found) < 2:
        assert time.monotonic() < end
        found.add(pid(server))
    return found


def pid(server: Process) -> int:
    with server.client() as client:
        return int(client.ask("/pid").body)


def alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(numbers: set[int]) -> None:
    end = time.monotonic() + PATIENCE
    while any(map(alive, numbers)):
        assert time.monotonic() < end, numbers
        os.sched_yield()


def test_all_workers_answer_and_all_leave_with_0() -> None:
    with Process("two") as server:
        workers = pids(server)
        assert server.popen.pid not in workers
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        server.expect("(end)")
        assert sorted(server.said[1:]) == ["(end)", "drain", "drain", "shutdown", "shutdown"]
        assert not any(map(alive, workers))


@pytest.mark.parametrize("mode", ["one-signalled", "two-signalled"])
def test_a_signal_that_comes_when_all_is_over_changes_no_exit_code(mode: str) -> None:
    with Process(mode) as server:
        assert server.port
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0


def test_where_it_listens_is_said_once() -> None:
    with Process("two") as server:
        pids(server)
        server.signal(signal.SIGINT)
        assert server.exit_code() == 0
        server.expect("(end)")
        assert [line.startswith("listening on ") for line in server.said].count(True) == 1


def test_a_killed_worker_is_replaced_and_the_other_one_goes_on() -> None:
    with Process("two") as server, server.client() as streaming:
        streaming.send(request("/stream"))
        streaming.until(b"one,")
        server.expect("streaming")
        victim, other = pids(server)
        kept = [server.client() for _ in range(8)]
        mine = {int(client.ask("/pid").body): client for client in kept}
        os.kill(victim, signal.SIGKILL)
        wait_for_end({victim})
        if other in mine:
            assert int(mine[other].ask("/pid").body) == other
        for _ in range(20):  # nobody waits for the dead one
            assert pid(server) != victim
        assert victim not in pids(server)
        for client in kept:
            client.close()
        server.signal(signal.SIGTERM)
        server.expect("drain")
        server.expect("drain")
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0


def test_workers_leave_when_their_parent_was_killed() -> None:
    with Process("two") as server:
        workers = pids(server)
        os.kill(server.popen.pid, signal.SIGKILL)
        assert server.exit_code() == -signal.SIGKILL
        wait_for_end(workers)
        server.expect("(end)")
        assert sorted(server.said[1:]) == ["(end)", "drain", "drain", "shutdown", "shutdown"]


def test_a_stream_outlives_the_parent() -> None:
    with Process("two", 0.3) as server, server.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        os.kill(server.popen.pid, signal.SIGKILL)
        assert client.rest() == b"\r\n3\r\ncut\r\n0\r\n\r\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_all_now(number: int) -> None:
    with Process("two") as server, server.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        workers = pids(server)
        server.signal(number)
        server.expect("drain")
        server.expect("drain")
        began = time.monotonic()
        server.signal(number)
        assert server.exit_code() == 0
        assert time.monotonic() - began < 8
        assert not any(map(alive, workers))


def test_a_terminal_that_tells_the_whole_group_tells_it_once() -> None:
    """Ctrl-C goes to the parent and to its workers."""
    with Process("two") as server, server.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        workers = pids(server)
        os.killpg(server.popen.pid, signal.SIGINT)
        server.expect("drain")
        server.expect("drain")
        assert len(list(filter(alive, workers))) >= 1
        client.close()
        assert server.exit_code() == 0
        server.expect("(end)")
        assert "gone" in server.said


def test_workers_that_do_not_start_are_an_exit_code() -> None:
    with Process("two-broken") as server:
        assert server.exit_code() == 3
        assert "no database" in server.log()


def test_workers_that_die_at_once_are_started_later_and_later() -> None:
    with Process("two-dying") as server:
        # After 0, 0.1, 0.3, 0.7 and 1.5 seconds, two each. They tell the moment, since we may hear
        # of it late; all processes have the same clock.
        moments = [float(server.expect("started").split()[1]) for _ in range(10)]
        assert max(moments) - min(moments) > 1.3
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
