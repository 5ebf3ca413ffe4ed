"""The law of the fast lane: with it and without it, every event, every finding and the fold are the
same, for every stream, in whatever pieces, from and to every dialect."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures import HERE
from tests.captures.catalogue import READINGS
from tests.faults.upstream import LAST as LAST_CHUNK
from tests.faults.upstream import STREAM, Hold
from tests.faults.upstream import chunk as chunked
from tests.faults.wires import GEMINI
from tests.passing_world import Passing, passing
from tests.played import Play, PlayedAnswer
from tests.strategies import QUICK, THOROUGH, cuts
from tests.tables import each_row
from weft.assembler import Response
from weft.codec import Pipe
from weft.context import Context, Quirks
from weft.dialects import DIALECTS
from weft.dialects.base import Stage
from weft.dialects.stages.custom_tools import CustomToolCalls
from weft.dialects.stages.restore_names import RestoreNames
from weft.dialects.stages.stop_sequences import StopSequences
from weft.findings import Finding, Findings
from weft.ids import Ids
from weft.parts import ErrorPart, Part
from weft.relay.fast_lane import DirectLane
from weft.relay.paused_turns import PausedTurns
from weft.relay.rendering import Encoded, Passthrough
from weft.relay.response_reader import ResponseReader
from weft.request import Request, Tool
from weft.sse import Event, Frame, FrameReader, write

WIRES = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
LIMIT = 1 << 24
REQUEST = Request("m", include_usage=True)


# Stages that look at some deltas, or at none.
STAGES: dict[str, Callable[[Findings], Sequence[Stage]]] = {
    "none": lambda findings: [],
    "stop sequences": lambda findings: [StopSequences(("b",), findings)],
    "paused turns": lambda findings: [PausedTurns()],
    "names": lambda findings: [RestoreNames({"f": "g"}, {"call_1": "other"})],
    "free-form tools": lambda findings: [CustomToolCalls({"f"}, findings)],
}


@dataclass(frozen=True)
class Relayed:
    events: list[Event]
    findings: list[Finding]
    lost: list[Finding]
    response: Response
    size: int


class FullPipe(Pipe):
    """Parses every frame in full: without the lane, and without the templates it is made of."""

    def feed(self, frames: Iterable[Frame]) -> list[Part]:
        parts: list[Part] = []
        for frame in frames:
            self._frame_decoder.template = None
            parts += super().feed((frame,))
        return parts


class Line:
    """A client's connection, and a store. What is stored first is what is sent."""

    def __init__(self) -> None:
        self.paused = False
        self.has_room = True
        self.stored: list[Event] = []
        self._sent: list[bytes] = []
        self.events = self.size = self.sent = 0
        self.last_activity = 0.0

    def store(self, events: list[Event]) -> bool:
        if self.has_room:
            self.stored += events
        return self.has_room

    def send(self, data: bytes) -> None:
        self._sent.append(data)

    def clear(self) -> None:
        frames = [write(event.name, event.data) for event in self.stored]
        assert self._sent == [chunked(one) for one in frames]
        assert (self.events, self.size) == (len(frames), sum(map(len, frames)))
        assert self.sent == sum(map(len, self._sent))
        self.stored, self._sent = [], []
        self.events = self.size = self.sent = 0


@dataclass
class Relaying:
    """One response from `source` to a client of `target`, as the relay reads and renders it."""

    source: str
    target: str
    lane: bool
    quirks: Quirks | None = None
    request: Request = REQUEST
    limit: int = LIMIT
    stages: str = "none"
    copied: int = 0
    """Reads that took the lane."""

    direct: int = 0
    """Events that were written by the lane itself."""

    def run(self, pieces: Iterable[bytes], error: ErrorPart | None = None) -> Relayed:
        ids, dialect = Ids(b"lane"), DIALECTS[self.target]
        context = Context(self.request, self.quirks, ids, 1)
        kind = Pipe if self.lane else FullPipe
        pipe = kind(DIALECTS[self.source], context, STAGES[self.stages])
        shown = Context(self.request, None, ids, 1, response_id=dialect.new_id(ids))
        # What a stage changes is always encoded.
        passes = self.source == self.target and self.stages == "none"
        renderer = (Passthrough if passes else Encoded)(dialect, shown, pipe)
        reader = ResponseReader(PlayedAnswer(Play()), pipe, self.limit)
        events: list[Event] = []

        def take(piece: bytes) -> bool:
            copied = None if reader.lane is None else reader.lane.copy(piece)
            if copied is not None:
                self.copied += 1
                events.extend(copied)
            else:
                reader.take(piece)
                self.copied += not reader.parts
                events.extend(reader.copied)
                events.extend(renderer.render(reader.parts))
                if self.lane:
                    reader.open_lane(renderer)
            return True

        line = Line()
        direct = DirectLane(line, lambda: reader.lane, take, line.store, lambda: 0.0)
        for number, piece in enumerate(pieces):
            if not piece or reader.ended:
                continue
            # Clients that have to catch up, and stores that are full, in between.
            line.paused, line.has_room = number % 3 == 2, number % 7 != 6
            if self.lane:
                direct.take(piece)
            else:
                take(piece)
            events += line.stored
            self.copied += len(line.stored)
            self.direct += len(line.stored)
            line.clear()
            # A keepalive takes a number of the stream, if the dialect numbers its events.
            if number % 5 == 4 and (ping := renderer.keepalive()) is not None:
                events.append(ping)
        if not reader.ended:
            reader.fail(error) if error is not None else reader.cut(None)
            events += renderer.render(reader.parts)
        response = pipe.response
        return Relayed(events, pipe.findings.found, renderer.findings, response, reader.size)


def assert_same(
    source: str,
    pieces: Sequence[bytes],
    targets: Iterable[str] = WIRES,
    quirks: Quirks | None = None,
    request: Request = REQUEST,
    limit: int = LIMIT,
    stages: str = "none",
    error: ErrorPart | None = None,
) -> None:
    for target in targets:
        fast, slow = (
            Relaying(source, target, lane, quirks, request, limit, stages).run(pieces, error)
            for lane in (True, False)
        )
        assert fast == slow


# Streams of deltas. `@N` in an event becomes its number, and `@P` padding.

TEXT, REASONING, PARAMS = "text", "reasoning", "params"


def event(data: str, name: str = "") -> bytes:
    named = f"event: {name}\n" if name else ""
    return f"{named}data: {data}\n\n".encode()


def named(type: str, rest: str) -> bytes:
    return event(f'{{"type":"{type}"{rest}}}', type)


@dataclass(frozen=True)
class Item:
    """What comes before the deltas of an item, an event with a delta, and what comes after."""

    start: bytes
    delta: Callable[[bytes], bytes]
    stop: bytes = b""


def around(event: bytes) -> Callable[[bytes], bytes]:
    """The event with a JSON string in the place of `@D`."""
    before, _, after = event.partition(b"@D")
    return lambda string: before + string + after


def chunk(delta: str, more: str = "") -> bytes:
    return event(f'{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{delta}}}]{more}}}')


def chat_item(kind: str, number: int, variant: int) -> Item:
    padding = ',"obfuscation":"@P"' if variant else ""
    if kind == PARAMS:
        function = f'"id":"call_{number}","function":{{"name":"f","arguments":""}}'
        return Item(
            chunk(f'{{"tool_calls":[{{"index":{number},{function}}}]}}'),
            around(
                chunk(
                    f'{{"tool_calls":[{{"index":{number},"function":{{"arguments":@D}}}}]}}',
                    padding,
                )
            ),
        )
    reasoning = "reasoning" if variant else "reasoning_content"
    key = "content" if kind == TEXT else reasoning
    return Item(b"", around(chunk(f'{{"{key}":@D}}', padding)))


def messages_item(kind: str, number: int, variant: int) -> Item:
    call = f'{{"type":"tool_use","id":"call_{number}","name":"f","input":{{}}}}'
    block, delta = {
        TEXT: ('{"type":"text","text":""}', '"type":"text_delta","text"'),
        REASONING: ('{"type":"thinking","thinking":""}', '"type":"thinking_delta","thinking"'),
        PARAMS: (call, '"type":"input_json_delta","partial_json"'),
    }[kind]
    rest = f',"index":{number}'
    return Item(
        named("content_block_start", f'{rest},"content_block":{block}'),
        around(named("content_block_delta", f'{rest},"delta":{{{delta}:@D}}')),
        named("content_block_stop", rest),
    )


def responses_item(kind: str, number: int, variant: int) -> Item:
    id = f"item_{number}"
    called = f'"call_id":"call_{number}","name":"f","arguments":""'
    part, place, item = {
        TEXT: (
            "output_text",
            '"content_index":0,',
            '"type":"message","role":"assistant","content":[]',
        ),
        REASONING: (
            "reasoning_summary_text",
            '"summary_index":0,',
            '"type":"reasoning","summary":[]',
        ),
        PARAMS: ("function_call_arguments", "", f'"type":"function_call",{called}'),
    }[kind]
    about = f'"item_id":"{id}","output_index":{number},{place}'
    # As OpenAI writes it today, as it did before, as Weft does, and as servers that do not count.
    deltas = [
        f',"delta":@D,{about}"logprobs":[],"obfuscation":"@P","sequence_number":@N',
        f',"sequence_number":@N,{about}"delta":@D,"logprobs":[]',
        f',{about}"delta":@D,"sequence_number":@N',
        f',{about}"delta":@D,"logprobs":[]',
    ]
    at = f',"sequence_number":@N,"output_index":{number},"item":{{"id":"{id}",{item}}}'
    start = named("response.output_item.added", at)
    if kind == TEXT:
        added = f',"sequence_number":@N,{about}"part":{{"type":"output_text","text":""}}'
        start += named("response.content_part.added", added)
    return Item(
        start,
        around(named(f"response.{part}.delta", deltas[variant])),
        named("response.output_item.done", at),
    )


VARIANTS = {"openai-chat": 2, "anthropic-messages": 1, "openai-responses": 4}
ITEM = {
    "openai-chat": chat_item,
    "anthropic-messages": messages_item,
    "openai-responses": responses_item,
}
FIRST = {
    "openai-chat": chunk('{"role":"assistant","content":""}'),
    "anthropic-messages": named(
        "message_start",
        ',"message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],'
        '"usage":{"input_tokens":1}}',
    ),
    "openai-responses": named(
        "response.created", ',"sequence_number":@N,"response":{"id":"r","model":"m","created_at":1}'
    ),
}
LAST = {
    "openai-chat": event(
        '{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
        '"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}'
    )
    + event("[DONE]"),
    "anthropic-messages": named(
        "message_delta", ',"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}'
    )
    + named("message_stop", ""),
    "openai-responses": named(
        "response.completed",
        ',"sequence_number":@N,"response":{"id":"r","model":"m","status":"completed"}',
    ),
}
# What a delta may be turned into, so that it is none, or another one.
BENT: list[Callable[[bytes], bytes]] = [
    lambda delta: delta.replace(b"\n\n", b"\n"),
    lambda delta: delta.replace(b"\n", b"\r\n"),
    lambda delta: delta.replace(b"data: ", b"data:"),
    lambda delta: b"id: 7\n" + delta,
    lambda delta: b"event: x\n" + delta,
    lambda delta: delta[delta.index(b"data:") :],
    lambda delta: delta.replace(b"@N", b"0"),
    lambda delta: delta.replace(b"@N", b"99"),
    lambda delta: delta.replace(b"@P", b"a\\n"),
    lambda delta: delta.replace(b'index":', b'index": '),
    lambda delta: delta.replace(b'index":0', b'index":1'),
    lambda delta: delta.replace(b'"c1"', b'"c2"'),
    lambda delta: delta.replace(b'"delta":{', b'"delta":{"role":"assistant",'),
    lambda delta: delta + delta,
    lambda delta: delta[:-9],
]
ODD = {
    "openai-chat": [
        b": keepalive\n\n",
        b"\n",
        chunk('{"content":null}'),
        chunk('{"reasoning_content":"a","reasoning":"a"}'),
        chunk('{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a"}]}'),
        chunk('{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}'),
        chunk('{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}],"content":"a"}'),
        chunk('{"content":"a","extra_content":{"obfuscation":"a"}}'),
        event('{"id":"c1","choices":[],"usage":{"prompt_tokens":1}}'),
        event('{"error":{"message":"no"}}'),
        event("[DONE]"),
        event("{broken"),
    ],
    "anthropic-messages": [
        named("ping", ""),
        named("content_block_stop", ',"index":0'),
        named("content_block_delta", ',"index":0,"delta":{"type":"signature_delta","signature":"s"}'
        ),
        named("content_block_delta", ',"index":0,"delta":{"text":"a"}'),
        named("error", ',"error":{"type":"overloaded_error","message":"no"}'),
        named("message_delta", ',"delta":{"stop_reason":"end_turn"}'),
    ],
    "openai-responses": [
        named("keepalive", ',"sequence_number":@N'),
        named("response.output_text.done", ',"sequence_number":@N,"output_index":0,"text":"a"'),
        named("response.output_item.done", ',"output_index":0,"item":{"type":"message"}'),
        named("response.function_call_arguments.done", ',"output_index":1,"arguments":"{}"'),
        named("error", ',"sequence_number":@N,"message":"no"'),
        event("[DONE]"),
    ],
}  # fmt: skip

TEXTS = st.text(st.sampled_from('ab "\\\n\t/\x7f\x1fé…😀\u2028<think>'), max_size=5)
ARGUMENTS = st.sampled_from(
    ["{", '{"a":', '"b', '"', "}", "[", "]", " ", "{}", "1", ',"c":2', '{"a":1}', "é", "\n", "\\n"]
)
SPELLED = st.one_of(
    st.builds(lambda text: json.dumps(text, ensure_ascii=False).encode(), TEXTS | ARGUMENTS),
    st.builds(lambda text: json.dumps(text).encode(), TEXTS),
    # Half a character, a needless escape, invalid UTF-8, a quote that its escape hides.
    st.sampled_from([rb'"\ud83d"', rb'"\ude00"', rb'"\/"', b'""', b'"\xff"', b'"\xc3"', b'"\xa9"',
                     rb'"a\\"', rb'"a\"b"', rb'"\"},"', b'"\\"', rb'"\x"', b"null"]),
)  # fmt: skip


# Complete arguments that come again, in one piece or by and by, and others behind them.
REPEATED = [
    ['{"a"', ":1", ',"b":2', "}", '{"a":1,"b":2}', " "],
    ['{"a"', ":1", ",", '"b":2', "}", '{"b":3}', "}"],
    ['{"a"', ":1", ',"b"', '{"a":1,"b":2', '{"a":1,"b":2}'],
    ["{", '"a"', ":", '{"a":1', '{"a":1}'],
    ["{}", '{"a"', ":1", ' , "b":2', "}", "{}"],
]


def strings(texts: Iterable[str]) -> list[bytes]:
    return [json.dumps(text).encode() for text in texts]


def counted(events: Iterable[bytes]) -> list[bytes]:
    """The events with their numbers, and each with another padding."""
    found: list[bytes] = []
    numbers = count()
    for one in events:
        while b"@N" in one:
            one = one.replace(b"@N", b"%d" % next(numbers), 1)
        found.append(one.replace(b"@P", b"xY1"[: len(found) % 4]))
    return found


@st.composite
def streams(draw: st.DrawFn, wire: str) -> list[bytes]:
    """The events of a response: mostly deltas of one item after the other."""
    events = [FIRST[wire]]
    items: list[Item] = []
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from([TEXT, REASONING, PARAMS]))
        items.append(item := ITEM[wire](kind, number, draw(st.integers(0, VARIANTS[wire] - 1))))
        events.append(item.start)
        for _ in range(draw(st.integers(1, 3))):
            spelled = st.lists(SPELLED, min_size=1, max_size=6)
            repeated = st.sampled_from(REPEATED).map(strings)
            events += map(item.delta, draw(spelled | repeated if kind == PARAMS else spelled))
            match draw(st.integers(0, 8)):
                case 0:
                    events.append(draw(st.sampled_from(ODD[wire])))
                case 1:
                    events.append(draw(st.sampled_from(BENT))(item.delta(draw(SPELLED))))
                case 2:  # also of one that has ended
                    events.append(draw(st.sampled_from(items)).delta(draw(SPELLED)))
        if draw(st.integers(0, 3)):
            events.append(item.stop)
    return counted([*events, LAST[wire]] if draw(st.booleans()) else events)


@st.composite
def read(draw: st.DrawFn, events: list[bytes]) -> list[bytes]:
    """The same bytes as a network may bring them: event by event, several at once, or anyhow."""
    match draw(st.sampled_from(["each", "some", "anyhow"])):
        case "each":
            return events
        case "some":
            size = draw(st.integers(2, 4))
            return [b"".join(events[at : at + size]) for at in range(0, len(events), size)]
    return draw(cuts(b"".join(events)))


@pytest.mark.parametrize("wire", ITEM)
@THOROUGH
@given(data=st.data())
def test_nothing_differs_for_any_stream_in_any_pieces(wire: str, data: st.DataObject) -> None:
    pieces = data.draw(streams(wire).flatmap(read))
    assert_same(wire, pieces)


@pytest.mark.parametrize("wire", ITEM)
@QUICK
@given(data=st.data())
def test_nothing_differs_when_a_limit_or_a_stop_ends_it(wire: str, data: st.DataObject) -> None:
    pieces = data.draw(streams(wire).flatmap(read))
    limit = data.draw(st.integers(1, len(b"".join(pieces)) + 1))
    error = data.draw(st.sampled_from([None, ErrorPart("timeout", "too long")]))
    assert_same(wire, pieces, limit=limit, error=error)


def test_the_limit_counts_what_the_lane_takes_event_by_event() -> None:
    """Texts with escapes take the lane too, but not at once with others."""
    item = ITEM["anthropic-messages"](TEXT, 0, 0)
    pieces = deltas_of(item, ["a", "b", "\\", "c", '"', "d", "e"])
    for limit in range(1, len(b"".join(pieces)) + 2):
        assert_same("anthropic-messages", pieces, ["openai-chat"], limit=limit)


@pytest.mark.parametrize("target", ["openai-responses", "openai-chat"])
def test_nothing_differs_when_more_deltas_take_the_lane_than_it_keeps(target: str) -> None:
    item = ITEM["openai-chat"](TEXT, 0, 0)
    deltas = deltas_of(item, (str(number) for number in range(1_300)))
    pieces = [FIRST["openai-chat"], *deltas, item.stop, LAST["openai-chat"]]
    for limit in (LIMIT, len(b"".join(pieces[:520])), len(b"".join(pieces[:1_200])) - 1):
        assert_same("openai-chat", pieces, [target], limit=limit)


def deltas_of(item: Item, texts: Iterable[str]) -> list[bytes]:
    return [*filter(None, [item.start]), *map(item.delta, strings(texts))]


def remembered() -> Iterator[tuple[str, str, list[bytes]]]:
    """Streams whose decoder, or encoder, needs to know later what took the lane."""
    for wire, make in ITEM.items():
        for number, texts in enumerate(REPEATED):
            call = make(PARAMS, 0, 0)
            yield wire, f"arguments {number}", [*deltas_of(call, texts), call.stop]
        one, two = make(PARAMS, 0, 0), make(PARAMS, 1, 0)
        texts = ['{"a"', ":", "1", "2", "3"]
        both = [*deltas_of(one, texts), *deltas_of(two, texts), *map(one.delta, strings("4}"))]
        yield (
            wire,
            "two calls in turns",
            [*both, *map(two.delta, strings("5}")), one.stop, two.stop],
        )
        once, again = (deltas_of(call, [*texts, "}"]) for call in (one, two))
        again = [event.replace(b"call_1", b"call_0") for event in (*again, two.stop)]
        yield wire, "a call again", [*once, one.stop, *again]
    text = responses_item(TEXT, 0, 1)
    deltas = deltas_of(text, "abcdef")
    about = ',"sequence_number":@N,"item_id":"item_0","output_index":0,"content_index":0,"text":'
    for whole in ("abcdef", "abcdefg"):
        done = named("response.output_text.done", f'{about}"{whole}"')
        yield (
            "openai-responses",
            f"done with {whole}",
            [*deltas, done, text.delta(b'"h"'), text.stop],
        )
    replayed = text.delta(b'"e"').replace(b"@N", b"7")
    yield "openai-responses", "an event again", [*deltas, replayed, text.delta(b'"g"'), text.stop]


@pytest.mark.parametrize(
    ("wire", "events"),
    [pytest.param(wire, events, id=f"{wire} {name}") for wire, name, events in remembered()],
)
def test_nothing_differs_where_the_text_matters_later(wire: str, events: list[bytes]) -> None:
    assert_same(wire, counted([FIRST[wire], *events, LAST[wire]]))


TOOLS = Request("m", include_usage=True, tools=(Tool("f"),))
RAW = Request("m", include=("reasoning.raw", "required_action"))


@pytest.mark.parametrize("wire", ITEM)
@QUICK
@given(data=st.data())
def test_nothing_differs_behind_any_stage(wire: str, data: st.DataObject) -> None:
    pieces = data.draw(streams(wire).flatmap(read))
    stages = data.draw(st.sampled_from(sorted(STAGES)))
    request = data.draw(st.sampled_from([REQUEST, TOOLS, RAW]))
    assert_same(wire, pieces, stages=stages, request=request)


@pytest.mark.parametrize("step", [17, pytest.param(7, marks=pytest.mark.long)])
@pytest.mark.parametrize("wire", ITEM)
def test_nothing_differs_wherever_a_read_ends(wire: str, step: int) -> None:
    events = [FIRST[wire]]
    for number, kind in enumerate((TEXT, REASONING, PARAMS)):
        item = ITEM[wire](kind, number, 0)
        spelled = [b'"{"', rb'"\"\u00e9"', '"😀"'.encode(), b'": 1}"']
        events += [item.start, *map(item.delta, spelled), item.stop]
    raw = b"".join(counted([*events, LAST[wire]]))
    # The events are alike, so that every place in one of them is met in another.
    for at in range(0, len(raw), step):
        assert_same(wire, [raw[:at], raw[at:]], targets=[wire, "openai-responses"])


# That it is used

PLAIN = ['{"a": "', *([" b", "é", "😀", "c", "\\\\", '\\"', "\u2028", "d"] * 6)]


@each_row("kind", [TEXT, REASONING, PARAMS])
@each_row("target", WIRES)
@each_row("source", ITEM)
def test_plain_deltas_take_the_lane(source: str, target: str, kind: str) -> None:
    for variant in range(VARIANTS[source]):
        item = ITEM[source](kind, 0, variant)
        spelled = [json.dumps(text, ensure_ascii=bool(variant % 2)).encode() for text in PLAIN]
        events = [FIRST[source], item.start, *map(item.delta, spelled), item.stop, LAST[source]]
        # With tools, and behind a stage that continues turns: as requests of agents are.
        relaying = Relaying(source, target, lane=True, request=TOOLS)
        found = relaying.run(counted(events)).response
        texts = {TEXT: found.text, REASONING: found.reasoning, PARAMS: _params(found)}
        assert texts[kind] == "".join(PLAIN)
        # The first ones show what a delta looks like, and that no stage looks at the text.
        assert relaying.copied >= len(PLAIN) - 4
        # Where nothing differs but the text, and nothing has to be counted.
        if source == "openai-chat" and kind == TEXT:
            assert relaying.direct > 5


def _params(response: Response) -> str:
    return "".join(call.params for call in (*response.tool_calls, *response.invalid_tool_calls))


def test_deltas_take_the_lane_again_after_whatever_came_between() -> None:
    """Pings are many in a long response: they do not use up its templates."""
    item = messages_item(TEXT, 0, 0)
    run = [named("ping", ""), *(item.delta(b'"a"') for _ in range(4))]
    relaying = Relaying("anthropic-messages", "openai-responses", lane=True, stages="paused turns")
    relaying.run([FIRST["anthropic-messages"], item.start, *(run * 40)])
    assert relaying.copied >= 40 * 3 - 4


# Through the gateway


@pytest.fixture(
    scope="module", params=["not stored", pytest.param("stored", marks=pytest.mark.long)]
)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Passing]:
    folder = tmp_path_factory.mktemp("lane")
    with passing(folder, stores=request.param == "stored") as made:
        yield made


_numbers = count(1)
ID = {"openai-chat": b'"c1"', "anthropic-messages": b'"msg_1"', "openai-responses": b'"r"'}


@pytest.mark.parametrize("target", WIRES)
@pytest.mark.parametrize("source", ITEM)
def test_clients_get_each_delta_as_it_comes(world: Passing, source: str, target: str) -> None:
    """Each one is sent when the client has the one before, so that none is read with another."""
    tokens = [f"t{number} " for number in range(6)]
    for kind in (TEXT, REASONING, PARAMS):
        # Gemini has calls whole: nothing comes before the end.
        awaited = [] if kind == PARAMS and target == GEMINI else tokens
        item, holds = ITEM[source](kind, 0, 0), [Hold() for _ in awaited]
        sent = [item.delta(one) for one in strings(['{"a": "', *tokens, '"}'])]
        events = [FIRST[source] + item.start, *sent, item.stop + LAST[source]]
        own = b'"answer_%d"' % next(_numbers)  # one that is used twice is renamed
        first, *pieces, last, end = (
            chunked(one.replace(ID[source], own)) for one in counted(events)
        )
        held = [step for pair in zip(pieces, holds, strict=False) for step in pair]
        rest = pieces[len(holds) :]
        model = world.model(source, (STREAM, first, *held, *rest, last, end, LAST_CHUNK))
        raw = b""
        with world.ask_stream(target, model) as answer:
            reads = answer.iter_raw()
            for hold, token in zip(holds, awaited, strict=True):
                hold.release()
                while token.encode() not in raw:
                    raw += next(reads)
            raw += b"".join(reads)
        assert_read(target, raw, kind, "".join(['{"a": "', *tokens, '"}']))


def assert_read(target: str, raw: bytes, kind: str, expected: str) -> None:
    reader, pipe = FrameReader(), Pipe(DIALECTS[target], Context(Request("m"), ids=Ids(b"c")))
    pipe.feed(reader.feed(raw) + reader.finish())
    pipe.finish()
    found = pipe.response
    assert found.error is None
    texts = {TEXT: found.text, REASONING: found.reasoning, PARAMS: _params(found)}
    assert texts[kind] == expected or json.loads(texts[kind]) == json.loads(expected)


# Recorded streams

RECORDED = [
    (wire, path) for wire in WIRES for path in sorted((HERE / wire.replace("-", "_")).glob("*.sse"))
]


@each_row("wire, path", RECORDED, ids=str)
def test_nothing_differs_for_recorded_streams(wire: str, path: Path) -> None:
    raw = path.read_bytes()
    reading = READINGS.get(path.stem) if wire == "openai-chat" else None
    events = [event + b"\n\n" for event in raw.split(b"\n\n")]
    assert_same(wire, events, quirks=reading.quirks if reading else None)
