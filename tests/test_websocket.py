"""`/v1/responses` over a WebSocket: turns, errors, limits, and both sides leaving."""

import json
import signal
import socket as sockets
import sqlite3
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from openai import OpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.faults.upstream import SILENCE, STREAM, Flood, Hold, Upstream, chunk, stream, upstream
from tests.faults.wires import CHAT, SPEECHES
from tests.gateway_process import Gateway as Process
from tests.gateway_process import gateway
from tests.open_responses import ERROR_FRAME, EVENT, TERMINAL, Object, problems, terminal
from tests.raw_http import Client, frame
from tests.serving import NO_AUTHORITIES
from weft.gateway.app import Gateway
from weft.gateway.http_protocol import ConnectionLimits, protocol
from weft.gateway.memory import MemoryBudget
from weft.gateway.response_cache import MAX_RESPONSES
from weft.gateway.server import GatewayServer, listen
from weft.gateway.settings import load
from weft.gateway.websocket import MAX_QUEUED, ResponsesWebSocket
from weft.gateway.websocket_protocol import protocol as socket_protocol
from weft.gateway.writers import SocketWriter
from weft.sse import DONE, Event

PATIENCE = 60.0
DEMO = """
[upstreams.demo]
dialect = "openai-responses"
base_url = "demo:fast"
retry = { attempts = 1 }
breaker = { failures = 0 }
"""
CREATE: Object = {"type": "response.create", "model": "demo/chat", "input": "Hello"}
SPEECH = SPEECHES[CHAT]


@dataclass
class World:
    """A gateway, and the upstream that `chat/…` leads to."""

    process: Process
    upstream: Upstream

    @property
    def address(self) -> str:
        return self.process.url.replace("http", "ws", 1) + "/v1/responses"


def settings(upstream: Upstream, server: str = "") -> str:
    chat = f'[upstreams.chat]\ndialect = "openai-chat"\nbase_url = "{upstream.url}/v1"\n'
    return f'[server]\n{server}\n{DEMO}\n{chat}api_key = "sk-x"\nretry = {{ attempts = 1 }}\n'


@pytest.fixture(scope="module")
def far() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def world(far: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with gateway(settings(far), tmp_path_factory.mktemp("gateway")) as running:
        yield World(running, far)
    assert '"level":"error"' not in running.stderr


@pytest.fixture
def socket(world: World) -> Iterator[Connection]:
    with dialled(world.address) as made:
        yield made


def dialled(address: str, **headers: str) -> Connection:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return connect(
        address, proxy=None, additional_headers=named, open_timeout=PATIENCE, close_timeout=PATIENCE
    )


def say(socket: Connection, message: object) -> None:
    socket.send(message if isinstance(message, str) else json.dumps(message))


def heard(socket: Connection) -> Object:
    frame: Object = json.loads(socket.recv(PATIENCE))
    return frame


def turn(socket: Connection) -> list[Object]:
    """What is told up to the end of a turn."""
    frames = [heard(socket)]
    while frames[-1]["type"] not in ("error", *TERMINAL):
        frames.append(heard(socket))
    return frames


def is_answered(socket: Connection) -> bool:
    say(socket, CREATE)
    return bool(terminal(turn(socket))["status"] == "completed")


def closed(socket: Connection) -> tuple[int, str]:
    """Waits until the other side closes, with nothing more to say; returns how."""
    with pytest.raises(ConnectionClosed) as caught:
        heard(socket)
    frame = caught.value.rcvd
    assert frame is not None
    return frame.code, frame.reason


def chat(model: str, **more: object) -> Object:
    return {"type": "response.create", "model": f"chat/{model}", "input": "Hello", **more}


def text_of(frames: list[Object]) -> str:
    (item,) = terminal(frames)["output"]
    (part,) = item["content"]
    return str(part["text"])


# Turns


def test_what_is_asked_meanwhile_waits_its_turn(world: World, socket: Connection) -> None:
    hold = Hold()
    first = world.upstream.script(
        (STREAM, *map(chunk, SPEECH.head + SPEECH.content), hold, *map(chunk, SPEECH.end))
    )
    second = world.upstream.script(stream(*SPEECH.frames))
    say(socket, chat(first))
    say(socket, chat(second))
    say(socket, {**CREATE, "model": "demo/nothing"})
    hold.here()
    began = heard(socket)
    assert began["type"] == "response.created"
    assert world.upstream.exchanges(second) == []
    hold.release()
    one, two, three = [began, *turn(socket)], turn(socket), turn(socket)
    assert text_of(one) == text_of(two) != ""
    assert [frame["type"] for frame in three] == ["error"]
    assert is_answered(socket)


def test_a_stream_id_is_in_everything_that_is_told_about_it(socket: Connection) -> None:
    lane = 'a "lane"'
    say(socket, {**CREATE, "stream_id": lane})
    frames = turn(socket)
    assert {frame["stream_id"] for frame in frames} == {lane}
    assert terminal(frames)["status"] == "completed"
    say(socket, {**CREATE, "stream_id": lane, "model": "nobody"})
    assert [frame["stream_id"] for frame in turn(socket)] == [lane]
    say(socket, CREATE)
    assert [frame for frame in turn(socket) if "stream_id" in frame] == []


def test_every_create_is_a_request_of_its_own(world: World, socket: Connection) -> None:
    for _ in range(2):
        assert is_answered(socket)
    until(lambda: world.process.stderr.count('"dialect":"openai-responses"') >= 2)
    lines = [json.loads(line) for line in world.process.stderr.splitlines()]
    ids = [line["id"] for line in lines if line.get("dialect") == "openai-responses"]
    assert len(set(ids)) == len(ids)


def test_the_openai_package_has_a_conversation_over_a_socket(world: World) -> None:
    with OpenAI(api_key="x", base_url=f"{world.process.url}/v1", max_retries=0) as client:
        manager = client.responses.connect(
            websocket_connection_options={"proxy": None},  # type: ignore[typeddict-unknown-key]
            max_retries=0,
        )
        with manager as connection:
            said, ids = [], []
            for model in ("demo/chat", "demo/nobody", "demo/error-midstream", "demo/chat"):
                connection.response.create(model=model, input="Hello")
                for event in connection:
                    if event.type in ("error", *TERMINAL):
                        said.append(event.type)
                        break
                    if event.type == "response.created":
                        ids.append(event.response.id)
            connection.response.create(
                model="demo/chat", input="Go on", store=False, previous_response_id=ids[-1]
            )
            for event in connection:
                if event.type == "response.completed":
                    assert event.response.previous_response_id == ids[-1]
                    break
    assert said == ["response.completed", "error", "response.failed", "response.completed"]


def until(true: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if true():
            return
        tick.wait(0.005)
    raise AssertionError("waited in vain")


# Errors


WRONG: dict[str, tuple[object, int, str, str | None]] = {
    "nothing": ("", 400, "invalid_request", None),
    "no JSON": ("{", 400, "invalid_request", None),
    "no object": ("[]", 400, "invalid_request", None),
    "too deep": ('{"input":' + "[" * 100 + "]" * 100 + "}", 400, "invalid_request", None),
    "no type": ({"model": "demo/chat", "input": "x"}, 400, "invalid_request", "type"),
    "another type": ({**CREATE, "type": "response.steer"}, 400, "invalid_request", "type"),
    "no model": ({"type": "response.create", "input": "x"}, 400, "invalid_request", "model"),
    "a stream": ({**CREATE, "stream": False}, 400, "invalid_request", "stream"),
    "options of streams": (
        {**CREATE, "stream_options": None},
        400,
        "invalid_request",
        "stream_options",
    ),
    "the background": ({**CREATE, "background": False}, 400, "invalid_request", "background"),
    "a warm-up that cannot be read": (
        {**CREATE, "generate": False, "input": 5},
        400,
        "invalid_request",
        "input",
    ),
    "two things to go on from": (
        {**CREATE, "previous_response_id": "resp_1", "conversation": {"id": "conv_1"}},
        400,
        "invalid_request",
        "previous_response_id",
    ),
    "a conversation that nobody has": (
        {**CREATE, "conversation": "conv_1"},
        404,
        "invalid_request",
        "conversation",
    ),
    "an earlier response": (
        {**CREATE, "previous_response_id": "resp_1"},
        404,
        "previous_response_not_found",
        "previous_response_id",
    ),
    "an earlier response that is not stored": (
        {**CREATE, "previous_response_id": "resp_1", "store": False},
        404,
        "previous_response_not_found",
        "previous_response_id",
    ),
    "an unknown model": ({**CREATE, "model": "x/y"}, 404, "model_not_found", "model"),
    "a model that its upstream has not": (
        {**CREATE, "model": "demo/nobody"},
        404,
        "model_not_found",
        None,
    ),
    "no input that can be read": ({**CREATE, "input": 5}, 400, "invalid_request", "input"),
    "a key that the upstream refuses": (
        {**CREATE, "model": "demo/error-401"},
        502,
        "upstream_auth",
        None,
    ),
    "too many questions": (
        {**CREATE, "model": "demo/error-429"},
        429,
        "rate_limit_exceeded",
        None,
    ),
    "an overloaded model": (
        {**CREATE, "model": "demo/overloaded"},
        503,
        "overloaded",
        None,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_is_one_frame_and_leaves_the_socket_usable(name: str, socket: Connection) -> None:
    message, status, code, param = WRONG[name]
    say(socket, message)
    frame = heard(socket)
    assert problems(ERROR_FRAME, frame) == []
    error = frame["error"]
    assert (frame["status"], error["code"], error.get("param")) == (status, code, param)
    assert is_answered(socket)


def test_an_error_says_how_long_to_wait(socket: Connection) -> None:
    say(socket, {**CREATE, "model": "demo/error-429"})
    assert heard(socket)["error"]["headers"] == {"retry-after": "1"}


def test_an_upstream_that_breaks_off_makes_one_failed_response(
    world: World, socket: Connection
) -> None:
    hold = Hold()
    broken = world.upstream.script(
        (STREAM, *map(chunk, SPEECH.head + SPEECH.content), hold, chunk(SPEECH.error))
    )
    say(socket, chat(broken))
    hold.release()
    frames = turn(socket)
    assert [found for frame in frames for found in problems(EVENT, frame)] == []
    assert terminal(frames)["status"] == "failed"
    assert "error" not in [frame["type"] for frame in frames]
    assert is_answered(socket)


def test_events_keep_their_numbers_where_errors_and_the_terminator_are_left_out() -> None:
    events = [
        Event("a", b'{"type":"a","sequence_number":0}', 0),
        Event("error", b'{"type":"error","sequence_number":1}', 1),
        Event("b", b'{"type":"b","sequence_number":2}', 2),
        Event("", DONE),
    ]
    assert SocketWriter().write(events) == [
        b'{"type":"a","sequence_number":0}',
        b'{"type":"b","sequence_number":2}',
    ]
    assert SocketWriter("x").begin == b'{"stream_id":"x",'


# Going on


def answered(socket: Connection, message: Object) -> Object:
    say(socket, message)
    found = terminal(turn(socket))
    assert found["status"] == "completed"
    return found


def refused(socket: Connection, message: Object) -> str:
    say(socket, message)
    (frame,) = turn(socket)
    return str(frame["error"]["code"])


def messages(world: World, model: str, number: int) -> list[tuple[str, str]]:
    """What the upstream was told, the last time of so many: text by text."""
    body = json.loads(world.upstream.exchanges(model, number)[number - 1].body)
    found: list[tuple[str, str]] = []
    for one in body["messages"]:
        content = one["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        found += [(one["role"], part["text"]) for part in parts]
    return found


def read(world: World, path: str, **query: str) -> httpx.Response:
    url = f"{world.process.url}/v1/responses/{path}"
    return httpx.get(url, params=query, trust_env=False, timeout=PATIENCE, verify=NO_AUTHORITIES)


def ask(world: World, **body: object) -> Object:
    url = f"{world.process.url}/v1/responses"
    told = httpx.post(url, json=body, trust_env=False, timeout=PATIENCE, verify=NO_AUTHORITIES)
    assert told.status_code == 200, told.text
    found: Object = told.json()
    return found


SAID = "Warp and weft."
"""What the upstream says, whatever it is asked."""


@pytest.fixture
def model(world: World) -> str:
    return world.upstream.script(stream(*SPEECH.frames))


@pytest.mark.parametrize("store", [True, False])
def test_the_model_is_told_all_that_was_said_before(
    store: bool, world: World, socket: Connection, model: str
) -> None:
    first = answered(socket, chat(model, store=store, input="One"))
    more = {"store": store, "previous_response_id": first["id"]}
    second = answered(socket, chat(model, input="Two", **more))
    more = {"store": store, "previous_response_id": second["id"]}
    third = answered(socket, chat(model, input="Three", **more))
    said = [("user", "One"), ("assistant", SAID), ("user", "Two"), ("assistant", SAID)]
    assert messages(world, model, 2) == said[:3]
    assert messages(world, model, 3) == [*said, ("user", "Three")]
    assert third["previous_response_id"] == second["id"]
    assert read(world, third["id"]).status_code == (200 if store else 404)


def test_a_chain_may_go_on_from_any_response_that_is_remembered(
    world: World, socket: Connection, model: str
) -> None:
    first = answered(socket, chat(model, store=False, input="One"))
    more = {"store": False, "previous_response_id": first["id"]}
    for text in ("Two", "Another two"):
        answered(socket, chat(model, input=text, **more))
    said = [("user", "One"), ("assistant", SAID), ("user", "Another two")]
    assert messages(world, model, 3) == said


def test_what_was_stored_over_a_socket_is_read_over_http(
    world: World, socket: Connection, model: str
) -> None:
    first = answered(socket, chat(model, input="One"))
    more = {"previous_response_id": first["id"]}
    say(socket, chat(model, input="Two", **more))
    frames = turn(socket)
    second = terminal(frames)
    assert read(world, second["id"]).json() == second
    (item,) = read(world, f"{second['id']}/input_items").json()["data"]
    assert item["content"] == [{"type": "input_text", "text": "Two"}]
    resumed = read(world, second["id"], stream="true").text
    *events, done, last = resumed.split("\n\n")
    assert (done, last) == ("data: [DONE]", "")
    assert [json.loads(event.partition("data: ")[2]) for event in events] == frames
    third = ask(world, model="demo/chat", input="Three", previous_response_id=second["id"])
    assert third["previous_response_id"] == second["id"]


def test_what_was_stored_over_http_goes_on_over_a_socket(
    world: World, socket: Connection, model: str
) -> None:
    first = ask(world, model="demo/chat", input="One")
    code = refused(socket, chat(model, store=False, previous_response_id=first["id"]))
    assert code == "previous_response_not_found"
    second = answered(socket, chat(model, input="Two", previous_response_id=first["id"]))
    assert messages(world, model, 1)[::2] == [("user", "One"), ("user", "Two")]
    third = chat(model, input="Three", store=False, previous_response_id=second["id"])
    answered(socket, third)
    assert messages(world, model, 2)[::2] == [("user", "One"), ("user", "Two"), ("user", "Three")]


def test_what_is_stored_on_top_of_what_is_not_has_all_of_it(
    world: World, socket: Connection, model: str
) -> None:
    first = answered(socket, chat(model, store=False, input="One"))
    second = answered(socket, chat(model, input="Two", previous_response_id=first["id"]))
    assert read(world, first["id"]).status_code == 404
    assert read(world, second["id"]).json() == second
    with dialled(world.address) as another:
        answered(another, chat(model, input="Three", previous_response_id=second["id"]))
    said = [("user", "One"), ("assistant", SAID), ("user", "Two"), ("assistant", SAID)]
    assert messages(world, model, 3) == [*said, ("user", "Three")]


@pytest.mark.parametrize("store", [True, False])
def test_an_error_names_the_place_in_what_the_client_sent(store: bool, socket: Connection) -> None:
    first = answered(socket, {**CREATE, "store": store, "input": "Places"})
    items = [{"role": "user", "content": "Two"}, {"role": "user", "content": 5}]
    more = {"store": store, "previous_response_id": first["id"], "input": items}
    say(socket, {**CREATE, **more})
    (frame,) = turn(socket)
    assert frame["error"]["param"] == "input[1].content"


FAILING = ("demo/error-429", "demo/error-midstream", "demo/nobody", "nobody/nothing")


@pytest.mark.parametrize("failing", FAILING)
def test_a_response_that_was_gone_on_from_in_vain_is_forgotten(
    failing: str, socket: Connection
) -> None:
    first = answered(socket, {**CREATE, "store": False})
    more = {**CREATE, "store": False, "previous_response_id": first["id"]}
    say(socket, {**more, "model": failing})
    assert turn(socket)[-1]["type"] in ("error", "response.failed")
    assert refused(socket, more) == "previous_response_not_found"


def test_what_is_stored_goes_on_from_the_store_after_a_failure(socket: Connection) -> None:
    first = answered(socket, {**CREATE, "input": "Stored"})
    more = {**CREATE, "previous_response_id": first["id"]}
    refused(socket, {**more, "model": "demo/error-429"})
    answered(socket, more)


def test_what_was_deleted_is_not_gone_on_from(world: World, socket: Connection) -> None:
    first = answered(socket, {**CREATE, "input": "Deleted"})
    url = f"{world.process.url}/v1/responses/{first['id']}"
    assert httpx.delete(url, trust_env=False, timeout=PATIENCE).status_code == 200
    code = refused(socket, {**CREATE, "previous_response_id": first["id"]})
    assert code == "previous_response_not_found"


def test_a_socket_remembers_so_many_responses(socket: Connection) -> None:
    ids = [
        answered(socket, {**CREATE, "store": False, "input": f"Number {number}"})["id"]
        for number in range(MAX_RESPONSES + 1)
    ]
    more = {**CREATE, "store": False}
    assert refused(socket, {**more, "previous_response_id": ids[0]}) == (
        "previous_response_not_found"
    )
    answered(socket, {**more, "previous_response_id": ids[-1]})


def test_a_response_of_another_key_is_not_there(guarded: World) -> None:
    alice, bob = {"Authorization": "Bearer sk-alice"}, {"Authorization": "Bearer sk-bob"}
    with dialled(guarded.address, **alice) as socket:
        first = answered(socket, {**CREATE, "input": "Of Alice"})
    more = {**CREATE, "previous_response_id": first["id"]}
    with dialled(guarded.address, **bob) as socket:
        say(socket, more)
        (told,) = turn(socket)
        say(socket, {**more, "previous_response_id": "resp_x"})
        (absent,) = turn(socket)
        assert json.dumps(told).replace(first["id"], "resp_x") == json.dumps(absent)
    with dialled(guarded.address, **alice) as socket:
        answered(socket, more)


def test_without_a_store_a_socket_remembers_too(far: Upstream, tmp_path: Path) -> None:
    model = far.script(stream(*SPEECH.frames))
    with gateway(settings(far) + "\n[store]\nenabled = false\n", tmp_path) as running:
        world = World(running, far)
        with dialled(world.address) as socket:
            first = answered(socket, chat(model, input="One"))
            more = {"previous_response_id": first["id"]}
            second = answered(socket, chat(model, input="Two", **more))
        assert second["previous_response_id"] == first["id"]
        said = [("user", "One"), ("assistant", SAID), ("user", "Two")]
        assert messages(world, model, 2) == said
        with dialled(world.address) as socket:
            assert refused(socket, chat(model, **more)) == "previous_response_not_found"


def test_a_response_whose_client_left_is_stored_as_far_as_it_came(world: World, model: str) -> None:
    cut = world.upstream.script((STREAM, chunk(b"".join(SPEECH.frames[:2])), SILENCE))
    with dialled(world.address) as socket:
        say(socket, chat(cut))
        began = heard(socket)["response"]
    until(lambda: read(world, began["id"]).json()["status"] != "in_progress")
    found = read(world, began["id"]).json()
    assert (found["status"], found["output"][0]["content"][0]["text"]) == ("cancelled", "Warp ")


def test_a_response_goes_on_for_a_while_when_its_client_has_left(
    far: Upstream, tmp_path: Path
) -> None:
    hold = Hold()
    frames = stream(*SPEECH.frames)
    model = far.script((*frames[:-2], hold, *frames[-2:]), frames)
    with gateway(settings(far, "resume_window = 30.0"), tmp_path) as running:
        world = World(running, far)
        with dialled(world.address) as socket:
            say(socket, chat(model, input="One"))
            began = heard(socket)["response"]
        hold.release()
        until(lambda: read(world, began["id"]).json()["status"] == "completed")
        with dialled(world.address) as socket:
            answered(socket, chat(model, input="Two", previous_response_id=began["id"]))
            say(socket, {**CREATE, "model": "demo/error-midstream"})
            assert terminal(turn(socket))["status"] == "failed"
            assert refused(socket, {**CREATE, "model": "demo/error-429"}) == "rate_limit_exceeded"
        assert messages(world, model, 2)[1:] == [("assistant", SAID), ("user", "Two")]


def test_a_response_whose_end_cannot_be_stored_is_not_told_as_whole(
    far: Upstream, tmp_path: Path
) -> None:
    hold = Hold()
    frames = stream(*SPEECH.frames)
    model = far.script((*frames[:-2], hold, *frames[-2:]))
    with (
        gateway(settings(far), tmp_path) as running,
        dialled(World(running, far).address) as socket,
        closing(sqlite3.connect(tmp_path / "weft.db", isolation_level=None)) as store,
    ):
        say(socket, chat(model))
        id = heard(socket)["response"]["id"]
        until(lambda: store.execute("DELETE FROM block").rowcount > 0)
        hold.release()
        told = turn(socket)[-1]
        assert (told["type"], told["response"]["status"]) == ("response.failed", "failed")
        more = {**CREATE, "store": False, "previous_response_id": id}
        assert refused(socket, more) == "previous_response_not_found"
        assert is_answered(socket)


@pytest.mark.parametrize("store", [True, False])
def test_a_warm_up_asks_nobody_and_is_gone_on_from(
    store: bool, world: World, socket: Connection, model: str
) -> None:
    warm = answered(socket, chat(model, generate=False, input="One", store=store))
    assert (warm["output"], warm["store"], warm["usage"]["total_tokens"]) == ([], False, 0)
    assert world.upstream.exchanges(model) == []
    assert read(world, warm["id"]).status_code == 404
    more = {"previous_response_id": warm["id"], "store": store}
    first = answered(socket, chat(model, input=[], **more))
    assert messages(world, model, 1) == [("user", "One")]
    more["previous_response_id"] = first["id"]
    warm = answered(socket, chat(model, generate=False, input="Two", **more))
    answered(socket, chat(model, input="Three", store=store, previous_response_id=warm["id"]))
    said = [("user", "One"), ("assistant", SAID), ("user", "Two\nThree")]
    assert messages(world, model, 2) == said


# What no socket takes


def test_bytes_are_not_taken(socket: Connection) -> None:
    socket.send(json.dumps(CREATE).encode())
    assert closed(socket) == (1003, "expected text messages with JSON")


def test_a_message_over_the_limit_closes_the_socket(far: Upstream, tmp_path: Path) -> None:
    limits = "[server.limits]\nwebsocket_message = 4096\n"
    with gateway(settings(far, limits), tmp_path) as running:
        address = World(running, far).address
        with dialled(address) as socket:
            say(socket, json.dumps({**CREATE, "input": ""}).ljust(4096))
            assert terminal(turn(socket))["status"] == "completed"
            say(socket, json.dumps({**CREATE, "input": ""}).ljust(4097))
            assert closed(socket)[0] == 1009


TEXT, CONTINUED = 1, 0


def raw_socket(process: Process) -> Client:
    """A WebSocket whose frames are made by hand."""
    client = Client(int(process.url.rpartition(":")[2]))
    client.upgrade("/v1/responses")
    return client


def close_code(client: Client) -> int:
    """Reads the close frame, which is the next, and the end of the connection behind it."""
    head, size = client.exactly(2)
    assert head == 0x88
    code = int.from_bytes(client.exactly(size)[:2])
    assert client.socket.recv(1) == b""  # the end, and no reset
    return code


NOT_UTF8: dict[str, tuple[bytes, ...]] = {
    "a bare byte": (frame(TEXT, b'{"type": "\xff"}'),),
    "half a character": (frame(TEXT, b"\xe2\x82"),),
    "a surrogate": (frame(TEXT, b"\xed\xa0\x80"),),
    "in pieces": (frame(TEXT, b"{", last=False), frame(CONTINUED, b"\xff}")),
    "with more behind it": (frame(TEXT, b"\xff"), frame(TEXT, b" " * 3_000_000)),
}


@pytest.mark.parametrize("name", NOT_UTF8)
def test_a_text_that_is_not_utf_8_closes_the_socket(world: World, name: str) -> None:
    with raw_socket(world.process) as client:
        for one in NOT_UTF8[name]:
            client.send(one)
        assert close_code(client) == 1007
    assert "UnicodeDecodeError" not in world.process.stderr


def test_a_character_may_be_cut_in_two(world: World) -> None:
    whole = json.dumps({**CREATE, "input": "é"}, ensure_ascii=False).encode()
    cut = whole.index("é".encode()) + 1
    with raw_socket(world.process) as client:
        client.send(frame(TEXT, whole[:cut], last=False) + frame(CONTINUED, whole[cut:]))
        client.until(b'"type":"response.completed"')


LARGE = 40 * 1024 * 1024
TOO_LARGE: dict[str, tuple[bytes, ...]] = {
    "in one frame": (frame(TEXT, b" " * LARGE),),
    "in pieces": tuple(
        frame(TEXT if number == 0 else CONTINUED, b" " * 1_000_000, last=False)
        for number in range(40)
    ),
    "as it is told": (frame(TEXT, b"{", size=2**62),),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_client_that_still_writes_reads_that_its_message_is_too_large(
    world: World, name: str
) -> None:
    """It reads when all of it is written."""
    with raw_socket(world.process) as client:
        for one in TOO_LARGE[name]:
            client.send(one)
        assert close_code(client) == 1009


def test_the_websockets_package_reads_that_its_message_is_too_large(socket: Connection) -> None:
    with suppress(ConnectionClosed):
        say(socket, " " * LARGE)
    assert closed(socket)[0] == 1009


@pytest.mark.parametrize(
    ("megabytes", "store"), [(9, True), pytest.param(60, False, marks=pytest.mark.long)]
)
def test_events_of_any_size_go_out_in_one_message(
    world: World, megabytes: int, store: bool
) -> None:
    """Those at the end repeat all of the answer."""
    piece = "0123456789" * 50_000
    delta = SPEECH.content[0].replace(b"Warp ", piece.encode())
    deltas = [delta for _ in range(2 * megabytes)]
    model = world.upstream.script(stream(*SPEECH.head, *deltas, *SPEECH.end))
    with connect(world.address, proxy=None, max_size=None) as socket:
        say(socket, chat(model, store=store))
        frames = turn(socket)
        assert terminal(frames)["status"] == "completed"
        assert text_of(frames) == piece * 2 * megabytes
        assert is_answered(socket)


def test_too_many_messages_that_wait_close_the_socket(world: World, socket: Connection) -> None:
    model = world.upstream.script((STREAM, SILENCE))
    say(socket, chat(model))
    exchange = world.upstream.exchange(model)
    for _ in range(MAX_QUEUED):
        say(socket, CREATE)
    assert not exchange.is_gone
    say(socket, CREATE)
    assert closed(socket) == (1008, "too many queued messages")
    exchange.left()


# Handshakes


KEYS = (
    '[server.keys]\nalice = "sk-alice"\nbob = "sk-bob"\n[server.limits]\nwebsockets_per_key = 2\n'
)


@pytest.fixture(scope="module")
def guarded(far: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with gateway(settings(far, KEYS), tmp_path_factory.mktemp("guarded")) as running:
        yield World(running, far)


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer sk-eve"}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer sk-alice", "Origin": "https://evil.example"}, 403, None),
        ({"Authorization": "Bearer sk-alice", "Sec_Fetch_Site": "cross-site"}, 403, None),
    ],
    ids=["no key", "another key", "a foreign page", "a foreign site"],
)
def test_who_may_not_come_in_is_told_before_the_socket_is_open(
    headers: dict[str, str], status: int, code: str | None, guarded: World
) -> None:
    with pytest.raises(InvalidStatus) as caught:
        dialled(guarded.address, **headers)
    answer = caught.value.response
    error = json.loads(answer.body)["error"]
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert code is None or error["code"] == code


@pytest.mark.parametrize("header", ["Authorization", "X_Api_Key"])
def test_a_key_opens_the_socket(header: str, guarded: World) -> None:
    secret = "Bearer sk-alice" if header == "Authorization" else "sk-alice"
    with dialled(guarded.address, **{header: secret}) as socket:
        assert is_answered(socket)


def test_a_page_of_our_own_may_open_a_socket(guarded: World) -> None:
    origin = guarded.process.url
    with dialled(guarded.address, Authorization="Bearer sk-alice", Origin=origin) as socket:
        assert is_answered(socket)


def test_a_key_has_so_many_sockets_at_a_time(guarded: World) -> None:
    alice, bob = {"Authorization": "Bearer sk-alice"}, {"Authorization": "Bearer sk-bob"}
    with dialled(guarded.address, **bob), dialled(guarded.address, **bob) as second:
        with dialled(guarded.address, **bob) as third:
            assert closed(third) == (1013, "this API key has 2 open sockets, which is its limit")
        with dialled(guarded.address, **alice) as other:
            assert is_answered(other)
        second.close()
        until(lambda: _opens(guarded, bob))


def _opens(world: World, headers: dict[str, str]) -> bool:
    with dialled(world.address, **headers) as socket:
        try:
            return is_answered(socket)
        except ConnectionClosed:
            return False


def test_where_sockets_are_switched_off_clients_are_told_to_use_http(
    far: Upstream, tmp_path: Path
) -> None:
    with (
        gateway(settings(far, "websocket = false"), tmp_path) as running,
        pytest.raises(InvalidStatus) as caught,
    ):
        dialled(World(running, far).address)
    assert caught.value.response.status_code == 426
    # RFC 9110 (15.5.22 and 7.8): both are required.
    headers = caught.value.response.headers
    assert (headers["upgrade"], headers["connection"]) == ("HTTP/1.1", "Upgrade")
    assert "WebSocket" in json.loads(caught.value.response.body)["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/realtime", "/"])
def test_there_is_one_place_for_sockets(path: str, world: World) -> None:
    with pytest.raises(InvalidStatus) as caught:
        dialled(world.address.replace("/v1/responses", path))
    assert caught.value.response.status_code in (403, 404)


# Clients that leave


def _close(socket: Connection) -> None:
    socket.close()


def _break(socket: Connection) -> None:
    socket.socket.shutdown(sockets.SHUT_RDWR)


@pytest.mark.parametrize("leave", [_close, _break])
@pytest.mark.parametrize("moment", ["before the head", "in the middle"])
def test_a_client_that_leaves_ends_its_upstream_at_once(
    moment: str, leave: Callable[[Connection], None], world: World
) -> None:
    begun = () if moment == "before the head" else (STREAM, chunk(b"".join(SPEECH.frames[:2])))
    model = world.upstream.script((*begun, SILENCE))
    waiting = world.upstream.script(stream(*SPEECH.frames))
    with dialled(world.address) as socket:
        say(socket, chat(model))
        exchange = world.upstream.exchange(model)
        say(socket, chat(waiting))
        if begun:
            assert heard(socket)["type"] == "response.created"
        assert not exchange.is_gone
        leave(socket)
        exchange.left()
    assert world.upstream.exchanges(waiting) == []


def test_a_client_that_does_not_read_stops_its_upstream_and_then_loses_it(
    far: Upstream, tmp_path: Path
) -> None:
    piece = chunk(SPEECH.content[0] * 200)
    flood = Flood(piece, 3000)
    model = far.script((STREAM, *map(chunk, SPEECH.head), flood, SILENCE))
    with gateway(settings(far, "[server.limits]\nstalled = 0.5\n"), tmp_path) as running:
        address = World(running, far).address
        with connect(address, proxy=None, max_queue=1, close_timeout=0.1) as socket:
            say(socket, chat(model))
            exchange = far.exchange(model)
            exchange.left()
        assert exchange.sent < len(piece) * flood.times / 4


# Servers that leave


@contextmanager
def limited(folder: Path, lifetime: float) -> Iterator[str]:
    """The address of sockets that may be used for so many seconds, in this process."""
    (folder / "weft.toml").write_text(DEMO, encoding="utf-8")
    app = Limited(Gateway(load(folder / "weft.toml", {})), lifetime)
    config = uvicorn.Config(
        app,
        http=protocol(ConnectionLimits()),
        ws=socket_protocol(MemoryBudget(1 << 30)),
        lifespan="off",
        log_config=None,
    )
    ready = threading.Event()
    server = GatewayServer(config, app, drain=0.0, ready=ready.set)
    listening = listen("127.0.0.1", 0)
    port = listening[0].getsockname()[1]
    thread = threading.Thread(target=server.run, args=(listening,), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield f"ws://127.0.0.1:{port}/v1/responses"
    finally:
        server.stop()
        server.stop()
        thread.join(PATIENCE)


class Limited:
    """A gateway whose sockets have another lifetime."""

    def __init__(self, gateway: Gateway, lifetime: float) -> None:
        self._socket = ResponsesWebSocket(gateway, lifetime=lifetime)
        self.drain = self._socket.drain

    @property
    def app(self) -> Any:
        return self

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        about = {"weft.id": "req_1", "weft.caller": ""}
        await self._socket({**scope, **about}, receive, send)

    def abort(self) -> None:
        """Nothing goes on for long."""


def test_a_socket_that_was_used_for_long_enough_is_closed(tmp_path: Path) -> None:
    with limited(tmp_path, 0.3) as address, dialled(address) as socket:
        assert is_answered(socket)
        frame = heard(socket)
        assert problems(ERROR_FRAME, frame) == []
        assert frame["error"]["code"] == "websocket_connection_limit_reached"
        assert closed(socket) == (1000, "lifetime exceeded")


def test_a_socket_that_nobody_used_is_used_up_as_well(tmp_path: Path) -> None:
    with limited(tmp_path, 0.0) as address, dialled(address) as socket:
        frame = heard(socket)
        assert frame["error"]["code"] == "websocket_connection_limit_reached"
        assert closed(socket) == (1000, "lifetime exceeded")


def test_a_server_that_leaves_closes_idle_sockets_at_once(far: Upstream, tmp_path: Path) -> None:
    with gateway(settings(far), tmp_path) as running, dialled(World(running, far).address) as idle:
        assert is_answered(idle)
        running.process.send_signal(signal.SIGTERM)
        assert closed(idle) == (1001, "the server is shutting down")
        assert running.process.wait(PATIENCE) == 0


def test_a_server_that_leaves_tells_what_is_under_way(far: Upstream, tmp_path: Path) -> None:
    hold = Hold()
    model = far.script((*stream(*SPEECH.frames)[:-2], hold, *stream(*SPEECH.frames)[-2:]))
    with (
        gateway(settings(far), tmp_path) as running,
        dialled(World(running, far).address) as busy,
        dialled(World(running, far).address) as idle,
    ):
        say(busy, chat(model))
        began = heard(busy)
        say(busy, CREATE)
        running.process.send_signal(signal.SIGTERM)
        assert closed(idle)[0] == 1001
        hold.release()
        assert terminal([began, *turn(busy)])["status"] == "completed"
        assert closed(busy) == (1001, "the server is shutting down")
        assert running.process.wait(PATIENCE) == 0
