"""Chat and Messages streams that are resumed by the ids of their events."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.chat import chunk
from tests.crash.scene import Object, Scene, http, scene
from tests.faults.upstream import LAST, STREAM, Hold, Step, Upstream, upstream
from tests.faults.upstream import chunk as piece
from tests.gateway_process import Gateway

KEYS = '[server.keys]\none = "sk-of-one"\ntwo = "sk-of-two"\n'
ONE, TWO = ({"authorization": f"Bearer sk-of-{name}"} for name in ("one", "two"))
PATHS = ("/v1/chat/completions", "/v1/messages")
END = {"/v1/chat/completions": b"data: [DONE]\n\n", "/v1/messages": b'"message_stop"}\n\n'}
FINISHED = (chunk({}, "stop"), b"data: [DONE]\n\n")
ID = re.compile(rb"^id: (\S+)/(\d+)$", re.MULTILINE)


class World:
    def __init__(self, made: Scene, gateway: Gateway) -> None:
        self.scene = made
        self.gateway = gateway

    @property
    def upstream(self) -> Upstream:
        return self.scene.upstream

    def body(self, *steps: Step) -> Object:
        model = f"chat/{self.upstream.script([STREAM, *steps, *map(piece, FINISHED), LAST])}"
        messages = [{"role": "user", "content": "Hello?"}]
        return {"model": model, "messages": messages, "max_tokens": 100, "stream": True}

    def ask(self, path: str, body: Object, **headers: str) -> httpx.Response:
        return http.post(self.gateway.url + path, json=body, headers=ONE | headers)

    def asked(self, body: Object) -> int:
        """How often the upstream was."""
        return len(self.upstream.exchanges(body["model"].partition("/")[2]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("resumed")
    with upstream() as staged, scene("sqlite", folder, staged) as made:
        made.keys = KEYS
        yield World(made, made.start())


def texts(*words: str) -> list[Step]:
    return [piece(chunk({"content": one})) for one in words]


def events(raw: bytes) -> list[bytes]:
    return [one + b"\n\n" for one in raw.split(b"\n\n")[:-1]]


@pytest.mark.parametrize("path", PATHS)
def test_from_every_event_on_the_rest_is_what_was_sent_byte_for_byte(
    world: World, path: str
) -> None:
    body = world.body(*texts("Warp ", "and ", "weft."))
    told = events(world.ask(path, body, **{"weft-resume": "1"}).content)
    ids = [found for one in told if (found := ID.search(one))]
    assert [int(one[2]) for one in ids] == list(range(len(told)))
    assert len({one[1] for one in ids}) == 1
    for number, seen in enumerate(ids):
        last = f"{seen[1].decode()}/{seen[2].decode()}"
        rest = world.ask(path, body, **{"last-event-id": last})
        assert (rest.status_code, rest.content) == (200, b"".join(told[number + 1 :]))
    assert world.asked(body) == 1


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_that_still_runs_is_resumed_live(world: World, path: str) -> None:
    gate = Hold()
    body = world.body(*texts("Warp "), gate, *texts("and weft."))
    first = b""
    headers = ONE | {"weft-resume": "1"}
    with http.stream("POST", world.gateway.url + path, json=body, headers=headers) as stream:
        pieces = stream.iter_raw()
        while b"Warp " not in first:
            first += next(pieces)
        events_seen = first[: first.rindex(b"\n\n") + 2]
        seen = list(ID.finditer(events_seen))[-1]
        last = f"{seen[1].decode()}/{seen[2].decode()}"
        again = ONE | {"last-event-id": last}
        with http.stream("POST", world.gateway.url + path, json=body, headers=again) as other:
            gate.release()
            rest = b"".join(other.iter_raw())
        whole = first + b"".join(pieces)
    assert events_seen + rest == whole
    assert whole.endswith(END[path])
    assert world.asked(body) == 1


@pytest.mark.parametrize("path", PATHS)
def test_who_does_not_ask_for_ids_gets_none(world: World, path: str) -> None:
    told = world.ask(path, world.body(*texts("Warp and weft.")))
    assert told.status_code == 200
    assert ID.search(told.content) is None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("id", ["nobody/1", "nobody", "/1", "nobody/x", "nobody/99999999999"])
def test_an_event_that_nobody_sent_is_not_found(world: World, path: str, id: str) -> None:
    body = world.body(*texts("Warp and weft."))
    told = world.ask(path, body, **{"last-event-id": id})
    assert told.status_code == 404
    assert world.asked(body) == 0


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_of_another_key_or_another_dialect_is_not_there(world: World, path: str) -> None:
    body = world.body(*texts("Warp and weft."))
    told = world.ask(path, body, **{"weft-resume": "1"}).content
    seen = ID.search(told)
    assert seen is not None
    last = {"last-event-id": f"{seen[1].decode()}/0"}
    foreign = http.post(world.gateway.url + path, json=body, headers=TWO | last)
    (other,) = set(PATHS) - {path}
    assert foreign.status_code == 404
    assert world.ask(other, body, **last).status_code == 404


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_whose_log_was_removed_is_not_found(world: World, path: str) -> None:
    body = world.body(*texts("Warp and weft."))
    seen = ID.search(world.ask(path, body, **{"weft-resume": "1"}).content)
    assert seen is not None
    log_id = seen[1].decode()
    # As the retention policy does when a log is old enough.
    with closing(sqlite3.connect(world.scene.database.path)) as database, database:
        database.execute("UPDATE response SET pruned = TRUE WHERE id = ?", (log_id,))
        database.execute("DELETE FROM block WHERE response = ?", (log_id,))
    told = world.ask(path, body, **{"last-event-id": f"{log_id}/0"})
    assert told.status_code == 404
    assert log_id in told.json()["error"]["message"]


def test_a_response_that_was_not_streamed_has_no_stream(world: World) -> None:
    path, body = PATHS[0], world.body(*texts("Warp and weft."))
    whole = world.ask(path, body | {"stream": False, "store": True}).json()
    assert world.ask(path, body, **{"last-event-id": f"{whole['id']}/0"}).status_code == 404


@pytest.mark.parametrize("path", PATHS)
def test_what_a_killed_server_left_is_resumed_to_its_end(tmp_path: Path, path: str) -> None:
    with upstream() as staged, scene("sqlite", tmp_path, staged) as made:
        made.keys = KEYS
        world = World(made, made.start())
        gate = Hold()
        body = world.body(*texts("Warp "), gate, *texts("and weft."))
        headers = ONE | {"weft-resume": "1"}
        first = b""
        url = world.gateway.url + path
        with http.stream("POST", url, json=body, headers=headers) as stream:
            pieces = stream.iter_raw()
            while b"Warp " not in first:
                first += next(pieces)
            seen = list(ID.finditer(first))[-1]
            world.gateway.process.kill()
            world.gateway.process.wait()
        world.gateway = made.start()
        last = {"last-event-id": f"{seen[1].decode()}/{seen[2].decode()}"}
        rest = world.ask(path, body, **last).content
        assert b"the server stopped" in rest
        assert b"message_stop" not in rest
        assert world.asked(body) == 1
