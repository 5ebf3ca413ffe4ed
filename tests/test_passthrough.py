"""The law of passthrough: whatever comes, in whatever pieces and with whatever line ends, what the
client reads is the guarded parts; and while there is nothing to repair, it reads the upstream's own
data.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import recordings
from tests.captures import HERE
from tests.captures.catalogue import READINGS
from tests.framings import FRAMINGS, Told, data_of, framed, over_lines
from tests.oddities import changed, odd
from tests.played import Play, PlayedAnswer
from tests.recordings import FIXTURES
from tests.sdk_readers import PIECEMEAL, Call, Official, Read, spelled
from tests.stored_logs import as_sent, audit_log, pack
from tests.strategies import LEGAL, cuts, examples
from tests.test_passing_on import joined
from weft.assembler import Response
from weft.codec import Pipe
from weft.context import Context, Quirks
from weft.dialects import DIALECTS
from weft.dialects.base import Dialect
from weft.findings import Finding, Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import ErrorPart, Finish, Part, ResponseMetadata, Source, ToolCall
from weft.relay.audit import (
    _DUPLICATES,
)
from weft.relay.comparison import comparable, different_fields
from weft.relay.persistence import last_snapshot, status_of, with_status
from weft.relay.rendering import Passthrough, encoder_of
from weft.relay.response_reader import ResponseReader
from weft.request import Request
from weft.sse import Event, Frame, FrameReader, write_events
from weft.store.records import Block, Entry

SAME, SAME_FEW = (settings(examples(count), derandomize=True) for count in (100, 50))
"""The same streams each time: whoever changes something else is not to meet a new one."""

WIRES = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
EVERY_WIRE = pytest.mark.parametrize("wire", WIRES)
LIMIT = 1 << 26

ASKED = Request("m", include_usage=True)
UNASKED = Request("m")
RENAMED = Request("up/m", include_usage=True)
REQUESTS = st.sampled_from([ASKED, UNASKED, RENAMED])


@dataclass(frozen=True)
class Passed:
    """One stream that went through: what it means, and what the client was told."""

    dialect: Dialect
    request: Request
    quirks: Quirks | None
    raw: bytes
    parts: list[Part]
    pipe: Pipe
    events: list[Event]
    lost: list[Finding]
    """What the client's dialect could not carry."""

    @property
    def response(self) -> Response:
        return self.pipe.response

    @property
    def told(self) -> bytes:
        return write_events(self.events)

    @property
    def is_untouched(self) -> bool:
        """Whether all of it was passed on: a stream of events, in which nothing was repaired."""
        frames = FrameReader().feed(self.raw + b"\n\n")
        whole = any(map(self.dialect.is_whole, frames))
        return not (whole or self.response.findings or self.response.error)


def passed(
    wire: str, raw: bytes, pieces: Sequence[bytes], request: Request, quirks: Quirks | None = None
) -> Passed:
    """Has a stream passed on, as the relay does it."""
    dialect, ids = DIALECTS[wire], Ids(b"relay")
    pipe = Pipe(dialect, Context(request, quirks, ids, 1))
    shown = Context(request, None, ids, 1, response_id=dialect.new_id(ids))
    renderer = Passthrough(dialect, shown, pipe)
    answer = ResponseReader(PlayedAnswer(Play()), pipe, LIMIT)
    parts: list[Part] = []
    events: list[Event] = []
    for piece in pieces:
        if piece and not answer.ended:
            answer.take(piece)
            parts += answer.parts
            events += renderer.render(answer.parts)
    if not answer.ended:
        answer.cut(None)
        parts += answer.parts
        events += renderer.render(answer.parts)
    return Passed(dialect, request, quirks, raw, parts, pipe, events, renderer.findings)


# What must hold


def assert_lawful(one: Passed, official: Official | None = None) -> None:
    back = Pipe(one.dialect, Context(one.request, ids=Ids(b"relay"), now=1))
    reader = FrameReader()
    heard = back.feed(reader.feed(one.told) + reader.finish()) + back.finish()
    assert [found for found in back.findings.found if found.code in _DUPLICATES] == []
    if one.is_untouched:
        assert data_of(one.told) == [*map(trimmed, untouched(one))]
        assert joined(heard, without_model_and_usage(one)) == joined(
            one.parts, without_model_and_usage(one)
        )
    else:
        before = passed_on(one)
        assert [event.data for event in one.events[: len(before)]] == before
        assert numbers_go_on(one.events, len(before))
    assert audited(one) == []
    if not (one.lost or one.response.error or one.response.invalid_tool_calls):
        assert different_fields(comparable(back.response), comparable(shown(one))) == []
        assert sources(back.response) == sources(one.response)
    if official is not None:
        assert_read(back.response, official.read(one.dialect.name, one.told))


def numbers_go_on(events: Sequence[Event], before: int) -> bool:
    """Whether the events behind so many others have higher numbers, each than the one before."""
    numbers = [event.number for event in events if event.number is not None]
    passed = [event.number for event in events[:before] if event.number is not None]
    told = [*passed[-1:], *numbers[len(passed) :]]
    return all(one < other for one, other in pairwise(told))


def trimmed(data: bytes) -> bytes:
    """Data as a reader has it who trims each of its lines."""
    return b"\n".join(line.strip() for line in data.split(b"\n"))


def untouched(one: Passed) -> list[bytes]:
    """The data of the upstream as the client must have it: up to the event that ends it all, with
    the terminator of the wire.
    """
    frames, _ = read_alone(one)
    if frames[-1:] and b"data:" in one.raw:  # else it is no stream of events
        frames = [Frame(data) for data in data_of(one.raw)][: len(frames)]
    shown = list(renamed(one, frames))
    terminator = one.dialect.terminator
    ended = terminator is None or shown[-1:] == [terminator]
    return shown if ended else [*shown, terminator or b""]


def passed_on(one: Passed) -> list[bytes]:
    """What the client must be told as it came: all before the first repair, but for what waits."""
    frames, sure = read_alone(one)
    return list(renamed(one, frames[:sure]))


def read_alone(one: Passed) -> tuple[list[Frame], int]:
    """The frames of the upstream up to the first repair, or to the end; and how many of them say
    nothing that is still held. Before anything was said, all of it is."""
    reader, frames, sure, said = FrameReader(), [], 0, False
    pipe = Pipe(one.dialect, Context(one.request, one.quirks, Ids(b"relay"), 1))
    for frame in reader.feed(one.raw) + reader.finish():
        parts = pipe.feed([frame])
        if pipe.findings.found or any(isinstance(part, ErrorPart) for part in parts):
            break
        if one.dialect.is_whole(frame):
            break
        frames.append(frame)
        said = said or bool(parts)
        if said and not pipe.holding:
            sure = len(frames)
        if parts and isinstance(parts[-1], Finish):
            break
    return frames, sure


def renamed(one: Passed, frames: Iterable[Frame]) -> Iterator[bytes]:
    dialect, request = one.dialect, one.request
    first = one.parts[0]
    same = isinstance(first, ResponseMetadata) and first.model == request.model
    rename = None if same else dialect.with_model
    for frame in frames:
        if request.include_usage or not dialect.only_usage(frame):
            yield frame.data if rename is None else rename(frame, request.model)


def without_model_and_usage(one: Passed) -> Callable[[Part], Part]:
    """What may differ in a stream that is passed on: the model's name, a usage nobody asked for."""

    def same(part: Part) -> Part:
        if isinstance(part, ResponseMetadata):
            return msgspec.structs.replace(part, model=None)
        if isinstance(part, Finish):
            usage = part.usage if one.request.include_usage else None
            return msgspec.structs.replace(part, usage=usage, model=None)
        return part

    return same


def shown(one: Passed) -> Response:
    """The answer as the client is told it: with its usage, if it is told that."""
    if one.request.include_usage or one.dialect.name != "openai-chat":
        return one.response
    return msgspec.structs.replace(one.response, usage=None)


def sources(response: Response) -> list[tuple[str, str]]:
    found = [one for one in response.items if isinstance(one, Source)]
    return sorted({(one.kind, one.url or one.file_id or "") for one in found})


def audited(one: Passed) -> list[object]:
    """What `weft verify` says of this stream, had it been stored."""
    response, block = one.response, pack(one.events)
    body, status = last_snapshot(one.events), status_of(response)
    if body is not None:
        body = with_status(body, status)
    entry = Entry(
        id="resp_1",
        dialect=one.dialect.name,
        model=one.request.model,
        status=status,
        created=1.0,
        stream=True,
        record=msgspec.json.encode(response),
        body=body,
        digest=sha256(as_sent(one.events)).hexdigest(),
        events=len(one.events),
        size=len(block),
    )
    found = audit_log(entry, [Block(0, 0, len(one.events), block)])
    return [each for each in found if each.what in ("log", "record")]


FINISHES: dict[str, dict[str, str]] = {
    "openai-chat": {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool-calls",
        "function_call": "tool-calls",
        "content_filter": "content-filter",
    },
    "openai-responses": {"max_output_tokens": "length", "content_filter": "content-filter"},
    "anthropic-messages": {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "tool_use": "tool-calls",
        "refusal": "content-filter",
        "pause_turn": "pause",
    },
    "gemini": {"MAX_TOKENS": "length"},
}


def assert_read(response: Response, read: Read) -> None:
    """An official client has the text and the calls, each once; or it raises."""
    if response.error is not None:
        cancelled = response.error.kind == "cancelled" and read.finish == "cancelled"
        assert read.raised or cancelled, "the client was told an end that was none"
        return
    assert not read.raised, read.raised
    assert read.text == response.text
    same = judged(response, read)
    assert sorted(map(same, read.calls)) == sorted(map(same, map(called, own_calls(response))))
    finish = FINISHES[response.dialect or ""].get(read.finish or "")
    assert finish in (None, response.finish_reason)


def judged(response: Response, read: Read) -> Callable[[Call], Call]:
    """A call as far as its client can know it: some mend arguments that are not JSON, and where a
    wire has no ids, every reader makes its own."""
    calls = own_calls(response)
    if response.dialect == "gemini":
        told = {id for id, _, _ in read.calls}
        piecemeal = {name for _, name, arguments in read.calls if arguments == PIECEMEAL}
        return lambda call: (
            call[0] if call[0] in told else "",
            call[1],
            "" if call[1] in piecemeal else call[2],
        )
    bad = {call.id for call in calls if call.invalid}
    mends = response.dialect == "anthropic-messages"
    return lambda call: (call[0], call[1], "") if mends and call[0] in bad else call


def own_calls(response: Response) -> list[ToolCall]:
    """What a client is asked to do. A custom tool of the upstream looks like one of its own."""
    calls = [one for one in response.items if isinstance(one, ToolCall) and one.name]
    return [
        call
        for call in calls
        if call.kind == "custom" or (call.kind == "function" and not call.provider_executed)
    ]


def called(call: ToolCall) -> tuple[str, str, str]:
    return call.id, call.name, spelled(call.params) if call.format == "json" else call.params


@pytest.fixture(scope="module")
def official() -> Iterator[Official]:
    made = Official()
    yield made
    made.close()


# Streams that are right


def encoded(wire: str, parts: Sequence[Part]) -> list[Told]:
    """Legal parts as events of a dialect."""
    guard = Guard(Ids(b"upstream"), Findings())
    context = Context(ids=Ids(b"upstream"), now=1)
    encoder = encoder_of(DIALECTS[wire], context, guard.fold, Findings())
    events = encoder.feed(guard.feed(list(parts)) + guard.finish())
    return [(event.name, event.data) for event in events]


@EVERY_WIRE
@SAME
@given(parts=LEGAL, request=REQUESTS, data=st.data())
def test_any_legal_stream_is_read_as_it_was_meant(
    official: Official, wire: str, parts: list[Part], request: Request, data: st.DataObject
) -> None:
    raw = data.draw(framed(encoded(wire, parts)))
    assert_lawful(passed(wire, raw, data.draw(cuts(raw)), request), official)


@EVERY_WIRE
@SAME
@given(parts=LEGAL, request=REQUESTS, data=st.data())
def test_any_odd_stream_is_read_as_it_was_meant(
    official: Official, wire: str, parts: list[Part], request: Request, data: st.DataObject
) -> None:
    raw = data.draw(framed(data.draw(odd(encoded(wire, parts)))))
    assert_lawful(passed(wire, raw, data.draw(cuts(raw)), request), official)


@EVERY_WIRE
@SAME
@given(parts=LEGAL, request=REQUESTS, data=st.data())
def test_any_value_may_be_another_or_missing(
    wire: str, parts: list[Part], request: Request, data: st.DataObject
) -> None:
    """What nobody here reads passes as it is, so clients may trip over it."""
    events = data.draw(odd(encoded(wire, parts), (changed,)))
    raw = data.draw(framed(events))
    assert_lawful(passed(wire, raw, data.draw(cuts(raw)), request))


@EVERY_WIRE
@SAME_FEW
@given(parts=LEGAL, data=st.data())
def test_a_stream_may_be_cut_at_any_byte(
    official: Official, wire: str, parts: list[Part], data: st.DataObject
) -> None:
    raw = data.draw(framed(encoded(wire, parts)))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    assert_lawful(passed(wire, raw, data.draw(cuts(raw)), ASKED), official)


RUNNING = '"response":{"id":"resp_1","object":"response","created_at":1,"status":"in_progress"}'
ENDED = RUNNING.replace("in_progress", "completed")


def responses(*events: tuple[str, str]) -> bytes:
    """Events of the Responses dialect, numbered as they come: their types, and the rest of each."""
    return FRAMINGS["LF"](
        [
            (
                f"response.{type}",
                f'{{"type":"response.{type}","sequence_number":{at},{rest}}}'.encode(),
            )
            for at, (type, rest) in enumerate(events)
        ]
    )


def test_what_comes_before_the_response_begins_is_not_told_twice() -> None:
    text = '"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hm."'
    raw = responses(
        ("output_item.added", '"output_index":0,"item":{"type":"message","id":"msg_1"}'),
        ("created", RUNNING),
        ("output_text.delta", text),
        ("completed", ENDED),
    ).replace(b'"sequence_number":0', b'"sequence_number":9')  # so that created is a repair
    one = passed("openai-responses", raw, [raw], ASKED)
    assert one.response.text == "Hm."
    assert_lawful(one)
    assert one.told.count(b'"type":"response.output_item.added"') == 1


def test_a_model_that_is_named_late_has_the_name_that_was_asked_for(official: Official) -> None:
    raw = responses(
        ("created", RUNNING),
        ("completed", ENDED.replace('"status"', '"model":"m","status"')),
    )
    one = passed("openai-responses", raw, [raw], RENAMED)
    assert_lawful(one, official)
    assert b'"model":"up/m"' in one.told
    assert b'"model":"m"' not in one.told


SEARCH = '"output_index":0,"item":{"type":"tool_search_call","id":"ts","execution":"client"'


@pytest.mark.parametrize("id", ["call_1", "call_2"])
def test_a_tool_search_is_told_when_its_call_id_is_sure(official: Official, id: str) -> None:
    """It may be another one when the search is done; until then its item waits."""
    begun = responses(
        ("created", RUNNING), ("output_item.added", SEARCH + ',"call_id":"call_1","arguments":{}}')
    )
    whole = responses(
        ("created", RUNNING),
        ("output_item.added", SEARCH + ',"call_id":"call_1","arguments":{}}'),
        ("output_item.done", SEARCH + f',"call_id":"{id}","arguments":{{"goal":"wind"}}}}'),
        ("completed", ENDED),
    )
    cut = passed("openai-responses", begun, [begun], ASKED)
    assert b"tool_search_call" not in cut.told
    one = passed("openai-responses", whole, [whole[:-1], whole[-1:]], ASKED)
    assert_lawful(one, official)
    assert one.is_untouched == (id == "call_1")
    assert one.told.count(b'"call_id":"%b"' % id.encode()) == (2 if one.is_untouched else 3)
    assert [call.id for call in one.response.tool_calls] == [id]


# Recorded ones

FOLDERS = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "anthropic_messages": "anthropic-messages",
    "gemini": "gemini",
}
RECORDED = {
    "anthropic": "anthropic-messages",
    "azure": "openai-responses",
    "google": "gemini",
    "open-responses": "openai-responses",
    "openai-responses": "openai-responses",
    "xai-responses": "openai-responses",
}
"""Folders of recorded streams, and the dialects of those that are not openai-chat."""


@dataclass(frozen=True)
class Capture:
    """One recorded stream."""

    wire: str
    path: Path

    def __str__(self) -> str:
        return f"{self.wire}-{self.path.stem}"

    @property
    def raw(self) -> bytes:
        raw = self.path.read_bytes()
        if self.path.suffix != ".txt":
            return raw
        return b"".join(b"data: %b\n\n" % line for line in raw.splitlines() if line.strip())

    @property
    def quirks(self) -> Quirks | None:
        reading = READINGS.get(self.path.stem) if self.wire == "openai-chat" else None
        return reading.quirks if reading else None

    @property
    def events(self) -> list[Told]:
        reader = FrameReader()
        frames = reader.feed(self.raw) + reader.finish()
        return [(frame.event, frame.data) for frame in frames]


def captures() -> list[Capture]:
    found = [
        Capture(wire, path)
        for name, wire in FOLDERS.items()
        for path in sorted((HERE / name).glob("*.sse"))
    ]
    found += [
        Capture(RECORDED.get(path.parent.name, "openai-chat"), path)
        for path in sorted(FIXTURES.glob("*/*.chunks.txt"))
        if path.parent.name != "google-interactions" and path.stat().st_size < 200_000
    ]
    return found


QUIRKS = [Capture("openai-chat", path) for path in sorted(recordings.QUIRKS.glob("*.sse"))]
CAPTURES = [*captures(), *QUIRKS]


def each(captures: Iterable[Capture]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("capture", list(captures), ids=str)


def pieces(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


ALWAYS = (
    "call-left-open-and-cut",
    "items-never-done",
    "no-event-lines",
    "cut-inside-a-call",
    # what the official client refuses as it comes
    "annotations-of-every-kind",
    "call-id-only-at-the-end",
    "item-that-says-nothing",
    "items-that-say-nothing",
    "never-created",
    "openai-client-tool-search.1.chunks",
    "text-without-its-part",
    "tool-searches",
    "whole-that-differs",
)


@each(one for at, one in enumerate(CAPTURES) if at % 6 == 0 or one.path.stem in ALWAYS)
def test_a_capture_is_read_as_it_was_meant(official: Official, capture: Capture) -> None:
    assert_capture(capture, official, FRAMINGS["CRLF"](capture.events), 700)


@pytest.mark.long
@each(CAPTURES)
def test_every_capture_is_read_as_it_was_meant_however_it_is_framed(
    official: Official, capture: Capture
) -> None:
    raw = capture.raw
    for size in (1, 1000) if len(raw) < 20_000 else (1000,):
        assert_capture(capture, official, raw, size)
    for framing in FRAMINGS.values():
        assert_capture(capture, official, framing(capture.events), 333)
    over = [(name, over_lines(data)) for name, data in capture.events]
    assert_capture(capture, official, FRAMINGS["CRLF"](over), 1000)


def assert_capture(capture: Capture, official: Official, raw: bytes, size: int) -> None:
    one = passed(capture.wire, raw, pieces(raw, size), ASKED, capture.quirks)
    assert_lawful(one, official)
