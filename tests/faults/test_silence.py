"""Upstreams that say nothing, or never stop: every client is told so, and the upstream is left."""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pytest

from tests.faults.faults import Fault
from tests.faults.test_upstream_faults import ended, refused
from tests.faults.upstream import (
    FIN,
    LAST,
    SILENCE,
    STREAM,
    Flood,
    Hold,
    Step,
    Upstream,
    answer,
    chunk,
    stream,
)
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Speech,
    error_ending,
    question,
)
from tests.faults.world import World, at_once, places, world
from tests.raw_http import Answer
from weft import assemble, decode
from weft.dialects import DialectName

PAIRS = list(product(DIALECTS, DIALECTS))
Steps = Callable[[Speech], Sequence[Step]]
SILENT = Fault("silence", lambda *_: [], "timeout", message="sent nothing for 0.8 seconds")


def every_pair(
    world: World,
    prefix: str,
    stream: bool,
    steps: Steps,
    check: Callable[[DialectName, Answer], None],
) -> None:
    """Asks upstreams of every dialect from clients of every dialect, all at once. All of the
    upstreams must be left, where their scripts do not end."""
    models = []

    def pair(client: DialectName, upstream: str) -> Callable[[], None]:
        script = steps(SPEECHES[upstream])
        model = world.upstream.script(script)
        models.append(model)
        name = f"{prefix}{upstream}/{model}"
        return lambda: check(client, world.ask_slowly(client, name, stream, script))

    at_once([pair(client, upstream) for client, upstream in PAIRS])
    for model in models:
        world.upstream.exchange(model).left()


@pytest.mark.parametrize("stream", [True, False])
def test_an_upstream_without_a_head_is_a_timeout(shared: World, stream: bool) -> None:
    none = Fault("no head", lambda *_: [], "timeout", message="no response within 0.3 s")
    every_pair(
        shared,
        "headless-",
        stream,
        lambda _: [SILENCE],
        lambda client, found: refused(found, none, client),
    )


@pytest.mark.parametrize("stream", [True, False])
def test_silence_before_content_is_a_timeout(shared: World, stream: bool) -> None:
    every_pair(
        shared,
        "silent-",
        stream,
        lambda said: [STREAM, *map(chunk, said.head), SILENCE],
        lambda client, found: refused(found, SILENT, client),
    )


def test_silence_after_content_ends_the_stream_with_an_error(shared: World) -> None:
    """All content in one piece: a machine that stands still must not be silent inside it."""
    every_pair(
        shared,
        "silent-",
        True,
        lambda said: [STREAM + b"".join(map(chunk, said.head + said.content)), SILENCE],
        lambda client, found: ended(found, SILENT, client),
    )


def test_silence_after_the_finish_is_a_normal_end(shared: World) -> None:
    """The grace is 0.3 seconds; the connection stays open for ever."""

    def good(client: DialectName, found: Answer) -> None:
        response = assemble(decode([found.body], dialect=client))
        assert (response.text, response.finish_reason, response.error) == (
            "Warp and weft.",
            "stop",
            None,
        )

    every_pair(
        shared,
        "",
        True,
        lambda said: [STREAM, *map(chunk, said.head + said.content + said.end[:1]), SILENCE],
        good,
    )


# Endless answers


@pytest.fixture(scope="module")
def strict(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway with a small limit of bytes."""
    limits = "[server.limits]\nresponse = 20000\n"
    with world(limits + places(faulty.url), tmp_path_factory.mktemp("strict"), faulty) as made:
        yield made


@pytest.fixture
def hasty(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway with a small limit of time."""
    limits = "[server.limits]\nduration = 3.0\n"
    with world(limits + places(faulty.url), tmp_path_factory.mktemp("hasty"), faulty) as made:
        yield made


def over(message: str) -> Callable[[DialectName, Answer], None]:
    """The client was told that the answer was over a limit."""

    def check(client: str, found: Answer) -> None:
        assert found.status == 200
        assert message in error_ending(client, found.body).message

    return check


def test_an_answer_over_the_limit_of_bytes_ends_with_an_error(strict: World) -> None:
    def endless(said: Speech) -> Sequence[Step]:
        frames = map(chunk, said.head + said.content)
        return [STREAM, *frames, Hold(), Flood(chunk(said.content[0]), 10**6)]

    check = over("over 20000 bytes")
    every_pair(strict, "", True, endless, check)


def test_a_line_without_an_end_is_over_the_limit_of_bytes(strict: World) -> None:
    """A line may be as long as its answer, and no longer."""

    def endless(said: Speech) -> Sequence[Step]:
        frames = map(chunk, (*said.head, *said.content, b"data: "))
        return [STREAM, *frames, Hold(), Flood(chunk(b"x" * 1000), 10**6)]

    every_pair(strict, "", True, endless, over("over 20000 bytes"))


def test_an_answer_over_the_limit_of_time_ends_with_an_error(hasty: World) -> None:
    def slow(said: Speech) -> Sequence[Step]:
        return [STREAM, *map(chunk, said.head + said.content), SILENCE]

    check = over("longer than 3 seconds")
    every_pair(hasty, "", True, slow, check)


def test_a_body_over_the_limit_is_a_bad_gateway(strict: World) -> None:
    large = Fault("a large body", lambda *_: [], "bad-answer", "too-large")
    every_pair(
        strict,
        "",
        False,
        lambda said: [answer(said.body.replace(b"Warp", b"Warp" * 10_000)), FIN],
        lambda client, found: refused(found, large, client),
    )


# Keepalives


@pytest.fixture(scope="module")
def lively(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that does not let its clients wait in silence."""
    settings = "[server]\nkeepalive = 0.05\n" + places(faulty.url)
    with world(settings, tmp_path_factory.mktemp("lively"), faulty) as made:
        yield made


KEEPALIVES = {
    CHAT: b": keepalive\n\n",
    RESPONSES: b": keepalive\n\n",
    MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
    GEMINI: b"\n",
}


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_a_client_hears_that_it_is_not_forgotten(lively: World, client: str, upstream: str) -> None:
    """Before the first byte of an answer, and inside it; none of it is content."""
    said, first, second = SPEECHES[upstream], Hold(), Hold()
    model = lively.upstream.script(
        (first, STREAM, *map(chunk, said.head + said.content), second, *map(chunk, said.end), LAST)
    )
    with lively.client() as connection:
        connection.send(question(client, f"{upstream}/{model}", True))
        beat = chunk(KEEPALIVES[client])
        lively.seen(connection, beat + beat)
        first.release()
        lively.seen(connection, b"and weft.")
        status, _ = connection.head()
        before = connection.until(b"and weft.")
        lively.seen(connection, beat + beat)
        second.release()
        body = connection.until(b"\r\n0\r\n\r\n")
    assert status == 200
    assert before.startswith(beat)
    assert beat in body


def test_an_error_after_a_keepalive_is_told_in_the_stream(lively: World) -> None:
    for client, upstream in PAIRS:
        hold = Hold()
        model = lively.upstream.script((hold, answer(b"", "503 Busy")))
        with lively.client() as connection:
            connection.send(question(client, f"{upstream}/{model}", True))
            lively.seen(connection, chunk(KEEPALIVES[client]))
            hold.release()
            found = connection.answer()
        assert found.status == 200
        error_ending(client, found.body)


@pytest.fixture(scope="module")
def short_of_room(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A lively gateway that keeps little for clients that do not read."""
    settings = "[server]\nkeepalive = 0.05\n[server.limits]\nbuffer = 20000\n" + places(faulty.url)
    with world(settings, tmp_path_factory.mktemp("short"), faulty) as made:
        yield made


def test_an_error_behind_a_keepalive_that_waits_for_the_client_is_told_too(
    short_of_room: World,
) -> None:
    """The keepalive has the head of the answer, and waits until the client has read what came
    before: when the upstream fails meanwhile, the head must still leave."""
    body, backend = SPEECHES[CHAT].body.replace(b"Warp", b"Warp" * 60_000), short_of_room.upstream
    for client in DIALECTS:
        hold = Hold()
        large = backend.script((answer(body),))
        failing = backend.script((hold, FIN))
        with short_of_room.client(receive_buffer=4096) as connection:
            first = question(client, f"{CHAT}/{large}", False)
            connection.send(first + question(client, f"{CHAT}/{failing}", True))
            hold.here()
            threading.Event().wait(0.5)  # ten keepalives; the client reads nothing meanwhile
            hold.release()
            backend.exchange(failing).left()
            before, found = connection.answer(), connection.answer()
        assert (before.status, found.status) == (200, 200)
        error_ending(client, found.body)


def test_a_stream_without_silence_has_no_keepalives(shared: World) -> None:
    """Nor where the machine is busy: it would take 15 seconds."""
    for client, upstream in PAIRS:
        model = shared.upstream.script(stream(*SPEECHES[upstream].frames))
        found = shared.ask(client, f"{upstream}/{model}", True)
        assert KEEPALIVES[client] not in found.body or client == GEMINI
