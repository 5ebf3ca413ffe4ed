"""Requests of the Messages API: parsed, rendered as they came, and rendered for other dialects."""

import json
from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import anthropic
import msgspec
import pytest
from anthropic.types.beta import message_create_params
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from pydantic import TypeAdapter

import weft
from tests import requests_gemini
from tests.breaking import broken
from tests.listening import listening
from tests.request_codecs import CodecUnderTest, Object, plain, raw
from tests.requests_anthropic_messages import bodies
from tests.serving import anthropic_client
from tests.strategies import FEW, JSON, QUICK
from tests.tables import each_row
from weft.context import Context
from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.anthropic_messages.request import REQUEST
from weft.dialects.envelope import Envelope, ReasoningState, wrap
from weft.dialects.gemini.request import REQUEST as GENERATE_CONTENT
from weft.dialects.requests.codec import Loss
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

NAME = "anthropic-messages"
HI: Object = {"role": "user", "content": "hi"}
BARE: Object = {"model": "m", "max_tokens": 9, "messages": [HI]}
PNG: Object = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


CODEC = CodecUnderTest(REQUEST, BARE)
parse, read, render, written = CODEC.parse, CODEC.read, CODEC.render, CODEC.written


def quirks(**fields: Any) -> Context:
    return Context(quirks=MessagesQuirks(**fields))


# The same dialect on both sides


@QUICK
@given(body=bodies())
def test_a_request_of_this_dialect_is_rendered_as_it_came(body: Object) -> None:
    assert written(parse(body).request) == (body, [])


@QUICK
@given(body=bodies())
def test_a_body_rendered_without_its_source_parses_to_the_same_request(body: Object) -> None:
    """A lone plain text loses its block, what is the default is left out; nothing else changes."""
    request = plain(parse(body).request)
    again, losses = written(request)
    assert losses == []
    assert plain(parse(again).request) == request


def test_key_order_and_number_spelling_of_the_client_are_kept() -> None:
    body = (
        b'{"max_tokens":9,"messages":[{"content":[{"type":"text","text":"hi"}],"role":"user"}],'
        b'"tools":[{"input_schema":{"type":"object","b":1e2,"a":1.50},"name":"f"}],"model":"m"}'
    )
    assert render(REQUEST.parse(body, Context()).request)[0].body == body


def test_an_edit_changes_what_it_touches_and_nothing_else() -> None:
    body = {
        **BARE,
        "system": [{"type": "text", "text": "a"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "tools": [{"type": "custom", "name": "f", "input_schema": {"type": "object"}}],
    }
    request = parse(body).request
    more = (*request.messages, Message("assistant", (TextContent("yes"),)))
    edited = msgspec.structs.replace(request, model="other", messages=more)
    assert written(edited) == (
        {
            **body,
            "model": "other",
            "messages": [*body["messages"], {"role": "assistant", "content": "yes"}],
        },
        [],
    )


def test_arguments_keep_the_spelling_of_their_numbers() -> None:
    arguments = b'{"b" : 1.50, "a": 12345678901234567890123}'
    body = (
        b'{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":'
        b'[{"type":"tool_use","id":"a","name":"f","input":' + arguments + b"}]}]}"
    )
    request = REQUEST.parse(body, Context()).request
    assert request.messages[0].content == (CallContent("a", "f", arguments.decode()),)
    assert arguments in render(plain(request))[0].body


def test_a_paused_turn_is_resumed_with_its_content_as_the_last_message() -> None:
    content = [{"type": "text", "text": "so far"}]
    response = {"id": "msg_1", "role": "assistant", "content": content, "stop_reason": "pause_turn"}
    assert REQUEST.continued is not None
    resumed = REQUEST.continued(bytes(raw(BARE)), bytes(raw(response)))
    expected = {**BARE, "messages": [HI, {"role": "assistant", "content": content}]}
    assert json.loads(resumed) == expected


# Reading

SEARCH_RESULT: Object = {
    "type": "search_result",
    "title": "t",
    "source": "u",
    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
}

READ: list[tuple[Object, AnyContent]] = [
    ({"type": "text", "text": "a"}, TextContent("a")),
    (
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        TextContent("a", cache="1h"),
    ),
    (
        {
            "type": "text",
            "text": "a",
            "citations": [{"type": "char_location"}],
            "cache_control": {"type": "ephemeral", "scope": "global"},
        },
        TextContent(
            "a",
            cache="5m",
            extra=Raw(b'{"citations":[{"type":"char_location"}],"cache_control.scope":"global"}'),
        ),
    ),
    ({"type": "image", "source": PNG}, ImageContent("image/png", "AAAA")),
    ({"type": "image", "source": {"type": "url", "url": "u"}}, ImageContent(url="u")),
    ({"type": "image", "source": {"type": "file", "file_id": "f"}}, ImageContent(file_id="f")),
    (
        {"type": "image", "source": {"type": "new"}},
        OpaqueContent(NAME, "image", raw({"type": "image", "source": {"type": "new"}})),
    ),
    ({"type": "document", "source": {"type": "url", "url": "u"}}, FileContent(url="u")),
    ({"type": "document", "source": {"type": "file", "file_id": "f"}}, FileContent(file_id="f")),
    (
        {"type": "document", "source": {"type": "new"}},
        OpaqueContent(NAME, "document", raw({"type": "document", "source": {"type": "new"}})),
    ),
    (SEARCH_RESULT, TextContent("t\nu\na\nb", extra=raw({"search_result": SEARCH_RESULT}))),
    (
        {**SEARCH_RESULT, "citations": {"enabled": True}},
        OpaqueContent(
            NAME, "search_result", raw({**SEARCH_RESULT, "citations": {"enabled": True}})
        ),
    ),
    (
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "é"},
            "title": "t",
        },
        FileContent("text/plain", b64encode("é".encode()).decode(), filename="t"),
    ),
    (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            "citations": {"enabled": True},
        },
        FileContent("application/pdf", "JVBERi0=", extra=raw({"citations": {"enabled": True}})),
    ),
    (
        {"type": "document", "source": {"type": "content", "content": "a"}},
        OpaqueContent(
            NAME,
            "document",
            raw({"type": "document", "source": {"type": "content", "content": "a"}}),
        ),
    ),
    (
        {"type": "container_upload", "file_id": "f"},
        OpaqueContent(NAME, "container_upload", raw({"type": "container_upload", "file_id": "f"})),
    ),
    (
        {"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": True},
        ResultContent("a", (TextContent("x"),), is_error=True),
    ),
    ({"type": "tool_result", "tool_use_id": "a"}, ResultContent("a")),
    (
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": [{"type": "text", "text": "x"}, {"type": "image", "source": PNG}],
            "cache_control": {"type": "ephemeral"},
        },
        ResultContent("a", (TextContent("x"), ImageContent("image/png", "AAAA")), cache="5m"),
    ),
    (
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "new"}]},
        ResultContent("a", extra=raw({"content": [{"type": "new"}]})),
    ),
]


@pytest.mark.parametrize(("block", "content"), READ)
def test_a_user_block_is_parsed(block: Object, content: AnyContent) -> None:
    request = read(messages=[{"role": "user", "content": [block]}])
    assert request.messages == (Message("user", (content,)),)


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (
            {"type": "thinking", "thinking": "", "signature": "s"},
            ReasoningContent("", signature="s", origin=NAME),
        ),
        (
            {"type": "thinking", "thinking": "a", "signature": ""},
            ReasoningContent("a", signature=""),
        ),
        ({"type": "thinking", "thinking": "a"}, ReasoningContent("a")),
        ({"type": "redacted_thinking", "data": "d"}, ReasoningContent(redacted="d", origin=NAME)),
        (
            {
                "type": "tool_use",
                "id": "a",
                "name": "f",
                "input": {},
                "caller": {"type": "direct"},
                "toolset_name": "t",
            },
            CallContent("a", "f", "{}", extra=raw({"toolset_name": "t"})),
        ),
        (
            {"type": "mcp_tool_use", "id": "a", "name": "f", "input": {}, "server_name": "s"},
            CallContent(
                "a",
                "f",
                "{}",
                kind="mcp_tool_use",
                provider_executed=True,
                extra=raw({"server_name": "s"}),
            ),
        ),
    ],
)
def test_an_assistant_block_is_parsed(block: Object, content: AnyContent) -> None:
    request = read(messages=[{"role": "assistant", "content": [block]}])
    assert request.messages == (Message("assistant", (content,)),)


def test_signatures_have_the_origin_of_the_context() -> None:
    block = {"type": "thinking", "thinking": "a", "signature": "s"}
    request = read(Context(origin="here"), messages=[{"role": "assistant", "content": [block]}])
    assert request.messages[0].content == (ReasoningContent("a", signature="s", origin="here"),)


def test_system_blocks_are_a_message_each_and_a_system_text_is_the_instructions() -> None:
    blocks = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    assert read(system=blocks).messages[0] == Message("system", (TextContent("a", cache="5m"),))
    assert read(system="a").instructions == "a"


def test_leading_system_messages_move_to_system() -> None:
    body = {**BARE, "messages": [{"role": "system", "content": "a"}, HI]}
    assert written(parse(body).request) == (
        {**BARE, "system": [{"type": "text", "text": "a"}]},
        [],
    )


def test_blocks_of_this_dialect_alone_are_rendered_as_they_came() -> None:
    use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    body = {
        **BARE,
        "system": " ",
        "messages": [
            {"role": "user", "content": [SEARCH_RESULT]},
            {"role": "assistant", "content": [use]},
        ],
        "tools": [TOOLSET],
        "mcp_servers": [SERVER, {**SERVER, "name": "b"}],
    }
    assert written(plain(parse(body).request)) == (body, [])


def test_unusual_values_of_this_dialect_are_rendered_as_they_came() -> None:
    """What a compatible server accepts is not for Weft to decide."""
    odd = {"type": "base64", "media_type": "application/x", "data": "AAAA"}
    body = {
        **BARE,
        "service_tier": "cheap",
        "metadata": {"user_id": "u" * 100},
        "thinking": {"type": "disabled", "display": "omitted"},
        "messages": [{"role": "user", "content": [{"type": "document", "source": odd}]}],
    }
    assert written(plain(parse(body).request)) == (body, [])


FIELDS: list[tuple[Object, Object]] = [
    ({"stop_sequences": ["a"]}, {"stop": ("a",)}),
    ({"temperature": 0.5, "top_p": 0.1, "top_k": 3}, {"sampling": Sampling(0.5, 0.1, 3)}),
    ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    ({"service_tier": "standard_only"}, {"service_tier": "default"}),
    ({"service_tier": "auto"}, {"service_tier": "auto"}),
    ({"stream": True}, {"stream": True}),
    ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"cache": "1h"}),
    ({"container": "c"}, {"extra": raw({"container": "c"})}),
    (
        {"output_config": {"effort": "low", "task_budget": 1}},
        {"reasoning": ReasoningOptions("low"), "extra": raw({"output_config.task_budget": 1})},
    ),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        {"output": OutputFormat("json-schema", schema=Raw(b"{}"))},
    ),
    ({"thinking": {"type": "disabled"}}, {"reasoning": ReasoningOptions("none")}),
    (
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
        {"reasoning": ReasoningOptions("none", extra=raw({"effort": "low"}))},
    ),
    (
        {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}},
        {"reasoning": ReasoningOptions(None, 2048, summary="none")},
    ),
    (
        {"thinking": {"type": "adaptive", "display": "summarized"}},
        {"reasoning": ReasoningOptions(adaptive=True, summary="auto")},
    ),
    (
        {"thinking": {"type": "between_tools"}},
        {"extra": raw({"thinking": {"type": "between_tools"}})},
    ),
    ({"tool_choice": {"type": "any"}}, {"tool_choice": ToolChoice("required")}),
    ({"tool_choice": {"type": "none"}}, {"tool_choice": ToolChoice("none")}),
    (
        {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
        {"tool_choice": ToolChoice("required", "f"), "parallel_tool_calls": False},
    ),
]


@pytest.mark.parametrize(("fields", "expected"), FIELDS)
def test_an_option_is_parsed(fields: Object, expected: Object) -> None:
    request = Request(
        "m",
        dialect=NAME,
        messages=(Message("user", (TextContent("hi"),)),),
        max_output_tokens=9,
        **expected,
    )
    assert read(**fields) == request
    assert written(request) == ({**BARE, **fields}, [])


SEARCH: Object = {
    "type": "web_search_20260209",
    "name": "web_search",
    "allowed_domains": ["a.example"],
    "max_uses": 3,
    "allowed_callers": ["direct"],
}
TOOLSET: Object = {
    "type": "mcp_toolset",
    "mcp_server_name": "s",
    "default_config": {"enabled": False},
    "configs": {"f": {"enabled": True}},
}
SERVER: Object = {"type": "url", "name": "s", "url": "https://a", "authorization_token": "t"}


def test_the_type_of_a_tool_decides_not_its_name() -> None:
    own = {"name": "web_search", "input_schema": {"type": "object"}, "strict": True}
    request = read(tools=[own, SEARCH, {"type": "bash_20250124", "name": "bash"}])
    assert request.tools == (
        Tool("web_search", parameters=raw({"type": "object"}), strict=True),
        Tool(
            "web_search",
            "web-search",
            hosted=Hosted(("a.example",), max_uses=3),
            raw=raw(SEARCH),
            origin=NAME,
            extra=Raw(b'{"allowed_callers":["direct"]}'),
        ),
        Tool(
            "bash", "bash_20250124", raw=raw({"type": "bash_20250124", "name": "bash"}), origin=NAME
        ),
    )


def test_an_mcp_server_and_its_toolset_are_one_tool() -> None:
    request = read(tools=[TOOLSET], mcp_servers=[SERVER, {**SERVER, "name": "b"}])
    hosted = Hosted(
        server_label="s", server_url="https://a", authorization="t", allowed_tools=("f",)
    )
    assert [tool.hosted for tool in request.tools] == [
        hosted,
        msgspec.structs.replace(hosted, server_label="b", allowed_tools=()),
    ]


@pytest.mark.parametrize(
    ("settings", "server", "allowed", "extra"),
    [
        ({"configs": {"f": {"enabled": False}}}, {}, (), {"configs": {"f": {"enabled": False}}}),
        ({"default_config": {"enabled": False}}, {}, (), {"configs": {"default": False}}),
        ({"default_config": {"enabled": True}}, {}, (), {}),
        ({}, {"tool_configuration": {"allowed_tools": ["g"]}}, ("g",), {}),
        ({"tools": [1]}, {}, (), {"tools": [1]}),
    ],
)
def test_the_allowed_tools_of_an_mcp_server_are_parsed(
    settings: Object, server: Object, allowed: tuple[str, ...], extra: Object
) -> None:
    toolset = {"type": "mcp_toolset", "mcp_server_name": "s", **settings}
    tool = read(tools=[toolset], mcp_servers=[{**SERVER, **server}]).tools[0]
    assert tool.hosted is not None
    assert tool.hosted.allowed_tools == allowed
    assert tool.extra == (raw(extra) if extra else UNSET)


def test_a_toolset_without_its_server_is_a_tool() -> None:
    toolset = {"type": "mcp_toolset", "mcp_server_name": "s"}
    request = read(tools=[toolset])
    assert request.tools[0].hosted == Hosted(server_label="s")
    assert written(request) == ({**BARE, "tools": [toolset]}, [])


BAD: list[tuple[Object, str]] = [
    ({"model": 1}, "model"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"messages": {}}, "messages"),
    ({"messages": [{"role": 1, "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0]"),
    (
        {"messages": [HI, {"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "messages[1].content[0].text",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": 1}}]}]},
        "messages[0].content[0].source.type",
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
                }
            ]
        },
        "messages[0].content[0].type",
    ),
    (
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}],
                }
            ]
        },
        "messages[0].content[0].input",
    ),
    ({"system": [{"type": 1}]}, "system[0].type"),
    (
        {"system": [{"type": "text", "text": "a", "cache_control": {"type": 1}}]},
        "system[0].cache_control.type",
    ),
    ({"tools": [{"name": "f"}]}, "tools[0]"),
    ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
    ({"tools": [{"type": "mcp_toolset"}]}, "tools[0]"),
    ({"mcp_servers": [SERVER, SERVER]}, "mcp_servers[1].name"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tool_choice": {"type": 1}}, "tool_choice.type"),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"output_config": {"effort": 1}}, "output_config.effort"),
    ({"thinking": {"type": "adaptive", "display": 1}}, "thinking.display"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": 1}}},
        "output_config.format.schema",
    ),
    ({"temperature": "hot"}, "temperature"),
    ({"stop_sequences": "a"}, "stop_sequences"),
]


@pytest.mark.parametrize(("fields", "path"), BAD)
def test_an_invalid_body_is_rejected_with_the_path(fields: Object, path: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse({**BARE, **fields})
    assert refused.value.path == path


def test_max_tokens_is_required() -> None:
    with pytest.raises(BadRequest) as refused:
        parse({"model": "m", "messages": [HI]})
    assert refused.value.reason == "object missing required field `max_tokens`"


@QUICK
@given(body=broken(bodies()) | JSON)
def test_any_json_is_parsed_or_rejected(body: Any) -> None:
    with suppress(BadRequest):
        request = parse(body).request
        json.loads(render(request)[0].body)
        json.loads(render(plain(request))[0].body)


@QUICK
@given(data=st.binary(max_size=40))
def test_bytes_that_are_not_json_are_rejected(data: bytes) -> None:
    with pytest.raises(BadRequest):
        REQUEST.parse(data, Context())


def test_a_body_that_is_nested_too_deeply_is_rejected() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(BadRequest):
        REQUEST.parse(b'{"model":"m","max_tokens":1,"messages":[],"x":' + deep + b"}", Context())


def test_losses_have_paths_in_the_body_of_the_client() -> None:
    body = {
        **BARE,
        "system": [{"type": "text", "text": "a"}],
        "tools": [{"name": "f", "input_schema": {}}],
        "mcp_servers": [SERVER],
    }
    places = parse(body).source_paths
    found = {
        path: places.source(path)
        for path in (
            "messages[0].content[0].cache",
            "messages[1].content[0]",
            "tools[0].parameters.x",
            "tools[1].hosted",
            "sampling.top_k",
            "max_output_tokens",
            "reasoning.budget_tokens",
        )
    }
    assert found == {
        "messages[0].content[0].cache": "system[0].cache",
        "messages[1].content[0]": "messages[0].content",
        "tools[0].parameters.x": "tools[0].input_schema.x",
        "tools[1].hosted": "mcp_servers[0].hosted",
        "sampling.top_k": "top_k",
        "max_output_tokens": "max_tokens",
        "reasoning.budget_tokens": "thinking.budget_tokens",
    }


# Writing for others

USER = Message("user", (TextContent("hi"),))


def other(*messages: Message, **fields: Any) -> Request:
    """A request of another dialect."""
    fields = {"dialect": "openai-chat", "max_output_tokens": 9, **fields}
    return Request("m", messages=messages or (USER,), **fields)


def adapted(path: str) -> tuple[str, str]:
    return path, "adapted"


def warned(path: str) -> tuple[str, str]:
    return path, "warned"


def refused(path: str) -> tuple[str, str]:
    return path, "refused"


def outcomes(losses: list[Loss]) -> list[tuple[str, str]]:
    return [(loss.path, loss.outcome) for loss in losses]


OPTIONS: list[tuple[Object, Object, list[tuple[str, str]]]] = [
    ({"stop": ("a",)}, {"stop_sequences": ["a"]}, []),
    ({"stop": (" ", "a")}, {"stop_sequences": ["a"]}, [adapted("stop")]),
    ({"stream": True}, {"stream": True}, []),
    ({"max_output_tokens": None}, {"max_tokens": 64000}, [adapted("max_output_tokens")]),
    (
        {"sampling": Sampling(0.5, 0.5, 3)},
        {},
        [warned("sampling.temperature"), warned("sampling.top_p"), warned("sampling.top_k")],
    ),
    (
        {"sampling": Sampling(seed=1, presence_penalty=1.0, frequency_penalty=1.0)},
        {},
        [
            warned("sampling.seed"),
            warned("sampling.presence_penalty"),
            warned("sampling.frequency_penalty"),
        ],
    ),
    ({"sampling": Sampling(logprobs=2)}, {}, [warned("sampling.logprobs")]),
    ({"sampling": Sampling(logit_bias=Raw(b"{}"))}, {}, [warned("sampling.logit_bias")]),
    ({"choices": 2}, {}, [refused("choices")]),
    ({"verbosity": "low"}, {}, [warned("verbosity")]),
    ({"prompt_cache_key": "k"}, {}, [warned("prompt_cache_key")]),
    ({"max_tool_calls": 1}, {}, [warned("max_tool_calls")]),
    ({"truncation": "auto"}, {}, [warned("truncation")]),
    ({"truncation": "disabled"}, {}, []),
    ({"previous_response_id": "r"}, {}, [refused("previous_response_id")]),
    ({"metadata": {"a": "b"}}, {}, [adapted("metadata")]),
    ({"user": "u"}, {"metadata": {"user_id": "u"}}, []),
    (
        {"user": "u", "safety_identifier": "s"},
        {"metadata": {"user_id": "s"}},
        [adapted("safety_identifier"), warned("user")],
    ),
    ({"service_tier": "default"}, {"service_tier": "standard_only"}, []),
    ({"service_tier": "flex"}, {}, [warned("service_tier")]),
    ({"cache": "1h"}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, []),
    ({"output": OutputFormat("json")}, {}, [warned("output")]),
    (
        {"output": OutputFormat("json-schema", "n", schema=Raw(b"{}"), strict=True)},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        [adapted("output.name"), adapted("output.strict")],
    ),
    ({"output": OutputFormat("json-schema")}, {}, [refused("output.schema")]),
    (
        {"output": OutputFormat("json-schema", schema=Raw(b"{}"), strict=False)},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
        [adapted("output.strict")],
    ),
    ({"reasoning": ReasoningOptions("none")}, {"thinking": {"type": "disabled"}}, []),
    (
        {"reasoning": ReasoningOptions("minimal")},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        [warned("reasoning.effort")],
    ),
    (
        {"reasoning": ReasoningOptions("max", summary="detailed")},
        {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "max"},
        },
        [adapted("reasoning.summary")],
    ),
    (
        {"reasoning": ReasoningOptions(budget_tokens=9000)},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        [adapted("reasoning.budget_tokens")],
    ),
    (
        {"reasoning": ReasoningOptions(budget_tokens=0)},
        {"thinking": {"type": "disabled"}},
        [adapted("reasoning")],
    ),
    (
        {"reasoning": ReasoningOptions("high", 1024)},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        [adapted("reasoning.budget_tokens")],
    ),
    ({"reasoning": ReasoningOptions(adaptive=True)}, {"thinking": {"type": "adaptive"}}, []),
    (
        {"extra": raw({"cachedContent": "c", "labels": {"a": "b"}, "nothing": None})},
        {},
        [refused("cachedContent"), warned("labels")],
    ),
]


@each_row("fields, sent, losses", OPTIONS)
def test_an_option_of_another_dialect_is_rendered(
    fields: Object, sent: Object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(**fields))
    assert body == {**BARE, **sent}
    assert outcomes(found) == losses


OLDER: list[tuple[Object, Object, Object, list[tuple[str, str]]]] = [
    (
        {"adaptive": False},
        {"reasoning": ReasoningOptions("low"), "max_output_tokens": 9000},
        {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 2048}},
        [adapted("reasoning.effort")],
    ),
    (
        {"adaptive": False},
        {"reasoning": ReasoningOptions(budget_tokens=100)},
        {"max_tokens": 1033, "thinking": {"type": "enabled", "budget_tokens": 1024}},
        [warned("reasoning.budget_tokens"), warned("max_output_tokens")],
    ),
    (
        {"adaptive": False, "most_tokens": 8000},
        {"reasoning": ReasoningOptions("max"), "max_output_tokens": 4000},
        {"max_tokens": 8000, "thinking": {"type": "enabled", "budget_tokens": 4000}},
        [adapted("reasoning.effort"), warned("max_output_tokens")],
    ),
    (
        {"adaptive": False, "most_tokens": 8000},
        {"reasoning": ReasoningOptions("high"), "max_output_tokens": 4000},
        {"max_tokens": 8000, "thinking": {"type": "enabled", "budget_tokens": 4000}},
        [adapted("reasoning.effort"), warned("max_output_tokens")],
    ),
    (
        {"adaptive": False},
        {"reasoning": ReasoningOptions(adaptive=True), "max_output_tokens": 9000},
        {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 8192}},
        [adapted("reasoning.effort")],
    ),
    (
        {"efforts": ("low", "medium", "high")},
        {"reasoning": ReasoningOptions("xhigh")},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        [warned("reasoning.effort")],
    ),
    (
        {"may_not_think": False},
        {"reasoning": ReasoningOptions("none")},
        {"thinking": {"type": "disabled"}},
        [refused("reasoning.effort")],
    ),
    (
        {"sampling": True},
        {"sampling": Sampling(1.5, 0.5, 3)},
        {"temperature": 1.0, "top_p": 0.5, "top_k": 3},
        [warned("sampling.temperature")],
    ),
    ({"sampling": True}, {"sampling": Sampling(0.5)}, {"temperature": 0.5}, []),
    (
        {"sampling": True},
        {"sampling": Sampling(0.5), "reasoning": ReasoningOptions("low")},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        [warned("sampling.temperature")],
    ),
    (
        {"most_tokens": 5},
        {},
        {"max_tokens": 5},
        [warned("max_output_tokens")],
    ),
    (
        {"cache_ttl": False},
        {"cache": "1h"},
        {"cache_control": {"type": "ephemeral"}},
        [warned("cache")],
    ),
]


@pytest.mark.parametrize(("accent", "fields", "sent", "losses"), OLDER)
def test_older_models_get_the_options_they_accept(
    accent: Object, fields: Object, sent: Object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(**fields), quirks(**accent))
    assert body == {**BARE, **sent}
    assert outcomes(found) == losses


@pytest.mark.parametrize(
    ("model", "takes", "limit"),
    [
        ("claude-3-haiku-20240307", True, 4096),
        ("claude-3-opus-latest", True, 4096),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", True, 8192),
        ("claude-3.5-haiku", True, 8192),
        ("claude-3-7-sonnet@20250219", True, 64_000),
        ("claude-opus-4-20250514", True, 32_000),
        ("eu.anthropic.claude-opus-4-1-20250805-v1:0", True, 32_000),
        ("claude-opus-4", True, 32_000),
        ("claude-opus-4.1", True, 32_000),
        ("claude-sonnet-4-20250514", True, 64_000),
        ("claude-haiku-4-5", True, 64_000),
        ("claude-sonnet-4-6", True, 64_000),
        ("claude-opus-4-5-20251101", True, 64_000),
        ("claude-opus-4-6", True, 64_000),
        ("claude-opus-4-7", False, 64_000),
        ("claude-opus-4.7", False, 64_000),
        ("claude-opus-4-10", False, 64_000),
        ("claude-sonnet-5", False, 64_000),
        ("claude-opus-5-20270101", False, 64_000),
        ("a-model-of-tomorrow", False, 64_000),
    ],
)
def test_sampling_and_the_limit_are_those_of_the_model(model: str, takes: bool, limit: int) -> None:
    drawn: Object = {"temperature": 0.5, "top_p": 0.9, "top_k": 3}
    asked = other(sampling=Sampling(**drawn), max_output_tokens=None)
    body, losses = written(msgspec.structs.replace(asked, model=model))
    assert body == {**BARE, "model": model, "max_tokens": limit, **(drawn if takes else {})}
    dropped = [] if takes else [warned(f"sampling.{key}") for key in drawn]
    assert outcomes(losses) == [adapted("max_output_tokens"), *dropped]
    assert losses[0].detail == f"anthropic-messages requires max_tokens; using {limit}"


def test_a_limit_above_that_of_the_model_is_lowered_and_the_quirks_have_the_last_word() -> None:
    asked = msgspec.structs.replace(other(max_output_tokens=9000), model="claude-3-5-haiku-latest")
    body, losses = written(asked)
    assert (body["max_tokens"], outcomes(losses)) == (8192, [warned("max_output_tokens")])
    body, losses = written(asked, quirks(most_tokens=9500))
    assert (body["max_tokens"], outcomes(losses)) == (9000, [])
    warm = msgspec.structs.replace(asked, sampling=Sampling(0.5), max_output_tokens=9)
    body, losses = written(warm, quirks(sampling=False))
    assert outcomes(losses) == [warned("sampling.temperature")]


def test_a_conversation_that_begins_with_the_assistant_gets_a_user_turn_first() -> None:
    said = Message("assistant", (TextContent("Hello. What is your name?"),))
    body, losses = written(other(said, USER))
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["content"] == "(The conversation begins with the assistant.)"
    assert outcomes(losses) == [adapted("messages[0]")]
    own: Object = {**BARE, "messages": [{"role": "assistant", "content": "Hello."}, HI]}
    assert written(parse(own).request) == (own, [])


def test_a_long_user_id_is_replaced_by_its_hash() -> None:
    body, losses = written(other(user="u" * 257))
    assert len(body["metadata"]["user_id"]) == 64
    assert outcomes(losses) == [warned("user")]


SCHEMA: Object = {"type": "object", "properties": {"a": {"type": "string"}}}
DECLARED: list[tuple[Tool, list[Object], list[tuple[str, str]]]] = [
    (
        Tool("f", description="d", parameters=raw(SCHEMA), strict=True, cache="5m"),
        [
            {
                "name": "f",
                "description": "d",
                "input_schema": SCHEMA,
                "strict": True,
                "cache_control": {"type": "ephemeral"},
            }
        ],
        [],
    ),
    (Tool("f"), [{"name": "f", "input_schema": {"type": "object", "properties": {}}}], []),
    (
        Tool("f", parameters=Raw(b'{"properties":{}}')),
        [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
        [adapted("tools[0].parameters")],
    ),
    (
        Tool("f", parameters=Raw(b'{"type":"string"}')),
        [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
        [refused("tools[0].parameters")],
    ),
    (
        Tool("f", parameters=raw(SCHEMA), namespace="ns"),
        [{"name": "ns__f", "input_schema": SCHEMA}],
        [adapted("tools[0].name")],
    ),
    (
        Tool("f", "custom", description="d"),
        [
            {
                "name": "f",
                "description": "d",
                "input_schema": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                },
            }
        ],
        [adapted("tools[0]")],
    ),
    (
        Tool(
            "f",
            "custom",
            raw=raw({"type": "custom", "format": {"type": "grammar", "definition": "g"}}),
        ),
        [
            {
                "name": "f",
                "description": "The text `input` matches this lark grammar:\ng",
                "input_schema": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                },
            }
        ],
        [adapted("tools[0]"), warned("tools[0].format")],
    ),
    (
        Tool(
            "f",
            "custom",
            raw=raw({"custom": {"format": {"type": "grammar", "grammar": {"definition": "g"}}}}),
        ),
        [
            {
                "name": "f",
                "description": "The text `input` matches this lark grammar:\ng",
                "input_schema": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                },
            }
        ],
        [adapted("tools[0]"), warned("tools[0].format")],
    ),
    (
        Tool(
            "s",
            "web-search",
            hosted=Hosted(
                ("a",), max_uses=2, context_size="low", location=raw({"type": "approximate"})
            ),
        ),
        [
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "allowed_domains": ["a"],
                "max_uses": 2,
                "user_location": {"type": "approximate"},
            }
        ],
        [warned("tools[0].hosted.context_size")],
    ),
    (
        Tool("c", "code-execution", extra=raw({"container": {"file_ids": ["f"]}})),
        [{"type": "code_execution_20250825", "name": "code_execution"}],
        [refused("tools[0].container")],
    ),
    (
        Tool("c", "code-execution", hosted=Hosted(max_uses=2)),
        [{"type": "code_execution_20250825", "name": "code_execution"}],
        [refused("tools[0].hosted.max_uses")],
    ),
    (
        Tool("w", "web-fetch", hosted=Hosted(location=Raw(b"{}"))),
        [{"type": "web_fetch_20250910", "name": "web_fetch"}],
        [refused("tools[0].hosted.location")],
    ),
    (Tool("s", "mcp", hosted=Hosted(server_label="s")), [], [refused("tools[0]")]),
    (Tool("w", "web-fetch"), [{"type": "web_fetch_20250910", "name": "web_fetch"}], []),
    (Tool("p", "apply_patch"), [], [refused("tools[0]")]),
    (
        Tool("f", parameters=raw(SCHEMA), extra=raw({"defer_loading": True, "unknown": 1})),
        [{"name": "f", "input_schema": SCHEMA}],
        [warned("tools[0].defer_loading"), warned("tools[0].unknown")],
    ),
]


@pytest.mark.parametrize(("tool", "sent", "losses"), DECLARED)
def test_a_tool_of_another_dialect_is_rendered(
    tool: Tool, sent: list[Object], losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(tools=(tool,)))
    assert body == {**BARE, **({"tools": sent} if sent else {})}
    assert outcomes(found) == losses


@pytest.mark.parametrize(
    ("approval", "loss"),
    [
        ({}, [warned("tools[0]")]),
        ({"require_approval": "never"}, []),
        ({"require_approval": "always"}, [refused("tools[0].require_approval")]),
    ],
)
def test_tools_of_an_mcp_server_run_without_approval(
    approval: Object, loss: list[tuple[str, str]]
) -> None:
    hosted = Hosted(
        server_label="s", server_url="https://a", authorization="t", allowed_tools=("f",)
    )
    tool = Tool("s", "mcp", hosted=hosted, extra=raw(approval))
    body, losses = written(other(tools=(tool,)))
    assert body == {**BARE, "tools": [TOOLSET], "mcp_servers": [SERVER]}
    assert outcomes(losses) == loss


def test_an_mcp_server_without_an_allowlist_offers_all_its_tools() -> None:
    hosted = Hosted(server_label="s", server_url="https://a")
    body, _ = written(other(tools=(Tool("s", "mcp", hosted=hosted),)))
    assert body["tools"] == [{"type": "mcp_toolset", "mcp_server_name": "s"}]


TOOLS = (Tool("f", parameters=raw(SCHEMA)), Tool("g", parameters=raw(SCHEMA)))
CHOICES: list[tuple[ToolChoice | None, bool | None, Object | None, list[tuple[str, str]]]] = [
    (None, None, None, []),
    (None, True, None, []),
    (None, False, {"type": "auto", "disable_parallel_tool_use": True}, []),
    (ToolChoice(), None, {"type": "auto"}, []),
    (ToolChoice("required"), None, {"type": "any"}, []),
    (ToolChoice("required"), False, {"type": "any", "disable_parallel_tool_use": True}, []),
    (ToolChoice("none"), False, {"type": "none"}, [adapted("parallel_tool_calls")]),
    (
        ToolChoice("required", "f", kind="custom"),
        None,
        {"type": "tool", "name": "f"},
        [],
    ),
    (ToolChoice("required", "f"), None, {"type": "tool", "name": "f"}, []),
]


@pytest.mark.parametrize(("choice", "parallel", "sent", "losses"), CHOICES)
def test_trap_19_the_choice_of_tools_keeps_its_meaning(
    choice: ToolChoice | None,
    parallel: bool | None,
    sent: Object | None,
    losses: list[tuple[str, str]],
) -> None:
    body, found = written(other(tools=TOOLS, tool_choice=choice, parallel_tool_calls=parallel))
    assert body.get("tool_choice") == sent
    assert len(body["tools"]) == 2
    assert outcomes(found) == losses


def test_only_the_allowed_tools_are_declared() -> None:
    choice = ToolChoice("required", allowed=("g",))
    body, losses = written(other(tools=TOOLS, tool_choice=choice))
    assert [tool["name"] for tool in body["tools"]] == ["g"]
    assert body["tool_choice"] == {"type": "any"}
    assert outcomes(losses) == [adapted("tools[0]"), warned("tool_choice.allowed")]


def test_a_hosted_tool_that_messages_has_can_be_forced() -> None:
    tools = (Tool("s", "web-search"),)
    body, losses = written(
        other(tools=tools, tool_choice=ToolChoice("required", kind="web-search"))
    )
    assert (body["tool_choice"], losses) == ({"type": "tool", "name": "web_search"}, [])
    _, losses = written(other(tools=tools, tool_choice=ToolChoice("required", "x", kind="shell")))
    assert outcomes(losses) == [refused("tool_choice")]


@pytest.mark.parametrize(
    ("fields", "loss"),
    [
        ({"tool_choice": ToolChoice("required")}, warned("tool_choice")),
        ({"tool_choice": ToolChoice("none")}, adapted("tool_choice")),
        ({"tool_choice": ToolChoice()}, None),
        ({"parallel_tool_calls": False}, adapted("parallel_tool_calls")),
    ],
)
def test_a_choice_without_tools_is_left_out(fields: Object, loss: tuple[str, str] | None) -> None:
    body, losses = written(other(**fields))
    assert body == BARE
    assert outcomes(losses) == ([loss] if loss else [])


# Conversations


def assistant(*contents: AnyContent) -> Message:
    return Message("assistant", contents)


def results(*contents: AnyContent) -> Message:
    return Message("tool", contents)


def said(*messages: Message, **accent: Any) -> tuple[list[Object], list[tuple[str, str]]]:
    body, losses = written(other(*messages), quirks(**accent))
    found: list[Object] = body["messages"]
    return found, outcomes(losses)


def block(content: AnyContent) -> tuple[list[Any], list[tuple[str, str]]]:
    """How one content of the user is written."""
    messages, losses = said(Message("user", (TextContent("a"), content)))
    return messages[0]["content"][1:], losses


CONTENTS: list[tuple[AnyContent, list[Object], list[tuple[str, str]]]] = [
    (
        TextContent("x", cache="5m"),
        [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        [],
    ),
    (TextContent("", extra=raw({"annotations": []})), [], [adapted("messages[0].content[1]")]),
    (
        TextContent("x", extra=raw({"annotations": [1], "logprobs": []})),
        [{"type": "text", "text": "x"}],
        [warned("messages[0].content[1].annotations")],
    ),
    (ImageContent("image/png", "AAAA"), [{"type": "image", "source": PNG}], []),
    (
        ImageContent("image/png", "AAAA", detail="high"),
        [{"type": "image", "source": PNG}],
        [warned("messages[0].content[1].detail")],
    ),
    (ImageContent("image/bmp", "AAAA"), [], [refused("messages[0].content[1]")]),
    (
        ImageContent(url="https://a"),
        [{"type": "image", "source": {"type": "url", "url": "https://a"}}],
        [],
    ),
    (
        ImageContent("image/png", url="https://a"),
        [{"type": "image", "source": {"type": "url", "url": "https://a"}}],
        [adapted("messages[0].content[1].media_type")],
    ),
    (ImageContent(file_id="f"), [], [refused("messages[0].content[1]")]),
    (
        FileContent("application/pdf", "JVBERi0=", filename="a.pdf"),
        [
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                "title": "a.pdf",
            }
        ],
        [],
    ),
    (
        FileContent(None, "JVBERi0="),
        [
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            }
        ],
        [],
    ),
    (
        FileContent("text/plain", b64encode(b"a").decode()),
        [
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a"},
            }
        ],
        [],
    ),
    (
        FileContent("text/csv", b64encode(b"a,b").decode()),
        [
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
            }
        ],
        [adapted("messages[0].content[1].media_type")],
    ),
    (
        FileContent(url="https://a"),
        [{"type": "document", "source": {"type": "url", "url": "https://a"}}],
        [],
    ),
    (FileContent("image/png", "AAAA"), [{"type": "image", "source": PNG}], []),
    (FileContent("audio/wav", "AAAA"), [], [refused("messages[0].content[1]")]),
    (FileContent("text/plain", "/w=="), [], [refused("messages[0].content[1]")]),
    (FileContent(file_id="f"), [], [refused("messages[0].content[1]")]),
    (OpaqueContent("gemini", "x", Raw(b"{}")), [], [refused("messages[0].content[1]")]),
]


@pytest.mark.parametrize(("content", "sent", "losses"), CONTENTS)
def test_a_content_of_another_dialect_is_rendered(
    content: AnyContent, sent: list[Object], losses: list[tuple[str, str]]
) -> None:
    assert block(content) == (sent, losses)


CALL = CallContent("call.1", "f", '{"a":1}')
ANSWER = ResultContent("call.1", (TextContent("x"),))


def test_trap_09_a_call_and_its_result_get_the_same_new_id() -> None:
    messages, losses = said(USER, assistant(CALL), results(ANSWER))
    spelled = messages[1]["content"][0]["id"]
    assert spelled == messages[2]["content"][0]["tool_use_id"] == "call_1_" + spelled[-8:]
    assert losses == [adapted("messages[1].content[0].id"), adapted("messages[2].content[0].id")]


def test_a_renamed_tool_has_its_new_name_everywhere() -> None:
    long = "n" * 100
    request = other(
        USER,
        assistant(CallContent("a", long, "{}")),
        results(ResultContent("a")),
        tools=(Tool(long),),
        tool_choice=ToolChoice("required", long),
    )
    rendered, _ = render(request)
    body = json.loads(rendered.body)
    spelled = body["tools"][0]["name"]
    assert len(spelled) == 64
    assert body["messages"][1]["content"][0]["name"] == spelled
    assert body["tool_choice"]["name"] == spelled
    assert rendered.names == {spelled: long}


def test_a_namespace_is_flattened_and_can_be_restored() -> None:
    request = other(
        USER,
        assistant(CallContent("a", "f", "{}", namespace="ns")),
        results(ResultContent("a")),
        tools=(Tool("f", namespace="ns"),),
        tool_choice=ToolChoice("required", "f"),
    )
    rendered, _ = render(request)
    body = json.loads(rendered.body)
    assert body["messages"][1]["content"][0]["name"] == "ns__f"
    assert body["tool_choice"] == {"type": "tool", "name": "ns__f"}
    assert rendered.names == {"ns__f": "ns.f"}


@pytest.mark.parametrize(
    ("call", "input", "losses"),
    [
        (CallContent("a", "f", '{"a": 1.50}'), {"a": 1.5}, []),
        (CallContent("a", "f", ""), {}, []),
        (
            CallContent("a", "f", '{"a":'),
            {"_raw": '{"a":'},
            [warned("messages[1].content[0].params")],
        ),
        (CallContent("a", "f", "[1]"), {"_raw": "[1]"}, [warned("messages[1].content[0].params")]),
        (
            CallContent("a", "f", "free", kind="custom", format="text"),
            {"input": "free"},
            [adapted("messages[1].content[0].params")],
        ),
        (
            CallContent("a", "f", "{}", item_id="i", signature="s"),
            {},
            [
                adapted("messages[1].content[0].signature"),
                adapted("messages[1].content[0].item_id"),
            ],
        ),
    ],
)
def test_arguments_of_another_dialect_become_an_object(
    call: CallContent, input: Object, losses: list[tuple[str, str]]
) -> None:
    messages, found = said(USER, assistant(call), results(ResultContent("a")))
    assert messages[1]["content"] == [{"type": "tool_use", "id": "a", "name": "f", "input": input}]
    assert found == losses


def test_trap_11_results_are_first_and_together() -> None:
    calls = assistant(CallContent("a", "f", "{}"), CallContent("b", "f", "{}"))
    messages, losses = said(
        USER,
        calls,
        results(ResultContent("b", (TextContent("2"),))),
        Message("user", (TextContent("and"),)),
        results(ResultContent("a", (TextContent("1"),))),
    )
    assert messages[2:] == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                {"type": "text", "text": "and"},
            ],
        }
    ]
    assert [loss for loss in losses if loss[1] == "refused"] == []


def test_trap_12_an_image_in_a_result_stays_an_image() -> None:
    answer = ResultContent("a", (TextContent("see"), ImageContent("image/png", "AAAA")))
    messages, losses = said(USER, assistant(CallContent("a", "f", "{}")), results(answer))
    assert messages[2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": [{"type": "text", "text": "see"}, {"type": "image", "source": PNG}],
        }
    ]
    assert losses == []


def test_trap_13_a_failed_result_is_an_error() -> None:
    answer = ResultContent("a", (TextContent("no"),), is_error=True)
    messages, losses = said(USER, assistant(CallContent("a", "f", "{}")), results(answer))
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True}
    ]
    assert losses == []


def test_neighbours_of_one_role_become_one_message() -> None:
    messages, losses = said(USER, Message("user", (TextContent("you"),)))
    assert messages == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "you"}],
        }
    ]
    assert losses == []


def test_an_empty_message_is_left_out() -> None:
    messages, losses = said(USER, assistant(TextContent(""), TextContent(" ")), USER)
    assert [message["role"] for message in messages] == ["user"]
    assert losses == [adapted("messages[1].content[1]")]


LATE = Message("developer", (TextContent("be brief"),))


def test_leading_instructions_are_a_block_each() -> None:
    system = Message("system", (TextContent("a", cache="5m"),))
    body, losses = written(other(system, LATE, USER, instructions="first"))
    assert body["system"] == [
        {"type": "text", "text": "first"},
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "be brief"},
    ]
    assert body["messages"] == [HI]
    assert outcomes(losses) == [adapted("messages[1].role")]


def test_instructions_that_are_not_text_are_refused() -> None:
    system = Message("system", (ImageContent(url="u"), TextContent("\n")))
    body, losses = written(other(system, USER))
    assert "system" not in body
    assert outcomes(losses) == [
        refused("messages[0].content[0]"),
        adapted("messages[0].content[1]"),
    ]


def test_a_call_of_a_kind_that_messages_does_not_have_is_refused() -> None:
    shell = CallContent("a", "shell", "{}", kind="local_shell_call")
    _, losses = said(USER, assistant(shell), results(ResultContent("a")))
    assert refused("messages[1].content[0]") in losses


def test_blank_instructions_are_left_out() -> None:
    body, losses = written(other(USER, instructions=" "))
    assert body == BARE
    assert outcomes(losses) == [adapted("instructions")]


def test_instructions_alone_are_a_string() -> None:
    body, losses = written(other(USER, instructions="first"))
    assert (body["system"], losses) == ("first", [])


def test_trap_20_late_instructions_stay_where_they_are() -> None:
    messages, losses = said(USER, LATE, USER)
    assert messages == [HI, {"role": "system", "content": "be brief"}, HI]
    assert losses == [adapted("messages[1].role")]


def test_late_instructions_become_user_text_if_the_host_rejects_them() -> None:
    calls = assistant(CallContent("a", "f", "{}"))
    messages, losses = said(USER, calls, results(ResultContent("a")), LATE, USER, late_system=False)
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a"},
        {"type": "text", "text": "<system-instruction>\nbe brief\n</system-instruction>"},
        {"type": "text", "text": "hi"},
    ]
    assert losses == [warned("messages[3]")]


def test_late_instructions_of_this_dialect_become_user_text_too_if_the_host_rejects_them() -> None:
    body = {**BARE, "messages": [HI, {"role": "system", "content": "a"}]}
    sent, losses = written(parse(body).request, quirks(late_system=False))
    told = "<system-instruction>\na\n</system-instruction>"
    assert sent["messages"] == [HI, {"role": "user", "content": told}]
    assert outcomes(losses) == [warned("messages[1]")]


def test_only_a_request_of_this_dialect_may_end_with_the_assistant() -> None:
    prefill = [HI, {"role": "assistant", "content": "I"}]
    assert written(parse({**BARE, "messages": prefill}).request)[1] == []
    _, losses = said(USER, assistant(TextContent("I")))
    assert losses == [refused("messages[1]")]


def test_a_request_without_messages_is_refused() -> None:
    assert said(Message("system", (TextContent("a"),)))[1] == [refused("messages")]


def test_images_of_the_assistant_move_to_the_user() -> None:
    shown = assistant(TextContent("see"), ImageContent("image/png", "AAAA"))
    messages, losses = said(USER, shown, USER)
    assert messages[1:] == [
        {"role": "assistant", "content": "see"},
        {
            "role": "user",
            "content": [{"type": "image", "source": PNG}, {"type": "text", "text": "hi"}],
        },
    ]
    assert losses == [warned("messages[1].content[1]")]


def test_names_refusals_and_tools_that_other_hosts_ran_are_losses() -> None:
    messages, losses = said(
        Message("user", (TextContent("hi"),), name="ann"),
        assistant(
            TextContent("no", refusal=True),
            CallContent("s", "search", "{}", kind="web_search_call", provider_executed=True),
            OpaqueContent("openai-responses", "web_search_call_x", Raw(b"{}")),
            ResultContent("s", (TextContent("found"),)),
        ),
        USER,
    )
    assert messages[1] == {"role": "assistant", "content": [{"type": "text", "text": "no"}]}
    assert losses == [
        warned("messages[0].name"),
        warned("messages[1].content[0].refusal"),
        warned("messages[1].content[1]"),
        warned("messages[1].content[2]"),
        warned("messages[1].content[3]"),
    ]


# Reasoning


def thought(content: ReasoningContent, context: Context | None = None) -> tuple[Any, list[Any]]:
    request = other(USER, assistant(content, TextContent("a")), USER)
    body, losses = written(request, context)
    return body["messages"][1]["content"][:-1], outcomes(losses)


LOST = [warned("messages[1].content[0]")]


@pytest.mark.parametrize(
    ("content", "context", "sent"),
    [
        (
            ReasoningContent("", signature="s", origin=NAME),
            Context(),
            [{"type": "thinking", "thinking": "", "signature": "s"}],
        ),
        (
            ReasoningContent(redacted="d", origin=NAME),
            Context(),
            [{"type": "redacted_thinking", "data": "d"}],
        ),
        (
            ReasoningContent("a", signature="s", origin="here"),
            Context(origin="here"),
            [{"type": "thinking", "thinking": "a", "signature": "s"}],
        ),
        (ReasoningContent("a", signature="s", origin=NAME), Context(origin="here"), []),
        (ReasoningContent("a", signature="s", origin="gemini"), Context(), []),
        (ReasoningContent("a", encrypted="e", origin=NAME), Context(), []),
        (ReasoningContent("a"), Context(), []),
        (ReasoningContent("a", signature=""), Context(), []),
    ],
)
def test_traps_01_and_02_a_signature_goes_back_to_its_origin_only(
    content: ReasoningContent, context: Context, sent: list[Object]
) -> None:
    assert thought(content, context) == (sent, [] if sent else LOST)


def test_trap_03_the_signature_of_another_origin_is_unwrapped() -> None:
    proof = ReasoningState(encrypted="e", item_id="rs_1")
    envelope = wrap(Envelope("openai-responses", "m", proof))
    history = [
        HI,
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "a", "signature": envelope}],
        },
        HI,
    ]
    request = parse({**BARE, "messages": history}).request
    assert request.messages[1].content == (
        ReasoningContent("a", item_id="rs_1", encrypted="e", origin="openai-responses"),
    )
    rendered, losses = render(request)
    assert envelope.encode() not in rendered.body
    assert b"thinking" not in rendered.body
    assert outcomes(losses) == LOST


def test_a_loss_in_one_message_leaves_all_other_bytes_unchanged() -> None:
    envelope = wrap(Envelope("openai-responses", "m", ReasoningState(encrypted="e")))
    foreign = {"type": "thinking", "thinking": "a", "signature": envelope}
    body = {
        **BARE,
        "system": [{"type": "text", "text": "s"}],
        "tools": [{"type": "custom", "name": "n" * 128, "input_schema": {"type": "object"}}],
        "messages": [
            HI,
            {"role": "assistant", "content": [foreign, {"type": "text", "text": "b"}]},
        ],
    }
    sent, losses = written(parse(body).request)
    lone = {"role": "assistant", "content": [{"type": "text", "text": "b"}]}
    assert sent == {**body, "messages": [HI, lone]}
    assert outcomes(losses) == [warned("messages[2].content[0]")]


def test_thinking_with_a_budget_is_disabled_if_the_thinking_before_a_call_is_dropped() -> None:
    envelope = wrap(Envelope("openai-responses", "m", ReasoningState(encrypted="e")))
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    body = {
        **BARE,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [
            HI,
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "a", "signature": envelope}, use],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
        ],
    }
    sent, losses = written(parse(body).request)
    assert sent["thinking"] == {"type": "disabled"}
    assert outcomes(losses) == [*LOST, warned("reasoning")]


def test_the_signature_of_a_call_comes_out_of_the_block_before_it() -> None:
    """What is left has the places that it had in the body."""
    envelope = wrap(Envelope("elsewhere", "m", ReasoningState("s", call="b")))
    uses: list[Object] = [
        {"type": "tool_use", "id": id, "name": "f", "input": {}} for id in ("a", "b")
    ]
    history = [
        HI,
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": envelope}, *uses]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id} for id in "ab"]},
    ]
    found = parse({**BARE, "messages": history})
    assert found.request.messages[1].content == (
        CallContent("a", "f", "{}"),
        CallContent("b", "f", "{}", signature="s", origin="elsewhere"),
    )
    assert found.source_paths.source("messages[1].content[1].id") == "messages[1].content[2].id"
    sent, losses = written(found.request)
    assert sent["messages"][1]["content"] == uses
    assert outcomes(losses) == [adapted("messages[1].content[1].signature")]


def test_a_wrapped_signature_of_this_origin_is_sent_unwrapped() -> None:
    envelope = wrap(Envelope(NAME, "m", ReasoningState(redacted="d")))
    history = [
        HI,
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": envelope}]},
        HI,
    ]
    sent, losses = written(parse({**BARE, "messages": history}).request)
    assert sent["messages"][1]["content"] == [{"type": "redacted_thinking", "data": "d"}]
    assert losses == []


def test_thinking_is_disabled_if_some_was_dropped_and_the_last_step_has_none() -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "unsigned"}]},
            {"role": "user", "content": "b"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
        ],
    }
    sent, losses = written(parse(body).request)
    assert sent["thinking"] == {"type": "disabled"}
    assert [loss.path for loss in losses] == ["messages[1].content[0]", "reasoning"]


def test_unsigned_thinking_is_sent_only_to_a_host_that_accepts_it() -> None:
    history = [
        HI,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "a", "signature": ""},
                {"type": "text", "text": "b"},
            ],
        },
        HI,
    ]
    body = {**BARE, "messages": history}
    assert outcomes(written(parse(body).request)[1]) == LOST
    assert written(parse(body).request, quirks(unsigned_thinking=True)) == (body, [])


def test_thinking_with_a_budget_is_disabled_for_calls_of_another_upstream() -> None:
    calls = assistant(ReasoningContent("a", origin="x", signature="s"), CallContent("a", "f", "{}"))
    request = other(
        USER,
        calls,
        results(ResultContent("a")),
        reasoning=ReasoningOptions(budget_tokens=1024),
        max_output_tokens=9000,
    )
    body, losses = written(request, quirks(adaptive=False))
    assert body["thinking"] == {"type": "disabled"}
    assert warned("reasoning") in outcomes(losses)


def test_thinking_with_a_budget_stays_enabled_if_the_thinking_before_a_call_is_there() -> None:
    calls = assistant(
        ReasoningContent("a", origin=NAME, signature="s"), CallContent("a", "f", "{}")
    )
    request = other(
        USER,
        calls,
        results(ResultContent("a")),
        reasoning=ReasoningOptions(budget_tokens=1024),
        max_output_tokens=9000,
    )
    body, losses = written(request, quirks(adaptive=False))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert losses == []


def test_a_tool_cannot_be_forced_while_thinking_has_a_budget() -> None:
    request = other(
        tools=TOOLS,
        tool_choice=ToolChoice("required"),
        reasoning=ReasoningOptions(budget_tokens=1024),
        max_output_tokens=9000,
    )
    assert outcomes(written(request, quirks(adaptive=False))[1]) == [refused("tool_choice")]
    assert outcomes(written(request)[1]) == [adapted("reasoning.budget_tokens")]


# What others ask, all of it

ALTERNATING = {"user": "assistant", "assistant": "user"}


@QUICK
@given(body=requests_gemini.bodies())
def test_a_request_of_another_dialect_becomes_a_legal_conversation(body: Object) -> None:
    request = GENERATE_CONTENT.parse(json.dumps(body).encode(), Context()).request
    sent, losses = written(request)
    roles = [message["role"] for message in sent["messages"]]
    assert all(one != next for one, next in pairwise(roles))
    for before, message in pairwise([{"content": ""}, *sent["messages"]]):
        called = [one["id"] for one in blocks_of(before) if one["type"] == "tool_use"]
        answered = [one for one in blocks_of(message) if one["type"] == "tool_result"]
        if message["role"] == "user" and not any(loss.outcome == "refused" for loss in losses):
            assert [one["tool_use_id"] for one in answered] == called
            assert blocks_of(message)[: len(answered)] == answered
    assert "thoughtSignature" not in json.dumps(sent)


def blocks_of(message: Object) -> list[Object]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


# The official client

ASKED: Object = {
    "model": "m",
    "max_tokens": 4096,
    "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        HI,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}, SEARCH],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "stop_sequences": ["a"],
    "metadata": {"user_id": "u"},
}


def test_a_request_of_the_official_client_is_parsed_and_rendered_as_it_came() -> None:
    with (
        listening() as (url, asked),
        anthropic_client(url) as client,
        pytest.raises(anthropic.BadRequestError),
    ):
        client.messages.create(**ASKED)
    assert written(REQUEST.parse(asked[0], Context()).request) == (ASKED, [])


SHAPE: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsNonStreaming)


def exhaust(value: object) -> None:
    """The client's own check is lazy: it looks at a list when it is read."""
    if isinstance(value, dict):
        for one in value.values():
            exhaust(one)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for one in value:
            exhaust(one)


@FEW
@given(body=requests_gemini.bodies())
def test_a_request_of_another_dialect_fits_the_official_types(body: Object) -> None:
    request = GENERATE_CONTENT.parse(json.dumps(body).encode(), Context()).request
    sent, _ = written(msgspec.structs.replace(request, model="m"))
    exhaust(SHAPE.validate_python(sent))


CRITIC = {"role": "critic", "content": [{"type": "text", "text": "y"}]}
RESULTS = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]}
UNKNOWN_ROLES: dict[str, tuple[list[Object], str]] = {
    "in the last message": ([CRITIC], "enabled"),
    "with content that is no text": ([{"role": "critic", "content": 7}], "enabled"),
    "before results": ([CRITIC, RESULTS], "disabled"),
    "with results": ([{**RESULTS, "role": "critic"}], "enabled"),
}


@pytest.mark.parametrize("place", UNKNOWN_ROLES)
def test_a_role_that_only_the_upstream_knows_reaches_it(place: str) -> None:
    """Also where something else is adapted, and the thinking of the last turn matters."""
    messages, thinking = UNKNOWN_ROLES[place]
    body: Object = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tools": [{"name": "a.b", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "x"}, *messages],
    }
    converted = weft.convert_request(
        json.dumps(body).encode(), source="anthropic-messages", target="anthropic-messages"
    )
    sent = json.loads(converted.body)
    assert sent["messages"] == body["messages"]
    assert sent["thinking"]["type"] == thinking


def test_efforts_may_be_a_list() -> None:
    request = other(Message("user", (TextContent("x"),)))
    both = [render(request, quirks(efforts=one)) for one in (["low", "high"], ("low", "high"))]
    assert both[0] == both[1]
