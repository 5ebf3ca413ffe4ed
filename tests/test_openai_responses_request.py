"""Requests of the Responses wire: read, written back as they came, and written for others."""

import contextlib
import json

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from openai.types.responses.response_create_params import ResponseCreateParams
from pydantic import TypeAdapter

import weft
from tests.listening import listening
from tests.request_codecs import CodecUnderTest, Object, raw
from tests.requests_openai_chat import SCHEMA, leaves, spoken_texts
from tests.requests_openai_chat import bodies as chat_bodies
from tests.requests_openai_responses import bodies, own_bodies
from tests.strategies import FEW, QUICK
from tests.tables import each_row
from weft.context import Context
from weft.dialect_names import DialectName
from weft.dialects.envelope import Envelope, ReasoningState, wrap
from weft.dialects.openai_chat.request import REQUEST as CHAT
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.request import REQUEST
from weft.dialects.requests.codec import Rendered
from weft.errors import BadRequest
from weft.request import (
    AnyContent,
    CallContent,
    FileContent,
    Hosted,
    ImageContent,
    Message,
    OpaqueContent,
    OutputFormat,
    ReasoningContent,
    ReasoningOptions,
    Request,
    ResultContent,
    Sampling,
    TextContent,
    Tool,
    ToolChoice,
)

NAME = "openai-responses"
HI = Message("user", (TextContent("hi"),))
GREETING: Object = {"type": "message", "role": "user", "content": "hi"}

CODEC = CodecUnderTest(REQUEST, {"model": "m", "input": []})
parse, read, render, written = CODEC.parse, CODEC.read, CODEC.render, CODEC.written


def item(value: Object) -> Message:
    """What one item is read as."""
    return read(input=[value]).messages[0]


# The same dialect on both sides


@QUICK
@given(body=own_bodies())
def test_a_request_of_this_dialect_is_sent_unchanged(body: Object) -> None:
    assert written(parse(body).request) == (body, [])


@QUICK
@given(body=own_bodies())
def test_a_request_without_its_source_is_rendered_with_the_same_meaning(body: Object) -> None:
    """Nulls, defaults, short forms and `completed` are normalised; nothing else may change."""
    request = read(**body)
    again, losses = written(request)
    assert losses == []
    assert read(**again) == request


@QUICK
@given(body=bodies(), model=st.sampled_from(["m", "other"]))
def test_an_edit_changes_what_it_touches_and_nothing_else(body: Object, model: str) -> None:
    request = parse(body).request
    request = msgspec.structs.replace(request, model=model, messages=(HI, *request.messages))
    said = body["input"]
    items = said if isinstance(said, list) else [{**GREETING, "content": said}]
    expected = {**body, "model": model, "input": [GREETING, *items]}
    assert written(request) == (expected, [])


LATE: Object = {
    "type": "additional_tools",
    "role": "developer",
    "tools": [
        {"type": "custom", "name": "g", "description": "d"},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]},
    ],
}
"""An item that declares tools in the middle of a conversation."""


def test_tools_of_input_items_are_tools_and_stay_where_they_were_declared() -> None:
    function = {"type": "function", "name": "f", "parameters": {}, "strict": False}
    body: Object = {"model": "m", "input": [LATE, GREETING, LATE], "tools": [function]}
    parsed = parse(body)
    assert [(tool.namespace, tool.name) for tool in parsed.request.tools] == [
        (None, "f"), (None, "g"), ("ns", "f")
    ]  # fmt: skip
    assert parsed.source_paths.source("tools[2].strict") == "input[2].tools[1].tools[0].strict"
    assert written(parsed.request) == (body, [])
    again, losses = written(read(**body))
    assert (again["tools"], losses) == ([function], [])


def test_key_order_and_number_formats_stay() -> None:
    body = (
        b'{"temperature":1.0,"input":[{"content":"hi","role":"user"}],"model":"m",'
        b'"tools":[{"parameters":{"b":1e2,"a":1.50},"name":"f","type":"function"}]}'
    )
    assert render(REQUEST.parse(body, Context()).request)[0].body == body


def test_includes_for_the_gateway_are_not_sent_upstream() -> None:
    """The one difference to what came."""
    both: Object = {"model": "m", "input": "x", "include": ["required_action", "other"]}
    assert written(parse(both).request) == ({**both, "include": ["other"]}, [])
    ours: Object = {"model": "m", "input": "x", "include": ["required_action"]}
    assert written(parse(ours).request) == ({"model": "m", "input": "x"}, [])


# Reading

CALL: Object = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1.50}'}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"role": "user", "content": "hi"}, HI),
        (
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "d"}],
            },
            Message("developer", (TextContent("d"),)),
        ),
        (
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [
                    {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
                    {"type": "refusal", "refusal": "r"},
                ],
            },
            Message(
                "assistant",
                (TextContent("a"), TextContent("r", refusal=True)),
                item_id="msg_1",
                phase="commentary",
            ),
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
                    {"type": "input_image", "file_id": "f", "detail": "high"},
                    {"type": "input_file", "file_url": "u", "filename": "n"},
                    {"type": "input_file", "file_data": "AA"},
                    {"type": "input_video", "video_url": 1},
                ],
            },
            Message(
                "user",
                (
                    ImageContent("image/png", "AA=="),
                    ImageContent(file_id="f", detail="high"),
                    FileContent(url="u", filename="n"),
                    FileContent(data="AA"),
                    OpaqueContent(
                        NAME, "message.input_video", raw({"type": "input_video", "video_url": 1})
                    ),
                ),
            ),
        ),
        (
            {
                "role": "user",
                "content": [
                    {
                        "type": "input_text",
                        "text": "t",
                        "prompt_cache_breakpoint": {"mode": "explicit"},
                        "more": 1,
                    }
                ],
            },
            Message("user", (TextContent("t", cache="5m", extra=Raw(b'{"more":1}')),)),
        ),
        (CALL, Message("assistant", (CallContent("c", "f", '{"a":1.50}'),))),
        (
            {**CALL, "id": "fc_1", "namespace": "ns", "status": "incomplete", "async": True},
            Message(
                "assistant",
                (
                    CallContent(
                        "c",
                        "f",
                        '{"a":1.50}',
                        item_id="fc_1",
                        namespace="ns",
                        extra=Raw(b'{"async":true,"status":"incomplete"}'),
                    ),
                ),
            ),
        ),
        (
            {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "x"},
            Message("assistant", (CallContent("c", "g", "x", kind="custom", format="text"),)),
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "r", "id": "o"},
            Message("tool", (ResultContent("c", (TextContent("r"),)),), item_id="o"),
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "", "name": "f"},
            Message("tool", (ResultContent("c", name="f"),)),
        ),
        (
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": "Error: gone",
                "status": "incomplete",
            },
            Message("tool", (ResultContent("c", (TextContent("gone"),), is_error=True),)),
        ),
        (
            {
                "type": "custom_tool_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "image_url": "u"}],
            },
            Message("tool", (ResultContent("c", (ImageContent(url="u"),), kind="custom"),)),
        ),
        (
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"},
            Message(
                "assistant",
                (ReasoningContent("", "summary", "rs", encrypted="e", origin=NAME),),
            ),
        ),
        (
            {
                "type": "reasoning",
                "id": "rs",
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "r"}],
                "encrypted_content": "e",
            },
            Message(
                "assistant",
                (
                    ReasoningContent("s", "summary", "rs", origin=NAME),
                    ReasoningContent("r", "raw", "rs", encrypted="e", origin=NAME),
                ),
            ),
        ),
        (
            {"type": "mcp_call", "id": "m", "name": "t", "arguments": "{}", "server_label": "s"},
            Message(
                "assistant",
                (
                    CallContent(
                        "m",
                        "t",
                        '{"name":"t","arguments":"{}","server_label":"s"}',
                        kind="mcp_call",
                        item_id="m",
                        provider_executed=True,
                    ),
                ),
            ),
        ),
        (
            {"id": "x"},
            Message("assistant", (OpaqueContent(NAME, "item_reference", raw({"id": "x"})),)),
        ),
        (
            {"type": "computer_call_output", "call_id": 1},
            Message(
                "user",
                (
                    OpaqueContent(
                        NAME,
                        "computer_call_output",
                        raw({"type": "computer_call_output", "call_id": 1}),
                    ),
                ),
            ),
        ),
    ],
    ids=lambda one: str(one)[:40],
)
def test_an_item_is_parsed(value: Object, expected: Message) -> None:
    assert item(value) == expected


def test_a_text_as_input_is_one_user_message() -> None:
    assert read(input="hi").messages == (HI,)
    assert read(input=[]).messages == read(input=None, previous_response_id="r").messages == ()


def test_a_body_that_is_no_json_is_called_so() -> None:
    with pytest.raises(BadRequest, match=r"^JSON is malformed: "):
        REQUEST.parse(b"x", Context())


@pytest.mark.parametrize(
    ("fields", "hint"),
    [({"messages": [{"role": "user", "content": "hi"}]}, " (Chat Completions calls it messages)"),
     ({"inputt": "hi"}, ""), ({"input": None}, "")],
)  # fmt: skip
def test_a_request_without_anything_to_answer_is_refused(fields: Object, hint: str) -> None:
    """Not sent without the conversation, as if the client had none."""
    with pytest.raises(BadRequest) as caught:
        parse({"model": "m", **fields})
    assert str(caught.value) == (
        f"input: missing{hint}; without it, one of conversation, previous_response_id, prompt "
        "is needed"
    )


def test_an_envelope_is_unwrapped_and_never_sent_upstream() -> None:
    proof = ReasoningState(signature="s", encrypted="e", redacted="r", item_id="i")
    sealed = wrap(Envelope("elsewhere", "m", proof))
    value: Object = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "why"}],
        "encrypted_content": sealed,
    }
    request = parse({"model": "m", "input": [value]}).request
    thought = ReasoningContent("why", "summary", "i", "s", "e", "r", "elsewhere")
    assert request.messages == (Message("assistant", (thought,)),)
    rendered, losses = render(request)
    assert json.loads(rendered.body) == {"model": "m", "input": []}
    assert [(loss.path, loss.outcome) for loss in losses] == [("messages[0].content[0]", "warned")]
    home = written(request, Context(origin="elsewhere"))[0]["input"]
    assert home == [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "why"}],
            "id": "i",
            "encrypted_content": "e",
        }
    ]


CARRIED = wrap(Envelope("elsewhere", "m", ReasoningState(signature="s", call="c")))


@pytest.mark.parametrize("said", [[], [{"type": "summary_text", "text": "why"}]])
def test_the_signature_of_a_call_is_read_from_the_reasoning_before_it(said: list[Object]) -> None:
    thought: Object = {"type": "reasoning", "summary": said, "encrypted_content": CARRIED}
    call: Object = {**CALL, "call_id": "c"}
    result: Object = {"type": "function_call_output", "call_id": "c", "output": "r"}
    request = parse({"model": "m", "input": [thought, call, result]}).request
    contents = [content for message in request.messages for content in message.content]
    told = [ReasoningContent("why", "summary", origin="elsewhere")] if said else []
    assert contents[:-2] == told
    assert isinstance(contents[-2], CallContent)
    assert (contents[-2].signature, contents[-2].origin) == ("s", "elsewhere")
    body, losses = written(request)
    assert body == {"model": "m", "input": [call, result]}
    assert [loss.outcome for loss in losses] == ["warned"] * len(told) + ["adapted"]


@pytest.mark.parametrize("id", ["fc_1", "call_1"])
def test_trap_10_either_id_of_a_call_is_accepted_and_the_calls_is_sent(id: str) -> None:
    call: Object = {**CALL, "id": "fc_1", "call_id": "call_1"}
    result: Object = {"type": "function_call_output", "call_id": id, "output": "r"}
    request = parse({"model": "m", "input": [call, result]}).request
    assert request.messages[1].content == (ResultContent("call_1", (TextContent("r"),)),)
    assert written(request) == (
        {"model": "m", "input": [call, {**result, "call_id": "call_1"}]},
        [],
    )


FIELDS: list[tuple[Object, Request]] = [
    ({"instructions": "be"}, Request("m", instructions="be")),
    ({"max_output_tokens": 5}, Request("m", max_output_tokens=5)),
    ({"temperature": 1, "top_p": 0.5}, Request("m", sampling=Sampling(1.0, 0.5))),
    ({"presence_penalty": 1}, Request("m", sampling=Sampling(presence_penalty=1))),
    ({"top_logprobs": 2}, Request("m", sampling=Sampling(logprobs=2))),
    (
        {"include": ["message.output_text.logprobs"]},
        Request("m", sampling=Sampling(logprobs=0), include=("message.output_text.logprobs",)),
    ),
    ({"top_logprobs": 0}, Request("m")),
    ({"text": {"format": {"type": "json_object"}}}, Request("m", output=OutputFormat("json"))),
    (
        {
            "text": {
                "format": {"type": "json_schema", "name": "s", "schema": {}},
                "verbosity": "low",
            }
        },
        Request("m", output=OutputFormat("json-schema", "s", schema=Raw(b"{}")), verbosity="low"),
    ),
    (
        {"reasoning": {"effort": "max", "summary": "auto"}},
        Request("m", reasoning=ReasoningOptions("max", summary="auto")),
    ),
    (
        {"reasoning": {"effort": "odd", "generate_summary": "auto", "mode": "pro"}},
        Request(
            "m",
            reasoning=ReasoningOptions(summary="auto", extra=Raw(b'{"mode":"pro","effort":"odd"}')),
        ),
    ),
    ({"stream": True, "store": False}, Request("m", stream=True, store=False)),
    (
        {"background": True, "previous_response_id": "r", "truncation": "auto"},
        Request("m", background=True, previous_response_id="r", truncation="auto"),
    ),
    ({"max_tool_calls": 2}, Request("m", max_tool_calls=2)),
    ({"metadata": {"a": "b"}, "user": "u"}, Request("m", metadata={"a": "b"}, user="u")),
    ({"prompt_cache_retention": "24h"}, Request("m", cache="1h")),
    ({"conversation": "c"}, Request("m", extra=Raw(b'{"conversation":"c"}'))),
    ({"tool_choice": "required"}, Request("m", tool_choice=ToolChoice("required"))),
    (
        {"tool_choice": {"type": "function", "name": "f"}},
        Request("m", tool_choice=ToolChoice("required", "f")),
    ),
    (
        {"tool_choice": {"type": "code_interpreter"}},
        Request("m", tool_choice=ToolChoice("required", "code_interpreter", "code_interpreter")),
    ),
    (
        {"tool_choice": {"type": "mcp", "server_label": "s"}},
        Request("m", tool_choice=ToolChoice("required", "s", "mcp")),
    ),
    (
        {
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}, {"type": "image_generation"}],
            }
        },
        Request("m", tool_choice=ToolChoice("auto", allowed=("f", "image_generation"))),
    ),
]


@pytest.mark.parametrize(("body", "expected"), FIELDS, ids=lambda one: str(one)[:40])
def test_a_field_is_parsed(body: Object, expected: Request) -> None:
    assert read(**body) == msgspec.structs.replace(expected, dialect=NAME)


def declared(kind: str, name: str, value: Object, **fields: object) -> Tool:
    tool = Tool(name, kind, raw=raw(value), origin=NAME)
    return msgspec.structs.replace(tool, **fields)


SEARCH: Object = {
    "type": "web_search_2025_08_26",
    "filters": {"allowed_domains": ["a.example"]},
    "search_context_size": "low",
    "user_location": {"type": "approximate", "city": "K"},
    "external_web_access": False,
}
MCP: Object = {
    "type": "mcp",
    "server_label": "s",
    "server_url": "u",
    "authorization": "a",
    "allowed_tools": {"tool_names": ["t"], "read_only": True},
    "require_approval": "always",
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            {"type": "function", "name": "f", "parameters": {}, "strict": True, "async": True},
            (Tool("f", parameters=Raw(b"{}"), strict=True, extra=Raw(b'{"async":true}')),),
        ),
        ({"type": "function", "name": "f", "parameters": None, "strict": None}, (Tool("f"),)),
        (
            {"type": "custom", "name": "g", "description": "d"},
            (
                declared(
                    "custom",
                    "g",
                    {"type": "custom", "name": "g", "description": "d"},
                    description="d",
                ),
            ),
        ),
        (
            {
                "type": "namespace",
                "name": "ns",
                "description": "d",
                "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
            },
            (
                Tool("f", namespace="ns", extra=Raw(b'{"namespace_description":"d"}')),
                Tool("g", namespace="ns"),
            ),
        ),
        (
            SEARCH,
            (
                declared(
                    "web-search",
                    "web_search",
                    SEARCH,
                    hosted=Hosted(
                        allowed_domains=("a.example",),
                        context_size="low",
                        location=raw({"type": "approximate", "city": "K"}),
                    ),
                    extra=Raw(b'{"external_web_access":false}'),
                ),
            ),
        ),
        (
            {"type": "code_interpreter", "container": {"type": "auto"}},
            (
                declared(
                    "code-execution",
                    "code_interpreter",
                    {"type": "code_interpreter", "container": {"type": "auto"}},
                    hosted=Hosted(),
                ),
            ),
        ),
        (
            {"type": "code_interpreter", "container": "cntr_1"},
            (
                declared(
                    "code-execution",
                    "code_interpreter",
                    {"type": "code_interpreter", "container": "cntr_1"},
                    hosted=Hosted(),
                    extra=Raw(b'{"container":"cntr_1"}'),
                ),
            ),
        ),
        (
            MCP,
            (
                declared(
                    "mcp",
                    "s",
                    MCP,
                    hosted=Hosted(
                        server_label="s",
                        server_url="u",
                        authorization="a",
                        allowed_tools=("t",),
                    ),
                    extra=Raw(b'{"allowed_tools":{"read_only":true},"require_approval":"always"}'),
                ),
            ),
        ),
        (
            {"type": "image_generation"},
            (declared("image_generation", "image_generation", {"type": "image_generation"}),),
        ),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_tool_is_parsed(value: Object, expected: tuple[Tool, ...]) -> None:
    assert read(tools=[value]).tools == expected


def test_a_default_container_may_be_written_with_spaces() -> None:
    tool = b'{"type": "code_interpreter", "container": {"type": "auto"}}'
    request = REQUEST.parse(b'{"model":"m","input":[],"tools":[%b]}' % tool, Context()).request
    assert [found.extra for found in request.tools] == [UNSET]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": None}, "model"),
        ({"input": 3}, "input"),
        ({"input": [{"role": 1, "content": "x"}]}, "input[0].role"),
        ({"input": [GREETING, {"role": "user"}]}, "input[1]"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0]"),
        (
            {"input": [{"type": "function_call_output", "output": [{"type": 1}]}]},
            "input[0].output[0].type",
        ),
        (
            {"input": [{"type": "reasoning", "summary": [{"type": 1, "text": ""}]}]},
            "input[0].summary[0].type",
        ),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom"}]}]},
            "tools[0].tools[0]",
        ),
        ({"tool_choice": 1}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.name"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"reasoning": 3}, "reasoning"),
    ],
)
def test_an_invalid_body_is_refused_with_the_path_of_its_field(body: Object, path: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(**body)
    assert caught.value.path == path


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["model", "input", "tools", "tool_choice", "text", "reasoning", "include", "instructions"]
)
TYPES = st.sampled_from(
    ["message", "function_call", "function_call_output", "reasoning", "mcp_call"]
)


@FEW
@given(
    body=bodies(),
    broken=st.dictionaries(KEYS, ANYTHING, min_size=1),
    kind=TYPES,
    value=st.dictionaries(
        st.sampled_from(["role", "content", "call_id", "output", "summary", "id", "name"]),
        ANYTHING | st.sampled_from(["user", "assistant"]),
    ),
)
def test_any_json_is_parsed_or_refused(
    body: Object, broken: Object, kind: str, value: Object
) -> None:
    for one in ({**body, **broken}, {**body, "input": [{**value, "type": kind}]}, broken):
        with contextlib.suppress(BadRequest):
            render(parse(one).request)


@QUICK
@given(data=st.binary(max_size=40))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        REQUEST.parse(data, Context())


def test_losses_are_reported_with_the_paths_of_the_clients_body() -> None:
    places = parse(
        {
            "model": "m",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "t"}]},
                {"role": "user", "content": "t"},
                CALL,
                {
                    "type": "function_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_text", "text": "t"}],
                },
            ],
            "tools": [
                {"type": "function", "name": "f"},
                {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
            ],
        }
    ).source_paths
    assert [
        places.source(path)
        for path in (
            "messages[0].content[0].text",
            "messages[1].content[0]",
            "messages[2].content[0].params",
            "messages[3].content[0].is_error",
            "messages[3].content[0].content[0]",
            "tools[0].strict",
            "tools[1].strict",
            "output.schema",
            "verbosity",
            "sampling.temperature",
        )
    ] == [
        "input[0].content[0].text",
        "input[1].content",
        "input[2].params",
        "input[3].is_error",
        "input[3].output[0]",
        "tools[0].strict",
        "tools[1].tools[0].strict",
        "text.format.schema",
        "text.verbosity",
        "temperature",
    ]
    short = parse({"model": "m", "input": "hi"}).source_paths
    assert short.source("messages[0].content[0]") == "input"


# Writing for other dialects

OTHER = "anthropic-messages"
OPEN = raw(SCHEMA)
CLOSED = Raw(
    b'{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],'
    b'"additionalProperties":false}'
)


def other(**fields: object) -> Request:
    """A request that came in another dialect."""
    base = Request("m", dialect=OTHER, messages=(HI,))
    return msgspec.structs.replace(base, **fields)


@each_row(
    "request_, key, value, losses",
    [
        (other(), "input", [GREETING], []),
        (other(instructions="be"), "instructions", "be", []),
        (other(instructions="be"), "input", [GREETING], []),
        (other(), "store", False, []),
        (other(), "include", ["reasoning.encrypted_content"], []),
        (other(store=True), "include", None, []),
        (other(max_output_tokens=99), "max_output_tokens", 99, []),
        (other(max_output_tokens=1), "max_output_tokens", 16, [("max_output_tokens", "warned")]),
        (other(max_output_tokens=0), None, None, [("max_output_tokens", "refused")]),
        (other(sampling=Sampling(temperature=0.5)), "temperature", 0.5, []),
        (other(sampling=Sampling(top_k=5)), "top_k", None, [("sampling.top_k", "warned")]),
        (other(sampling=Sampling(seed=5)), "seed", None, [("sampling.seed", "warned")]),
        (
            other(sampling=Sampling(presence_penalty=1)),
            "presence_penalty",
            None,
            [("sampling.presence_penalty", "warned")],
        ),
        (
            other(sampling=Sampling(frequency_penalty=1)),
            "frequency_penalty",
            None,
            [("sampling.frequency_penalty", "warned")],
        ),
        (
            other(sampling=Sampling(logit_bias=Raw(b"{}"))),
            None,
            None,
            [("sampling.logit_bias", "warned")],
        ),
        (other(sampling=Sampling(logprobs=2)), "top_logprobs", 2, []),
        (
            other(sampling=Sampling(logprobs=0)),
            "include",
            ["message.output_text.logprobs", "reasoning.encrypted_content"],
            [],
        ),
        (other(stop=("a",)), "stop", None, [("stop", "adapted")]),
        (other(choices=2), None, None, [("choices", "refused")]),
        (other(output=OutputFormat("json")), "text", {"format": {"type": "json_object"}}, []),
        (
            other(output=OutputFormat("json-schema", schema=CLOSED), verbosity="low"),
            "text",
            {
                "format": {
                    "type": "json_schema",
                    "name": "output",
                    "schema": json.loads(bytes(CLOSED)),
                    "strict": True,
                },
                "verbosity": "low",
            },
            [("output.name", "adapted")],
        ),
        (
            other(output=OutputFormat("json-schema", "n", schema=OPEN)),
            "text",
            {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": False}},
            [("output.schema", "warned")],
        ),
        (
            other(reasoning=ReasoningOptions("high", summary="auto")),
            "reasoning",
            {"effort": "high", "summary": "auto"},
            [],
        ),
        (other(reasoning=ReasoningOptions(adaptive=True, summary="none")), "reasoning", None, []),
        (
            other(reasoning=ReasoningOptions(budget_tokens=9000)),
            "reasoning",
            {"effort": "high"},
            [("reasoning.budget_tokens", "adapted")],
        ),
        (
            other(reasoning=ReasoningOptions("low", extra=Raw(b'{"display":"x"}'))),
            "reasoning",
            {"effort": "low"},
            [("reasoning.display", "warned")],
        ),
        (other(betas=("b",)), "betas", None, [("betas", "warned")]),
        (other(max_tool_calls=1), "max_tool_calls", 1, []),
        (other(background=True), "background", True, []),
        (other(previous_response_id="r"), "previous_response_id", "r", []),
        (other(truncation="auto"), "truncation", "auto", []),
        (other(metadata={"a": "b"}), "metadata", None, [("metadata", "adapted")]),
        (
            other(service_tier="standard_only"),
            "service_tier",
            "default",
            [("service_tier", "adapted")],
        ),
        (other(cache="5m"), "prompt_cache_retention", None, [("cache", "adapted")]),
        (other(cache="1h"), "prompt_cache_retention", "24h", [("cache", "warned")]),
        (
            other(extra=Raw(b'{"thread":1,"speed":"fast"}')),
            None,
            None,
            [("thread", "refused"), ("speed", "warned")],
        ),
        (other(tool_choice=ToolChoice()), "tool_choice", None, []),
        (other(tool_choice=ToolChoice("none")), "tool_choice", None, [("tool_choice", "warned")]),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_field_of_another_dialect_is_rendered(
    request_: Request, key: str | None, value: object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(request_)
    assert sorted((loss.path, loss.outcome) for loss in found) == sorted(losses)
    if key is not None:
        assert body.get(key) == value


def test_unknown_fields_are_reported_in_the_order_of_the_body() -> None:
    names = [f"field_{letter}" for letter in "qwertyuiop"]
    extra = Raw(json.dumps(dict.fromkeys(names, 1)).encode())
    assert [loss.path for loss in written(other(extra=extra))[1]] == names


def test_models_that_do_not_reason_are_not_asked_for_encrypted_reasoning() -> None:
    context = Context(quirks=ResponsesQuirks(stateless_reasoning=False))
    assert "include" not in written(other(), context)[0]


@pytest.mark.parametrize(
    ("tool", "value", "losses"),
    [
        (
            Tool("f"),
            {"type": "function", "name": "f", "parameters": None, "strict": False},
            [],
        ),
        (
            Tool("f", description="d", parameters=CLOSED, strict=True),
            {
                "type": "function",
                "name": "f",
                "description": "d",
                "parameters": json.loads(bytes(CLOSED)),
                "strict": True,
            },
            [],
        ),
        (
            Tool("f", parameters=OPEN, strict=True, cache="5m"),
            {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False},
            [("tools[0].cache", "warned"), ("tools[0].strict", "warned")],
        ),
        (
            Tool("g", "custom", "d", origin="openai-chat"),
            {"type": "custom", "name": "g", "description": "d"},
            [],
        ),
        (
            Tool(
                "g",
                "custom",
                raw=Raw(
                    b'{"custom":{"name":"g","format":{"type":"grammar","grammar":'
                    b'{"definition":"x","syntax":"lark"}}}}'
                ),
                origin="openai-chat",
            ),
            {
                "type": "custom",
                "name": "g",
                "format": {"type": "grammar", "definition": "x", "syntax": "lark"},
            },
            [],
        ),
        (
            Tool("s", "web-search", hosted=Hosted(("a.example",), context_size="low")),
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["a.example"]},
                "search_context_size": "low",
            },
            [],
        ),
        (
            Tool("s", "web-search", hosted=Hosted(blocked_domains=("a",), max_uses=1)),
            {"type": "web_search"},
            [
                ("tools[0].hosted.blocked_domains", "refused"),
                ("tools[0].hosted.max_uses", "refused"),
            ],
        ),
        (
            Tool("c", "code-execution", hosted=Hosted()),
            {"type": "code_interpreter", "container": {"type": "auto"}},
            [],
        ),
        (
            Tool("s", "mcp", hosted=Hosted(server_label="s", server_url="u", allowed_tools=("t",))),
            {
                "type": "mcp",
                "server_label": "s",
                "server_url": "u",
                "allowed_tools": ["t"],
                "require_approval": "never",
            },
            [],
        ),
        (Tool("x", "web-fetch", hosted=Hosted()), None, [("tools[0]", "refused")]),
        (Tool("b", "bash_20250124", raw=Raw(b"{}"), origin=OTHER), None, [("tools[0]", "refused")]),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_tool_of_another_dialect_is_rendered(
    tool: Tool, value: object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(tools=(tool,)))
    assert body.get("tools", [None]) == [value]
    assert [(loss.path, loss.outcome) for loss in found] == losses


@pytest.mark.parametrize(
    ("choice", "value"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("required", "f"), {"type": "function", "name": "f"}),
        (ToolChoice("required", "g", "custom"), {"type": "custom", "name": "g"}),
        (
            ToolChoice("required", allowed=("f",)),
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}],
            },
        ),
    ],
)
def test_trap_19_the_choice_of_tools_keeps_its_meaning(choice: ToolChoice, value: object) -> None:
    tools = (Tool("f"), Tool("g", "custom"))
    body, losses = written(other(tools=tools, tool_choice=choice))
    assert (body["tool_choice"], losses) == (value, [])


def test_forcing_a_hosted_tool_of_another_dialect_is_refused() -> None:
    choice = ToolChoice("required", "web_search", "web-search")
    losses = written(other(tools=(Tool("s", "web-search"),), tool_choice=choice))[1]
    assert [(loss.path, loss.outcome) for loss in losses] == [("tool_choice", "refused")]


def test_trap_09_names_and_ids_are_the_same_everywhere() -> None:
    name, id = "look at/this " * 8, "toolu_" + "x" * 80
    request = other(
        messages=(
            HI,
            Message("assistant", (CallContent(id, name, "{}"),)),
            Message("user", (ResultContent(id),)),
        ),
        tools=(Tool(name),),
        tool_choice=ToolChoice("required", name),
    )
    rendered = render(request)[0]
    body = json.loads(rendered.body)
    call, result = body["input"][1:]
    spelled = body["tools"][0]["name"]
    assert (len(spelled), len(call["call_id"])) == (64, 64)
    assert body["tool_choice"]["name"] == call["name"] == spelled
    assert call["call_id"] == result["call_id"]
    assert rendered.names == {spelled: name}


# Messages of other dialects


def items(*found: Message) -> tuple[object, list[tuple[str, str]]]:
    body, losses = written(other(messages=(HI, *found, HI)))
    said = body["input"]
    assert isinstance(said, list)
    return said[1:-1], [(loss.path, loss.outcome) for loss in losses]


def step(*results: AnyContent) -> tuple[Message, Message]:
    return Message("assistant", (CallContent("c", "f", ""),)), Message("user", results)


ASKED: Object = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def answered(output: object, **more: object) -> Object:
    return {"type": "function_call_output", "output": output, "call_id": "c", **more}


def test_trap_13_a_failed_result_has_a_status_and_a_prefix() -> None:
    result = ResultContent("c", (TextContent("gone"),), is_error=True)
    found, losses = items(*step(result))
    assert found == [ASKED, answered("Error: gone", status="incomplete")]
    assert losses == [("messages[2].content[0].is_error", "adapted")]
    assert items(*step(ResultContent("c", is_error=True)))[0] == [
        ASKED,
        answered("Error: ", status="incomplete"),
    ]


def test_trap_12_images_of_a_result_stay_images() -> None:
    result = ResultContent("c", (TextContent("see"), ImageContent("image/png", "AA==")))
    assert items(*step(result)) == (
        [
            ASKED,
            answered(
                [
                    {"type": "input_text", "text": "see"},
                    {
                        "type": "input_image",
                        "image_url": "data:image/png;base64,AA==",
                        "detail": "auto",
                    },
                ]
            ),
        ],
        [],
    )


def test_contents_of_one_turn_keep_their_order_as_items() -> None:
    first, second = CallContent("1", "f", "{}"), CallContent("2", "g", "x", "custom", "text")
    turn = Message(
        "assistant", (TextContent("a"), first, TextContent("b"), TextContent("c"), second)
    )
    results = Message("user", (ResultContent("1"), ResultContent("2"), TextContent("go")))
    found, losses = items(turn, results)
    texts = [{"type": "output_text", "text": text, "annotations": []} for text in "bc"]
    assert found == [
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": texts},
        {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "x"},
        {"type": "function_call_output", "output": "", "call_id": "1"},
        {"type": "custom_tool_call_output", "output": "", "call_id": "2"},
        {"type": "message", "role": "user", "content": "go"},
    ]
    assert losses == []


@pytest.mark.parametrize(
    ("content", "value", "losses"),
    [
        (
            ImageContent(url="u"),
            {"type": "input_image", "image_url": "u", "detail": "auto"},
            [],
        ),
        (FileContent(url="u"), {"type": "input_file", "file_url": "u"}, []),
        (
            FileContent("application/pdf", "JVBE", filename="n"),
            {
                "type": "input_file",
                "file_data": "data:application/pdf;base64,JVBE",
                "filename": "n",
            },
            [],
        ),
        (
            FileContent("text/plain", "aGk="),
            {"type": "input_text", "text": "hi"},
            [("", "adapted")],
        ),
        (FileContent("audio/wav", "AA"), None, [("", "refused")]),
        (FileContent("video/mp4", "AA"), None, [("", "refused")]),
        (ImageContent(file_id="f"), None, [(".file_id", "refused")]),
        (FileContent(file_id="f"), None, [(".file_id", "refused")]),
        (
            TextContent("t", cache="1h", extra=Raw(b'{"citations":[1]}')),
            {
                "type": "input_text",
                "text": "t",
                "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
            },
            [(".citations", "warned"), (".cache", "warned")],
        ),
        (OpaqueContent(OTHER, "search_result", Raw(b"{}")), None, [("", "refused")]),
    ],
    ids=lambda one: str(one)[:40],
)
def test_user_content_of_another_dialect_is_rendered(
    content: AnyContent, value: object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(messages=(Message("user", (content,)),)))
    expected = [(f"messages[0].content[0]{path}", outcome) for path, outcome in losses]
    assert [(loss.path, loss.outcome) for loss in found] == expected
    if value is not None:
        assert body["input"] == [{"type": "message", "role": "user", "content": [value]}]


@pytest.mark.parametrize(
    ("content", "losses"),
    [
        (CallContent("w", "s", "{}", kind="x", provider_executed=True), [("", "warned")]),
        (ResultContent("w", kind="x"), [("", "warned")]),
        (OpaqueContent(OTHER, "compaction", Raw(b"{}")), [("", "refused")]),
        (OpaqueContent(OTHER, "web_search_tool_result", Raw(b"{}")), [("", "warned")]),
        (ReasoningContent("why", signature="s", origin=OTHER), [("", "warned")]),
        (ReasoningContent("", redacted="r", origin=OTHER), [("", "warned")]),
    ],
    ids=lambda one: str(one)[:40],
)
def test_trap_02_content_of_another_origin_is_dropped_and_never_sent_as_text(
    content: AnyContent, losses: list[tuple[str, str]]
) -> None:
    expected = [(f"messages[1].content[0]{path}", outcome) for path, outcome in losses]
    assert items(Message("assistant", (content,))) == ([], expected)


def test_trap_03_encrypted_reasoning_returns_to_its_origin_through_any_dialect() -> None:
    thought = ReasoningContent("why", "summary", "rs_1", encrypted="e", origin=NAME)
    found = items(Message("assistant", (thought, TextContent("a"))))
    assert found == (
        [
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "why"}],
                "id": "rs_1",
                "encrypted_content": "e",
            },
            {"type": "message", "role": "assistant", "content": "a"},
        ],
        [],
    )


def test_instructions_keep_their_place() -> None:
    found = items(
        Message("system", (TextContent("a", cache="5m"),)),
        Message("developer", (TextContent("b"),)),
    )
    marked = {
        "type": "input_text",
        "text": "a",
        "prompt_cache_breakpoint": {"mode": "explicit"},
    }
    assert found == (
        [
            {"type": "message", "role": "system", "content": [marked]},
            {"type": "message", "role": "developer", "content": "b"},
        ],
        [("messages[1].content[0].cache", "adapted")],
    )


def test_an_answer_that_is_to_be_continued_is_refused() -> None:
    losses = written(other(messages=(HI, Message("assistant", (TextContent("So"),)))))[1]
    assert [(loss.path, loss.outcome) for loss in losses] == [("messages[1]", "refused")]


def test_names_of_messages_are_dropped() -> None:
    found = items(Message("user", (TextContent("a"),), name="bob"))
    assert found[1] == [("messages[1].name", "warned")]


# The official client


def test_requests_of_the_official_client_are_parsed_and_sent_unchanged() -> None:
    with listening() as (address, got):
        client = openai.OpenAI(api_key="k", base_url=address, max_retries=0)
        with client, pytest.raises(openai.BadRequestError):
            client.responses.create(
                model="m",
                instructions="be",
                input=[
                    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": "r"},
                ],
                tools=[{"type": "function", "name": "f", "parameters": {}, "strict": True}],
                reasoning={"effort": "low"},
                include=["reasoning.encrypted_content"],
                stream=True,
            )
    request = REQUEST.parse(got[0], Context()).request
    assert render(request) == (Rendered(got[0], {}), [])
    assert [message.role for message in request.messages] == ["user", "assistant", "tool"]


PARAMS = TypeAdapter(ResponseCreateParams)


@FEW
@given(body=bodies())
def test_rendered_bodies_fit_the_types_of_the_official_client(body: Object) -> None:
    request = msgspec.structs.replace(read(**body), dialect=None)
    PARAMS.validate_python(written(request)[0])


def with_ids(said: object) -> list[object]:
    """The client's types want an id on each message with parts of an answer; the wire does not."""
    assert isinstance(said, list)
    id: Object = {"id": "msg_1", "status": "completed"}
    return [{**id, **one} if one.get("role") == "assistant" else one for one in said]


@QUICK
@given(body=chat_bodies())
def test_a_chat_conversation_is_rendered_completely_and_valid(body: Object) -> None:
    request = CHAT.parse(json.dumps(body).encode(), Context()).request
    told, losses = written(request)
    PARAMS.validate_python({**told, "input": with_ids(told["input"])})
    found = leaves(told["input"])
    assert [text for text in spoken_texts(body["messages"]) if text not in found and text] == []
    refused = [loss.detail for loss in losses if loss.outcome == "refused"]
    assert set(refused) <= {"audio is not available on openai-responses; remove it"}


# What a request says that was never read from a body


def test_items_of_this_dialect_are_rendered_for_requests_without_a_dialect() -> None:
    hosted = CallContent(
        "ws", "web_search_call", '{"action":{}}', kind="web_search_call", provider_executed=True
    )
    foreign = msgspec.structs.replace(hosted, kind="server_tool_use")
    opaque = OpaqueContent(NAME, "compaction", Raw(b'{"type":"compaction"}'))
    part = OpaqueContent(NAME, "message.input_video", Raw(b'{"type":"input_video"}'))
    found = (
        Message("assistant", (hosted, foreign, opaque), item_id="m"),
        Message("user", (part,)),
        Message("assistant", ()),
    )
    body, losses = written(Request("m", messages=found))
    assert body["input"] == [
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}},
        {"type": "compaction"},
        {"type": "message", "role": "user", "content": [{"type": "input_video"}]},
        {"type": "message", "role": "assistant", "content": []},
    ]
    assert [(loss.path, loss.outcome) for loss in losses] == [("messages[0].content[1]", "warned")]


def test_files_and_cache_breakpoints_of_the_assistant_are_reported_as_lost() -> None:
    said = Message("assistant", (TextContent("a", cache="5m"), ImageContent(url="u")))
    text = {"type": "output_text", "text": "a", "annotations": []}
    assert items(said) == (
        [{"type": "message", "role": "assistant", "content": [text]}],
        [("messages[1].content[0].cache", "warned"), ("messages[1].content[1]", "refused")],
    )


def test_call_signatures_are_dropped_and_breakpoints_of_results_move_to_their_last_part() -> None:
    call = CallContent("c", "f", "{}", signature="s")
    result = ResultContent("c", (TextContent("r"),), cache="5m")
    marked = {
        "type": "input_text",
        "text": "r",
        "prompt_cache_breakpoint": {"mode": "explicit"},
    }
    assert items(Message("assistant", (call,)), Message("user", (result,))) == (
        [ASKED, answered([marked])],
        [
            ("messages[1].content[0].signature", "adapted"),
            ("messages[2].content[0].cache", "adapted"),
        ],
    )


def test_annotations_of_the_assistant_are_sent_back_unchanged() -> None:
    cited: Object = {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1}
    part: Object = {"type": "output_text", "text": "a", "annotations": [cited]}
    message: Object = {"type": "message", "role": "assistant", "content": [part]}
    request = read(input=[message])
    assert written(request) == ({"model": "m", "input": [message]}, [])


def test_a_tool_choice_of_this_dialect_is_sent_unchanged() -> None:
    tools: list[Object] = [
        {"type": "mcp", "server_label": "s", "server_url": "u"},
        {"type": "image_generation"},
        {"type": "web_search_preview_2025_03_11"},
    ]
    for choice in (
        {"type": "mcp", "server_label": "s"},
        {"type": "mcp", "server_label": "s", "name": "t"},
        {"type": "image_generation"},
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "mcp", "server_label": "s"}, {"type": "image_generation"}],
        },
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "web_search_preview_2025_03_11"}],
        },
    ):
        body: Object = {"model": "m", "input": [], "tools": tools, "tool_choice": choice}
        assert written(read(**body)) == (body, [])


def test_an_unknown_cache_retention_is_kept_for_this_dialect() -> None:
    body: Object = {"model": "m", "input": [], "prompt_cache_retention": "7d"}
    assert written(read(**body)) == (body, [])


def test_an_item_whose_name_is_not_text_is_named_after_its_type() -> None:
    content = item({"type": "mcp_call", "name": 4}).content[0]
    assert isinstance(content, CallContent)
    assert (content.id, content.name, content.params) == ("", "mcp", '{"name":4}')


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_a_breakpoint_that_cannot_be_read_is_no_crash(target: DialectName) -> None:
    """It is not read where no text of an assistant has one."""
    odd = {"type": "output_text", "text": "a", "prompt_cache_breakpoint": [None]}
    image = {
        "type": "input_image",
        "image_url": "https://a.example/b.png",
        "prompt_cache_breakpoint": {"mode": "explicit"},
    }
    body = {"model": "m", "input": [{"role": "user", "content": [odd, image]}]}
    converted = weft.convert_request(
        json.dumps(body).encode(), source="openai-responses", target=target
    )
    assert b"https://a.example/b.png" in converted.body
