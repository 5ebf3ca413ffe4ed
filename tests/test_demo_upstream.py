"""The demo upstream: valid responses in every dialect, and every failure that hosts have."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

import weft
from tests.conversations import (
    ASKED,
    CHAT,
    GEMINI,
    KEPT,
    MESSAGES,
    RESPONSES,
    calls_in,
    events_of,
    next_request,
)
from tests.strategies import JSON, QUICK
from weft.assembler import ReasoningItem, Response
from weft.context import Context
from weft.dialects import DIALECTS, DialectName
from weft.dialects.error_classes import CLASSES, ErrorClass, class_of
from weft.dialects.gemini.requests.schema import SKIP_SIGNATURE
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.errors import UnknownDialect
from weft.parts import Source
from weft.upstream.base import OutgoingRequest, Timeouts, Unreachable, UpstreamConfig, endpoint
from weft.upstream.demo import CHUNKS, DEFAULT, MODELS, DemoUpstream
from weft.upstream.demo.signatures import sign, verify
from weft.upstream.demo.texts import CITED_SENTENCES, count_tokens, split_words
from weft.upstream.demo.timeline import DialectStyle, style_of

Object = dict[str, Any]

ORIGIN = "demo.example"
WORKING_MODELS = ("chat", "reasoner", "tools", "agent", "sources", "long", "slow")
"""Models that do nothing wrong."""

WEATHER = "What is the weather in Paris for 3 days?"
WEATHER_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "note": {"type": "string"},
    },
    "required": ["city", "days", "unit"],
}
WEATHER_ARGUMENTS = {"city": "Paris", "days": 3, "unit": "celsius"}

EVERY = pytest.mark.parametrize("dialect", ASKED)
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])


# Requests


@dataclass(frozen=True)
class Exchange:
    status: int
    headers: Mapping[str, str]
    raw: bytes
    reads: tuple[bytes, ...]
    waits: tuple[float, ...]

    def response(self, dialect: DialectName) -> Response:
        (one,) = weft.decode_all(self.raw, dialect, context=Context(origin=ORIGIN))
        return one.response


def config_of(dialect: str, url: str = "demo:", **more: Any) -> UpstreamConfig:
    return UpstreamConfig("demo", dialect, url, origin=ORIGIN, models=MODELS, **more)


async def read_all(config: UpstreamConfig, outgoing: OutgoingRequest) -> Exchange:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    upstream = DemoUpstream(config, sleep=sleep)
    answer = await upstream.send(outgoing)
    reads = []
    while piece := await answer.read():
        reads.append(piece)
    assert await answer.read() == b""
    await upstream.close()
    return Exchange(answer.status, answer.headers, b"".join(reads), tuple(reads), tuple(waits))


def send(config: UpstreamConfig, body: Object, model: str, *, stream: bool) -> Exchange:
    raw = json.dumps(body).encode()
    return asyncio.run(
        read_all(config, OutgoingRequest(endpoint(config.dialect, model, stream), raw))
    )


@dataclass(frozen=True)
class DemoRequest:
    """A request that can be written in every dialect."""

    model: str = "chat"
    text: str = "Tell me something."
    stream: bool = True
    tools: tuple[str, ...] = ()
    description: str = "Looks something up."
    choice: str | None = None
    """none, required, or the name of a tool."""
    allowed: tuple[str, ...] = ()
    schema: Object | None = None
    limit: int | None = None
    stop: tuple[str, ...] = ()

    def body(self, dialect: str) -> Object:
        written: Object = {"model": self.model, "stream": self.stream}
        match dialect:
            case "openai-chat":
                written["messages"] = [{"role": "user", "content": self.text}]
                written |= {"stream_options": {"include_usage": True}} if self.stream else {}
                written |= {"max_completion_tokens": self.limit} if self.limit else {}
                written |= {"stop": list(self.stop)} if self.stop else {}
                if self.schema is not None:
                    shape = {"name": "shape", "schema": self.schema}
                    written["response_format"] = {"type": "json_schema", "json_schema": shape}
            case "openai-responses":
                written["input"] = self.text
                written |= {"max_output_tokens": self.limit} if self.limit else {}
                if self.schema is not None:
                    shape = {"type": "json_schema", "name": "shape", "schema": self.schema}
                    written["text"] = {"format": shape}
            case "anthropic-messages":
                written["messages"] = [{"role": "user", "content": self.text}]
                written["max_tokens"] = self.limit or 10_000
                written |= {"stop_sequences": list(self.stop)} if self.stop else {}
                if self.schema is not None:
                    shape = {"type": "json_schema", "schema": self.schema}
                    written["output_config"] = {"format": shape}
            case "gemini":
                written = {"contents": [{"role": "user", "parts": [{"text": self.text}]}]}
                config: Object = {"maxOutputTokens": self.limit} if self.limit else {}
                config |= {"stopSequences": list(self.stop)} if self.stop else {}
                if self.schema is not None:
                    config["responseMimeType"] = "application/json"
                    config["responseJsonSchema"] = self.schema
                written |= {"generationConfig": config} if config else {}
        return written | tool_fields(dialect, self)


def tool_fields(dialect: str, prompt: DemoRequest) -> Object:
    if not prompt.tools:
        return {}
    tools: list[Object]
    functions: list[Object]
    declared: list[Object] = [
        {"name": name, "description": prompt.description} for name in prompt.tools
    ]
    choice, named = prompt.choice, prompt.choice not in (None, "none", "required")
    match dialect:
        case "openai-chat":
            tools = [
                {"type": "function", "function": {**one, "parameters": WEATHER_SCHEMA}}
                for one in declared
            ]
            chosen: Any = {"type": "function", "function": {"name": choice}} if named else choice
            if prompt.allowed:
                functions = [
                    {"type": "function", "function": {"name": one}} for one in prompt.allowed
                ]
                allowed = {"mode": "auto", "tools": functions}
                chosen = {"type": "allowed_tools", "allowed_tools": allowed}
        case "openai-responses":
            tools = [{"type": "function", **one, "parameters": WEATHER_SCHEMA} for one in declared]
            chosen = {"type": "function", "name": choice} if named else choice
            if prompt.allowed:
                functions = [{"type": "function", "name": one} for one in prompt.allowed]
                chosen = {"type": "allowed_tools", "mode": "auto", "tools": functions}
        case "anthropic-messages":
            tools = [{**one, "input_schema": WEATHER_SCHEMA} for one in declared]
            words = {"none": {"type": "none"}, "required": {"type": "any"}, None: None}
            chosen = words.get(choice, {"type": "tool", "name": choice})
        case _:
            functions = [{**one, "parametersJsonSchema": WEATHER_SCHEMA} for one in declared]
            tools = [{"functionDeclarations": functions}]
            mode = {"none": "NONE", None: "AUTO"}.get(choice, "ANY")
            config: Object = {"mode": mode}
            names = [choice] if named else list(prompt.allowed)
            config |= {"allowedFunctionNames": names} if names else {}
            return {"tools": tools, "toolConfig": {"functionCallingConfig": config}}
    return {"tools": tools, **({"tool_choice": chosen} if chosen else {})}


def exchange(dialect: str, prompt: DemoRequest, url: str = "demo:", **more: Any) -> Exchange:
    config = config_of(dialect, url, **more)
    return send(config, prompt.body(dialect), prompt.model, stream=prompt.stream)


def response_to(dialect: DialectName, prompt: DemoRequest) -> Response:
    got = exchange(dialect, prompt)
    assert got.status == 200, got.raw
    return got.response(dialect)


def essence(response: Response) -> Object:
    """What a response says, without the ids that differ from one to the next."""
    thoughts = [item for item in response.items if isinstance(item, ReasoningItem)]
    sources = [item for item in response.items if isinstance(item, Source)]
    return {
        "text": response.text,
        "thoughts": [(one.text, one.kind, one.signature, one.encrypted) for one in thoughts],
        "calls": [(one.name, one.params, one.signature) for one in response.tool_calls],
        "sources": [(one.url, one.title, one.start, one.end) for one in sources],
        "finish": (response.finish_reason, response.stop_sequence, response.error),
        "usage": response.usage,
        "model": response.model,
        "findings": response.findings,
    }


# Responses


def test_a_dialect_without_a_style_of_its_own_gets_parts_that_every_encoder_can_write() -> None:
    assert style_of("new", "") == DialectStyle("new", "new", native=False)
    assert style_of("new", "host") == DialectStyle("new", "host", native=False)


@STREAMED
@EVERY
@pytest.mark.parametrize("model", WORKING_MODELS)
def test_a_response_breaks_no_rule_of_its_dialect(
    model: str, dialect: DialectName, stream: bool
) -> None:
    tools = ("get_weather", "get_time") if model in ("reasoner", "tools") else ()
    got = exchange(dialect, DemoRequest(model, WEATHER, stream, tools=tools))
    assert got.status == 200
    assert got.headers["content-type"] == ("text/event-stream" if stream else "application/json")
    assert weft.check(got.raw, dialect) == []


@EVERY
@pytest.mark.parametrize("model", WORKING_MODELS)
def test_a_stream_and_a_body_give_the_same_response(model: str, dialect: DialectName) -> None:
    prompt = DemoRequest(model, WEATHER, tools=("get_weather", "get_time"))
    body = replace(prompt, stream=False)
    assert essence(response_to(dialect, prompt)) == essence(response_to(dialect, body))


@EVERY
@pytest.mark.parametrize("model", sorted({*MODELS} - {"stall"}))
def test_equal_requests_get_equal_bytes(model: str, dialect: str) -> None:
    prompt = DemoRequest(model, WEATHER, tools=("get_weather",))
    assert exchange(dialect, prompt) == exchange(dialect, prompt)


@EVERY
def test_another_request_has_other_ids(dialect: DialectName) -> None:
    one, other = (
        exchange(dialect, DemoRequest(text=text)).response(dialect) for text in ("a", "b")
    )
    assert one.id != other.id


@EVERY
def test_chat_says_what_it_is_and_quotes_the_message(dialect: DialectName) -> None:
    response = response_to(dialect, DemoRequest(text="Hello, who are you?\nReally?"))
    assert response.text.startswith("Hello! I am the demo model of Weft: a script")
    assert "\n> Hello, who are you?\n> Really?\n" in response.text
    assert f"`{dialect}`" in response.text
    assert "`demo/reasoner`" in response.text
    assert (response.finish_reason, response.model) == ("stop", "chat")


def test_a_long_message_is_quoted_in_part() -> None:
    response = response_to(CHAT, DemoRequest(text="word " * 1000))
    (quotation,) = [line for line in response.text.splitlines() if line.startswith("> ")]
    assert quotation.endswith("word …")
    assert len(quotation) < 210


@EVERY
def test_usage_counts_words(dialect: DialectName) -> None:
    response = response_to(dialect, DemoRequest("reasoner", "one two three"))
    usage = response.usage
    assert usage is not None
    assert usage.input_tokens == 4
    assert usage.reasoning_tokens == count_tokens(response.reasoning)
    assert usage.output_tokens == count_tokens(response.text) + count_tokens(response.reasoning)
    assert usage.cache_read_tokens == 0


@EVERY
def test_sources_have_the_positions_of_their_sentences(dialect: DialectName) -> None:
    response = response_to(dialect, DemoRequest("sources"))
    sources = [item for item in response.items if isinstance(item, Source)]
    cited = [
        one.raw if one.start is None else response.text[one.start : one.end] for one in sources
    ]
    found = [json.loads(bytes(one))["cited_text"] if isinstance(one, Raw) else one for one in cited]
    pages = [(text, one.url, one.title) for text, one in zip(found, sources, strict=True)]
    assert pages == list(CITED_SENTENCES)


@EVERY
def test_long_is_about_two_thousand_words(dialect: DialectName) -> None:
    assert 1900 < len(response_to(dialect, DemoRequest("long")).text.split()) < 2100


# Limits


@STREAMED
@EVERY
@pytest.mark.parametrize("model", ["long", "chat", "reasoner"])
@pytest.mark.parametrize("limit", [1, 16, 50])
def test_a_response_ends_at_the_token_limit(
    dialect: DialectName, stream: bool, model: str, limit: int
) -> None:
    got = exchange(dialect, DemoRequest(model, stream=stream, limit=limit))
    response, whole = got.response(dialect), response_to(dialect, DemoRequest(model))
    said = response.reasoning + response.text
    count = len(response.reasoning.split()) + len(response.text.split())
    assert weft.check(got.raw, dialect) == []
    assert response.finish_reason == "length"
    assert (whole.reasoning + whole.text).startswith(said.rstrip())
    assert max(1, limit / 1.3 - 2) <= count <= max(1, limit / 1.3)
    assert response.usage is not None
    assert (response.usage.output_tokens or 0) <= limit


@EVERY
def test_truncated_reasoning_has_a_valid_signature(dialect: DialectName) -> None:
    response = response_to(dialect, DemoRequest("reasoner", limit=10))
    (thought,) = [item for item in response.items if isinstance(item, ReasoningItem)]
    assert verify(thought.signature or thought.encrypted or "", thought.text)
    assert (len(thought.text.split()), response.text) == (7, "")


@EVERY
def test_a_call_that_exceeds_the_token_limit_is_not_made(dialect: DialectName) -> None:
    response = response_to(dialect, DemoRequest("tools", WEATHER, tools=("get_weather",), limit=1))
    assert (response.tool_calls, response.finish_reason) == ((), "length")


@STREAMED
@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, GEMINI])  # Responses has no such field
def test_a_response_ends_before_a_stop_sequence(dialect: DialectName, stream: bool) -> None:
    prompt = DemoRequest("sources", stream=stream, stop=("UTF-8", "JSON"))
    response = response_to(dialect, prompt)
    assert response.text == CITED_SENTENCES[0][0] + " Each event holds "
    assert response.finish_reason == "stop"
    assert response.stop_sequence == ("JSON" if dialect == MESSAGES else None)
    assert [one.url for one in response.items if isinstance(one, Source)] == [CITED_SENTENCES[0][1]]


# Tools


@EVERY
@pytest.mark.parametrize(
    ("prompt", "called"),
    [
        (DemoRequest(text=WEATHER, tools=("get_time", "get_weather")), ["get_weather"]),
        (DemoRequest(text="Use get_time now", tools=("get_weather", "get_time")), ["get_time"]),
        (DemoRequest(text="Sing", tools=("get_weather", "get_time")), []),
        (
            DemoRequest(text="Forecasts of rain?", tools=("a",), description="The forecast: rain."),
            ["a"],
        ),
        (DemoRequest(text=WEATHER, tools=("get_weather",), choice="none"), []),
        (DemoRequest(text="Sing", tools=("a", "b"), choice="required"), ["a"]),
        (DemoRequest(text="Sing", tools=("a", "b"), choice="b"), ["b"]),
        (
            DemoRequest(text=WEATHER, tools=("get_weather", "get_time"), choice="get_time"),
            ["get_time"],
        ),
        (DemoRequest(text=WEATHER, tools=("get_weather", "b"), allowed=("b",)), []),
        (DemoRequest("tools", "Sing", tools=("a", "b", "c")), ["a", "b"]),
        (DemoRequest("tools", "Sing", tools=("a",)), ["a"]),
        (DemoRequest("tools", "Sing", tools=("a", "b"), choice="none"), []),
        (DemoRequest("tools", "Sing", tools=("a", "b"), choice="b"), ["b"]),
        (DemoRequest("tools", "Sing", tools=("a", "b", "c"), allowed=("b", "c")), ["b", "c"]),
        (DemoRequest("tools", "Sing"), []),
        (DemoRequest("reasoner", WEATHER, tools=("get_weather",)), ["get_weather"]),
    ],
    ids=str,
)
def test_the_tool_that_fits_the_message_and_the_choice_is_called(
    dialect: DialectName, prompt: DemoRequest, called: list[str]
) -> None:
    if prompt.allowed and dialect == MESSAGES:  # which has no such list: all others are left out
        prompt = replace(prompt, tools=prompt.allowed, allowed=())
    response = response_to(dialect, prompt)
    assert [one.name for one in response.tool_calls] == called
    assert response.finish_reason == ("tool-calls" if called else "stop")
    assert bool(response.text) == (not called)
    assert len({one.id for one in response.tool_calls}) == len(called)


@pytest.mark.parametrize(
    ("dialect", "off"),
    [
        (CHAT, {"parallel_tool_calls": False}),
        (RESPONSES, {"parallel_tool_calls": False}),
        (MESSAGES, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ],
)
def test_one_tool_is_called_if_parallel_calls_are_off(dialect: DialectName, off: Object) -> None:
    body = DemoRequest("tools", tools=("a", "b")).body(dialect) | off
    got = send(config_of(dialect), body, "tools", stream=True)
    assert [one.name for one in got.response(dialect).tool_calls] == ["a"]


@EVERY
def test_arguments_are_taken_from_the_message(dialect: DialectName) -> None:
    response = response_to(dialect, DemoRequest("tools", WEATHER, tools=("get_weather",)))
    assert [json.loads(one.params) for one in response.tool_calls] == [WEATHER_ARGUMENTS]


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES])
def test_a_free_text_tool_gets_the_message(dialect: DialectName) -> None:
    free: Object = {"name": "shell", "description": "Runs a command."}
    tool = {"type": "custom", **({"custom": free} if dialect == CHAT else free)}
    body = DemoRequest("tools", "ls -la").body(dialect) | {"tools": [tool]}
    response = send(config_of(dialect), body, "tools", stream=True).response(dialect)
    calls = [(one.name, one.params, one.kind, one.format) for one in response.tool_calls]
    assert calls == [("shell", "ls -la", "custom", "text")]


@STREAMED
@EVERY
@pytest.mark.parametrize("model", ["tools", "reasoner", "chat", "agent"])
def test_the_results_of_tools_are_answered_in_the_second_turn(
    model: str, dialect: DialectName, stream: bool
) -> None:
    prompt = DemoRequest(model, WEATHER, tools=("get_weather", "get_time"))
    first = exchange(dialect, prompt)
    turn = KEPT[dialect](events_of(first.raw))
    calls = calls_in(turn, dialect)
    results = [(id, name, f"It is fine, says {name}.") for id, name, _ in calls]
    body = prompt.body(dialect) | next_request(dialect, turn, *results)
    body |= {} if dialect == GEMINI else {"model": model, "stream": stream, "max_tokens": 9999}
    if dialect == RESPONSES:
        del body["max_tokens"]
    got = send(config_of(dialect), body, model, stream=stream)
    assert got.status == 200, got.raw
    response = got.response(dialect)
    assert (response.tool_calls, response.finish_reason) == ((), "stop")
    for _, name, text in results:
        assert f"`{name}` answered:\n\n> " in response.text
        assert text in response.text
    assert weft.check(got.raw, dialect) == []


def test_an_agent_calls_the_tools_that_are_mentioned_one_after_the_other() -> None:
    prompt = DemoRequest(
        "agent", "get_time, then get_weather", tools=("get_weather", "sing", "get_time")
    )
    body = prompt.body(CHAT)
    called: list[str] = []
    for _ in range(4):
        response = send(config_of(CHAT, "demo:fast"), body, "agent", stream=True).response(CHAT)
        if not response.tool_calls:
            break
        [call] = response.tool_calls
        called.append(call.name)
        made = {"id": call.id, "type": "function"}
        function = {"name": call.name, "arguments": call.params}
        body["messages"] += [
            {"role": "assistant", "tool_calls": [made | {"function": function}]},
            {"role": "tool", "tool_call_id": call.id, "content": f"{call.name} says hi"},
        ]
    assert called == ["get_weather", "get_time"], "in the order in which they are declared"
    assert response.finish_reason == "stop"
    assert all(f"> {name} says hi" in response.text for name in called)
    # A new message is a new task.
    body["messages"] += [{"role": "user", "content": "sing"}]
    response = send(config_of(CHAT, "demo:fast"), body, "agent", stream=True).response(CHAT)
    assert [one.name for one in response.tool_calls] == ["sing"]


def test_a_failed_result_is_mentioned() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}
    body = DemoRequest().body(MESSAGES)
    body["messages"] += [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [failed, {"type": "text", "text": "Go on."}]},
    ]
    response = send(config_of(MESSAGES), body, "chat", stream=True).response(MESSAGES)
    assert response.text.startswith("`look` failed:\n\n> no\n")


def test_a_message_after_a_result_is_answered() -> None:
    body = DemoRequest(text="first").body(CHAT)
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "found"},
        {"role": "user", "content": "second"},
    ]
    response = send(config_of(CHAT), body, "chat", stream=True).response(CHAT)
    assert "> second" in response.text
    assert "found" not in response.text


def test_files_are_mentioned() -> None:
    body = DemoRequest().body(CHAT)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    body["messages"][0]["content"] = [{"type": "text", "text": "See"}, image]
    response = send(config_of(CHAT), body, "chat", stream=True).response(CHAT)
    assert "There was a file too." in response.text


# Structured output


@STREAMED
@EVERY
@pytest.mark.parametrize("model", ["chat", "reasoner", "tools"])
def test_the_answer_has_the_requested_schema(
    model: str, dialect: DialectName, stream: bool
) -> None:
    prompt = DemoRequest(model, WEATHER, stream, schema=WEATHER_SCHEMA)
    made = json.loads(response_to(dialect, prompt).text)
    assert made == {**WEATHER_ARGUMENTS, "note": "Paris"}


@pytest.mark.parametrize(
    ("dialect", "json_mode"),
    [
        (CHAT, {"response_format": {"type": "json_object"}}),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}),
        (GEMINI, {"generationConfig": {"responseMimeType": "application/json"}}),
    ],
)
def test_the_answer_is_json_in_json_mode(dialect: DialectName, json_mode: Object) -> None:
    got = send(config_of(dialect), DemoRequest().body(dialect) | json_mode, "chat", stream=True)
    made = json.loads(got.response(dialect).text)
    assert list(made) == ["answer"]
    assert "Tell me something." in made["answer"]


# Reasoning


@EVERY
def test_reasoning_is_signed_by_this_upstream(dialect: DialectName) -> None:
    response = response_to(dialect, DemoRequest("reasoner", "Think of Rome."))
    (thought,) = [item for item in response.items if isinstance(item, ReasoningItem)]
    assert thought.text.startswith('The user says "Think of Rome.". I am a script')
    assert thought.signature or thought.encrypted
    assert verify(thought.signature or thought.encrypted or "", thought.text)
    assert thought.origin == ORIGIN
    assert response.text.startswith("I am the demo model")


@pytest.mark.parametrize(
    ("dialect", "off"),
    [
        (CHAT, {"reasoning_effort": "none"}),
        (RESPONSES, {"reasoning": {"effort": "none"}}),
        (MESSAGES, {"thinking": {"type": "disabled"}}),
        (GEMINI, {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}),
    ],
)
def test_reasoning_can_be_disabled(dialect: DialectName, off: Object) -> None:
    got = send(
        config_of(dialect), DemoRequest("reasoner").body(dialect) | off, "reasoner", stream=True
    )
    assert got.status == 200
    assert got.response(dialect).reasoning == ""


def with_reasoning(dialect: str, text: str, mark: str | None) -> Object:
    """A request that sends a reasoning back."""
    signed: Object = {} if mark is None else {"signature": mark}
    match dialect:
        case "openai-chat":
            said: Object = {"role": "assistant", "content": "Yes.", "reasoning_content": text}
            detail = {"type": "reasoning.text", "text": text, **signed}
            turn = [said | ({"reasoning_details": [detail]} if mark else {})]
        case "openai-responses":
            summary = [{"type": "summary_text", "text": text}] if text else []
            proven = {"encrypted_content": mark} if mark else {}
            turn = [{"type": "reasoning", "id": "rs_1", "summary": summary, **proven}]
        case "anthropic-messages":
            thinking = {"type": "thinking", "thinking": text, "signature": "", **signed}
            turn = [thinking, {"type": "text", "text": "Yes."}]
        case _:
            thought = {"text": text, "thought": True}
            turn = [thought | ({"thoughtSignature": mark} if mark else {}), {"text": "Yes."}]
    body = next_request(dialect, turn)
    if dialect == MESSAGES:
        body["messages"][-1]["content"] = "Go on."
    elif dialect == GEMINI:
        body["contents"][-1]["parts"] = [{"text": "Go on."}]
    return body if dialect == GEMINI else body | {"model": "reasoner"}


@EVERY
@pytest.mark.parametrize(
    ("text", "mark", "status"),
    [
        ("I think.", sign("I think."), 200),
        ("I think.", None, 200),
        ("", sign("I think."), 200),
        ("I thought.", sign("I think."), 400),
        ("I think.", sign("I think.")[:-8] + "AAAAAAA=", 400),
        ("I think.", "c2lnbmF0dXJl", 400),
        ("I think.", "not even base64!", 400),
    ],
)
def test_a_signature_that_was_not_made_here_is_rejected(
    dialect: str, text: str, mark: str | None, status: int
) -> None:
    got = send(config_of(dialect), with_reasoning(dialect, text, mark), "reasoner", stream=False)
    assert got.status == status, got.raw
    if status == 400:
        assert b"its signature was not made here" in got.raw


def test_redacted_reasoning_is_rejected() -> None:
    body = with_reasoning(MESSAGES, "", None)
    body["messages"][1]["content"][0] = {"type": "redacted_thinking", "data": sign("x")}
    assert send(config_of(MESSAGES), body, "reasoner", stream=False).status == 400


@pytest.mark.parametrize(
    ("signature", "status"), [(sign("x"), 200), (SKIP_SIGNATURE, 200), (None, 200), ("AAAA", 400)]
)
def test_the_signature_of_a_call_is_verified_too(signature: str | None, status: int) -> None:
    call: Object = {"functionCall": {"id": "c", "name": "look", "args": {}}}
    turn = [call | ({"thoughtSignature": signature} if signature else {})]
    body = next_request(GEMINI, turn, ("c", "look", "found"))
    assert send(config_of(GEMINI), body, "chat", stream=False).status == status


@EVERY
@pytest.mark.parametrize("client", ASKED)
def test_signed_reasoning_comes_back_through_every_client_dialect(
    client: DialectName, dialect: DialectName
) -> None:
    """As a gateway does it: the answer goes to a client of another dialect, and comes back."""
    quirks = ChatQuirks(reasoning_back=("reasoning_content", "reasoning_details"))
    context = Context(origin=ORIGIN, quirks=quirks if dialect == CHAT else None)
    prompt = DemoRequest("reasoner", WEATHER, tools=("get_weather",))
    raw = weft.convert(exchange(dialect, prompt).raw, dialect, client, context=context)
    turn = KEPT[client](events_of(raw))
    results = [(id, name, "It is fine.") for id, name, _ in calls_in(turn, client)]
    assert len(results) == 1
    second = json.dumps(next_request(client, turn, *results)).encode()
    body = weft.convert_request(second, client, dialect, context=context).body
    sent = json.loads(body) | ({} if dialect == GEMINI else {"model": "reasoner"})
    assert any(mark in body.decode() for mark in signatures_in(dialect, prompt)) is True
    got = send(config_of(dialect), sent, "reasoner", stream=True)
    assert got.status == 200, got.raw


def signatures_in(dialect: DialectName, prompt: DemoRequest) -> list[str]:
    items = response_to(dialect, prompt).items
    found = [one.signature or one.encrypted for one in items if isinstance(one, ReasoningItem)]
    return [one for one in found if one is not None]


# Failing


FAILING: list[tuple[str, ErrorClass]] = [
    ("error-401", "auth"),
    ("error-429", "rate"),
    ("error-500", "server"),
    ("overloaded", "overloaded"),
    ("no-such-model", "not-found"),
]


@STREAMED
@EVERY
@pytest.mark.parametrize(("model", "found"), FAILING)
def test_models_that_fail_send_the_error_of_their_dialect(
    model: str, found: ErrorClass, dialect: str, stream: bool
) -> None:
    got = exchange(dialect, DemoRequest(model, stream=stream))
    read_error = DIALECTS[dialect].read_error
    assert read_error is not None
    error = read_error(got.status, got.raw, got.headers.get("retry-after"))
    assert class_of(error) == found
    usual = 529 if (dialect, model) == (MESSAGES, "overloaded") else CLASSES[found].status
    assert got.status == usual
    assert got.headers["content-type"] == "application/json"
    assert got.headers.get("retry-after") == ("1" if model == "error-429" else None)


@EVERY
def test_the_error_for_an_unknown_model_lists_the_models(dialect: str) -> None:
    got = exchange(dialect, DemoRequest("gpt-99"))
    assert got.status == 404
    for model in MODELS:
        assert model in got.raw.decode()


@EVERY
def test_an_error_in_the_middle_ends_the_stream(dialect: DialectName) -> None:
    got = exchange(dialect, DemoRequest("error-midstream"))
    response = got.response(dialect)
    assert got.status == 200
    assert response.error is not None
    assert "error-midstream always fails" in response.error.message
    assert response.finish_reason == "error"
    whole = response_to(dialect, DemoRequest()).text
    assert 0.3 * len(whole) < len(response.text) < 0.7 * len(whole)
    assert exchange(dialect, DemoRequest("error-midstream", stream=False)).status == 500


@EVERY
def test_a_cut_stream_is_truncated(dialect: DialectName) -> None:
    response = exchange(dialect, DemoRequest("cut")).response(dialect)
    assert response.error is not None
    assert (response.error.kind, response.finish_reason) == ("truncated", "error")
    assert response.text


@EVERY
def test_a_cut_body_is_not_json(dialect: str) -> None:
    got = exchange(dialect, DemoRequest("cut", stream=False))
    assert got.status == 200
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|Invalid"):
        json.loads(got.raw)


@EVERY
def test_one_call_in_231_chunks_is_one_call(dialect: DialectName) -> None:
    got = exchange(dialect, DemoRequest("duplicate-calls"))
    response = got.response(dialect)
    assert [one.name for one in response.tool_calls] == ["run-sandbox"]
    assert json.loads(response.tool_calls[0].params)["code"].endswith("print(199)\n")
    if dialect == CHAT:
        assert got.raw.count(b'"functions.run-sandbox:2"') == CHUNKS
        assert "call-id-repeated" in {one.code for one in response.findings}
    else:  # other wires cannot say it wrong in this way
        assert weft.check(got.raw, dialect) == []


@pytest.mark.parametrize(
    ("dialect", "more", "named"),
    [
        (CHAT, {"n": 2}, "n: this model gives one answer"),
        (GEMINI, {"generationConfig": {"candidateCount": 2}}, "candidateCount: this model gives"),
        (CHAT, {"max_tokens": 0}, "max_tokens: expected at least 1"),
        (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens: expected at least 1"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id: this model keeps"),
        (RESPONSES, {"background": True}, "background: this model answers at once"),
    ],
)
def test_an_unsupported_option_is_rejected(dialect: str, more: Object, named: str) -> None:
    got = send(config_of(dialect), DemoRequest().body(dialect) | more, "chat", stream=True)
    assert got.status == 400
    assert named in got.raw.decode()


@EVERY
def test_an_invalid_body_is_rejected_with_the_name_of_the_field(dialect: str) -> None:
    field = {CHAT: "messages", RESPONSES: "input", MESSAGES: "messages", GEMINI: "contents"}
    got = send(config_of(dialect), {"model": "chat", field[dialect]: 5}, "chat", stream=True)
    assert got.status == 400
    assert field[dialect] in got.raw.decode()


KEYS = st.sampled_from(
    [
        "model", "messages", "input", "contents", "tools", "tool_choice", "stream", "max_tokens",
        "response_format", "text", "stop", "reasoning", "generationConfig", "toolConfig", "system",
    ]
)  # fmt: skip


@EVERY
@QUICK
@given(body=st.binary(max_size=40) | JSON.map(json.dumps).map(str.encode))
def test_any_bytes_get_a_response(dialect: str, body: bytes) -> None:
    got = asyncio.run(
        read_all(
            config_of(dialect, "demo:fast"), OutgoingRequest(endpoint(dialect, "chat", True), body)
        )
    )
    assert got.status in (200, 400, 404)
    assert got.raw


@EVERY
@QUICK
@given(more=st.dictionaries(KEYS, JSON, max_size=3), tools=st.booleans())
def test_any_field_of_a_request_gets_a_response(dialect: str, more: Object, tools: bool) -> None:
    body = DemoRequest("tools", WEATHER, tools=("a", "b") if tools else ()).body(dialect) | more
    got = send(config_of(dialect, "demo:fast"), body, "tools", stream=True)
    assert got.status in (200, 400, 404)


@EVERY
@QUICK
@given(schema=JSON, text=st.text(max_size=30))
def test_any_schema_and_any_message_get_a_response(dialect: str, schema: Any, text: str) -> None:
    shaped = schema if isinstance(schema, dict) else {"anyOf": [schema]}
    prompt = DemoRequest("tools", text, tools=("a",), schema=shaped)
    got = exchange(dialect, prompt, "demo:fast")
    assert got.status in (200, 400)


def test_an_upstream_has_its_config() -> None:
    assert DemoUpstream(config_of(CHAT)).config == config_of(CHAT)


def test_a_dialect_without_requests_is_rejected() -> None:
    with pytest.raises(UnknownDialect, match="ai-sdk has streams only"):
        DemoUpstream(config_of("ai-sdk"))


def test_a_request_without_a_model_uses_the_default() -> None:
    body = DemoRequest().body(CHAT) | {"model": ""}
    assert send(config_of(CHAT), body, "", stream=True).response(CHAT).text
    assert DEFAULT == MODELS[0] == "chat"


@pytest.mark.parametrize(
    ("dialect", "path", "counted"),
    [
        (MESSAGES, "/v1/messages/count_tokens", {"input_tokens": 4}),
        (GEMINI, "/v1beta/models/chat:countTokens", {"totalTokens": 4}),
    ],
)
def test_tokens_can_be_counted(dialect: str, path: str, counted: Object) -> None:
    body = json.dumps(DemoRequest(text="one two three").body(dialect)).encode()
    got = asyncio.run(read_all(config_of(dialect), OutgoingRequest(path, body)))
    assert (got.status, json.loads(got.raw)) == (200, counted)


# Time


@EVERY
def test_deltas_come_with_the_delays_of_a_real_model(dialect: DialectName) -> None:
    got = exchange(dialect, DemoRequest("long"))
    first, *others = got.waits
    spoken = [wait for wait in others if wait]
    assert first == 0.15
    assert all(0.010 <= wait <= 0.025 for wait in spoken)
    assert len(set(spoken)) > 100
    texts = [weft.decode_all(one, dialect)[0].response.text for one in got.reads[1:100]]
    sizes = [len(text.split()) for text in texts]
    assert max(sizes) > 3  # several pieces in one read
    assert 5 < sum(got.waits) < 20


@EVERY
def test_a_fast_upstream_never_waits(dialect: str) -> None:
    for model in WORKING_MODELS:
        got = exchange(dialect, DemoRequest(model), "demo:fast")
        assert set(got.waits) == {0.0}
        assert got.raw == exchange(dialect, DemoRequest(model)).raw or model == "slow"


@EVERY
def test_slow_is_silent_first_and_then_sends_a_word_per_second(dialect: DialectName) -> None:
    got = exchange(dialect, DemoRequest("slow"))
    first, *others = got.waits
    assert first == 20.0
    assert set(others) == {0.0, 1.0}
    assert others.count(1.0) >= len(split_words(got.response(dialect).text))


@EVERY
def test_a_body_comes_after_the_time_of_the_whole_stream(dialect: DialectName) -> None:
    body = exchange(dialect, DemoRequest("slow", stream=False))
    assert body.waits[0] > 20.0 + len(split_words(body.response(dialect).text))
    assert body.waits[1:] == (0.0,)
    assert body.reads == (body.raw,)


@EVERY
def test_every_read_returns_whole_events(dialect: str) -> None:
    for piece in exchange(dialect, DemoRequest("reasoner")).reads:
        assert piece.endswith(b"\n\n")


class Clock:
    """A sleep that goes on when it is told to."""

    def __init__(self) -> None:
        self.sleeping = asyncio.Event()
        self.released = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.sleeping.set()
            await self.released.wait()


def outgoing(dialect: str, model: str) -> OutgoingRequest:
    body = json.dumps(DemoRequest(model).body(dialect)).encode()
    return OutgoingRequest(endpoint(dialect, model, True), body)


@EVERY
@pytest.mark.parametrize("model", ["chat", "stall"])
def test_abort_wakes_a_read_that_waits(dialect: str, model: str) -> None:
    async def main() -> None:
        clock = Clock()
        upstream = DemoUpstream(config_of(dialect, "demo:"), sleep=clock.sleep)
        clock.released.set()
        answer = await upstream.send(outgoing(dialect, model))
        assert await answer.read()
        clock.released.clear()
        clock.sleeping.clear()
        reading = asyncio.create_task(_to_the_end(answer))
        await clock.sleeping.wait()
        answer.abort()
        answer.abort()
        with pytest.raises(Unreachable) as problem:
            await asyncio.wait_for(reading, 10)
        assert problem.value.kind == "truncated"
        with pytest.raises(Unreachable):
            await answer.read()

    asyncio.run(main())


async def _to_the_end(answer: Any) -> bytes:
    whole = b""
    while piece := await answer.read():
        whole += piece
    return whole


def test_abort_after_the_end_changes_nothing() -> None:
    async def main() -> None:
        upstream = DemoUpstream(config_of(CHAT, "demo:fast"))
        answer = await upstream.send(outgoing(CHAT, "chat"))
        assert await _to_the_end(answer)
        answer.abort()
        assert await answer.read() == b""

    asyncio.run(main())


def test_a_cancelled_read_can_be_repeated() -> None:
    async def main() -> bytes:
        clock = Clock()
        upstream = DemoUpstream(config_of(CHAT), sleep=clock.sleep)
        asking = asyncio.create_task(upstream.send(outgoing(CHAT, "chat")))
        await clock.sleeping.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        clock.released.set()
        answer = await upstream.send(outgoing(CHAT, "chat"))
        begun = await answer.read()
        clock.released.clear()
        clock.sleeping.clear()
        reading = asyncio.create_task(answer.read())
        await clock.sleeping.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        clock.released.set()
        return begun + await _to_the_end(answer)

    assert asyncio.run(main()) == exchange(CHAT, DemoRequest()).raw


@EVERY
def test_stall_sends_half_of_its_answer_and_then_times_out(dialect: DialectName) -> None:
    async def main() -> tuple[bytes, str, list[float]]:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        limits = Timeouts(between_events=7.0)
        upstream = DemoUpstream(config_of(dialect, timeouts=limits), sleep=sleep)
        answer = await upstream.send(outgoing(dialect, "stall"))
        whole = b""
        try:
            while piece := await answer.read():
                whole += piece
        except Unreachable as problem:
            return whole, problem.kind, waits
        return whole, "", waits

    raw, kind, waits = asyncio.run(main())
    (half,) = weft.decode_all(raw, dialect)
    whole = response_to(dialect, DemoRequest()).text
    assert (kind, waits[-1]) == ("timeout", 7.0)
    assert 0.3 * len(whole) < len(half.response.text) < 0.7 * len(whole)


def test_a_model_that_is_slower_than_the_timeout_is_unreachable() -> None:
    with pytest.raises(Unreachable) as problem:
        exchange(CHAT, DemoRequest("slow"), timeouts=Timeouts(first_byte=5.0))
    assert (str(problem.value), problem.value.kind) == ("no answer within 5 s", "timeout")


def test_concurrent_responses_do_not_mix() -> None:
    requests = [DemoRequest(text=f"Question {number}?") for number in range(20)]

    async def main() -> list[Exchange]:
        config = config_of(CHAT, "demo:fast")
        asking = [
            read_all(
                config, OutgoingRequest("/chat/completions", json.dumps(one.body(CHAT)).encode())
            )
            for one in requests
        ]
        return list(await asyncio.gather(*asking))

    found = [got.response(CHAT).text for got in asyncio.run(main())]
    quoted = [re.findall(r"^> (.*)$", text, re.MULTILINE) for text in found]
    assert quoted == [[one.text] for one in requests]
    assert all(one != other for one, other in pairwise(found))
