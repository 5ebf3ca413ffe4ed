"""A database that is locked, full or away, under a gateway that serves: streams go on or end in a
clear error, as the settings say, and nothing half-written can be read.
"""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.chat import chunk
from tests.crash.scene import (
    DONE,
    TERMINAL,
    Object,
    Scene,
    Stream,
    ended,
    events,
    get,
    id_in,
    post,
    resumed,
    scene,
)
from tests.faults.upstream import LAST, STREAM, Flood, Hold, Step, Upstream
from tests.faults.upstream import chunk as piece
from tests.faults.world import World, until
from tests.gateway_process import Gateway
from tests.stores import KINDS, Kind, postgres

HELLO = piece(chunk({"content": "Hello "}))
WORLD = piece(chunk({"content": "world."}))
STOP = piece(chunk({}, "stop"))
USAGE = piece(
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
)
REST: tuple[Step, ...] = (
    WORLD,
    STOP,
    piece(b"data: [DONE]\n\n"),
    LAST,
)
OPTIONAL = "required = false\n"


def begun(made: Scene, running: Gateway, *more: Step) -> tuple[Stream, str, Hold]:
    """A stream in its middle, its id, and what holds its upstream back; then it says more."""
    hold = Hold()
    model = made.upstream.script([STREAM, HELLO, hold, *more, *(REST[1:] if more else REST)])
    stream = Stream(running.url, "/v1/responses", made.begin(f"chat/{model}", stream=True))
    id = id_in(stream.until(b"Hello ").until(b"\n\n").seen)
    made.database.holds(id, b"Hello ")
    return stream, id, hold


@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.long)])
def test_the_end_waits_for_a_database_that_is_locked_and_the_rest_does_not(
    kind: Kind, staged: Upstream, tmp_path: Path
) -> None:
    with scene(kind, tmp_path, staged) as made:
        running = made.start()
        last = Hold()
        stream, id, hold = begun(made, running, WORLD, last)
        with made.database.locked():
            hold.release()
            stream.until(b"world.")
            last.release()
            assert get(running, f"/v1/responses/{id}").json()["status"] == "in_progress"
            assert not any(event["type"] in TERMINAL for event in events(stream.seen))
        told = stream.rest()
        stream.close()
        assert get(running, f"/v1/responses/{id}").json() == events(told)[-1]["response"]
        assert resumed(running, id) == told
        made.database.audit()


@contextmanager
def full(made: Scene, running: Gateway) -> Iterator[None]:
    """No file of the gateway's can grow any more."""
    size = made.database.path.with_name(made.database.path.name + "-wal").stat().st_size
    before = resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (size, -1))
    try:
        yield
    finally:
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def locked(made: Scene, running: Gateway) -> Iterator[None]:
    with made.database.locked():
        yield


@contextmanager
def away(made: Scene, running: Gateway) -> Iterator[None]:
    """The server of the database is stopped."""
    postgres().stop()
    try:
        yield
    finally:
        postgres().ensure_postgres_running()


TROUBLES: list[tuple[Kind, Callable[..., object]]] = [
    ("sqlite", locked),
    ("sqlite", full),
    ("postgres", locked),
    ("postgres", away),
]


ENDS: dict[str, tuple[Step, ...]] = {
    "reason": (WORLD, STOP),
    "reason and usage": (WORLD, STOP, USAGE),
    "reason with the last text": (piece(chunk({"content": "world."}, "stop")),),
}


@pytest.mark.long
@pytest.mark.parametrize("end", ENDS)
def test_a_chat_client_gets_no_finish_reason_if_the_end_could_not_be_stored(
    end: str, staged: Upstream, tmp_path: Path
) -> None:
    """Also where the upstream's own chunks are passed on, and its reason comes before the end."""
    with scene("sqlite", tmp_path, staged) as made:
        running = made.start()
        hold, last = Hold(), Hold()
        model = staged.script([STREAM, HELLO, hold, *ENDS[end], last, *REST[2:]])
        question = {"role": "user", "content": "Hello?"}
        body = {"model": f"chat/{model}", "messages": [question], "stream": True, "store": True}
        with Stream(running.url, "/v1/chat/completions", body) as stream:
            stream.until(b"Hello ")
            with made.database.locked():
                hold.release()
                last.release()
                told = stream.rest()
        assert b"could not be stored" in told
        assert b'"stop"' not in told, told


@pytest.mark.long
@pytest.mark.parametrize(("kind", "trouble"), TROUBLES)
def test_a_response_that_cannot_be_stored_ends_in_an_error(
    kind: Kind, trouble: Callable[[Scene, Gateway], "ExitStack"], staged: Upstream, tmp_path: Path
) -> None:
    with scene(kind, tmp_path, staged) as made:
        running = made.start()
        before = _whole(made, running)
        stream, id, hold = begun(made, running)
        with trouble(made, running):
            hold.release()
            told = stream.rest()
            assert (stream.status, stream.broken) == (200, False)
            refused = post(running, "/v1/responses", _asked(made))
            assert refused.status_code == 500
            assert refused.json()["error"]["type"] == "server_error"
        stream.close()
        last = events(told)[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        assert told.endswith(DONE)
        assert "response.completed" not in {event["type"] for event in events(told)}
        found = ended(running, id)
        assert found == events(resumed(running, id))[-1]["response"]
        assert found["status"] == "failed"
        assert get(running, f"/v1/responses/{before['id']}").json() == before
        after = _whole(made, running)
        assert get(running, f"/v1/responses/{after['id']}").json() == after
        assert all(one.ended for one in made.database.audit().values())


@pytest.mark.long
@pytest.mark.parametrize(("kind", "trouble"), TROUBLES)
def test_a_response_that_need_not_be_stored_is_completed(
    kind: Kind, trouble: Callable[[Scene, Gateway], "ExitStack"], staged: Upstream, tmp_path: Path
) -> None:
    with scene(kind, tmp_path, staged, OPTIONAL) as made:
        running = made.start()
        stream, id, hold = begun(made, running)
        with trouble(made, running):
            hold.release()
            told = stream.rest()
            answer = post(running, "/v1/responses", _asked(made))
            assert answer.status_code == 200
        stream.close()
        assert events(told)[-1]["type"] == "response.completed"
        assert ended(running, id)["status"] in ("completed", "failed")
        until(lambda: "not stored" in running.stderr or "unstored" in running.stderr, "the log")
        after = _whole(made, running)
        assert get(running, f"/v1/responses/{after['id']}").json() == after
        assert all(one.ended for one in made.database.audit().values())


def _asked(made: Scene) -> Object:
    return made.begin(f"chat/{made.upstream.script([STREAM, HELLO, *REST])}")


def _whole(made: Scene, running: Gateway) -> Object:
    answer = post(running, "/v1/responses", _asked(made))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.long
def test_a_database_that_is_restarted_under_load_loses_nothing(
    staged: Upstream, tmp_path: Path
) -> None:
    with scene("postgres", tmp_path, staged) as made:
        running = made.start()
        ends = [Hold() for _ in range(40)]
        streams = [begun(made, running, WORLD, end) for end in ends]
        followers = [
            Stream(running.url, f"/v1/responses/{id}?stream=true", None) for _, id, _ in streams
        ]
        with away(made, running):
            for _, _, hold in streams:
                hold.release()
            for stream, _, _ in streams:
                stream.until(b"world.")
            for end in ends:
                end.release()
        for (stream, id, _), follower in zip(streams, followers, strict=True):
            told = stream.rest()
            assert events(told)[-1]["type"] == "response.completed"
            assert get(running, f"/v1/responses/{id}").json() == events(told)[-1]["response"]
            assert follower.rest() == told
            stream.close()
            follower.close()
        made.database.audit()


@pytest.mark.long
def test_unwritten_events_do_not_pile_up_in_memory(staged: Upstream, tmp_path: Path) -> None:
    """Three streams of 40 MB, and a database that takes nothing."""
    flood = Flood(piece(chunk({"content": "x" * 256 * 1024})), 160)
    with scene("sqlite", tmp_path, staged) as made:
        running = made.start()
        world = World(running, staged)
        holds = [Hold() for _ in range(3)]
        streams = []
        for hold in holds:
            model = staged.script([STREAM, HELLO, hold, flood, *REST])
            body = made.begin(f"chat/{model}", stream=True)
            streams.append(Stream(running.url, "/v1/responses", body).until(b"Hello "))
        before = world.memory
        with made.database.locked(), ThreadPoolExecutor(len(streams)) as pool:
            for hold in holds:
                hold.release()
            for told in list(pool.map(Stream.tail, streams)):
                assert b"could not be stored" in told
                assert DONE in told
            grown = world.memory - before
        assert grown < 300 * 1024 * 1024, f"{grown >> 20} MB"
        for stream in streams:
            stream.close()
