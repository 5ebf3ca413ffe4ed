"""The AI SDK decoder: both streams, one call per id, one response per step, odd captures."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.captures import lines as part_lines
from tests.responses import events, item_ids, of_type
from tests.strategies import QUICK
from tests.tables import each_row
from weft import (
    Context,
    Decoder,
    ErrorPart,
    File,
    Finish,
    Ids,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningItem,
    ReasoningStart,
    Response,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextItem,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
    convert,
    decode_all,
    detect,
)
from weft.assembler import Assembler
from weft.dialects.ai_sdk.decoder import EVENTS
from weft.lifecycle import violations

Event = dict[str, Any]

CAPTURES = sorted((Path(__file__).parent / "captures" / "ai_sdk").glob("*.sse"))

STREAM: list[Event] = [
    {"type": "stream-start", "warnings": []},
    {"type": "response-metadata", "id": "r1", "modelId": "m-1",
     "timestamp": "2026-01-02T03:04:05.678Z"},
]  # fmt: skip
DONE: Event = {
    "type": "finish",
    "finishReason": {"unified": "stop", "raw": "end"},
    "usage": {
        "inputTokens": {"total": 9, "noCache": 4, "cacheRead": 3, "cacheWrite": 2},
        "outputTokens": {"total": 5, "text": 4, "reasoning": 1},
    },
}
UI: list[Event] = [{"type": "start", "messageId": "m1"}, {"type": "start-step"}]
UI_DONE: list[Event] = [{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}]

START: Event = {"type": "tool-input-start", "id": "call_123", "toolName": "get_weather"}
DELTAS: list[Event] = [
    {"type": "tool-input-delta", "id": "call_123", "delta": '{"loc'},
    {"type": "tool-input-delta", "id": "call_123", "delta": 'ation":"NYC"}'},
]
END: Event = {"type": "tool-input-end", "id": "call_123"}
CALL: Event = {
    "type": "tool-call",
    "toolCallId": "call_123",
    "toolName": "get_weather",
    "input": {"location": "NYC"},
}
MODEL_CALL: Event = {**CALL, "input": '{"location":"NYC"}'}
UI_START: Event = {"type": "tool-input-start", "toolCallId": "k", "toolName": "look"}
UI_CALL: Event = {
    "type": "tool-input-available", "toolCallId": "k", "toolName": "look", "input": {"at": 1},
}  # fmt: skip
CALL_PARTS: list[Part] = [
    ToolParamsStart("call_123", "get_weather"),
    ToolParamsDelta("call_123", '{"loc'),
    ToolParamsDelta("call_123", 'ation":"NYC"}'),
    ToolParamsEnd("call_123"),
    ToolCall("call_123", "get_weather", '{"location":"NYC"}'),
]


def lines(*found: Event) -> bytes:
    return "".join(json.dumps(event) + "\n" for event in found).encode()


def chunks(*found: Event) -> bytes:
    blocks = [f"data: {json.dumps(event)}\n\n" for event in found]
    return "".join(blocks).encode() + b"data: [DONE]\n\n"


def whole(raw: bytes) -> tuple[list[Part], Response]:
    """Returns the legal parts and the response of a capture with one response."""
    (one,) = decode_all(raw, "ai-sdk")
    assert violations(one.parts, Assembler()) == []
    return [*one.parts], one.response


def model(*found: Event, finish: Event = DONE) -> tuple[list[Part], Response]:
    """Returns the parts of model parts between a start and a finish, without those of the two."""
    parts, response = whole(lines(*STREAM, *found, finish))
    return parts[1:-1], response


def ui(*found: Event, end: list[Event] = UI_DONE) -> tuple[list[Part], Response]:
    """Returns the parts of chunks between a start and a finish, without those of the two."""
    parts, response = whole(chunks(*UI, *found, *end))
    return parts[1:-1], response


def codes(response: Response) -> list[str]:
    return [finding.code for finding in response.findings]


# Captures


def stem(path: Path) -> str:
    return path.stem


@each_row("capture", CAPTURES, ids=stem)
def test_an_odd_stream_becomes_the_parts_of_its_golden(capture: Path) -> None:
    found = decode_all(capture.read_bytes(), "ai-sdk")
    golden = capture.with_suffix(".parts.jsonl").read_bytes()
    assert b"".join(part_lines(one.parts) for one in found) == golden


@each_row("capture", CAPTURES, ids=stem)
def test_an_odd_stream_is_recognised_and_becomes_legal_parts(capture: Path) -> None:
    raw = capture.read_bytes()
    assert detect(raw) == "ai-sdk"
    for one in decode_all(raw, "ai-sdk"):
        assert violations(one.parts, Assembler()) == []


def test_there_are_captures() -> None:
    assert len(CAPTURES) >= 33


# The response


def test_model_parts_give_id_model_time_finish_reason_and_usage() -> None:
    parts, response = whole(lines(*STREAM, DONE))
    assert parts == [
        ResponseMetadata("r1", "m-1", 1767323045, "ai-sdk"),
        Finish("stop", raw_reason="end", usage=Usage(9, 5, None, 1, 3, 2)),
    ]
    assert response.findings == ()


def test_a_ui_message_gives_its_id_and_finish_reason() -> None:
    parts, response = whole(chunks(*UI, *UI_DONE))
    assert parts == [
        ResponseMetadata("m1", dialect="ai-sdk"),
        Finish("stop", raw_reason="stop"),
    ]
    assert response.findings == ()


def test_metadata_in_several_events_is_merged() -> None:
    parts, response = whole(
        lines(
            {"type": "response-metadata", "modelId": "m-1"},
            {"type": "response-metadata", "id": "r1"},
            {"type": "response-metadata", "modelId": "m-2"},
            {"type": "text-start", "id": "0"},
            {"type": "text-end", "id": "0"},
            DONE,
        )
    )
    assert parts[0] == ResponseMetadata("r1", "m-1", dialect="ai-sdk")
    assert (response.model, response.findings) == ("m-2", ())


def test_a_second_response_id_is_a_finding() -> None:
    _, response = model({"type": "response-metadata", "id": "r2"})
    assert (response.id, codes(response)) == ("r1", ["metadata-repeated"])


def test_a_response_without_an_id_gets_one() -> None:
    _, response = whole(lines({"type": "text-delta", "id": "0", "delta": "a"}, DONE))
    assert response.id.startswith("resp_")
    assert codes(response) == ["metadata-id-minted", "start-missing", "end-missing"]


def test_warnings_and_message_metadata_are_kept() -> None:
    warned = lines({"type": "stream-start", "warnings": [{"type": "other"}]}, *STREAM[1:], DONE)
    head = whole(warned)[0][0]
    assert isinstance(head, ResponseMetadata)
    assert head.extra == Raw(b'{"warnings":[{"type": "other"}]}')
    dumped, _ = whole(lines({"type": "start-step", "warnings": [1]}, *UI_DONE))
    assert isinstance(dumped[0], ResponseMetadata)
    assert dumped[0].extra == Raw(b'{"warnings":[1]}')
    parts, _ = whole(
        chunks(
            {"type": "start", "messageMetadata": {"a": 1}},
            {"type": "finish", "finishReason": "stop", "messageMetadata": {"b": 2}},
        )
    )
    head, finish = parts
    assert isinstance(head, ResponseMetadata)
    assert isinstance(finish, Finish)
    assert (head.extra, finish.extra) == (
        Raw(b'{"messageMetadata":{"a": 1}}'),
        Raw(b'{"messageMetadata":{"b": 2}}'),
    )


@pytest.mark.parametrize(
    ("sent", "reason", "raw"),
    [
        ("stop", "stop", "stop"),
        ("length", "length", "length"),
        ("content-filter", "content-filter", "content-filter"),
        ("tool-calls", "tool-calls", "tool-calls"),
        ("other", "other", "other"),
        ("unknown", "other", "unknown"),
        ({"unified": "length", "raw": "max_tokens"}, "length", "max_tokens"),
        ({"unified": "stop", "raw": "pause_turn"}, "pause", "pause_turn"),
        ({"unified": "other"}, "other", None),
    ],
)
def test_finish_reasons_of_all_versions_are_read(sent: Any, reason: str, raw: str | None) -> None:
    _, response = whole(lines(*STREAM, {**DONE, "finishReason": sent}))
    assert (response.finish_reason, response.raw_finish_reason) == (reason, raw)


@pytest.mark.parametrize(
    ("sent", "usage"),
    [
        ({"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}, Usage(3, 4, 7)),
        ({"inputTokens": 3, "reasoningTokens": 2, "cachedInputTokens": 1},
         Usage(3, None, None, 2, 1)),
        ({"inputTokens": {}, "outputTokens": {"total": 4}}, Usage(None, 4)),
        ({"inputTokens": 3, "outputTokens": 4,
          "inputTokenDetails": {"cacheReadTokens": 1, "cacheWriteTokens": 0},
          "outputTokenDetails": {"reasoningTokens": 2}}, Usage(3, 4, None, 2, 1, 0)),
        ({}, None),
    ],
)  # fmt: skip
def test_usage_of_all_versions_is_read(sent: Any, usage: Usage | None) -> None:
    _, response = whole(lines(*STREAM, {**DONE, "usage": sent}))
    assert response.usage == usage


def test_the_raw_usage_of_the_provider_is_kept() -> None:
    sent = {"inputTokens": {"total": 1}, "raw": {"prompt_tokens": 1}}
    parts, _ = whole(lines(*STREAM, {**DONE, "usage": sent, "providerMetadata": {"p": {"a": 1}}}))
    finish = parts[-1]
    assert isinstance(finish, Finish)
    assert finish.extra == Raw(b'{"providerMetadata":{"p": {"a": 1}},"usage":{"prompt_tokens": 1}}')


def test_a_missing_finish_reason_is_tool_calls_if_a_call_is_unanswered() -> None:
    finish: list[Event] = [{"type": "finish-step"}, {"type": "finish"}]
    _, waiting = ui(UI_CALL, end=finish)
    assert (waiting.finish_reason, codes(waiting)) == ("tool-calls", ["finish-inferred"])
    output = {"type": "tool-output-available", "toolCallId": "k", "output": 1}
    _, answered = ui(UI_CALL, output, end=finish)
    assert (answered.finish_reason, codes(answered)) == ("other", ["finish-inferred"])
    denied = {"type": "tool-output-denied", "toolCallId": "k"}
    assert ui(UI_CALL, denied, end=finish)[1].finish_reason == "other"


def test_finish_step_alone_ends_a_response() -> None:
    done = whole(chunks(*UI, {"type": "finish-step"}))[1]
    bare = whole(lines(*UI, {"type": "finish-step"}))[1]
    for response in (done, bare):
        assert (response.finish_reason, codes(response)) == ("other", [])


def test_the_end_of_the_input_alone_is_a_truncated_response() -> None:
    text = {"type": "text-start", "id": "0"}
    for raw in (lines(*STREAM, text), chunks(*UI, text)):
        _, response = whole(raw)
        assert response.error is not None
        assert (response.error.kind, response.finish_reason) == ("truncated", "error")


def test_events_after_the_end_are_dropped() -> None:
    late = {"type": "text-delta", "id": "0", "delta": "late"}
    decoder = Decoder("ai-sdk", context=Context(ids=Ids(b"1")))
    parts = decoder.feed(lines(*STREAM, DONE, late)) + decoder.feed(b"{oops\n") + decoder.finish()
    assert [part.type for part in parts] == ["response-metadata", "finish"]
    assert [finding.code for finding in decoder.findings] == ["after-finish"]


# Text and reasoning


def test_texts_and_reasonings_may_overlap() -> None:
    parts, response = model(
        {"type": "reasoning-start", "id": "0"},
        {"type": "text-start", "id": "0"},
        {"type": "reasoning-delta", "id": "0", "delta": "hm"},
        {"type": "text-delta", "id": "0", "delta": "a"},
        {"type": "reasoning-end", "id": "0"},
        {"type": "text-end", "id": "0"},
    )
    assert parts == [
        ReasoningStart("0", "raw"),
        TextStart("0"),
        ReasoningDelta("0", "hm"),
        TextDelta("0", "a"),
        ReasoningEnd("0"),
        TextEnd("0"),
    ]
    assert response.findings == ()


def test_deltas_of_a_dump_are_called_text() -> None:
    _, response = model(
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "text": "Hello"},
        {"type": "text-end", "id": "0"},
    )
    assert response.text == "Hello"


def test_a_reused_id_is_another_item() -> None:
    span = [{"type": f"reasoning-{verb}", "id": "0", "delta": "x"} for verb in ("start", "end")]
    parts, response = model(*span, *span)
    assert [part.id for part in parts if isinstance(part, ReasoningStart)] == ["0", "0_2"]
    assert codes(response) == ["id-reused"]


def test_a_delta_without_a_start_opens_its_text() -> None:
    _, response = model({"type": "text-delta", "id": "0", "delta": "a"})
    assert (response.text, codes(response)) == ("a", ["start-missing", "end-missing"])


def test_signatures_on_any_event_belong_to_the_end_of_their_item() -> None:
    parts, response = model(
        {"type": "reasoning-start", "id": "0", "providerMetadata": {"p": {"itemId": "rs_1"}}},
        {"type": "reasoning-delta", "id": "0", "delta": "hm"},
        {"type": "reasoning-delta", "id": "0", "delta": "",
         "providerMetadata": {"p": {"signature": "sig"}}},
        {"type": "reasoning-end", "id": "0"},
        {"type": "reasoning-start", "id": "1",
         "providerMetadata": {"p": {"redactedData": "dark"}}},
        {"type": "reasoning-end", "id": "1"},
        {"type": "reasoning-start", "id": "2"},
        {"type": "reasoning-end", "id": "2", "providerMetadata":
         {"q": {"reasoningEncryptedContent": "enc"}, "p": {"x": 1}}},
    )  # fmt: skip
    items = [item for item in response.items if isinstance(item, ReasoningItem)]
    assert [(item.signature, item.redacted, item.encrypted, item.origin) for item in items] == [
        ("sig", None, None, "p"),
        (None, "dark", None, "p"),
        (None, None, "enc", "q"),
    ]
    assert items[0].item_id == "rs_1"
    assert isinstance(parts[2], ReasoningEnd)
    assert response.findings == ()


def test_texts_and_calls_may_have_signatures() -> None:
    signed = {"providerMetadata": {"p": {"thoughtSignature": "sig", "itemId": "i"}}}
    _, response = model(
        {"type": "text-start", "id": "0"},
        {"type": "text-end", "id": "0", **signed},
        {**MODEL_CALL, **signed},
    )
    text, call = response.items
    assert isinstance(text, TextItem)
    assert isinstance(call, ToolCall)
    assert (text.signature, text.origin) == ("sig", "p")
    assert (call.signature, call.item_id) == ("sig", "i")


def test_the_origin_of_the_context_wins_over_the_provider() -> None:
    span: list[Event] = [
        {"type": "reasoning-start", "id": "0"},
        {"type": "reasoning-end", "id": "0", "providerMetadata": {"p": {"signature": "s"}}},
    ]
    context = Context(ids=Ids(b"1"), origin="somebody")
    (one,) = decode_all(lines(*STREAM, *span, DONE), "ai-sdk", context=context)
    (item,) = one.response.items
    assert isinstance(item, ReasoningItem)
    assert item.origin == "somebody"


@pytest.mark.parametrize("metadata", [None, {}, {"p": 1}, {"p": {"x": 1}}, 7, "p"])
def test_metadata_without_a_signature_sets_none(metadata: Any) -> None:
    _, response = model(
        {"type": "text-start", "id": "0"},
        {"type": "text-end", "id": "0", "providerMetadata": metadata},
    )
    (item,) = response.items
    assert isinstance(item, TextItem)
    assert (item.signature, item.origin) == (None, None)


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_split_surrogate_pairs_are_joined(kind: str) -> None:
    raw = lines(*STREAM) + b"".join(
        b'{"type":"%b-%b","id":"0","delta":"%b"}\n' % (kind.encode(), verb, piece)
        for verb, piece in [
            (b"start", b""),
            (b"delta", rb"a\ud83d"),
            (b"delta", rb"\ude00b"),
            (b"delta", rb"\ud83d"),
            (b"end", b""),
        ]
    )
    _, response = whole(raw + lines(DONE))
    (item,) = response.items
    assert isinstance(item, TextItem | ReasoningItem)
    assert (item.text, codes(response)) == ("a😀b\ufffd", ["surrogate-lone"])


def test_split_surrogate_pairs_in_arguments_are_joined() -> None:
    raw = lines(*STREAM, START)
    for piece in (rb"{\"a\":\"", rb"\ud83d", rb"\ude00\"}"):
        raw += b'{"type":"tool-input-delta","id":"call_123","delta":"%b"}\n' % piece
    _, response = whole(raw + lines(END, {**CALL, "input": '{"a":"😀"}'}, DONE))
    (call,) = response.tool_calls
    assert (call.params, codes(response)[0]) == ('{"a":"😀"}', "surrogate-lone")


# Calls


def seed(*found: Event) -> list[Event]:
    """Returns the events that a Responses client gets for these model parts."""
    return events(convert(lines(*found), "ai-sdk", "openai-responses"))


def test_one_output_item_added_when_tool_input_start_and_tool_call_both_fire() -> None:
    found = seed(START, *DELTAS, CALL)
    assert len(of_type(found, "response.output_item.added")) == 1
    assert len(item_ids(found)) == 1


VARIANTS: dict[str, list[Event]] = {
    "start, deltas, end, call": [START, *DELTAS, END, CALL],
    "deltas without a start": [*DELTAS, CALL],
    "deltas and end without a start": [*DELTAS, END, CALL],
    "end without a start": [END, CALL],
    "the call alone": [CALL],
    "the call first": [CALL, START, *DELTAS, END],
    "the call twice": [START, *DELTAS, END, CALL, CALL],
    "the start twice": [START, START, *DELTAS, END, CALL],
    "no deltas": [START, END, CALL],
    "neither deltas nor end": [START, CALL],
    "the call before the end": [START, *DELTAS, CALL, END],
    "no call": [START, *DELTAS, END],
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_call_in_any_order_of_events_is_one_item_with_one_id(variant: list[Event]) -> None:
    found = seed(*STREAM, *variant, DONE)
    (added,) = of_type(found, "response.output_item.added")
    (done,) = of_type(found, "response.output_item.done")
    assert len(item_ids(found)) == 1
    assert (added["item"]["call_id"], added["item"]["name"]) == ("call_123", "get_weather")
    assert json.loads(done["item"]["arguments"]) == {"location": "NYC"}
    _, response = model(*variant)
    assert [call.id for call in response.tool_calls] == ["call_123"]
    assert response.finish_reason == "tool-calls"


def test_a_call_as_models_send_it_leaves_no_finding() -> None:
    finish = {**DONE, "finishReason": "tool-calls"}
    for sent in (MODEL_CALL, CALL):
        parts, response = model(START, *DELTAS, END, sent, finish=finish)
        assert parts == CALL_PARTS
        assert response.findings == ()


def test_a_whole_call_alone_is_announced_with_all_its_arguments() -> None:
    parts, response = model(MODEL_CALL, finish={**DONE, "finishReason": "tool-calls"})
    assert parts == [
        ToolParamsStart("call_123", "get_weather"),
        ToolParamsDelta("call_123", '{"location":"NYC"}'),
        ToolParamsEnd("call_123"),
        CALL_PARTS[-1],
    ]
    assert response.findings == ()


@pytest.mark.parametrize("before", [[], [START], [START, END]])
def test_an_empty_string_means_no_arguments(before: list[Event]) -> None:
    finish = {**DONE, "finishReason": "tool-calls"}
    _, response = model(*before, {**CALL, "input": ""}, finish=finish)
    (call,) = response.tool_calls
    assert (call.params, response.findings) == ("{}", ())


def test_streamed_arguments_win_over_the_whole_call() -> None:
    _, response = model(START, *DELTAS, END, {**CALL, "input": '{"location":"Rome"}'})
    (call,) = response.tool_calls
    assert call.params == '{"location":"NYC"}'
    assert "whole-contradicts" in codes(response)


def test_arguments_that_are_not_json_make_an_invalid_call() -> None:
    _, response = model({**CALL, "input": '{"location'})
    (call,) = response.invalid_tool_calls
    assert (call.params, call.invalid) == ('{"location', "bad-arguments")
    assert codes(response) == ["arguments-invalid"]


def test_a_call_whose_id_changes_keeps_the_first_one() -> None:
    other = {**MODEL_CALL, "toolCallId": "call_456"}
    end = {**END, "id": "call_456"}
    result = {"type": "tool-result", "toolCallId": "call_456", "toolName": "x", "result": 1}
    parts, response = model(START, *DELTAS, end, other, result)
    assert [call.id for call in response.tool_calls] == ["call_123"]
    (found,) = [part for part in parts if isinstance(part, ToolResult)]
    assert (found.id, found.earlier) == ("call_123", False)
    assert codes(response)[:2] == ["end-without-start", "call-id-changed"]


def test_two_equal_calls_are_two_calls() -> None:
    second = [{**event, "id": "b"} for event in (START, *DELTAS, END)]
    parallel = [START, *DELTAS, END, *second, {**MODEL_CALL, "toolCallId": "c"}]
    _, response = model(*parallel)
    assert [call.id for call in response.tool_calls] == ["call_123", "b", "c"]


def test_a_call_without_an_end_is_invalid() -> None:
    _, response = model(START, *DELTAS)
    (call,) = response.invalid_tool_calls
    assert (call.invalid, codes(response)) == ("stream-failed", ["end-missing"])


def test_a_call_that_ended_without_a_whole_one_is_complete() -> None:
    for variant, params in ([START, END], "{}"), ([START, *DELTAS, END], '{"location":"NYC"}'):
        _, response = model(*variant)
        (call,) = response.tool_calls
        assert call.params == params
        assert "call-missing" in codes(response)


def test_a_call_without_an_id_gets_one_for_all_its_events() -> None:
    sent = (START, *DELTAS, END, MODEL_CALL)
    nameless: list[Event] = [
        {key: event[key] for key in event if key not in ("id", "toolCallId")} for event in sent
    ]
    _, response = model(*nameless, *nameless)
    assert [call.params for call in response.tool_calls] == ['{"location":"NYC"}'] * 2
    assert codes(response).count("call-id-minted") == 2


def test_a_call_without_a_name_is_never_announced() -> None:
    nameless = {"type": "tool-input-start", "id": "k"}
    _, response = model(nameless, {"type": "tool-call", "toolCallId": "k", "input": "{}"})
    (call,) = response.invalid_tool_calls
    assert call.invalid == "nameless"
    _, late = model(nameless, {"type": "tool-call", "toolCallId": "k", "toolName": "look"})
    assert [call.name for call in late.tool_calls] == ["look"]


def test_a_dumped_call_may_be_marked_as_invalid() -> None:
    dumped = {**CALL, "input": "{oops", "invalid": True, "dynamic": True, "error": {}}
    error = {"type": "tool-error", "toolCallId": "call_123", "toolName": "x", "error": "no"}
    parts, response = model(dumped, error)
    (call,) = response.invalid_tool_calls
    assert (call.params, call.invalid, call.dynamic) == ("{oops", "bad-arguments", True)
    assert not [part for part in parts if isinstance(part, ToolResult)]


def test_calls_of_the_provider_have_results() -> None:
    own = {"providerExecuted": True, "dynamic": True, "title": "Weather"}
    result = {"type": "tool-result", "toolCallId": "call_123", "toolName": "get_weather"}
    parts, response = model(
        {**START, **own},
        *DELTAS,
        END,
        {**MODEL_CALL, **own},
        {**result, "result": [1], "preliminary": True},
        {**result, "result": [1, 2]},
    )
    assert parts[-2:] == [
        ToolResult("call_123", Raw(b"[1]"), preliminary=True),
        ToolResult("call_123", Raw(b"[1, 2]")),
    ]
    start, call = parts[0], parts[4]
    assert isinstance(start, ToolParamsStart)
    assert isinstance(call, ToolCall)
    assert start.extra == Raw(b'{"dynamic":true,"title":"Weather"}')
    assert (start.provider_executed, call.provider_executed, call.dynamic) == (True, True, True)
    assert (response.finish_reason, response.findings) == ("stop", ())


def test_results_are_of_the_provider_or_of_the_client() -> None:
    result = {"type": "tool-result", "toolCallId": "call_123", "toolName": "x"}
    for sent, executed, error in (
        ({"result": 1}, True, False),
        ({"result": 1, "isError": True}, True, True),
        ({"result": 1, "providerExecuted": False}, False, False),
        ({"output": 1}, False, False),
    ):
        (*_, found), _ = model(MODEL_CALL, {**result, **sent})
        assert isinstance(found, ToolResult)
        assert (found.provider_executed, found.is_error) == (executed, error)


def test_a_result_of_another_response_is_earlier() -> None:
    found, response = ui(
        {"type": "tool-output-available", "toolCallId": "old", "output": {"a": 1}},
        {"type": "tool-output-error", "toolCallId": "older", "errorText": "no"},
    )
    assert found == [
        ToolResult("old", Raw(b'{"a": 1}'), earlier=True, provider_executed=False),
        ToolResult("older", Raw(b'"no"'), is_error=True, earlier=True, provider_executed=False),
    ]
    assert response.findings == ()


def test_an_approval_belongs_to_its_call() -> None:
    approval = {"type": "tool-approval-request", "approvalId": "a1"}
    for sent in ({"toolCallId": "call_123"}, {"toolCall": {"toolCallId": "call_123"}}):
        parts, _ = model(MODEL_CALL, {**approval, **sent})
        assert parts[-1] == ToolApprovalRequest("call_123", "a1")
    _, unknown = ui({**approval, "toolCallId": "k"})
    assert codes(unknown) == ["approval-without-call"]
    parts, _ = ui(UI_CALL, {"type": "tool-approval-request", "toolCallId": "k"})
    assert isinstance(parts[-1], ToolApprovalRequest)


def test_calls_of_a_ui_message_have_parsed_input() -> None:
    deltas: list[Event] = [
        {"type": "tool-input-delta", "toolCallId": "k", "inputTextDelta": text}
        for text in ('{"at"', ": 1}")
    ]
    parts, response = ui(UI_START, *deltas, UI_CALL, end=[{"type": "finish"}])
    assert parts == [
        ToolParamsStart("k", "look"),
        ToolParamsDelta("k", '{"at"'),
        ToolParamsDelta("k", ": 1}"),
        ToolParamsEnd("k"),
        ToolCall("k", "look", '{"at": 1}'),
    ]
    assert codes(response) == ["finish-inferred"]
    for before in ([], [UI_START]):
        parts, response = ui(*before, UI_CALL, end=[{"type": "finish"}])
        assert parts[1:] == [
            ToolParamsDelta("k", '{"at":1}'),
            ToolParamsEnd("k"),
            ToolCall("k", "look", '{"at":1}'),
        ]
        assert codes(response) == ["finish-inferred"]


def test_a_string_as_input_is_free_text_unless_it_is_an_encoded_object() -> None:
    (start, *_, call), _ = ui({**UI_CALL, "input": "*** Begin"})
    assert start == ToolParamsStart("k", "look", kind="custom", format="text")
    assert call == ToolCall("k", "look", "*** Begin", kind="custom", format="text")
    (*_, call), response = ui({**UI_CALL, "input": '{"at":1}'})
    assert call == ToolCall("k", "look", '{"at":1}')
    assert "arguments-double-encoded" in codes(response)


def test_a_missing_input_means_no_arguments() -> None:
    (*_, call), response = ui({"type": "tool-input-available", "toolCallId": "k", "toolName": "x"})
    assert call == ToolCall("k", "x", "{}")
    assert "arguments-empty" in codes(response)


def test_an_input_error_is_an_invalid_call_and_its_output_error_is_ignored() -> None:
    error = {**UI_CALL, "type": "tool-input-error", "input": "{oops", "errorText": "no JSON"}
    output = {"type": "tool-output-error", "toolCallId": "k", "errorText": "no JSON"}
    for before in ([], [UI_START]):
        parts, response = ui(*before, error, output)
        (call,) = response.invalid_tool_calls
        assert (call.params, call.invalid) == ("{oops", "bad-arguments")
        assert call.extra == Raw(b'{"errorText":"no JSON"}')
        assert (parts[-1].type, response.findings) == ("tool-call", ())


# Sources, files, and what belongs to the message


def test_sources_of_both_streams_are_read() -> None:
    url = {"url": "https://a.example", "title": "A"}
    paper = {"mediaType": "application/pdf", "title": "P", "filename": "p.pdf"}
    kept = Raw(b'{"mediaType":"application/pdf","filename":"p.pdf"}')
    expected = [
        Source("s", "url", url="https://a.example", title="A"),
        Source("d", "document", title="P", extra=kept),
    ]
    found, _ = model(
        {"type": "source", "id": "s", "sourceType": "url", **url},
        {"type": "source", "id": "d", "sourceType": "document", **paper},
    )
    assert found == expected
    found, _ = ui(
        {"type": "source-url", "sourceId": "s", **url},
        {"type": "source-document", "sourceId": "d", **paper},
    )
    assert found == expected


@pytest.mark.parametrize(
    ("sent", "data", "reference"),
    [
        ({"data": "AA=="}, "AA==", None),
        ({"data": {"0": 0, "1": 255}}, "AP8=", None),
        ({"data": {"type": "data", "data": "AA=="}}, "AA==", None),
        ({"data": {"type": "url", "url": "https://a.example"}}, None, "https://a.example"),
        ({"url": "https://a.example"}, None, "https://a.example"),
        ({"url": "data:image/png;base64,AA=="}, "AA==", None),
        ({"file": {"base64Data": "AA==", "mediaType": "image/png"}}, "AA==", None),
        ({"data": {"0": 300}}, None, None),
        ({}, None, None),
    ],
)
def test_files_of_all_shapes_are_read(sent: Event, data: str | None, reference: str | None) -> None:
    found, _ = model({"type": "file", "mediaType": "image/png", **sent})
    assert found == [File("file_0", "image/png", data=data, reference=reference)]


def test_the_media_type_of_a_file_may_be_in_its_url_or_missing() -> None:
    found, _ = ui(
        {"type": "file", "url": "data:image/gif;base64,AA=="},
        {"type": "file", "url": "https://a.example"},
        {"type": "reasoning-file", "url": "https://a.example", "mediaType": "a/b"},
    )
    assert found == [
        File("file_0", "image/gif", data="AA=="),
        File("file_1", "application/octet-stream", reference="https://a.example"),
        File("file_2", "a/b", reference="https://a.example", reasoning=True),
    ]


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "data-weather", "id": "1", "data": {"x": 1}},
        {"type": "message-metadata", "messageMetadata": {"x": 1}},
        {"type": "tool-output-denied", "toolCallId": "k"},
        {"type": "tool-approval-response", "approvalId": "a", "approved": True},
        {"type": "custom", "kind": "p.x"},
    ],
)
def test_chunks_of_the_message_are_opaque_and_kept_unchanged(chunk: Event) -> None:
    found, response = ui(chunk)
    assert found == [Opaque("ai-sdk", chunk["type"], Raw(json.dumps(chunk).encode()))]
    assert response.findings == ()


def test_a_chunk_of_the_message_may_come_first() -> None:
    parts, _ = whole(chunks({"type": "data-x", "data": 1}, *UI_DONE))
    assert [part.type for part in parts] == ["response-metadata", "opaque", "finish"]


def test_reset_step_ends_open_items_and_keeps_what_came() -> None:
    parts, response = ui(
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "delta": "a"},
        {"type": "reasoning-start", "id": "0"},
        UI_START,
        {"type": "reset-step"},
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "delta": "b"},
        {"type": "text-end", "id": "0"},
    )
    assert [part.type for part in parts[4:9]] == [
        "text-end",
        "reasoning-end",
        "tool-params-end",
        "tool-call",
        "opaque",
    ]
    assert (response.text, codes(response)) == ("ab", ["not-carried", "id-reused"])
    assert [call.invalid for call in response.invalid_tool_calls] == ["stream-failed"]


def test_reset_step_leaves_complete_calls_alone() -> None:
    _, response = ui(UI_CALL, {"type": "reset-step"})
    assert [call.id for call in response.tool_calls] == ["k"]
    assert codes(response)[0] == "not-carried"


def test_raw_events_of_the_provider_are_ignored() -> None:
    assert model({"type": "raw", "rawValue": {"choices": []}})[0] == []


def test_unknown_events_are_ignored_with_a_finding() -> None:
    found, response = model({"type": "ping"}, {"type": "ping"}, {"a": 1})
    assert (found, codes(response)) == ([], ["event-unknown", "event-unknown"])


# Errors


@pytest.mark.parametrize(
    ("error", "part"),
    [
        ("broken", ErrorPart("upstream", "broken")),
        ({}, ErrorPart("upstream", "unknown error")),
        (None, ErrorPart("upstream", "unknown error")),
        ({"message": "slow down", "code": "rate", "statusCode": 429, "isRetryable": True},
         ErrorPart("upstream", "slow down", "rate", 429, True)),
        ({"name": "AI_APICallError", "message": "no"},
         ErrorPart("upstream", "no", "AI_APICallError")),
        ({"type": "error", "error": {"type": "overloaded", "message": "later"}},
         ErrorPart("upstream", "later", "overloaded")),
        ({"x": 1}, ErrorPart("upstream", '{"x":1}')),
    ],
)  # fmt: skip
def test_errors_of_all_shapes_are_read(error: Any, part: ErrorPart) -> None:
    parts, response = whole(lines(*STREAM, {"type": "error", "error": error}, DONE))
    found = parts[1]
    assert isinstance(found, ErrorPart)
    assert (found.message, found.code, found.status, found.retryable) == (
        part.message,
        part.code,
        part.status,
        part.retryable,
    )
    assert (response.finish_reason, response.raw_finish_reason) == ("error", "end")
    assert response.usage == Usage(9, 5, None, 1, 3, 2)


def test_an_error_object_without_a_type_is_an_error() -> None:
    _, response = whole(b'data: {"error": "broken"}\n\n')
    assert response.error is not None
    assert response.error.message == "broken"


def test_the_first_error_ends_the_content() -> None:
    _, response = model(
        {"type": "text-start", "id": "0"},
        {"type": "error", "error": "first"},
        {"type": "text-delta", "id": "0", "delta": "more"},
        {"type": "data-x", "data": 1},
        {"type": "error", "error": "second"},
        {"type": "raw"},
        {"type": "abort"},
        {"type": "response-metadata", "modelId": "m-3"},
    )
    assert response.error is not None
    assert (response.error.message, response.text, response.model) == ("first", "", "m-3")
    assert codes(response) == ["after-error"]


def test_an_error_ends_a_ui_message() -> None:
    error = {"type": "error", "errorText": "An error occurred."}
    for raw in (chunks(error), chunks(*UI, error), chunks(*UI, {"type": "finish-step"}, error)):
        _, response = whole(raw)
        assert response.error is not None
        assert (response.error.message, response.finish_reason) == ("An error occurred.", "error")


def test_an_abort_is_a_cancelled_response() -> None:
    for sent, message in ({}, "the stream was aborted"), ({"reason": "enough"}, "enough"):
        _, response = ui({"type": "abort", **sent}, end=[])
        assert response.error is not None
        assert (response.error.kind, response.error.message) == ("cancelled", message)


def test_a_frame_that_is_not_json_is_malformed() -> None:
    _, response = whole(chunks(*UI).replace(b"[DONE]", b'{"type":') + b"data: [DONE]\n\n")
    assert response.error is not None
    assert response.error.kind == "malformed"


def test_a_cut_frame_is_a_finding() -> None:
    _, response = whole(lines(*STREAM) + b'{"type":"text-st')
    assert response.error is not None
    assert (response.error.kind, codes(response)) == ("empty", ["frame-unterminated"])


def test_fields_of_the_wrong_type_are_coerced() -> None:
    _, response = model({"type": "text-delta", "id": 0, "delta": "a"})
    assert (response.text, codes(response)[0]) == ("a", "field-coerced")


def test_odd_framing_is_a_finding() -> None:
    raw = b"".join(b"data: " + json.dumps(one).encode() + b"\n" for one in (*UI, *UI_DONE))
    _, response = whole(raw)
    assert sorted(set(codes(response))) == ["frame-lines-split", "frame-unterminated"]


def test_a_replayed_event_is_dropped() -> None:
    event = b'id: 7\ndata: {"type":"text-delta","id":"0","delta":"a"}\n\n'
    _, response = whole(chunks(*UI)[:-14] + event + event + chunks(*UI_DONE))
    assert (response.text, "frame-replayed" in codes(response)) == ("a", True)


# Captures


def steps(*messages: Event) -> list[Response]:
    return [one.response for one in decode_all(chunks(*messages), "ai-sdk")]


def test_every_step_of_a_message_is_a_response() -> None:
    output = {"type": "tool-output-available", "toolCallId": "k", "output": 1}
    text = [{"type": f"text-{verb}", "id": "0", "delta": "a"} for verb in ("start", "delta", "end")]
    first, second = steps(*UI, UI_CALL, output, UI_DONE[0], UI[1], *text, *UI_DONE)
    assert (first.id, first.finish_reason, len(first.items)) == ("m1", "other", 2)
    assert (second.text, second.finish_reason) == ("a", "stop")
    assert codes(second) == ["metadata-id-minted"]


def test_the_same_call_id_in_two_steps_is_two_calls() -> None:
    first, second = steps(*UI, UI_CALL, UI_DONE[0], UI[1], UI_CALL, *UI_DONE)
    assert [len(one.tool_calls) for one in (first, second)] == [1, 1]


def test_a_live_decoder_reads_the_first_step() -> None:
    decoder = Decoder("ai-sdk", context=Context(ids=Ids(b"1")))
    parts = decoder.feed(chunks(*UI, UI_CALL, UI_DONE[0], UI[1], UI_CALL, *UI_DONE))
    assert parts[-1] == Finish("tool-calls")
    assert decoder.finish() == []
    assert [one.code for one in decoder.findings] == ["after-finish"]


def test_a_capture_may_have_several_streams() -> None:
    raw = lines(*STREAM, DONE, *STREAM, MODEL_CALL, *STREAM, DONE)
    found = [one.response.finish_reason for one in decode_all(raw, "ai-sdk")]
    assert found == ["stop", "error", "stop"]
    assert len(decode_all(chunks(*UI, *UI_DONE) + chunks(*UI, *UI_DONE), "ai-sdk")) == 2


def test_a_dumped_stream_is_read_step_by_step() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    step: list[Event] = [
        {"type": "start-step", "request": {}, "warnings": [{"type": "w"}]},
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "text": "a"},
        {"type": "text-end", "id": "0"},
        {"type": "finish-step", "finishReason": "length", "rawFinishReason": "max", "usage": usage,
         "response": {"id": "r9", "modelId": "m-9", "timestamp": "2026-01-02T03:04:05Z"}},
    ]  # fmt: skip
    total = {"inputTokens": 2, "outputTokens": 4, "totalTokens": 6}
    end = {"type": "finish", "finishReason": "stop", "totalUsage": total}
    found = [
        one.response for one in decode_all(lines({"type": "start"}, *step, *step, end), "ai-sdk")
    ]
    for response in found:
        assert (response.text, response.model, response.usage) == ("a", "m-9", Usage(1, 2, 3))
        assert (response.finish_reason, response.raw_finish_reason) == ("length", "max")
    assert len(found) == 2
    _, bare = whole(lines({"type": "start"}, end))
    assert bare.usage == Usage(2, 4, 6)


@pytest.mark.parametrize(
    "event",
    [
        START,
        *DELTAS,
        END,
        CALL,
        *STREAM,
        *UI,
        {"type": "finish-step"},
        {"type": "error", "errorText": "x"},
        {"type": "source-url", "sourceId": "1", "url": "u"},
    ],
)
def test_the_dialect_is_detected_by_its_types(event: Event) -> None:
    assert detect(chunks(event)) == detect(lines(event)) == "ai-sdk"


def test_an_impossible_timestamp_is_ignored() -> None:
    head = {"type": "response-metadata", "id": "r", "timestamp": "2026-99-99T99:99:99Z"}
    assert whole(lines(head, DONE))[1].created is None


EVENT = st.sampled_from(
    [
        *STREAM, DONE, *UI, *UI_DONE, START, *DELTAS, END, CALL, MODEL_CALL, UI_START, UI_CALL,
        {"type": "text-start", "id": "0"}, {"type": "text-delta", "id": "0", "delta": "a"},
        {"type": "text-end", "id": "0"}, {"type": "reasoning-delta", "id": "0", "delta": "hm"},
        {"type": "reasoning-end", "id": "0", "providerMetadata": {"p": {"signature": "s"}}},
        {"type": "tool-result", "toolCallId": "call_123", "result": 1},
        {"type": "tool-output-error", "toolCallId": "k", "errorText": "no"},
        {"type": "tool-input-error", "toolCallId": "k", "toolName": "look", "input": "{"},
        {"type": "tool-approval-request", "toolCallId": "k", "approvalId": "a"},
        {"type": "reset-step"}, {"type": "data-x", "data": 1}, {"type": "error", "error": "x"},
        {"type": "abort"}, {"type": "file", "data": "AA=="}, {"type": "source", "url": "u"},
        *({"type": type} for type in EVENTS),
    ]
)  # fmt: skip


@QUICK
@given(st.lists(EVENT, max_size=12), st.booleans())
def test_any_events_become_legal_parts(found: list[Event], framed: bool) -> None:
    raw = chunks(*found) if framed else lines(*found)
    for one in decode_all(raw, "ai-sdk"):
        assert violations(one.parts, Assembler()) == []


@pytest.mark.parametrize("raw", [lines(*STREAM, START, *DELTAS, END, MODEL_CALL, DONE),
                                 chunks(*UI, UI_START, UI_CALL, *UI_DONE)])  # fmt: skip
def test_bytes_may_arrive_one_by_one(raw: bytes) -> None:
    together = Decoder("ai-sdk", context=Context(ids=Ids(b"1")))
    apart = Decoder("ai-sdk", context=Context(ids=Ids(b"1")))
    expected = together.feed(raw) + together.finish()
    found = [part for at in range(len(raw)) for part in apart.feed(raw[at : at + 1])]
    assert found + apart.finish() == expected
    assert apart.findings == together.findings
