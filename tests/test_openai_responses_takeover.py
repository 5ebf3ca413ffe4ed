"""An encoder that goes on behind the upstream's own events: together they are one stream.

The frames of a capture are passed on up to some boundary; there an encoder is brought up as the
relay does it, and tells the rest, or an error.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._models import construct_type_unchecked
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from tests.daily import one_in
from tests.splitting import frames_of_responses
from tests.strategies import SOUP, examples
from tests.test_openai_responses_recorded import STREAMS, recorded
from weft import (
    Context,
    ErrorPart,
    Ids,
    Part,
    Request,
    Response,
    ToolCall,
    ToolParamsDelta,
    assemble,
    decode_all,
    encode,
)
from weft.assembler import Assembler, TextItem
from weft.codec import Pipe
from weft.dialects import DIALECTS
from weft.findings import Findings
from weft.guard import Guard
from weft.parts import (
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)
from weft.relay.rendering import SentState
from weft.sse import DONE, Event, Frame, write_events

NAME: Final = "openai-responses"
DIALECT = DIALECTS[NAME]
HERE = Path(__file__).parent / "captures" / "openai_responses"
CAPTURES = sorted(HERE.glob("*.sse"))
LOST = ErrorPart("upstream", "the thread broke")
PATHS = [
    *(pytest.param(path, id=path.name) for path in CAPTURES),
    *one_in(3, STREAMS, lambda path: path.name),
]
SOMEWHERE, EVERYWHERE = 12, 60
"""At how many of its frames a long stream is taken over."""


class Boundary(msgspec.Struct):
    """Where frames end that were passed on: nothing was found in them, and nothing is held."""

    frames: list[Frame]
    told: list[Part]
    rest: list[Part]
    """What comes if the stream goes on."""
    odd: bool
    """Something is found in what comes."""
    failed: list[Part]
    """What comes if it fails here."""


def context() -> Context:
    return Context(ids=Ids(b"takeover"))


def boundaries(frames: Sequence[Frame], most: int = EVERYWHERE) -> Iterator[Boundary]:
    """The boundaries of one response at which an encoder may have to take over."""
    whole, odd = guarded(frames)
    for count in stops(frames, most):
        findings = Findings()
        assert DIALECT.decoder is not None
        decoder = DIALECT.decoder(context(), findings)
        guard = Guard(Ids(b"guard"), findings)
        read = [part for frame in frames[:count] for part in decoder.feed(frame)]
        told = guard.feed(read)
        if findings.found:
            return
        if decoder.holding or len(told) < len(read):  # a legal part that does not come is held
            continue
        failed = guard.feed([LOST]) + guard.feed(decoder.finish()) + guard.finish()
        if told and not any(isinstance(part, ErrorPart | Finish) for part in told):
            yield Boundary(list(frames[:count]), told, whole[len(told) :], odd, failed)


def stops(frames: Sequence[Frame], most: int = EVERYWHERE) -> list[int]:
    """Behind every frame of a short stream; in a long one behind so many of the deltas, and of the
    other events."""
    plain = [number for number, frame in enumerate(frames, 1) if b".delta" not in frame.data]
    return sorted(
        {*plain[:: len(plain) // most + 1], *range(1, len(frames), len(frames) // most + 1)}
    )


def guarded(frames: Sequence[Frame]) -> tuple[list[Part], bool]:
    """All parts, and whether anything was found."""
    pipe = Pipe(DIALECT, context())
    return pipe.feed(frames) + pipe.finish(), bool(pipe.findings.found)


def taken_over(boundary: Boundary, rest: Sequence[Part]) -> list[Event]:
    """The events of an encoder that goes on behind the frames of a boundary."""
    fold = Assembler()
    for part in boundary.told:
        fold.feed(part)
    told = SentState(DIALECT)
    told.add(((frame, DIALECT.number(frame)) for frame in boundary.frames), boundary.told)
    encoder = told.encoder(context(), fold, Findings())
    events: list[Event] = []
    for part in rest:
        fold.feed(part)
        events += encoder.feed([part])
    return events + encoder.finish()


def client_sees(boundary: Boundary, events: Sequence[Event]) -> bytes:
    passed = [Event("", frame.data) for frame in boundary.frames]
    return write_events([*passed, *events])


# What must hold


def essence(parts: Sequence[Part]) -> list[Any]:
    """What parts say, item by item: pieces joined, the interleaving of items aside. Raw reasoning
    that begins behind the boundary is told as a summary, and reasoning without a word is not told:
    so reasoning is known by its order. Its proof may come in a part of its own.
    """
    groups: dict[Any, list[Any]] = {}
    for part in parts:
        match part:
            case TextDelta(id=id, delta=text) | ReasoningDelta(id=id, delta=text):
                group = groups[type(part).__name__[:4], id]
                group[1] += text
            case TextStart(id=id):
                groups["Text", id] = [value(part), ""]
            case ReasoningStart(id=id):
                groups["Reas", id] = [part.item_id, ""]
            case TextEnd(id=id):
                groups["Text", id].append({**value(part), "extra": None})
            case ReasoningEnd(id=id):
                groups["Reas", id].append((part.encrypted, part.signature, part.origin))
            case ToolParamsStart(id=id):
                groups["call", id] = [value(part), ""]
            case ToolParamsDelta(id=id, delta=text):
                groups["call", id][1] += text
            case ToolParamsEnd(id=id):
                groups["call", id].append("end")
            case ToolCall(id=id):
                groups.setdefault(("call", id), []).append(value(part))
            case ToolResult(id=id, preliminary=True):
                groups.setdefault(("shown", id), []).append(value(part))
            case ToolResult(id=id):
                groups["result", id] = [value(part)]
            case Source(text_id=id):
                groups.setdefault(("sources", id), []).append(value(part)["raw"])
            case Finish():
                groups["finish"] = [part.reason, part.usage]
            case ErrorPart():
                groups["error"] = [part.message]
            case ResponseMetadata():
                groups["metadata"] = [value(part)]
            case _:
                groups.setdefault("others", []).append(value(part))
    thoughts = [groups.pop(key) for key in list(groups) if key[0] == "Reas"]
    groups["thoughts"] = [(item, text) for item, text, *_ in thoughts if text]
    groups["proofs"] = [(item, end) for item, _, *ends in thoughts for end in ends if any(end)]
    return sorted(groups.items(), key=str)


def value(part: Part) -> Any:
    """A part as JSON: the order of keys in what it keeps says nothing."""
    return json.loads(msgspec.json.encode(part))


def assert_the_same_is_said(one: Response, other: Response) -> None:
    assert (one.text, one.reasoning, one.refusal) == (other.text, other.reasoning, other.refusal)
    calls, wanted = one.tool_calls, other.tool_calls
    assert [(c.name, c.params) for c in calls] == [(c.name, c.params) for c in wanted]


ONCE = (".added", ".done", ".in_progress", ".searching", ".completed", ".created")


def assert_nothing_is_told_twice(boundary: Boundary, events: Sequence[Event]) -> None:
    """The upstream's own events may repeat themselves; ours repeat neither those nor ourselves."""
    passed = {place(frame.data) for frame in boundary.frames if frame.data != DONE}
    ours = [place(event.data) for event in events if event.data != DONE]
    told = Counter(one for one in ours if one[0].endswith(ONCE))
    assert [(one, count) for one, count in told.items() if count > 1 or one in passed] == []


@cache  # the events before a boundary are before all later ones, too
def place(data: bytes) -> tuple[Any, ...]:
    event = json.loads(data)
    keys = ("output_index", "content_index", "summary_index", "annotation_index", "command_index")
    return (event["type"], *(event.get(key) for key in keys))


def assert_numbers_grow(boundary: Boundary, events: Sequence[Event]) -> None:
    numbers = [DIALECT.number(frame) for frame in boundary.frames]
    numbers += [event.number for event in events if event.data != DONE]
    told = [number for number in numbers if number is not None]
    assert all(one < another for one, another in pairwise(told))
    assert [DIALECT.number(Frame(event.data)) for event in events] == [
        event.number for event in events
    ]


def accumulated(raw: bytes) -> list[Any]:
    """What the official client makes of a stream: it fails on events that do not fit together."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    out: list[Any] = []
    lines = [line[6:] for line in raw.splitlines() if line.startswith(b"data: {")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pydantic, at tools that only other servers have
        for line in lines:
            # It changes items and parts that it was given; of a delta it takes the text.
            event = delta_event(line) if b'_text.delta"' in line else sdk_event(line)
            if event.type != "error":  # it raises that to its caller
                out += state.handle_event(event)
    return out


def sdk_event(line: bytes) -> Any:
    """An event as the official client has it."""
    type: Any = ResponseStreamEvent
    return construct_type_unchecked(type_=type, value=json.loads(line))


delta_event = cache(sdk_event)


def check(boundary: Boundary, rest: Sequence[Part]) -> None:
    events = taken_over(boundary, rest)
    raw = client_sees(boundary, events)
    (seen,) = decode_all(raw, NAME, context=context())
    whole = [*boundary.told, *rest]
    if boundary.odd:  # what is repaired on the way has other ids, and more is told of it
        assert_the_same_is_said(seen.response, assemble(whole))
    else:
        assert essence(seen.parts) == essence(whole)
        assert seen.response.findings == ()
    assert_nothing_is_told_twice(boundary, events)
    assert_numbers_grow(boundary, events)


def assert_the_official_client_reads_on(boundary: Boundary, rest: Sequence[Part]) -> None:
    raw = client_sees(boundary, taken_over(boundary, rest))
    texts = [event.text for event in accumulated(raw) if event.type == "response.output_text.done"]
    said = assemble([*boundary.told, *rest]).items
    assert texts == [one.text for one in said if isinstance(one, TextItem) and not one.refusal]


@cache
def responses(path: Path) -> list[list[Frame]]:
    raw = path.read_bytes() if path.suffix == ".sse" else recorded(path)
    return frames_of_responses(raw, NAME)


@cache
def boundaries_in(path: Path, most: int = SOMEWHERE) -> list[list[Boundary]]:
    """The boundaries of each response."""
    return [list(boundaries(frames, most)) for frames in responses(path)]


@pytest.mark.parametrize(
    "most", [SOMEWHERE, pytest.param(EVERYWHERE, marks=pytest.mark.long)], ids=["some", "all"]
)
@pytest.mark.parametrize("path", PATHS)
def test_an_encoder_continues_wherever_nothing_is_held(path: Path, most: int) -> None:
    for found in boundaries_in(path, most):
        for boundary in found:
            check(boundary, boundary.rest)
            check(boundary, boundary.failed)


@pytest.mark.parametrize("path", PATHS)
def test_the_official_client_continues_reading(path: Path) -> None:
    """At some boundaries: it is slow."""
    for boundaries in boundaries_in(path):
        found = [one for one in boundaries if not one.odd]
        for boundary in found[1 :: len(found) // 4 + 1]:
            assert_the_official_client_reads_on(boundary, boundary.rest)
            assert_the_official_client_reads_on(boundary, boundary.failed)


CONTENT = (TextStart, TextDelta, ReasoningStart, ReasoningDelta, ToolParamsStart, ToolParamsDelta)


@pytest.mark.parametrize("path", PATHS)
def test_what_is_not_held_was_emitted(path: Path) -> None:
    """Whether the stream is cut there, or fails from outside."""
    for frames in responses(path):
        for count in stops(frames):
            for error in ([], [LOST]):
                findings = Findings()
                assert DIALECT.decoder is not None
                decoder = DIALECT.decoder(context(), findings)
                guard = Guard(Ids(b"guard"), findings)
                read = [part for frame in frames[:count] for part in decoder.feed(frame)]
                if len(guard.feed(read)) < len(read) or decoder.holding:
                    continue
                left = guard.feed(error) + guard.feed(decoder.finish()) + guard.finish()
                valid = [part for part in left if isinstance(part, ToolCall) and not part.invalid]
                assert valid + [part for part in left if isinstance(part, CONTENT)] == []


# Any stream


@examples(60)
@given(SOUP, st.data())
def test_an_encoder_continues_in_any_stream(soup: list[Part], data: st.DataObject) -> None:
    """Our own stream of any parts, passed on up to anywhere."""
    asked = Request("m", include=("reasoning.raw",))
    raw = b"".join(encode(soup, NAME, context=Context(request=asked, ids=Ids(b"1"))))
    (frames,) = frames_of_responses(raw, NAME)
    found = list(boundaries(frames))
    if found:
        boundary = data.draw(st.sampled_from(found))
        check(boundary, boundary.rest)
        check(boundary, boundary.failed)


def test_the_mark_of_an_event_names_its_item_and_part() -> None:
    (frames,) = responses(HERE / "items-overlap.sse")
    assert [DIALECT.number(frame) for frame in frames] == [*range(len(frames) - 1), None]
    assert [key for key in map(DIALECT.event_key, frames) if key is not None] == [
        ("response.created", -1, -1),
        ("response.in_progress", -1, -1),
        ("response.output_item.added", 0, -1, "msg_1"),
        ("response.output_item.added", 1, -1, "lsh_1"),
        ("response.output_item.added", 2, -1, "ws_1"),
        ("response.web_search_call.in_progress", 2, -1),
        ("response.output_item.added", 3, -1, "fc_1"),
        ("response.content_part.added", 0, 0),
        ("response.web_search_call.searching", 2, -1),
        ("response.web_search_call.completed", 2, -1),
        ("response.output_item.done", 2, -1),
        ("response.function_call_arguments.done", 3, -1),
        ("response.output_item.done", 3, -1),
        ("response.output_item.done", 1, -1),
        ("response.output_text.done", 0, 0),
        ("response.content_part.done", 0, 0),
        ("response.output_item.done", 0, -1),
    ]
