"""Stop sequences that the upstream does not know, wherever the deltas are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests import staged
from tests.strategies import LEGAL, QUICK, SOUP, THOROUGH, cuts
from weft import Context, Decoder, Encoder, Ids
from weft.assembler import Assembler, Response, TextItem
from weft.dialects.stages.stop_sequences import StopSequences
from weft.findings import Findings
from weft.guard import Guard
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
)

START = ResponseMetadata("resp_1")
USAGE = Usage(3, 4)
END = Finish("stop", raw_reason="completed", usage=USAGE, model="m")
CUT = Finish("stop", usage=USAGE, model="m", stop_sequence="END")
THINKING: list[Part] = [
    ReasoningStart("r", "raw"),
    ReasoningDelta("r", "END"),
    ReasoningEnd("r", signature="s"),
]


def call(id: str = "c") -> list[Part]:
    return [
        ToolParamsStart(id, "look"),
        ToolParamsDelta(id, '{"a":"END"}'),
        ToolParamsEnd(id),
        ToolCall(id, "look", '{"a":"END"}'),
    ]


def text(id: str, *deltas: str) -> list[Part]:
    return [TextStart(id), *(TextDelta(id, delta) for delta in deltas if delta), TextEnd(id)]


def run(parts: list[Part], *stop: str) -> tuple[list[Part], Response]:
    findings = Findings()
    return staged.run(StopSequences(stop, findings), findings, parts)


def codes(response: Response) -> list[str]:
    return [finding.code for finding in response.findings]


def read(whole: str, stop: tuple[str, ...]) -> tuple[str, str | None]:
    """The answer and the sequence that ended it, as if it were written letter by letter."""
    for end in range(len(whole) + 1):
        for sequence in sorted(stop, key=len, reverse=True):
            if sequence and whole[:end].endswith(sequence):
                return whole[: end - len(sequence)], sequence
    return whole, None


LETTERS = st.text(st.sampled_from("aab\n🧵"), max_size=24)
STOP = st.lists(st.text(st.sampled_from("aab\n🧵"), max_size=5), max_size=4).map(tuple)


@THOROUGH
@given(st.data(), LETTERS, STOP)
def test_the_answer_ends_before_the_first_sequence_that_is_complete(
    data: st.DataObject, whole: str, stop: tuple[str, ...]
) -> None:
    """However the text is cut into deltas and parts."""
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    edges = list(pairwise([0, *places, len(whole)]))
    parts: list[Part] = []
    for number, (start, end) in enumerate(edges):
        told = data.draw(st.booleans())
        said = text(f"t{number}", *data.draw(cuts(whole[start:end], 4)))
        if told:
            said[-1] = TextEnd(f"t{number}", whole=whole[start:end])
        parts += said
    _, response = run([START, *parts, END], *stop)
    expected, sequence = read(whole, stop)
    assert (response.text, response.stop_sequence) == (expected, sequence)
    kept = len(expected)
    assert response.items == tuple(
        TextItem(f"t{number}", whole[start : min(end, kept)])
        for number, (start, end) in enumerate(edges)
        if start < kept or start == end == kept or sequence is None
    )
    assert response.finish_reason == "stop"
    assert response.usage == USAGE
    assert codes(response) == ["stop-cut"] * (sequence is not None)


@THOROUGH
@given(st.data(), LETTERS, STOP)
def test_nothing_waits_longer_than_it_must(
    data: st.DataObject, whole: str, stop: tuple[str, ...]
) -> None:
    stage = StopSequences(stop, Findings())
    stage.feed([START, TextStart("t")])
    said = ""
    for end, letter in enumerate(whole, 1):
        out = stage.feed([TextDelta("t", letter)])
        said += "".join(part.delta for part in out if isinstance(part, TextDelta))
        if stage.matched is not None:
            break
        heads = {one[:size] for one in stop for size in range(1, len(one))}
        held = max((len(head) for head in heads if whole[:end].endswith(head)), default=0)
        assert said == whole[: end - held]
    assert (said, stage.matched) == (read(whole, stop) if stage.matched else (said, None))


def test_a_stream_without_a_sequence_passes_untouched() -> None:
    parts = [START, *THINKING, *text("t", "to the E", "N"), *call(), *text("u", "d"), END]
    parts[-1] = Finish("tool-calls", raw_reason="completed", usage=USAGE)
    for stop in (("END",), (), ("",)):
        out, response = run(parts, *stop)
        joined = [part for part in out if not isinstance(part, TextDelta)]
        assert joined == [part for part in parts if not isinstance(part, TextDelta)]
        assert (response.text, response.findings) == ("to the ENd", ())


def test_the_cut_answer_has_one_text_and_its_own_finish() -> None:
    parts = [START, *text("t", "a E", "ND", " of it"), END]
    out, response = run(parts, "\n", "END")
    assert out == [START, TextStart("t"), TextDelta("t", "a "), TextEnd("t"), CUT]
    assert codes(response) == ["stop-cut"]


def test_the_whole_text_at_the_end_brings_nothing_back() -> None:
    ended = TextEnd("t", whole="a END b", annotations=(Raw(b"{}"),))
    out, _ = run([START, TextStart("t"), TextDelta("t", "a END b"), ended, END], "END")
    assert out == [START, TextStart("t"), TextDelta("t", "a "), TextEnd("t"), CUT]
    out, response = run([START, TextStart("t"), TextDelta("t", "a"), ended, END], "END")
    assert response.text == "a "
    assert codes(response) == ["whole-extends", "stop-cut"]


def test_an_id_that_comes_again_is_another_text() -> None:
    once: list[Part] = [TextStart("t"), TextDelta("t", "a"), TextEnd("t", whole="ab")]
    again: list[Part] = [TextStart("t"), TextDelta("t", "a"), TextEnd("t", whole="a END")]
    _, response = run([START, *once, *again, END], "END")
    assert response.text == "aba "
    assert codes(response) == ["whole-extends", "id-reused", "whole-extends", "stop-cut"]


def test_a_text_that_begins_with_the_sequence_is_never_begun() -> None:
    assert run([START, *text("t", "EN", "D b"), END], "END")[0] == [START, CUT]
    out, _ = run([START, *text("t", "a"), *text("u", "END"), END], "END")
    assert out == [START, *text("t", "a"), CUT]
    out, _ = run([START, *text("t", "a E"), *text("u", "N"), *text("v", "D"), END], "END")
    assert out == [START, *text("t", "a "), CUT]


def test_an_empty_text_stays() -> None:
    parts = [START, *text("t"), *text("u", "a"), END]
    assert run(parts, "END")[0] == parts


@pytest.mark.parametrize(
    "between",
    [
        THINKING,
        call(),
        [ToolCall("c", "look", "{}")],
        [File("f", "image/png", data="AA==")],
        [Opaque("x", "y", Raw(b"{}"))],
        [TextStart("n", refusal=True), TextDelta("n", "ND"), TextEnd("n")],
    ],
    ids=lambda parts: parts[0].type,
)
def test_no_sequence_reaches_over_something_else(between: list[Part]) -> None:
    end = Finish("tool-calls" if any(isinstance(one, ToolCall) for one in between) else "stop")
    parts = [START, *text("t", "a E"), *between, *text("u", "ND"), end]
    out, response = run(parts, "END")
    assert response.text == "a END"
    assert response.findings == ()
    assert out[1:5] == [TextStart("t"), TextDelta("t", "a "), TextDelta("t", "E"), TextEnd("t")]


def test_only_the_answer_is_searched() -> None:
    refused = [TextStart("n", refusal=True), TextDelta("n", "END"), TextEnd("n")]
    parts = [START, *THINKING, *call(), *refused, Finish("tool-calls")]
    out, response = run(parts, "END")
    assert (out, response.findings) == (parts, ())


# After the cut


def test_what_comes_after_the_cut_is_left_out() -> None:
    late: list[Part] = [
        *text("u", "more"),
        *THINKING,
        *call("late"),
        ToolResult("late", Raw(b"1")),
        ToolApprovalRequest("late", "x"),
        File("f", "image/png", data="AA=="),
        Opaque("x", "y", Raw(b"{}")),
        Source("s", "url", url="https://a.example"),
    ]
    out, response = run([START, *text("t", "a END"), *late, END], "END")
    assert out == [START, *text("t", "a "), CUT]
    assert codes(response) == ["stop-cut", "stop-cut"]
    assert response.findings[1].detail == "call 'late' of 'look' came after 'END': dropped"


def test_what_was_begun_before_the_cut_goes_on_to_its_end() -> None:
    begun: list[Part] = [
        ReasoningStart("r", "raw"),
        ToolParamsStart("c", "look"),
        TextStart("n", refusal=True),
        TextStart("u"),
        TextDelta("u", "b"),
    ]
    rest: list[Part] = [
        ReasoningDelta("r", "x"),
        ReasoningEnd("r", signature="s"),
        TextEnd("n"),
        TextDelta("u", "c"),
        TextEnd("u", whole="bc"),
        ToolParamsDelta("c", '{"a":1}'),
        ToolParamsEnd("c"),
        ToolCall("c", "look", '{"a":1}'),
        ToolResult("c", Raw(b"1")),
    ]
    out, response = run([START, *begun, *text("t", "a END"), *rest, END], "END")
    assert [(call.id, call.params) for call in response.tool_calls] == [("c", '{"a":1}')]
    assert (response.text, response.reasoning) == ("ba ", "x")
    assert (response.finish_reason, response.stop_sequence) == ("tool-calls", "END")
    assert codes(response) == ["stop-cut"]
    assert out[-1] == Finish("tool-calls", usage=USAGE, model="m", stop_sequence="END")


def test_calls_before_the_cut_are_still_to_be_made() -> None:
    out, response = run([START, *call(), *text("t", "a END b"), END], "END")
    assert out[-1] == Finish("tool-calls", usage=USAGE, model="m", stop_sequence="END")
    assert len(response.tool_calls) == 1
    assert codes(response) == ["stop-cut"]


def test_calls_that_nobody_has_to_make_do_not_change_the_reason() -> None:
    done = ToolCall("c", "search", "{}", provider_executed=True)
    late = Finish("tool-calls", usage=USAGE, model="m")
    out, _ = run([START, done, *text("t", "a END b"), *call("d"), late], "END")
    assert out == [START, done, *text("t", "a "), CUT]


def test_an_error_after_the_cut_does_not_spoil_the_answer() -> None:
    failed = [ErrorPart("upstream", "no"), Finish("error", usage=USAGE, model="m")]
    out, response = run([START, *text("t", "a END b"), *failed], "END")
    assert out == [START, *text("t", "a "), CUT]
    assert response.findings[-1].detail == "an error after 'END': dropped: 'no'"


def test_a_stream_that_is_given_up_after_the_cut_is_finished() -> None:
    out, response = run([START, *text("t", "a END b")], "END")
    assert out == [START, *text("t", "a "), Finish("stop", stop_sequence="END")]
    assert response.error is None


def test_text_that_waits_is_not_lost_with_an_error_or_a_cut_stream() -> None:
    parts: list[Part] = [START, TextStart("t"), TextDelta("t", "a EN")]
    for rest in ([ErrorPart("upstream", "no"), Finish("error")], [], [Finish("length")]):
        _, response = run([*parts, *rest], "END")
        assert response.text == "a EN"
        assert response.stop_sequence is None


def test_sources_stay_that_speak_of_text_that_stayed() -> None:
    near = Source("s", "url", text_id="t", url="https://a.example", start=0, end=2)
    far = Source("s", "url", text_id="t", url="https://b.example", start=0, end=3)
    parts: list[Part] = [START, TextStart("t"), TextDelta("t", "a E"), near, far]
    parts += [TextDelta("t", "ND b"), near, far, TextEnd("t"), near, END]
    out, _ = run(parts, "END")
    assert out == [START, TextStart("t"), TextDelta("t", "a "), near, TextEnd("t"), near, near, CUT]


def test_a_source_waits_behind_the_letters_that_wait() -> None:
    source = Source("s", "url", text_id="t", url="https://a.example", start=0, end=3)
    parts: list[Part] = [START, TextStart("t"), TextDelta("t", "a E"), source]
    out, _ = run([*parts, TextDelta("t", "x"), source, TextEnd("t"), END], "END")
    assert out == [
        *(START, TextStart("t"), TextDelta("t", "a "), TextDelta("t", "E"), source),
        *(TextDelta("t", "x"), source, TextEnd("t"), END),
    ]


def test_the_longest_of_those_that_end_together_wins() -> None:
    _, response = run([START, *text("t", "a###b"), END], "#", "##")
    assert (response.text, response.stop_sequence) == ("a", "#")
    _, response = run([START, *text("t", "xabc"), END], "c", "abc")
    assert (response.text, response.stop_sequence) == ("x", "abc")


def test_a_very_long_sequence_costs_no_more_than_the_text() -> None:
    stop = "a" * 50_000 + "b"
    _, response = run([START, *text("t", *["a" * 1000] * 100), END], stop)
    assert response.text == "a" * 100_000


# The whole way


def test_a_client_with_stop_sequences_never_learns_that_the_upstream_has_none() -> None:
    upstream = Encoder("openai-responses", context=Context(ids=Ids(b"1")))
    said = [START, *text("t", "one, E", "ND", ", two"), *call(), Finish("tool-calls", usage=USAGE)]
    raw = b"".join(upstream.feed(said) + upstream.finish())
    decoder = Decoder("openai-responses", context=Context(ids=Ids(b"1")))
    findings = Findings()
    stage, guard = StopSequences(("END",), findings), Guard(Ids(b"1"), findings)
    read = stage.feed([*decoder.feed(raw), *decoder.finish()]) + stage.finish()
    encoder = Encoder("anthropic-messages", context=Context(ids=Ids(b"1")), fold=guard.fold)
    written = encoder.feed(guard.feed(read) + guard.finish()) + encoder.finish()
    events = [json.loads(one.partition(b"data: ")[2]) for one in written]
    deltas = [one["delta"] for one in events if one["type"] == "content_block_delta"]
    assert "".join(delta["text"] for delta in deltas) == "one, "
    (end,) = [one for one in events if one["type"] == "message_delta"]
    assert end["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert end["usage"]["output_tokens"] == 4


# Any parts


@QUICK
@given(LEGAL)
def test_legal_parts_stay_legal(parts: list[Part]) -> None:
    run(parts, "a", "ab", "\x00")
    joined = Assembler()
    for part in parts:
        joined.feed(part)
    _, response = run(parts)
    assert (response.text, response.findings) == (joined.response(()).text, ())


@QUICK
@given(SOUP, STOP)
def test_any_parts_come_out_legal(parts: list[Part], stop: tuple[str, ...]) -> None:
    _, response = run(parts, *stop)
    if response.stop_sequence is not None:
        assert response.error is None
        assert response.finish_reason in ("stop", "tool-calls")
