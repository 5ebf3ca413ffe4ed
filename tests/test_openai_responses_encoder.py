"""The Responses encoder: spec order, all required keys, one id per item, the fold at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.encoded import CALL, TEXT
from tests.responses import Event, events, item_ids, of_type
from tests.serving import openai_client, serving
from tests.strategies import LEGAL, OBJECTS, QUICK, SOUP, THOROUGH, cuts, examples
from weft import (
    Context,
    Encoder,
    ErrorPart,
    File,
    Finish,
    Ids,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Request,
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
    assemble,
    check,
    decode_all,
    encode,
)
from weft.dialects.envelope import Envelope, ReasoningState, unwrap
from weft.dialects.openai_responses.encoder import body
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.request import REQUEST
from weft.findings import Findings
from weft.request import OutputFormat, ReasoningOptions, Sampling, Tool, ToolChoice

REQUIRED = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model",
    "previous_response_id", "instructions", "output", "error", "tools", "tool_choice",
    "truncation", "parallel_tool_calls", "text", "top_p", "presence_penalty",
    "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage",
    "max_output_tokens", "max_tool_calls", "store", "background", "service_tier", "metadata",
    "safety_identifier", "prompt_cache_key",
}  # fmt: skip

START = ResponseMetadata("up_1", model="m-1", created=1790000000)
OURS = ResponseMetadata("up_1", model="m-1", created=1790000000, dialect="openai-responses")


def write(*parts: Part, finish: Part | None = None, context: Context | None = None) -> bytes:
    end = finish or Finish("stop", usage=Usage(3, 4, 7))
    stream = [START, *parts, end]
    return b"".join(encode(stream, "openai-responses", context=context or Context(ids=Ids(b"1"))))


def written(
    *parts: Part, finish: Part | None = None, context: Context | None = None
) -> list[Event]:
    return events(write(*parts, finish=finish, context=context))


def types(found: list[Event]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in found]


def noted(*parts: Part, start: Part = START, finish: Part | None = None) -> tuple[Event, list[str]]:
    """The last snapshot, and what was not carried."""
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"1")))
    found = events(b"".join(encoder.feed([start, *parts, finish or Finish("stop")])))
    return found[-1]["response"], [finding.detail for finding in encoder.findings]


def test_the_events_of_a_text_are_those_of_the_specification() -> None:
    found = written(*TEXT)
    assert types(found) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    item = found[2]["item"]
    assert (item["type"], item["role"], item["content"]) == ("message", "assistant", [])
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert found[7]["part"] == part
    assert found[8]["item"]["content"] == [part]
    assert found[9]["response"]["output"] == [found[8]["item"]]


def test_a_call_is_added_with_its_name_and_empty_arguments() -> None:
    found = written(*CALL)
    assert types(found)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    item = found[2]["item"]
    assert item == {
        "type": "function_call",
        "id": item["id"],
        "status": "in_progress",
        "call_id": "call_1",
        "name": "look",
        "arguments": "",
    }
    assert found[6]["item"] == {**item, "status": "completed", "arguments": '{"at":1}'}


def test_a_call_that_came_whole_is_written_like_a_streamed_one() -> None:
    whole = written(ToolCall("call_1", "look", '{"at":1}'))
    added, delta, done = whole[2:5]
    assert added["item"]["arguments"] == ""
    assert delta["delta"] == done["arguments"] == '{"at":1}'
    assert types(whole)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_a_custom_call_is_free_text() -> None:
    found = written(
        ToolParamsStart("call_1", "sh", kind="custom", format="text"),
        ToolParamsDelta("call_1", "ls -l"),
        ToolParamsEnd("call_1"),
        ToolCall("call_1", "sh", "ls -l", kind="custom", format="text"),
    )
    assert types(found)[2:] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert found[4]["input"] == found[5]["item"]["input"] == "ls -l"
    assert found[5]["item"]["type"] == "custom_tool_call"


def test_a_refusal_is_a_part_of_its_own_kind() -> None:
    found = written(TextStart("t", refusal=True), TextDelta("t", "No."), TextEnd("t"))
    assert types(found)[3:7] == [
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
    ]
    assert found[3]["part"] == {"type": "refusal", "refusal": ""}
    assert found[6]["part"] == {"type": "refusal", "refusal": "No."}


@pytest.mark.parametrize(
    ("kind", "wrapper", "text", "index"),
    [
        ("summary", "reasoning_summary_part", "reasoning_summary_text", "summary_index"),
        ("raw", "content_part", "reasoning_text", "content_index"),
    ],
)
def test_reasoning_is_a_summary_unless_raw_reasoning_is_asked_for(
    kind: str, wrapper: str, text: str, index: str
) -> None:
    asked = Request("m-1", include=("reasoning.raw",) if kind == "raw" else ())
    found = written(
        ReasoningStart("r", "raw"),
        ReasoningDelta("r", "hmm"),
        ReasoningEnd("r", encrypted="xyz", origin="openai-responses"),
        context=Context(request=asked, ids=Ids(b"1")),
    )
    assert types(found)[2:] == [
        "output_item.added",
        f"{wrapper}.added",
        f"{text}.delta",
        f"{text}.done",
        f"{wrapper}.done",
        "output_item.done",
        "completed",
    ]
    assert all(event[index] == 0 for event in found[3:7])
    added, done = found[2]["item"], found[7]["item"]
    head = {"type": "reasoning", "id": added["id"], "status": "in_progress", "summary": []}
    assert added == ({**head, "content": []} if kind == "raw" else head)
    assert done["encrypted_content"] == "xyz"
    assert ("content" in done) == (kind == "raw")


def test_reasoning_parts_of_one_item_share_it_and_its_encrypted_content() -> None:
    found = written(
        ReasoningStart("r:0", "summary", item_id="rs_9"),
        ReasoningDelta("r:0", "a"),
        ReasoningEnd("r:0"),
        ReasoningStart("r:1", "summary", item_id="rs_9"),
        ReasoningDelta("r:1", "b"),
        ReasoningEnd("r:1", encrypted="xyz", origin="openai-responses"),
        *TEXT,
    )
    first, second = found[-1]["response"]["output"]
    assert first == {
        "type": "reasoning",
        "id": "rs_9",
        "status": "completed",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        "encrypted_content": "xyz",
    }
    assert second["type"] == "message"
    assert len(of_type(found, "response.output_item.added")) == 2


def test_reasoning_without_text_keeps_its_encrypted_content() -> None:
    found = written(
        ReasoningStart("r", "summary"),
        ReasoningEnd("r", encrypted="xyz", origin="openai-responses"),
    )
    assert types(found)[2:] == ["output_item.added", "output_item.done", "completed"]
    assert found[3]["item"]["summary"] == []


def test_text_parts_of_one_item_are_content_of_one_message() -> None:
    found = written(
        TextStart("a", item_id="msg_7", phase="commentary"),
        TextDelta("a", "x"),
        TextEnd("a"),
        TextStart("b", item_id="msg_7"),
        TextDelta("b", "y"),
        TextEnd("b"),
    )
    (message,) = found[-1]["response"]["output"]
    assert [part["text"] for part in message["content"]] == ["x", "y"]
    assert message["phase"] == "commentary"
    assert [event["content_index"] for event in of_type(found, "response.output_text.delta")] == [
        0,
        1,
    ]


def test_sources_become_annotations_of_the_text_they_belong_to() -> None:
    found = written(
        Source("s0", "url", url="https://a.example"),  # before any text: waits for one
        TextStart("t"),
        TextDelta("t", "x"),
        Source("s1", "url", "t", url="https://b.example", title="B", start=0, end=1),
        TextEnd("t"),
    )
    added = of_type(found, "response.output_text.annotation.added")
    first = {"type": "url_citation", "url": "https://a.example", "title": "", "start_index": 0,
             "end_index": 0}  # fmt: skip
    second = {"type": "url_citation", "url": "https://b.example", "title": "B", "start_index": 0,
              "end_index": 1}  # fmt: skip
    assert [event["annotation"] for event in added] == [first, second]
    assert [event["annotation_index"] for event in added] == [0, 1]
    assert found[-1]["response"]["output"][0]["content"][0]["annotations"] == [first, second]


def test_a_hosted_call_is_an_item_with_its_result() -> None:
    found = written(
        ToolParamsStart("ws_1", "search", kind="web_search_call", item_id="ws_1",
                        provider_executed=True),
        ToolParamsDelta("ws_1", '{"action":{"type":"search"}}'),
        ToolParamsEnd("ws_1"),
        ToolCall("ws_1", "search", '{"action":{"type":"search"}}', kind="web_search_call",
                 provider_executed=True),
        ToolResult("ws_1", Raw(b'{"results":[]}'), preliminary=True),
        ToolResult("ws_1", Raw(b'{"results":[1]}')),
        *TEXT,
    )  # fmt: skip
    first, _ = found[-1]["response"]["output"]
    assert first == {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search"},
        "results": [1],
    }
    assert of_type(found, "response.output_item.added")[0]["item"]["status"] == "in_progress"


def test_a_remote_call_keeps_its_arguments_as_text() -> None:
    call = ToolCall("m", "roll", '{"n":1}', kind="mcp_call", server_label="dice",
                    provider_executed=True)  # fmt: skip
    found = written(call, ToolResult("m", Raw(b'"4"')))
    (item,) = found[-1]["response"]["output"]
    assert (item["name"], item["server_label"], item["arguments"]) == ("roll", "dice", '{"n":1}')
    assert item["output"] == "4"
    (begun,) = of_type(found, "response.output_item.added")
    assert begun["item"]["server_label"] == "dice"  # known, since the call came whole


def test_an_item_of_this_dialect_comes_back_as_it_was() -> None:
    raw = Raw(b'{"type":"compaction","id":"cmp_1","encrypted_content":"zzz"}')
    found = written(Opaque("openai-responses", "compaction", raw))
    assert found[-1]["response"]["output"] == [json.loads(bytes(raw))]


def test_an_item_that_was_written_before_is_not_written_again() -> None:
    raw = Raw(b'{"type":"compaction","id":"cmp_1"}')
    odd = Raw(b'{"type":"compaction","id":7}')
    opaque = [Opaque("openai-responses", "compaction", one) for one in (raw, raw, odd)]
    output = written(*opaque)[-1]["response"]["output"]
    assert [item["id"] for item in output] == ["cmp_1", 7]


@pytest.mark.parametrize("line", [b"\n", b"\r", b"\r\n"])
def test_raw_json_that_is_spread_over_lines_stays_one_event(line: bytes) -> None:
    raw = Raw(line.join((b"{", b'"type": "compaction",', b'"id": "cmp_1"', b"}")))
    assert b"\r" not in write(Opaque("openai-responses", "compaction", raw))
    found = written(Opaque("openai-responses", "compaction", raw))
    assert found[-1]["response"]["output"] == [{"type": "compaction", "id": "cmp_1"}]


def test_usage_of_the_start_counts_unless_the_end_has_another() -> None:
    start = ResponseMetadata("r", usage=Usage(input_tokens=9, cache_read_tokens=2))
    parts: list[Part] = [start, Finish("stop", usage=Usage(output_tokens=4))]
    last = events(b"".join(encode(parts, "openai-responses")))[-1]["response"]["usage"]
    assert (last["input_tokens"], last["output_tokens"], last["total_tokens"]) == (9, 4, 13)


def test_what_cannot_be_written_is_reported() -> None:
    parts: list[Part] = [
        START,
        File("f", "audio/wav", data="AA=="),
        File("f", "image/png", reference="https://a.example/1.png"),
        Opaque("gemini", "thing", Raw(b"{}")),
        Source("s", "document", title="A book"),
        Source("s", "url", url="https://a.example"),
        ToolCall("w", "search", "{}", kind="server_tool", provider_executed=True),
        ToolApprovalRequest("w", "ap_1"),
        ToolResult("w", Raw(b"1")),
        ReasoningStart("r", "raw"),
        ReasoningEnd("r", signature="sig"),
        ToolCall("n", "", "{", invalid="nameless"),
        Finish("stop"),
    ]
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"1")))
    encoder.feed(parts)
    carried = {finding.detail.partition(":")[0] for finding in encoder.findings}
    assert {finding.code for finding in encoder.findings} == {"not-carried"}
    assert carried == {
        "file",
        "opaque",
        "source",
        "tool-call",
        "tool-approval-request",
        "tool-result",
        "reasoning-end",
    }


@pytest.mark.parametrize(
    ("reason", "event", "why"),
    [
        ("length", "response.incomplete", {"reason": "max_output_tokens"}),
        ("content-filter", "response.incomplete", {"reason": "content_filter"}),
        ("pause", "response.incomplete", None),
        ("stop", "response.completed", None),
        ("other", "response.completed", None),
    ],
)
def test_the_finish_reason_decides_the_terminal_event(
    reason: str, event: str, why: dict[str, str] | None
) -> None:
    found = written(*TEXT, finish=Finish(reason))  # type: ignore[arg-type]
    last = found[-1]
    cut = event == "response.incomplete"
    assert last["type"] == event
    assert last["response"]["status"] == event.removeprefix("response.")
    assert last["response"]["incomplete_details"] == why
    assert last["response"]["output"][0]["status"] == ("incomplete" if cut else "completed")
    assert (last["response"]["completed_at"] is None) == cut


@pytest.mark.parametrize(
    ("finish", "status", "why"),
    [
        (Finish("length", "max_output_tokens"), "incomplete", {"reason": "max_output_tokens"}),
        (Finish("other", "steered"), "incomplete", {"reason": "steered"}),
        (Finish("other", "incomplete"), "incomplete", None),
        (Finish("content-filter", "content_filter"), "incomplete", {"reason": "content_filter"}),
        (Finish("content-filter", "completed"), "completed", None),  # there was a refusal
        (Finish("stop", "completed"), "completed", None),
    ],
)
def test_a_response_of_this_dialect_ends_as_it_did(
    finish: Finish, status: str, why: dict[str, str] | None
) -> None:
    response, lost = noted(*TEXT, start=OURS, finish=finish)
    assert (response["status"], response["incomplete_details"]) == (status, why)
    assert response["output"][0]["status"] == "completed"  # or else it would have said so
    assert lost == []


def test_a_finish_reason_without_a_status_is_reported() -> None:
    _, lost = noted(*TEXT, finish=Finish("other", "weather"))
    assert lost == ["finish: no status for 'weather'"]


def test_only_the_last_item_of_a_cut_response_is_incomplete() -> None:
    found = written(*CALL, *TEXT, finish=Finish("length"))
    assert [item["status"] for item in found[-1]["response"]["output"]] == [
        "completed",
        "incomplete",
    ]


BAD: list[Part] = [
    ToolParamsStart("call_1", "look"),
    ToolParamsDelta("call_1", '{"at":'),
    ToolParamsEnd("call_1"),
    ToolCall("call_1", "look", '{"at":', invalid="bad-arguments"),
]


def test_broken_arguments_are_incomplete_when_the_tokens_ran_out() -> None:
    found = written(*BAD, finish=Finish("length"))
    assert found[-1]["response"]["status"] == "incomplete"
    assert found[-1]["response"]["output"][0]["status"] == "incomplete"


def test_broken_arguments_at_a_clean_end_are_handed_over_as_they_are() -> None:
    found = written(*BAD, *TEXT, finish=Finish("tool-calls"))
    assert found[-1]["type"] == "response.completed"
    assert found[-1]["response"]["output"][0]["arguments"] == '{"at":'
    assert found[-1]["response"]["output"][0]["status"] == "completed"


def test_a_call_that_never_ended_leaves_the_response_incomplete() -> None:
    found = written(*CALL[:3], finish=Finish("stop"))
    assert found[-1]["type"] == "response.incomplete"
    assert found[-1]["response"]["incomplete_details"] == {"reason": "tool_call_incomplete"}
    assert found[-1]["response"]["output"][0]["status"] == "incomplete"


def test_an_error_closes_what_is_open_and_comes_right_before_response_failed() -> None:
    error = ErrorPart("upstream", "overloaded", code=429, status=429)
    found = written(*TEXT, TextStart("u"), TextDelta("u", "par"), *CALL[:2], error,
                    finish=Finish("error"))  # fmt: skip
    assert types(found)[-2:] == ["error", "failed"]
    assert found[-2]["error"] == {
        "type": "too_many_requests",
        "code": "rate_limit_exceeded",
        "message": "overloaded",
        "param": None,
    }
    assert (found[-2]["code"], found[-2]["message"]) == ("rate_limit_exceeded", "overloaded")
    failed = found[-1]["response"]
    assert failed["error"] == {"code": "rate_limit_exceeded", "message": "overloaded"}
    assert [item["status"] for item in failed["output"]] == ["completed"] + ["incomplete"] * 2
    assert failed["output"][1]["content"][0]["text"] == "par"


def test_usage_is_null_until_it_is_known_and_never_invented() -> None:
    whole = Usage(10, 5, 15, reasoning_tokens=2, cache_read_tokens=3, cache_write_tokens=1)
    found = written(*TEXT, finish=Finish("stop", usage=whole))
    assert found[0]["response"]["usage"] is None
    assert found[-1]["response"]["usage"] == {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    half = written(*TEXT, finish=Finish("stop", usage=Usage(input_tokens=10)))
    assert half[-1]["response"]["usage"] is None


def test_every_snapshot_has_every_required_key() -> None:
    for finish in (Finish("stop"), Finish("length"), Finish("error")):
        for event in written(*TEXT, *CALL, finish=finish):
            if "response" in event:
                assert event["response"].keys() == REQUIRED
                assert event["response"]["reasoning"].keys() == {"effort", "summary"}


def test_the_request_is_echoed_with_its_defaults_filled_in() -> None:
    request = Request(
        "asked-model",
        instructions="Be brief.",
        tools=(
            Tool("look", description="Looks.", parameters=Raw(b'{"type":"object"}'), strict=True),
            Tool("bare"),
            Tool("web", kind="web_search", raw=Raw(b'{"type":"web_search"}')),
        ),
        tool_choice=ToolChoice("required", allowed=("look",)),
        output=OutputFormat("json-schema", "answer", schema=Raw(b"{}")),
        verbosity="low",
        reasoning=ReasoningOptions("high"),
        sampling=Sampling(temperature=0.0),
        store=True,
        metadata={"a": "b"},
    )
    response = written(*TEXT, context=Context(request=request))[0]["response"]
    assert response["model"] == "asked-model"
    assert response["instructions"] == "Be brief."
    assert response["tools"] == [
        {"type": "function", "name": "look", "description": "Looks.",
         "parameters": {"type": "object"}, "strict": True},
        {"type": "function", "name": "bare", "description": None, "parameters": None,
         "strict": None},
        {"type": "web_search"},
    ]  # fmt: skip
    assert response["tool_choice"] == {
        "type": "allowed_tools",
        "tools": [{"type": "function", "name": "look"}],
        "mode": "required",
    }
    assert response["text"] == {
        "format": {"type": "json_schema", "name": "answer", "description": None, "schema": None,
                   "strict": None},
        "verbosity": "low",
    }  # fmt: skip
    assert response["reasoning"] == {"effort": "high", "summary": None}
    assert (response["temperature"], response["store"]) == (0.0, True)
    assert response["metadata"] == {"a": "b"}


@pytest.mark.parametrize(
    ("choice", "echo"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice(name="look"), {"type": "function", "name": "look"}),
        (None, "auto"),
    ],
)
def test_tool_choice_is_echoed(choice: ToolChoice | None, echo: object) -> None:
    context = Context(request=Request("m", tool_choice=choice, output=OutputFormat("json")))
    response = written(context=context)[0]["response"]
    assert response["tool_choice"] == echo
    assert response["text"]["format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "g"},
        {"type": "mcp", "server_label": "s"},
        {"type": "mcp", "server_label": "s", "name": "t"},
        {"type": "web_search_preview_2025_03_11"},
        {"type": "image_generation"},
        {
            "type": "allowed_tools",
            "tools": [{"type": "mcp", "server_label": "s", "name": "t"}],
            "mode": "auto",
        },
        {
            "type": "allowed_tools",
            "tools": [
                {"type": "function", "name": "f"},
                {"type": "custom", "name": "g"},
                {"type": "mcp", "server_label": "s"},
                {"type": "web_search_preview_2025_03_11"},
                {"type": "image_generation"},
            ],
            "mode": "auto",
        },
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}], "mode": "new"},
        {"type": "function", "name": "not declared"},
        {"type": "custom", "name": "not declared"},
    ],
)
def test_the_tool_choice_of_a_request_is_echoed_as_it_came(choice: object) -> None:
    tools = [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "g"},
        {"type": "mcp", "server_label": "s", "server_url": "u"},
        {"type": "web_search_preview_2025_03_11"},
        {"type": "image_generation"},
    ]
    body = {"model": "m", "input": "hi", "tools": tools, "tool_choice": choice}
    request = REQUEST.parse(json.dumps(body).encode(), Context()).request
    response = written(context=Context(request=request))[0]["response"]
    assert response["tool_choice"] == choice


def test_the_response_id_the_store_flag_and_the_time_come_from_the_context() -> None:
    context = Context(response_id="resp_ours", now=1790000009)
    raw = b"".join(
        encode(
            [ResponseMetadata("x", store=True), Finish("stop", model="later")],
            "openai-responses",
            context=context,
        )
    )
    last = events(raw)[-1]["response"]
    assert (last["id"], last["created_at"], last["store"]) == ("resp_ours", 1790000009, True)
    assert last["model"] == "later"


def test_a_tool_session_is_requested_with_include() -> None:
    context = Context(request=Request("m", include=("required_action",)))
    custom = ToolCall("call_2", "sh", "ls", kind="custom", format="text")
    found = written(*CALL, custom, finish=Finish("tool-calls"), context=context)
    assert types(found)[-2:] == ["required_action", "completed"]
    calls = found[-1]["response"]["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert calls[1] == {"id": "call_2", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    assert found[0]["response"]["required_action"] is None


def test_a_tool_session_does_not_wait_for_what_the_provider_executes() -> None:
    call = ToolCall("c", "x_search", "q", kind="custom", format="text", provider_executed=True)
    parts: list[Part] = [OURS, call, *CALL, Finish("tool-calls")]
    context = Context(quirks=ResponsesQuirks(tool_session=True))
    last = events(b"".join(encode(parts, "openai-responses", context=context)))[-1]["response"]
    calls = last["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert [item["type"] for item in last["output"]] == ["custom_tool_call", "function_call"]
    assert [call["id"] for call in calls] == ["call_1"]


def test_a_tool_session_that_waits_for_nothing_is_completed() -> None:
    context = Context(quirks=ResponsesQuirks(tool_session=True))
    found = written(*TEXT, context=context)
    assert found[-1]["response"]["status"] == "completed"
    assert found[-1]["response"]["required_action"] is None


def test_a_keepalive_is_a_comment_in_the_pure_form() -> None:
    assert Encoder("openai-responses").keepalive() == [b": keepalive\n\n"]


def assert_the_last_snapshot_tells_the_same(found: list[Event], by_index: dict[int, Event]) -> None:
    """Every item is done as the last snapshot has it; calls that an error cut never are."""
    output = found[-1]["response"]["output"]
    assert len(output) == len(of_type(found, "response.output_item.added"))
    cut = {at for at, item in enumerate(output) if item["type"] not in ("message", "reasoning")}
    left = set(range(len(output))) - by_index.keys()
    assert left <= (cut if found[-1]["type"] == "response.failed" else set())
    assert all(output[at]["status"] == "incomplete" for at in left)
    assert {at: output[at] for at in by_index} == by_index


@examples(200)
@given(SOUP)
def test_any_parts_become_a_valid_stream(soup: list[Part]) -> None:
    pieces = list(encode(soup, "openai-responses", context=Context(ids=Ids(b"1"))))
    assert all(piece.endswith(b"\n\n") and piece.count(b"\n\n") == 1 for piece in pieces)
    found = events(b"".join(pieces))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    added = of_type(found, "response.output_item.added")
    done = of_type(found, "response.output_item.done")
    assert [event["output_index"] for event in added] == list(range(len(added)))
    by_index = {event["output_index"]: event["item"] for event in done}
    assert len(by_index) == len(done)
    assert_the_last_snapshot_tells_the_same(found, by_index)
    terminal = ("response.completed", "response.incomplete", "response.failed")
    assert [event["type"] in terminal for event in found] == [False] * (len(found) - 1) + [True]
    ids = [event["item"]["id"] for event in added if event["item"]["id"]]
    assert len(set(ids)) == len(ids)


def test_the_model_is_the_requested_one_in_every_snapshot() -> None:
    asked = Context(request=Request("demo/long"), ids=Ids(b"1"))
    found = written(*TEXT, finish=Finish("stop", model="long-2"), context=asked)
    shown = [event["response"] for event in found if "response" in event]
    assert {one["model"] for one in shown} == {"demo/long"}
    assert len({(one["id"], one["created_at"]) for one in shown}) == 1


def test_a_model_without_a_name_is_unknown() -> None:
    parts = [ResponseMetadata("r"), *TEXT, Finish("stop")]
    found = events(b"".join(encode(parts, "openai-responses", context=Context(ids=Ids(b"1")))))
    assert found[-1]["response"]["model"] == "unknown"


def test_the_service_tier_of_the_upstream_is_in_streams_and_bodies() -> None:
    kept = Raw(b'{"response":{"service_tier":"flex"}}')
    parts = [OURS, *TEXT, Finish("stop", "completed", extra=kept)]
    found = events(b"".join(encode(parts, "openai-responses", context=Context(ids=Ids(b"1")))))
    whole = json.loads(body(assemble(parts), Context(ids=Ids(b"1"))))
    assert (found[-1]["response"]["service_tier"], whole["service_tier"]) == ("flex", "flex")


def test_a_cancelled_response_is_not_a_failure() -> None:
    gone = ErrorPart("cancelled", "the response was cancelled", status=499)
    found = written(*TEXT[:2], gone, *TEXT[2:], finish=Finish("error"))
    assert [event["type"] for event in of_type(found, "error")] == []
    last = found[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
    assert last["response"]["incomplete_details"] == {"reason": "cancelled"}
    assert last["response"]["error"] is None
    raw = write(*TEXT[:2], gone, *TEXT[2:], finish=Finish("error"))
    (back,) = decode_all(raw, "openai-responses")
    assert [part for part in back.parts if isinstance(part, ErrorPart)] == [gone]


# Annotations


def annotations(response: Event) -> list[Event]:
    return [one for part in response["output"][0]["content"] for one in part["annotations"]]


@pytest.mark.parametrize(
    ("source", "annotation"),
    [
        (Source("s", "document", "t", file_id="f", title="a.txt", end=3),
         {"type": "file_citation", "file_id": "f", "filename": "a.txt", "index": 3}),
        (Source("s", "document", "t", url="https://a.example", title="A"),
         {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0,
          "end_index": 0}),
        (Source("s", "url", "gone", url="https://a.example", start=5, end=9),  # another text's
         {"type": "url_citation", "url": "https://a.example", "title": "", "start_index": 0,
          "end_index": 0}),
    ],
)  # fmt: skip
def test_a_source_of_another_dialect_becomes_a_citation(source: Source, annotation: Event) -> None:
    response, lost = noted(TextStart("t"), TextDelta("t", "x"), source, TextEnd("t"))
    assert annotations(response) == [annotation]
    placed = source.file_id is not None
    unplaced = "source: its range is unknown; written as 0 to 0"
    assert lost == ([] if placed else [unplaced])


def test_annotations_of_this_dialect_are_unchanged_and_written_once() -> None:
    path = Raw(b'{"type":"file_path","file_id":"f","index":7}')
    odd = Raw(b'{"type":"acme:mark","x":[1]}')
    response, lost = noted(
        TextStart("t"),
        Source("s0", "document", "t", file_id="f", raw=path),
        Source("s1", "document", "t", file_id="f", raw=path),
        TextEnd("t", annotations=(path, odd, path)),
        start=OURS,
    )
    assert annotations(response) == [json.loads(bytes(one)) for one in (path, path, odd)]
    assert lost == []


def test_annotations_of_another_dialect_are_not_written() -> None:
    response, _ = noted(TextStart("t"), TextEnd("t", annotations=(Raw(b'{"type":"note"}'),)))
    assert annotations(response) == []


def test_fields_that_only_the_end_of_a_text_has_are_in_its_item() -> None:
    kept = {"phase": "final_answer", "logprobs": [{"token": "x"}], "item": {"status": "odd"}}
    response, _ = noted(
        TextStart("t", "msg_1"),
        TextDelta("t", "x"),
        TextEnd("t", extra=Raw(msgspec.json.encode(kept))),
        start=OURS,
    )
    part = {"type": "output_text", "text": "x", "annotations": [], "logprobs": [{"token": "x"}]}
    assert response["output"] == [
        {"type": "message", "id": "msg_1", "status": "odd", "role": "assistant",
         "phase": "final_answer", "content": [part]}
    ]  # fmt: skip


def test_the_extra_of_another_dialect_is_not_read() -> None:
    kept = Raw(b'{"item":{"status":"odd"},"phase":"x"}')
    response, _ = noted(TextStart("t"), TextEnd("t", extra=kept))
    assert (response["output"][0]["status"], "phase" in response["output"][0]) == (
        "completed",
        False,
    )


def test_signatures_of_texts_and_late_ones_of_calls_are_reported() -> None:
    _, lost = noted(
        TextStart("t"),
        TextEnd("t", signature="sig", origin="gemini"),
        ToolCall("c", "look", "{}", signature="sig"),
        finish=Finish("tool-calls"),
    )
    assert lost == [
        "text-end: its signature is only for 'gemini'",
        "tool-call: a call has no field for a signature",
    ]


SIGNED = ToolParamsStart("c", "look", signature="sig", origin="host")
SIGNED_CALL = ToolCall("c", "look", '{"at":1}', signature="sig", origin="host")
ARGUMENTS: list[Part] = [ToolParamsDelta("c", '{"at":1}'), ToolParamsEnd("c"), SIGNED_CALL]
ENVELOPE = Envelope("host", "m-1", ReasoningState("sig", call="c"))
HINT: list[Part] = [ReasoningStart("r", "summary"), ReasoningDelta("r", "hm"), ReasoningEnd("r")]


def test_the_signature_of_a_call_is_wrapped_in_the_reasoning_before_it() -> None:
    response, lost = noted(*HINT, SIGNED, *ARGUMENTS, finish=Finish("tool-calls"))
    thought, call = response["output"]
    assert unwrap(thought["encrypted_content"]) == ENVELOPE
    assert thought["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert (call["type"], lost) == ("function_call", [])


@pytest.mark.parametrize(
    "before",
    [
        [],
        TEXT,
        [*HINT, *TEXT],
        [*HINT[:2], ReasoningEnd("r", encrypted="e", origin="openai-responses")],
    ],
    ids=["nothing", "a text", "a thought and a text", "a thought with a proof"],
)
def test_the_signature_of_a_call_is_wrapped_in_an_empty_reasoning_if_none_is_free(
    before: list[Part],
) -> None:
    stream: list[Part] = [*before, SIGNED, *ARGUMENTS]
    found = written(*stream, finish=Finish("tool-calls"))
    *_, thought, call = found[-1]["response"]["output"]
    assert thought == {
        "type": "reasoning",
        "id": thought["id"],
        "status": "completed",
        "summary": [],
        "encrypted_content": thought["encrypted_content"],
    }
    assert unwrap(thought["encrypted_content"]) == ENVELOPE
    added, done = (event for event in found if event.get("item", {}).get("id") == thought["id"])
    assert (added["type"], "encrypted_content" in added["item"]) == (
        "response.output_item.added",
        False,
    )
    assert done["item"] == thought
    assert call["call_id"] == "c"


def test_a_body_has_the_signature_of_a_call() -> None:
    stream: list[Part] = [START, *HINT, SIGNED, *ARGUMENTS, Finish("tool-calls")]
    found = json.loads(body(assemble(stream), Context(ids=Ids(b"1")), Findings()))
    assert [unwrap(item.get("encrypted_content")) for item in found["output"]] == [ENVELOPE, None]


@pytest.mark.parametrize(
    "stream",
    [
        [ToolParamsStart("c", "look"), *ARGUMENTS],
        [msgspec.structs.replace(SIGNED, origin=None), *ARGUMENTS],
        [
            ToolParamsStart("c", "run", "executable_code", provider_executed=True),
            ToolParamsDelta("c", "{}"),
            ToolParamsEnd("c"),
            ToolCall(
                "c", "run", "{}", "executable_code", provider_executed=True, signature="s",
                origin="host",
            ),
        ],
    ],
    ids=["it came late", "nobody knows whose it is", "nobody is asked to send it back"],
)  # fmt: skip
def test_a_signature_of_a_call_that_cannot_be_written_is_reported(stream: list[Part]) -> None:
    _, lost = noted(*stream, finish=Finish("tool-calls"))
    assert "tool-call: a call has no field for a signature" in lost


def test_encrypted_content_of_another_origin_is_wrapped_and_comes_back_unchanged() -> None:
    end = ReasoningEnd("r", signature="sig", redacted="zz", origin="anthropic-messages")
    response, lost = noted(ReasoningStart("r", "raw"), ReasoningDelta("r", "hm"), end)
    assert lost == []
    sealed = unwrap(response["output"][0]["encrypted_content"])
    proof = ReasoningState(signature="sig", redacted="zz", kind="raw", text="hm")
    assert sealed == Envelope("anthropic-messages", "m-1", proof)


def test_an_item_has_one_encrypted_content() -> None:
    parts: list[Part] = []
    for name in ("a", "b"):
        end = ReasoningEnd(name, encrypted=name, origin="openai-responses")
        parts += [ReasoningStart(name, "summary", item_id="rs_1"), end]
    response, lost = noted(*parts)
    assert response["output"][0]["encrypted_content"] == "b"
    assert lost == ["reasoning-end: an item has one encrypted content; the last one is kept"]


def test_stored_fields_of_a_reasoning_are_in_its_item() -> None:
    end = ReasoningEnd("r", extra=Raw(b'{"item":{"status":"odd"}}'))
    response, _ = noted(ReasoningStart("r", "summary", item_id="rs_1"), end, start=OURS)
    assert response["output"] == [
        {"type": "reasoning", "id": "rs_1", "status": "odd", "summary": []}
    ]


def test_an_unknown_content_part_stays_in_its_message() -> None:
    sound = Raw(b'{"type":"acme:sound","data":"QQ=="}')
    where = Raw(b'{"content":{"item_id":"msg_1","content_index":1}}')
    found = events(
        b"".join(
            encode(
                [
                    OURS,
                    TextStart("t", item_id="msg_1"),
                    TextDelta("t", "x"),
                    TextEnd("t"),
                    Opaque("openai-responses", "acme:sound", sound, extra=where),
                    Finish("stop"),
                ],
                "openai-responses",
            )
        )
    )
    (message,) = found[-1]["response"]["output"]
    assert [part["type"] for part in message["content"]] == ["output_text", "acme:sound"]
    assert types(found)[-4:] == [
        "content_part.added",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


# When an item is announced, and when it is closed


def test_a_call_is_closed_as_soon_as_it_is_complete() -> None:
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"1")))
    encoder.feed([START, *CALL[:-1]])
    (done,) = encoder.feed(CALL[-1:])
    assert done.startswith(b"event: response.output_item.done\n")


def test_an_item_with_the_name_of_an_event_is_an_item() -> None:
    """Else an upstream could end the answer with an item of the type `response.failed`."""
    raw = Raw(b'{"type":"response.failed","id":"x_1"}')
    found = written(Opaque("openai-responses", "response.failed", raw))
    assert found[-1]["type"] == "response.completed"
    assert found[-1]["response"]["output"] == [{"type": "response.failed", "id": "x_1"}]


def test_params_that_waited_for_another_call_are_written_before_the_error() -> None:
    parts: list[Part] = [
        *(ToolParamsStart("a", "wind"), ToolParamsDelta("a", '{"n":1}')),
        *(ToolParamsStart("b", "dye"), ToolParamsDelta("b", '{"c":')),
        ToolParamsDelta("a", "1}"),
        *(ErrorPart("truncated", "cut off"), ToolParamsEnd("a"), ToolParamsEnd("b")),
        ToolCall("a", "wind", '{"n":1}1}', invalid="stream-failed"),
        ToolCall("b", "dye", '{"c":', invalid="stream-failed"),
    ]
    found = written(*parts, finish=Finish("error"))
    told = dict[str, str]()
    for event in of_type(found, "response.function_call_arguments.delta"):
        told[event["item_id"]] = told.get(event["item_id"], "") + event["delta"]
    output = found[-1]["response"]["output"]
    assert told == {item["id"]: item["arguments"] for item in output}


def test_a_message_waits_for_the_next_item_because_a_limit_may_have_cut_it() -> None:
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"1")))
    encoder.feed([START, *TEXT])
    assert encoder.feed([File("f", "audio/wav", data="QQ==")]) == []
    closed, added = encoder.feed([ToolParamsStart("call_1", "look")])
    assert closed.startswith(b"event: response.output_item.done\n")
    assert added.startswith(b"event: response.output_item.added\n")


def test_a_text_that_was_whole_before_an_error_is_completed() -> None:
    found = written(*TEXT, ErrorPart("upstream", "no"), finish=Finish("error"))
    assert [item["status"] for item in found[-1]["response"]["output"]] == ["completed"]


def test_code_is_announced_with_the_next_part_at_the_latest() -> None:
    code = ToolParamsStart("ci", "python", kind="code_interpreter_call", provider_executed=True)
    found = written(code, *TEXT, finish=Finish("stop"))
    added = of_type(found, "response.output_item.added")
    assert [event["item"]["type"] for event in added] == ["code_interpreter_call", "message"]
    assert added[0]["item"]["container_id"] == ""


def test_parts_of_one_item_that_overlap_another_item_stay_together() -> None:
    found = written(
        ReasoningStart("r:0", "summary", item_id="rs_9"),
        ReasoningDelta("r:0", "a"),
        *CALL,
        ReasoningEnd("r:0"),
        ReasoningStart("r:1", "summary", item_id="rs_9"),
        ReasoningDelta("r:1", "b"),
        ReasoningEnd("r:1", encrypted="xyz", origin="openai-responses"),
        finish=Finish("tool-calls"),
    )
    reasoning, call = found[-1]["response"]["output"]
    assert [part["text"] for part in reasoning["summary"]] == ["a", "b"]
    assert (reasoning["id"], reasoning["encrypted_content"]) == ("rs_9", "xyz")
    assert call["type"] == "function_call"


def test_an_empty_audio_event_is_not_written() -> None:
    empty = Raw(b'{"type":"response.audio.done","sequence_number":4}')
    found = written(Opaque("openai-responses", "response.audio.done", empty))
    assert types(found) == ["created", "in_progress", "completed"]


def test_a_tool_session_pings_with_a_number_of_the_stream() -> None:
    encoder = Encoder("openai-responses", context=Context(quirks=ResponsesQuirks(True)))
    encoder.feed([START])
    (ping,) = encoder.keepalive()
    assert ping == b'event: ping\ndata: {"type":"ping","sequence_number":2}\n\n'


# A response that is not streamed


def sorted_out(parts: list[Part]) -> list[Part]:
    """The stream, each source with the text it stands in, and no two texts in one item.

    A fold does not tell which text was open when a source came, nor whether an item was closed
    before more of it came. A body puts sources and items together then; a stream cannot.
    """
    out: list[Part] = []
    texts: list[str] = []
    for part in parts:
        match part:
            case TextStart():
                texts.append(part.id)
                part = msgspec.structs.replace(part, item_id=None)
            case TextEnd():
                texts.remove(part.id)
            case Source():
                if not texts:
                    continue
                part = msgspec.structs.replace(part, text_id=texts[-1])
        out.append(part)
    return out


@THOROUGH
@given(LEGAL)
def test_a_body_is_what_the_stream_of_the_same_parts_ends_with(legal: list[Part]) -> None:
    parts = sorted_out(legal)
    response = assemble(parts)
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"1"), now=7))
    last = events(b"".join(encoder.feed(parts)))[-1]["response"]
    findings = Findings()
    whole = json.loads(body(response, Context(ids=Ids(b"1"), now=7), findings))
    if response.error is not None:
        assert whole.keys() == {"error"}
        assert whole["error"]["message"] == last["error"]["message"]
    else:
        assert whole == last
        noticed = {finding.detail for finding in encoder.findings}
        assert {finding.detail for finding in findings.found} == noticed


def test_a_body_has_the_parts_of_an_item_in_one_item() -> None:
    response = assemble(
        [
            START,
            TextStart("a", item_id="msg_1"),
            TextEnd("a"),
            *CALL,
            TextStart("b", item_id="msg_1"),
            TextEnd("b"),
            Finish("tool-calls"),
        ]
    )
    message, call = json.loads(body(response, Context()))["output"]
    assert (message["id"], len(message["content"])) == ("msg_1", 2)
    assert call["call_id"] == "call_1"


def test_a_body_has_each_source_in_a_text() -> None:
    sources = [Source(f"s{n}", "url", url=f"https://{n}.example") for n in range(3)]
    mine = Source("s3", "url", "t", url="https://3.example")
    parts: list[Part] = [START, sources[0], *TEXT, sources[1], TextStart("u"), TextEnd("u"), mine]
    response = assemble([*parts, sources[2], Finish("stop")])
    first, second = json.loads(body(response, Context()))["output"]
    assert [[one["url"][8] for one in item["content"][0]["annotations"]]
            for item in (first, second)] == [["0", "1", "3"], ["2"]]  # fmt: skip


def test_a_body_has_no_call_without_a_name() -> None:
    findings = Findings()
    response = assemble([START, ToolCall("n", "", "{", invalid="nameless"), Finish("stop")])
    assert json.loads(body(response, Context(), findings))["output"] == []
    assert [finding.detail for finding in findings.found] == [
        "tool-call: the call has no name, or was cut off before it was announced"
    ]


def test_a_body_of_a_tool_session_says_what_it_waits_for() -> None:
    response = assemble([START, *CALL, Finish("tool-calls")])
    whole = json.loads(body(response, Context(request=Request("m", include=("required_action",)))))
    calls = whole["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert whole["status"] == "incomplete"
    assert [call["id"] for call in calls] == ["call_1"]


def test_a_fold_that_is_not_finished_is_written_as_far_as_it_came() -> None:
    response = msgspec.structs.replace(assemble([START, *TEXT]), finish_reason=None, error=None)
    whole = json.loads(body(response, Context()))
    assert (whole["status"], whole["output"][0]["content"][0]["text"]) == ("completed", "Hello")


# The official client, over real HTTP


@contextmanager
def served(
    answer: bytes, kind: str = "text/event-stream", status: int = 200
) -> Iterator[openai.OpenAI]:
    """A client of a server that answers every request with these bytes."""
    with (
        serving(answer, kind, status) as url,
        openai_client(url) as client,
    ):
        yield client


def test_the_official_client_ends_with_the_same_text_calls_and_usage() -> None:
    parts: list[Part] = [
        ReasoningStart("r", "summary"),
        ReasoningDelta("r", "hmm"),
        ReasoningEnd("r"),
        *TEXT,
        *CALL,
        Source("s", "url", url="https://a.example"),
    ]
    with (
        served(write(*parts)) as client,
        client.responses.stream(model="m-1", input="hi") as stream,
    ):
        seen = [event.type for event in stream]
        final = stream.get_final_response()
    assert seen.count("response.output_item.added") == 3
    assert final.output_text == "Hello"
    calls = [item for item in final.output if item.type == "function_call"]
    assert [(call.call_id, call.name, call.arguments) for call in calls] == [
        ("call_1", "look", '{"at":1}')
    ]
    assert final.usage is not None
    assert final.usage.total_tokens == 7


def test_the_official_client_raises_on_a_stream_that_failed() -> None:
    body = write(*TEXT[:2], ErrorPart("truncated", "cut off"), finish=Finish("error"))
    with served(body) as client:
        stream = client.responses.create(model="m-1", input="hi", stream=True)
        with pytest.raises(openai.APIError, match="cut off"):
            list(stream)


def test_the_official_client_reads_a_body() -> None:
    response = assemble([START, *TEXT, *CALL, Finish("tool-calls", usage=Usage(3, 4, 7))])
    with served(body(response, Context()), "application/json") as client:
        answer = client.responses.create(model="m-1", input="hi")
    assert (answer.status, answer.output_text) == ("completed", "Hello")
    assert answer.usage is not None
    assert answer.usage.total_tokens == 7
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert (call.call_id, call.arguments) == ("call_1", '{"at":1}')


def test_the_official_client_raises_what_an_error_body_says() -> None:
    error = ErrorPart("upstream", "slow down", code="rate_limit_exceeded", status=429)
    answer = body(assemble([START, error, Finish("error")]), Context())
    with (
        served(answer, "application/json", 429) as client,
        pytest.raises(openai.RateLimitError, match="slow down") as caught,
    ):
        client.responses.create(model="m-1", input="hi")
    assert caught.value.code == "rate_limit_exceeded"


def test_item_ids_of_the_wire_are_kept_and_never_given_twice() -> None:
    found = written(
        TextStart("a", item_id="msg_1"),
        TextEnd("a"),
        ToolCall("c", "look", "{}", item_id="msg_1"),
    )
    first, second = found[-1]["response"]["output"]
    assert first["id"] == "msg_1"
    assert second["id"] != "msg_1"
    assert item_ids(found) == {first["id"], second["id"]}


# Several calls at once


def announced(id: str, *pieces: str, **fields: str) -> list[Part]:
    """A call in pieces; without its end."""
    start = ToolParamsStart(id, "look", **fields)  # type: ignore[arg-type]
    return [start, *(ToolParamsDelta(id, piece) for piece in pieces if piece)]


def ended(id: str, text: str, **fields: str) -> list[Part]:
    return [ToolParamsEnd(id), ToolCall(id, "look", text, **fields)]  # type: ignore[arg-type]


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[Part], dict[str, str]]:
    """Calls that are told in turns, each ended where its arguments end, or all of them at last."""
    texts = {
        f"call_{number}": json.dumps({"n": number, **given})
        for number, given in enumerate(draw(st.lists(OBJECTS, min_size=2, max_size=4)))
    }
    lanes = [announced(id, *draw(cuts(text))) for id, text in texts.items()]
    ends = [ended(id, text) for id, text in texts.items()]
    if draw(st.booleans()):
        lanes = [lane + end for lane, end in zip(lanes, ends, strict=True)]
        ends = []
    order = draw(st.permutations([n for n, lane in enumerate(lanes) for _ in lane]))
    rest = [iter(lane) for lane in lanes]
    return [*(next(rest[n]) for n in order), *(part for end in ends for part in end)], texts


def told_of_calls(found: list[Event]) -> list[tuple[int, str]]:
    """Which call each event is about, and what it says."""
    kinds = ("output_item.added", "arguments.delta", "arguments.done", "output_item.done")
    about = [event for event in found if event["type"].endswith(kinds)]
    return [(event["output_index"], event["type"].rpartition(".")[2]) for event in about]


@QUICK
@given(interleaved())
def test_interleaved_calls_are_written_one_after_the_other(
    drawn: tuple[list[Part], dict[str, str]],
) -> None:
    """Nothing of another call comes between the announcement of a call and its last delta."""
    parts, texts = drawn
    raw = write(*parts, finish=Finish("tool-calls", usage=Usage(1, 1, 2)))
    found = events(raw)
    told = told_of_calls(found)
    for index in range(len(texts)):
        places = [n for n, (about, what) in enumerate(told) if about == index and what != "done"]
        assert {about for about, _ in told[places[0] : places[-1] + 1]} == {index}
    assert [index for index, what in told if what == "added"] == list(range(len(texts)))
    items = {item["id"]: item for item in found[-1]["response"]["output"]}
    for id, item in items.items():
        deltas = [one["delta"] for one in found if one.get("item_id") == id and "delta" in one]
        assert "".join(deltas) == item["arguments"] == texts[item["call_id"]]
    assert check(raw, dialect="openai-responses") == []


@QUICK
@given(st.lists(OBJECTS, min_size=1, max_size=3), st.data())
def test_nothing_waits_where_calls_come_one_after_the_other(
    given_arguments: list[dict[str, object]], data: st.DataObject
) -> None:
    """Even if they all end at last, as on a wire without end marks."""
    texts = [json.dumps({"n": n, **given}) for n, given in enumerate(given_arguments)]
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"1")))
    encoder.feed([START])
    for number, text in enumerate(texts):
        for part in announced(f"call_{number}", *data.draw(cuts(text))):
            said = part.delta if isinstance(part, ToolParamsDelta) else ""
            assert so_far(encoder, part) == [(number, said)]
    for number, text in enumerate(texts):
        assert so_far(encoder, *ended(f"call_{number}", text)) == [(number, ""), (number, "")]


def so_far(encoder: Encoder, *parts: Part) -> list[tuple[int, str]]:
    """What is written for these parts, before any other comes."""
    lines = b"".join(encoder.feed(parts)).split(b"\n")
    found = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    return [(event["output_index"], event.get("delta", "")) for event in found]


def lines_of(*parts: Part) -> list[tuple[int, str]]:
    return told_of_calls(written(*parts, finish=Finish("tool-calls")))


A, B = '{"a":1}', '{"b":2}'


def test_a_call_waits_until_the_arguments_before_it_are_complete_json() -> None:
    first, second = announced("a", '{"a"', ":1}"), announced("b", '{"b"', ":", "2}")
    stream = [first[0], second[0], *first[1:2], *second[1:3], first[2], second[3]]
    assert lines_of(*stream, *ended("a", A), *ended("b", B)) == [
        (0, "added"), (0, "delta"), (0, "delta"),
        (1, "added"), (1, "delta"), (1, "delta"),
        (0, "done"), (0, "done"), (1, "done"), (1, "done"),
    ]  # fmt: skip


def test_the_end_of_a_call_does_not_come_between_the_deltas_of_another() -> None:
    first, second = announced("a", A), announced("b", '{"b"', ":2}")
    assert lines_of(*first, *second[:2], *ended("a", A), second[2], *ended("b", B)) == [
        (0, "added"), (0, "delta"), (1, "added"), (1, "delta"), (1, "delta"),
        (0, "done"), (0, "done"), (1, "done"), (1, "done"),
    ]  # fmt: skip


def test_a_blank_after_complete_arguments_is_written_at_the_end_of_their_call() -> None:
    first, second = announced("a", A, " "), announced("b", '{"b"', ":2}")
    stream = [*first[:2], *second[:2], first[2], second[2], *ended("a", A + " "), *ended("b", B)]
    assert lines_of(*stream) == [
        (0, "added"), (0, "delta"), (1, "added"), (1, "delta"), (1, "delta"),
        (0, "delta"), (0, "done"), (0, "done"), (1, "done"), (1, "done"),
    ]  # fmt: skip


def test_free_text_is_complete_at_the_end_of_its_call() -> None:
    first = announced("a", "{}", "x", kind="custom", format="text")
    second = announced("b", B)
    stream = [*first[:2], *second, first[2], *ended("a", "{}x", kind="custom", format="text")]
    found = written(*stream, *ended("b", B), finish=Finish("tool-calls"))
    assert [(event["output_index"], event["delta"]) for event in found if "delta" in event] == [
        (0, "{}"),
        (0, "x"),
        (1, B),
    ]


def test_items_that_begin_while_calls_wait_are_announced_after_them() -> None:
    """Clients count the items that are added."""
    first, second = announced("a", '{"a"', ":1}"), announced("b", B)
    found = written(*first[:2], *second, *TEXT, first[2], *ended("a", A), *ended("b", B))
    added = [event for event in found if event["type"] == "response.output_item.added"]
    assert [(one["output_index"], one["item"]["type"]) for one in added] == [
        (0, "function_call"),
        (1, "function_call"),
        (2, "message"),
    ]
    deltas = [event["output_index"] for event in found if "arguments.delta" in event["type"]]
    assert [index for index, _ in groupby(deltas)] == [0, 1]


def test_calls_that_wait_when_the_response_fails_are_written_as_far_as_received() -> None:
    first, second = announced("a", '{"a"'), announced("b", '{"b"')
    cut = [
        [ToolParamsEnd(id), ToolCall(id, "look", text, invalid="stream-failed")]
        for id, text in (("a", '{"a"'), ("b", '{"b"'))
    ]
    error = ErrorPart("upstream", "no")
    parts: list[Part] = [*first, *second, error, *cut[0], *cut[1]]
    found = written(*parts, finish=Finish("error"))
    assert [event["delta"] for event in found if "delta" in event] == ['{"a"', '{"b"']
    assert [(item["status"], item["arguments"]) for item in found[-1]["response"]["output"]] == [
        ("incomplete", '{"a"'),
        ("incomplete", '{"b"'),
    ]


def test_a_hosted_call_does_not_wait() -> None:
    first, second = announced("a", '{"a"', ":1}"), announced("b", B)
    hosted: list[Part] = [
        ToolParamsStart("s", "code", "code_interpreter_call", provider_executed=True),
        ToolParamsDelta("s", '{"code":"1"}'),
        ToolParamsEnd("s"),
        ToolCall("s", "code", '{"code":"1"}', "code_interpreter_call", provider_executed=True),
        ToolResult("s", Raw(b'{"outputs":[]}')),
    ]
    found = written(*first[:2], *second, *hosted, first[2], *ended("a", A), *ended("b", B))
    deltas = [(one["output_index"], one["delta"]) for one in found if "delta" in one]
    assert deltas == [(0, '{"a"'), (2, "1"), (0, ":1}"), (1, B)]
