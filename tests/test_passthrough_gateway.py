"""The law of passthrough through the real gateway: line ends, reads and odd streams change nothing
of what a client reads, what is stored, and what is resumed.
"""

import json
from collections.abc import Iterator
from itertools import count

import pytest

from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES, SPEECHES
from tests.framings import FRAMINGS, Told, data_of
from tests.passing_world import WIRES, Passing, passing, streamed
from tests.sdk_readers import Official, spelled
from tests.test_passthrough import CAPTURES, QUIRKS, Capture, assert_read
from weft.assembler import Response, TextItem
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.ids import Ids
from weft.parts import ToolCall
from weft.relay.audit import _DUPLICATES
from weft.request import Request
from weft.sse import Frame, FrameReader

SIZES = (0, 7)
"""Bytes of a read: all at once, or a few."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Passing]:
    with passing(tmp_path_factory.mktemp("passing")) as made:
        yield made


@pytest.fixture(scope="module")
def official() -> Iterator[Official]:
    made = Official()
    yield made
    made.close()


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def stored(
    request: pytest.FixtureRequest, world: Passing, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Passing]:
    """The same with each of the databases."""
    if request.param == "sqlite":
        yield world
        return
    with passing(tmp_path_factory.mktemp("postgres"), "postgres") as made:
        yield made


_numbers = count(1)
_ID = {CHAT: b'"c1"', RESPONSES: b'"resp_1"', MESSAGES: b'"msg_1"', GEMINI: b'"r1"'}


def spoken(wire: str) -> list[Told]:
    """A plain answer, as an upstream of this dialect tells it, under an id of its own."""
    reader, own = FrameReader(), b'"answer_%d"' % next(_numbers)
    frames = reader.feed(b"".join(SPEECHES[wire].frames))
    return [(frame.event, frame.data.replace(_ID[wire], own)) for frame in frames]


def as_told(wire: str, model: str, events: list[Told]) -> list[bytes]:
    """The data of an answer, as a client of the same dialect is told it."""
    dialect = DIALECTS[wire]
    rename = dialect.with_model
    shown = [data if rename is None else rename(Frame(data, name), model) for name, data in events]
    ended = dialect.terminator is None or shown[-1] == dialect.terminator
    return shown if ended else [*shown, dialect.terminator or b""]


def read(wire: str, raw: bytes) -> Response:
    """What a client reads."""
    reader, pipe = FrameReader(), Pipe(DIALECTS[wire], Context(Request("m"), ids=Ids(b"client")))
    pipe.feed(reader.feed(raw) + reader.finish())
    pipe.finish()
    return pipe.response


# Framing

EVERY_FRAMING = pytest.mark.parametrize("framing", FRAMINGS)
EVERY_WIRE = pytest.mark.parametrize("wire", WIRES)


@EVERY_WIRE
@EVERY_FRAMING
@pytest.mark.parametrize("size", SIZES)
def test_the_data_of_an_upstream_is_told_in_our_own_framing(
    stored: Passing, wire: str, framing: str, size: int
) -> None:
    events = spoken(wire)
    model = stored.says(wire, FRAMINGS[framing](events), size)
    told = stored.ask(wire, model)
    assert told.status_code == 200
    assert told.headers["content-type"].startswith("text/event-stream")
    assert data_of(told.content) == as_told(wire, model, events)
    assert b"\r" not in told.content
    assert read(wire, told.content).text == "Warp and weft."


@EVERY_FRAMING
def test_a_usage_nobody_asked_for_is_not_told(world: Passing, framing: str) -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
    *events, done = spoken(CHAT)
    raw = FRAMINGS[framing]([*events, ("", usage), done])
    told = world.ask(CHAT, world.says(CHAT, raw), stream_options=None)
    assert data_of(told.content) == [data for _, data in [*events, done]]
    *events, done = spoken(CHAT)
    asked = world.ask(CHAT, world.says(CHAT, FRAMINGS[framing]([*events, ("", usage), done])))
    assert usage in data_of(asked.content)


@EVERY_FRAMING
@pytest.mark.parametrize("wire", [CHAT, MESSAGES])
def test_a_stream_with_ids_is_resumed_from_every_event(
    stored: Passing, wire: str, framing: str
) -> None:
    said = spoken(wire)
    model = stored.says(wire, FRAMINGS[framing](said))
    told = stored.ask(wire, model, headers={"weft-resume": "1"})
    events = told.content.split(b"\n\n")[:-1]
    assert data_of(told.content) == as_told(wire, model, said)
    ids = [event.split(b"\n")[0].removeprefix(b"id: ").decode() for event in events]
    assert [int(id.rpartition("/")[2]) for id in ids] == list(range(len(events)))
    for number, id in enumerate(ids):
        rest = stored.ask(wire, model, headers={"last-event-id": id})
        assert rest.status_code == 200
        assert rest.content == b"".join(one + b"\n\n" for one in events[number + 1 :])
    assert len(stored.upstream.exchanges(model.partition("/")[2])) == 1


@EVERY_FRAMING
@pytest.mark.parametrize("upstream", WIRES)
def test_a_stored_response_is_resumed_from_every_event(
    stored: Passing, upstream: str, framing: str
) -> None:
    model = stored.says(upstream, FRAMINGS[framing](spoken(upstream)))
    told = stored.ask(RESPONSES, model).content
    events = [json.loads(data) for data in data_of(told)[:-1]]
    id = events[0]["response"]["id"]
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    whole = told.split(b"\n\n")[:-1]
    for number in range(-1, len(events)):
        rest = stored.get(f"/v1/responses/{id}?stream=true&starting_after={number}")
        assert rest.content == b"".join(one + b"\n\n" for one in whole[number + 1 :])
    kept = stored.get(f"/v1/responses/{id}").json()
    assert (kept["id"], kept["status"]) == (id, "completed")
    assert kept == events[-1]["response"]


@EVERY_FRAMING
@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("size", SIZES)
def test_a_websocket_is_told_the_same_messages_however_its_upstream_is_framed(
    stored: Passing, official: Official, upstream: str, framing: str, size: int
) -> None:
    said = spoken(upstream)
    model = stored.says(upstream, FRAMINGS[framing](said), size)
    messages = stored.ask_over_socket(model)
    if upstream == RESPONSES:
        assert [*messages, b"[DONE]"] == as_told(upstream, model, said)
    raw = as_events(messages)
    assert (official.read(RESPONSES, raw).text, read(RESPONSES, raw).findings) == (
        "Warp and weft.",
        (),
    )
    id = json.loads(messages[0])["response"]["id"]
    replayed = stored.get(f"/v1/responses/{id}?stream=true")
    assert data_of(replayed.content) == [*messages, b"[DONE]"]
    assert stored.get(f"/v1/responses/{id}").json() == json.loads(messages[-1])["response"]


def as_events(messages: list[bytes]) -> bytes:
    """Messages of a WebSocket as a client without one would have read them."""
    named = [(str(json.loads(data)["type"]), data) for data in messages]
    return FRAMINGS["LF"]([*named, ("", b"[DONE]")])


@EVERY_FRAMING
@pytest.mark.parametrize("client", WIRES)
def test_every_client_reads_every_upstream_however_it_is_framed(
    stored: Passing, official: Official, client: str, framing: str
) -> None:
    for upstream in WIRES:
        model = stored.says(upstream, FRAMINGS[framing](spoken(upstream)), 11)
        told = stored.ask(client, model)
        assert told.status_code == 200
        seen = official.read(client, told.content)
        assert (seen.text, seen.raised) == ("Warp and weft.", "")


TYPES = (
    "text/event-stream",
    "text/event-stream; charset=utf-8",
    "Text/Event-Stream;charset=UTF-8",
    "text/plain",
    "application/octet-stream",
    "application/json",
    None,
)


@pytest.mark.parametrize("kind", TYPES)
def test_what_an_upstream_calls_its_stream_does_not_matter(
    world: Passing, official: Official, kind: str | None
) -> None:
    line = f"Content-Type: {kind}\r\n" if kind else ""
    head = f"HTTP/1.1 200 OK\r\n{line}Transfer-Encoding: chunked\r\n\r\n".encode()
    for upstream in WIRES:
        raw = FRAMINGS["CRLF"](spoken(upstream))
        model = world.model(upstream, streamed(raw, 50, head))
        for client in (upstream, CHAT if upstream is not CHAT else MESSAGES):
            told = world.ask(client, model)
            assert (told.status_code, official.read(client, told.content).text) == (
                200,
                "Warp and weft.",
            )


# A call, and something odd behind it


def piece(delta: object, finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()


def call(id: str | None = "call_1", name: str | None = "look", index: int = 0) -> dict[str, object]:
    function = {"name": name, "arguments": '{"x":1}'}
    return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}


HEAD, DONE = piece({"role": "assistant", "content": ""}), b"[DONE]"
TEXT, END = piece({"content": "Hm."}), piece({}, "tool_calls")
ODD: dict[str, list[bytes]] = {
    "nothing odd": [HEAD, piece(call()), END, DONE],
    "finish stop": [HEAD, piece(call()), piece({}, "stop"), DONE],
    "finish with the call": [HEAD, piece(call(), "stop"), DONE],
    "two finishes": [HEAD, piece(call()), END, piece({}, "stop"), DONE],
    "no finish": [HEAD, piece(call()), DONE],
    "an unknown reason": [HEAD, piece(call()), piece({}, "odd"), DONE],
    "an unknown event": [HEAD, piece(call()), b'{"type":"nobody.knows"}', END, DONE],
    "the id again": [HEAD, piece(call()), piece(call()), END, DONE],
    "the id in another place": [HEAD, piece(call()), piece(call(index=1)), END, DONE],
    "a comment as data": [HEAD, piece(call()), b": ping", END, DONE],
    "text before, in one read": [TEXT, piece(call()), piece({}, "odd"), DONE],
    "text in the same chunk": [piece({"content": "Hm.", **call()}), END, DONE],
    "another choice before": [piece(call("call_2", "rm"), index=1), HEAD, piece(call()), END, DONE],
    "another choice after": [HEAD, piece(call()), piece(call("call_2", "rm"), index=1), END, DONE],
    "another choice that ends first": [
        HEAD, piece(call()), piece({"content": "no"}, "stop", 1), END, DONE
    ],
    "a nameless call beside it": [HEAD, piece(call("call_2", None, 1)), piece(call()), END, DONE],
}  # fmt: skip
"""Chat streams that ask for one call: look, with x = 1."""


@pytest.mark.parametrize("oddity", ODD)
@pytest.mark.parametrize("client", WIRES)
def test_a_call_is_told_once_whatever_is_odd_behind_it(
    world: Passing, official: Official, client: str, oddity: str
) -> None:
    events = [("", data) for data in ODD[oddity]]
    for size in SIZES:
        told = world.ask(client, world.says(CHAT, FRAMINGS["LF"](events), size))
        heard, seen = read(client, told.content), official.read(client, told.content)
        assert [one for one in heard.findings if one.code in _DUPLICATES] == []
        if seen.raised:  # some clients cannot be told of a call without a name
            assert oddity.startswith("a nameless")
            assert client in (MESSAGES, GEMINI)
        else:
            assert [one[1:] for one in seen.calls] == [("look", '{"x":1}')]
            assert seen.calls[0][0] == "call_1"
            assert seen.text in ("", "Hm.")


@pytest.mark.parametrize("client", WIRES)
def test_the_demo_that_repeats_its_calls_is_read_as_one(
    world: Passing, official: Official, client: str
) -> None:
    told = world.ask(client, "demo/duplicate-calls", tools=tools(client))
    seen = official.read(client, told.content)
    assert not seen.raised
    assert len(seen.calls) == len(set(seen.calls)) == 1
    assert all(seen.calls[0])


def tools(client: str) -> list[object]:
    """A tool, as each dialect declares it."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "weather", "parameters": schema}
    declared: dict[str, list[object]] = {
        CHAT: [{"type": "function", "function": function}],
        RESPONSES: [{"type": "function", **function}],
        MESSAGES: [{"name": "weather", "input_schema": schema}],
        GEMINI: [{"functionDeclarations": [function]}],
    }
    return declared[client]


# Captures

DOUBLED = ("whole-call-then-", "thought-signature-alone", "duplicate", "name-comes-late")
SLICE = [
    capture
    for number, capture in enumerate(CAPTURES)
    if number % 25 == 0 or str(capture).removeprefix("openai-chat-").startswith(DOUBLED)
]


@pytest.mark.parametrize("capture", SLICE, ids=str)
def test_some_captures_reach_every_client(
    world: Passing, official: Official, capture: Capture
) -> None:
    assert_reaches(world, official, capture)


@pytest.mark.long
@pytest.mark.parametrize("capture", CAPTURES, ids=str)
def test_every_capture_reaches_every_client(
    world: Passing, official: Official, capture: Capture
) -> None:
    assert_reaches(world, official, capture)


def has_answer(capture: Capture) -> bool:
    """Whether it is more than an error, which is told in another way over a WebSocket."""
    meant = read(RESPONSES, capture.raw)
    return meant.error is None and bool(meant.items)


ANSWERS = [one for one in CAPTURES if one.wire == RESPONSES and has_answer(one)]


@pytest.mark.long
@pytest.mark.parametrize("capture", ANSWERS, ids=str)
def test_every_responses_capture_is_read_over_a_websocket(
    world: Passing, official: Official, capture: Capture
) -> None:
    meant = read(RESPONSES, capture.raw)
    for size in SIZES:
        raw = as_events(world.ask_over_socket(world.says(RESPONSES, capture.raw, size)))
        heard = read(RESPONSES, raw)
        assert_read(heard, official.read(RESPONSES, raw))
        assert (words(heard), calls(heard)) == (words(meant), calls(meant))


def assert_reaches(world: Passing, official: Official, capture: Capture) -> None:
    """Official clients have its text and its calls, each once; or they raise."""
    meant = read(capture.wire, capture.raw)
    for client in WIRES:
        for size in SIZES:
            told = world.ask(client, world.says(capture.wire, capture.raw, size))
            if told.status_code != 200:
                assert meant.error is not None or not meant.items
                assert told.json()
                continue
            heard = read(client, told.content)
            assert_read(heard, official.read(client, told.content))
            if meant.error is not None:
                assert heard.error is not None
            elif heard.error is None:
                assert words(heard) == words(meant)
                told_calls = calls(heard)
                if meant.finish_reason == "length" and meant.invalid_tool_calls:
                    # A call that the limit has cut is told as far as it came; a wire without end
                    # marks cannot say that it is not whole.
                    told_calls = told_calls[: len(calls(meant))]
                assert told_calls == calls(meant)


@pytest.mark.parametrize("quirk", QUIRKS, ids=str)
def test_an_official_client_has_what_an_odd_stream_means(
    world: Passing, official: Official, quirk: Capture
) -> None:
    expected = json.loads(quirk.path.with_name("expected.json").read_bytes())[quirk.path.name]
    for client in WIRES:
        told = world.ask(client, world.says(CHAT, quirk.raw))
        if expected["error"] is not None:
            failed = told.status_code != 200 or official.read(client, told.content).raised
            assert failed
            continue
        seen = official.read(client, told.content)
        assert not seen.raised
        if "refusal" not in expected:
            assert seen.text == expected["text"]
        wanted = [
            (one["id"], one["name"], spelled(json.dumps(one["arguments"])))
            for one in expected["tool_calls"]
        ]
        assert [call[1:] for call in seen.calls] == [call[1:] for call in wanted]
        ids = [id for id, _, _ in seen.calls]
        assert all(ids)
        assert len(set(ids)) == len(ids)
        assert all(id in (None, own) for own, (id, _, _) in zip(ids, wanted, strict=True))
        if client in CALLS_WANTED:
            assert (seen.finish == CALLS_WANTED[client]) == bool(wanted)


CALLS_WANTED = {CHAT: "tool_calls", MESSAGES: "tool_use"}
"""How the end says that calls are to be answered, where there is a word for it."""


def words(response: Response) -> str:
    """All that it says, in its order: some dialects have no refusals apart."""
    return "".join(one.text for one in response.items if isinstance(one, TextItem))


def calls(response: Response) -> list[tuple[str, str]]:
    """What a client is to do, in whatever spelling: functions by name, with their arguments; the
    text for a custom tool may have been wrapped."""
    found = [one for one in response.tool_calls if one.kind in ("function", "custom")]
    own = [one for one in found if not one.provider_executed and one.name not in HOSTED]
    return [(one.name, unwrapped(one)) for one in own]


HOSTED = frozenset(
    {"shell", "apply_patch", "computer", "local_shell", "tool_search", "find_thread"}
)
"""Tools of the Responses dialect that other clients run as functions; and one that a host runs
itself (own-custom-tools), though only its list of tools tells."""


def unwrapped(call: ToolCall) -> str:
    if call.format == "text":
        return call.params
    value = json.loads(call.params)
    alone = isinstance(value, dict) and list(value) == ["input"]
    return str(value["input"]) if alone else spelled(call.params)
