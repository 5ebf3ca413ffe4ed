"""Clients that leave, and clients that do not read: nobody works on for nobody."""

import resource
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, product

import pytest

from tests.faults.upstream import (
    LAST,
    PATIENCE,
    SILENCE,
    STREAM,
    Exchange,
    Flood,
    Hold,
    Step,
    Upstream,
    answer,
    chunk,
)
from tests.faults.wires import CHAT, DIALECTS, SPEECHES, question
from tests.faults.world import World, places, until, world
from tests.raw_http import Client

AT_ONCE = 8.0
"""Seconds in which an upstream must see that its client left. It takes about a millisecond; this
machine may have other things to do, and stands still at times. The first keepalive, which would
find that out as well, is sent after fifteen."""

clients = pytest.mark.parametrize("client", DIALECTS)
upstreams = pytest.mark.parametrize("upstream", DIALECTS)
ways = pytest.mark.parametrize("way", ["fin", "reset"])


def leave(client: Client, way: str) -> float:
    """Leaves; returns when."""
    if way == "reset":
        linger = struct.pack("ii", 1, 0)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    moment = time.monotonic()
    client.close()
    return moment


def is_cancelled(world: World, model: str) -> None:
    """The log has one line about it, and nothing is left of it."""
    (line,) = world.logged_model(model)
    error = line["error"]
    assert isinstance(error, dict)
    assert (line["status"], error["kind"]) == (499, "client-gone")
    until(lambda: world.open == 0, "nothing to be open")


MOMENTS: dict[str, tuple[bool, Sequence[Step]]] = {
    "before the head of a stream": (True, ()),
    "before the head of a body": (False, ()),
    "after the head of a stream": (True, (STREAM,)),
    "after the head of a body": (False, (STREAM,)),
}
"""Whether a stream is asked, and what the upstream has said by then."""


@pytest.mark.parametrize("moment", MOMENTS)
@clients
@upstreams
@ways
def test_a_client_that_leaves_before_content_cancels_its_upstream_at_once(
    shared: World, moment: str, client: str, upstream: str, way: str
) -> None:
    stream, steps = MOMENTS[moment]
    hold = Hold()
    model = shared.upstream.script([*steps, hold])
    connection = shared.client()
    connection.send(question(client, f"{upstream}/{model}", stream))
    hold.here()
    left = leave(connection, way)
    assert shared.upstream.exchange(model).left() - left < AT_ONCE
    is_cancelled(shared, model)


@clients
@upstreams
@ways
def test_a_client_that_leaves_inside_the_answer_cancels_its_upstream_at_once(
    shared: World, client: str, upstream: str, way: str
) -> None:
    said = SPEECHES[upstream]
    model = shared.upstream.script([STREAM, *map(chunk, said.head + said.content), SILENCE])
    connection = shared.client()
    connection.send(question(client, f"{upstream}/{model}", True))
    shared.seen(connection, b"and weft.")
    left = leave(connection, way)
    assert shared.upstream.exchange(model).left() - left < AT_ONCE
    is_cancelled(shared, model)


@ways
def test_a_client_that_leaves_a_body_half_told_cancels_its_upstream(
    shared: World, way: str
) -> None:
    """The body is there to the half, and the client waits for all of it."""
    for client, upstream in product(DIALECTS, DIALECTS):
        body, hold = SPEECHES[upstream].body, Hold()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        model = shared.upstream.script([head % len(body) + body[:-9], hold])
        connection = shared.client()
        connection.send(question(client, f"{upstream}/{model}", False))
        hold.here()
        left = leave(connection, way)
        assert shared.upstream.exchange(model).left() - left < AT_ONCE
        is_cancelled(shared, model)


@ways
def test_a_client_that_leaves_inside_its_request_asks_nobody(shared: World, way: str) -> None:
    model = shared.upstream.script([SILENCE])
    for client in DIALECTS:
        whole = question(client, f"{CHAT}/{model}", True)
        for cut in (20, whole.index(b"\r\n\r\n") + 4, len(whole) - 1):
            connection = shared.client()
            connection.send(whole[:cut])
            leave(connection, way)
    until(lambda: shared.open == 0, "nothing to be open")
    assert shared.upstream.exchanges(model) == []


def test_while_it_waits_to_ask_again_a_client_may_leave(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The second try is a minute away; nobody is asked then."""
    retry = {"attempts": 3, "base": 60.0, "longest": 90.0}
    with world(places(faulty.url, retry=retry), tmp_path_factory.mktemp("again"), faulty) as made:
        for client, way in product(DIALECTS, ("fin", "reset")):
            model = faulty.script([answer(b"", "503 Busy")])
            connection = made.client()
            connection.send(question(client, f"{CHAT}/{model}", True))
            faulty.exchange(model)
            until(lambda: made.open == 1, "the request to be under way")
            leave(connection, way)
            is_cancelled(made, model)
            assert len(faulty.exchanges(model)) == 1


# Many


def vanish(world: World, number: int) -> None:
    """So many clients are in the middle of a stream, and then gone."""
    until(lambda: world.open == 0, "earlier ones to be over")
    models: list[str] = []
    connections: list[Client] = []
    for index in range(number):
        client, upstream = DIALECTS[index % 4], DIALECTS[index // 4 % 4]
        said = SPEECHES[upstream]
        model = world.upstream.script([STREAM, *map(chunk, said.head + said.content), SILENCE])
        connection = world.client()
        connection.send(question(client, f"{upstream}/{model}", True))
        models.append(model)
        connections.append(connection)
    for connection in connections:
        world.seen(connection, b"and weft.")
    assert world.open == number
    for index, connection in enumerate(connections):
        leave(connection, ("fin", "reset")[index % 2])
    for model in models:
        world.upstream.exchange(model).left()
    until(lambda: world.open == 0, "all to be gone")


def many(world: World, number: int) -> None:
    """What a further round leaves behind is a leak: a stream takes more than this."""
    vanish(world, number)  # whatever is made once is made now
    vanish(world, number)
    descriptors, memory = world.descriptors, world.memory
    vanish(world, number)
    until(lambda: world.descriptors <= descriptors + 2, "the sockets to be closed")
    assert world.memory - memory < number * 8192


def test_fifty_clients_that_vanish_leave_nothing_behind(shared: World) -> None:
    vanish(shared, 50)


@pytest.mark.long
def test_a_thousand_clients_that_vanish_leave_nothing_behind(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    try:
        with world(places(faulty.url), tmp_path_factory.mktemp("many"), faulty) as made:
            many(made, 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Slow readers

LARGE = 100 * 1024 * 1024
BUFFERS = 12 * 1024 * 1024
"""What kernels on the way may hold, at most: four socket buffers, which grow by themselves."""

GROWTH = 16 * 1024 * 1024
"""And what the process may grow by: a stored answer has a fold, and waits for its database."""


@pytest.fixture(scope="module")
def brisk(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that drops those who take nothing for a second."""
    limits = "[server.limits]\nstalled = 1.0\nresponse = 1000000000\n"
    with world(limits + places(faulty.url), tmp_path_factory.mktemp("brisk"), faulty) as made:
        yield made


def flood(upstream: str, size: int = LARGE) -> list[Step]:
    """A stream that is so large; its content comes again and again."""
    said = SPEECHES[upstream]
    again = next(one for one in said.content if b"and weft." in one)
    piece = chunk(again.replace(b',"sequence_number":5', b""))  # with it, it would be a replay
    block = piece * (65536 // len(piece))
    return [STREAM, *map(chunk, (*said.head, *said.content[:3])), Flood(block, size // len(block))]


@pytest.mark.parametrize(
    ("client", "upstream"), [(one, DIALECTS[number - 1]) for number, one in enumerate(DIALECTS)]
)
def test_who_does_not_read_is_dropped_and_its_upstream_is_read_no_further(
    brisk: World, client: str, upstream: str
) -> None:
    model = brisk.upstream.script(flood(upstream))
    before = brisk.memory
    with brisk.client(receive_buffer=4096) as connection:
        connection.send(question(client, f"{upstream}/{model}", True))
        exchange = brisk.upstream.exchange(model)
        exchange.left()
        until(lambda: brisk.open == 0, "it to be dropped")
    assert exchange.sent < BUFFERS
    assert brisk.memory - before < BUFFERS
    is_cancelled(brisk, model)


def test_a_buffer_that_is_large_enough_takes_all_of_it(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """More than any kernel would hold comes from the upstream before the client reads."""
    limits = f"[server.limits]\nbuffer = {2 * BUFFERS}\n"
    with world(limits + places(faulty.url), tmp_path_factory.mktemp("large"), faulty) as made:
        hold = Hold()
        model = faulty.script([*flood(CHAT, BUFFERS), hold])
        with made.client(receive_buffer=4096) as connection:
            connection.send(question(CHAT, f"{CHAT}/{model}", True))
            hold.here()


@pytest.mark.parametrize("upstream", DIALECTS)
def test_who_reads_slowly_but_reads_gets_all_of_it(brisk: World, upstream: str) -> None:
    """Its own buffer is small, and the stream is not."""
    said = SPEECHES[upstream]
    model = brisk.upstream.script(
        [*flood(upstream, 2_000_000), *map(chunk, said.end), b"0\r\n\r\n"]
    )
    received, moments = b"", [time.monotonic()]
    with brisk.client(receive_buffer=65536) as connection, suppress(ConnectionResetError):
        connection.send(question(CHAT, f"{upstream}/{model}", True))
        while not received.endswith(LAST) and (piece := connection.socket.recv(65536)):
            received += piece
            moments.append(time.monotonic())
    moments.append(time.monotonic())
    if not received.endswith(LAST):  # right, if this machine stood still
        assert max(later - earlier for earlier, later in pairwise(moments)) > 0.7
        return
    assert received.endswith(b"data: [DONE]\n\n\r\n" + LAST)
    assert b'"error"' not in received


@pytest.mark.long
@clients
@upstreams
def test_a_hundred_megabytes_that_nobody_reads_take_no_memory(
    faulty: Upstream, tmp_path_factory: pytest.TempPathFactory, client: str, upstream: str
) -> None:
    """The upstream waits, too: what it could send stays the same."""
    limits = "[server.limits]\nresponse = 1000000000\n"
    folder = tmp_path_factory.mktemp("slow")
    with world(limits + places(faulty.url), folder, faulty) as made:
        model, end = faulty.script(flood(upstream)), map(chunk, SPEECHES[upstream].end)
        small = faulty.script([*flood(upstream, 1), *end, b"0\r\n\r\n"])
        made.ask(client, f"{upstream}/{small}", True)  # what the first request costs is no buffer
        before = made.memory
        with made.client(receive_buffer=4096) as connection:
            connection.send(question(client, f"{upstream}/{model}", True))
            exchange = faulty.exchange(model)
            sent = steady(exchange)
            assert sent < BUFFERS
            assert made.memory - before < GROWTH
            read = 0
            until = time.monotonic() + PATIENCE
            while exchange.sent == sent:  # what is read makes room for as much
                read += len(connection.socket.recv(65536))
                assert time.monotonic() < until
            assert made.memory - before < GROWTH


def steady(exchange: Exchange) -> int:
    """Waits until the upstream has sent nothing for half a second; returns how much it had."""
    moment, sent = time.monotonic(), -1

    def is_steady() -> bool:
        nonlocal moment, sent
        now = exchange.sent
        if now != sent:
            moment, sent = time.monotonic(), now
        return time.monotonic() - moment > 0.5

    until(is_steady, "the upstream to wait")
    return sent
