"""The fold: what was streamed, joined once, whatever the pieces were."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.strategies import LEGAL, QUICK, THOROUGH, USAGE, cuts
from weft.assembler import (
    CUT,
    ERROR,
    Assembler,
    Buffer,
    Failure,
    ReasoningItem,
    Response,
    TextItem,
    merged,
)
from weft.findings import Finding
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

METADATA = ResponseMetadata("resp_1", model="m", created=7, dialect="d")
PIECE = st.text("ab }]\n", max_size=3)


def folded(*parts: Part) -> Response:
    fold = Assembler()
    for part in parts:
        fold.feed(part)
    return fold.response()


def buffered(pieces: list[str]) -> Buffer:
    buffer = Buffer()
    for piece in pieces:
        buffer.add(piece)
    return buffer


# Buffer

ADD = st.tuples(st.just("add"), PIECE)
SET = st.tuples(st.just("set"), PIECE)
READ = st.tuples(st.just("read"), st.just(""))


@THOROUGH
@given(steps=st.lists(ADD | ADD | SET | READ, max_size=20))
def test_a_buffer_is_its_pieces_joined_whenever_it_is_read(steps: list[tuple[str, str]]) -> None:
    buffer, text = Buffer(), ""
    for step, piece in steps:
        if step == "add":
            buffer.add(piece)
            text += piece
        elif step == "set":
            buffer.set(piece)
            text = piece
        else:
            assert buffer.text == text
        assert buffer.length == len(text)
        assert [buffer.since(at) for at in range(len(text) + 1)] == [
            text[at:] for at in range(len(text) + 1)
        ]
    assert buffer.text == text == buffer.text


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 1000])
def test_text_is_joined_in_blocks(count: int) -> None:
    pieces = [f"{number} " for number in range(count)]
    text = "".join(pieces)
    buffer = buffered(pieces)
    assert buffer.since(len(text) // 2) == text[len(text) // 2 :]
    assert buffer.text == text


@QUICK
@given(data=st.data(), text=st.text("a}] \t\r\n", max_size=8))
def test_what_ends_like_json_is_seen_under_any_cut(data: st.DataObject, text: str) -> None:
    buffer = buffered([piece for piece in data.draw(cuts(text)) if piece])
    if text.rstrip(" \t\r\n")[-1:] in ("}", "]", ""):
        assert buffer.ends_like_json()
    if data.draw(st.booleans()):
        assert buffer.text == text
        assert buffer.ends_like_json() == (text.rstrip(" \t\r\n")[-1:] in ("}", "]", ""))


def test_text_that_does_not_end_like_json_is_seen_without_joining_it() -> None:
    assert not buffered(["{}", "x "]).ends_like_json()
    assert not buffered(["x"] * 64).ends_like_json()
    assert buffered(["x"] * 63 + ["]\n"]).ends_like_json()
    assert Buffer().ends_like_json()


# The fold


@QUICK
@given(data=st.data(), texts=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=3))
def test_the_fold_is_the_joined_deltas(data: st.DataObject, texts: list[str]) -> None:
    fold = Assembler()
    fold.feed(METADATA)
    for number, text in enumerate(texts):
        id = str(number)
        pieces = [piece for piece in data.draw(cuts(text)) if piece]
        params = json.dumps(text)
        fold.feed(TextStart(id))
        fold.feed(ReasoningStart(id, "raw"))
        fold.feed(ToolParamsStart(id, "look"))
        for piece in pieces:
            fold.feed(TextDelta(id, piece))
            fold.feed(ReasoningDelta(id, piece))
        for piece in data.draw(cuts(params)):
            fold.feed(ToolParamsDelta(id, piece))
        assert (fold.text(id), fold.reasoning(id), fold.joined(id)) == (text, text, params)
        fold.feed(TextEnd(id))
        fold.feed(ReasoningEnd(id))
        fold.feed(ToolParamsEnd(id))
        fold.feed(ToolCall(id, "look", params))
    response = fold.response()
    assert response.text == response.reasoning == "".join(texts)
    assert [call.params for call in response.tool_calls] == [json.dumps(text) for text in texts]
    assert response.items == tuple(
        item
        for number, text in enumerate(texts)
        for item in (
            TextItem(str(number), text),
            ReasoningItem(str(number), text),
            ToolCall(str(number), "look", json.dumps(text)),
        )
    )


def test_items_stand_in_the_order_of_their_announcement() -> None:
    result, source = ToolResult("lone", Raw(b"1")), Source("s", "url", url="https://a.example")
    approval, file = ToolApprovalRequest("lone", "approval_1"), File("f", "image/png", data="AA==")
    opaque = Opaque("gemini", "x", Raw(b'{"k":1}'))
    lone, call = ToolCall("lone", "read", "{}"), ToolCall("c", "look", "[]")
    response = folded(
        METADATA,
        ToolParamsStart("c", "look"),
        TextStart("t"),
        lone,
        approval,
        result,
        source,
        file,
        opaque,
        TextDelta("t", "x"),
        TextEnd("t"),
        ToolParamsDelta("c", "[]"),
        ToolParamsEnd("c"),
        call,
        Finish("tool-calls"),
    )
    text = TextItem("t", "x")
    assert response.items == (call, text, lone, approval, result, source, file, opaque)


def test_a_text_item_has_all_of_its_start_and_end() -> None:
    start = TextStart("t", item_id="msg_1", phase="final", refusal=True, extra=Raw(b"1"))
    end = TextEnd("t", annotations=(Raw(b"{}"),), signature="s", origin="o", extra=Raw(b"2"))
    item = TextItem("t", "x", True, "msg_1", "final", (Raw(b"{}"),), "s", "o", Raw(b"2"))
    assert folded(start, TextDelta("t", "x"), end).items == (item,)
    plain = msgspec.structs.replace(end, extra=UNSET)
    first = msgspec.structs.replace(item, extra=Raw(b"1"))
    assert folded(start, TextDelta("t", "x"), plain).items == (first,)


def test_a_reasoning_item_has_all_of_its_start_and_end() -> None:
    start = ReasoningStart("r", "summary", item_id="rs_1", extra=Raw(b"1"))
    end = ReasoningEnd("r", "s", "e", "r", "o", extra=Raw(b"2"))
    item = ReasoningItem("r", "x", "summary", "rs_1", "s", "e", "r", "o", Raw(b"2"))
    assert folded(start, ReasoningDelta("r", "x"), end).items == (item,)
    plain = msgspec.structs.replace(end, extra=UNSET)
    first = msgspec.structs.replace(item, extra=Raw(b"1"))
    assert folded(start, ReasoningDelta("r", "x"), plain).items == (first,)


def test_a_fold_can_be_read_while_items_are_open() -> None:
    response = folded(
        METADATA,
        TextStart("t"),
        TextDelta("t", "x"),
        ReasoningStart("r", "raw"),
        ToolParamsStart("c", "look"),
        ToolParamsDelta("c", "{"),
    )
    assert response == Response(
        "resp_1", "m", 7, "d", (TextItem("t", "x"), ReasoningItem("r", "", "raw"))
    )


def test_what_was_never_announced_adds_up_to_nothing() -> None:
    fold = Assembler()
    assert (fold.text("a"), fold.reasoning("a"), fold.joined("a")) == ("", "", "")
    assert fold.empty
    assert fold.response() == Response("")


@pytest.mark.parametrize(
    ("part", "empty"),
    [
        (METADATA, True),
        (ErrorPart("empty", "nothing"), True),
        (Finish("stop"), True),
        (TextStart("t"), False),
        (ReasoningStart("r", "raw"), False),
        (ToolParamsStart("c", "look"), False),
        (ToolCall("c", "look", "{}"), False),
        (Source("s", "url"), False),
    ],
    ids=lambda one: one.type if isinstance(one, Part) else "",
)
def test_a_fold_is_empty_until_an_item_is_announced(part: Part, empty: bool) -> None:
    fold = Assembler()
    fold.feed(part)
    assert fold.empty is empty


def test_refusals_are_text_of_their_own() -> None:
    response = folded(
        TextStart("a"),
        TextDelta("a", "yes "),
        TextStart("b", refusal=True),
        TextDelta("b", "no"),
        TextStart("c"),
        TextDelta("c", "and yes"),
    )
    assert (response.text, response.refusal, response.reasoning) == ("yes and yes", "no", "")


def test_a_call_that_came_whole_adds_up_to_its_params() -> None:
    fold = Assembler()
    fold.feed(ToolCall("c", "look", '{"a":1}'))
    assert fold.joined("c") == '{"a":1}'


def test_calls_are_parted_into_valid_and_invalid_ones() -> None:
    valid, hosted = ToolCall("a", "look", "{}"), ToolCall("b", "x", "{}", provider_executed=True)
    broken = ToolCall("c", "look", "{", invalid="bad-arguments")
    response = folded(valid, broken, hosted)
    assert response.tool_calls == (valid, hosted)
    assert response.invalid_tool_calls == (broken,)


def test_a_failed_response_invalidates_client_calls_but_not_provider_executed_ones() -> None:
    client, hosted = ToolCall("a", "look", "{}"), ToolCall("b", "x", "{}", provider_executed=True)
    broken = ToolCall("c", "look", "{", invalid="bad-arguments")
    error = ErrorPart("upstream", "no", code="c", status=500, retryable=True)
    response = folded(METADATA, client, hosted, broken, error, Finish("error"))
    assert response.tool_calls == (hosted,)
    assert response.invalid_tool_calls == (
        msgspec.structs.replace(client, invalid="stream-failed"),
        msgspec.structs.replace(broken, invalid="stream-failed"),
    )
    assert response.error == Failure("upstream", "no", "c", 500, True)


def test_the_finish_has_the_reason_and_the_final_model() -> None:
    finish = Finish("stop", raw_reason="end", model="m-2", stop_sequence="###", usage=Usage(1))
    assert folded(METADATA, finish) == Response(
        "resp_1",
        "m-2",
        7,
        "d",
        finish_reason="stop",
        raw_finish_reason="end",
        stop_sequence="###",
        usage=Usage(1),
    )
    assert folded(METADATA, Finish("stop")).model == "m"


def test_a_response_keeps_the_extra_of_its_finish_and_a_stored_one_too() -> None:
    response = folded(METADATA, Finish("stop", extra=Raw(b'{"container":{"id":"c"}}')))
    assert response.extra == Raw(b'{"container":{"id":"c"}}')
    assert msgspec.json.decode(msgspec.json.encode(response), type=Response) == response
    assert folded(METADATA, Finish("stop")).extra is UNSET


def test_a_response_carries_the_findings_and_the_choice_it_is_given() -> None:
    finding = Finding("end-missing", 3, 14, "detail")
    response = Assembler().response((finding,), choice=2)
    assert (response.findings, response.choice) == ((finding,), 2)


def test_items_one_after_the_other_and_then_the_error_need_no_order() -> None:
    text = [TextStart("t"), TextDelta("t", "a"), TextEnd("t")]
    call = [ToolParamsStart("c", "look"), ToolParamsEnd("c"), ToolCall("c", "look", "{}")]
    assert folded(METADATA, *text, *call, Finish("stop")).order == ()
    assert folded(METADATA, *text, ErrorPart("upstream", "no"), Finish("error")).order == ()


def test_the_order_says_what_overlapped_and_what_an_error_found_open() -> None:
    parts: list[Part] = [TextStart("t"), ToolParamsStart("c", "look"), TextEnd("t")]
    late: list[Part] = [ToolParamsEnd("c"), ToolCall("c", "look", "", invalid="stream-failed")]
    error = ErrorPart("upstream", "no")
    assert folded(METADATA, *parts, error, *late, Finish("error")).order == (0, 1, 0, ERROR, 1)
    cut = folded(METADATA, *parts, *late, error, Finish("error"))
    assert cut.order == (0, 1, 0, CUT - 1, ERROR)


@QUICK
@given(stream=LEGAL)
def test_a_response_survives_json(stream: list[Part]) -> None:
    response = folded(*stream)
    assert msgspec.json.decode(msgspec.json.encode(response), type=Response) == response


@QUICK
@given(stream=LEGAL)
def test_the_fold_is_the_same_however_often_it_is_read(stream: list[Part]) -> None:
    fold = Assembler()
    for part in stream:
        fold.feed(part)
        fold.response()
    assert fold.response() == folded(*stream)


# Usage


def present(usage: Usage | None) -> dict[str, Any]:
    fields = msgspec.structs.asdict(usage) if usage else {}
    return {key: value for key, value in fields.items() if value is not None}


@QUICK
@given(first=USAGE, second=USAGE)
def test_per_field_the_last_usage_wins(first: Usage | None, second: Usage | None) -> None:
    both = merged(first, second)
    assert present(both) == {**present(first), **present(second)}
    assert (both is None) == (first is None and second is None)
    assert (
        folded(msgspec.structs.replace(METADATA, usage=first), Finish("stop", usage=second)).usage
        == both
    )


# Before the end


def test_what_is_known_of_a_response_on_its_way() -> None:
    """Without joining any text."""
    fold = Assembler()
    assert (fold.usage, fold.length, fold.is_whole) == (None, 0, False)
    for part in (
        ResponseMetadata("r", usage=Usage(input_tokens=7, output_tokens=1)),
        TextStart("t"),
        TextDelta("t", "four"),
        ReasoningStart("r", "raw"),
        ReasoningDelta("r", "12345"),
        ToolParamsStart("c", "f"),
        ToolParamsDelta("c", "{}"),
    ):
        fold.feed(part)
    assert (fold.usage, fold.length, fold.is_whole) == (Usage(7, 1), 11, False)
    fold.feed(Finish("stop", usage=Usage(output_tokens=9)))
    assert (fold.usage, fold.is_whole) == (Usage(7, 9), True)
    fold.feed(ErrorPart("truncated", "x"))
    assert not fold.is_whole


def test_text_can_be_added_to_the_buffer_of_a_part() -> None:
    fold = Assembler()
    deltas = TextDelta("t", "a"), ReasoningDelta("r", "a"), ToolParamsDelta("c", "a")
    starts = TextStart("t"), ReasoningStart("r", "raw"), ToolParamsStart("c", "f")
    for part in (ResponseMetadata("r"), *starts, *deltas):
        fold.feed(part)
    for delta in deltas:
        fold.buffer(delta).add("b")
    assert [fold.text("t"), fold.reasoning("r"), fold.joined("c")] == ["ab", "ab", "ab"]
