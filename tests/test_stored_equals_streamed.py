"""What is stored is what was streamed: the record, the bytes, the body, and what the next turn is
told, whatever an upstream says.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.captures import HERE
from tests.clients.drivers import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.gateway_process import gateway
from tests.played import Play, Played
from tests.stored_logs import as_sent, audit_log, events_of, unpack
from tests.strategies import FEW, LEGAL, QUICK, STEPS, Legal
from tests.test_relay_run import REQUEST_BODIES, upstream_config
from weft import decode_all, encode
from weft.assembler import CUT, ERROR, Item, ReasoningItem, Response, TextItem
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects import DialectName, dialect_named
from weft.gateway import stored_completions, stored_responses
from weft.gateway.sessions import Sessions, parse_preamble
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)
from weft.relay.checksum import with_record
from weft.relay.comparison import comparable, different_fields
from weft.relay.incoming import (
    IncomingRequest,
    RequestBody,
    RequestFailed,
    RequestLimits,
    StorePolicy,
    api_of,
)
from weft.relay.persistence import Persistence
from weft.relay.routing import Routing
from weft.relay.run import Run
from weft.relay.stream import Stream
from weft.request import CallContent, Request, TextContent
from weft.scrub import Scrubber
from weft.sse import Event, write_events
from weft.store.records import Block, Ending, Entry
from weft.store.urls import store_from_url

SAME, SAME_FEW = settings(QUICK, derandomize=True), settings(FEW, derandomize=True)
"""The same streams each time: should there be one in ten thousand that the audit misreads, whoever
changes something else is not to meet it."""

WIRES = (CHAT, RESPONSES, MESSAGES, GEMINI)


class World:
    """A store, and upstreams that send given parts."""

    def __init__(self, runner: asyncio.Runner, folder: Path) -> None:
        self.runner = runner
        self.store = store_from_url(f"sqlite:///{folder}/weft.db")
        self.sessions = Sessions(Persistence(self.store))
        runner.run(self.store.open())

    async def send(
        self, parts: list[Part], upstream: DialectName, client: str, *, stream: bool
    ) -> tuple[bytes, str | None]:
        """What a client receives, and the id under which it is stored; None if it failed."""
        said = b"".join(encode(parts, upstream, context=fresh_context()))
        return await self.send_bytes(said, upstream, client, stream=stream)

    async def send_bytes(
        self, said: bytes, upstream: str, client: str, *, stream: bool
    ) -> tuple[bytes, str | None]:
        """As `send`, for bytes of an upstream."""
        return await self.send_pieces([said], upstream, client, stream=stream)

    async def send_pieces(
        self, pieces: Sequence[bytes], upstream: str, client: str, *, stream: bool
    ) -> tuple[bytes, str | None]:
        """As `send`, for bytes of an upstream in pieces."""
        play = Play([one for one in pieces if one])
        return await self.send_plays([play], upstream, client, stream=stream)

    async def send_plays(
        self, plays: Sequence[Play], upstream: str, client: str, *, stream: bool
    ) -> tuple[bytes, str | None]:
        """As `send`, for the answers of an upstream."""
        played = Played(upstream_config(dialect=upstream), *plays)
        body = json.dumps(
            REQUEST_BODIES[client] | ({} if client == GEMINI else {"stream": stream})
        ).encode()
        policy = StorePolicy(body, b'["x"]')
        incoming = IncomingRequest(RequestBody(client, body), "a/m", stream, store=policy)
        if client == RESPONSES:
            incoming = await self.sessions.with_history(incoming, parse_preamble(body))
        targets = Routing({"a": played}, {}).targets("a/m")
        writer = self.sessions.persistence.writer(incoming)
        assert writer is not None
        run = Run(incoming, targets, RequestLimits(grace=0.05), Scrubber([]), (), writer)
        try:
            opened = await run.open()
            told = write_events(await all_of(opened)) if stream else (await opened.read_body())[1]
        except RequestFailed:
            return b"", None
        finally:
            await run.close()
        return told, writer.log.id if writer.has_begun else None

    async def stored(self, id: str) -> tuple[Entry, list[Block]]:
        entry = await self.store.entry(id)
        assert entry is not None
        return entry, await self.store.blocks(id)

    async def next_turn(self, id: str) -> Request:
        """The request of a next turn that continues this one."""
        body = json.dumps({"model": "a/m", "input": "more", "previous_response_id": id}).encode()
        incoming = IncomingRequest(RequestBody(RESPONSES, body), "a/m", True)
        recalled = await self.sessions.with_history(incoming, parse_preamble(body))
        return recalled.body.parsed.request


async def all_of(stream: Stream) -> list[Event]:
    told: list[Event] = []
    while events := await stream.next():
        told += events
    return told


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with asyncio.Runner() as runner:
        made = World(runner, tmp_path_factory.mktemp("stored"))
        yield made
        runner.run(made.store.close())


def client_response(entry: Entry, raw: bytes) -> Response:
    """The response that a client reads from these bytes."""
    asked = api_of(entry.dialect).request.parse(entry.request, Context()).request
    (found,) = decode_all(
        raw, dialect_named(entry.dialect).name, context=Context(replaced(asked, entry))
    )
    return found.response


def replaced(request: Request, entry: Entry) -> Request:
    return msgspec.structs.replace(request, model=entry.model, stream=entry.stream)


@pytest.mark.parametrize("client", WIRES)
@SAME
@given(parts=LEGAL, upstream=st.sampled_from(WIRES), stream=st.booleans())
def test_record_log_and_body_are_what_was_sent(
    world: World, client: str, parts: list[Part], upstream: DialectName, stream: bool
) -> None:
    told, id = world.runner.run(world.send(parts, upstream, client, stream=stream))
    if id is None:
        return
    entry, blocks = world.runner.run(world.stored(id))
    assert as_sent(events_of(blocks)) == told
    size = sum(len(block.data) for block in blocks)
    assert (entry.digest, entry.size) == (sha256(told).hexdigest(), size)
    assert audit_log(entry, blocks) == []
    said = comparable(client_response(entry, told))
    if entry.body is None:
        assert said.error is not None
    elif said.error is None:
        body = comparable(client_response(entry, shown(entry)))
        body = msgspec.structs.replace(body, usage=said.usage)  # in a stream only on request
        assert different_fields(said, body) == []


def shown(entry: Entry) -> bytes:
    """The answer as it is retrieved."""
    match entry.dialect:
        case "openai-responses":
            return stored_responses.response_body(entry)
        case "openai-chat":
            return msgspec.json.encode(stored_completions.completion_fields(entry))
        case _:
            return entry.body or b""


BEGIN, FAIL = ResponseMetadata("resp_1", model="m"), ErrorPart("upstream", "no more")
UNTOLD: dict[str, tuple[DialectName, DialectName, list[Part]]] = {
    "a call that waits when an error comes": (
        MESSAGES,
        RESPONSES,
        [
            *(ReasoningStart("r", "summary"), ReasoningDelta("r", "so")),
            ToolCall("c", "look", "7"),
            *(FAIL, ReasoningEnd("r"), Finish("error")),
        ],
    ),
    "a proof that comes after a call that went wrong": (
        GEMINI,
        RESPONSES,
        [
            ToolCall("c", "look", "", invalid="nameless"),
            *(File("f", "image/png", data="AA=="), ReasoningStart("r", "raw"), FAIL),
            *(ReasoningEnd("r", encrypted="proof"), Finish("error")),
        ],
    ),
    "a call that goes wrong while it waits": (
        MESSAGES,
        RESPONSES,
        [
            *(ReasoningStart("r", "raw"), ReasoningDelta("r", "so"), ToolCall("c", "look", "7")),
            *(ReasoningEnd("r"), Finish("tool-calls")),
        ],
    ),
    "a text that waits for a call, beside one of the same message": (
        MESSAGES,
        RESPONSES,
        [
            *(TextStart("t", "msg_1"), ToolParamsStart("c", "look"), ToolParamsDelta("c", "{")),
            *(TextStart("u", "msg_1"), TextDelta("u", "x"), TextEnd("u"), TextEnd("t"), FAIL),
            ToolParamsEnd("c"),
            ToolCall("c", "look", "{", invalid="stream-failed"),
            Finish("error"),
        ],
    ),
}
"""Client, upstream, and parts of which the client does not receive everything."""


@pytest.mark.parametrize("case", UNTOLD)
def test_what_an_error_held_back_is_no_difference(world: World, case: str) -> None:
    client, upstream, parts = UNTOLD[case]
    told, id = world.runner.run(world.send([BEGIN, *parts], upstream, client, stream=True))
    entry, blocks = world.runner.run(world.stored(id or ""))
    record = msgspec.json.decode(entry.record or b"", type=Response)
    assert different_fields(comparable(record), comparable(client_response(entry, told))) != []
    assert audit_log(entry, blocks) == []


@pytest.mark.parametrize("client", WIRES)
@pytest.mark.parametrize("stream", [True, False])
def test_calls_without_ids_are_no_difference(world: World, client: str, stream: bool) -> None:
    said = (HERE / "gemini" / "equal-calls-without-ids.sse").read_bytes()
    id = f"loom {client} {stream}".encode()
    said = said.replace(b"rA1b2C3d4E5f6G7", id).replace(b"\r\n", b"\n")
    _, kept = world.runner.run(world.send_bytes(said, GEMINI, client, stream=stream))
    entry, blocks = world.runner.run(world.stored(kept or ""))
    record = msgspec.json.decode(entry.record or b"", type=Response)
    assert len(record.tool_calls) > 1
    assert audit_log(entry, blocks) == []


@pytest.mark.parametrize("end", [b"", b'data: {"object":"odd"}\n\n'], ids=["passed on", "repaired"])
def test_a_held_back_call_is_stored_under_the_id_that_is_sent(world: World, end: bytes) -> None:
    """A call that comes whole waits for the end of its stream; only then is the id sure."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    own = f"held-{len(end)}"
    deltas = [{"role": "assistant", "tool_calls": [call]}, {}]
    chunks = [
        {
            "id": own,
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "a/m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        for delta, reason in zip(deltas, (None, "tool_calls"), strict=True)
    ]
    frames = [b"data: %b\n\n" % json.dumps(one).encode() for one in chunks]
    pieces = [*frames, end, b"data: [DONE]\n\n"]
    told, id = world.runner.run(world.send_pieces(pieces, CHAT, CHAT, stream=True))
    assert id is not None
    assert {json.loads(one)["id"] for one in told.split(b"data: ")[1:-1]} == {id}
    assert (id == own) == (not end)
    entry, blocks = world.runner.run(world.stored(id))
    assert audit_log(entry, blocks) == []


# Records of failed responses that differ from what was sent

Damage = Callable[[Response, Response], Response]
"""Makes another record, given what a client received."""


def without(kind: type[Item]) -> Damage:
    """Without the first item of a kind that a client received."""
    return lambda record, heard: spoiled(record, heard, kind, None)


def another(kind: type[Item], **fields: str) -> Damage:
    """The first item of a kind that a client received has other content."""
    return lambda record, heard: spoiled(record, heard, kind, fields)


def with_more(item: Item) -> Damage:
    """With an item at the start that no client received."""

    def damage(record: Response, heard: Response) -> Response:
        order = [place if place == ERROR else _next(place) for place in record.order]
        items = (item, *record.items)
        return replace(record, items=items, order=(0, 0, *order) if order else ())

    return damage


def _next(place: int) -> int:
    return place - 1 if place <= CUT else place + 1


def with_more_behind(item: Item) -> Damage:
    """An item that nobody heard comes last, before the error. Where that found others open, or a
    call had been an error before, nobody could have heard it."""

    def damage(record: Response, heard: Response) -> Response:
        ids = {one.id for one in heard.items if isinstance(one, ToolCall)}
        if not all(one.id in ids for one in record.items if isinstance(one, ToolCall)):
            return record
        if not record.order:
            return replace(record, items=(*record.items, item))
        *before, last = record.order
        if last != ERROR:
            return record
        own = len(record.items)
        return replace(record, items=(*record.items, item), order=(*before, own, own, ERROR))

    return damage


def spoiled(
    record: Response, heard: Response, kind: type[Item], fields: dict[str, str] | None
) -> Response:
    for at, item in enumerate(record.items):
        if isinstance(item, kind) and was_heard(item, record, heard):
            now = () if fields is None else (msgspec.structs.replace(item, **fields),)
            items = (*record.items[:at], *now, *record.items[at + 1 :])
            order = () if fields is None else record.order
            return replace(record, items=items, order=order)
    return record


def was_heard(item: Item, record: Response, heard: Response) -> bool:
    """Whether a client received some of this item: certain if it received all of its kind."""
    match item:
        case TextItem(text=text):
            return bool(text) and heard.text == record.text
        case ReasoningItem(text=text):
            return bool(text) and heard.reasoning == record.reasoning
        case ToolCall(id=id, provider_executed=False):
            calls = [one for one in heard.items if isinstance(one, ToolCall)]
            return id in {one.id for one in calls if one.params.strip()}
        case _:
            return False


ONE_BY_ONE = ("anthropic-messages", "gemini")

DAMAGES: dict[str, Damage] = {
    "no text": without(TextItem),
    "another text": another(TextItem, text="never told"),
    "one more text": with_more(TextItem("zz", "never told")),
    "one more text at the end": with_more_behind(TextItem("zz", "never told")),
    "one more reasoning at the end": with_more_behind(ReasoningItem("zz", "never told")),
    "one more call at the end": with_more_behind(ToolCall("zz", "never", '{"told":1}')),
    "no reasoning": without(ReasoningItem),
    "another reasoning": another(ReasoningItem, text="never told"),
    "one more reasoning": with_more(ReasoningItem("zz", "never told")),
    "no call": without(ToolCall),
    "another call": another(ToolCall, name="never_told"),
    "other arguments": another(ToolCall, params='{"never":"told"}'),
    "no error": lambda record, heard: replace(record, error=None, order=()),
}


@st.composite
def failures(draw: st.DrawFn) -> list[Part]:
    """Legal streams with content that end in an error."""
    stream = Legal()
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=4, max_size=20)):
        step(stream, draw)
    stream.fail(draw)
    stream.finish(draw)
    return stream.parts


@pytest.mark.parametrize("client", WIRES)
@SAME_FEW
@given(parts=failures(), upstream=st.sampled_from(WIRES))
def test_a_failed_response_with_another_record_is_found(
    world: World, client: str, parts: list[Part], upstream: DialectName
) -> None:
    told, id = world.runner.run(world.send(parts, upstream, client, stream=True))
    if id is None:
        return
    entry, blocks = world.runner.run(world.stored(id))
    record = msgspec.json.decode(entry.record or b"", type=Response)
    said = client_response(entry, told)
    others = {name: damage(record, said) for name, damage in DAMAGES.items()}
    # A wire with one item at a time is told nothing behind a call that the error cut: no log says
    # whether there was more. That the record was changed at all, its checksum says.
    is_hidden = client in ONE_BY_ONE and any(place < ERROR for place in record.order)
    found = {
        name: audit_log(recorded(entry, other), blocks)
        for name, other in others.items()
        if other != record and not (is_hidden and name.endswith("at the end"))
    }
    assert [name for name, differences in found.items() if not differences] == []


def recorded(entry: Entry, record: Response) -> Entry:
    """The entry with another record, and the checksum that it would have been stored with."""
    ending = Ending(
        status=entry.status,
        ended=entry.ended or 0.0,
        body=entry.body,
        digest=entry.digest,
        events=entry.events,
        size=entry.size,
    )
    ended = with_record(entry, ending, [msgspec.json.encode(record)])
    return msgspec.structs.replace(entry, record=ended.record)


# What comes after an answer


@SAME
@given(parts=LEGAL, upstream=st.sampled_from(WIRES), stream=st.booleans())
def test_the_next_turn_gets_what_was_streamed(
    world: World, parts: list[Part], upstream: DialectName, stream: bool
) -> None:
    told, id = world.runner.run(world.send(parts, upstream, RESPONSES, stream=stream))
    if id is None:
        return
    entry, _ = world.runner.run(world.stored(id))
    response = client_response(entry, told)
    request = world.runner.run(world.next_turn(id))
    assistant = [
        one
        for message in request.messages
        if message.role == "assistant"
        for one in message.content
    ]
    texts = "".join(one.text for one in assistant if isinstance(one, TextContent))
    assert texts == response.text + response.refusal
    calls = [(one.id, one.name) for one in assistant if isinstance(one, CallContent)]
    whole = [one for one in response.tool_calls if not one.provider_executed]
    assert [one for one in whole if (one.id, one.name) not in calls] == []


# Over HTTP

SETTINGS = '[store]\npersist = "all"\n' + "\n".join(
    f'[upstreams.{name}]\ndialect = "{name}"\nbase_url = "demo:fast"\n' for name in WIRES
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    folder = tmp_path_factory.mktemp("served")
    with (
        gateway(SETTINGS, folder) as running,
        httpx.Client(base_url=running.url, timeout=30, trust_env=False) as client,
    ):
        yield client, folder / "weft.db"


def named(client: str, told: bytes) -> str:
    """The id in a response."""
    first = (
        json.loads(told)
        if told[:1] == b"{"
        else json.loads(told.split(b"data: ")[1].split(b"\n")[0])
    )
    inner = first.get("response") or first.get("message") or first
    return str(inner["responseId"] if client == GEMINI else inner["id"])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("client", WIRES)
def test_the_row_holds_the_bytes_that_went_over_the_wire(
    served: tuple[httpx.Client, Path], client: str, upstream: str, stream: bool
) -> None:
    http, path = served
    body: dict[str, object] = {**REQUEST_BODIES[client], "model": f"{upstream}/reasoner"}
    words = f"{client} {upstream} {stream}"
    where = {CHAT: "/v1/chat/completions", RESPONSES: "/v1/responses", MESSAGES: "/v1/messages"}
    if client == GEMINI:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        address = f"/v1beta/models/{upstream}/reasoner:{verb}"
        body = {"contents": [{"role": "user", "parts": [{"text": words}]}]}
    else:
        key = "input" if client == RESPONSES else "messages"
        body |= {key: [{"role": "user", "content": words}], "stream": stream}
        address = where[client]
    if client == CHAT:
        body["store"] = True
    answer = http.post(address, json=body)
    assert answer.status_code == 200
    id = named(client, answer.content)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        row = database.execute(
            "SELECT digest, events, size, visible, body FROM response "
            "JOIN answer ON answer.response = id WHERE id = ?",
            (id,),
        ).fetchone()
        blocks = database.execute(
            "SELECT data FROM block WHERE response = ? ORDER BY number", (id,)
        ).fetchall()
    database.close()
    events = [event for (block,) in blocks for event in unpack(block)]
    told = as_sent(events)
    visible = client in (CHAT, RESPONSES)
    assert told == answer.content
    size = sum(len(block) for (block,) in blocks)
    assert row[:4] == (sha256(told).hexdigest(), len(events), size, visible)
    if not stream:
        assert row[4] == told
    if client == RESPONSES:
        assert http.get(f"/v1/responses/{id}").content == row[4]
    elif client == CHAT:
        assert http.get(f"/v1/chat/completions/{id}").json() == json.loads(row[4]) | {
            "metadata": {}
        }
