"""Requests of all clients together take no more memory than they may, and give it back."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.faults.test_bad_requests import chunked, padded
from tests.faults.upstream import STREAM, Hold, Step, Upstream, answer, chunk
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    RESPONSES,
    SPEECHES,
    body_of,
    error_seen,
    path_of,
    posted,
)
from tests.faults.world import World, places, until, world
from tests.raw_http import Client
from weft.gateway.memory import (
    ASCII_FACTOR,
    UNICODE_FACTOR,
    MemoryBudget,
    is_ascii_json,
    message_cost,
)

clients = pytest.mark.parametrize("client", DIALECTS)
codings = pytest.mark.parametrize("coding", ["length", "chunked"])
SIZE = 100_000
"""What bodies may take, all together."""


@pytest.fixture(scope="module")
def narrow(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = f"[server.limits]\nmemory = {SIZE}\n"
    with world(limits + places(faulty.url), tmp_path_factory.mktemp("narrow"), faulty) as made:
        yield made


def sent(coding: str, path: str, body: bytes) -> bytes:
    return chunked(path, body) if coding == "chunked" else posted(path, body)


def held(narrow: World, size: int) -> tuple[Client, Hold]:
    """A request of this size, in the middle of its answer."""
    said, hold = SPEECHES[CHAT], Hold()
    model = narrow.upstream.script([STREAM, *map(chunk, said.head), hold, *map(chunk, said.end)])
    connection = narrow.client()
    body = padded(CHAT, f"{CHAT}/{model}", size)
    connection.send(posted(path_of(CHAT, "", True), body))
    hold.here()
    return connection, hold


def status(narrow: World, client: str, coding: str, body: Callable[[str], bytes]) -> int:
    """How a request is answered while others are; an error has the shape of its dialect."""
    model = f"{client}/{narrow.upstream.script([answer(SPEECHES[client].body)])}"
    with narrow.client() as connection:
        connection.send(sent(coding, path_of(client, model, False), body(model)))
        found = connection.answer()
    if found.status != 200:
        assert error_seen(client, found.body).message
    if found.status == 503:
        assert found.headers["retry-after"] == "1"
    return found.status


@clients
@codings
def test_a_body_that_fits_is_read_and_one_over_that_is_told_to_come_again(
    narrow: World, client: str, coding: str
) -> None:
    taken = 10_000
    fits = SIZE // ASCII_FACTOR - taken
    until(lambda: narrow.open == 0, "earlier ones to be over")
    connection, hold = held(narrow, taken)
    assert status(narrow, client, coding, lambda model: padded(client, model, fits)) == 200
    assert status(narrow, client, coding, lambda model: padded(client, model, fits + 1)) == 503
    hold.release()
    connection.close()
    until(lambda: narrow.open == 0, "the first to be over")
    assert status(narrow, client, coding, lambda model: padded(client, model, fits + 1)) == 200


@clients
@codings
def test_a_body_that_never_fits_is_too_large(narrow: World, client: str, coding: str) -> None:
    fits = SIZE // ASCII_FACTOR
    assert status(narrow, client, coding, lambda model: padded(client, model, fits)) == 200
    assert status(narrow, client, coding, lambda model: padded(client, model, fits + 1)) == 413


@clients
@codings
@pytest.mark.parametrize("spelled", ["é".encode(), rb"\u00e9"], ids=["as it is", "escaped"])
def test_text_that_is_not_ascii_counts_more(
    narrow: World, client: str, coding: str, spelled: bytes
) -> None:
    fits = SIZE // UNICODE_FACTOR

    def body(model: str, size: int) -> bytes:
        made = body_of(client, model, False).replace(b'"hi"', b'"' + spelled + b'"')
        return made + b" " * (size - len(made))

    assert status(narrow, client, coding, lambda model: body(model, fits)) == 200
    assert status(narrow, client, coding, lambda model: body(model, fits + 1)) == 413


def test_what_runs_in_the_background_takes_memory_until_it_is_over(narrow: World) -> None:
    said, hold = SPEECHES[CHAT], Hold()
    model = f"{CHAT}/{narrow.upstream.script((hold, answer(said.body)))}"
    size = SIZE // ASCII_FACTOR
    more = {"background": True, "store": True}
    made = body_of(RESPONSES, model, False, **more)
    with narrow.client() as connection:
        connection.send(posted("/v1/responses", made + b" " * (size // 2 + 1 - len(made))))
        assert connection.answer().status == 200
    hold.here()
    assert status(narrow, CHAT, "length", lambda model: padded(CHAT, model, size // 2)) == 503
    hold.release()
    until(lambda: narrow.open == 0, "it to be over")
    assert status(narrow, CHAT, "length", lambda model: padded(CHAT, model, size)) == 200


@codings
def test_a_client_that_leaves_inside_its_body_gives_its_memory_back(
    narrow: World, coding: str
) -> None:
    body = padded(CHAT, f"{CHAT}/m", SIZE // ASCII_FACTOR)
    whole = sent(coding, path_of(CHAT, "", False), body)
    for _ in range(5):
        with narrow.client() as connection:
            connection.send(whole[:-500])
    until(
        lambda: status(narrow, CHAT, coding, lambda model: padded(CHAT, model, len(body))) == 200,
        "the memory to be free",
    )


# WebSockets


def dialled(made: World) -> Connection:
    address = made.gateway.url.replace("http", "ws", 1) + "/v1/responses"
    return connect(address, proxy=None, max_size=None)


def create(model: str, size: int) -> str:
    asked = {"type": "response.create", "model": model, "input": "hi", "store": False}
    return json.dumps(asked).ljust(size)


def test_messages_count_from_their_first_byte_until_they_are_answered(narrow: World) -> None:
    said, hold = SPEECHES[CHAT], Hold()
    first = narrow.upstream.script([STREAM, *map(chunk, said.head), hold, *map(chunk, said.end)])
    until(lambda: narrow.open == 0, "earlier ones to be over")
    with dialled(narrow) as socket:
        socket.send(create(f"{CHAT}/{first}", SIZE // ASCII_FACTOR // 2))
        hold.here()
        with dialled(narrow) as other:
            other.send(create(f"{CHAT}/m", SIZE // ASCII_FACTOR // 2 + 1))
            with pytest.raises(ConnectionClosed) as caught:
                other.recv(60)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1013
        size = SIZE // ASCII_FACTOR // 2 - 1000
        assert status(narrow, CHAT, "length", lambda model: padded(CHAT, model, size)) == 200
        hold.release()
        until(lambda: narrow.open == 0, "the first to be over")
        socket.send(create(f"{CHAT}/{first}", SIZE // ASCII_FACTOR - 100))
        while '"response.completed"' not in str(socket.recv(60)):
            pass
    until(
        lambda: (
            status(narrow, CHAT, "length", lambda m: padded(CHAT, m, SIZE // ASCII_FACTOR)) == 200
        ),
        "the memory to be free",
    )


def finished(socket: Connection) -> str:
    """Reads to the end of a turn; returns the id of the response, or the code of the error."""
    while True:
        told = json.loads(socket.recv(60))
        if told["type"] in ("response.completed", "error"):
            return str(told["response"]["id"] if "response" in told else told["error"]["code"])


def test_what_a_socket_remembers_counts_and_is_forgotten_where_there_is_no_room(
    narrow: World,
) -> None:
    """A response that was remembered can be gone on from."""
    until(lambda: narrow.open == 0, "earlier ones to be over")
    model = f"{CHAT}/{narrow.upstream.script([answer(SPEECHES[CHAT].body)])}"
    size = SIZE // ASCII_FACTOR // 4
    with dialled(narrow) as socket:
        asked = json.loads(create(model, 0)) | {"input": "x" * size}
        socket.send(json.dumps(asked))
        first = finished(socket)
        fits = SIZE // ASCII_FACTOR - size // ASCII_FACTOR - 200
        assert status(narrow, CHAT, "length", lambda m: padded(CHAT, m, fits)) == 200
        assert status(narrow, CHAT, "length", lambda m: padded(CHAT, m, fits + 200)) == 503
        more = json.loads(create(model, 0)) | {"previous_response_id": first}
        socket.send(json.dumps(more))
        assert finished(socket).startswith("resp_")
    until(lambda: narrow.open == 0, "the socket to be closed")
    all_but_this = (
        SIZE // ASCII_FACTOR - len(json.dumps(asked)) - 20
    )  # the head of a frame counts, too
    with dialled(narrow) as socket, held(narrow, all_but_this)[0]:
        socket.send(json.dumps(asked))
        first = finished(socket)
        socket.send(json.dumps(more | {"previous_response_id": first}))
        assert finished(socket) == "previous_response_not_found"


# The process


def peak(made: World) -> int:
    """The most bytes that the process ever had in memory."""
    text = Path(f"/proc/{made.gateway.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


ALLOWANCE = 96 * 1024 * 1024
"""What the process may take beside: buffers of connections, pieces that are being copied."""


def crowd(made: World, bodies: int, sockets: int, size: int) -> tuple[list[int], int]:
    """So many bodies and WebSockets with a queue at once; returns the statuses, and how much the
    process grew."""
    before = peak(made)
    said = SPEECHES[CHAT]
    hold = Hold()
    begun: list[Step] = [STREAM, *map(chunk, said.head + said.content), hold]
    model = f"{CHAT}/{made.upstream.script(begun)}"
    answered: list[int] = []
    message = {"role": "user", "content": "x" * size}
    body = posted(path_of(CHAT, model, True), body_of(CHAT, model, True, messages=[message]))
    frame = create(model, size)

    def post() -> None:
        with made.client() as connection:
            connection.socket.settimeout(120)
            with suppress(OSError):  # who was refused need not write all of it
                connection.send(body)
            answered.append(connection.head()[0])
            over.wait(120)

    def queue() -> None:
        with ExitStack() as stack:
            socket = stack.enter_context(dialled(made))
            stack.callback(over.wait, 120)
            stack.enter_context(pytest.raises(ConnectionClosed))
            for _ in range(3):
                socket.send(frame)
            while True:  # the first of them may be answered for a while
                socket.recv(60)

    over = threading.Event()
    works = [*[post] * bodies, *[queue] * sockets]
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    until(lambda: len(answered) == bodies, "all to be answered", 120)
    grown = peak(made) - before
    over.set()
    for thread in threads:
        thread.join(120)
    return answered, grown


@pytest.mark.parametrize(
    ("bodies", "sockets", "size", "limit"),
    [
        (10, 5, 4_000_000, 64 * 1024 * 1024),
        pytest.param(40, 20, 31_000_000, 512 * 1024 * 1024, marks=pytest.mark.long),
    ],
)
def test_many_large_bodies_at_once_stay_below_the_limit(
    faulty: Upstream, tmp_path: Path, bodies: int, sockets: int, size: int, limit: int
) -> None:
    settings = f"[server.limits]\nmemory = {limit}\n" + places(faulty.url)
    with world(settings, tmp_path, faulty) as made:
        made.ask(CHAT, f"{CHAT}/m", False)  # what a first request costs is no body
        answered, grown = crowd(made, bodies, sockets, size)
        assert set(answered) <= {200, 503}
        assert 503 in answered
        assert grown < limit + ALLOWANCE
        model = f"{CHAT}/{faulty.script([answer(SPEECHES[CHAT].body)])}"
        until(lambda: made.ask(CHAT, model, False).status == 200, "room for another")


# Counting


def test_a_reservation_lasts_until_its_last_holder_released_it() -> None:
    memory = MemoryBudget(10)
    one, two = memory.reservation(), memory.reservation()
    assert one.resize(10)
    assert not two.resize(1)
    one.holders += 1
    assert not one.release()
    assert memory.used == 10
    assert one.release()
    assert (memory.used, two.resize(10), two.resize(11), two.size) == (0, True, False, 10)


@pytest.mark.parametrize(
    ("piece", "plain"),
    [(b'{"a": "b\\n"}', True), ("é".encode(), False), (rb"\u0041", False), (b"a\\", False)],
)
def test_what_may_be_wide_once_it_is_read_is_not_plain(piece: bytes, plain: bool) -> None:
    assert is_ascii_json(piece) is plain


def test_a_message_weighs_by_its_characters() -> None:
    assert (message_cost("abc"), message_cost("abé")) == (3 * ASCII_FACTOR, 3 * UNICODE_FACTOR)
