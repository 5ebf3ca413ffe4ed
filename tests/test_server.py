"""How the process starts, and how it leaves; whole processes on loopback."""

import re
import signal
import socket
import time

import pytest

from tests.faults.world import until
from tests.raw_http import Process, refuses, request
from weft.gateway.server import listen, url_of

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_idle_server_leaves_at_once_with_0(number: int) -> None:
    with Process("one") as server, server.client() as idle, server.client() as used:
        assert used.ask().status == 200
        began = time.monotonic()
        server.signal(number)
        assert (idle.rest(), used.rest()) == (b"", b"")
        assert server.exit_code() == 0
        assert time.monotonic() - began < 8
        server.expect("(end)")
        assert server.said[1:] == ["drain", "shutdown", "(end)"]


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_open_goes_on_and_nobody_new_comes_in(number: int) -> None:
    with Process("one") as server, server.client() as client, server.client() as idle:
        assert idle.ask().status == 200
        client.send(request("/stream"))
        client.until(b"one,")
        server.signal(number)
        server.expect("drain")
        assert idle.rest() == b""
        until(lambda: refuses(server.port), "the listener to be closed")
        server.go_on()
        assert client.rest() == b"\r\n3\r\ntwo\r\n0\r\n\r\n"
        assert server.exit_code() == 0
        server.expect("(end)")
        assert server.said[1:] == ["streaming", "drain", "two", "shutdown", "(end)"]


def test_what_is_open_when_the_time_is_over_is_told_so() -> None:
    with Process("one", 0.2) as server, server.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        server.signal(signal.SIGTERM)
        assert client.rest() == b"\r\n3\r\ncut\r\n0\r\n\r\n"
        assert server.exit_code() == 0
        server.expect("(end)")
        assert server.said[1:] == ["streaming", "drain", "cut", "cut", "shutdown", "(end)"]


def test_a_request_that_is_being_sent_is_still_answered() -> None:
    with Process("one") as server, server.client() as client:
        client.send(request("/half", b"", "Content-Length: 4") + b"ab")
        client.until(b"begun")
        server.signal(signal.SIGTERM)
        server.expect("drain")
        client.send(b"cd")
        assert client.rest() == b"\r\n0\r\n\r\n"
        server.expect("whole")
        assert server.exit_code() == 0


def test_a_request_whose_head_is_just_coming_is_told_to_go_elsewhere() -> None:
    with Process("one") as server, server.client() as client, server.client() as other:
        client.send(b"POST /v1/messages HTTP/1.1\r\nHost: a\r\n")
        other.send(request("/stream"))
        other.until(b"one,")  # by then the bytes before were read
        server.signal(signal.SIGTERM)
        server.expect("drain")
        client.send(b"Content-Length: 0\r\n\r\n")
        [answer] = client.answers()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert b"overloaded_error" in answer.body
        server.go_on()
        assert server.exit_code() == 0


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("path", ["/stream", "/stubborn"])
def test_a_second_signal_ends_it_now(number: int, path: str) -> None:
    with Process("one") as server, server.client() as client:
        client.send(request(path))
        server.expect("streaming" if path == "/stream" else "working")
        server.signal(signal.SIGTERM)
        server.expect("drain")
        began = time.monotonic()
        server.signal(number)
        assert server.exit_code() == 0
        assert time.monotonic() - began < 8
        assert not client.rest().endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_every_address_of_a_name_has_the_same_port(host: str) -> None:
    sockets = listen(host, 0)
    try:
        port = sockets[0].getsockname()[1]
        assert {one.getsockname()[1] for one in sockets} == {port}
        assert url_of(host, sockets) == f"http://{host}:{port}"
        assert url_of("::1", sockets) == f"http://[::1]:{port}"
        with socket.create_connection((host, port)):
            pass
        with pytest.raises(OSError, match="in use"):
            listen(host, port)
    finally:
        for one in sockets:
            one.close()


def test_a_blocked_event_loop_is_logged_once_with_what_it_does() -> None:
    with Process("one") as server:
        asked = 0
        with server.client() as client:
            # Nobody is blamed where the machine had no time to look: then it blocks once more.
            while asked < 2 or (asked < 20 and not was_logged(server, 2)):
                assert client.ask("/block").status == 200
                asked += 1
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        server.expect("(end)")
        _, *blocks = server.log().split("the event loop was blocked for ")
        found = [float(one.split()[0]) for one in blocks if "time.sleep(0.3)" in one]
        assert 2 <= len(found) <= asked
        assert min(found) >= 300
        # The culprit is named in the first line, not only somewhere in the stack.
        first = [one.partition("\n")[0] for one in blocks if "time.sleep(0.3)" in one]
        assert all(re.fullmatch(r"\d+ ms by \w+ \(\w+\.py:\d+\):", one) for one in first)


def was_logged(server: Process, times: int) -> bool:
    """Whether it says soon that it was blocked so often."""
    end = time.monotonic() + 0.3
    while "".join(server.logged).count(" ms by block (") < times:
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def test_a_process_that_was_stopped_blames_nobody() -> None:
    with Process("one") as server:
        with server.client() as client:
            assert client.ask().status == 200
            server.signal(signal.SIGSTOP)
            time.sleep(0.5)  # far longer than what counts as blocked
            server.signal(signal.SIGCONT)
            assert client.ask().status == 200
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        server.expect("(end)")
        assert "the event loop was blocked" not in server.log()


def test_an_app_that_does_not_start_is_an_exit_code() -> None:
    with Process("one-broken") as server:
        assert server.exit_code() == 3
        assert "no database" in server.log()
