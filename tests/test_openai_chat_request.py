"""Requests of Chat Completions: parsed, passed through, and rendered from other dialects."""

import contextlib
import json
from hashlib import sha256
from typing import Any, cast

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from openai.types.chat.completion_create_params import CompletionCreateParams
from pydantic import BaseModel, TypeAdapter

from tests.listening import listening
from tests.request_codecs import CodecUnderTest, Object, raw
from tests.requests_openai_chat import SCHEMA, bodies, leaves, own_bodies, spoken_texts
from tests.requests_openai_responses import bodies as responses_bodies
from tests.strategies import FEW, QUICK
from tests.tables import each_row
from weft.context import Context
from weft.dialects.envelope import Envelope, ReasoningState, wrap
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.openai_chat.request import REQUEST
from weft.dialects.openai_chat.requests.passthrough import ChatPassthrough
from weft.dialects.openai_responses.request import REQUEST as RESPONSES
from weft.dialects.requests.codec import Loss, Losses, Rendered
from weft.dialects.requests.turns import message_turns
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

NAME = "openai-chat"
HI = Message("user", (TextContent("hi"),))
GREETING: Object = {"role": "user", "content": "hi"}


CODEC = CodecUnderTest(REQUEST, {"model": "m", "messages": []})
parse, read, render, written = CODEC.parse, CODEC.read, CODEC.render, CODEC.written


def parse_message(message: Object, context: Context | None = None) -> Message:
    """Parses one message."""
    return read(context, messages=[message]).messages[0]


def as_sent(body: Object) -> Object:
    """Returns a body as it is sent: streams request usage unless the client says otherwise."""
    if not body.get("stream"):
        return body
    options = body.get("stream_options") or {}
    assert isinstance(options, dict)
    return {**body, "stream_options": {"include_usage": True, **options}}


# The same dialect on both sides


@QUICK
@given(body=own_bodies())
def test_a_body_of_this_dialect_goes_out_in_its_own_bytes(body: Object) -> None:
    assert written(parse(body).request) == (as_sent(body), [])


@QUICK
@given(body=own_bodies())
def test_a_body_rendered_from_its_fields_alone_means_the_same(body: Object) -> None:
    """Nulls, defaults and deprecated keys are normalised; nothing else may change."""
    request = read(**body)
    again, losses = written(request)
    assert losses == []
    back = read(**again)
    assert msgspec.structs.replace(back, include_usage=request.include_usage) == request


@QUICK
@given(body=bodies(), model=st.sampled_from(["m", "other"]))
def test_an_edited_request_changes_only_the_edited_keys(body: Object, model: str) -> None:
    request = msgspec.structs.replace(
        parse(body).request, model=model, messages=(*parse(body).request.messages, HI)
    )
    messages = body["messages"]
    assert isinstance(messages, list)
    expected = as_sent({**body, "model": model, "messages": [*messages, GREETING]})
    assert written(request) == (expected, [])


@QUICK
@given(body=own_bodies(), developer_role=st.booleans(), is_edited=st.booleans())
def test_messages_that_are_sent_all_at_once_are_those_that_are_sent_one_by_one(
    body: Object, developer_role: bool, is_edited: bool
) -> None:
    context = Context(quirks=ChatQuirks(developer_role=developer_role))
    request = REQUEST.parse(bytes(raw(body)), context).request
    if is_edited:
        request = msgspec.structs.replace(request, messages=(*request.messages, HI))
    passthrough = ChatPassthrough(request, context)
    found, losses = passthrough.text_messages(), Losses()
    one_by_one = [passthrough.message(turn) for turn in message_turns(request, losses)]
    assert found is None or (found, losses.found) == (one_by_one, [])


def test_messages_of_text_are_sent_all_at_once() -> None:
    def sent(*messages: Object, developer_role: bool = True) -> list[Raw] | None:
        context = Context(quirks=ChatQuirks(developer_role=developer_role))
        request = REQUEST.parse(bytes(raw({"model": "m", "messages": messages})), context).request
        return ChatPassthrough(request, context).text_messages()

    developer: Object = {"role": "developer", "content": [{"type": "text", "text": "be"}]}
    image: Object = {"type": "image_url", "image_url": {"url": "u"}}
    assert sent(developer, GREETING) == [raw(developer), raw(GREETING)]
    assert sent(developer, GREETING, developer_role=False) is None
    assert sent(GREETING, {"role": "user", "content": [image]}) is None
    assert sent(GREETING, {"role": "critic", "content": "no"}) is None


def test_key_order_and_number_format_are_kept() -> None:
    body = (
        b'{"temperature":1.0,"messages":[{"content":"hi","role":"user"}],"model":"m",'
        b'"tools":[{"function":{"parameters":{"b":1e2,"a":1.50},"name":"f"},"type":"function"}]}'
    )
    assert render(REQUEST.parse(body, Context()).request)[0].body == body


# Reading

IMAGE: Object = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "system", "content": "s"}, Message("system", (TextContent("s"),))),
        (
            {"role": "developer", "content": "d", "name": "n"},
            Message("developer", (TextContent("d"),), name="n"),
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "t"}, IMAGE]},
            Message("user", (TextContent("t"), ImageContent("image/png", "AA=="))),
        ),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "high"}}],
            },
            Message("user", (ImageContent(url="u", detail="high"),)),
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}},
                    {"type": "file", "file": {"file_id": "f", "filename": "n"}},
                    {"type": "file", "file": {"file_data": "data:text/csv;base64,AA"}},
                    {"type": "file", "file": {"file_data": "AA"}},
                ],
            },
            Message(
                "user",
                (
                    FileContent("audio/mpeg", "AA"),
                    FileContent(file_id="f", filename="n"),
                    FileContent("text/csv", "AA"),
                    FileContent(data="AA"),
                ),
            ),
        ),
        (
            {"role": "user", "content": [{"type": "video_url", "video_url": 1}]},
            Message(
                "user",
                (OpaqueContent(NAME, "video_url", raw({"type": "video_url", "video_url": 1})),),
            ),
        ),
        (
            {
                "role": "user",
                "content": [
                    {
                        "type": "text",
                        "text": "t",
                        "prompt_cache_breakpoint": {"mode": "explicit"},
                        "more": 1,
                    }
                ],
            },
            Message("user", (TextContent("t", cache="5m", extra=Raw(b'{"more":1}')),)),
        ),
        ({"role": "assistant", "content": None}, Message("assistant", ())),
        (
            {"role": "assistant", "content": "a", "refusal": "r", "audio": {"id": "x"}},
            Message(
                "assistant",
                (TextContent("a"), TextContent("r", refusal=True)),
                extra=Raw(b'{"audio":{"id":"x"}}'),
            ),
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}},
                    {"id": "2", "type": "custom", "custom": {"name": "g", "input": "x"}, "k": 1},
                ],
            },
            Message(
                "assistant",
                (
                    CallContent("1", "f", "{"),
                    CallContent("2", "g", "x", kind="custom", format="text", extra=Raw(b'{"k":1}')),
                ),
            ),
        ),
        (
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "r"}]},
            Message("tool", (ResultContent("1", (TextContent("r"),)),)),
        ),
        (
            {"role": "tool", "tool_call_id": "1", "content": ""},
            Message("tool", (ResultContent("1"),)),
        ),
    ],
)
def test_a_message_is_parsed(message: Object, expected: Message) -> None:
    assert parse_message(message) == expected


def test_the_result_of_a_custom_call_has_its_kind() -> None:
    call: Object = {"id": "1", "type": "custom", "custom": {"name": "g", "input": "x"}}
    messages = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ]
    result = ResultContent("1", (TextContent("r"),), kind="custom")
    assert read(messages=messages).messages[1] == Message("tool", (result,))


def test_deprecated_function_calls_share_a_minted_id_with_their_results() -> None:
    messages = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
    ]
    call, result = (message.content[0] for message in read(messages=messages).messages)
    assert isinstance(call, CallContent)
    assert call == CallContent(call.id, "f", "{}")
    assert call.id.startswith("call_")
    assert result == ResultContent(call.id, (TextContent("r"),), name="f")


def test_reasoning_of_this_dialect_keeps_its_signature_and_origin() -> None:
    details: Object = {"type": "reasoning.text", "text": "why", "signature": "s", "index": 0}
    message: Object = {"role": "assistant", "content": "a", "reasoning_details": [details]}
    extra = raw({"reasoning_details": [details]})
    expected = ReasoningContent("why", signature="s", origin="here", extra=extra)
    assert parse_message(message, Context(origin="here")).content == (expected, TextContent("a"))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_parsed_from_either_field(field: str) -> None:
    thought = ReasoningContent("why", origin=NAME)
    assert parse_message({"role": "assistant", field: "why"}).content == (thought,)


ENVELOPE = wrap(Envelope("elsewhere", "m", ReasoningState(signature="s", item_id="i")))


def test_an_envelope_is_unwrapped_and_never_sent_upstream() -> None:
    detail = {"type": "reasoning.encrypted", "data": ENVELOPE, "index": 0}
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"any": {"thought_signature": ENVELOPE}},
    }
    message: Object = {
        "role": "assistant",
        "reasoning_content": "why",
        "reasoning_details": [detail],
        "tool_calls": [call],
    }
    context = Context(quirks=ChatQuirks(reasoning_back=("reasoning_content", "reasoning_details")))
    request = parse({"model": "m", "messages": [message]}, context).request
    thought = ReasoningContent("why", item_id="i", signature="s", origin="elsewhere")
    signed = CallContent("1", "f", "{}", signature="s", origin="elsewhere")
    assert request.messages[0].content == (thought, signed)
    rendered, losses = render(request, context)
    assert b"weft1" not in rendered.body
    assert [loss.path for loss in losses] == [
        "messages[0].content[0]",
        "messages[0].content[1].signature",
    ]


def test_the_signature_of_a_call_goes_back_in_the_field_of_its_host() -> None:
    call = CallContent("1", "f", "{}", signature="s", origin="here")
    answer = ResultContent("1", (TextContent("r"),))
    request = Request("m", messages=(Message("assistant", (call,)), Message("tool", (answer,))))
    rendered, losses = render(request, Context(origin="here"))
    (sent,) = json.loads(rendered.body)["messages"][0]["tool_calls"]
    assert sent["extra_content"] == {"google": {"thought_signature": "s"}}
    assert losses == []
    away, losses = render(request, Context(origin="there"))
    assert b"extra_content" not in away.body
    assert [loss.path for loss in losses] == ["messages[0].content[0].signature"]


UNKNOWN_CHOICE: Object = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}]},
}
UNKNOWN_CHOICE_EXTRA = raw({"tool_choice": UNKNOWN_CHOICE})

FIELDS: list[tuple[Object, Request]] = [
    ({"max_completion_tokens": 5}, Request("m", max_output_tokens=5)),
    ({"max_tokens": 5}, Request("m", max_output_tokens=5)),
    ({"temperature": 1, "top_p": 0.5}, Request("m", sampling=Sampling(1.0, 0.5))),
    (
        {"presence_penalty": 1, "frequency_penalty": 2, "seed": 3},
        Request("m", sampling=Sampling(presence_penalty=1, frequency_penalty=2, seed=3)),
    ),
    ({"logprobs": True}, Request("m", sampling=Sampling(logprobs=0))),
    ({"logprobs": True, "top_logprobs": 2}, Request("m", sampling=Sampling(logprobs=2))),
    ({"logprobs": False}, Request("m")),
    ({"logit_bias": {"5": 1}}, Request("m", sampling=Sampling(logit_bias=Raw(b'{"5":1}')))),
    ({"stop": "x"}, Request("m", stop=("x",))),
    ({"stop": ["x", "y"]}, Request("m", stop=("x", "y"))),
    ({"n": 2}, Request("m", choices=2)),
    ({"response_format": {"type": "json_object"}}, Request("m", output=OutputFormat("json"))),
    ({"response_format": {"type": "text"}}, Request("m")),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}},
        Request("m", output=OutputFormat("json-schema", "s", schema=Raw(b"{}"))),
    ),
    (
        {"stream": True, "stream_options": {"include_usage": True}},
        Request("m", stream=True, include_usage=True),
    ),
    ({"reasoning_effort": "high"}, Request("m", reasoning=ReasoningOptions("high"))),
    (
        {"reasoning_effort": "default"},
        Request("m", reasoning=ReasoningOptions(extra=Raw(b'{"reasoning_effort":"default"}'))),
    ),
    ({"verbosity": "low"}, Request("m", verbosity="low")),
    ({"metadata": {"a": "b"}, "store": True}, Request("m", metadata={"a": "b"}, store=True)),
    (
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "service_tier": "flex"},
        Request("m", user="u", safety_identifier="s", prompt_cache_key="k", service_tier="flex"),
    ),
    ({"prompt_cache_retention": "24h"}, Request("m", cache="1h")),
    ({"prediction": 1}, Request("m", extra=Raw(b'{"prediction":1}'))),
    ({"modalities": ["text"], "audio": None}, Request("m")),
    ({"tool_choice": "none"}, Request("m", tool_choice=ToolChoice("none"))),
    (
        {"tool_choice": {"type": "custom", "custom": {"name": "g"}}},
        Request("m", tool_choice=ToolChoice("required", "g", "custom")),
    ),
    (
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            }
        },
        Request("m", tool_choice=ToolChoice("auto", allowed=("f",))),
    ),
    ({"tool_choice": UNKNOWN_CHOICE}, Request("m", extra=UNKNOWN_CHOICE_EXTRA)),
    ({"function_call": "none"}, Request("m", tool_choice=ToolChoice("none"))),
    ({"function_call": "odd"}, Request("m", extra=Raw(b'{"function_call":"odd"}'))),
    (
        {"function_call": "none", "tool_choice": "none"},
        Request("m", tool_choice=ToolChoice("none")),
    ),
    (
        {"function_call": "auto", "tool_choice": "required"},
        Request("m", tool_choice=ToolChoice("required"), extra=Raw(b'{"function_call":"auto"}')),
    ),
    (
        {"function_call": {"name": "f"}, "tool_choice": UNKNOWN_CHOICE},
        Request("m", extra=raw({"tool_choice": UNKNOWN_CHOICE, "function_call": {"name": "f"}})),
    ),
    ({"max_tokens": 5, "max_completion_tokens": 5}, Request("m", max_output_tokens=5)),
    (
        {"max_tokens": 5, "max_completion_tokens": 9},
        Request("m", max_output_tokens=9, extra=Raw(b'{"max_tokens":5}')),
    ),
    (
        {"functions": [{"name": "f"}], "function_call": {"name": "f"}},
        Request("m", tools=(Tool("f"),), tool_choice=ToolChoice("required", "f")),
    ),
    (
        {"web_search_options": {"search_context_size": "low"}},
        Request(
            "m",
            tools=(
                Tool("web_search", "web-search", hosted=Hosted(context_size="low"), origin=NAME),
            ),
        ),
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "k": 1}}]},
        Request("m", tools=(Tool("f", strict=True, extra=Raw(b'{"function":{"k":1}}')),)),
    ),
    (
        {"tools": [{"type": "builtin"}]},
        Request(
            "m", tools=(Tool("builtin", "builtin", raw=Raw(b'{"type":"builtin"}'), origin=NAME),)
        ),
    ),
]


@each_row("body, expected", FIELDS, ids=lambda one: str(one)[:40])
def test_an_option_is_parsed(body: Object, expected: Request) -> None:
    assert read(**body) == msgspec.structs.replace(expected, dialect=NAME)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": None}, "messages"),
        ({"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [GREETING, {"role": "user", "content": 3}]}, "messages[1].content"),
        (
            {"messages": [{"role": "user", "content": [{"text": ""}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
            "messages[0].content[0].text",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
            "messages[0].content[0].file",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]},
            "messages[0].tool_calls[0]",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "1", "content": [{"type": "text"}]}]},
            "messages[0].content[0]",
        ),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function"),
        ({"tool_choice": 1}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": []},
                }
            },
            "tool_choice.allowed_tools.tools",
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [{"type": 1}]},
                }
            },
            "tool_choice.allowed_tools.tools[0].type",
        ),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"n": 0}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"stop": 3}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
    ],
)
def test_an_invalid_body_is_rejected_with_the_path_of_the_fault(body: Object, path: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read(**body)
    assert caught.value.path == path


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "model",
        "messages",
        "tools",
        "tool_choice",
        "stop",
        "stream_options",
        "response_format",
        "web_search_options",
        "reasoning_effort",
        "functions",
        "logit_bias",
    ]
)


@QUICK
@given(
    body=bodies(),
    broken=st.dictionaries(KEYS, ANYTHING, min_size=1),
    message=st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "reasoning_details"]),
        ANYTHING | st.sampled_from(["user", "assistant", "tool"]),
    ),
)
def test_any_json_is_parsed_or_rejected_as_a_bad_request(
    body: Object, broken: Object, message: Object
) -> None:
    messages = body["messages"]
    assert isinstance(messages, list)
    for one in ({**body, **broken}, {**body, "messages": [*messages, message]}, broken):
        with contextlib.suppress(BadRequest):
            render(parse(one).request)


@QUICK
@given(data=st.binary(max_size=40))
def test_bytes_that_are_not_json_are_rejected(data: bytes) -> None:
    with pytest.raises(BadRequest):
        REQUEST.parse(data, Context())


# Where a loss is in the client's body


def test_losses_have_the_path_in_the_clients_own_body() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    places = parse(
        {
            "model": "m",
            "max_tokens": 3,
            "messages": [
                GREETING,
                {"role": "user", "content": [{"type": "text", "text": "t"}]},
                {"role": "assistant", "reasoning": "r", "content": "c", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "t"}]},
            ],
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "functions": [{"name": "g"}],
            "web_search_options": {},
        }
    ).source_paths
    assert [
        places.source(path)
        for path in (
            "max_output_tokens",
            "messages[0].content[0]",
            "messages[1].content[0].text",
            "messages[2].content[0]",
            "messages[2].content[1]",
            "messages[2].content[2].params",
            "messages[3].content[0].id",
            "messages[3].content[0].content[0]",
            "tools[0].strict",
            "tools[1]",
            "tools[2].hosted",
            "output.schema",
            "reasoning.effort",
            "sampling.seed",
            "tool_choice.allowed",
        )
    ] == [
        "max_tokens",
        "messages[0].content",
        "messages[1].content[0].text",
        "messages[2].reasoning",
        "messages[2].content",
        "messages[2].tool_calls[0].params",
        "messages[3].id",
        "messages[3].content[0]",
        "tools[0].function.strict",
        "functions[0]",
        "web_search_options.hosted",
        "response_format.json_schema.schema",
        "reasoning_effort",
        "seed",
        "tool_choice.allowed_tools.tools",
    ]


# Writing for other dialects

OTHER = "anthropic-messages"


def other(**fields: object) -> Request:
    """Returns a request that came in another dialect."""
    base = Request("m", dialect=OTHER, messages=(HI,))
    return msgspec.structs.replace(base, **fields)


OPEN = Raw(json.dumps(SCHEMA).encode())
CLOSED = Raw(
    b'{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],'
    b'"additionalProperties":false}'
)


@each_row(
    "request_, key, value, losses",
    [
        (other(max_output_tokens=9), "max_completion_tokens", 9, []),
        (other(max_output_tokens=0), None, None, [("max_output_tokens", "refused")]),
        (other(sampling=Sampling(temperature=0.5)), "temperature", 0.5, []),
        (other(sampling=Sampling(top_k=5)), "top_k", None, [("sampling.top_k", "warned")]),
        (other(sampling=Sampling(logprobs=2)), "top_logprobs", 2, []),
        (other(sampling=Sampling(logit_bias=Raw(b'{"1":2}'))), "logit_bias", {"1": 2}, []),
        (other(stop=("a", "b")), "stop", ["a", "b"], []),
        (other(stop=("a", "b", "c", "d", "e")), "stop", None, [("stop", "adapted")]),
        (other(choices=2), "n", 2, []),
        (other(output=OutputFormat("json")), "response_format", {"type": "json_object"}, []),
        (
            other(output=OutputFormat("json-schema", schema=CLOSED)),
            "response_format",
            {
                "type": "json_schema",
                "json_schema": {
                    "name": "output",
                    "schema": json.loads(bytes(CLOSED)),
                    "strict": True,
                },
            },
            [("output.name", "adapted")],
        ),
        (
            other(output=OutputFormat("json-schema", "n", schema=OPEN)),
            "response_format",
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": SCHEMA, "strict": False},
            },
            [("output.schema", "warned")],
        ),
        (other(verbosity="low"), "verbosity", "low", []),
        (other(reasoning=ReasoningOptions("high")), "reasoning_effort", "high", []),
        (other(reasoning=ReasoningOptions(adaptive=True)), "reasoning_effort", None, []),
        (
            other(reasoning=ReasoningOptions(budget_tokens=2048)),
            "reasoning_effort",
            "low",
            [("reasoning.budget_tokens", "adapted")],
        ),
        (
            other(reasoning=ReasoningOptions(summary="auto", extra=Raw(b'{"display":"x"}'))),
            "reasoning_effort",
            None,
            [("reasoning.summary", "warned"), ("reasoning.display", "warned")],
        ),
        (other(include=("reasoning.encrypted_content",)), "include", None, []),
        (other(include=("x",)), "include", None, [("include", "warned")]),
        (other(betas=("b",)), "betas", None, [("betas", "warned")]),
        (other(max_tool_calls=1), None, None, [("max_tool_calls", "warned")]),
        (other(background=True), None, None, [("background", "warned")]),
        (other(previous_response_id="r"), None, None, [("previous_response_id", "refused")]),
        (other(truncation="auto"), None, None, [("truncation", "warned")]),
        (other(truncation="disabled"), "truncation", None, []),
        (other(metadata={"a": "b"}), "metadata", None, [("metadata", "adapted")]),
        (other(user="u"), "user", "u", []),
        (
            other(user="u" * 65),
            "user",
            sha256(b"u" * 65).hexdigest(),
            [("user", "warned")],
        ),
        (
            other(service_tier="standard_only"),
            "service_tier",
            "default",
            [("service_tier", "adapted")],
        ),
        (other(service_tier="odd"), "service_tier", None, [("service_tier", "warned")]),
        (other(cache="5m"), "prompt_cache_retention", None, [("cache", "adapted")]),
        (other(cache="1h"), "prompt_cache_retention", "24h", [("cache", "warned")]),
        (other(extra=Raw(b'{"thread":1}')), "thread", None, [("thread", "refused")]),
        (other(store=True), "store", None, []),
        (
            other(tool_choice=ToolChoice("required")),
            "tool_choice",
            None,
            [("tool_choice", "warned")],
        ),
        (
            other(parallel_tool_calls=False),
            "parallel_tool_calls",
            None,
            [("parallel_tool_calls", "adapted")],
        ),
        (other(instructions="be"), "messages", [{"role": "system", "content": "be"}, GREETING], []),
        (other(stream=True), "stream_options", {"include_usage": True}, []),
    ],
    ids=lambda one: str(one)[:40],
)
def test_an_option_of_another_dialect_is_rendered(
    request_: Request, key: str | None, value: object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(request_)
    assert [(loss.path, loss.outcome) for loss in found] == losses
    if key is not None:
        assert body.get(key) == value


def test_the_token_limit_has_the_name_that_the_host_expects() -> None:
    context = Context(quirks=ChatQuirks(token_limit="max_tokens"))
    body, losses = written(other(max_output_tokens=9), context)
    assert (body["max_tokens"], "max_completion_tokens" in body, losses) == (9, False, [])


def test_two_limits_that_differ_are_sent_as_they_came_or_one_is_a_loss() -> None:
    """A host that knows only the deprecated key is sent the limit that counts under it."""
    body: Object = {**CODEC.bare, "max_tokens": 5, "max_completion_tokens": 9}
    older = Context(quirks=ChatQuirks(token_limit="max_tokens"))
    assert written(parse(body).request, older) == (body, [])
    assert written(read(**body)) == (body, [])
    lost = Loss("max_tokens", "warned", "dropped: max_completion_tokens counts")
    assert written(read(**body), older) == ({**CODEC.bare, "max_tokens": 9}, [lost])


def tooled(*tools: Tool, choice: ToolChoice | None = None) -> Request:
    return other(tools=tools, tool_choice=choice)


FREE: Object = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
FREE_FORM = Tool("g", "custom", "d", origin="openai-responses")
SPELLED = msgspec.structs.replace(
    FREE_FORM, raw=Raw(b'{"format":{"type":"grammar","definition":"x","syntax":"lark"}}')
)
CUSTOM = Context(quirks=ChatQuirks(custom_tools=True))
"""A host that accepts custom tools."""


@pytest.mark.parametrize(
    ("tool", "value", "losses"),
    [
        (Tool("f"), {"type": "function", "function": {"name": "f"}}, []),
        (
            Tool("f", description="d", parameters=CLOSED, strict=True),
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "d",
                    "parameters": json.loads(bytes(CLOSED)),
                    "strict": True,
                },
            },
            [],
        ),
        (
            Tool("f", parameters=OPEN, strict=True),
            {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": False}},
            [("tools[0].strict", "warned")],
        ),
        (
            Tool("f", cache="5m", extra=Raw(b'{"defer_loading":true,"odd":1}')),
            {"type": "function", "function": {"name": "f"}},
            [
                ("tools[0].cache", "warned"),
                ("tools[0].defer_loading", "warned"),
                ("tools[0].odd", "warned"),
            ],
        ),
        (
            Tool("look at.this"),
            {"type": "function", "function": {"name": "look_at_this_5f4d4d2d"}},
            [("tools[0].name", "adapted")],
        ),
        (
            Tool("f", namespace="ns"),
            {"type": "function", "function": {"name": "ns__f"}},
            [("tools[0].name", "adapted")],
        ),
        (
            FREE_FORM,
            {
                "type": "function",
                "function": {"name": "g", "description": "d", "parameters": FREE},
            },
            [("tools[0]", "adapted")],
        ),
        (
            SPELLED,
            {
                "type": "function",
                "function": {
                    "name": "g",
                    "description": "d\n\nThe text `input` matches this lark grammar:\nx",
                    "parameters": FREE,
                },
            },
            [("tools[0]", "adapted"), ("tools[0].format", "warned")],
        ),
        (
            Tool("tool_search", "tool_search", raw=Raw(b"{}"), origin="openai-responses"),
            None,
            [("tools[0]", "warned")],
        ),
        (Tool("c", "code-execution"), None, [("tools[0]", "refused")]),
        (
            Tool("bash", "bash_20250124", raw=Raw(b"{}"), origin=OTHER),
            None,
            [("tools[0]", "refused")],
        ),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_tool_of_another_dialect_is_rendered(
    tool: Tool, value: object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(tooled(tool))
    tools = body.get("tools", [None])
    assert isinstance(tools, list)
    assert [(loss.path, loss.outcome) for loss in found] == losses
    if "name" not in str(losses):
        assert tools[0] == value


@pytest.mark.parametrize(
    ("tool", "custom"),
    [
        (FREE_FORM, {"name": "g", "description": "d"}),
        (
            SPELLED,
            {
                "name": "g",
                "description": "d",
                "format": {"type": "grammar", "grammar": {"definition": "x", "syntax": "lark"}},
            },
        ),
    ],
)
def test_a_custom_tool_stays_one_if_the_host_accepts_it(tool: Tool, custom: Object) -> None:
    rendered, losses = render(tooled(tool), CUSTOM)
    body: Object = json.loads(rendered.body)
    assert (body["tools"], losses) == ([{"type": "custom", "custom": custom}], [])
    assert rendered.bridged == frozenset()


def test_custom_tools_calls_and_choices_become_functions_together() -> None:
    step = (
        HI,
        Message("assistant", (CallContent("1", "g", 'a "b"', kind="custom", format="text"),)),
        Message("tool", (ResultContent("1", (TextContent("r"),), kind="custom"),)),
    )
    choice = ToolChoice("required", "g", "custom")
    request = other(messages=step, tools=(FREE_FORM,), tool_choice=choice)
    rendered, losses = render(request, None)
    body: dict[str, Any] = json.loads(rendered.body)
    call = {"name": "g", "arguments": '{"input":"a \\"b\\""}'}
    assert body["messages"][1]["tool_calls"] == [{"type": "function", "id": "1", "function": call}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "g"}}
    assert rendered.bridged == {"g"}
    assert [(loss.path, loss.outcome) for loss in losses] == [
        ("messages[1].content[0].params", "adapted"),
        ("tools[0]", "adapted"),
    ]


def test_an_optional_web_search_is_dropped_beside_functions() -> None:
    tools = (Tool("f"), Tool("web_search", "web-search"))
    body, losses = written(tooled(*tools))
    (tool,) = cast("list[dict[str, dict[str, str]]]", body["tools"])
    assert tool["function"]["name"] == "f"
    assert "web_search_options" not in body
    assert [(loss.path, loss.outcome) for loss in losses] == [("tools[1]", "warned")]


def test_a_hosted_web_search_becomes_web_search_options() -> None:
    near = Raw(b'{"type":"approximate","city":"K","country":"DE"}')
    tool = Tool("web_search", "web-search", hosted=Hosted(context_size="low", location=near))
    body, losses = written(tooled(tool))
    where = {"type": "approximate", "approximate": {"city": "K", "country": "DE"}}
    assert body["web_search_options"] == {"search_context_size": "low", "user_location": where}
    assert ("tools" in body, losses) == (False, [])


@pytest.mark.parametrize("field", ["allowed_domains", "blocked_domains", "max_uses"])
def test_a_web_search_with_unavailable_limits_is_refused(field: str) -> None:
    value: object = 3 if field == "max_uses" else ("a.example",)
    hosted = msgspec.structs.replace(Hosted(), **{field: value})
    losses = written(tooled(Tool("web_search", "web-search", hosted=hosted)))[1]
    assert [(loss.path, loss.outcome) for loss in losses] == [
        (f"tools[0].hosted.{field}", "refused")
    ]


def test_a_second_web_search_is_dropped_if_it_is_the_same_and_refused_otherwise() -> None:
    low, high = (
        Tool("web_search", "web-search", hosted=Hosted(context_size=size))
        for size in ("low", "high")
    )
    body, losses = written(tooled(low, low, high))
    assert body["web_search_options"] == {"search_context_size": "low"}
    assert [(loss.path, loss.outcome) for loss in losses] == [
        ("tools[1]", "adapted"),
        ("tools[2]", "refused"),
    ]


def test_a_location_that_is_no_city_is_refused() -> None:
    hosted = Hosted(location=Raw(b'{"city":{"latitude":1}}'))
    losses = written(tooled(Tool("web_search", "web-search", hosted=hosted)))[1]
    assert [(loss.path, loss.outcome) for loss in losses] == [
        ("tools[0].hosted.location", "refused")
    ]


TWO = (Tool("f"), Tool("g", "custom"))


@pytest.mark.parametrize(
    ("choice", "value"),
    [
        (ToolChoice("auto"), "auto"),
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("required", "f"), {"type": "function", "function": {"name": "f"}}),
        (ToolChoice("required", "g", "custom"), {"type": "custom", "custom": {"name": "g"}}),
        (
            ToolChoice("auto", allowed=("f", "g")),
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "custom", "custom": {"name": "g"}},
                    ],
                },
            },
        ),
    ],
)
def test_trap_19_the_choice_of_tools_keeps_its_meaning(choice: ToolChoice, value: object) -> None:
    body, losses = written(tooled(*TWO, choice=choice), CUSTOM)
    assert (body["tool_choice"], losses) == (value, [])
    tools = body["tools"]
    assert isinstance(tools, list)
    assert len(tools) == 2


def test_forcing_a_hosted_tool_is_refused() -> None:
    search = Tool("web_search", "web-search")
    for choice in (
        ToolChoice("required", "web_search", "web-search"),
        ToolChoice("auto", allowed=("web_search",)),
    ):
        losses = written(tooled(search, choice=choice))[1]
        assert [loss.outcome for loss in losses] == ["refused"]


def test_trap_09_a_tool_name_is_renamed_alike_everywhere() -> None:
    name = "look at/this " * 8
    step = (
        Message("assistant", (CallContent("1", name, "{}"),)),
        Message("tool", (ResultContent("1", name=name),)),
    )
    request = other(
        messages=(HI, *step),
        tools=(Tool(name),),
        tool_choice=ToolChoice("required", name),
    )
    rendered = render(request)[0]
    body = json.loads(rendered.body)
    spelled = body["tools"][0]["function"]["name"]
    assert len(spelled) == 64
    assert body["tool_choice"]["function"]["name"] == spelled
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == spelled
    assert rendered.names == {spelled: name}


# Messages of other dialects


def messages(
    *found: Message, context: Context | None = None
) -> tuple[object, list[tuple[str, str]]]:
    body, losses = written(other(messages=(HI, *found, HI)), context)
    written_ = body["messages"]
    assert isinstance(written_, list)
    return written_[1:-1], [(loss.path, loss.outcome) for loss in losses]


def step(call: CallContent, *results: AnyContent) -> tuple[Message, Message]:
    return Message("assistant", (call,)), Message("user", results)


CALL = CallContent("1", "f", '{"a":1.50}')
ASKED: Object = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1.50}'}}
    ],
}


def answered(content: object) -> Object:
    return {"role": "tool", "tool_call_id": "1", "content": content}


def test_trap_13_a_failed_result_is_marked_in_its_text() -> None:
    result = ResultContent("1", (TextContent("gone"),), is_error=True)
    assert messages(*step(CALL, result)) == (
        [ASKED, answered("Error: gone")],
        [("messages[2].content[0].is_error", "adapted")],
    )
    nothing = ResultContent("1", name="f", is_error=True)
    assert messages(*step(CALL, nothing))[0] == [ASKED, answered("Error")]


def test_trap_12_images_of_a_result_move_to_a_user_message() -> None:
    image, file = ImageContent("image/png", "AA=="), FileContent("application/pdf", "JVBE")
    result = ResultContent("1", (TextContent("see"), image, file))
    written_, losses = messages(*step(CALL, result, TextContent("so?")))
    assert written_ == [
        ASKED,
        answered("see\nThe images and files of this result are in the next message."),
    ]
    assert losses == [
        ("messages[2].content[0].content[1]", "adapted"),
        ("messages[2].content[0].content[2]", "adapted"),
        ("messages[2].content[0].content[0]", "adapted"),
        ("messages[2].content[0]", "adapted"),
    ]
    body = written(other(messages=(HI, *step(CALL, result, TextContent("so?")))))[0]["messages"]
    assert isinstance(body, list)
    assert body[3] == {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE"}},
            {"type": "text", "text": "so?"},
        ],
    }


def test_trap_06_and_11_results_follow_their_calls_in_order_by_id() -> None:
    first, second = CallContent("1", "f", "{}"), CallContent("2", "f", "{}")
    body, losses = written(
        other(
            messages=(
                HI,
                Message("assistant", (first, second)),
                Message("user", (TextContent("wait"), ResultContent("2"), ResultContent("1"))),
            )
        )
    )
    found = body["messages"]
    assert isinstance(found, list)
    assert [one.get("tool_call_id", one["role"]) for one in found[1:]] == [
        "assistant",
        "1",
        "2",
        "user",
    ]
    assert {loss.outcome for loss in losses} == {"adapted"}


def test_neighbouring_messages_of_one_role_are_merged_except_instructions() -> None:
    found = messages(
        Message("system", (TextContent("a"), TextContent("b", cache="5m"))),
        Message("developer", (TextContent("c"),)),
        Message("assistant", (TextContent("d"),)),
        Message("assistant", (CALL,)),
        Message("tool", (ResultContent("1", (TextContent("r"),)),)),
    )
    assert found == (
        [
            {"role": "system", "content": "a\nb"},
            {"role": "developer", "content": "c"},
            {**ASKED, "content": "d"},
            answered("r"),
        ],
        [
            ("messages[1].content[1].cache", "warned"),
            ("messages[1].content[0]", "adapted"),
            ("messages[1].content[1]", "adapted"),
        ],
    )


def test_content_is_a_string_unless_a_part_is_not_text() -> None:
    image = ImageContent(url="u")
    texts = (TextContent("a"), TextContent(""), TextContent("b"))
    said_ = (
        Message("developer", texts),
        Message("user", texts),
        Message("assistant", (*texts, TextContent("no", refusal=True))),
        Message("user", (*texts, image)),
    )
    body, losses = written(other(messages=said_))
    text_a, text_b, empty = ({"type": "text", "text": text} for text in ("a", "b", ""))
    assert body["messages"] == [
        {"role": "developer", "content": "a\nb"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "ab", "refusal": "no"},
        {
            "role": "user",
            "content": [
                text_a,
                empty,
                text_b,
                {"type": "image_url", "image_url": {"url": "u"}},
            ],
        },
    ]
    assert [(loss.path, loss.outcome) for loss in losses] == [
        (f"messages[{number}].content[{place}]", "adapted")
        for number in range(3)
        for place in (0, 2)  # an empty text is no difference
    ]


def test_developer_messages_become_system_for_hosts_without_that_role() -> None:
    context = Context(quirks=ChatQuirks(developer_role=False))
    found = messages(Message("developer", (TextContent("c"),)), context=context)
    assert found == ([{"role": "system", "content": "c"}], [("messages[1].role", "adapted")])


@pytest.mark.parametrize(
    ("content", "value", "losses"),
    [
        (TextContent("t"), "t", []),
        (
            ImageContent(url="u", detail="low"),
            [{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}],
            [],
        ),
        (ImageContent(file_id="f"), None, [(".file_id", "refused")]),
        (
            FileContent("audio/wav", "AA"),
            [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}],
            [],
        ),
        (
            FileContent("text/plain", "aGk="),
            [{"type": "text", "text": "hi"}],
            [("", "adapted")],
        ),
        (FileContent("application/pdf", url="u"), None, [(".url", "refused")]),
        (FileContent("video/mp4", "AA"), None, [("", "refused")]),
        (FileContent(file_id="f"), None, [(".file_id", "refused")]),
        (
            TextContent("t", extra=Raw(b'{"citations":[1]}')),
            "t",
            [(".citations", "warned")],
        ),
        (OpaqueContent(OTHER, "search_result", Raw(b"{}")), None, [("", "refused")]),
        (
            TextContent("t", cache="1h"),
            "t",
            [(".cache", "warned")],
        ),
        (
            ImageContent(url="u", cache="1h"),
            [
                {
                    "type": "image_url",
                    "image_url": {"url": "u"},
                    "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"},
                }
            ],
            [(".cache", "warned")],
        ),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_user_message_of_another_dialect_is_rendered(
    content: AnyContent, value: object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(messages=(Message("user", (content,)),)))
    expected = [(f"messages[0].content[0]{path}", outcome) for path, outcome in losses]
    assert [(loss.path, loss.outcome) for loss in found] == expected
    if value is not None:
        assert body["messages"] == [{"role": "user", "content": value}]


@pytest.mark.parametrize(
    ("content", "message", "losses"),
    [
        (TextContent("no", refusal=True), {"content": None, "refusal": "no"}, []),
        (
            CallContent("w", "web_search", "{}", kind="x", provider_executed=True),
            None,
            [("", "warned")],
        ),
        (ResultContent("w", kind="x"), None, [("", "warned")]),
        (ImageContent(url="u"), None, [("", "refused")]),
        (
            OpaqueContent(OTHER, "compaction", Raw(b"{}")),
            None,
            [("", "refused")],
        ),
        (
            OpaqueContent(OTHER, "web_search_tool_result", Raw(b"{}")),
            None,
            [("", "warned")],
        ),
    ],
    ids=lambda one: str(one)[:40],
)
def test_an_assistant_message_of_another_dialect_is_rendered(
    content: AnyContent, message: Object | None, losses: list[tuple[str, str]]
) -> None:
    expected = [(f"messages[1].content[0]{path}", outcome) for path, outcome in losses]
    found = [{"role": "assistant", **message}] if message else []
    assert messages(Message("assistant", (content,))) == (found, expected)


def test_a_prefilled_answer_is_refused() -> None:
    losses = written(other(messages=(HI, Message("assistant", (TextContent("So"),)))))[1]
    assert [(loss.path, loss.outcome) for loss in losses] == [("messages[1]", "refused")]


# Reasoning


@pytest.mark.parametrize("text", ["why", ""])
def test_trap_01_and_02_reasoning_of_another_origin_is_dropped_and_never_text(text: str) -> None:
    thought = ReasoningContent(text, signature="s", origin=OTHER)
    said_ = Message("assistant", (thought, TextContent("a")))
    context = Context(quirks=ChatQuirks(reasoning_back=("reasoning_content",)))
    assert messages(said_, context=context) == (
        [{"role": "assistant", "content": "a"}],
        [("messages[1].content[0]", "warned")],
    )


THOUGHT: Object = {
    "role": "assistant",
    "content": "a",
    "reasoning_content": "why",
    "reasoning_details": [{"type": "reasoning.text", "signature": "s", "text": "why"}],
}


@pytest.mark.parametrize("fields", [(), ("reasoning_content",), ("reasoning_details",)])
@pytest.mark.parametrize("origin", [None, "here"])
@pytest.mark.parametrize(
    "thought",
    [
        THOUGHT,
        {"role": "assistant", "content": "a", "reasoning_content": "why"},
        {"role": "assistant", "content": None, "reasoning": "why"},
        {"role": "assistant", "content": "a", "reasoning_content": "why", "reasoning": "why"},
    ],
)
def test_reasoning_that_a_client_of_this_dialect_sends_back_is_unchanged(
    thought: Object, origin: str | None, fields: tuple[str, ...]
) -> None:
    quirks = msgspec.convert({"reasoning_back": fields}, ChatQuirks)
    request = parse({"model": "m", "messages": [thought]}, Context(origin=origin)).request
    body, losses = written(request, Context(quirks=quirks, origin="here"))
    assert (body["messages"], losses) == ([thought], [])


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ((), {"role", "content"}),
        (("reasoning_content",), {"role", "content", "reasoning_content"}),
        (("reasoning_content", "reasoning_details"), set(THOUGHT)),
    ],
)
def test_reasoning_goes_back_in_the_fields_that_the_host_expects(
    fields: tuple[str, ...], kept: set[str]
) -> None:
    """A message that must be rendered: it came from a client of another dialect."""
    quirks = msgspec.convert({"reasoning_back": fields}, ChatQuirks)
    said_ = ReasoningContent("why", signature="s", origin="here")
    found = messages(
        Message("assistant", (said_, TextContent("a"))),
        context=Context(quirks=quirks, origin="here"),
    )
    expected = [] if kept == set(THOUGHT) else [("messages[1].content[0]", "warned")]
    assert found == ([{key: THOUGHT[key] for key in THOUGHT if key in kept}], expected)


@pytest.mark.parametrize(
    ("thought", "expected", "outcomes"),
    [
        (
            ReasoningContent("why", signature="s", origin="here"),
            {"reasoning_details": [{"type": "reasoning.text", "text": "why", "signature": "s"}]},
            [],
        ),
        (
            ReasoningContent("", encrypted="e", origin="here"),
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "e"}]},
            [],
        ),
        (ReasoningContent("why", origin="here"), {}, ["warned"]),
    ],
)
def test_a_signature_from_an_envelope_goes_back_to_its_host(
    thought: ReasoningContent, expected: Object, outcomes: list[str]
) -> None:
    context = Context(quirks=ChatQuirks(reasoning_back=("reasoning_details",)), origin="here")
    found, losses = messages(Message("assistant", (thought, TextContent("a"))), context=context)
    assert found == [{"role": "assistant", "content": "a", **expected}]
    assert [outcome for _, outcome in losses] == outcomes


def test_reasoning_of_one_host_does_not_go_to_another() -> None:
    quirks = ChatQuirks(reasoning_back=("reasoning_content", "reasoning_details"))
    request = parse({"model": "m", "messages": [THOUGHT]}, Context(origin="here")).request
    body, losses = written(request, Context(quirks=quirks, origin="there"))
    assert body["messages"] == [{"role": "assistant", "content": "a"}]
    assert [loss.outcome for loss in losses] == ["warned"]


# The official client


def test_bodies_of_the_official_client_pass_through_unchanged() -> None:
    with listening() as (address, got):
        client = openai.OpenAI(api_key="k", base_url=address, max_retries=0)
        with client, pytest.raises(openai.BadRequestError):
            client.chat.completions.create(
                model="m",
                messages=[
                    {"role": "developer", "content": "be"},
                    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                ],
                tools=[
                    openai.pydantic_function_tool(_Weather, name="weather"),
                ],
                tool_choice={"type": "function", "function": {"name": "weather"}},
                stream=True,
                stream_options={"include_usage": True},
                max_completion_tokens=9,
            )
    request = REQUEST.parse(got[0], Context()).request
    assert render(request) == (Rendered(got[0], {}), [])
    assert request.tools[0].strict is True
    assert request.tool_choice == ToolChoice("required", "weather")


class _Weather(BaseModel):
    """The weather at a place."""

    city: str


PARAMS = TypeAdapter(CompletionCreateParams)


@FEW
@given(body=bodies())
def test_rendered_bodies_have_the_types_of_the_official_client(body: Object) -> None:
    request = msgspec.structs.replace(read(**body), dialect=None)
    PARAMS.validate_python(written(request)[0])


@QUICK
@given(body=responses_bodies())
def test_a_responses_conversation_is_rendered_complete_and_well_formed(body: Object) -> None:
    request = RESPONSES.parse(json.dumps(body).encode(), Context()).request
    body_sent, losses = written(request, CUSTOM)
    PARAMS.validate_python(body_sent)
    found = leaves(body_sent["messages"])
    assert [text for text in spoken_texts(body["input"]) if not _was_sent(text, found)] == []
    refused = [loss.detail for loss in losses if loss.outcome == "refused"]
    assert set(refused) <= {"files by URL are not available on openai-chat"}


def _was_sent(text: str, found: list[str]) -> bool:
    """Whether a text was sent. Summaries of reasoning are not, and failed results get a prefix."""
    return text in ("why", "because") or any(text in one for one in found)


# What a request says that was never read from a body


def test_reasoning_of_several_parts_is_one_field() -> None:
    thoughts = tuple(ReasoningContent(text, origin=NAME) for text in ("a", "b"))
    message = Message("assistant", (*thoughts, TextContent("c")))
    for field in ("reasoning_content", "reasoning"):
        quirks = msgspec.convert({"reasoning_back": (field,)}, ChatQuirks)
        body, losses = written(Request("m", messages=(message,)), Context(quirks=quirks))
        assert body["messages"] == [{"role": "assistant", "content": "c", field: "ab"}]
        assert losses == []


def test_content_that_a_message_cannot_have_is_refused() -> None:
    call = CallContent("1", "f", "{}")
    found = messages(
        Message("system", (ImageContent(url="u"),)), Message("user", (call, TextContent("t")))
    )
    assert found[1] == [
        ("messages[1].content[0]", "refused"),
        ("messages[2].content[0]", "refused"),
    ]


def test_unknown_audio_formats_are_refused() -> None:
    sound = FileContent("audio/ogg", "AA")
    losses = written(other(messages=(Message("user", (sound,)),)))[1]
    assert [loss.outcome for loss in losses] == ["refused"]
    own = Request("m", messages=(Message("user", (sound,)),))
    assert written(own)[0]["messages"] == [
        {
            "role": "user",
            "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "ogg"}}],
        }
    ]


def test_a_text_after_a_call_is_moved_before_it() -> None:
    turn = Message("assistant", (CALL, TextContent("b")))
    result = Message("user", (ResultContent("1", cache="5m", content=(TextContent("r"),)),))
    assert messages(turn, result) == (
        [{**ASKED, "content": "b"}, answered("r")],
        [("messages[1].content[1]", "adapted"), ("messages[2].content[0].cache", "warned")],
    )


def test_parts_and_calls_of_unknown_types_go_back_to_their_host() -> None:
    part = Raw(b'{"type":"video_url","video_url":{"url":"https://a.example/b.mp4"}}')
    call = Raw(b'{"id":"1","type":"mcp","mcp":{}}')
    request = Request(
        "m",
        messages=(
            Message("user", (OpaqueContent(NAME, "video_url", part),)),
            Message("assistant", (OpaqueContent(NAME, "tool_call.mcp", call),)),
            HI,
        ),
    )
    body, losses = written(request)
    assert body["messages"] == [
        {"role": "user", "content": [json.loads(bytes(part))]},
        {"role": "assistant", "content": None, "tool_calls": [json.loads(bytes(call))]},
        GREETING,
    ]
    assert losses == []


def test_phases_are_reported_as_losses() -> None:
    said_ = Message("assistant", (TextContent("a"),), phase="commentary")
    assert messages(said_)[1] == [("messages[1].phase", "adapted")]


def test_unknown_stream_and_cache_options_are_kept_for_this_dialect() -> None:
    body: Object = {
        "model": "m",
        "messages": [],
        "stream": True,
        "stream_options": {"include_obfuscation": False, "include_usage": True},
        "prompt_cache_retention": "7d",
    }
    assert written(read(**body)) == (body, [])


def test_extra_content_of_a_call_that_is_no_envelope_is_kept() -> None:
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": "odd",
    }
    message: Object = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert written(read(messages=[message]))[0]["messages"] == [message]
