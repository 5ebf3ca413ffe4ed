"""Requests of generateContent: read, written back as they came, and written for others."""

import json
from base64 import b64encode
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests import requests_anthropic_messages
from tests.breaking import broken
from tests.request_codecs import CodecUnderTest, Object, plain, raw
from tests.requests_gemini import bodies
from tests.strategies import JSON, QUICK
from weft.context import Context
from weft.dialects.anthropic_messages.request import REQUEST as MESSAGES
from weft.dialects.envelope import Envelope, ReasoningState, to_base64, wrap
from weft.dialects.gemini.quirks import GeminiQuirks
from weft.dialects.gemini.request import REQUEST
from weft.dialects.requests.codec import Loss, Losses
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

NAME = "gemini"
SKIP = "skip_thought_signature_validator"
HI: Object = {"role": "user", "parts": [{"text": "hi"}]}
BARE: Object = {"contents": [HI]}
PNG: Object = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}


CODEC = CodecUnderTest(REQUEST, BARE)
parse, read, render, written = CODEC.parse, CODEC.read, CODEC.render, CODEC.written


def quirks(**fields: Any) -> Context:
    return Context(quirks=GeminiQuirks(**fields))


# The same dialect on both sides


@QUICK
@given(body=bodies())
def test_a_request_of_this_dialect_is_sent_as_it_came(body: Object) -> None:
    assert written(parse(body).request) == (body, [])


@QUICK
@given(body=bodies())
def test_a_body_rendered_from_the_fields_parses_to_the_same_request(body: Object) -> None:
    """Schemas become JSON Schema, what is the default is left out; nothing else changes."""
    request = plain(parse(body).request)
    again, losses = written(request)
    assert losses == []
    assert plain(parse(again).request) == request


def test_key_order_and_number_formats_are_kept() -> None:
    body = (
        b'{"generationConfig":{"topK":40.0,"temperature":1},"contents":[{"parts":[{"functionCall":'
        b'{"args":{"b":1.50,"a":1e2},"name":"f"}}],"role":"model"}],"tools":[{"functionDeclarations"'
        b':[{"name":"f","parameters":{"type":"OBJECT","properties":{"a":{"type":"NUMBER"}}}}]}]}'
    )
    assert render(REQUEST.parse(body, Context()).request)[0].body == body


def test_model_and_stream_are_in_the_url_not_in_the_body() -> None:
    request = parse({**BARE, "model": "models/m"}).request
    assert request.model == "models/m"
    assert parse(BARE).request.model == ""
    filled = msgspec.structs.replace(parse(BARE).request, model="m", stream=True)
    assert written(request) == written(filled) == (BARE, [])


def test_an_edit_changes_only_what_it_touches() -> None:
    body: Object = {
        "contents": [{"parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}],
        "generationConfig": {"topK": 3},
    }
    request = parse(body).request
    more = (*request.messages, Message("assistant", (TextContent("yes"),)))
    edited = msgspec.structs.replace(request, messages=more, max_output_tokens=5)
    assert written(edited) == (
        {
            **body,
            "contents": [*body["contents"], {"role": "model", "parts": [{"text": "yes"}]}],
            "generationConfig": {"topK": 3, "maxOutputTokens": 5},
        },
        [],
    )


def test_keys_in_snake_case_are_read_and_arguments_are_left_alone() -> None:
    snake = {
        "system_instruction": {"parts": [{"text": "be"}]},
        "contents": [
            {
                "role": "model",
                "parts": [
                    {
                        "function_call": {"name": "f", "args": {"mime_type": 1}},
                        "thought_signature": "c2ln",
                    }
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"function_response": {"name": "f", "response": {"file_data": 1}}},
                    {"inline_data": {"mime_type": "image/png", "data": "AAAA"}},
                ],
            },
        ],
        "tools": [
            {
                "function_declarations": [
                    {"name": "f", "parameters_json_schema": {"type": "object"}}
                ]
            },
            {"google_search": {"exclude_domains": ["a"]}},
        ],
        "tool_config": {
            "function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}
        },
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_budget": 1}},
    }
    camel = {
        "systemInstruction": {"parts": [{"text": "be"}]},
        "contents": [
            {
                "role": "model",
                "parts": [
                    {
                        "functionCall": {"name": "f", "args": {"mime_type": 1}},
                        "thoughtSignature": "c2ln",
                    }
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "f", "response": {"file_data": 1}}},
                    PNG,
                ],
            },
        ],
        "tools": [
            {"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]},
            {"googleSearch": {"excludeDomains": ["a"]}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"maxOutputTokens": 5, "thinkingConfig": {"thinkingBudget": 1}},
    }
    one, other = plain(parse(snake).request), plain(parse(camel).request)
    assert [tool.hosted for tool in one.tools] == [tool.hosted for tool in other.tools]
    unraw = {"tools": ()}
    assert msgspec.structs.replace(one, **unraw) == msgspec.structs.replace(other, **unraw)


# Reading

READ: list[tuple[Object, AnyContent]] = [
    ({"text": "a"}, TextContent("a")),
    (
        {"text": "", "thoughtSignature": "c2ln"},
        TextContent("", extra=raw({"thoughtSignature": "c2ln"})),
    ),
    ({"text": "a", "thought": True}, ReasoningContent("a", "summary")),
    (
        {"text": "a", "thought": True, "thoughtSignature": "c2ln"},
        ReasoningContent("a", "summary", signature="c2ln", origin=NAME),
    ),
    (PNG, ImageContent("image/png", "AAAA")),
    (
        {**PNG, "mediaResolution": {"level": "MEDIA_RESOLUTION_HIGH"}},
        ImageContent("image/png", "AAAA", detail="high"),
    ),
    (
        {**PNG, "mediaResolution": {"level": "MEDIA_RESOLUTION_MEDIUM"}},
        ImageContent(
            "image/png",
            "AAAA",
            extra=raw({"mediaResolution": {"level": "MEDIA_RESOLUTION_MEDIUM"}}),
        ),
    ),
    (
        {**PNG, "mediaResolution": "HIGH"},
        ImageContent("image/png", "AAAA", extra=raw({"mediaResolution": "HIGH"})),
    ),
    (
        {"inlineData": {"mimeType": "audio/wav", "data": "AAAA", "displayName": "a"}},
        FileContent("audio/wav", "AAAA", filename="a"),
    ),
    (
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.example/v.mp4"}},
        FileContent("video/mp4", url="https://a.example/v.mp4"),
    ),
    (
        {"fileData": {"fileUri": "https://a.example/v1beta/files/x"}},
        FileContent(file_id="https://a.example/v1beta/files/x"),
    ),
    ({"fileData": {"fileUri": "gs://a/b"}}, FileContent(file_id="gs://a/b")),
    (
        {"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
        CallContent("c", "f", '{"a":1}', signature="c2ln", origin=NAME),
    ),
    ({"functionCall": {"name": "f"}}, CallContent("call_unnamed_0", "f", "{}")),
    (
        {"executableCode": {"code": "1"}},
        OpaqueContent(NAME, "executableCode", raw({"executableCode": {"code": "1"}})),
    ),
    ({"thoughtSignature": "c2ln"}, OpaqueContent(NAME, "part", raw({"thoughtSignature": "c2ln"}))),
]


@pytest.mark.parametrize(("part", "content"), READ)
def test_a_part_is_parsed(part: Object, content: AnyContent) -> None:
    request = read(contents=[{"role": "model", "parts": [part]}])
    assert request.messages == (Message("assistant", (content,)),)


RESULTS: list[tuple[Object, ResultContent]] = [
    ({"response": {"output": "x"}}, ResultContent("c", (TextContent("x"),), name="f")),
    ({"response": {"output": ""}}, ResultContent("c", name="f")),
    (
        {"response": {"error": "x"}},
        ResultContent("c", (TextContent("x"),), name="f", is_error=True),
    ),
    (
        {"response": {"error": {"a": 1}}},
        ResultContent("c", (TextContent('{"error":{"a":1}}'),), name="f", is_error=True),
    ),
    ({"response": {"result": 5}}, ResultContent("c", (TextContent('{"result":5}'),), name="f")),
    (
        {"response": {"output": '{"a":1}'}},
        ResultContent("c", (TextContent('{"output":"{\\"a\\":1}"}'),), name="f"),
    ),
    (
        {"response": {"output": "x"}, "parts": [PNG]},
        ResultContent("c", (TextContent("x"), ImageContent("image/png", "AAAA")), name="f"),
    ),
    (
        {"response": {"output": "x"}, "parts": [PNG, {"text": "y"}]},
        ResultContent(
            "c",
            (TextContent("x"), ImageContent("image/png", "AAAA")),
            name="f",
            extra=raw({"functionResponse.parts": [PNG, {"text": "y"}]}),
        ),
    ),
    (
        {"response": {"output": "x"}, "willContinue": True},
        ResultContent(
            "c",
            (TextContent("x"),),
            name="f",
            extra=raw({"functionResponse.willContinue": True}),
        ),
    ),
]


@pytest.mark.parametrize(("result", "content"), RESULTS)
def test_a_result_is_parsed_and_rendered_as_it_was(result: Object, content: ResultContent) -> None:
    part = {"functionResponse": {"id": "c", "name": "f", **result}}
    request = read(contents=[{"role": "user", "parts": [part]}])
    assert request.messages == (Message("user", (content,)),)
    assert written(request)[0]["contents"] == [{"role": "user", "parts": [part]}]


def answered(*calls: str, given: list[Object]) -> list[tuple[str, str]]:
    """The calls of one step and what their results are paired to: (id, text)."""
    asked = [{"functionCall": {"name": name}} for name in calls]
    told = [
        {"functionResponse": {"response": {"output": str(place)}, **one}}
        for place, one in enumerate(given)
    ]
    contents = [{"role": "model", "parts": asked}, {"role": "user", "parts": told}]
    found = []
    for content in read(contents=contents).messages[1].content:
        assert isinstance(content, ResultContent)
        said = content.content[0]
        assert isinstance(said, TextContent)
        found.append((content.id, said.text))
    return found


def test_traps_05_and_06_results_without_ids_are_matched_by_name_then_by_order() -> None:
    assert answered("f", "g", "f", given=[{"name": "g"}, {"name": "f"}, {"name": "f"}]) == [
        ("call_unnamed_1", "0"),
        ("call_unnamed_0", "1"),
        ("call_unnamed_2", "2"),
    ]
    assert answered("f", given=[{"name": "f"}, {"name": "f"}]) == [
        ("call_unnamed_0", "0"),
        ("", "1"),
    ]


THINKING = "generationConfig.thinkingConfig"
FIELDS: list[tuple[Object, Object]] = [
    (
        {
            "generationConfig": {
                "temperature": 0.5,
                "topP": 0.1,
                "topK": 3,
                "presencePenalty": 0.2,
                "frequencyPenalty": 0.3,
                "seed": 7,
                "responseLogprobs": True,
                "logprobs": 2,
            }
        },
        {"sampling": Sampling(0.5, 0.1, 3, 0.2, 0.3, 7, 2)},
    ),
    ({"generationConfig": {"maxOutputTokens": 5}}, {"max_output_tokens": 5}),
    ({"generationConfig": {"stopSequences": ["a"]}}, {"stop": ("a",)}),
    ({"generationConfig": {"candidateCount": 2}}, {"choices": 2}),
    (
        {"generationConfig": {"responseMimeType": "application/json"}},
        {"output": OutputFormat("json")},
    ),
    (
        {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {}}},
        {"output": OutputFormat("json-schema", schema=Raw(b"{}"))},
    ),
    (
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}}},
        {"reasoning": ReasoningOptions("low", summary="auto")},
    ),
    (
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False}}},
        {"reasoning": ReasoningOptions(budget_tokens=0, summary="none")},
    ),
    (
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": -1}}},
        {"reasoning": ReasoningOptions(adaptive=True)},
    ),
    (
        {"generationConfig": {"speechConfig": {"a": 1}}},
        {"extra": raw({"generationConfig.speechConfig": {"a": 1}})},
    ),
    (
        {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
        {"tool_choice": ToolChoice()},
    ),
    (
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        {"tool_choice": ToolChoice("required")},
    ),
    (
        {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
        {"tool_choice": ToolChoice("none")},
    ),
    (
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}},
        {"tool_choice": ToolChoice("required", "f")},
    ),
    (
        {
            "toolConfig": {
                "functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f", "g"]}
            }
        },
        {"tool_choice": ToolChoice("auto", allowed=("f", "g"))},
    ),
    (
        {"toolConfig": {"retrievalConfig": {"languageCode": "de"}}},
        {"extra": raw({"toolConfig.retrievalConfig": {"languageCode": "de"}})},
    ),
    ({"safetySettings": [1]}, {"extra": raw({"safetySettings": [1]})}),
]


@pytest.mark.parametrize(("fields", "expected"), FIELDS)
def test_a_field_is_parsed_and_rendered_as_it_was(fields: Object, expected: Object) -> None:
    messages = (Message("user", (TextContent("hi"),)),)
    request = Request("", dialect=NAME, messages=messages, **expected)
    assert read(**fields) == request
    assert written(request) == ({**BARE, **fields}, [])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"responseModalities": ["TEXT"]}, {}),
        ({"responseLogprobs": True}, {"sampling": Sampling(logprobs=0)}),
        (
            {"thinkingConfig": {"thinkingLevel": "LEVEL_OF_TOMORROW"}},
            {
                "reasoning": ReasoningOptions(),
                "extra": raw(
                    {"generationConfig.thinkingConfig.thinkingLevel": "LEVEL_OF_TOMORROW"}
                ),
            },
        ),
        (
            {"responseMimeType": "text/y"},
            {"extra": raw({"generationConfig.responseMimeType": "text/y"})},
        ),
        ({"responseMimeType": "text/plain"}, {}),
        ({"thinkingConfig": {"thinkingLevel": "high"}}, {"reasoning": ReasoningOptions("high")}),
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}},
            {"output": OutputFormat("json-schema", schema=raw({"type": "string"}))},
        ),
        (
            {"responseMimeType": "text/x.enum", "responseSchema": {"enum": ["a"]}},
            {
                "extra": raw(
                    {
                        "generationConfig.responseMimeType": "text/x.enum",
                        "generationConfig.responseSchema": {"enum": ["a"]},
                    }
                )
            },
        ),
        (
            {"responseMimeType": "text/x.enum", "responseJsonSchema": {"enum": ["a"]}},
            {
                "extra": raw(
                    {
                        "generationConfig.responseMimeType": "text/x.enum",
                        "generationConfig.responseJsonSchema": {"enum": ["a"]},
                    }
                )
            },
        ),
    ],
)
def test_equivalent_fields_are_parsed_alike(fields: Object, expected: Object) -> None:
    messages = (Message("user", (TextContent("hi"),)),)
    assert read(generationConfig=fields) == Request("", dialect=NAME, messages=messages, **expected)


def test_a_hosted_tool_is_not_among_the_allowed_functions() -> None:
    tools = (Tool("f"), Tool("web_search", "web-search"))
    choice = ToolChoice("auto", allowed=("f", "web_search", "undeclared"))
    request = Request("m", read().messages, tools=tools, tool_choice=choice)
    body, losses = written(request)
    config = body["toolConfig"]["functionCallingConfig"]
    assert config == {"mode": "VALIDATED", "allowedFunctionNames": ["f", "undeclared"]}
    assert ("tool_choice.allowed[1]", "refused") in [(one.path, one.outcome) for one in losses]


TWO_SCHEMAS: list[tuple[Object, str]] = [
    (
        {
            "generationConfig": {
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "string"},
                "responseSchema": {"type": "STRING"},
            }
        },
        "generationConfig.responseSchema",
    ),
    (
        {
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "f",
                            "parametersJsonSchema": {"type": "object", "properties": {}},
                            "parameters": {"type": "OBJECT"},
                        }
                    ]
                }
            ]
        },
        "tools[0].parameters",
    ),
]


@pytest.mark.parametrize(("fields", "path"), TWO_SCHEMAS)
def test_a_schema_in_both_forms_goes_to_this_api_only(fields: Object, path: str) -> None:
    request = parse({**BARE, **fields}).request
    assert written(request) == ({**BARE, **fields}, [])
    edited = msgspec.structs.replace(plain(request), model="m")
    assert written(edited) == ({**BARE, **fields}, [])
    losses = Losses()
    MESSAGES.render(edited, Context(), losses)
    detail = f"{path.rpartition('[0].')[2]} is not available on anthropic-messages; remove it"
    assert [one for one in losses.found if one.outcome == "refused"] == [
        Loss(path, "refused", detail)
    ]


def test_a_single_object_is_accepted_in_place_of_a_list() -> None:
    loose = {
        "system_instruction": {"parts": {"text": "be"}},
        "contents": {"parts": {"text": "hi"}},
        "tools": {"functionDeclarations": {"name": "f"}},
    }
    tidy = {
        "systemInstruction": {"parts": [{"text": "be"}]},
        "contents": [{"parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
    }
    assert plain(parse(loose).request) == plain(parse(tidy).request)


def test_a_mode_may_be_in_lower_case() -> None:
    config = {"functionCallingConfig": {"mode": "none"}}
    assert read(toolConfig=config).tool_choice == ToolChoice("none")


def test_instructions_are_a_system_message() -> None:
    request = read(systemInstruction={"parts": [{"text": "a"}, {"text": "b"}], "role": "system"})
    assert request.messages[0] == Message("system", (TextContent("a"), TextContent("b")))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "OBJECT"}, {"type": "object"}),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        (
            {
                "type": "OBJECT",
                "properties": {"a": {"type": "ARRAY", "items": {"type": "INTEGER"}}},
                "required": ["a"],
                "propertyOrdering": ["a"],
            },
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
                "required": ["a"],
            },
        ),
        ({"type": "ARRAY", "minItems": "2"}, {"type": "array", "minItems": 2}),
        ({"any_of": [{"type": "NUMBER"}]}, {"anyOf": [{"type": "number"}]}),
        ({"type": "TYPE_UNSPECIFIED", "example": 1}, {"examples": [1]}),
        ({"type": "object"}, {"type": "object"}),
        ({"items": True, "anyOf": 1}, {"items": True, "anyOf": 1}),
    ],
)
def test_parameters_become_json_schema(schema: Object, expected: Object) -> None:
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    found = read(tools=tools).tools[0].parameters
    assert isinstance(found, Raw)
    assert json.loads(bytes(found)) == expected


def test_hosted_tools_are_parsed_by_their_keys() -> None:
    server = {
        "name": "s",
        "streamableHttpTransport": {
            "url": "https://a",
            "headers": {"Authorization": "Bearer t", "X": "y"},
        },
    }
    entries = [
        {"googleMaps": None},
        {"googleSearch": {"excludeDomains": ["a"], "timeRangeFilter": {}}},
        {"codeExecution": {}, "urlContext": {}},
        {"mcpServers": [server]},
        {"computerUse": {"environment": "E"}},
    ]
    found = read(tools=entries).tools
    assert [(tool.kind, tool.hosted, tool.extra) for tool in found] == [
        ("web-search", Hosted(blocked_domains=("a",)), raw({"timeRangeFilter": {}})),
        ("code-execution", Hosted(), msgspec.UNSET),
        ("web-fetch", Hosted(), msgspec.UNSET),
        (
            "mcp",
            Hosted(server_label="s", server_url="https://a", authorization="t"),
            raw({"streamableHttpTransport.headers": {"X": "y"}}),
        ),
        ("computerUse", None, msgspec.UNSET),
    ]


def in_a_part(part: object) -> Object:
    return {"contents": [{"role": "user", "parts": [part]}]}


BAD: list[tuple[Object, str]] = [
    ({"contents": "hi"}, "contents"),
    ({"contents": [{"parts": 1}]}, "contents[0].parts"),
    ({"tools": 1}, "tools"),
    ({"contents": [{"role": 1}]}, "contents[0].role"),
    (in_a_part({"text": 1}), "contents[0].parts[0].text"),
    (in_a_part({"text": "a", "functionCall": {"name": "f"}}), "contents[0].parts[0]"),
    (in_a_part({"functionCall": {}}), "contents[0].parts[0].functionCall"),
    (
        in_a_part({"functionCall": {"name": "f", "args": []}}),
        "contents[0].parts[0].functionCall.args",
    ),
    (
        in_a_part({"functionResponse": {"name": "f", "response": "x"}}),
        "contents[0].parts[0].functionResponse.response",
    ),
    (
        in_a_part({"functionResponse": {"name": "f", "parts": [{"text": 1}]}}),
        "contents[0].parts[0].functionResponse.parts[0].text",
    ),
    (in_a_part({"functionResponse": {}}), "contents[0].parts[0].functionResponse"),
    (in_a_part({"functionCall": 1}), "contents[0].parts[0].functionCall"),
    (in_a_part({"inlineData": {"data": "AAAA"}}), "contents[0].parts[0].inlineData"),
    (in_a_part({"inlineData": {"mimeType": "image/png"}}), "contents[0].parts[0].inlineData"),
    (in_a_part({"fileData": {"mimeType": "image/png"}}), "contents[0].parts[0].fileData"),
    ({"systemInstruction": "be"}, "systemInstruction"),
    ({"systemInstruction": {"parts": [{"text": 1}]}}, "systemInstruction.parts[0].text"),
    ({"tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0]"),
    (
        {"tools": [{"mcpServers": [{"name": "s"}]}]},
        "tools[0].mcpServers[0].streamableHttpTransport",
    ),
    (
        {"toolConfig": {"functionCallingConfig": {"mode": 1}}},
        "toolConfig.functionCallingConfig.mode",
    ),
    ({"generationConfig": {"temperature": "hot"}}, "generationConfig.temperature"),
    ({"generationConfig": {"topK": 1.5}}, "generationConfig.topK"),
    ({"generationConfig": {"candidateCount": 0}}, "generationConfig.candidateCount"),
    ({"generationConfig": {"logprobs": 2}}, "generationConfig.logprobs"),
    ({"generationConfig": {"responseJsonSchema": {}}}, "generationConfig.responseMimeType"),
    (
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": -2}}},
        f"{THINKING}.thinkingBudget",
    ),
]


@pytest.mark.parametrize(("fields", "path"), BAD)
def test_an_invalid_body_is_refused_with_the_path_of_the_field(fields: Object, path: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse({**BARE, **fields})
    assert refused.value.path == path


@QUICK
@given(body=broken(bodies()) | JSON)
def test_any_json_is_parsed_or_refused(body: Any) -> None:
    with suppress(BadRequest):
        request = parse(body).request
        json.loads(render(request)[0].body)
        json.loads(render(plain(request))[0].body)


@QUICK
@given(data=st.binary(max_size=40))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        REQUEST.parse(data, Context())


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(BadRequest):
        REQUEST.parse(b'{"contents":[],"x":' + deep + b"}", Context())


def test_losses_have_paths_in_the_clients_body() -> None:
    body = {
        **BARE,
        "systemInstruction": {"parts": [{"text": "a"}, {"text": "b"}]},
        "tools": [{"googleSearch": {}}, {"functionDeclarations": [{"name": "f"}]}],
    }
    places = parse(body).source_paths
    found = {
        path: places.source(path)
        for path in (
            "messages[0].content[1]",
            "messages[1].content[0].detail",
            "tools[1].strict",
            "sampling.top_k",
            "reasoning.effort",
        )
    }
    assert found == {
        "messages[0].content[1]": "systemInstruction.parts[1]",
        "messages[1].content[0].detail": "contents[0].parts[0].detail",
        "tools[1].strict": "tools[1].functionDeclarations[0].strict",
        "sampling.top_k": "generationConfig.topK",
        "reasoning.effort": f"{THINKING}.thinkingLevel",
    }


# Writing for others

USER = Message("user", (TextContent("hi"),))


def other(*messages: Message, **fields: Any) -> Request:
    """A request of another dialect."""
    fields = {"dialect": "openai-chat", **fields}
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
    ({"stop": ("a",)}, {"stopSequences": ["a"]}, []),
    ({"stop": tuple("abcdef")}, {}, [adapted("stop")]),
    ({"max_output_tokens": 5}, {"maxOutputTokens": 5}, []),
    ({"max_output_tokens": 0}, {"maxOutputTokens": 0}, [refused("max_output_tokens")]),
    (
        {"sampling": Sampling(0.5, 0.6, 3, 0.1, 0.2, 7, 0)},
        {
            "temperature": 0.5,
            "topP": 0.6,
            "topK": 3,
            "presencePenalty": 0.1,
            "frequencyPenalty": 0.2,
            "seed": 7,
            "responseLogprobs": True,
        },
        [],
    ),
    ({"sampling": Sampling(logit_bias=Raw(b"{}"))}, {}, [warned("sampling.logit_bias")]),
    (
        {"output": OutputFormat("json-schema")},
        {"responseMimeType": "application/json"},
        [refused("output.schema")],
    ),
    ({"choices": 2}, {"candidateCount": 2}, [refused("choices")]),
    ({"output": OutputFormat("json")}, {"responseMimeType": "application/json"}, []),
    (
        {"output": OutputFormat("json-schema", "n", schema=Raw(b"{}"), strict=False)},
        {"responseMimeType": "application/json", "responseJsonSchema": {}},
        [adapted("output.name"), adapted("output.strict")],
    ),
    ({"verbosity": "low"}, {}, [warned("verbosity")]),
    ({"prompt_cache_key": "k", "cache": "5m"}, {}, [warned("prompt_cache_key"), warned("cache")]),
    ({"user": "u"}, {}, [warned("user")]),
    ({"safety_identifier": "u"}, {}, [warned("safety_identifier")]),
    ({"betas": ("b",)}, {}, [warned("betas")]),
    ({"service_tier": "default"}, {}, [adapted("service_tier")]),
    ({"service_tier": "flex"}, {}, [warned("service_tier")]),
    ({"metadata": {"a": "b"}}, {}, [adapted("metadata")]),
    ({"max_tool_calls": 1}, {}, [warned("max_tool_calls")]),
    ({"truncation": "auto"}, {}, [warned("truncation")]),
    ({"previous_response_id": "r"}, {}, [refused("previous_response_id")]),
    (
        {"extra": raw({"thinking": {"type": "between_tools"}, "diagnostics": {"a": 1}})},
        {},
        [warned("thinking"), warned("diagnostics")],
    ),
    (
        {"reasoning": ReasoningOptions("none")},
        {"thinkingConfig": {"thinkingLevel": "MINIMAL"}},
        [warned("reasoning.effort")],
    ),
    (
        {"reasoning": ReasoningOptions("medium", summary="auto")},
        {"thinkingConfig": {"thinkingLevel": "MEDIUM", "includeThoughts": True}},
        [],
    ),
    (
        {"reasoning": ReasoningOptions("max", summary="none")},
        {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": False}},
        [warned("reasoning.effort")],
    ),
    (
        {"reasoning": ReasoningOptions(budget_tokens=2048)},
        {"thinkingConfig": {"thinkingLevel": "LOW"}},
        [adapted("reasoning.budget_tokens")],
    ),
    ({"reasoning": ReasoningOptions(adaptive=True)}, {}, []),
    (
        {"reasoning": ReasoningOptions("high", 1024)},
        {"thinkingConfig": {"thinkingLevel": "HIGH"}},
        [adapted("reasoning.budget_tokens")],
    ),
    (
        {"reasoning": ReasoningOptions(summary="concise")},
        {"thinkingConfig": {"includeThoughts": True}},
        [adapted("reasoning.summary")],
    ),
]


@pytest.mark.parametrize(("fields", "sent", "losses"), OPTIONS)
def test_an_option_of_another_dialect_is_rendered(
    fields: Object, sent: Object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(**fields))
    assert body == {**BARE, **({"generationConfig": sent} if sent else {})}
    assert outcomes(found) == losses


OLDER: list[tuple[Object, Object, Object, list[tuple[str, str]]]] = [
    (
        {"thinking": "budget"},
        {"reasoning": ReasoningOptions("low")},
        {"thinkingBudget": 2048},
        [adapted("reasoning.effort")],
    ),
    (
        {"thinking": "budget"},
        {"reasoning": ReasoningOptions("xhigh")},
        {"thinkingBudget": 32768},
        [adapted("reasoning.effort")],
    ),
    (
        {"thinking": "budget"},
        {"reasoning": ReasoningOptions(budget_tokens=40000)},
        {"thinkingBudget": 32768},
        [warned("reasoning.budget_tokens")],
    ),
    (
        {"thinking": "budget"},
        {"reasoning": ReasoningOptions("none")},
        {"thinkingBudget": 512},
        [adapted("reasoning.effort"), warned("reasoning.effort")],
    ),
    (
        {"thinking": "budget", "may_not_think": True},
        {"reasoning": ReasoningOptions(budget_tokens=0)},
        {"thinkingBudget": 0},
        [],
    ),
    (
        {"thinking": "budget"},
        {"reasoning": ReasoningOptions(adaptive=True)},
        {"thinkingBudget": -1},
        [],
    ),
]


@pytest.mark.parametrize(("accent", "fields", "sent", "losses"), OLDER)
def test_older_models_think_with_a_budget(
    accent: Object, fields: Object, sent: Object, losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(**fields), quirks(**accent))
    assert body["generationConfig"] == {"thinkingConfig": sent}
    assert outcomes(found) == losses


def test_older_models_accept_tools_or_json_output() -> None:
    request = other(tools=(Tool("f"),), output=OutputFormat("json"))
    assert written(request)[1] == []
    assert outcomes(written(request, quirks(schema_with_tools=False))[1]) == [refused("output")]


SCHEMA: Object = {"type": "object", "properties": {"a": {"type": "string"}}}
FREE: Object = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
DECLARED: list[tuple[Tool, list[Object], list[tuple[str, str]]]] = [
    (
        Tool("f", description="d", parameters=raw(SCHEMA), cache="5m"),
        [
            {
                "functionDeclarations": [
                    {"name": "f", "description": "d", "parametersJsonSchema": SCHEMA}
                ]
            }
        ],
        [warned("tools[0].cache")],
    ),
    (Tool("f"), [{"functionDeclarations": [{"name": "f"}]}], []),
    (
        Tool("f", "custom"),
        [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": FREE}]}],
        [adapted("tools[0]")],
    ),
    (
        Tool("f", "custom", extra=raw({"format": {"type": "grammar", "definition": "g"}})),
        [
            {
                "functionDeclarations": [
                    {
                        "name": "f",
                        "description": "The text `input` matches this lark grammar:\ng",
                        "parametersJsonSchema": FREE,
                    }
                ]
            }
        ],
        [adapted("tools[0]"), warned("tools[0].format")],
    ),
    (
        Tool("f", namespace="ns"),
        [{"functionDeclarations": [{"name": "ns__f"}]}],
        [adapted("tools[0].name")],
    ),
    (Tool("s", "web-search"), [{"googleSearch": {}}], []),
    (
        Tool("s", "web-search", hosted=Hosted(("a",), ("b",), 3, "low", Raw(b"{}"))),
        [{"googleSearch": {"excludeDomains": ["b"]}}],
        [
            refused("tools[0].hosted.allowed_domains"),
            refused("tools[0].hosted.max_uses"),
            refused("tools[0].hosted.location"),
            warned("tools[0].hosted.context_size"),
        ],
    ),
    (Tool("c", "code-execution"), [{"codeExecution": {}}], []),
    (
        Tool("c", "web-fetch", hosted=Hosted(max_uses=2)),
        [{"urlContext": {}}],
        [refused("tools[0].hosted.max_uses")],
    ),
    (
        Tool(
            "s",
            "mcp",
            hosted=Hosted(server_label="s", server_url="https://a", authorization="t"),
            extra=raw({"require_approval": "never"}),
        ),
        [
            {
                "mcpServers": [
                    {
                        "name": "s",
                        "streamableHttpTransport": {
                            "url": "https://a",
                            "headers": {"Authorization": "Bearer t"},
                        },
                    }
                ]
            }
        ],
        [],
    ),
    (Tool("s", "mcp", hosted=Hosted(server_label="s")), [], [refused("tools[0]")]),
    (Tool("bash", "bash_20250124"), [], [refused("tools[0]")]),
    (
        Tool("f", extra=raw({"eager_input_streaming": True, "allowed_callers": ["x"]})),
        [{"functionDeclarations": [{"name": "f"}]}],
        [warned("tools[0].eager_input_streaming"), refused("tools[0].allowed_callers")],
    ),
]


@pytest.mark.parametrize(("tool", "sent", "losses"), DECLARED)
def test_a_tool_of_another_dialect_is_rendered(
    tool: Tool, sent: list[Object], losses: list[tuple[str, str]]
) -> None:
    body, found = written(other(tools=(tool,)))
    assert body == {**BARE, **({"tools": sent} if sent else {})}
    assert outcomes(found) == losses


def test_consecutive_functions_are_one_entry() -> None:
    tools = (Tool("f"), Tool("g"), Tool("s", "code-execution"), Tool("h"))
    assert written(other(tools=tools))[0]["tools"] == [
        {"functionDeclarations": [{"name": "f"}, {"name": "g"}]},
        {"codeExecution": {}},
        {"functionDeclarations": [{"name": "h"}]},
    ]


def test_search_is_left_out_beside_functions() -> None:
    tools = (Tool("s", "web-search"), Tool("f"))
    body, losses = written(other(tools=tools))
    assert body["tools"] == [{"functionDeclarations": [{"name": "f"}]}]
    assert outcomes(losses) == [warned("tools[0]")]


TOOLS = (Tool("f"), Tool("g"))
CHOICES: list[tuple[ToolChoice | None, bool | None, Object | None, list[tuple[str, str]]]] = [
    (None, None, None, []),
    (ToolChoice(), None, {"mode": "AUTO"}, []),
    (ToolChoice("required"), None, {"mode": "ANY"}, []),
    (ToolChoice("none"), None, {"mode": "NONE"}, []),
    (ToolChoice("required", "f"), None, {"mode": "ANY", "allowedFunctionNames": ["f"]}, []),
    (
        ToolChoice("required", allowed=("f", "g")),
        None,
        {"mode": "ANY", "allowedFunctionNames": ["f", "g"]},
        [],
    ),
    (
        ToolChoice("auto", allowed=("f",)),
        None,
        {"mode": "VALIDATED", "allowedFunctionNames": ["f"]},
        [],
    ),
    (None, False, None, [warned("parallel_tool_calls")]),
    (ToolChoice("required"), False, {"mode": "ANY"}, [refused("parallel_tool_calls")]),
    (ToolChoice("required", kind="web-search"), None, None, [refused("tool_choice")]),
    (
        ToolChoice("required", "f", kind="custom"),
        None,
        {"mode": "ANY", "allowedFunctionNames": ["f"]},
        [],
    ),
]


@pytest.mark.parametrize(("choice", "parallel", "sent", "losses"), CHOICES)
def test_trap_19_the_choice_of_tools_keeps_its_meaning(
    choice: ToolChoice | None,
    parallel: bool | None,
    sent: Object | None,
    losses: list[tuple[str, str]],
) -> None:
    body, found = written(other(tools=TOOLS, tool_choice=choice, parallel_tool_calls=parallel))
    assert body.get("toolConfig") == (sent and {"functionCallingConfig": sent})
    assert outcomes(found) == losses


def test_strict_tools_use_the_mode_validated() -> None:
    body, losses = written(other(tools=(Tool("f", strict=True), Tool("g"))))
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}
    assert outcomes(losses) == [adapted("tools[0].strict")]


def test_a_choice_without_tools_is_left_out() -> None:
    body, losses = written(other(tool_choice=ToolChoice("required"), parallel_tool_calls=False))
    assert body == BARE
    assert outcomes(losses) == [warned("tool_choice"), adapted("parallel_tool_calls")]


# Schemas for hosts that know only the subset

CUT: list[tuple[Object, Object, list[tuple[str, str]]]] = [
    (SCHEMA, {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, []),
    ({"type": ["integer", "null"]}, {"type": "INTEGER", "nullable": True}, []),
    (
        {"type": ["integer", "string"]},
        {"anyOf": [{"type": "INTEGER"}, {"type": "STRING"}]},
        [],
    ),
    ({"const": "a"}, {"enum": ["a"], "type": "STRING"}, []),
    ({"enum": [1, 2], "type": "integer"}, {"type": "INTEGER"}, [warned(".enum")]),
    (
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9},
        {"type": "INTEGER", "minimum": 2, "maximum": 8},
        [adapted(".exclusiveMinimum"), adapted(".exclusiveMaximum")],
    ),
    (
        {"type": "number", "exclusiveMinimum": 1},
        {"type": "NUMBER", "minimum": 1},
        [warned(".exclusiveMinimum")],
    ),
    (
        {"type": "object", "$schema": "x", "additionalProperties": False},
        {"type": "OBJECT"},
        [adapted(".$schema"), adapted(".additionalProperties")],
    ),
    (
        {
            "$defs": {"a": {"type": "string"}},
            "type": "object",
            "properties": {"b": {"$ref": "#/$defs/a"}},
        },
        {"type": "OBJECT", "properties": {"b": {"type": "STRING"}}},
        [adapted(".$defs"), adapted(".properties.b")],
    ),
    (
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {
            "type": "OBJECT",
            "properties": {"a": {"type": "OBJECT", "properties": {"a": {"type": "OBJECT"}}}},
        },
        [adapted(".properties.a"), refused(".properties.a.properties.a")],
    ),
    (
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"anyOf": [{"type": "STRING"}], "nullable": True},
        [],
    ),
    ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "STRING"}]}, [warned(".oneOf")]),
    ({"patternProperties": {"a": {}}}, {}, [refused(".patternProperties")]),
    ({"type": "array", "uniqueItems": True}, {"type": "ARRAY"}, [warned(".uniqueItems")]),
    ({"type": "array", "items": True}, {"type": "ARRAY", "items": {}}, [warned(".items")]),
    (
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "OBJECT"},
        [warned(".additionalProperties")],
    ),
    (
        {"type": "string", "description": "d", "maxLength": 3, "pattern": "a"},
        {"type": "STRING", "description": "d", "maxLength": 3, "pattern": "a"},
        [],
    ),
    ({"$ref": "#/nowhere"}, {}, [refused("")]),
    ({"$ref": "#/$defs/a", "$defs": {"a": True}}, {}, [refused("")]),
    ({"$ref": "https://a.example/s"}, {}, [refused("")]),
    (
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"type": "ARRAY", "prefixItems": [{"type": "STRING"}]},
        [],
    ),
    (
        {"type": "integer", "exclusiveMinimum": 1.5},
        {"type": "INTEGER", "minimum": 1.5},
        [warned(".exclusiveMinimum")],
    ),
    ({"type": "object", "properties": 1}, {"type": "OBJECT", "properties": 1}, []),
]


@pytest.mark.parametrize(("schema", "sent", "losses"), CUT)
def test_trap_20_a_schema_is_reduced_but_never_silently(
    schema: Object, sent: Object, losses: list[tuple[str, str]]
) -> None:
    tools = (Tool("f", parameters=raw(schema)),)
    body, found = written(other(tools=tools), quirks(json_schema=False))
    declared = body["tools"][0]["functionDeclarations"][0]
    assert declared == {"name": "f", "parameters": sent}
    assert outcomes(found) == [(f"tools[0].parameters{path}", how) for path, how in losses]


@QUICK
@given(
    schema=st.dictionaries(
        st.sampled_from(["type", "anyOf", "items", "$ref", "enum"]), JSON, min_size=1
    )
)
def test_any_schema_can_be_reduced(schema: Object) -> None:
    output = OutputFormat("json-schema", schema=raw(schema))
    body, _ = written(other(output=output), quirks(json_schema=False))
    assert "responseSchema" in body["generationConfig"]


def test_references_that_grow_without_end_are_refused() -> None:
    deep = {
        f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(30)
    }
    schema = {"$defs": {**deep, "d30": {"type": "string"}}, "$ref": "#/$defs/d0"}
    _, losses = written(
        other(tools=(Tool("f", parameters=raw(schema)),)), quirks(json_schema=False)
    )
    assert Loss in {type(loss) for loss in losses if loss.detail == "too many references"}


def test_schemas_that_are_nested_too_deeply_are_refused() -> None:
    deep = Raw(b'{"properties":{"a":' * 300 + b"{}" + b"}}" * 300)
    body = {"tools": [{"functionDeclarations": [{"name": "f", "parameters": 0}]}], **BARE}
    with pytest.raises(BadRequest) as refusal:
        REQUEST.parse(
            bytes(raw(body)).replace(b'"parameters":0', b'"parameters":' + bytes(deep)), Context()
        )
    assert refusal.value.reason == "nested too deeply"
    _, losses = written(other(tools=(Tool("f", parameters=deep),)), quirks(json_schema=False))
    assert outcomes(losses) == [refused("tools[0].parameters")]


# Conversations


def assistant(*contents: AnyContent) -> Message:
    return Message("assistant", contents)


def results(*contents: AnyContent) -> Message:
    return Message("tool", contents)


def said(*messages: Message, **accent: Any) -> tuple[list[Object], list[tuple[str, str]]]:
    body, losses = written(other(*messages), quirks(**accent))
    found: list[Object] = body["contents"]
    return found, outcomes(losses)


PATH = "messages[0].content[1]"
CONTENTS: list[tuple[AnyContent, list[Object], list[tuple[str, str]]]] = [
    (TextContent("x", cache="5m"), [{"text": "x"}], [warned(f"{PATH}.cache")]),
    (TextContent(""), [], []),
    (TextContent("", cache="5m"), [], [warned(f"{PATH}.cache"), adapted(PATH)]),
    (TextContent("x", refusal=True), [{"text": "x"}], [warned(f"{PATH}.refusal")]),
    (ImageContent("image/png", "AAAA"), [PNG], []),
    (
        ImageContent("image/png", "AAAA", detail="low"),
        [{**PNG, "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"}}],
        [],
    ),
    (ImageContent("image/png", "AAAA", detail="auto"), [PNG], []),
    (
        ImageContent(url="https://a/b.png?c=d"),
        [{"fileData": {"fileUri": "https://a/b.png?c=d", "mimeType": "image/png"}}],
        [adapted(f"{PATH}.media_type")],
    ),
    (ImageContent("image/png", "AAAA", detail="x"), [PNG], [warned(f"{PATH}.detail")]),
    (ImageContent(file_id="f"), [], [refused(PATH)]),
    (
        FileContent("application/pdf", "JVBERi0=", filename="a.pdf"),
        [{"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}}],
        [adapted(f"{PATH}.filename")],
    ),
    (
        FileContent(None, "JVBERi0="),
        [{"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}}],
        [],
    ),
    (
        FileContent("audio/wav", "AAAA"),
        [{"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}],
        [],
    ),
    (
        FileContent("text/plain", b64encode("é".encode()).decode(), filename="t"),
        [{"text": "t\n\né"}],
        [adapted(PATH)],
    ),
    (FileContent("text/plain", "/w=="), [], [refused(PATH)]),
    (FileContent(None, "AAAA"), [], [refused(PATH)]),
    (FileContent(file_id="f"), [], [refused(PATH)]),
    (OpaqueContent("anthropic-messages", "x", Raw(b"{}")), [], [refused(PATH)]),
]


@pytest.mark.parametrize(("content", "sent", "losses"), CONTENTS)
def test_content_of_another_dialect_is_rendered(
    content: AnyContent, sent: list[Object], losses: list[tuple[str, str]]
) -> None:
    contents, found = said(Message("user", (TextContent("a"), content)))
    assert (contents[0]["parts"][1:], found) == (sent, losses)


def test_a_host_that_fetches_nothing_requires_the_data() -> None:
    image = Message("user", (ImageContent(url="https://a/b.png"),))
    assert said(image, fetches=False)[1] == [refused("messages[0].content[0]")]


CALL = CallContent("a", "f", '{"x": 1.50}')


def call(signature: str | None = None, **fields: object) -> Object:
    part: Object = {"functionCall": {"id": "a", "name": "f", "args": {"x": 1.5}, **fields}}
    return {**part, "thoughtSignature": signature} if signature else part


def result(**fields: object) -> Object:
    return {"functionResponse": {"id": "a", "name": "f", **fields}}


def test_trap_04_only_the_first_foreign_call_of_a_step_gets_a_placeholder() -> None:
    calls = assistant(CALL, CallContent("b", "g", "{}"))
    answers = results(ResultContent("a"), ResultContent("b"))
    again = assistant(CallContent("c", "g", "{}"))
    contents, losses = said(USER, calls, answers, again, results(ResultContent("c")))
    assert contents[1]["parts"] == [
        call(SKIP),
        {"functionCall": {"id": "b", "name": "g", "args": {}}},
    ]
    assert contents[3]["parts"][0]["thoughtSignature"] == SKIP
    assert losses == [
        adapted("messages[1].content[0].signature"),
        adapted("messages[3].content[0].signature"),
    ]


def test_trap_04_a_signed_call_keeps_its_signature_and_valid_unsigned_ones_stay_so() -> None:
    signed = msgspec.structs.replace(CALL, signature="c2ln", origin=NAME)
    calls = assistant(signed, CallContent("b", "f", "{}"))
    contents, losses = said(USER, calls, results(ResultContent("a"), ResultContent("b")))
    assert [part.get("thoughtSignature") for part in contents[1]["parts"]] == ["c2ln", None]
    assert losses == []


def test_calls_of_this_dialect_never_get_a_placeholder() -> None:
    body = {"contents": [HI, {"role": "model", "parts": [call()]}]}
    assert written(plain(parse(body).request)) == (body, [])


def test_hosts_without_signatures_get_no_placeholder() -> None:
    contents, losses = said(USER, assistant(CALL), results(ResultContent("a")), signed_calls=False)
    assert (contents[1]["parts"], losses) == ([call()], [])
    foreign = msgspec.structs.replace(CALL, signature="c2ln", origin="anthropic-messages")
    turns = (USER, assistant(foreign), results(ResultContent("a")))
    contents, losses = said(*turns, signed_calls=False)
    assert contents[1]["parts"] == [call()]
    assert losses == [adapted("messages[1].content[0].signature")]


def test_a_choice_without_a_mode_is_no_choice() -> None:
    config: Object = {"functionCallingConfig": {"streamFunctionCallArguments": True}}
    assert read(toolConfig=config).tool_choice is None


def test_an_edited_request_loses_only_what_the_host_cannot_accept() -> None:
    """Files without a type are refused; a schema that must be converted is rendered again."""
    request = parse(BARE).request
    more = (*request.messages, Message("user", (FileContent(data="AAAA"),)))
    edited = msgspec.structs.replace(request, messages=more)
    assert outcomes(written(edited)[1]) == [refused("messages[1].content[0]")]
    body: Object = {
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"title": "T"}}]}],
        **BARE,
    }
    sent, losses = written(parse(body).request, quirks(json_schema=False))
    assert sent["tools"] == [{"functionDeclarations": [{"name": "f", "parameters": {}}]}]
    assert outcomes(losses) == [adapted("tools[0].parameters.title")]


ANSWERS: list[tuple[ResultContent, Object, list[tuple[str, str]]]] = [
    (ResultContent("a", (TextContent("x"),)), {"response": {"output": "x"}}, []),
    (ResultContent("a"), {"response": {"output": ""}}, []),
    (ResultContent("a", (TextContent('{"y": 1}'),)), {"response": {"y": 1}}, []),
    (ResultContent("a", (TextContent("[1]"),)), {"response": {"output": "[1]"}}, []),
    (
        ResultContent("a", (TextContent("no"),), is_error=True),
        {"response": {"error": "no"}},
        [],
    ),
    (
        ResultContent("a", (TextContent('{"y":1}'),), is_error=True),
        {"response": {"error": '{"y":1}'}},
        [],
    ),
    (
        ResultContent("a", (TextContent("x"), TextContent("y"))),
        {"response": {"output": "x\ny"}},
        [adapted("messages[2].content[0].content")],
    ),
    (
        ResultContent("a", (TextContent("x"), ImageContent("image/png", "AAAA"))),
        {"response": {"output": "x"}, "parts": [PNG]},
        [],
    ),
    (
        ResultContent("a", (ImageContent("image/png", "AAAA"), TextContent("x", cache="5m"))),
        {"response": {"output": "x"}, "parts": [PNG]},
        [
            adapted("messages[2].content[0].content"),
            warned("messages[2].content[0].content[1].cache"),
        ],
    ),
    (
        ResultContent("a", (FileContent("text/plain", b64encode(b"doc").decode()),)),
        {"response": {"output": "doc"}},
        [adapted("messages[2].content[0].content[0]")],
    ),
    (
        ResultContent("a", (TextContent("x"),), cache="5m"),
        {"response": {"output": "x"}},
        [warned("messages[2].content[0].cache")],
    ),
]


@pytest.mark.parametrize(("answer", "sent", "losses"), ANSWERS)
def test_traps_12_and_13_results_keep_images_and_failures(
    answer: ResultContent, sent: Object, losses: list[tuple[str, str]]
) -> None:
    contents, found = said(USER, assistant(CALL), results(answer), signed_calls=False)
    assert contents[2] == {"role": "user", "parts": [result(**sent)]}
    assert found == losses


def test_older_models_get_images_behind_the_results() -> None:
    calls = assistant(CALL, CallContent("b", "f", "{}"))
    answer = ResultContent("a", (ImageContent("image/png", "AAAA"),))
    answers = results(answer, ResultContent("b"))
    contents, losses = said(USER, calls, answers, signed_calls=False, result_media=False)
    assert contents[2]["parts"] == [
        result(response={"output": ""}),
        {"functionResponse": {"id": "b", "name": "f", "response": {"output": ""}}},
        PNG,
    ]
    assert losses == [adapted("messages[2].content[0].content")]


def test_trap_06_results_are_one_content_in_the_order_of_the_calls() -> None:
    calls = assistant(CALL, CallContent("b", "f", "{}"))
    contents, _ = said(
        USER,
        calls,
        results(ResultContent("b", (TextContent("2"),))),
        Message("user", (TextContent("and"),)),
        results(ResultContent("a", (TextContent("1"),))),
    )
    assert [part.get("functionResponse", {}).get("id") for part in contents[2]["parts"]] == [
        "a",
        "b",
        None,
    ]
    assert len(contents) == 3


@pytest.mark.parametrize(
    ("made", "args", "losses"),
    [
        (CallContent("a", "f", ""), {}, []),
        (CallContent("a", "f", "{"), {"_raw": "{"}, [warned("messages[1].content[0].params")]),
        (
            CallContent("a", "f", "free", kind="custom", format="text"),
            {"input": "free"},
            [adapted("messages[1].content[0].params")],
        ),
        (
            CallContent("a", "f", "{}", item_id="i"),
            {},
            [adapted("messages[1].content[0].item_id")],
        ),
    ],
)
def test_arguments_of_another_dialect_become_an_object(
    made: CallContent, args: Object, losses: list[tuple[str, str]]
) -> None:
    contents, found = said(USER, assistant(made), results(ResultContent("a")), signed_calls=False)
    assert contents[1]["parts"] == [{"functionCall": {"id": "a", "name": "f", "args": args}}]
    assert found == losses


@pytest.mark.parametrize(
    ("name", "sent"),
    [("a.b:c-d", "a.b:c-d"), ("a b", None), ("n" * 200, None), ("1st", "_1st")],
)
def test_trap_09_a_name_is_renamed_the_same_everywhere(name: str, sent: str | None) -> None:
    request = other(
        USER,
        assistant(CallContent("a", name, "{}")),
        results(ResultContent("a", name=name)),
        tools=(Tool(name),),
        tool_choice=ToolChoice("required", name),
    )
    rendered, _ = render(request)
    body = json.loads(rendered.body)
    spelled = body["tools"][0]["functionDeclarations"][0]["name"]
    assert len(spelled) <= 128
    assert sent in (None, spelled)
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == spelled
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == spelled
    config = body["toolConfig"]["functionCallingConfig"]
    assert config["allowedFunctionNames"] == [spelled]
    assert rendered.names == ({} if spelled == name else {spelled: name})


def test_instructions_come_first_and_late_ones_become_user_text() -> None:
    late = Message("developer", (TextContent("be brief"),))
    system = Message("system", (TextContent("a"),))
    request = other(
        system, late, USER, assistant(CALL), results(ResultContent("a")), late, instructions="first"
    )
    body, losses = written(request, quirks(signed_calls=False))
    assert body["systemInstruction"] == {
        "parts": [{"text": "first"}, {"text": "a"}, {"text": "be brief"}]
    }
    assert body["contents"][2]["parts"] == [
        result(response={"output": ""}),
        {"text": "<system-instruction>\nbe brief\n</system-instruction>"},
    ]
    assert outcomes(losses) == [warned("messages[5]"), adapted("messages[1].role")]


def test_instructions_are_text() -> None:
    _, losses = written(other(Message("system", (ImageContent(url="u"),)), USER))
    assert outcomes(losses) == [refused("messages[0].content[0]")]


def test_a_call_of_a_kind_that_only_its_origin_runs_is_refused() -> None:
    shell = CallContent("a", "shell", "{}", kind="local_shell_call")
    _, losses = said(USER, assistant(shell), results(ResultContent("a", name="shell")))
    assert refused("messages[1].content[0]") in losses


def test_a_conversation_that_ends_with_the_model_is_kept_only_in_this_dialect() -> None:
    body = {"contents": [HI, {"role": "model", "parts": [{"text": "I"}]}]}
    assert written(parse(body).request) == (body, [])
    assert said(USER, assistant(TextContent("I")))[1] == [refused("messages[1]")]


def test_speaker_names_and_executed_calls_are_reported_as_lost() -> None:
    contents, losses = said(
        Message("user", (TextContent("hi"),), name="ann"),
        assistant(
            TextContent("no"),
            CallContent("s", "search", "{}", kind="web_search_call", provider_executed=True),
            OpaqueContent("openai-responses", "web_search_call_x", Raw(b"{}")),
            ResultContent("s", (TextContent("found"),), kind="web_search_call"),
        ),
        USER,
    )
    assert contents[1] == {"role": "model", "parts": [{"text": "no"}]}
    assert losses == [
        warned("messages[0].name"),
        warned("messages[1].content[1]"),
        warned("messages[1].content[2]"),
        warned("messages[1].content[3]"),
    ]


# Reasoning

LOST = [warned("messages[1].content[0]")]


@pytest.mark.parametrize(
    ("content", "context", "sent"),
    [
        (
            ReasoningContent("a", signature="c2ln", origin=NAME),
            Context(),
            [{"text": "a", "thought": True, "thoughtSignature": "c2ln"}],
        ),
        (
            ReasoningContent("", signature="c2ln", origin="here"),
            Context(origin="here"),
            [{"text": "", "thought": True, "thoughtSignature": "c2ln"}],
        ),
        (ReasoningContent("a", signature="c2ln", origin=NAME), Context(origin="here"), []),
        (ReasoningContent("a", signature="s", origin="anthropic-messages"), Context(), []),
        (ReasoningContent("a"), Context(), []),
    ],
)
def test_traps_01_and_02_a_signature_is_sent_only_to_its_origin(
    content: ReasoningContent, context: Context, sent: list[Object]
) -> None:
    body, losses = written(other(USER, assistant(content, TextContent("a")), USER), context)
    assert body["contents"][1]["parts"][:-1] == sent
    assert outcomes(losses) == ([] if sent else LOST)


def test_an_envelope_is_unwrapped_and_never_sent_upstream() -> None:
    envelope = to_base64(wrap(Envelope("anthropic-messages", "m", ReasoningState(signature="s"))))
    parts = [{"text": "a", "thought": True, "thoughtSignature": envelope}, call()]
    body = {"contents": [HI, {"role": "model", "parts": parts}, HI]}
    request = parse(body).request
    assert request.messages[1].content[0] == ReasoningContent(
        "a", "summary", signature="s", origin="anthropic-messages"
    )
    rendered, losses = render(request)
    assert envelope.encode() not in rendered.body
    assert json.loads(rendered.body)["contents"][1]["parts"] == [call(SKIP)]
    assert outcomes(losses) == [*LOST, adapted("messages[1].content[1].signature")]


def test_an_envelope_of_this_origin_is_unwrapped_before_it_is_sent() -> None:
    envelope = to_base64(wrap(Envelope(NAME, "m", ReasoningState(signature="c2ln"))))
    part = {"text": "a", "thought": True, "thoughtSignature": envelope}
    body = {"contents": [HI, {"role": "model", "parts": [part]}, HI]}
    sent, losses = written(parse(body).request)
    assert sent["contents"][1]["parts"] == [{**part, "thoughtSignature": "c2ln"}]
    assert losses == []


def test_an_envelope_on_a_call_is_the_signature_of_the_reasoning_before_it() -> None:
    envelope = to_base64(wrap(Envelope("anthropic-messages", "m", ReasoningState(signature="s"))))
    body = {"contents": [HI, {"role": "model", "parts": [call(envelope)]}, HI]}
    request = parse(body).request
    assert request.messages[1].content == (
        ReasoningContent("", "summary", signature="s", origin="anthropic-messages"),
        CallContent("a", "f", '{"x":1.5}'),
    )
    assert envelope.encode() not in render(request)[0].body


# What others ask, all of it


@QUICK
@given(body=requests_anthropic_messages.bodies())
def test_any_request_of_another_dialect_becomes_a_valid_conversation(body: Object) -> None:
    request = MESSAGES.parse(json.dumps(body).encode(), Context()).request
    sent, losses = written(request)
    roles = [content["role"] for content in sent["contents"]]
    assert all(one != next for one, next in pairwise(roles))
    if any(loss.outcome == "refused" for loss in losses):
        return
    for before, content in pairwise([{"parts": []}, *sent["contents"]]):
        called = [part["functionCall"] for part in before["parts"] if "functionCall" in part]
        answers = [
            part["functionResponse"] for part in content["parts"] if "functionResponse" in part
        ]
        if content["role"] == "user":
            assert [(one["id"], one["name"]) for one in answers] == [
                (one["id"], one["name"]) for one in called
            ]
    assert "cache_control" not in json.dumps(sent)
