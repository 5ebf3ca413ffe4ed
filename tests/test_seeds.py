"""The tests that the founding bug reports ask for, by the names they gave them."""

import json
from itertools import combinations, permutations
from typing import Any

import pytest

from tests.chat import calls, chunk, entry, stream
from tests.responses import Event, events, item_ids, of_type
from tests.tables import each_row
from weft import (
    Context,
    Decoder,
    Encoder,
    Finish,
    Ids,
    Part,
    Response,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextItem,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    convert,
    decode_all,
    encode,
)
from weft.dialects.openai_responses.quirks import ResponsesQuirks


def read(raw: bytes) -> Response:
    (one,) = decode_all(raw, "openai-chat")
    return one.response


def made(response: Response) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, json.loads(call.params)) for call in response.tool_calls]


# Seed 001: one call that became 231

ARGUMENTS = json.dumps({"code": "print('hello')\n" * 30})
PIECES = [ARGUMENTS[at * 2 : at * 2 + 2] for at in range(230)]
PIECES[-1] += ARGUMENTS[460:]


def test_deepseek_streaming_same_id_every_chunk() -> None:
    first = calls(entry(0, "functions.run-sandbox:2", "run-sandbox", ""))
    rest = [calls(entry(0, "functions.run-sandbox:2", "", piece)) for piece in PIECES]
    raw = stream([first, *rest], "tool_calls")
    assert raw.count(b"functions.run-sandbox:2") == 231
    response = read(raw)
    assert made(response) == [
        ("functions.run-sandbox:2", "run-sandbox", json.loads(ARGUMENTS)),
    ]
    assert response.invalid_tool_calls == ()
    assert [finding.code for finding in response.findings] == ["call-id-repeated"]
    found = events(convert(raw, "openai-chat", "openai-responses"))
    assert len(of_type(found, "response.output_item.added")) == 1
    assert len(item_ids(found)) == 1


def test_standard_openai_streaming_id_first_chunk_only() -> None:
    first = calls(entry(0, "call_1", "run-sandbox", ""))
    rest = [calls(entry(0, arguments=piece)) for piece in PIECES]
    response = read(stream([first, *rest], "tool_calls"))
    assert made(response) == [("call_1", "run-sandbox", json.loads(ARGUMENTS))]
    assert response.findings == ()


def test_multiple_tool_calls_different_indexes() -> None:
    raw = stream(
        [
            calls(entry(0, "call_1", "look", "")),
            calls(entry(1, "call_2", "read", "")),
            calls(entry(0, arguments='{"at":')),
            calls(entry(1, arguments='{"path":"')),
            calls(entry(0, arguments="1}")),
            calls(entry(1, arguments='x"}')),
        ],
        "tool_calls",
    )
    response = read(raw)
    assert made(response) == [("call_1", "look", {"at": 1}), ("call_2", "read", {"path": "x"})]
    assert response.findings == ()


def test_deepseek_no_index_same_id_merges() -> None:
    first = calls(entry(None, "call_1", "run-sandbox", ""))
    rest = [calls(entry(None, "call_1", "", piece)) for piece in PIECES]
    response = read(stream([first, *rest], "tool_calls"))
    assert made(response) == [("call_1", "run-sandbox", json.loads(ARGUMENTS))]


def test_empty_name_tool_calls_are_filtered() -> None:
    raw = stream(
        [
            calls(entry(0, "call_1", "run-sandbox", '{"code":1}')),
            *(calls(entry(at, f"call_{at + 1}", "", "{}")) for at in range(1, 231)),
        ],
        "tool_calls",
    )
    response = read(raw)
    assert made(response) == [("call_1", "run-sandbox", {"code": 1})]
    assert len(response.invalid_tool_calls) == 230
    assert {call.invalid for call in response.invalid_tool_calls} == {"nameless"}
    added = of_type(
        events(convert(raw, "openai-chat", "openai-responses")), "response.output_item.added"
    )
    assert [event["item"]["name"] for event in added] == ["run-sandbox"]


# Seed 000: one call announced twice

START = ToolParamsStart("call_123", "get_weather")
DELTAS = (ToolParamsDelta("call_123", '{"loc'), ToolParamsDelta("call_123", 'ation":"NYC"}'))
END = ToolParamsEnd("call_123")
CALL = ToolCall("call_123", "get_weather", '{"location":"NYC"}')
STEPS = ("start", "delta", "delta", "end", "call")


def orders() -> list[tuple[str, ...]]:
    """All orders of the five, with any subset missing."""
    found = {
        order
        for size in range(1, len(STEPS) + 1)
        for subset in combinations(STEPS, size)
        for order in permutations(subset)
    }
    return sorted(found)


def soup(order: tuple[str, ...]) -> list[Part]:
    deltas = iter(DELTAS)
    known = {"start": START, "end": END, "call": CALL}
    return [known[step] if step in known else next(deltas) for step in order]


@each_row("order", orders(), ids="-".join)
def test_one_output_item_added_when_streamed_and_complete_call_both_arrive(
    order: tuple[str, ...],
) -> None:
    parts = [ResponseMetadata("r"), *soup(order), Finish("tool-calls")]
    raw = b"".join(encode(parts, "openai-responses", context=Context(ids=Ids(b"1"))))
    found = events(raw)
    added = of_type(found, "response.output_item.added")
    named = "start" in order or "call" in order
    assert len(added) == (1 if named else 0)
    assert len(of_type(found, "response.output_item.done")) == len(added)
    assert len(item_ids(found)) == len(added)
    if not named:
        return
    assert added[0]["item"]["arguments"] == ""
    deltas = of_type(found, "response.function_call_arguments.delta")
    (final,) = found[-1]["response"]["output"]
    joined = "".join(event["delta"] for event in deltas)
    assert joined == final["arguments"]
    assert of_type(found, "response.function_call_arguments.done")[0]["arguments"] == joined
    if "call" in order:
        assert json.loads(final["arguments"]) == {"location": "NYC"}
        assert final["call_id"] == "call_123"


MODEL_PARTS: dict[str, Any] = {
    "start": {"type": "tool-input-start", "id": "call_123", "toolName": "get_weather"},
    "first": {"type": "tool-input-delta", "id": "call_123", "delta": '{"loc'},
    "second": {"type": "tool-input-delta", "id": "call_123", "delta": 'ation":"NYC"}'},
    "end": {"type": "tool-input-end", "id": "call_123"},
    "call": {
        "type": "tool-call",
        "toolCallId": "call_123",
        "toolName": "get_weather",
        "input": {"location": "NYC"},
    },
}


def model_stream(*lines: Any) -> list[Event]:
    """What becomes of the stream that the seed's converter reads: one JSON object a line."""
    raw = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
    return events(convert(raw, source="ai-sdk", target="openai-responses"))


def test_should_emit_only_one_output_item_added_when_both_tool_input_start_and_tool_call_fire() -> (
    None
):
    """The seed's own case, which tells no end."""
    found = model_stream(*(MODEL_PARTS[one] for one in ("start", "first", "second", "call")))
    assert len(of_type(found, "response.output_item.added")) == 1
    assert len(item_ids(found)) == 1


@pytest.mark.parametrize(
    "said",
    [
        ("start", "first", "second", "call"),
        ("start", "first", "second", "end", "call"),
        ("first", "second", "call"),
        ("end", "call"),
        ("first", "end", "call"),
        ("call",),
        ("call", "start", "first", "second", "end"),
        ("start", "call", "end"),
        ("start", "call"),
    ],
    ids="-".join,
)
def test_one_output_item_added_whatever_the_model_parts_are(said: tuple[str, ...]) -> None:
    finish = {"type": "finish", "finishReason": "tool-calls", "usage": {}}
    start = {"type": "stream-start", "warnings": []}
    found = model_stream(start, *(MODEL_PARTS[one] for one in said), finish)
    (added,) = of_type(found, "response.output_item.added")
    (done,) = of_type(found, "response.output_item.done")
    assert len(item_ids(found)) == 1
    assert added["item"]["call_id"] == done["item"]["call_id"] == "call_123"
    assert json.loads(done["item"]["arguments"]) == {"location": "NYC"}


# Seed 003: text that was assembled twice


TEXT_CASES: dict[str, tuple[bytes, int]] = {
    "text alone": (stream([chunk({"content": piece}) for piece in ("a", "a", "b")]), 1),
    "text around a tool": (
        stream(
            [
                chunk({"content": "Let me "}),
                chunk({"content": "look."}),
                calls(entry(0, "call_1", "look", '{"at":')),
                calls(entry(0, arguments="1}")),
                chunk({"content": "Done."}),
            ],
            "tool_calls",
        ),
        2,
    ),
    "empty text": (stream([chunk({"role": "assistant", "content": ""})]), 0),
    "repeated snapshots": (
        stream(
            [
                chunk({"content": "a"}, message={"content": "a"}),
                (
                    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"b"},'
                    b'"message":{"content":"ab"}}]}\n\n'
                ),
                b'data: {"id":"c","choices":[{"index":0,"message":{"content":"ab"}}]}\n\n',
            ]
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", TEXT_CASES)
def test_text_is_assembled_once(name: str) -> None:
    raw, announced = TEXT_CASES[name]
    decoder = Decoder("openai-chat", context=Context(ids=Ids(b"1")))
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"2")), fold=decoder.fold)
    parts = decoder.feed(raw) + decoder.finish()
    found = events(b"".join(encoder.feed(parts)))
    streamed = "".join(part.delta for part in parts if isinstance(part, TextDelta))
    final = [item for item in found[-1]["response"]["output"] if item["type"] == "message"]
    said = [part["text"] for item in final for part in item["content"]]
    folded = [item.text for item in decoder.response.items if isinstance(item, TextItem)]
    assert decoder.response.text == streamed == "".join(said)
    assert folded == said
    assert len(folded) == announced
    assert len(of_type(found, "response.content_part.added")) == announced


def test_text_is_assembled_once_when_a_wire_repeats_the_whole() -> None:
    parts: list[Part] = [
        ResponseMetadata("r"),
        TextStart("t"),
        TextDelta("t", "ab"),
        TextEnd("t", whole="abc"),
        TextStart("empty"),
        TextEnd("empty", whole=""),
        Finish("stop"),
    ]
    found = events(b"".join(encode(parts, "openai-responses")))
    deltas = [event["delta"] for event in of_type(found, "response.output_text.delta")]
    assert deltas == ["ab", "c"]
    output = found[-1]["response"]["output"]
    assert [item["content"][0]["text"] for item in output] == ["abc", ""]


# Seed 002: the validation checklist, over the encoder's bytes


def tool_session() -> list[Event]:
    raw = stream(
        [
            calls(entry(0, "call_1", "shell", "")),
            *(calls(entry(0, arguments=piece)) for piece in ('{"command": ', '["echo",', '"hi"]}')),
        ],
        "tool_calls",
    )
    context = Context(ids=Ids(b"2"), quirks=ResponsesQuirks(tool_session=True))
    decoder = Decoder("openai-chat")
    encoder = Encoder("openai-responses", context=context, fold=decoder.fold)
    out = encoder.feed(decoder.feed(raw[:600])) + encoder.keepalive()
    out += encoder.feed(decoder.feed(raw[600:])) + encoder.feed(decoder.finish())
    return events(b"".join(out))


class TestToolSessionChecklist:
    found = tool_session()

    def test_the_events_come_in_order(self) -> None:
        types = [event["type"] for event in self.found if event["type"] != "ping"]
        merged = [type for at, type in enumerate(types) if not at or types[at - 1] != type]
        assert merged == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.required_action",
            "response.completed",
        ]

    def test_all_events_have_a_type(self) -> None:
        assert all(event["type"] for event in self.found)

    def test_sequence_numbers_grow_by_one_on_every_event_including_ping(self) -> None:
        assert len(of_type(self.found, "ping")) == 1
        assert [event["sequence_number"] for event in self.found] == list(range(len(self.found)))

    def test_all_delta_and_done_events_have_the_same_item_id(self) -> None:
        spoken = [event for event in self.found if "function_call_arguments" in event["type"]]
        assert len(spoken) == 4
        assert {event["item_id"] for event in spoken} == item_ids(self.found)
        assert len(item_ids(self.found)) == 1

    def test_the_same_call_id_everywhere(self) -> None:
        items = [event["item"] for event in self.found if "item" in event]
        items += self.found[-1]["response"]["output"]
        assert {item["call_id"] for item in items} == {"call_1"}
        action = self.found[-1]["response"]["required_action"]
        assert [call["id"] for call in action["submit_tool_outputs"]["tool_calls"]] == ["call_1"]

    def test_type_function_call_and_the_name_in_all_item_objects(self) -> None:
        items = [event["item"] for event in self.found if "item" in event]
        items += self.found[-1]["response"]["output"]
        assert {item["type"] for item in items} == {"function_call"}
        assert {item["name"] for item in items} == {"shell"}

    def test_status_goes_from_in_progress_to_completed(self) -> None:
        statuses = [event["item"]["status"] for event in self.found if "item" in event]
        assert statuses == ["in_progress", "completed"]
        assert self.found[0]["response"]["status"] == "in_progress"
        assert self.found[-1]["response"]["status"] == "incomplete"

    def test_arguments_go_from_empty_over_deltas_to_complete_json(self) -> None:
        (added,) = of_type(self.found, "response.output_item.added")
        deltas = of_type(self.found, "response.function_call_arguments.delta")
        (done,) = of_type(self.found, "response.function_call_arguments.done")
        (closed,) = of_type(self.found, "response.output_item.done")
        whole = '{"command": ["echo","hi"]}'
        assert added["item"]["arguments"] == ""
        assert "".join(event["delta"] for event in deltas) == whole
        assert done["arguments"] == closed["item"]["arguments"] == whole
        assert self.found[-1]["response"]["output"][0]["arguments"] == whole

    def test_the_final_event_holds_the_complete_output(self) -> None:
        (closed,) = of_type(self.found, "response.output_item.done")
        assert self.found[-1]["type"] == "response.completed"
        assert self.found[-1]["response"]["output"] == [closed["item"]]

    def test_reasoning_is_present_in_every_response_object(self) -> None:
        snapshots = [event["response"] for event in self.found if "response" in event]
        assert len(snapshots) == 4
        assert all(
            snapshot["reasoning"] == {"effort": None, "summary": None} for snapshot in snapshots
        )

    def test_required_action_says_the_same_before_and_in_the_final_response(self) -> None:
        (action,) = of_type(self.found, "response.required_action")
        assert action["required_action"] == {
            "type": "submit_tool_outputs",
            "submit_tool_outputs": {
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "shell", "arguments": '{"command": ["echo","hi"]}'},
                    }
                ]
            },
        }
        assert self.found[-1]["response"]["required_action"] == action["required_action"]
        assert action["response"]["status"] == "incomplete"
