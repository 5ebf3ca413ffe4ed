"""HTTP upstreams, against a server that sends any bytes whatever. Both event loops."""

import asyncio
import gzip
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import CERT_REQUIRED
from typing import Protocol, TypeVar

import httptools
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.counting_only import alive, counting_only
from tests.daily import one_in
from tests.raw_upstream import (
    EVENTS,
    FIN,
    HEAD,
    LAST,
    RESET,
    SILENCE,
    Hold,
    RawUpstream,
    Script,
    Step,
    answer,
    certified,
    chunk,
    raw_upstream,
)
from tests.strategies import FEW, QUICK, cuts
from weft.parts import ErrorKind
from weft.scrub import Secret
from weft.upstream.base import (
    Busy,
    ConnectError,
    OutgoingRequest,
    Timeouts,
    Tls,
    Unreachable,
    UpstreamConfig,
)
from weft.upstream.connection import (
    MAX_CHUNK,
    MAX_HEAD,
    MAX_HEADERS,
    ConnectionFailure,
    ConnectionState,
    HttpConnection,
)
from weft.upstream.http import (
    OTHERS_TURNS,
    STALE_TIMEOUT,
    HttpResponse,
    HttpUpstream,
    was_closed_while_idle,
)

T = TypeVar("T")
AT_ONCE = 8.0
"""Seconds. It takes two milliseconds; machines that run tests are busy, and stand still at times.
Nothing else would close a connection before ten have passed."""

LIMITS = Timeouts(connect=60.0, first_byte=60.0)
"""A test that goes wrong does not hang."""

KEY = "sk-very-secret"
REQUEST = OutgoingRequest("/chat/completions?alt=hidden", b'{"a":1}')


class Run(Protocol):
    def __call__(self, main: Coroutine[object, object, T]) -> T: ...


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:

        def run(main: Coroutine[object, object, T]) -> T:
            return runner.run(main)

        yield run


def config(base_url: str, **changes: object) -> UpstreamConfig:
    settings: dict[str, object] = {"key": Secret(KEY), "timeouts": LIMITS, **changes}
    return UpstreamConfig("far", "openai-chat", base_url, **settings)  # type: ignore[arg-type]


@asynccontextmanager
async def connected_upstream(
    far: RawUpstream | UpstreamConfig, **changes: object
) -> AsyncIterator[HttpUpstream]:
    """The upstream, and nothing left behind when it is closed."""
    where = far if isinstance(far, UpstreamConfig) else config(far.url + "/hidden", **changes)
    upstream = HttpUpstream(where)
    try:
        yield upstream
    finally:
        await upstream.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def read_all(upstream: HttpUpstream, asked: OutgoingRequest = REQUEST) -> bytes:
    """The body of an answer, to its end."""
    response = await upstream.send(asked)
    pieces = []
    while piece := await response.read():
        pieces.append(piece)
    assert await response.read() == b""
    return b"".join(pieces)


Outcome = tuple[int | None, bytes, str | None]


async def outcome(upstream: HttpUpstream) -> Outcome:
    """The status, the body, and how it broke off. What is said of it gives nothing away."""
    status, body = None, b""
    try:
        response = await upstream.send(REQUEST)
        status = response.status
        while piece := await response.read():
            body += piece
    except Unreachable as error:
        assert_discreet(error)
        return status, body, error.kind
    return status, body, None


async def after(response: HttpResponse) -> bytes:
    """What comes until it breaks off."""
    pieces = []
    try:
        while piece := await response.read():
            pieces.append(piece)
    except Unreachable:
        return b"".join(pieces)
    raise AssertionError("it ended")


async def failure_of(response: HttpResponse) -> str:
    with pytest.raises(Unreachable) as told:
        await response.read()
    assert told.value.kind == "truncated"
    return str(told.value)


def assert_discreet(error: Unreachable) -> None:
    said = str(error)
    assert said.startswith(('upstream "far": ', 'cannot connect to upstream "far": '))
    assert not [word for word in (KEY, "hidden", "127.0.0.1", "://") if word in said]


def listen(heard_of: Callable[[], object]) -> Coroutine[object, object, object]:
    return asyncio.to_thread(heard_of)


# What is sent


def test_a_request_holds_what_config_and_caller_say_and_nothing_else(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        headers = {"X-Team": "a", "Accept": "text/plain"}
        async with connected_upstream(far, headers=headers) as upstream:
            asked = OutgoingRequest("/models/a%2Fb%3F%41:go?alt=sse", b'{"a":1}', {"X-More": "b"})
            assert await read_all(upstream, asked) == b"yes"

    with raw_upstream((answer(b"yes"),)) as far:
        run(main(far))
        (request,) = far.requests
    assert (request.method, request.path) == ("POST", "/hidden/models/a%2Fb%3F%41:go?alt=sse")
    assert request.body == b'{"a":1}'
    fields = dict(request.fields)
    assert len(fields) == len(request.fields)
    assert fields.pop("user-agent").startswith("weft/")
    assert fields == {
        "host": f"127.0.0.1:{far.port}",
        "content-type": "application/json",
        "content-length": "7",
        "accept": "text/plain",
        "accept-encoding": "identity",
        "authorization": f"Bearer {KEY}",
        "x-team": "a",
        "x-more": "b",
    }


def test_credentials_override_configured_headers_which_override_the_callers(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        own = {"X-Team": "config", "AUTHORIZATION": "config"}
        async with connected_upstream(far, headers=own) as upstream:
            given = {"x-team": "caller", "Authorization": "caller", "X-Mine": "caller"}
            await read_all(upstream, OutgoingRequest("/", b"", given))

    with raw_upstream((answer(b""),)) as far:
        run(main(far))
        headers = far.requests[0].headers
    wanted = ("authorization", "x-team", "x-mine")
    assert [headers[name] for name in wanted] == [f"Bearer {KEY}", "config", "caller"]


def test_each_request_has_its_own_path_headers_and_length(run: Run) -> None:
    asked = [
        OutgoingRequest(path, body, {"accept": accept})
        for path in ("/a", "/b")
        for accept in ("text/plain", "text/event-stream")
        for body in (b"", b"{}", b"[1]")
    ]

    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far) as upstream:
            for one in (*asked, *reversed(asked)):
                await read_all(upstream, one)

    with raw_upstream((answer(b""),)) as far:
        run(main(far))
        found = [
            (one.path, one.headers["accept"], one.headers["content-length"], one.body)
            for one in far.requests
        ]
    expected = [
        (f"/hidden{one.path}", one.headers["accept"], str(len(one.body)), one.body)
        for one in (*asked, *reversed(asked))
    ]
    assert found == expected


def test_a_trailing_slash_of_a_base_url_is_ignored(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(config(far.url + "/v1/")) as upstream:
            await read_all(upstream, OutgoingRequest("/responses", b""))

    with raw_upstream((answer(b""),)) as far:
        run(main(far))
        assert far.requests[0].path == "/v1/responses"


def test_a_large_body_arrives_whole(run: Run) -> None:
    body = bytes(range(256)) * (32 * 4096)

    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far) as upstream:
            await read_all(upstream, OutgoingRequest("/", body))

    with raw_upstream((answer(b""),)) as far:
        run(main(far))
        assert far.requests[0].body == body


def test_cookies_are_not_stored(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(config(f"http://localhost:{far.port}")) as upstream:
            await read_all(upstream)
            await read_all(upstream)

    with raw_upstream((answer(b"", "200 OK", "Set-Cookie: a=b; Path=/"),)) as far:
        run(main(far))
        assert ["cookie" in request.headers for request in far.requests] == [False, False]


ASKING = """
import asyncio, sys
from weft.upstream.base import OutgoingRequest, UpstreamConfig
from weft.upstream.http import HttpUpstream

async def main():
    upstream = HttpUpstream(UpstreamConfig("far", "openai-chat", sys.argv[1]))
    response = await upstream.send(OutgoingRequest("/", b""))
    print((await response.read()).decode())

asyncio.run(main())
"""


def test_proxy_variables_of_the_environment_are_ignored() -> None:
    with raw_upstream((answer(b"proxy"),)) as canary, raw_upstream((answer(b"far"),)) as far:
        names = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
        done = subprocess.run(
            [sys.executable, "-c", ASKING, far.url],
            env={**os.environ, **dict.fromkeys(names, canary.url)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("far\n", "")
        assert canary.connections == 0


def test_a_redirect_is_returned_and_not_followed(run: Run) -> None:
    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(far) as upstream:
            return await outcome(upstream)

    with raw_upstream((answer(b"stolen"),)) as canary:
        for status in ("301 M", "302 F", "303 S", "307 T", "308 P"):
            moved = answer(b"moved", status, f"Location: {canary.url}/")
            with raw_upstream((moved,)) as far:
                assert run(main(far)) == (int(status[:3]), b"moved", None)
        assert canary.connections == 0


@pytest.mark.parametrize(
    "path", ["", "chat", "http://evil/", "/a\r\nX: y", "/a b", "/a#b", "/ä", "/\x7f", "/a\0"]
)
def test_an_invalid_path_is_not_sent(run: Run, path: str) -> None:
    async def main() -> None:
        async with connected_upstream(config("http://127.0.0.1:1")) as upstream:
            await upstream.send(OutgoingRequest(path, b""))

    with pytest.raises(ValueError, match="invalid path"):
        run(main())


HEADERS: list[tuple[str, str]] = [
    ("X-Team", "a\r\nX-Evil: b"),
    ("X-Team", "a\0b"),
    ("X-Team", "key\n"),
    ("X Team", "a"),
    ("", "a"),
    ("X-Team:", "a"),
    ("Content-Length", "0"),
    ("Transfer-Encoding", "chunked"),
    ("Connection", "close"),
]


@pytest.mark.parametrize(("name", "value"), HEADERS)
def test_an_invalid_header_is_refused_in_settings_and_requests(
    run: Run, name: str, value: str
) -> None:
    async def main() -> None:
        async with connected_upstream(config("http://127.0.0.1:1")) as upstream:
            await upstream.send(OutgoingRequest("/", b"", {name: value}))

    with pytest.raises(ValueError, match="cannot be sent") as refused:
        run(main())
    assert value not in str(refused.value).partition("send: ")[2] or value in name.lower()
    with pytest.raises(ValueError, match="cannot be sent"):
        HttpUpstream(config("http://127.0.0.1:1", headers={name: value}))


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="'authorization'") as refused:
        HttpUpstream(config("http://127.0.0.1:1", key=Secret(KEY + "\n")))
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "base_url",
    [
        "", "far", "/v1", "//far/v1", "ftp://far", "demo:", "http://", "http:///v1", "https://:80",
        "http://user:hidden@far", "http://user@far", "http://far?key=hidden", "http://far#hidden",
        "http://far:port", "http://[::1", "http://" + "a" * 70,
    ],
)  # fmt: skip
def test_an_invalid_base_url_is_refused_and_not_shown(base_url: str) -> None:
    with pytest.raises(ValueError, match=r'^upstream "far": base_url must be http') as refused:
        HttpUpstream(config(base_url))
    assert "hidden" not in str(refused.value)


# What comes


def test_a_response_has_its_status_and_headers_in_lower_case(run: Run) -> None:
    async def main(far: RawUpstream) -> tuple[int, Mapping[str, str]]:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            assert await response.read() == b"slow"
            assert await response.read() == b""
            return response.status, response.headers

    sent = answer(b"slow", "429 Slow", "Retry-After: 3", "X-Two: a", "x-two: b")
    with raw_upstream((sent,)) as far:
        assert run(main(far)) == (
            429,
            {"content-length": "4", "retry-after": "3", "x-two": "a, b"},
        )


def test_bytes_are_returned_as_they_arrive(run: Run) -> None:
    holds = [Hold(), Hold()]

    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            pieces = [await response.read()]
            for hold in holds:
                hold.release()
                pieces.append(await response.read())
            return pieces

    script = (HEAD + chunk(b"one"), holds[0], chunk(b"two"), holds[1], LAST)
    with raw_upstream(script) as far:
        assert run(main(far)) == [b"one", b"two", b""]


ZIPPED = gzip.compress(b"words" * 100, mtime=0)
GZIP = "Content-Encoding: gzip"
OK = b"HTTP/1.1 200 OK\r\n"
UPSTREAM: Outcome = (None, b"", "upstream")

WIRES: dict[str, tuple[Sequence[Step], Outcome]] = {
    # unusual, and whole
    "interim answers first": (
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + answer(b"x"),),
        (200, b"x", None),
    ),
    "HTTP/1.0, ended by closing": ((b"HTTP/1.0 200 OK\r\n\r\nab", FIN), (200, b"ab", None)),
    "HTTP/1.1, ended by closing": ((OK + b"\r\nab", FIN), (200, b"ab", None)),
    "no content": ((b"HTTP/1.1 204 No Content\r\n\r\n",), (204, b"", None)),
    "gzip that nobody asked for": ((answer(ZIPPED, "200 OK", GZIP),), (200, b"words" * 100, None)),
    "an unknown coding": (
        (answer(b"ab", "200 OK", "Content-Encoding: odd"),),
        (200, b"ab", None),
    ),
    "hostile cookies": (
        (answer(b"ab", "200 OK", 'Set-Cookie: ;;;=\x09=,,"', "Set-Cookie: a=b; Max-Age=9e9999"),),
        (200, b"ab", None),
    ),
    # cut inside the body
    "reset, ended by closing": ((OK + b"\r\nab", RESET), (200, b"ab", "truncated")),
    "short of its length": (
        (OK + b"Content-Length: 9\r\n\r\nab", FIN),
        (200, b"ab", "truncated"),
    ),
    "reset short of its length": (
        (OK + b"Content-Length: 9\r\n\r\nab", RESET),
        (200, b"ab", "truncated"),
    ),
    "no last chunk": ((HEAD + chunk(b"ab"), FIN), (200, b"ab", "truncated")),
    "half a chunk": ((HEAD + b"9\r\nab", FIN), (200, b"ab", "truncated")),
    "reset between chunks": ((HEAD + chunk(b"ab"), RESET), (200, b"ab", "truncated")),
    "gzip that is none": (
        (answer(b"no gzip at all", "200 OK", GZIP), SILENCE),
        (200, b"", "truncated"),
    ),
    # cut inside the head
    "nothing": ((FIN,), UPSTREAM),
    "reset": ((RESET,), UPSTREAM),
    "half a head": ((OK + b"Content-", FIN), UPSTREAM),
    "half a head, reset": ((OK + b"Content-", RESET), UPSTREAM),
    # not HTTP
    "bare line feeds": ((b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab", SILENCE), UPSTREAM),
    "another protocol": ((b"SSH-2.0-x\r\n", SILENCE), UPSTREAM),
    "a page without a head": ((b"<html>hidden</html>", SILENCE), UPSTREAM),
    "TLS": ((b"\x15\x03\x01\x00\x02\x02\x46", SILENCE), UPSTREAM),
    "HTTP/2": ((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SILENCE), UPSTREAM),
    "a switch of protocols": (
        (b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nxx", SILENCE),
        UPSTREAM,
    ),
    "a switch that names no protocol": ((b"HTTP/1.1 101 Go\r\n\r\nxx", SILENCE), UPSTREAM),
    "status 000": ((answer(b"", "000 Zero"), SILENCE), UPSTREAM),
    "status 999": ((answer(b"", "999 Denied"), SILENCE), UPSTREAM),
    "status of four digits": ((answer(b"", "2000 OK"), SILENCE), UPSTREAM),
    "length and chunks": (
        (EVENTS + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST, SILENCE),
        UPSTREAM,
    ),
    "two lengths": (
        (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", SILENCE),
        UPSTREAM,
    ),
    "a negative length": ((OK + b"Content-Length: -2\r\n\r\nab", SILENCE), UPSTREAM),
    "a zero byte in a header": ((answer(b"", "200 OK", "A: b\0c"), SILENCE), UPSTREAM),
    # too much
    "too many headers": (
        (answer(b"", "200 OK", *(f"X-{n}: 1" for n in range(MAX_HEADERS + 1))), SILENCE),
        UPSTREAM,
    ),
    "a header too long": (
        (answer(b"", "200 OK", "A: " + "b" * (MAX_HEAD + 1)), SILENCE),
        UPSTREAM,
    ),
    "headers without end": ((OK + b"A: b\r\n" * 100_000, SILENCE), UPSTREAM),
    "a status line without end": ((b"HTTP/1.1 200 " + b"O" * 1_000_000, SILENCE), UPSTREAM),
    "a chunk size without end": (
        (HEAD + b"f" * 40 + b"\r\nab", SILENCE),
        (200, b"", "truncated"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WIRES)
def test_anything_received_is_a_response_or_unreachable(run: Run, name: str) -> None:
    script, expected = WIRES[name]

    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            return await outcome(upstream)

    with raw_upstream(script) as far:
        assert run(main(far)) == expected
        assert (far.connections, len(far.requests)) == (1, 1)


@pytest.mark.parametrize("bad", [b"zz\r\nno chunk", b"2\r\nabXX", b"-1\r\n", b"f" * 40])
def test_invalid_chunks_end_a_response_after_the_bytes_before_them(run: Run, bad: bytes) -> None:
    hold = Hold()

    async def main(far: RawUpstream) -> list[str]:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            response = await upstream.send(REQUEST)
            assert await response.read() == b"one"
            hold.release()
            assert await after(response) in (b"", b"ab")
            return [await failure_of(response) for _ in range(2)]

    with raw_upstream((HEAD + chunk(b"one"), hold, bad, SILENCE)) as far:
        said = 'upstream "far": the framing of the response is invalid'
        assert run(main(far)) == [said, said]
        assert far.left().how in ("fin", "reset")


@FEW
@given(
    data=st.one_of(
        st.binary(max_size=80),
        st.tuples(st.sampled_from([OK, HEAD, EVENTS]), st.binary(max_size=60)).map(b"".join),
    ),
    end=st.sampled_from([FIN, RESET]),
)
def test_random_bytes_are_a_response_or_unreachable(data: bytes, end: Step) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            await outcome(upstream)

    with raw_upstream((data, end)) as far:
        asyncio.run(main(far))


WHOLE = HEAD + chunk(b"one") + chunk(b"two") + LAST


@pytest.mark.parametrize("end", [FIN, RESET])
def test_a_cut_at_any_byte_delivers_what_came_and_is_reported(end: Step) -> None:
    async def main(far: RawUpstream) -> list[Outcome]:
        async with connected_upstream(far) as upstream:
            return [await outcome(upstream) for _ in range(len(WHOLE))]

    with raw_upstream(*((WHOLE[:at], end) for at in range(len(WHOLE)))) as far:
        found = asyncio.run(main(far))
    for at, (status, body, kind) in enumerate(found):
        assert b"onetwo".startswith(body)
        told = "upstream" if status is None else "truncated"
        assert (at, status is None, kind) == (at, at < len(HEAD), told)


FLOOD = bytes(16 * 1024 * 1024)
FLOODS: dict[str, tuple[Step, ...]] = {
    "a length": (answer(FLOOD),),
    "a length, then closed": (answer(FLOOD), FIN),
    "chunks, then closed": (HEAD + chunk(FLOOD[:70_000]) * (len(FLOOD) // 70_000) + LAST, FIN),
    "ended by closing": (OK + b"\r\n" + FLOOD, FIN),
}


@pytest.mark.parametrize("flood", one_in(2, FLOODS))
def test_a_slow_reader_slows_the_upstream_and_gets_everything(run: Run, flood: str) -> None:
    async def main(far: RawUpstream) -> tuple[int, int]:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            longest = total = 0
            while piece := await response.read():
                longest, total = max(longest, len(piece)), total + len(piece)
                for _ in range(10):
                    await asyncio.sleep(0)
            return longest, total

    with raw_upstream(FLOODS[flood]) as far:
        longest, total = run(main(far))
    assert total == (len(FLOOD) // 70_000 * 70_000 if "chunks" in flood else len(FLOOD))
    assert longest <= MAX_CHUNK


def test_others_get_several_turns_of_the_loop_between_two_chunks_of_a_flood(run: Run) -> None:
    """A short response takes about ten turns: a chunk of the flood in each would make it wait."""

    async def main(far: RawUpstream) -> tuple[int, int]:
        turns = pieces = 0
        ended = False

        async def count_turns() -> None:
            nonlocal turns
            while not ended:
                await asyncio.sleep(0)
                turns += 1

        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            counting = asyncio.create_task(count_turns())
            while await response.read():
                pieces += 1
            ended = True
            await counting
        return turns, pieces

    with raw_upstream((answer(FLOOD[: 100 * MAX_CHUNK]),)) as far:
        turns, pieces = run(main(far))
    assert pieces >= 100
    assert turns >= (OTHERS_TURNS - 1) * pieces


def test_bytes_before_a_failure_are_read_before_it_is_raised(run: Run) -> None:
    hold, sent = Hold(), Hold()

    async def main(far: RawUpstream) -> bytes:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            hold.release()
            await listen(sent.reached.wait)
            await listen(far.left)  # the connection is gone
            for _ in range(10):
                await asyncio.sleep(0)
            return await after(response)

    with raw_upstream((HEAD, hold, chunk(b"two") + b"no chunk\r\n", sent)) as far:
        assert run(main(far)) == b"two"


def test_two_readers_of_one_response_are_a_programming_error(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            first = asyncio.ensure_future(response.read())
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="two readers"):
                await response.read()
            response.abort()
            with pytest.raises(Unreachable):
                await first

    with raw_upstream((HEAD, SILENCE)) as far:
        run(main(far))


def test_a_cancelled_read_loses_nothing(run: Run) -> None:
    hold = Hold()

    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            first = await response.read()
            for _ in range(3):
                waiting = asyncio.ensure_future(response.read())
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            hold.release()
            return [first, await response.read(), await response.read()]

    with raw_upstream((HEAD + chunk(b"one"), hold, chunk(b"two") + LAST)) as far:
        run_of = run(main(far))
    assert b"".join(run_of) == b"onetwo"


# Flowing


async def flowed(upstream: HttpUpstream, most: int) -> Outcome:
    """As `outcome`, for what is streamed, `most` pieces at a time, and what is read between."""
    status, pieces = None, list[bytes]()
    try:
        response = await upstream.send(REQUEST)
        status = response.status
        while await handed_on(response, pieces, most):
            pass
    except Unreachable as error:
        assert_discreet(error)
        return status, b"".join(pieces), error.kind
    return status, b"".join(pieces), None


def taker(taken: list[bytes]) -> Callable[[bytes], bool]:
    """Wants one piece."""

    def take(data: bytes) -> bool:
        taken.append(data)
        return False

    return take


async def handed_on(response: HttpResponse, pieces: list[bytes], most: int) -> bytes:
    """Has so many pieces handed on, or fewer, and reads one more."""
    room = len(pieces) + most

    def take(data: bytes) -> bool:
        pieces.append(data)
        return len(pieces) < room

    await response.stream_to(take)
    pieces.append(await response.read())
    return pieces[-1]


@pytest.mark.parametrize("most", [1, 1000])
@pytest.mark.parametrize("name", WIRES)
def test_stream_to_delivers_what_read_would_return(run: Run, name: str, most: int) -> None:
    script, expected = WIRES[name]

    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            return await flowed(upstream, most)

    with raw_upstream(script) as far:
        assert run(main(far)) == expected


@pytest.mark.parametrize("most", [1, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("flood", one_in(2, FLOODS))
def test_stream_to_delivers_a_flood_completely(run: Run, flood: str, most: int) -> None:
    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            return await flowed(upstream, most)

    with raw_upstream(FLOODS[flood]) as far:
        status, body, kind = run(main(far))
    total = len(FLOOD) // 70_000 * 70_000 if "chunks" in flood else len(FLOOD)
    assert (status, len(body), kind) == (200, total, None)


def test_stream_to_stops_when_told_and_read_continues_from_there(run: Run) -> None:
    holds = [Hold(), Hold(), Hold(), Hold()]

    async def main(far: RawUpstream) -> list[list[bytes]]:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            response = await upstream.send(REQUEST)
            taken: list[bytes] = []

            def take(data: bytes) -> bool:
                taken.append(data)
                holds[len(taken)].release()
                return len(taken) < 2

            holds[0].release()
            await response.stream_to(take)
            read = [await response.read()]
            holds[3].release()
            return [taken, [*read, await response.read(), await response.read()]]

    script: list[Step] = [HEAD]
    for hold, text in zip(holds, (b"1", b"2", b"3", b"4" + LAST), strict=True):
        script += hold, chunk(text[:1]) + text[1:]
    with raw_upstream(script) as far:
        assert run(main(far)) == [[b"1", b"2"], [b"3", b"4", b""]]


@pytest.mark.parametrize("rest", [LAST, b""], ids=["an end", "no end"])
def test_bytes_that_came_before_stream_to_are_left_for_read(run: Run, rest: bytes) -> None:
    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            response = await upstream.send(REQUEST)
            taken: list[bytes] = []
            await response.stream_to(taker(taken))
            return [*taken, await response.read()]

    with raw_upstream((HEAD + chunk(b"one") + rest, SILENCE)) as far:
        assert run(main(far)) == [b"one"]


def test_a_connection_is_reused_after_stream_to_reached_the_end(run: Run) -> None:
    first, second = Hold(), Hold()

    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            response = await upstream.send(REQUEST)
            taken: list[bytes] = []

            def take(data: bytes) -> bool:
                taken.append(data)
                second.release()
                return True

            first.release()
            await response.stream_to(take)
            taken.append(await response.read())
            await response.stream_to(take)  # nothing comes any more
            return [*taken, await read_all(upstream)]

    script = (HEAD, first, chunk(b"one"), second, LAST)
    with raw_upstream(script, (answer(b"two"),)) as far:
        assert run(main(far)) == [b"one", b"", b"two"]
        assert (len(far.requests), far.connections) == (2, 1)


def test_an_exception_of_the_callback_reaches_the_caller_and_reading_continues(run: Run) -> None:
    first, second = Hold(), Hold()

    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            response = await upstream.send(REQUEST)

            def take(data: bytes) -> bool:
                raise LookupError(data)

            first.release()
            with pytest.raises(LookupError, match="one"):
                await response.stream_to(take)
            second.release()
            return [await response.read(), await response.read(), await read_all(upstream)]

    script = (HEAD, first, chunk(b"one"), second, chunk(b"two") + LAST)
    with raw_upstream(script, (answer(b"three"),)) as far:
        assert run(main(far)) == [b"two", b"", b"three"]
        assert far.connections == 1


def test_a_cancelled_stream_to_loses_nothing(run: Run) -> None:
    hold = Hold()

    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            response = await upstream.send(REQUEST)
            taken = [await response.read()]
            for _ in range(3):
                waiting = asyncio.ensure_future(response.stream_to(taker(taken)))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            hold.release()
            return [*taken, await response.read(), await response.read()]

    with raw_upstream((HEAD + chunk(b"one"), hold, chunk(b"two") + LAST)) as far:
        assert run(main(far)) == [b"one", b"two", b""]


def test_abort_ends_stream_to(run: Run) -> None:
    async def main(far: RawUpstream) -> str:
        async with connected_upstream(far) as upstream, asyncio.timeout(60):
            response = await upstream.send(REQUEST)
            flowing = asyncio.ensure_future(response.stream_to(lambda data: True))
            await asyncio.sleep(0)
            response.abort()
            await flowing
            await response.stream_to(lambda data: True)
            return await failure_of(response)

    with raw_upstream((HEAD, SILENCE)) as far:
        assert run(main(far)) == 'upstream "far": the response was cancelled'


def test_other_tasks_run_between_two_chunks(run: Run) -> None:
    """However much there is to read: at most so much a turn."""

    async def main(far: RawUpstream) -> tuple[int, int]:
        turns, reads, over = 0, 0, False

        async def others() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            waiting = asyncio.ensure_future(others())
            while await response.read():
                reads += 1
            over = True
            await waiting
        return turns, reads

    with raw_upstream((answer(FLOOD[: 64 * MAX_CHUNK]),)) as far:
        turns, reads = run(main(far))
    assert reads >= 64
    assert turns >= reads - 2


@pytest.mark.parametrize("times", [1, 1000])
def test_decompressed_data_comes_in_chunks_too(run: Run, times: int) -> None:
    body = b"words " * 10_000 * times

    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            pieces = []
            while piece := await response.read():
                pieces.append(piece)
            return pieces

    with raw_upstream((answer(gzip.compress(body), "200 OK", GZIP),)) as far:
        pieces = run(main(far))
    assert max(map(len, pieces)) <= MAX_CHUNK
    assert b"".join(pieces) == body


@QUICK
@given(data=st.data(), sizes=st.lists(st.integers(1, 3 * MAX_CHUNK), min_size=1, max_size=6))
def test_pieces_and_timing_do_not_change_what_is_taken(
    data: st.DataObject, sizes: list[int]
) -> None:
    """Chunks of any size, reads that cut them anywhere, in one turn or another, inflated or not."""
    body = b"".join(bytes([65 + number]) * size for number, size in enumerate(sizes))
    zipped = data.draw(st.booleans())
    head = HEAD.replace(b"\r\n\r\n", f"\r\n{GZIP}\r\n\r\n".encode()) if zipped else HEAD
    sent = gzip.compress(body) if zipped else body
    chunks = b"".join(map(chunk, filter(None, data.draw(cuts(sent))))) + LAST
    pieces = data.draw(cuts(chunks))
    patience = data.draw(st.lists(st.integers(0, 3), min_size=len(pieces), max_size=len(pieces)))

    async def main() -> list[bytes]:
        connection = HttpConnection(lambda connection: None)
        connection.send(b"")
        connection.data_received(head)
        taken = []
        for piece, times in zip(pieces, patience, strict=True):
            if piece:
                connection.data_received(piece)
            taken += [connection.take() for _ in range(times) if connection.chunks]
        while connection.chunks:
            taken.append(connection.take())
        assert connection.state is ConnectionState.COMPLETE
        return taken

    taken = asyncio.run(main())
    assert b"".join(taken) == body
    assert max(map(len, taken)) <= MAX_CHUNK


@dataclass
class Flowing:
    """A connection that is asked, without a network: its answer has begun, and flows."""

    enough: int = 1000
    taken: list[bytes] = field(default_factory=list)
    connection: HttpConnection = field(
        default_factory=lambda: HttpConnection(lambda connection: None)
    )

    def __post_init__(self) -> None:
        self.connection.send(b"")
        self.connection.data_received(HEAD)
        self.flow = asyncio.ensure_future(self.connection.stream_to(self._take))

    def _take(self, data: bytes) -> bool:
        self.taken.append(data)
        if data == b"bad":
            raise LookupError(data)
        return len(self.taken) < self.enough

    def come(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)


def test_bytes_are_consumed_in_the_turn_that_brings_them(run: Run) -> None:
    async def main() -> None:
        flowing = Flowing()
        await asyncio.sleep(0)
        flowing.come(chunk(b"one"))
        assert flowing.taken == [b"one"]
        flowing.come(chunk(b"two") + chunk(b"three"), chunk(b"four"))
        assert flowing.taken == [b"one", b"twothree", b"four"]
        flowing.come(chunk(b"five") + LAST)  # with its end: that is for whoever reads
        await flowing.flow
        assert flowing.taken == [b"one", b"twothree", b"four"]
        assert (flowing.connection.take(), flowing.connection.state) == (
            b"five",
            ConnectionState.COMPLETE,
        )

    run(main())


def test_more_than_one_chunk_is_left_for_read(run: Run) -> None:
    async def main() -> None:
        flowing = Flowing()
        await asyncio.sleep(0)
        flowing.come(chunk(bytes(MAX_CHUNK + 1)), chunk(b"two"))
        await flowing.flow
        assert flowing.taken == [bytes(MAX_CHUNK)]
        assert flowing.connection.take() == b"\0two"

    run(main())


def test_nothing_is_consumed_after_the_callback_returned_false(run: Run) -> None:
    async def main() -> None:
        flowing = Flowing(enough=2)
        await asyncio.sleep(0)
        flowing.come(chunk(b"one"), chunk(b"two"), chunk(b"three"), chunk(b"four"))
        await flowing.flow
        flowing.come(chunk(b"five"))
        assert (flowing.taken, flowing.connection.take()) == ([b"one", b"two"], b"threefourfive")

    run(main())


def test_nothing_is_consumed_after_the_callback_raised(run: Run) -> None:
    async def main() -> None:
        flowing = Flowing()
        await asyncio.sleep(0)
        flowing.come(chunk(b"bad"), chunk(b"two"), chunk(b"bad"))
        with pytest.raises(LookupError):
            await flowing.flow
        assert (flowing.taken, flowing.connection.take()) == ([b"bad"], b"twobad")

    run(main())


def test_nothing_is_consumed_after_a_cancellation(run: Run) -> None:
    async def main() -> None:
        flowing = Flowing()
        await asyncio.sleep(0)
        flowing.come(chunk(b"one"))
        flowing.flow.cancel()
        flowing.come(chunk(b"two"), chunk(b"bad"))
        with pytest.raises(asyncio.CancelledError):
            await flowing.flow
        assert (flowing.taken, flowing.connection.take()) == ([b"one"], b"twobad")

    run(main())


def test_framing_without_data_is_not_consumed(run: Run) -> None:
    async def main() -> None:
        flowing = Flowing()
        await asyncio.sleep(0)
        flowing.come(b"3", b"\r\n", b"one", b"\r", b"\n3\r\ntw", b"o\r\n")
        assert flowing.taken == [b"one", b"tw", b"o"]
        flowing.flow.cancel()

    run(main())


# Giving up


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_abort_closes_at_once_and_ends_a_pending_read(
    run: Run, tmp_path: Path, secure: bool
) -> None:
    context, file = certified(tmp_path)

    async def main(far: RawUpstream) -> float:
        async with connected_upstream(far, tls=Tls(ca=str(file))) as upstream:
            response = await upstream.send(REQUEST)
            assert await response.read() == b"one"
            waiting = asyncio.ensure_future(response.read())
            await asyncio.sleep(0)
            moment = time.monotonic()
            response.abort()
            response.abort()
            with pytest.raises(Unreachable, match="the response was cancelled"):
                await waiting
            assert await failure_of(response) == 'upstream "far": the response was cancelled'
            await listen(far.left)
            return moment

    with raw_upstream((HEAD + chunk(b"one"), SILENCE), tls=context if secure else None) as far:
        moment = run(main(far))
        assert far.left().moment - moment < AT_ONCE


def test_abort_drops_unread_bytes(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            response.abort()
            with pytest.raises(Unreachable):
                await response.read()

    with raw_upstream((answer(b"whole"),)) as far:
        run(main(far))


def test_abort_after_the_end_does_nothing_and_the_connection_is_reused(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            while await response.read():
                pass
            second = await upstream.send(REQUEST)
            response.abort()
            assert await response.read() == b""
            assert await second.read() == b"whole"
            assert await second.read() == b""

    with raw_upstream((answer(b"whole"),)) as far:
        run(main(far))
        assert (len(far.requests), far.connections) == (2, 1)


def test_abort_of_a_complete_response_affects_no_other(run: Run) -> None:
    async def main(far: RawUpstream) -> bytes:
        async with connected_upstream(far) as upstream:
            unread = await upstream.send(REQUEST)  # its connection is free again: all of it came
            other = await upstream.send(REQUEST)
            unread.abort()
            return await other.read() + await other.read()

    with raw_upstream((answer(b"first"),), (answer(b"second"),)) as far:
        assert run(main(far)) == b"second"


async def abandoned(upstream: HttpUpstream, come: Callable[[], object]) -> float:
    """Asks, and cancels that once this has come; returns the moment."""
    asking = asyncio.ensure_future(upstream.send(OutgoingRequest("/", bytes(8_000_000))))
    await listen(come)
    moment = time.monotonic()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    return moment


@pytest.mark.parametrize("script", [Script((SILENCE,)), Script((OK + b"A: b\r\n", SILENCE))])
def test_cancelling_a_request_closes_its_connection_at_once(run: Run, script: Script) -> None:
    async def main(far: RawUpstream) -> float:
        async with connected_upstream(far) as upstream:
            moment = await abandoned(upstream, far.got)
            await listen(far.left)
            return moment

    with raw_upstream(script) as far:
        moment = run(main(far))
        assert far.left().moment - moment < AT_ONCE


@pytest.mark.parametrize("steps", [(SILENCE,), (HEAD, SILENCE)], ids=["no head", "a head"])
def test_a_cancelled_request_keeps_no_unsent_data(run: Run, steps: tuple[Step, ...]) -> None:
    async def given_up(upstream: HttpUpstream, far: RawUpstream, round: int) -> int:
        if HEAD in steps:
            (await upstream.send(OutgoingRequest("/", bytes(8_000_000)))).abort()
        else:
            await abandoned(upstream, lambda: far.got(round))
        for _ in range(10):
            await asyncio.sleep(0)
        return len(list(Path("/proc/self/fd").iterdir()))

    async def main(far: RawUpstream) -> int:
        async with connected_upstream(far) as upstream:
            await listen(lambda: None)
            before = await given_up(upstream, far, 1)
            return await given_up(upstream, far, 2) - before

    with raw_upstream(Script(steps, reads="head")) as far:
        assert run(main(far)) <= 1  # the server's own end


def test_cancelling_a_handshake_closes_its_connection_at_once(run: Run, tmp_path: Path) -> None:
    async def main(far: RawUpstream) -> float:
        async with connected_upstream(far) as upstream:
            moment = await abandoned(upstream, far.accepted)
            await listen(far.left)
            return moment

    with raw_upstream(greeting=(SILENCE,), tls=certified(tmp_path)[0]) as far:
        moment = run(main(far))
        assert far.left().moment - moment < AT_ONCE


def test_closing_the_upstream_aborts_open_responses(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far) as upstream:
            response = await upstream.send(REQUEST)
            waiting = asyncio.ensure_future(response.read())
            asking = asyncio.ensure_future(upstream.send(REQUEST))
            await listen(lambda: far.got(2))
            await upstream.close()
            for task in (waiting, asking):
                with pytest.raises(Unreachable):
                    await task
            with pytest.raises(Unreachable, match=r'^upstream "far": closed$'):
                await upstream.send(REQUEST)

    with raw_upstream((HEAD, SILENCE), (SILENCE,)) as far:
        run(main(far))
        assert {far.left(0).how, far.left(1).how} <= {"fin", "reset"}


def test_closing_twice_or_unused_does_nothing(run: Run) -> None:
    async def main() -> None:
        async with connected_upstream(config("http://127.0.0.1:1")) as upstream:
            await upstream.close()
            assert upstream.config.name == "far"

    run(main())


# Connections


def test_connections_are_reused_after_a_response_ended(run: Run) -> None:
    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream:
            return [await read_all(upstream) for _ in range(3)]

    with raw_upstream((WHOLE,), (answer(b"x"),)) as far:
        assert run(main(far)) == [b"onetwo", b"x", b"x"]
        assert far.connections == 1


def test_a_request_on_a_connection_closed_while_idle_is_sent_again_on_a_new_one(run: Run) -> None:
    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream:
            return [await read_all(upstream), await read_all(upstream)]

    for end in (FIN, RESET):
        with raw_upstream((answer(b"one"),), (end,), (answer(b"two"),)) as far:
            assert run(main(far)) == [b"one", b"two"]
            assert [request.connection for request in far.requests] == [0, 0, 1]
            assert len({request.body for request in far.requests}) == 1


def test_after_a_stale_connection_no_other_pooled_one_is_tried(run: Run) -> None:
    hold = Hold()

    async def main(far: RawUpstream) -> bytes:
        async with connected_upstream(far) as upstream:
            both = [await upstream.send(REQUEST) for _ in range(2)]
            hold.release()
            for response in both:
                assert await response.read() == b""
            return await read_all(upstream)

    busy = (HEAD, hold, LAST)
    with raw_upstream(busy, busy, (FIN,), (answer(b"four"),)) as far:
        assert run(main(far)) == b"four"
        assert [request.connection for request in far.requests] in ([0, 1, 0, 2], [0, 1, 1, 2])


def test_a_request_is_sent_again_once_and_only_if_no_byte_came(run: Run) -> None:
    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(far) as upstream:
            await read_all(upstream)
            return await outcome(upstream)

    with raw_upstream((answer(b"one"),), (FIN,), (FIN,), (answer(b"three"),)) as far:
        assert run(main(far)) == UPSTREAM
        assert len(far.requests) == 3
    with raw_upstream((answer(b"one"),), (OK, FIN), (answer(b"three"),)) as far:
        assert run(main(far)) == UPSTREAM
        assert len(far.requests) == 2


@pytest.mark.parametrize(("late", "stale"), [(0.0, True), (STALE_TIMEOUT, False), (60.0, False)])
def test_a_late_failure_is_not_sent_again(run: Run, late: float, stale: bool) -> None:
    async def main() -> list[bool]:
        connections = []
        for failure in (ConnectionFailure("closed"), ConnectionResetError(104, "reset")):
            connection = HttpConnection(lambda connection: None)
            connection.failure = failure
            connections.append(connection)
        return [was_closed_while_idle(connection, late) for connection in connections]

    assert run(main()) == [stale, stale]


LEAK = answer(b"meant for somebody else")


@pytest.mark.parametrize("later", [False, True], ids=["with the answer", "while idle"])
def test_bytes_after_a_response_are_never_the_response_to_another_request(
    run: Run, later: bool
) -> None:
    idle, sent = Hold(), Hold()

    async def main(far: RawUpstream) -> list[bytes]:
        async with connected_upstream(far) as upstream:
            first = await read_all(upstream)
            idle.release()
            if later:
                await listen(sent.reached.wait)
            return [first, await read_all(upstream)]

    script = (answer(b"one"), idle, LEAK, sent) if later else (answer(b"one") + LEAK,)
    with raw_upstream(script, (answer(b"two"),)) as far:
        assert run(main(far)) == [b"one", b"two"]
        assert [request.connection for request in far.requests] == [0, 1]


def test_an_upstream_that_sends_before_the_request_is_unreachable(run: Run) -> None:
    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(far) as upstream:
            return await outcome(upstream)

    with raw_upstream((SILENCE,), greeting=(b"220 mail ready\r\n",)) as far:
        assert run(main(far)) == UPSTREAM


# Not reached


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # one address, or two
def test_a_refused_connection_is_unreachable(run: Run, host: str) -> None:
    async def main(where: UpstreamConfig) -> None:
        async with connected_upstream(where) as upstream:
            await upstream.send(REQUEST)

    refused = 'cannot connect to upstream "far": connection refused'
    with socket.socket() as bound:  # nobody listens there, and nobody else can
        bound.bind(("127.0.0.1", 0))
        where = config(f"http://{host}:{bound.getsockname()[1]}/hidden")
        with pytest.raises(ConnectError, match=f"^{refused}$"):
            run(main(where))


def test_an_unknown_host_name_is_unreachable(run: Run) -> None:
    async def main(where: UpstreamConfig) -> None:
        async with connected_upstream(where) as upstream:
            await upstream.send(REQUEST)

    name = ".".join(["a" * 63] * 5)  # longer than a name may be: no resolver is asked
    unknown = 'cannot connect to upstream "far": host name not found'
    with pytest.raises(ConnectError, match=f"^{unknown}$"):
        run(main(config(f"http://{name}/hidden")))


CLOCKS: list[tuple[Timeouts, Sequence[Step], bool, str]] = [
    (
        Timeouts(connect=0.05),
        (SILENCE,),
        True,
        'cannot connect to upstream "far": no connection within 0.05 s',
    ),
    (Timeouts(first_byte=0.05), (), False, 'upstream "far": no response within 0.05 s'),
]


@pytest.mark.parametrize(("timeouts", "greeting", "secure", "said"), CLOCKS)
def test_an_expired_limit_is_a_timeout(
    run: Run, tmp_path: Path, timeouts: Timeouts, greeting: Sequence[Step], secure: bool, said: str
) -> None:
    async def main(far: RawUpstream) -> tuple[str, ErrorKind]:
        async with connected_upstream(far, timeouts=timeouts) as upstream:
            begun = time.monotonic()
            with pytest.raises(Unreachable) as told:
                await upstream.send(REQUEST)
            assert 0.04 < time.monotonic() - begun < AT_ONCE
            await listen(far.left)
            return str(told.value), told.value.kind

    context = certified(tmp_path)[0] if secure else None
    with raw_upstream((SILENCE,), greeting=greeting, tls=context) as far:
        assert run(main(far)) == (said, "timeout")


def test_the_connect_timeout_does_not_limit_the_response(run: Run) -> None:
    hold = Hold()

    async def main(far: RawUpstream) -> bytes:
        limits = Timeouts(connect=0.2, first_byte=5.0)
        async with connected_upstream(far, timeouts=limits) as upstream:
            asyncio.get_running_loop().call_later(0.4, hold.release)
            return await read_all(upstream)

    with raw_upstream((hold, answer(b"late"))) as far:
        assert run(main(far)) == b"late"


def test_interim_responses_do_not_reset_the_timeout(run: Run) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n" * 3

    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(far, timeouts=Timeouts(first_byte=0.05)) as upstream:
            return await outcome(upstream)

    with raw_upstream((interim, SILENCE)) as far:
        assert run(main(far)) == (None, b"", "timeout")


def test_reading_the_body_has_no_timeout_here(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        # The head must be in time: our server has to get its turn before.
        limits = Timeouts(connect=0.4, first_byte=0.4, between_events=0.05)
        async with connected_upstream(far, timeouts=limits) as upstream:
            response = await upstream.send(REQUEST)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.45):
                    await response.read()
            response.abort()

    with raw_upstream((HEAD, SILENCE)) as far:
        run(main(far))


# TLS


def test_a_certificate_must_be_trusted_unless_verify_is_off(run: Run, tmp_path: Path) -> None:
    context, file = certified(tmp_path)

    async def main(far: RawUpstream, tls: Tls) -> str:
        async with connected_upstream(far, tls=tls) as upstream:
            try:
                return (await read_all(upstream)).decode()
            except Unreachable as error:
                assert_discreet(error)
                return str(error)

    with raw_upstream((answer(b"yes"),), tls=context) as far:
        assert run(main(far, Tls(ca=str(file)))) == "yes"
        assert run(main(far, Tls(verify=False))) == "yes"
        said = "certificate not trusted: self-signed certificate"
        assert run(main(far, Tls())) == f'cannot connect to upstream "far": {said}'
        assert len(far.requests) == 2


def test_the_client_certificate_is_sent(run: Run, tmp_path: Path) -> None:
    context, file = certified(tmp_path)
    context.verify_mode = CERT_REQUIRED
    context.load_verify_locations(file)

    async def main(far: RawUpstream, certificate: str | None) -> Outcome:
        tls = Tls(ca=str(file), certificate=certificate)
        async with connected_upstream(far, tls=tls) as upstream:
            return await outcome(upstream)

    with raw_upstream((answer(b"yes"),), tls=context) as far:
        assert run(main(far, str(file))) == (200, b"yes", None)
        assert run(main(far, None)) == UPSTREAM
        assert len(far.requests) == 1


def test_an_upstream_without_tls_is_unreachable(run: Run) -> None:
    async def main(far: RawUpstream) -> Outcome:
        async with connected_upstream(config(f"https://127.0.0.1:{far.port}/hidden")) as upstream:
            return await outcome(upstream)

    with raw_upstream((FIN,), greeting=(b"HTTP/1.1 400 Bad Request\r\n\r\n", FIN)) as far:
        assert run(main(far)) == UPSTREAM


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_an_unreadable_certificate_file_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "a.pem"
    if content is not None:
        file.write_text(content)
    for tls in (Tls(ca=str(file)), Tls(certificate=str(file))):
        with pytest.raises(ValueError, match=r'^upstream "far": tls: cannot read .*a\.pem: '):
            HttpUpstream(config("https://far", tls=tls))


# So many at a time


def test_waiting_requests_are_served_in_order(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far, concurrency=1) as upstream:
            asked = [OutgoingRequest(f"/{number}", b"") for number in range(10)]
            await asyncio.gather(*(read_all(upstream, one) for one in asked))

    with raw_upstream((answer(b"x"),)) as far:
        run(main(far))
        assert [request.path for request in far.requests] == [f"/hidden/{n}" for n in range(10)]
        assert far.connections == 1


def test_the_number_of_concurrent_requests_is_limited(run: Run) -> None:
    hold = Hold()

    async def main(far: RawUpstream) -> int:
        async with connected_upstream(far, concurrency=3) as upstream:
            reading = [asyncio.ensure_future(read_all(upstream)) for _ in range(9)]
            await listen(lambda: far.got(3))
            for _ in range(100):
                await asyncio.sleep(0)
            under_way = len(far.requests)
            hold.release()
            assert await asyncio.gather(*reading) == [b"one"] * 9
            return under_way

    with raw_upstream((HEAD + chunk(b"one"), hold, LAST)) as far:
        assert run(main(far)) == 3
        assert far.connections == 3


def test_a_request_that_waits_too_long_for_a_slot_is_busy(run: Run) -> None:
    async def main(far: RawUpstream) -> None:
        async with connected_upstream(
            far, concurrency=2, timeouts=Timeouts(connect=0.3)
        ) as upstream:
            taken = [await upstream.send(REQUEST) for _ in range(2)]
            with pytest.raises(Busy) as told:
                await upstream.send(REQUEST)
            assert (str(told.value), told.value.kind) == (
                'upstream "far": all 2 requests allowed at a time are under way',
                "timeout",
            )
            for response in taken:
                response.abort()
            (await upstream.send(REQUEST)).abort()

    with raw_upstream((HEAD, SILENCE)) as far:
        run(main(far))
        assert len(far.requests) == 3


Way = Callable[[HttpUpstream, RawUpstream], Coroutine[object, object, None]]


async def ended(upstream: HttpUpstream, far: RawUpstream) -> None:
    await read_all(upstream)


async def aborted(upstream: HttpUpstream, far: RawUpstream) -> None:
    response = await upstream.send(REQUEST)
    response.abort()
    response.abort()


async def failed(upstream: HttpUpstream, far: RawUpstream) -> None:
    with pytest.raises(Unreachable):
        await read_all(upstream)


async def cancelled(upstream: HttpUpstream, far: RawUpstream) -> None:
    come = len(far.requests) + 1
    await abandoned(upstream, lambda: far.got(come))


async def cancelled_waiting(upstream: HttpUpstream, far: RawUpstream) -> None:
    response = await upstream.send(REQUEST)
    await abandoned(upstream, lambda: None)
    response.abort()


WAYS: dict[str, tuple[Sequence[Step], Way]] = {
    "the end": ((WHOLE,), ended),
    "abort": ((HEAD, SILENCE), aborted),
    "a cut": ((HEAD, FIN), failed),
    "no head": ((FIN,), failed),
    "no HTTP": ((b"what\r\n", SILENCE), failed),
    "cancelling": ((SILENCE,), cancelled),
    "cancelling while waiting for a slot": ((HEAD, SILENCE), cancelled_waiting),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_slot_is_released_exactly_once_after(run: Run, way: str) -> None:
    script, use = WAYS[way]

    async def main(far: RawUpstream) -> None:
        async with connected_upstream(far, concurrency=1) as upstream:
            for _ in range(3):
                await use(upstream, far)
            response = await upstream.send(REQUEST)
            with pytest.raises(TimeoutError):  # there is one slot, and not more
                async with asyncio.timeout(0.05):
                    await upstream.send(REQUEST)
            response.abort()

    with raw_upstream(*[script] * 3, (HEAD, SILENCE)) as far:
        run(main(far))
        assert len(far.requests) == 4


# What is left of closed connections


async def any_way(upstream: HttpUpstream, far: RawUpstream) -> None:
    await outcome(upstream)


LEFT_BY: dict[str, tuple[Sequence[Step], Way]] = {
    **{f"answers: {name}": (script, any_way) for name, (script, _) in WIRES.items()},
    **{f"ends by {name}": way for name, way in WAYS.items()},
}


@pytest.mark.parametrize("name", LEFT_BY)
def test_a_closed_connection_is_freed_without_the_garbage_collector(run: Run, name: str) -> None:
    script, use = LEFT_BY[name]
    kinds = (HttpConnection, HttpResponse, httptools.HttpResponseParser)

    async def main(far: RawUpstream) -> None:
        for _ in range(3):
            async with connected_upstream(far, concurrency=1) as upstream:
                await use(upstream, far)

    async def nothing_left() -> None:
        async with asyncio.timeout(60):
            while alive(*kinds):
                await asyncio.sleep(0.01)

    with raw_upstream(script) as far, counting_only():
        run(main(far))
        run(nothing_left())
