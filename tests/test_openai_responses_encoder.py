"""The Responses encoder: spec order, all required keys, one id per item, the fold at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest
from hypothesis import given, settings
from msgspec import Raw

from tests.responses import Event, events, item_ids, of_type
from tests.serving import serving
from tests.strategies import SOUP
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
    encode,
)
from weft.dialects.openai_responses.quirks import ResponsesQuirks
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
TEXT: list[Part] = [TextStart("t"), TextDelta("t", "Hel"), TextDelta("t", "lo"), TextEnd("t")]
CALL: list[Part] = [
    ToolParamsStart("call_1", "look"),
    ToolParamsDelta("call_1", '{"at":'),
    ToolParamsDelta("call_1", "1}"),
    ToolParamsEnd("call_1"),
    ToolCall("call_1", "look", '{"at":1}'),
]


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


def test_text_follows_the_template_of_the_specification() -> None:
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
        ("raw", "content_part", "reasoning", "content_index"),
    ],
)
def test_reasoning_is_a_summary_or_raw(kind: str, wrapper: str, text: str, index: str) -> None:
    found = written(
        ReasoningStart("r", kind),  # type: ignore[arg-type]
        ReasoningDelta("r", "hmm"),
        ReasoningEnd("r", encrypted="xyz", origin="openai-responses"),
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
    assert added == {"type": "reasoning", "id": added["id"], "status": "in_progress", "summary": []}
    assert done["encrypted_content"] == "xyz"
    assert ("content" in done) == (kind == "raw")


def test_reasoning_parts_of_one_item_share_it_and_its_proof() -> None:
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


def test_silent_reasoning_keeps_its_proof_and_shows_nothing() -> None:
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


def test_a_call_that_the_provider_executes_is_its_own_item_and_takes_in_its_result() -> None:
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
    assert item["output"] == '"4"'


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


def test_raw_json_that_is_spread_over_lines_stays_one_event() -> None:
    raw = Raw(b'{\n "type": "compaction",\n "id": "cmp_1"\n}')
    found = written(Opaque("openai-responses", "compaction", raw))
    assert found[-1]["response"]["output"] == [{"type": "compaction", "id": "cmp_1"}]


def test_usage_told_at_the_start_counts_until_the_end_says_otherwise() -> None:
    start = ResponseMetadata("r", usage=Usage(input_tokens=9, cache_read_tokens=2))
    parts: list[Part] = [start, Finish("stop", usage=Usage(output_tokens=4))]
    last = events(b"".join(encode(parts, "openai-responses")))[-1]["response"]["usage"]
    assert (last["input_tokens"], last["output_tokens"], last["total_tokens"]) == (9, 4, 13)


def test_what_has_no_place_here_leaves_a_finding() -> None:
    parts: list[Part] = [
        START,
        File("f", "image/png", data="AA=="),
        Opaque("gemini", "thing", Raw(b"{}")),
        Source("s", "document", file_id="f1"),
        Source("s", "url", url="https://a.example"),
        ToolCall("w", "search", "{}", kind="server_tool", provider_executed=True),
        ToolApprovalRequest("w", "ap_1"),
        ToolResult("w", Raw(b"1")),
        ReasoningStart("r", "raw"),
        ReasoningEnd("r", signature="sig", origin="anthropic-messages"),
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
        "code": "429",
        "message": "overloaded",
        "param": None,
    }
    assert (found[-2]["code"], found[-2]["message"]) == ("429", "overloaded")
    failed = found[-1]["response"]
    assert failed["error"] == {"code": "429", "message": "overloaded"}
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
    assert response["model"] == "m-1"
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


def test_the_response_id_the_store_flag_and_the_time_are_the_gateways() -> None:
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


def test_a_tool_session_is_asked_for_in_band() -> None:
    context = Context(request=Request("m", include=("required_action",)))
    custom = ToolCall("call_2", "sh", "ls", kind="custom", format="text")
    found = written(*CALL, custom, finish=Finish("tool-calls"), context=context)
    assert types(found)[-2:] == ["required_action", "completed"]
    calls = found[-1]["response"]["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert calls[1] == {"id": "call_2", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    assert found[0]["response"]["required_action"] is None


def test_a_tool_session_that_waits_for_nothing_is_completed() -> None:
    context = Context(quirks=ResponsesQuirks(tool_session=True))
    found = written(*TEXT, context=context)
    assert found[-1]["response"]["status"] == "completed"
    assert found[-1]["response"]["required_action"] is None


def test_a_keepalive_is_a_comment_in_the_pure_form() -> None:
    assert Encoder("openai-responses").keepalive() == [b": keepalive\n\n"]


@settings(max_examples=200, deadline=None)
@given(SOUP)
def test_any_parts_become_a_stream_that_clients_can_trust(soup: list[Part]) -> None:
    pieces = list(encode(soup, "openai-responses", context=Context(ids=Ids(b"1"))))
    assert all(piece.endswith(b"\n\n") and piece.count(b"\n\n") == 1 for piece in pieces)
    found = events(b"".join(pieces))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    added = of_type(found, "response.output_item.added")
    done = of_type(found, "response.output_item.done")
    assert [event["output_index"] for event in added] == list(range(len(added)))
    assert sorted(event["output_index"] for event in done) == list(range(len(added)))
    by_index = {event["output_index"]: event["item"] for event in done}
    assert found[-1]["response"]["output"] == [by_index[at] for at in sorted(by_index)]
    terminal = ("response.completed", "response.incomplete", "response.failed")
    assert [event["type"] in terminal for event in found] == [False] * (len(found) - 1) + [True]
    ids = [event["item"]["id"] for event in added if event["item"]["id"]]
    assert len(set(ids)) == len(ids)


# The official client, over real HTTP


@contextmanager
def served(answer: bytes, kind: str = "text/event-stream") -> Iterator[openai.OpenAI]:
    """A client of a server that answers every request with these bytes."""
    with (
        serving(answer, kind) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
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
