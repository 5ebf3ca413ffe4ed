"""Work outside the event loop: in which thread it runs, and what a cancelled caller gets."""

import asyncio
import threading
from dataclasses import replace
from itertools import product
from typing import NoReturn

import pytest

from tests.faults.wires import CHAT, DIALECTS, SPEECHES, event
from tests.played import BODY, Play, Played
from tests.test_relay_run import QUICK, World, incoming_request, upstream_config, within
from weft import assemble, decode, decode_all
from weft.dialects import DialectName
from weft.partial_json import escape
from weft.relay.offload import FEW, HUGE, SMALL, for_body, is_small, offload, offload_inspection
from weft.relay.response_reader import LARGE
from weft.upstream.connection import MAX_CHUNK


def test_all_work_runs_in_one_thread() -> None:
    async def main() -> set[int]:
        return set(await asyncio.gather(*(offload(threading.get_ident) for _ in range(20))))

    (thread,) = asyncio.run(main())
    assert thread != threading.get_ident()


def test_errors_of_the_work_are_raised() -> None:
    def fail() -> NoReturn:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        asyncio.run(offload(fail))


def test_a_cancelled_caller_waits_for_work_that_has_begun() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        done.set()

    async def main() -> bool:
        task = asyncio.ensure_future(offload(work))
        while not begun.is_set():
            await asyncio.sleep(0)
        for _ in range(3):  # however often
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return done.is_set()

    assert asyncio.run(main())


def test_work_of_a_cancelled_caller_that_was_not_begun_is_dropped() -> None:
    go_on, done = threading.Event(), threading.Event()

    async def main() -> None:
        first = asyncio.ensure_future(offload(go_on.wait, 10))
        second = asyncio.ensure_future(offload(done.set))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        go_on.set()
        assert await first
        await offload(int)  # what comes later finds that it was left out

    asyncio.run(main())
    assert not done.is_set()


@pytest.mark.parametrize(
    ("body", "small"),
    [
        (b"x" * SMALL, True),
        (b"x" * (SMALL + 1), False),
        (b"{" * FEW, True),
        (b"{" * (FEW + 1), False),
    ],
)
def test_a_small_body_is_parsed_on_the_event_loop(body: bytes, small: bool) -> None:
    assert is_small(body) == small
    thread = asyncio.run(for_body(body, threading.get_ident))
    assert (thread == threading.get_ident()) == small


def test_large_work_does_not_wait_for_huge_work() -> None:
    go_on = threading.Event()

    async def main() -> None:
        huge = asyncio.ensure_future(for_body(b"x" * (HUGE + 1), go_on.wait, 10))
        assert await for_body(b"x" * HUGE, threading.get_ident) != threading.get_ident()
        assert not huge.done()
        go_on.set()
        assert await huge

    asyncio.run(main())


def test_no_request_waits_for_an_inspection() -> None:
    go_on = threading.Event()

    async def main() -> None:
        inspection = asyncio.ensure_future(offload_inspection(go_on.wait, 10))
        for size in (SMALL + 1, HUGE + 1):
            assert await for_body(b"x" * size, threading.get_ident) != threading.get_ident()
        assert not inspection.done()
        go_on.set()
        assert await inspection

    asyncio.run(main())


# Answers

PAIRS = list(product(DIALECTS, DIALECTS))

TEXT = 'said "so",\n and é ' * (LARGE // 9)


def long_stream(dialect: str) -> bytes:
    """A text in two frames, each of them large, in an answer of this dialect."""
    text = escape(TEXT).encode()
    stream = b"".join(SPEECHES[dialect].frames).replace(b"Warp and weft.", text * 2)
    return stream.replace(b"Warp ", text).replace(b"and weft.", text)


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_large_events_are_rendered_like_small_ones(client: DialectName, upstream: str) -> None:
    stream = long_stream(upstream)
    pieces = [stream[at : at + MAX_CHUNK] for at in range(0, len(stream), MAX_CHUNK)]
    world = World([Played(upstream_config(dialect=upstream), Play(pieces))])
    told = within(lambda: world.stream(incoming_request(client)), 60)
    response = assemble(decode([told], client))
    assert (response.text, response.finish_reason) == (TEXT * 2, "stop")
    (record,) = world.records
    assert (record.error, record.findings) == (None, ())


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_a_large_body_is_rendered_like_a_small_one(client: DialectName, upstream: str) -> None:
    body = SPEECHES[upstream].body.replace(b"Warp and weft.", escape(TEXT).encode())
    pieces = [body[at : at + MAX_CHUNK] for at in range(0, len(body), MAX_CHUNK)]
    world = World([Played(upstream_config(dialect=upstream), Play(pieces, headers=BODY))])
    status, told = within(lambda: world.body(incoming_request(client, stream=False)), 60)
    (found,) = decode_all(told, client)
    assert (status, found.response.text) == (200, TEXT)


def test_an_event_over_the_limit_ends_the_response_and_its_connection() -> None:
    head = b'data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
    line = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 9_000_000
    pieces = [line[at : at + 99_999] for at in range(0, len(line), 99_999)]
    upstream = Played(upstream_config(), Play([head, *pieces, b'"}}]}\n\n']))
    limits = replace(QUICK, response=5_000_000)
    told = within(lambda: World([upstream], limits).stream(incoming_request()), 60)
    response = assemble(decode([told], CHAT))
    assert response.error is not None
    assert (response.text, response.error.kind) == ("hello", "upstream")
    assert [answer.aborted for answer in upstream.answers] == [True]


def test_an_endless_response_is_cut_at_the_limit() -> None:
    piece = event({"choices": [{"index": 0, "delta": {"content": "x" * 100}}]}) * 100
    upstream = Played(upstream_config(), Play([piece] * 50))
    world = World([upstream])
    told = within(lambda: world.stream(incoming_request("openai-responses")), 60)
    response = assemble(decode([told], "openai-responses"))
    assert response.error is not None
    assert response.text == "x" * 500_000
