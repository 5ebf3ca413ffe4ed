"""What a connection may do before any code of the app runs; by hand, on loopback."""

import contextlib
import json
import selectors
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import httptools
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from websockets.sync.client import connect

from tests.counting_only import alive, counting_only
from tests.raw_http import PATIENCE, Answer, Client, Running, request, running
from tests.tables import each_row
from weft.gateway.buffered_transport import BufferedTransport
from weft.gateway.exchange import Exchange
from weft.gateway.http_protocol import (
    LINGER,
    BodyRateLimit,
    ConnectionLimits,
    HttpProtocol,
)

QUICK = ConnectionLimits(head_time=0.3, body_time=0.3, body_rate=1000, stalled=0.4)
BRISK = ConnectionLimits(head_time=0.8, body_time=0.8, body_rate=1000, stalled=0.8)
"""For those who wait for a second, and before and after that must be in time."""

# Smuggling

HEAD = b"POST /echo HTTP/1.1\r\n"
BAIT = b"GET /pid HTTP/1.1\r\nHost: a\r\n\r\n"
"""What an attacker hides in a body: it must never be answered."""

SMUGGLED = {
    "length and coding": HEAD
    + b"Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Host: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "equal lengths": HEAD + b"Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "plus": HEAD + b"Host: a\r\nContent-Length: +5\r\n\r\nhello",
    "minus": HEAD + b"Host: a\r\nContent-Length: -5\r\n\r\nhello",
    "list": HEAD + b"Host: a\r\nContent-Length: 5, 5\r\n\r\nhello",
    "hexadecimal": HEAD + b"Host: a\r\nContent-Length: 0x5\r\n\r\nhello",
    "empty length": HEAD + b"Host: a\r\nContent-Length:\r\n\r\nhello",
    "huge length": HEAD + b"Host: a\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
    "gzip, chunked": HEAD + b"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "gzip": HEAD + b"Host: a\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    "identity": HEAD + b"Host: a\r\nTransfer-Encoding: identity\r\n\r\n",
    "xchunked": HEAD + b"Host: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"Host: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "two codings": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and identity": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "coding after a tab": HEAD + b"Host: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "empty coding": HEAD + b"Host: a\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n",
    "chunked in 1.0": b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no host": HEAD + b"Content-Length: 0\r\n\r\n",
    "two hosts": HEAD + b"Host: a\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "two hosts in 1.0": b"GET /echo HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    "bare CR in a value": HEAD + b"Host: a\r\nX: a\rContent-Length: 0\r\n\r\n",
    "bare CR in a name": HEAD + b"Host: a\r\nX\r: a\r\n\r\n",
    "bare CR for an end": b"GET /echo HTTP/1.1\rHost: a\r\r",
    "bare LF": b"GET /echo HTTP/1.1\nHost: a\n\n",
    "bare LF after a value": b"GET /echo HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "space before the colon": HEAD + b"Host: a\r\nContent-Length : 5\r\n\r\nhello",
    "space before the first colon": HEAD + b"Host : a\r\n\r\n",
    "space before the name": HEAD + b" Host: a\r\n\r\n",
    "folded line": HEAD + b"Host: a\r\nX: a\r\n b\r\n\r\n",
    "folded coding": HEAD + b"Host: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "NUL": HEAD + b"Host: a\r\nX: a\x00b\r\n\r\n",
    "no name": HEAD + b"Host: a\r\n: b\r\n\r\n",
    "no colon": HEAD + b"Host: a\r\nfoo\r\n\r\n",
    "HTTP/0.9": b"GET /echo\r\n\r\n",
    "HTTP/1.2": b"GET /echo HTTP/1.2\r\nHost: a\r\n\r\n",
    "HTTP/2.0": b"GET /echo HTTP/2.0\r\nHost: a\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "CONNECT": b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
    "another authority": b"GET http://evil/echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "no path": b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n",
    "no slash": b"GET echo HTTP/1.1\r\nHost: a\r\n\r\n",
    "eight bits in the path": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "length in a trailer": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
    "chunk size with a sign": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    "chunk size with 0x": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size with a space": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
    "chunk size too large": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "chunk longer than its size": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "chunk ended by LF": HEAD + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
    "extension ended by LF": HEAD
    + b"Host: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a\nabc\r\n0\r\n\r\n",
    "WebSocket by POST": HEAD + b"Host: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "WebSocket with a body": b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n"
    b"Upgrade: websocket\r\nContent-Length: 5\r\n\r\nhello",
}


@each_row("case", SMUGGLED)
def test_what_two_readers_could_cut_differently_is_refused_once_and_the_connection_closed(
    case: str,
) -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(SMUGGLED[case] + BAIT)
        assert [answer.status for answer in client.answers()] == [400]


@each_row("case", SMUGGLED)
def test_where_the_network_cuts_a_broken_request_changes_nothing(case: str) -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        for byte in SMUGGLED[case] + BAIT:
            client.send(bytes([byte]))
        assert [answer.status for answer in client.answers()] == [400]


@each_row("case", SMUGGLED)
def test_a_broken_request_after_a_good_one_is_refused_after_its_answer(case: str) -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        client.send(SMUGGLED[case] + BAIT)
        gateway.expect("streaming")
        gateway.tiny.go_on()
        client.until(b"two\r\n0\r\n\r\n")
        assert [answer.status for answer in client.answers()] == [400]


def test_a_broken_request_does_not_wait_for_a_body_to_be_asked_for_again() -> None:
    """The app has begun to wait for the rest of a body that turns out to be broken."""
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/echo", b"", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
        client.send(b"zz\r\n" + BAIT)
        began = time.monotonic()
        assert [answer.status for answer in client.answers()] == [400]
        gateway.expect("gone")
        assert (
            time.monotonic() - began < LINGER
        )  # as long as who is heard may take  # not only when the connection is lost


def test_a_begun_answer_whose_request_breaks_ends_without_its_end() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/half", b"", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
        client.until(b"begun")
        client.send(b"zz\r\n" + BAIT)
        assert client.rest() == b"\r\n"
        gateway.expect("gone")


def test_a_whole_answer_whose_request_breaks_later_stays_the_only_one() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/early", b"", "Transfer-Encoding: chunked") + b"3\r\nabc\r\n")
        assert client.answer().body == b"early"
        client.send(b"zz\r\n" + BAIT)
        assert client.rest() == b""


def test_a_refused_request_in_a_pipeline_is_never_begun() -> None:
    """Its head was good, so it waited for its turn; its body is broken."""
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        broken = request("/half", b"", "Transfer-Encoding: chunked") + b"zz\r\n" + BAIT
        client.send(request("/pid") + broken)
        gateway.tiny.go_on()
        client.until(b"two\r\n0\r\n\r\n")
        assert [answer.status for answer in client.answers()] == [200, 400]
        gateway.expect("streaming", "two")
        assert gateway.said.empty()


# The shape of refusals

SHAPES = {
    "/v1/chat/completions": b'{"error":{"message":"The request must have exactly one Host header.",'
    b'"type":"invalid_request_error","param":null,"code":null}}',
    "/v1/responses": b'{"error":{"message":"The request must have exactly one Host header.",'
    b'"type":"invalid_request","param":null,"code":null}}',
    "/v1/messages": b'{"type":"error","error":{"type":"invalid_request_error",'
    b'"message":"The request must have exactly one Host header."},"request_id":null}',
    "/v1beta/models/x:generateContent": b'{"error":{"code":400,'
    b'"message":"The request must have exactly one Host header.","status":"INVALID_ARGUMENT"}}',
}


@pytest.mark.parametrize("path", SHAPES)
def test_a_refusal_has_the_shape_that_clients_of_the_path_understand(path: str) -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(b"POST " + path.encode() + b" HTTP/1.1\r\n\r\n")
        answer = client.answer()
        date = answer.headers.pop("date")
        assert date.endswith("GMT")
        assert answer == Answer(
            400,
            {
                "content-type": "application/json",
                "connection": "close",
                "content-length": str(len(SHAPES[path])),
            },
            SHAPES[path],
        )


# What must go on working


def test_an_answer_does_not_say_what_serves_it() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        assert sorted(client.ask("/pid").headers) == ["content-length", "date"]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_many_requests_use_one_connection(loop: str) -> None:
    with running(ConnectionLimits(), loop=loop) as gateway, gateway.client() as client:
        for number in range(20):
            assert json.loads(client.ask("/echo", b"%d" % number).body)["body"] == str(number)


def test_a_pipeline_behind_a_stream_is_kept_until_its_turn() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        bodies = ["a" * 10, "b" * 100_000, "c" * 300_000, "", "d"]
        sender = threading.Thread(
            target=client.send, args=(b"".join(request("/echo", b.encode()) for b in bodies),)
        )
        sender.start()
        gateway.tiny.go_on()
        client.until(b"two\r\n0\r\n\r\n")
        assert [json.loads(client.answer().body)["body"] for _ in bodies] == bodies
        sender.join()


def test_requests_in_a_row_are_answered_in_their_order() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(b"".join(request("/echo", b"%d" % number) for number in range(50)))
        bodies = [json.loads(client.answer().body)["body"] for _ in range(50)]
        assert bodies == [str(number) for number in range(50)]


@pytest.mark.parametrize("size", [0, 1, 70_000, 1_000_000])
@pytest.mark.parametrize("cut", [None, 1])
def test_a_body_comes_whole_whatever_its_framing(size: int, cut: int | None) -> None:
    body = b"x" * size
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in (body[:7], body[7:]) if one)
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        for message in (
            request("/echo", body),
            request("/echo", chunked + b"0\r\n\r\n", "Transfer-Encoding: Chunked"),
            request("/echo", chunked + b"0\r\nX-After: 1\r\n\r\n", "Transfer-Encoding: chunked"),
        ):
            head, _, _ = message.partition(b"\r\n\r\n")
            for index in range(len(head) if cut else 0):
                client.send(message[index : index + 1])
            client.send(message[len(head) if cut else 0 :])
            answer = json.loads(client.answer().body)
            assert answer["body"] == body.decode()
            assert "x-after" not in answer["headers"]


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/echo", b"", "Content-Length: 2", "Expect: 100-continue"))
        assert client.head() == (100, {})
        client.send(b"hi")
        assert json.loads(client.answer().body)["body"] == "hi"


def test_http_1_0_works_without_a_host_and_closes() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(b"POST /echo HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi")
        [answer] = client.answers()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert json.loads(answer.body)["body"] == "hi"


def test_a_target_may_be_a_url_of_the_host() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(b"GET http://a:80/pid?x HTTP/1.1\r\nHost: a:80\r\n\r\n")
        assert client.answer().status == 200


@pytest.mark.parametrize("after", [b"", b"hi"])
def test_an_upgrade_that_nobody_speaks_is_ignored_and_the_body_is_a_body(after: bytes) -> None:
    head = request(
        "/echo",
        b"",
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        f"Content-Length: {len(BAIT) + len(after)}",
    )
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(head + after)
        client.send(BAIT)
        answer = json.loads(client.answer().body)
        assert answer["body"] == (after + BAIT).decode()
        assert answer["headers"] == ["content-length", "host"]
        assert client.ask("/echo").status == 200


HANDSHAKE = (
    b"GET /socket HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def test_a_websocket_still_opens() -> None:
    with running(BRISK, keep_alive=0.1) as gateway:
        with connect(f"ws://127.0.0.1:{gateway.port}/socket") as websocket:
            gateway.expect("accepted")
            for size in (1, 100_000):
                websocket.send("x" * size)
                assert websocket.recv(PATIENCE) == "x" * size
            with pytest.raises(TimeoutError):  # idle for longer than any of the limits
                websocket.recv(1.0)
            websocket.send("still here")
            assert websocket.recv(PATIENCE) == "still here"
        gateway.expect("socket-gone")


def test_a_websocket_after_an_unfinished_request_is_refused() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/stream") + HANDSHAKE)
        client.until(b"one,")
        gateway.tiny.go_on()
        client.until(b"two\r\n0\r\n\r\n")
        assert [answer.status for answer in client.answers()] == [400]


# Sizes


def head_of(size: int) -> bytes:
    plain = b"GET /pid HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n"
    return plain.replace(b"X: ", b"X: " + b"a" * (size - len(plain)))


PADDED = b"GET /pid HTTP/1.1\r\nHost: a\r\n" + b"X: %s\r\n" % (b" " * 9_000 + b"a") + b"\r\n"


@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 431)])
@pytest.mark.parametrize("step", [1, 1000, 100_000])
def test_a_head_may_be_as_large_as_the_limit(over: int, status: int, step: int) -> None:
    head = head_of(3000 + over)
    with running(ConnectionLimits(head=3000)) as gateway, gateway.client() as client:
        for start in range(0, len(head), step):
            client.send(head[start : start + step])
        assert client.answer().status == status


@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 431)])
def test_the_limit_of_a_head_is_64_kib_and_100_fields(over: int, status: int) -> None:
    many = b"GET /pid HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * (99 + over) + b"\r\n"
    with running(ConnectionLimits()) as gateway:
        for head in (head_of(65536 + over), many):
            with gateway.client() as client:
                client.send(head)
                assert client.answer().status == status


def test_spaces_count_like_other_bytes() -> None:
    with running(ConnectionLimits(head=9_000)) as gateway, gateway.client() as client:
        client.send(PADDED)
        assert [answer.status for answer in client.answers()] == [431]


ENDLESS = {
    "empty lines": b"\r\n",
    "a path": b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "a name": b"GET / HTTP/1.1\r\nHost: a\r\nX",
    "a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a",
    "spaces": b"GET / HTTP/1.1\r\nHost: a\r\nX: ",
    "a chunk extension": request("/echo", b"3;a", "Transfer-Encoding: chunked"),
    "a trailer's name": request("/echo", b"0\r\nX", "Transfer-Encoding: chunked"),
    "a trailer's value": request("/echo", b"0\r\nX: a", "Transfer-Encoding: chunked"),
    "trailers": request("/echo", b"0\r\n", "Transfer-Encoding: chunked"),
    "fields": b"GET / HTTP/1.1\r\nHost: a\r\n",
}
FILLING = {"empty lines": b"\r\n", "spaces": b" ", "trailers": b"X: a\r\n", "fields": b"X: a\r\n"}


@pytest.mark.parametrize("case", ENDLESS)
def test_what_has_no_end_is_refused(case: str) -> None:
    with running(ConnectionLimits(head=3000)) as gateway, gateway.client() as client:
        client.send(ENDLESS[case] + FILLING.get(case, b"a") * 7000)
        assert [answer.status for answer in client.answers()] == [431]


def test_fields_of_a_trailer_count_too() -> None:
    with running(ConnectionLimits(fields=5)) as gateway, gateway.client() as client:
        body = b"0\r\n" + b"X: a\r\n" * 4 + b"\r\n"
        client.send(request("/echo", body, "Transfer-Encoding: chunked"))
        assert [answer.status for answer in client.answers()] == [431]


def test_a_client_that_still_writes_reads_its_refusal() -> None:
    """Closed at once, it would meet a reset instead."""
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/too_large", b"", "Content-Length: 3000000"))
        assert client.answer().status == 413
        client.send(bytes(3_000_000))
        assert client.rest() == b""


# Time


def test_who_says_nothing_or_too_little_is_refused_in_time_and_others_are_served() -> None:
    """100 say nothing, 100 send a head byte by byte, 100 a body; one asks on and on."""
    starts = (b"", b"GET /", request("/echo", b"", "Content-Length: 1000"))
    with running(QUICK) as gateway, gateway.client() as other, contextlib.ExitStack() as stack:
        assert other.ask().status == 200  # from now on it may be idle for longer
        began = time.monotonic()
        silent, head, body = (
            [started(gateway, start, stack) for _ in range(100)] for start in starts
        )
        closed = trickle({*head, *body}, {*silent, *head, *body}, other)
        assert [closed[client] for client in (*silent, *head, *body)] == [[408]] * 300
        assert 0.3 <= time.monotonic() - began < 8


def started(gateway: Running, start: bytes, stack: contextlib.ExitStack) -> Client:
    client = stack.enter_context(gateway.client())
    client.send(start)
    return client


def trickle(talkers: set[Client], clients: set[Client], other: Client) -> dict[Client, list[int]]:
    """The answers of all of them, when all are closed; the other one is served meanwhile."""
    closed: dict[Client, list[int]] = {}
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        while len(closed) < len(clients):
            for key, _ in selector.select(0.02):
                selector.unregister(key.fileobj)
                closed[key.data] = [answer.status for answer in key.data.answers()]
            for client in talkers - closed.keys():
                with contextlib.suppress(OSError):
                    client.send(b"a")
            assert other.ask("/echo").status == 200
    return closed


@pytest.mark.parametrize(
    ("start", "status"),
    [(b"", []), (b"\r\n", [408]), (b"GET", [408]), (b"GET / HTTP/1.1\r\nHost: a\r\n", [408])],
)
def test_a_further_request_has_its_own_time(start: bytes, status: list[int]) -> None:
    # Who begins to ask is not idle, however late it begins.
    keep_alive = 75.0 if start else 0.6
    with running(QUICK, keep_alive=keep_alive) as gateway, gateway.client() as client:
        began = time.monotonic()  # the time of who is idle runs before it has read its answer
        assert client.ask().status == 200
        client.send(start)
        assert [answer.status for answer in client.answers()] == status
        assert (0.25 if start else 0.55) <= time.monotonic() - began < 8


def test_a_body_that_stops_after_a_good_start_is_refused() -> None:
    with running(QUICK) as gateway, gateway.client() as client:
        client.send(request("/echo", b"", "Content-Length: 900000") + bytes(800_000))
        assert [answer.status for answer in client.answers()] == [408]
        gateway.expect("gone")


def test_a_body_that_keeps_its_rate_may_take_long() -> None:
    limits = ConnectionLimits(body_time=0.5, body_rate=50)
    with running(limits) as gateway, gateway.client() as client:
        client.send(request("/echo", b"", "Content-Length: 700"))
        paced, moments = threading.Event(), [time.monotonic()]
        for _ in range(14):
            paced.wait(0.05)
            client.send(b"x" * 50)
            moments.append(time.monotonic())
        answer = client.answer()
        if answer.status == 408:  # right, if this machine stood still
            assert longest_pause(moments) > 0.4
            return
        assert json.loads(answer.body)["body"] == "x" * 700


def longest_pause(moments: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(moments))


def test_without_a_rate_a_body_may_take_any_time(caplog: pytest.LogCaptureFixture) -> None:
    with (
        running(ConnectionLimits(body_time=0.05, body_rate=0)) as gateway,
        gateway.client() as client,
    ):
        client.send(request("/echo", b"", "Content-Length: 2") + b"x")
        threading.Event().wait(0.5)  # it would have been late ten times
        client.send(b"y")
        assert json.loads(client.answer().body)["body"] == "xy"
    # The server itself says when the machine has let its loop wait.
    assert [one for one in caplog.records if one.name != "weft.server"] == []


def test_nobody_is_late_whose_head_waits_for_its_turn() -> None:
    with running(BRISK) as gateway, gateway.client() as client:
        head, end = request("/pid")[:20], request("/pid")[20:]
        client.send(request("/stream") + request("/pid") + head)
        client.until(b"one,")
        threading.Event().wait(1.0)
        client.send(end)
        gateway.tiny.go_on()
        client.until(b"two\r\n0\r\n\r\n")
        assert [client.answer().status for _ in range(2)] == [200, 200]


def test_a_pipeline_behind_a_stream_is_not_kept_without_end() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/stream"))
        client.until(b"one,")
        client.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            send_all_of([request("/echo", bytes(60_000))] * 400, client)


def send_all_of(pieces: list[bytes], client: Client) -> None:
    for piece in pieces:
        client.send(piece)


def test_nobody_is_late_while_we_do_not_read() -> None:
    """A second request waits behind a stream, its body unread."""
    with running(BRISK) as gateway, gateway.client() as client:
        big = request("/echo", b"", "Content-Length: 300000")
        client.send(request("/stream") + big)
        client.until(b"one,")
        sender = threading.Thread(target=client.send, args=(bytes(300_000),))
        sender.start()
        threading.Event().wait(1.0)
        gateway.tiny.go_on()
        client.until(b"two\r\n0\r\n\r\n")
        assert len(json.loads(client.answer().body)["body"]) == 300_000
        sender.join()


def test_a_client_that_was_not_told_to_go_on_is_not_late() -> None:
    with running(BRISK) as gateway, gateway.client() as client:
        client.send(request("/patient", b"", "Content-Length: 2", "Expect: 100-continue"))
        gateway.expect("waiting")
        threading.Event().wait(1.0)
        gateway.tiny.go_on()
        assert client.head() == (100, {})
        client.send(b"hi")
        assert json.loads(client.answer().body)["body"] == "hi"


def test_a_client_that_was_answered_instead_of_told_to_go_on_is_not_misread() -> None:
    """Whether it sends the body all the same is not known, so the connection ends."""
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/early", b"", "Content-Length: 31", "Expect: 100-continue"))
        assert client.answer().body == b"early"
        client.send(BAIT)
        assert client.rest() == b""


def test_a_long_body_that_was_answered_early_is_not_read_to_its_end() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/early", b"", "Content-Length: 3000000") + bytes(200_000))
        assert client.answer().body == b"early"
        client.send(bytes(200_000))
        assert client.rest() == b""


def test_a_connection_answered_before_its_body_still_ends_when_idle() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        for _ in range(2):
            client.send(request("/early", b"", "Content-Length: 2"))
            assert client.answer().body == b"early"
            client.send(b"hi")
            assert client.ask().status == 200
    with running(ConnectionLimits(), keep_alive=0.2) as gateway, gateway.client() as client:
        client.send(request("/early", b"", "Content-Length: 2"))
        assert client.answer().body == b"early"
        client.send(b"hi")
        assert client.rest() == b""


def test_a_request_behind_the_body_of_one_that_was_answered_before_is_not_idle() -> None:
    """Both in one packet: the connection was idle between them, for no time at all."""
    with running(ConnectionLimits(), keep_alive=0.5) as gateway, gateway.client() as client:
        client.send(request("/early", b"", "Content-Length: 2"))
        assert client.answer().body == b"early"
        client.send(b"hi" + request("/stream"))
        client.until(b"one,\r\n")
        threading.Event().wait(0.6)
        gateway.tiny.go_on()
        client.until(b"two\r\n0\r\n\r\n")


# Clients that leave, or do not read


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_client_that_does_not_read_is_dropped_and_little_waits_for_it(loop: str) -> None:
    with running(QUICK, loop=loop) as gateway, Client(gateway.port, receive_buffer=4096) as client:
        client.send(request("/flood"))
        gateway.expect("gone")
        assert gateway.tiny.sent < 1_000_000


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("buffer", [1, 65536, 1_000_000])
def test_for_a_client_that_does_not_read_the_buffer_is_filled_and_no_more(
    loop: str, buffer: int
) -> None:
    limits = ConnectionLimits(buffer=buffer)
    with running(limits, loop=loop) as gateway, Client(gateway.port, receive_buffer=4096) as client:
        client.send(request("/poured"))
        gateway.expect("full")
        (connection,) = gateway.server.server_state.connections
        waiting = connection.transport.get_write_buffer_size()
        assert buffer < waiting <= buffer + len(b"4000\r\n\r\n") + 16384
        client.answer()
        gateway.expect("over")


def test_a_finished_answer_that_nobody_reads_is_dropped() -> None:
    with running(QUICK) as gateway, Client(gateway.port, receive_buffer=4096) as client:
        client.send(request("/tail", b"", "Connection: close"))
        gateway.expect("over")
        wait_until(lambda: not gateway.server.server_state.connections)


def test_a_slow_reader_is_not_dropped() -> None:
    with (
        running(ConnectionLimits(stalled=1.2)) as gateway,
        Client(gateway.port, receive_buffer=4096) as client,
    ):
        client.send(request("/tail", b"", "Connection: close"))
        paced, moments = threading.Event(), [time.monotonic()]
        received = 0
        for _ in range(30):
            paced.wait(0.05)
            received += len(client.socket.recv(200_000))
            moments.append(time.monotonic())
        received += len(client.rest())
        # It is right to drop it if this machine stood still.
        assert received > 4_000_000 or longest_pause(moments) > 0.9


def test_a_websocket_that_does_not_read_is_dropped() -> None:
    frame = b"\x81\xfe" + (60_000).to_bytes(2) + bytes(4) + b"x" * 60_000
    with running(QUICK) as gateway, Client(gateway.port, receive_buffer=4096) as client:
        client.send(HANDSHAKE)
        gateway.expect("accepted")
        with contextlib.suppress(ConnectionError):
            while True:
                client.send(frame)
        gateway.expect("socket-gone")


def test_a_websocket_that_nobody_answers_is_dropped() -> None:
    with running(QUICK) as gateway, gateway.client() as client:
        client.send(HANDSHAKE.replace(b"/socket", b"/silent"))
        assert client.rest() == b""
        gateway.tiny.go_on()


HANDSHAKES = {
    "no key": "Sec-WebSocket-Version: 13",
    "short key": "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x",
    "no version": "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    "eight bits": "X: \xff\xfe\r\nSec-WebSocket-Version: 13",
    "long line": "Sec-WebSocket-Version: 13\r\nX: " + "a" * 30_000,
    "many fields": "Sec-WebSocket-Version: 13\r\n" + "\r\n".join(["X: a"] * 90),
}


@pytest.mark.parametrize("case", HANDSHAKES)
def test_a_bad_handshake_is_one_refusal(case: str) -> None:
    upgrade = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send((upgrade + HANDSHAKES[case] + "\r\n\r\n").encode("latin-1"))
        status, _ = client.head()
        assert 400 <= status < 500
        client.rest()


def test_each_request_of_a_pipeline_hears_that_its_client_left() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as other:
        with gateway.client() as client:
            client.send(request("/stream"))
            client.until(b"one,\r\n")
            assert [other.ask().status for _ in range(3)] == [200] * 3  # by then the app listens
            client.send(request("/pid") + request("/echo", bytes(40_000)))
            gateway.expect("streaming")
            assert [other.ask().status for _ in range(3)] == [200] * 3  # by then it was read
        gateway.expect("gone")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_who_watches_is_told_once_that_the_client_left(loop: str) -> None:
    with running(ConnectionLimits(), loop=loop) as gateway:
        with gateway.client() as client:
            client.send(request("/watched"))
            client.until(b"one,\r\n")
        gateway.expect("waiting", "streaming", "left", "told")
        assert_quiet(gateway)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_who_watches_a_client_that_left_before_is_told_at_once(loop: str) -> None:
    with running(ConnectionLimits(), loop=loop) as gateway:
        with gateway.client() as client:
            client.send(request("/watched/late"))
            gateway.expect("waiting")
        wait_until(lambda: not gateway.server.server_state.connections)
        gateway.tiny.go_on()
        gateway.expect("left", "watched")
        assert_quiet(gateway)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_client_that_leaves_after_its_answer_has_not_left(loop: str) -> None:
    with running(ConnectionLimits(), loop=loop) as gateway:
        with gateway.client() as client:
            gateway.tiny.go_on()
            assert client.ask("/watched").body == b"one,two"
            gateway.expect("waiting", "streaming", "told")
            assert client.ask("/echo").status == 200
        wait_until(lambda: not gateway.server.server_state.connections)
        assert_quiet(gateway)


def assert_quiet(gateway: Running) -> None:
    """Nothing more is said by the time that others were served."""
    with gateway.client() as other:
        assert [other.ask().status for _ in range(3)] == [200] * 3
    assert gateway.said.empty()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("size", [0, 100_000, 200_000, 1_000_000])
def test_a_client_that_leaves_is_noticed_however_large_its_request(loop: str, size: int) -> None:
    """Its body came in one piece, after the app began to wait: then reading was paused."""
    with running(ConnectionLimits(), loop=loop) as gateway:
        with gateway.client() as client:
            client.send(request("/watched", b"", f"Content-Length: {size}"))
            gateway.expect("waiting")
            client.send(bytes(size))
            client.until(b"one,\r\n")
        gateway.expect("streaming", "left", "told")


def test_each_request_of_a_pipeline_that_is_watched_hears_that_its_client_left() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as other:
        with gateway.client() as client:
            client.send(request("/watched") + request("/watched") + request("/echo"))
            client.until(b"one,\r\n")
            assert [other.ask().status for _ in range(3)] == [200] * 3  # by then it was read
        gateway.expect("waiting", "streaming", "left", "told")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_what_is_written_at_once_comes_in_order_as_far_as_there_is_room(loop: str) -> None:
    with (
        running(ConnectionLimits(), loop=loop) as gateway,
        Client(gateway.port, receive_buffer=4096) as client,
    ):
        client.send(request("/poured"))
        gateway.expect("full")
        assert client.answer().body == b"one," + bytes(gateway.tiny.sent) + b",two"
        gateway.expect("over")
        assert gateway.tiny.sent < 1_000_000
        assert client.ask("/echo").status == 200  # nothing was written behind the end


def test_nothing_is_written_to_a_client_that_left() -> None:
    with running(ConnectionLimits()) as gateway:
        with Client(gateway.port, receive_buffer=4096) as client:
            client.send(request("/poured"))
            gateway.expect("full")
        gateway.expect("over")


# Past ASGI

DIRECT = {
    "/direct": ("content-length", b"hello"),
    "/direct/stream": ("transfer-encoding", b"hello,more"),
}
"""The framing of each answer, and its body."""


@pytest.mark.parametrize("path", DIRECT)
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_what_is_sent_past_asgi_is_a_response_like_any_other(path: str, loop: str) -> None:
    framing, body = DIRECT[path]
    with running(ConnectionLimits(), loop=loop) as gateway, gateway.client() as client:
        for _ in range(3):
            answer = client.ask(path, b"hello")
            assert (answer.status, answer.body) == (200, body)
            assert sorted(answer.headers) == sorted(["date", "x-kind", framing])
            gateway.expect("past ASGI")
        assert client.ask("/echo").status == 200  # the connection goes on


@pytest.mark.parametrize("path", DIRECT)
def test_a_pipeline_of_what_is_sent_past_asgi_keeps_its_order(path: str) -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(b"".join(request(path, b"%d" % number) for number in range(20)))
        end = b"" if path == "/direct" else b",more"
        bodies = [client.answer().body for _ in range(20)]
        assert bodies == [b"%d%b" % (number, end) for number in range(20)]


@pytest.mark.parametrize("path", DIRECT)
def test_a_connection_that_ends_with_its_response_says_so(path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(head.encode() + b"hello")
        [answer] = client.answers()
        assert (answer.headers["connection"], answer.body) == ("close", DIRECT[path][1])
        gateway.expect("by ASGI")


HTTP_1_0 = {
    "/direct": (["connection", "content-length", "x-kind"], b"hello"),
    "/direct/stream": (["connection", "x-kind"], b"hello,more"),
}
"""The headers of each answer, and its body."""


@pytest.mark.parametrize("path", HTTP_1_0)
@pytest.mark.parametrize("asked", ["keep-alive", "close"])
def test_http_1_0_has_no_chunks(path: str, asked: str) -> None:
    """RFC 9112 (6.1, 6.3): a body without a length ends with its connection."""
    headers, body = HTTP_1_0[path]
    question = f"POST {path} HTTP/1.0\r\nConnection: {asked}\r\nContent-Length: 5\r\n\r\nhello"
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(question.encode())
        status, found = client.head()
        assert (status, sorted(found)) == (200, sorted(["date", *headers]))
        assert (found["connection"], client.rest()) == ("close", body)
        gateway.expect("by ASGI")


def test_the_head_of_an_answer_has_no_body_in_http_1_0() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(b"HEAD /direct/stream HTTP/1.0\r\n\r\n")
        status, found = client.head()
        assert (status, "transfer-encoding" in found) == (200, False)


def test_a_client_that_asked_first_gets_its_response_past_asgi() -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request("/direct", b"", "Content-Length: 2", "Expect: 100-continue"))
        assert client.head() == (100, {})
        client.send(b"hi")
        assert client.answer().body == b"hi"
        gateway.expect("past ASGI")


@pytest.mark.parametrize("control", [b"\r\n", b"\n", b"\r", b"\0"])
def test_a_header_with_a_line_break_is_never_written(control: bytes) -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        answer = client.ask("/direct/broken", control)
        assert (answer.body, "x-forged" in answer.headers) == (b"refused", False)


def test_nothing_is_sent_past_asgi_to_a_client_that_left() -> None:
    with running(ConnectionLimits()) as gateway:
        with gateway.client() as client:
            client.send(request("/direct/gone"))
            gateway.expect("waiting")
        gateway.expect("gone")


@pytest.mark.parametrize("size", [0, 5, 200_000])
def test_a_body_is_taken_once_if_all_of_it_is_there_and_otherwise_received(size: int) -> None:
    whole = request("/direct/body", bytes(size))
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        for missing in (0, 1) if size else (0,):
            client.send(whole[: len(whole) - missing])
            gateway.expect("begun")
            client.send(whole[len(whole) - missing :])
            how, _, body = client.answer().body.partition(b" ")
            assert body == bytes(size)
            if missing or size < 65536:
                assert how == (b"received" if missing else b"taken")
            gateway.expect("waiting", "http.disconnect")


@pytest.mark.parametrize(
    ("path", "status"), [("/failing", 500), ("/failing/silently", 500), ("/failing/late", 200)]
)
def test_an_app_that_fails_ends_its_connection_with_an_error_if_it_can(
    path: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with running(ConnectionLimits()) as gateway, gateway.client() as client:
        client.send(request(path))
        assert client.head()[0] == status
        assert client.rest() == (b"half" if status == 200 else b"Internal Server Error")
        wait_until(lambda: not gateway.server.server_state.connections)
        assert not gateway.server.server_state.tasks
    assert [one.levelname for one in caplog.records if one.name == "uvicorn.error"] == ["ERROR"]


# Numbers


def test_above_the_limit_of_connections_a_new_one_is_refused_until_one_leaves() -> None:
    with running(ConnectionLimits(connections=3)) as gateway, contextlib.ExitStack() as stack:
        first, *others = [stack.enter_context(gateway.client()) for _ in range(3)]
        assert [one.ask().status for one in (first, *others)] == [200] * 3
        for _ in range(3):
            with gateway.client() as client:
                client.send(request("/v1/messages"))
                [answer] = client.answers()
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert b"overloaded_error" in answer.body
        assert first.ask().status == 200
        first.close()
        wait_until(lambda: len(gateway.server.server_state.connections) == 2)
        assert stack.enter_context(gateway.client()).ask().status == 200


def test_a_crowd_above_the_limit_is_refused_unheard() -> None:
    with running(ConnectionLimits(connections=1)) as gateway, contextlib.ExitStack() as stack:
        first = stack.enter_context(gateway.client())
        assert first.ask().status == 200
        crowd = [stack.enter_context(gateway.client()) for _ in range(99)]
        began = time.monotonic()
        last = stack.enter_context(gateway.client())
        assert last.answer().status == 503
        assert time.monotonic() - began < LINGER  # which others are given to ask
        assert [[one.status for one in client.answers()] for client in crowd] == [[503]] * 99
        assert first.ask().status == 200
        for client in crowd:
            client.close()
        wait_until(lambda: len(gateway.server.server_state.connections) == 1)
        first.close()
        wait_until(lambda: not gateway.server.server_state.connections)
        assert stack.enter_context(gateway.client()).ask().status == 200


# What is left of closed connections

ECHO = (request(), b"]}")
CONNECTIONS: dict[str, list[tuple[bytes, bytes | None]]] = {
    "says nothing": [],
    "asks once": [ECHO],
    "asks again": [ECHO, ECHO],
    "asks two at a time": [(2 * request(), b"]}"), (b"", b"]}")],
    "leaves inside the head": [(HEAD, b"")],
    "leaves inside the body": [(request("/echo", b"", "Content-Length: 9") + b"half", b"")],
    "leaves inside the answer": [(request("/stream"), b"one,")],
    "is watched, and leaves": [(request("/watched"), b"one,")],
    "is refused": [(SMUGGLED["two lengths"], None)],
    "is closed": [(request("/echo", b"", "Connection: close"), None)],
    "asks for an upgrade that nobody has": [
        (request("/echo", b"", "Connection: upgrade", "Upgrade: h2c"), b"]}")
    ],
}
"""What a client sends, and what it reads until then; None: the end."""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("name", CONNECTIONS)
def test_a_closed_connection_is_freed_by_counting_alone(name: str, loop: str) -> None:
    kinds = (
        HttpProtocol,
        BodyRateLimit,
        BufferedTransport,
        Exchange,
        RequestResponseCycle,
        httptools.HttpRequestParser,
    )
    with running(ConnectionLimits(), loop=loop) as gateway, counting_only():
        for _ in range(20):
            with gateway.client() as client:
                for data, mark in CONNECTIONS[name]:
                    client.send(data)
                    if mark is None:
                        client.rest()
                    elif mark:
                        client.until(mark)
        wait_until(lambda: not gateway.server.server_state.connections)
        wait_until(lambda: not alive(*kinds))


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_of_a_closed_websocket_nothing_of_ours_is_left(loop: str) -> None:
    """What the library holds is the library's."""
    with running(QUICK, loop=loop) as gateway, counting_only():
        for _ in range(5):
            with connect(f"ws://127.0.0.1:{gateway.port}/socket") as websocket:
                websocket.send("hi")
                assert websocket.recv() == "hi"
        wait_until(lambda: not alive(HttpProtocol, BodyRateLimit, httptools.HttpRequestParser))


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.005)
