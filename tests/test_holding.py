"""What a pipe says it holds is what it holds: nothing that a frame said appears later."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from tests.captures import CHAT, Capture
from tests.strategies import examples
from tests.tables import each_row
from weft.calls import CallDelta, Ledger
from weft.codec import Pipe
from weft.context import Context
from weft.dialects.base import Stage
from weft.dialects.openai_chat.dialect import OPENAI_CHAT
from weft.dialects.stages.custom_tools import CustomToolCalls
from weft.dialects.stages.markup_calls import TAGS, MarkupCalls
from weft.dialects.stages.restore_names import RestoreNames
from weft.dialects.stages.stop_sequences import StopSequences
from weft.dialects.stages.think_tags import ThinkTags
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
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
from weft.sse import Frame, FrameReader

SINGLE = [capture for capture in CHAT if len(capture.expected) == 1]


def frames(raw: bytes) -> list[Frame]:
    reader = FrameReader()
    return reader.feed(raw) + reader.finish() + reader.finish()


def pipe(capture: Capture) -> Pipe:
    reading = capture.reading
    context = Context(request=reading.request, quirks=reading.quirks, ids=Ids(b"capture"))
    return Pipe(OPENAI_CHAT, context)


def says_something(part: Part, called: set[str]) -> bool:
    """Whether a part tells more than that something ended."""
    match part:
        case ErrorPart() | Finish() | ToolParamsEnd():
            return False
        case ResponseMetadata():
            return bool(part.model or part.created)  # no frame has told more than these two
        case TextEnd() | ReasoningEnd():
            bare = part.__class__(part.id, origin=part.origin)
            return part != bare
        case ToolCall():
            return part.id not in called or bool(part.signature) or part.extra is not UNSET
    return True


@each_row("capture", SINGLE, ids=str)
def test_where_nothing_is_held_all_that_was_said_has_come_out(capture: Capture) -> None:
    read = frames(capture.raw)
    for count in range(1, len(read) + 1):
        reader = pipe(capture)
        told = reader.feed(read[:count])
        if not reader.holding:
            called = {part.id for part in told if isinstance(part, ToolParamsStart)}
            later = [part for part in reader.finish() if says_something(part, called)]
            assert later == [], f"after frame {count - 1}"


@pytest.mark.parametrize("name", ["plain", "arguments-interleaved", "reasoning-content-field"])
def test_what_flows_is_not_held(name: str) -> None:
    """Until the finish reason, these streams have something to hold only in a few frames."""
    capture = next(one for one in CHAT if str(one) == name)
    reader = pipe(capture)
    held = [reader.holding for frame in frames(capture.raw) if reader.feed([frame])]
    assert held.count(False) > len(held) // 2


PIECES = st.lists(st.sampled_from(["{", '"', "a", ":", "1", "}", " ", "null", "{}", '{"a":']))


@examples(200)
@given(pieces=PIECES)
def test_a_guard_holds_exactly_the_argument_text_that_has_not_come_out(pieces: list[str]) -> None:
    guard = Guard(Ids(), Findings())
    told, fed = "", ""
    guard.feed([ToolParamsStart("c", "f")])
    for piece in pieces:
        out = guard.feed([ToolParamsDelta("c", piece)])
        fed += piece
        told += "".join(part.delta for part in out if isinstance(part, ToolParamsDelta))
        assert guard.holding == (told != fed)
    guard.feed([ToolParamsEnd("c"), ToolCall("c", "f", "")])
    assert not guard.holding


def test_a_guard_holds_a_call_without_a_name_and_an_end_that_waits() -> None:
    guard = Guard(Ids(), Findings())
    fed: list[tuple[Part, bool]] = [
        (ToolParamsStart("c", ""), True),
        (ToolParamsStart("c", "f"), False),
        (ToolParamsDelta("c", '{"a":'), False),
        (ToolParamsEnd("c"), True),  # which is not settled: more may come
        (ToolCall("c", "f", ""), False),
    ]
    for part, held in fed:
        guard.feed([part])
        assert guard.holding == held, part


ENTRIES = st.builds(
    CallDelta,
    index=st.sampled_from([None, 0, 0, 1]),
    id=st.sampled_from([None, "a", "b"]),
    name=st.sampled_from([None, "f", "g"]),
    arguments=st.sampled_from(["", "{", '"a":1', "}", "{}", '{"b":2}', "\ud83d", "\ude00"]),
    signature=st.sampled_from([None, None, None, "s"]),
)


@examples(400)
@given(chunks=st.lists(st.lists(ENTRIES, max_size=3), max_size=6))
def test_a_ledger_that_holds_nothing_has_nothing_left_to_say(chunks: list[list[CallDelta]]) -> None:
    ledger = Ledger(Ids(), Findings())
    told: list[Part] = []
    for entries in chunks:
        told += ledger.feed(entries)
    held = ledger.holding
    called = {part.id for part in told if isinstance(part, ToolParamsStart)}
    later = [part for part in ledger.finish() if says_something(part, called)]
    assert held or later == []
    assert not ledger.holding


STAGES: dict[str, Callable[[], Stage]] = {
    "think tags": lambda: ThinkTags(Ids(), Findings()),
    "think tags, implicit": lambda: ThinkTags(Ids(), Findings(), implicit=True),
    "markup calls": lambda: MarkupCalls(TAGS, Ids(), Findings()),
    "stop cut": lambda: StopSequences(("<tool", "k>"), Findings()),
    "restore names": lambda: RestoreNames({"f": "g"}),
}
WORDS = ["<think>", "</think>", "<th", "ink>", "\n", " ", "so", "<tool_call>", "</tool_call>"]
CALL = '{"name":"f","arguments":{}}'


@pytest.mark.parametrize("name", STAGES)
@examples(200)
@given(words=st.lists(st.sampled_from([*WORDS, CALL]), max_size=8), reasoned=st.booleans())
def test_a_stage_that_holds_nothing_has_nothing_left_to_say(
    name: str, words: list[str], reasoned: bool
) -> None:
    stage = STAGES[name]()
    reasoning: list[Part] = [ReasoningStart("r", "raw"), ReasoningEnd("r")] if reasoned else []
    for part in (*reasoning, TextStart("t"), *(TextDelta("t", word) for word in words)):
        stage.feed([part])
    held = stage.holding
    later = [part for part in stage.finish() if says_something(part, set())]
    assert held == bool(later) or (held and not words)


@examples(200)
@given(pieces=PIECES.map(lambda pieces: ['{"input"', ':"', *pieces]))
def test_a_bridge_holds_what_it_has_read_and_not_told(pieces: list[str]) -> None:
    bridge = CustomToolCalls(("f",), Findings())
    bridge.feed([ToolParamsStart("c", "f")])
    for piece in pieces:
        bridge.feed([ToolParamsDelta("c", piece)])
    held = bridge.holding
    assert held == bool(bridge.finish())
