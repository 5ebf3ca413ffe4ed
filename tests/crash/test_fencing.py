"""Gateways that are held for dead and are not: frozen past their lease, in pid namespaces of their
own under one host name, with clocks an hour apart. No client is told an end that the store does not
have, and nothing that runs is ended by another.
"""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests import weft_command
from tests.chat import calls, chunk
from tests.chat import entry as call
from tests.clocks import hours_off
from tests.crash.positions import TOOL
from tests.crash.scene import (
    SOON,
    TERMINAL,
    Scene,
    Stream,
    ended,
    events,
    get,
    id_in,
    kill,
    post,
    resumed,
    scene,
)
from tests.faults.upstream import LAST, STREAM, Hold, Step, Upstream
from tests.faults.upstream import chunk as piece
from tests.faults.wires import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    body_of,
    error_ending,
    has_good_end,
    path_of,
)
from tests.faults.world import until
from tests.gateway_process import Gateway
from tests.stores import KINDS, Kind, entry
from weft.store.records import Entry

pytestmark = pytest.mark.long

STORE_ALL = 'persist = "all"\n'
SHORT = "lease = 4.0\n"
LONG = "lease = 600.0\n"
WINDOW = "resume_window = 60.0\n"
_numbers = count(1)


class Play:
    """An upstream's answer in three parts; a test decides when each of them comes."""

    def __init__(self, made: Scene, *before: Sequence[Step]) -> None:
        """`before` are answers to earlier requests."""
        self.more, self.end = Hold(), Hold()
        hello, world = piece(chunk({"content": "Hello "})), piece(chunk({"content": "world."}))
        end = piece(chunk({}, "stop")) + piece(b"data: [DONE]\n\n")
        script: list[Step] = [STREAM, hello, self.more, world, self.end, end, LAST]
        self.model = f"chat/{made.upstream.script(*before, script)}"


@dataclass
class Client:
    """One answer on its way to a client, from a gateway that will be frozen."""

    play: Play
    told: Callable[[bytes], object]
    """Waits until the client has received this."""

    judge: Callable[[], None]
    """Reads the rest, which must be an error."""

    close: Callable[[], None]


def streamed(dialect: str, made: Scene, here: Gateway) -> Client:
    play = Play(made)
    body = json.loads(body_of(dialect, play.model, True))
    stream = Stream(here.url, path_of(dialect, play.model, True), body)

    def judge() -> None:
        told = stream.rest()
        assert (stream.status, stream.broken) == (200, False), told
        assert not has_good_end(dialect, told), told
        if dialect == RESPONSES:
            failed(events(told)[-1])
        else:
            error_ending(dialect, told)

    return Client(play, stream.until, judge, stream.close)


def failed(last: dict[str, object]) -> None:
    assert last["type"] == "response.failed", last


def socketed(made: Scene, here: Gateway) -> Client:
    play = Play(made)
    socket = connect(here.url.replace("http", "ws") + "/v1/responses", proxy=None)
    socket.send(json.dumps({"type": "response.create", "model": play.model, "input": "hi"}))
    seen = bytearray()

    def told(mark: bytes) -> None:
        while mark not in seen:
            seen.extend(socket.recv(20, decode=False))

    def judge() -> None:
        last = {"type": ""}
        while last["type"] not in (*TERMINAL, "error"):
            last = json.loads(socket.recv(20))
        assert last["type"] in ("response.failed", "error"), last

    return Client(play, told, judge, socket.close)


def followed(made: Scene, here: Gateway) -> Client:
    """One in the background, whose client listens at the gateway that runs it."""
    play = Play(made)
    asked = made.begin(play.model, background=True)
    id = str(post(here, "/v1/responses", asked).json()["id"])
    stream = Stream(here.url, f"/v1/responses/{id}?stream=true", None)

    def judge() -> None:
        told = stream.rest()
        failed(events(told)[-1])
        assert told.endswith(resumed(here, id)[-200:])

    return Client(play, stream.until, judge, stream.close)


def submitted(made: Scene, here: Gateway) -> Client:
    """The outputs of tools, with an answer that is not streamed."""
    asks = calls(call(0, "call_1", "weather", "{}")) + chunk({}, "tool_calls")
    play = Play(made, [STREAM, piece(asks), piece(b"data: [DONE]\n\n"), LAST])
    first = post(here, "/v1/responses", made.begin(play.model, tools=[TOOL])).json()
    outputs = {"tool_outputs": [{"tool_call_id": "call_1", "output": "21 degrees"}]}
    stream = Stream(here.url, f"/v1/responses/{first['id']}/submit_tool_outputs", outputs)
    play.more.here()

    def judge() -> None:
        told = json.loads(stream.rest())
        assert (stream.status, told["error"]["type"]) == (500, "server_error"), told

    return Client(play, lambda _: None, judge, stream.close)


def clients(made: Scene, here: Gateway) -> Iterator[Client]:
    for dialect in (CHAT, RESPONSES, MESSAGES, GEMINI):
        yield streamed(dialect, made, here)
    yield socketed(made, here)
    yield followed(made, here)
    yield submitted(made, here)


def stored(made: Scene) -> dict[str, Entry]:
    return {one.id: one for one in made.database.entries()}


def unended(made: Scene) -> set[str]:
    return {id for id, one in stored(made).items() if one.ended is None}


def verified(made: Scene) -> None:
    found = weft_command.run("verify", "--config", "weft.toml", folder=made.folder)
    assert found.code == 0, found.out + found.err
    made.database.audit()


@pytest.mark.parametrize("window", ["", WINDOW], ids=["", "window"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_gateway_sends_no_end_that_the_store_does_not_have(
    kind: Kind, window: str, staged: Upstream, tmp_path: Path
) -> None:
    """Also if clients had received more than was stored when it froze."""
    with scene(kind, tmp_path, staged, STORE_ALL + SHORT) as made:
        made.keys = window
        here, there = made.start(), made.start()
        found = list(clients(made, here))
        for one in found:
            one.told(b"Hello ")
        # That of the outputs of tools is not told to its client.
        until(lambda: len(unended(made)) == len(found), "the beginning of all")
        running = unended(made)
        for id in running:
            until(lambda: bool(made.database.log(id)) or _is_body(made, id), "events")  # noqa: B023
        with made.database.locked():
            for one in found:
                one.play.more.release()
                one.told(b"world.")
            here.process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: all(stored(made)[id].ended for id in running), "the end of all")
            for one in found:
                one.play.end.release()
        finally:
            here.process.send_signal(signal.SIGCONT)
        for one in found:
            one.judge()
            one.close()
        assert {stored(made)[id].status for id in running} == {"failed"}
        until(lambda: "another server took over" in here.stderr, "the log")
        for server in (here, there):
            assert answered(made, server)["status"] == "completed"
        verified(made)


def _is_body(made: Scene, id: str) -> bool:
    return not stored(made)[id].stream


def answered(made: Scene, running: Gateway) -> dict[str, object]:
    """A whole response that is stored as it was sent."""
    play = Play(made)
    with Stream(running.url, "/v1/responses", made.begin(play.model)) as stream:
        play.more.release()
        play.end.release()
        told: dict[str, object] = json.loads(stream.rest())
    assert ended(running, str(told["id"])) == told
    return told


# Namespaces and clocks


def looked_around(made: Scene) -> None:
    """Waits until a gateway has looked for orphans and taken them over."""
    id = f"resp_left_{next(_numbers)}"
    made.database.run(made.database.store.begin(entry(id, server="nobody")))
    until(lambda: stored(made)[id].ended is not None, "the end of what was left")


def in_the_middle(made: Scene, running: Gateway) -> tuple[Play, Stream, str]:
    play = Play(made)
    stream = Stream(running.url, "/v1/responses", made.begin(play.model, stream=True))
    id = id_in(stream.until(b"Hello ").until(b"\n\n").seen)
    made.database.holds(id, b"Hello ")
    return play, stream, id


def goes_well(made: Scene, running: Gateway, play: Play, stream: Stream, id: str) -> None:
    play.more.release()
    play.end.release()
    last = events(stream.rest())[-1]
    assert last["type"] == "response.completed"
    assert get(running, f"/v1/responses/{id}").json() == last["response"]
    stream.close()


NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
SAME_NAME = ("sh", "-c", 'hostname same-name && exec "$@"', "sh")


@contextmanager
def confined(made: Scene) -> Iterator[Gateway]:
    """A gateway that is process 1 of its namespace, on a host of the same name as the others."""
    running = made.start((*NAMESPACE, *SAME_NAME))
    try:
        yield running
    finally:
        kill(running)  # `unshare` takes no other signal; its child goes with it


@pytest.mark.parametrize("kind", KINDS)
def test_in_separate_namespaces_no_gateway_ends_the_responses_of_another(
    kind: Kind, staged: Upstream, tmp_path: Path
) -> None:
    with scene(kind, tmp_path, staged) as made, confined(made) as here:
        first = in_the_middle(made, here)
        with confined(made) as there:
            second = in_the_middle(made, there)
            with confined(made):
                for _ in range(2):
                    looked_around(made)
                goes_well(made, here, *first)
                goes_well(made, there, *second)
        verified(made)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_gateway_in_another_namespace_is_found_before_its_lease_expires(
    kind: Kind, staged: Upstream, tmp_path: Path
) -> None:
    with scene(kind, tmp_path, staged, LONG) as made:
        with confined(made) as here:
            _, stream, id = in_the_middle(made, here)
        with confined(made) as there:
            assert ended(there, id, SOON)["status"] == "failed"
            stream.close()
        verified(made)


@pytest.mark.parametrize("kind", KINDS)
def test_with_clocks_an_hour_apart_no_gateway_ends_the_responses_of_another(
    kind: Kind, staged: Upstream, tmp_path: Path
) -> None:
    with scene(kind, tmp_path, staged) as made:
        servers = [made.start(environment=hours_off(hours)) for hours in (0, 1, -1)]
        found = [in_the_middle(made, one) for one in servers]
        created = [stored(made)[id].created for _, _, id in found]
        assert created[1] - created[0] > 3000
        assert created[0] - created[2] > 3000
        for _ in range(2):
            looked_around(made)
        for running, one in zip(servers, found, strict=True):
            goes_well(made, running, *one)
        verified(made)
