"""The built-in model: real bytes of every dialect, and every way to fail that hosts have."""

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
from tests.strategies import JSON, QUICK, THOROUGH
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
from weft.upstream.demo.schema_samples import sample
from weft.upstream.demo.signatures import sign, verify
from weft.upstream.demo.texts import CITED_SENTENCES, count_tokens, split_words

Object = dict[str, Any]

ORIGIN = "demo.example"
QUIET = ("chat", "reasoner", "tools", "sources", "long", "slow")
"""Models that do nothing wrong."""

WEATHER = "What is the weather in Paris for 3 days?"
PLACE_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "note": {"type": "string"},
    },
    "required": ["city", "days", "unit"],
}
PLACED = {"city": "Paris", "days": 3, "unit": "celsius"}

EVERY = pytest.mark.parametrize("dialect", ASKED)
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])


# Asking


@dataclass(frozen=True)
class Got:
    status: int
    headers: Mapping[str, str]
    raw: bytes
    reads: tuple[bytes, ...]
    waits: tuple[float, ...]

    def response(self, dialect: DialectName) -> Response:
        (one,) = weft.decode_all(self.raw, dialect, context=Context(origin=ORIGIN))
        return one.response


def place_of(dialect: str, url: str = "demo:", **more: Any) -> UpstreamConfig:
    return UpstreamConfig("demo", dialect, url, origin=ORIGIN, models=MODELS, **more)


async def read_all(place: UpstreamConfig, outgoing: OutgoingRequest) -> Got:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    upstream = DemoUpstream(place, sleep=sleep)
    answer = await upstream.send(outgoing)
    reads = []
    while piece := await answer.read():
        reads.append(piece)
    assert await answer.read() == b""
    await upstream.close()
    return Got(answer.status, answer.headers, b"".join(reads), tuple(reads), tuple(waits))


def ask(place: UpstreamConfig, body: Object, model: str, *, stream: bool) -> Got:
    raw = json.dumps(body).encode()
    return asyncio.run(
        read_all(place, OutgoingRequest(endpoint(place.dialect, model, stream), raw))
    )


@dataclass(frozen=True)
class Question:
    """One request, in the words of any dialect."""

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


def tool_fields(dialect: str, question: Question) -> Object:
    if not question.tools:
        return {}
    tools: list[Object]
    functions: list[Object]
    declared: list[Object] = [
        {"name": name, "description": question.description} for name in question.tools
    ]
    choice, named = question.choice, question.choice not in (None, "none", "required")
    match dialect:
        case "openai-chat":
            tools = [
                {"type": "function", "function": {**one, "parameters": PLACE_SCHEMA}}
                for one in declared
            ]
            chosen: Any = {"type": "function", "function": {"name": choice}} if named else choice
            if question.allowed:
                functions = [
                    {"type": "function", "function": {"name": one}} for one in question.allowed
                ]
                allowed = {"mode": "auto", "tools": functions}
                chosen = {"type": "allowed_tools", "allowed_tools": allowed}
        case "openai-responses":
            tools = [{"type": "function", **one, "parameters": PLACE_SCHEMA} for one in declared]
            chosen = {"type": "function", "name": choice} if named else choice
            if question.allowed:
                functions = [{"type": "function", "name": one} for one in question.allowed]
                chosen = {"type": "allowed_tools", "mode": "auto", "tools": functions}
        case "anthropic-messages":
            tools = [{**one, "input_schema": PLACE_SCHEMA} for one in declared]
            words = {"none": {"type": "none"}, "required": {"type": "any"}, None: None}
            chosen = words.get(choice, {"type": "tool", "name": choice})
        case _:
            functions = [{**one, "parametersJsonSchema": PLACE_SCHEMA} for one in declared]
            tools = [{"functionDeclarations": functions}]
            mode = {"none": "NONE", None: "AUTO"}.get(choice, "ANY")
            config: Object = {"mode": mode}
            names = [choice] if named else list(question.allowed)
            config |= {"allowedFunctionNames": names} if names else {}
            return {"tools": tools, "toolConfig": {"functionCallingConfig": config}}
    return {"tools": tools, **({"tool_choice": chosen} if chosen else {})}


def asked(dialect: str, question: Question, url: str = "demo:", **more: Any) -> Got:
    place = place_of(dialect, url, **more)
    return ask(place, question.body(dialect), question.model, stream=question.stream)


def answered(dialect: DialectName, question: Question) -> Response:
    got = asked(dialect, question)
    assert got.status == 200, got.raw
    return got.response(dialect)


def meant(response: Response) -> Object:
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


# What it sends


@STREAMED
@EVERY
@pytest.mark.parametrize("model", QUIET)
def test_what_it_sends_breaks_no_rule_of_its_wire(
    model: str, dialect: DialectName, stream: bool
) -> None:
    tools = ("get_weather", "get_time") if model in ("reasoner", "tools") else ()
    got = asked(dialect, Question(model, WEATHER, stream, tools=tools))
    assert got.status == 200
    assert got.headers["content-type"] == ("text/event-stream" if stream else "application/json")
    assert weft.check(got.raw, dialect) == []


@EVERY
@pytest.mark.parametrize("model", QUIET)
def test_a_stream_and_a_body_say_the_same(model: str, dialect: DialectName) -> None:
    question = Question(model, WEATHER, tools=("get_weather", "get_time"))
    body = replace(question, stream=False)
    assert meant(answered(dialect, question)) == meant(answered(dialect, body))


@EVERY
@pytest.mark.parametrize("model", sorted({*MODELS} - {"stall"}))
def test_equal_requests_are_answered_with_equal_bytes(model: str, dialect: str) -> None:
    question = Question(model, WEATHER, tools=("get_weather",))
    assert asked(dialect, question) == asked(dialect, question)


@EVERY
def test_another_request_has_other_ids(dialect: DialectName) -> None:
    one, other = (asked(dialect, Question(text=text)).response(dialect) for text in ("a", "b"))
    assert one.id != other.id


@EVERY
def test_chat_says_what_it_is_and_what_it_was_asked(dialect: DialectName) -> None:
    response = answered(dialect, Question(text="Hello, who are you?\nReally?"))
    assert response.text.startswith("Hello! I am the demo model of Weft: a script")
    assert "\n> Hello, who are you?\n> Really?\n" in response.text
    assert f"`{dialect}`" in response.text
    assert "`demo/reasoner`" in response.text
    assert (response.finish_reason, response.model) == ("stop", "chat")


def test_a_long_message_is_quoted_in_part() -> None:
    response = answered(CHAT, Question(text="word " * 1000))
    (quotation,) = [line for line in response.text.splitlines() if line.startswith("> ")]
    assert quotation.endswith("word …")
    assert len(quotation) < 210


@EVERY
def test_usage_counts_words(dialect: DialectName) -> None:
    response = answered(dialect, Question("reasoner", "one two three"))
    usage = response.usage
    assert usage is not None
    assert usage.input_tokens == 4
    assert usage.reasoning_tokens == count_tokens(response.reasoning)
    assert usage.output_tokens == count_tokens(response.text) + count_tokens(response.reasoning)
    assert usage.cache_read_tokens == 0


@EVERY
def test_sources_stand_where_their_sentences_are(dialect: DialectName) -> None:
    response = answered(dialect, Question("sources"))
    sources = [item for item in response.items if isinstance(item, Source)]
    cited = [
        one.raw if one.start is None else response.text[one.start : one.end] for one in sources
    ]
    found = [json.loads(bytes(one))["cited_text"] if isinstance(one, Raw) else one for one in cited]
    pages = [(text, one.url, one.title) for text, one in zip(found, sources, strict=True)]
    assert pages == list(CITED_SENTENCES)


@EVERY
def test_long_is_about_two_thousand_words(dialect: DialectName) -> None:
    assert 1900 < len(answered(dialect, Question("long")).text.split()) < 2100


# Limits


@STREAMED
@EVERY
@pytest.mark.parametrize("model", ["long", "chat", "reasoner"])
@pytest.mark.parametrize("limit", [1, 16, 50])
def test_an_answer_ends_at_the_limit_of_tokens(
    dialect: DialectName, stream: bool, model: str, limit: int
) -> None:
    got = asked(dialect, Question(model, stream=stream, limit=limit))
    response, whole = got.response(dialect), answered(dialect, Question(model))
    said = response.reasoning + response.text
    count = len(response.reasoning.split()) + len(response.text.split())
    assert weft.check(got.raw, dialect) == []
    assert response.finish_reason == "length"
    assert (whole.reasoning + whole.text).startswith(said.rstrip())
    assert max(1, limit / 1.3 - 2) <= count <= max(1, limit / 1.3)
    assert response.usage is not None
    assert (response.usage.output_tokens or 0) <= limit


@EVERY
def test_reasoning_that_was_cut_is_proven_as_far_as_it_came(dialect: DialectName) -> None:
    response = answered(dialect, Question("reasoner", limit=10))
    (thought,) = [item for item in response.items if isinstance(item, ReasoningItem)]
    assert verify(thought.signature or thought.encrypted or "", thought.text)
    assert (len(thought.text.split()), response.text) == (7, "")


@EVERY
def test_a_call_that_does_not_fit_is_not_made(dialect: DialectName) -> None:
    response = answered(dialect, Question("tools", WEATHER, tools=("get_weather",), limit=1))
    assert (response.tool_calls, response.finish_reason) == ((), "length")


@STREAMED
@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, GEMINI])  # Responses has no such field
def test_an_answer_ends_before_a_stop_sequence(dialect: DialectName, stream: bool) -> None:
    question = Question("sources", stream=stream, stop=("UTF-8", "JSON"))
    response = answered(dialect, question)
    assert response.text == CITED_SENTENCES[0][0] + " Each event holds "
    assert response.finish_reason == "stop"
    assert response.stop_sequence == ("JSON" if dialect == MESSAGES else None)
    assert [one.url for one in response.items if isinstance(one, Source)] == [CITED_SENTENCES[0][1]]


# Tools


@EVERY
@pytest.mark.parametrize(
    ("question", "called"),
    [
        (Question(text=WEATHER, tools=("get_time", "get_weather")), ["get_weather"]),
        (Question(text="Use get_time now", tools=("get_weather", "get_time")), ["get_time"]),
        (Question(text="Sing", tools=("get_weather", "get_time")), []),
        (
            Question(text="Forecasts of rain?", tools=("a",), description="The forecast: rain."),
            ["a"],
        ),
        (Question(text=WEATHER, tools=("get_weather",), choice="none"), []),
        (Question(text="Sing", tools=("a", "b"), choice="required"), ["a"]),
        (Question(text="Sing", tools=("a", "b"), choice="b"), ["b"]),
        (
            Question(text=WEATHER, tools=("get_weather", "get_time"), choice="get_time"),
            ["get_time"],
        ),
        (Question(text=WEATHER, tools=("get_weather", "b"), allowed=("b",)), []),
        (Question("tools", "Sing", tools=("a", "b", "c")), ["a", "b"]),
        (Question("tools", "Sing", tools=("a",)), ["a"]),
        (Question("tools", "Sing", tools=("a", "b"), choice="none"), []),
        (Question("tools", "Sing", tools=("a", "b"), choice="b"), ["b"]),
        (Question("tools", "Sing", tools=("a", "b", "c"), allowed=("b", "c")), ["b", "c"]),
        (Question("tools", "Sing"), []),
        (Question("reasoner", WEATHER, tools=("get_weather",)), ["get_weather"]),
    ],
    ids=str,
)
def test_tools_are_called_when_they_may_be(
    dialect: DialectName, question: Question, called: list[str]
) -> None:
    if question.allowed and dialect == MESSAGES:  # which has no such list: all others are left out
        question = replace(question, tools=question.allowed, allowed=())
    response = answered(dialect, question)
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
def test_one_tool_at_a_time_where_that_is_asked(dialect: DialectName, off: Object) -> None:
    body = Question("tools", tools=("a", "b")).body(dialect) | off
    got = ask(place_of(dialect), body, "tools", stream=True)
    assert [one.name for one in got.response(dialect).tool_calls] == ["a"]


@EVERY
def test_arguments_are_taken_from_the_message(dialect: DialectName) -> None:
    response = answered(dialect, Question("tools", WEATHER, tools=("get_weather",)))
    assert [json.loads(one.params) for one in response.tool_calls] == [PLACED]


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES])
def test_a_tool_for_free_text_is_given_the_message(dialect: DialectName) -> None:
    free: Object = {"name": "shell", "description": "Runs a command."}
    tool = {"type": "custom", **({"custom": free} if dialect == CHAT else free)}
    body = Question("tools", "ls -la").body(dialect) | {"tools": [tool]}
    response = ask(place_of(dialect), body, "tools", stream=True).response(dialect)
    calls = [(one.name, one.params, one.kind, one.format) for one in response.tool_calls]
    assert calls == [("shell", "ls -la", "custom", "text")]


@STREAMED
@EVERY
@pytest.mark.parametrize("model", ["tools", "reasoner", "chat"])
def test_a_loop_over_tools_ends_in_the_second_turn(
    model: str, dialect: DialectName, stream: bool
) -> None:
    question = Question(model, WEATHER, tools=("get_weather", "get_time"))
    first = asked(dialect, question)
    turn = KEPT[dialect](events_of(first.raw))
    calls = calls_in(turn, dialect)
    results = [(id, name, f"It is fine, says {name}.") for id, name, _ in calls]
    body = question.body(dialect) | next_request(dialect, turn, *results)
    body |= {} if dialect == GEMINI else {"model": model, "stream": stream, "max_tokens": 9999}
    if dialect == RESPONSES:
        del body["max_tokens"]
    got = ask(place_of(dialect), body, model, stream=stream)
    assert got.status == 200, got.raw
    response = got.response(dialect)
    assert (response.tool_calls, response.finish_reason) == ((), "stop")
    for _, name, text in results:
        assert f"`{name}` answered:\n\n> " in response.text
        assert text in response.text
    assert weft.check(got.raw, dialect) == []


def test_a_result_that_failed_is_told_so() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    failed = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}
    body = Question().body(MESSAGES)
    body["messages"] += [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [failed, {"type": "text", "text": "Go on."}]},
    ]
    response = ask(place_of(MESSAGES), body, "chat", stream=True).response(MESSAGES)
    assert response.text.startswith("`look` failed:\n\n> no\n")


def test_what_is_said_after_a_result_is_answered() -> None:
    body = Question(text="first").body(CHAT)
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "found"},
        {"role": "user", "content": "second"},
    ]
    response = ask(place_of(CHAT), body, "chat", stream=True).response(CHAT)
    assert "> second" in response.text
    assert "found" not in response.text


def test_files_are_mentioned() -> None:
    body = Question().body(CHAT)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    body["messages"][0]["content"] = [{"type": "text", "text": "See"}, image]
    response = ask(place_of(CHAT), body, "chat", stream=True).response(CHAT)
    assert "There was a file too." in response.text


# Arguments and structured answers


@pytest.mark.parametrize(
    ("message", "field", "schema", "value"),
    [
        ("weather in New York today", "city", {"type": "string"}, "New York"),
        ("I like Rome", "city", {"type": "string"}, "Rome"),
        ("run `ls -l` please", "command", {"type": "string"}, "ls -l"),
        ("run something", "command", {"type": "string"}, "echo hello"),
        ('say "good day"', "words", {"type": "string"}, "good day"),
        ("read src/weft/ids.py now", "file_path", {"type": "string"}, "src/weft/ids.py"),
        ("write something", "path", {"type": "string"}, "weft-demo.txt"),
        ("open https://a.example/b", "url", {"type": "string"}, "https://a.example/b"),
        ("what is new?", "query", {"type": "string"}, "what is new?"),
        ("", "anything", {"type": "string"}, "example"),
        ("in 12 days", "days", {"type": "integer"}, 12),
        ("in 12 days", "days", {"type": "integer", "maximum": 5}, 1),
        ("at 2.5 degrees", "degrees", {"type": "number"}, 2.5),
        ("some", "count", {"type": "integer", "minimum": 10, "multipleOf": 4}, 12),
        ("yes", "flag", {"type": "boolean"}, True),
        ("in fahrenheit", "unit", {"enum": ["celsius", "fahrenheit"]}, "fahrenheit"),
        ("x", "unit", {"enum": ["celsius", "fahrenheit"]}, "celsius"),
        ("x", "unit", {"const": 7}, 7),
        ("x", "when", {"type": "string", "format": "date"}, "2026-01-31"),
        ("x", "key", {"type": "string", "minLength": 10}, "examplexxx"),
        ("x", "key", {"type": "string", "maxLength": 3}, "exa"),
        ("x", "key", {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{3}$"}, "ABC-123"),
        ("x", "maybe", {"type": ["null", "integer"]}, 1),
        ("x", "maybe", {"anyOf": [{"type": "null"}, {"type": "boolean"}]}, True),
        ("x", "list", {"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        (
            "x",
            "list",
            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True},
            [1, 2],
        ),
        ("x", "named", {"$ref": "#/$defs/flag"}, True),
        (
            "x",
            "both",
            {
                "properties": {"a": {"const": 1}},
                "required": ["a"],
                "allOf": [{"properties": {"b": {"const": 2}}, "required": ["b"]}],
            },
            {"a": 1, "b": 2},
        ),
    ],
)  # fmt: skip
def test_arguments_fit_their_schema_and_the_message(
    message: str, field: str, schema: Object, value: object
) -> None:
    whole = {
        "type": "object",
        "properties": {field: schema},
        "required": [field],
        "$defs": {"flag": {"type": "boolean"}},
    }
    assert sample(Raw(json.dumps(whole).encode()), message, optional=False) == {field: value}


def flaws(value: object, schema: Object, root: Object) -> list[str]:
    """What is wrong with a value, by the keywords that are drawn below."""
    if "$ref" in schema:
        return flaws(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if "anyOf" in schema:
        every = [flaws(value, one, root) for one in schema["anyOf"]]
        return [] if [] in every else every[0]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{value!r} is none of {schema['enum']}"]
    types: Object = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    if not isinstance(value, types[schema["type"]]):
        return [f"{value!r} is no {schema['type']}"]
    found = []
    if isinstance(value, dict):
        found += [f"no {name}" for name in schema.get("required", ()) if name not in value]
        fields = schema.get("properties", {})
        found += [f"{name} is not known" for name in value if name not in fields]
        for name, inner in value.items():
            found += flaws(inner, fields.get(name, {"enum": [inner]}), root)
    if isinstance(value, list):
        fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1000)
        found += [] if fits else [f"{len(value)} items"]
        for inner in value:
            found += flaws(inner, schema["items"], root)
    if isinstance(value, str):
        fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1000)
        found += [] if fits else [f"{len(value)} characters"]
    if isinstance(value, int | float) and not isinstance(value, bool):
        fits = schema.get("minimum", value) <= value <= schema.get("maximum", value)
        found += [] if fits else [f"{value} is out of range"]
    return found


def ranged(type: str, least: str, most: str) -> st.SearchStrategy[Object]:
    pairs = st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted)
    written = pairs.map(lambda pair: {"type": type, least: pair[0], most: pair[1]})
    return st.just({"type": type}) | written


PLAIN: st.SearchStrategy[Object] = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"enum": ["a", 2, None]}]),
    ranged("string", "minLength", "maxLength"),
    ranged("integer", "minimum", "maximum"),
    ranged("number", "minimum", "maximum"),
    st.just({"$ref": "#/$defs/tree"}),
)


def composed(inner: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    names = st.sampled_from(["city", "path", "query", "count", "n"])
    fields = st.dictionaries(names, inner, max_size=4)
    objects = st.tuples(fields, st.booleans()).map(
        lambda one: {
            "type": "object",
            "properties": one[0],
            **({"required": list(one[0]), "additionalProperties": False} if one[1] else {}),
        }
    )
    arrays = st.tuples(inner, ranged("array", "minItems", "maxItems")).map(
        lambda one: {**one[1], "items": one[0]}
    )
    return (
        objects | arrays | st.lists(inner, min_size=1, max_size=3).map(lambda one: {"anyOf": one})
    )


TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    },
    "required": ["name", "children"],
}
SCHEMAS = st.recursive(PLAIN, composed, max_leaves=8)


@THOROUGH
@given(schema=SCHEMAS, message=st.text(max_size=40), whole=st.booleans())
def test_what_is_made_for_a_schema_satisfies_it(schema: Object, message: str, whole: bool) -> None:
    root = {**schema, "$defs": {"tree": TREE}}
    made = sample(Raw(json.dumps(root).encode()), message, optional=whole)
    assert flaws(made, schema, root) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": 7},
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 100},
        {"type": "array", "minItems": 10**12},
        {"type": "string", "minLength": 10**12},
        {"type": "integer", "minimum": 10**400},
        {"type": "number", "minimum": 1e300, "maximum": -1e300, "multipleOf": 0},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": "^nothing like it$"},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True},
        {"type": "string", "pattern": "(a+)+$"},
        {"type": "wrong", "required": 5, "properties": [], "enum": {}, "anyOf": 1},
        {"enum": []},
        {"type": "array", "items": {"const": "x" * 10_000}, "minItems": 100},
        {"type": "array", "items": {"required": ["x" * 10_000]}, "minItems": 100},
        True,
        [],
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_an_odd_schema_does_no_harm(schema: object) -> None:
    made = sample(Raw(json.dumps(schema).encode()), "x", optional=True)
    assert len(json.dumps(made)) < 100_000


def test_a_schema_that_is_no_json_is_any_schema() -> None:
    assert sample(Raw(b"{"), "", optional=True) == "example"


@STREAMED
@EVERY
@pytest.mark.parametrize("model", ["chat", "reasoner", "tools"])
def test_an_answer_has_the_shape_that_was_asked_for(
    model: str, dialect: DialectName, stream: bool
) -> None:
    question = Question(model, WEATHER, stream, schema=PLACE_SCHEMA)
    made = json.loads(answered(dialect, question).text)
    assert made == {**PLACED, "note": "Paris"}


@pytest.mark.parametrize(
    ("dialect", "json_mode"),
    [
        (CHAT, {"response_format": {"type": "json_object"}}),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}),
        (GEMINI, {"generationConfig": {"responseMimeType": "application/json"}}),
    ],
)
def test_an_answer_is_json_where_that_is_asked(dialect: DialectName, json_mode: Object) -> None:
    got = ask(place_of(dialect), Question().body(dialect) | json_mode, "chat", stream=True)
    made = json.loads(got.response(dialect).text)
    assert list(made) == ["answer"]
    assert "Tell me something." in made["answer"]


# Reasoning


@EVERY
def test_reasoning_comes_with_a_proof_of_this_place(dialect: DialectName) -> None:
    response = answered(dialect, Question("reasoner", "Think of Rome."))
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
def test_it_does_not_think_when_it_is_told_not_to(dialect: DialectName, off: Object) -> None:
    got = ask(place_of(dialect), Question("reasoner").body(dialect) | off, "reasoner", stream=True)
    assert got.status == 200
    assert got.response(dialect).reasoning == ""


def with_reasoning(dialect: str, text: str, mark: str | None) -> Object:
    """A request that brings a reasoning back."""
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
def test_a_proof_that_was_not_made_here_is_refused(
    dialect: str, text: str, mark: str | None, status: int
) -> None:
    got = ask(place_of(dialect), with_reasoning(dialect, text, mark), "reasoner", stream=False)
    assert got.status == status, got.raw
    if status == 400:
        assert b"its signature was not made here" in got.raw


def test_redacted_reasoning_is_refused() -> None:
    body = with_reasoning(MESSAGES, "", None)
    body["messages"][1]["content"][0] = {"type": "redacted_thinking", "data": sign("x")}
    assert ask(place_of(MESSAGES), body, "reasoner", stream=False).status == 400


@pytest.mark.parametrize(
    ("signature", "status"), [(sign("x"), 200), (SKIP_SIGNATURE, 200), (None, 200), ("AAAA", 400)]
)
def test_the_proof_of_a_call_is_looked_at_too(signature: str | None, status: int) -> None:
    call: Object = {"functionCall": {"id": "c", "name": "look", "args": {}}}
    turn = [call | ({"thoughtSignature": signature} if signature else {})]
    body = next_request(GEMINI, turn, ("c", "look", "found"))
    assert ask(place_of(GEMINI), body, "chat", stream=False).status == status


@EVERY
@pytest.mark.parametrize("client", ASKED)
def test_its_reasoning_comes_home_through_every_client(
    client: DialectName, dialect: DialectName
) -> None:
    """As a gateway does it: the answer goes to a client of another dialect, and comes back."""
    quirks = ChatQuirks(reasoning_back=("reasoning_content", "reasoning_details"))
    context = Context(origin=ORIGIN, quirks=quirks if dialect == CHAT else None)
    question = Question("reasoner", WEATHER, tools=("get_weather",))
    raw = weft.convert(asked(dialect, question).raw, dialect, client, context=context)
    turn = KEPT[client](events_of(raw))
    results = [(id, name, "It is fine.") for id, name, _ in calls_in(turn, client)]
    assert len(results) == 1
    request = json.dumps(next_request(client, turn, *results)).encode()
    body = weft.convert_request(request, client, dialect, context=context).body
    sent = json.loads(body) | ({} if dialect == GEMINI else {"model": "reasoner"})
    assert any(mark in body.decode() for mark in proofs_in(dialect, question)) is True
    got = ask(place_of(dialect), sent, "reasoner", stream=True)
    assert got.status == 200, got.raw


def proofs_in(dialect: DialectName, question: Question) -> list[str]:
    items = answered(dialect, question).items
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
def test_models_that_fail_do_so_as_their_wire_says_it(
    model: str, found: ErrorClass, dialect: str, stream: bool
) -> None:
    got = asked(dialect, Question(model, stream=stream))
    read_error = DIALECTS[dialect].read_error
    assert read_error is not None
    error = read_error(got.status, got.raw, got.headers.get("retry-after"))
    assert class_of(error) == found
    usual = 529 if (dialect, model) == (MESSAGES, "overloaded") else CLASSES[found].status
    assert got.status == usual
    assert got.headers["content-type"] == "application/json"
    assert got.headers.get("retry-after") == ("1" if model == "error-429" else None)


@EVERY
def test_an_unknown_model_is_told_which_there_are(dialect: str) -> None:
    got = asked(dialect, Question("gpt-99"))
    assert got.status == 404
    for model in MODELS:
        assert model in got.raw.decode()


@EVERY
def test_an_error_in_the_middle_ends_the_stream(dialect: DialectName) -> None:
    got = asked(dialect, Question("error-midstream"))
    response = got.response(dialect)
    assert got.status == 200
    assert response.error is not None
    assert "error-midstream always fails" in response.error.message
    assert response.finish_reason == "error"
    whole = answered(dialect, Question()).text
    assert 0.3 * len(whole) < len(response.text) < 0.7 * len(whole)
    assert asked(dialect, Question("error-midstream", stream=False)).status == 500


@EVERY
def test_a_stream_that_is_cut_has_no_end(dialect: DialectName) -> None:
    response = asked(dialect, Question("cut")).response(dialect)
    assert response.error is not None
    assert (response.error.kind, response.finish_reason) == ("truncated", "error")
    assert response.text


@EVERY
def test_a_body_that_is_cut_is_no_json(dialect: str) -> None:
    got = asked(dialect, Question("cut", stream=False))
    assert got.status == 200
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|Invalid"):
        json.loads(got.raw)


@EVERY
def test_one_call_in_231_chunks_is_one_call(dialect: DialectName) -> None:
    got = asked(dialect, Question("duplicate-calls"))
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
def test_what_it_cannot_do_is_refused(dialect: str, more: Object, named: str) -> None:
    got = ask(place_of(dialect), Question().body(dialect) | more, "chat", stream=True)
    assert got.status == 400
    assert named in got.raw.decode()


@EVERY
def test_a_body_that_cannot_be_read_is_a_400_that_names_the_field(dialect: str) -> None:
    place = {CHAT: "messages", RESPONSES: "input", MESSAGES: "messages", GEMINI: "contents"}
    got = ask(place_of(dialect), {"model": "chat", place[dialect]: 5}, "chat", stream=True)
    assert got.status == 400
    assert place[dialect] in got.raw.decode()


KEYS = st.sampled_from(
    [
        "model", "messages", "input", "contents", "tools", "tool_choice", "stream", "max_tokens",
        "response_format", "text", "stop", "reasoning", "generationConfig", "toolConfig", "system",
    ]
)  # fmt: skip


@EVERY
@QUICK
@given(body=st.binary(max_size=40) | JSON.map(json.dumps).map(str.encode))
def test_any_bytes_have_an_answer(dialect: str, body: bytes) -> None:
    got = asyncio.run(
        read_all(
            place_of(dialect, "demo:fast"), OutgoingRequest(endpoint(dialect, "chat", True), body)
        )
    )
    assert got.status in (200, 400, 404)
    assert got.raw


@EVERY
@QUICK
@given(more=st.dictionaries(KEYS, JSON, max_size=3), tools=st.booleans())
def test_any_field_of_a_request_has_an_answer(dialect: str, more: Object, tools: bool) -> None:
    body = Question("tools", WEATHER, tools=("a", "b") if tools else ()).body(dialect) | more
    got = ask(place_of(dialect, "demo:fast"), body, "tools", stream=True)
    assert got.status in (200, 400, 404)


@EVERY
@QUICK
@given(schema=JSON, text=st.text(max_size=30))
def test_any_schema_and_any_message_have_an_answer(dialect: str, schema: Any, text: str) -> None:
    shaped = schema if isinstance(schema, dict) else {"anyOf": [schema]}
    question = Question("tools", text, tools=("a",), schema=shaped)
    got = asked(dialect, question, "demo:fast")
    assert got.status in (200, 400)


def test_it_knows_its_place() -> None:
    assert DemoUpstream(place_of(CHAT)).config == place_of(CHAT)


def test_a_dialect_without_requests_has_no_upstream() -> None:
    with pytest.raises(UnknownDialect, match="ai-sdk has streams only"):
        DemoUpstream(place_of("ai-sdk"))


def test_the_model_that_is_not_named_is_the_default() -> None:
    body = Question().body(CHAT) | {"model": ""}
    assert ask(place_of(CHAT), body, "", stream=True).response(CHAT).text
    assert DEFAULT == MODELS[0] == "chat"


@pytest.mark.parametrize(
    ("dialect", "path", "counted"),
    [
        (MESSAGES, "/v1/messages/count_tokens", {"input_tokens": 4}),
        (GEMINI, "/v1beta/models/chat:countTokens", {"totalTokens": 4}),
    ],
)
def test_tokens_can_be_counted(dialect: str, path: str, counted: Object) -> None:
    body = json.dumps(Question(text="one two three").body(dialect)).encode()
    got = asyncio.run(read_all(place_of(dialect), OutgoingRequest(path, body)))
    assert (got.status, json.loads(got.raw)) == (200, counted)


# Time


@EVERY
def test_it_speaks_at_the_pace_of_a_model(dialect: DialectName) -> None:
    got = asked(dialect, Question("long"))
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
def test_a_fast_place_never_waits(dialect: str) -> None:
    for model in QUIET:
        got = asked(dialect, Question(model), "demo:fast")
        assert set(got.waits) == {0.0}
        assert got.raw == asked(dialect, Question(model)).raw or model == "slow"


@EVERY
def test_slow_is_silent_first_and_then_says_a_word_a_second(dialect: DialectName) -> None:
    got = asked(dialect, Question("slow"))
    first, *others = got.waits
    assert first == 20.0
    assert set(others) == {0.0, 1.0}
    assert others.count(1.0) >= len(split_words(got.response(dialect).text))


@EVERY
def test_a_body_comes_when_all_of_it_is_there(dialect: DialectName) -> None:
    body = asked(dialect, Question("slow", stream=False))
    assert body.waits[0] > 20.0 + len(split_words(body.response(dialect).text))
    assert body.waits[1:] == (0.0,)
    assert body.reads == (body.raw,)


@EVERY
def test_every_read_gives_whole_events(dialect: str) -> None:
    for piece in asked(dialect, Question("reasoner")).reads:
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
    body = json.dumps(Question(model).body(dialect)).encode()
    return OutgoingRequest(endpoint(dialect, model, True), body)


@EVERY
@pytest.mark.parametrize("model", ["chat", "stall"])
def test_abort_wakes_a_read_that_waits(dialect: str, model: str) -> None:
    async def main() -> None:
        clock = Clock()
        upstream = DemoUpstream(place_of(dialect, "demo:"), sleep=clock.sleep)
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
        upstream = DemoUpstream(place_of(CHAT, "demo:fast"))
        answer = await upstream.send(outgoing(CHAT, "chat"))
        assert await _to_the_end(answer)
        answer.abort()
        assert await answer.read() == b""

    asyncio.run(main())


def test_whoever_waits_can_be_cancelled_and_read_on() -> None:
    async def main() -> bytes:
        clock = Clock()
        upstream = DemoUpstream(place_of(CHAT), sleep=clock.sleep)
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

    assert asyncio.run(main()) == asked(CHAT, Question()).raw


@EVERY
def test_stall_is_silent_after_half_of_its_answer_until_the_limit(dialect: DialectName) -> None:
    async def main() -> tuple[bytes, str, list[float]]:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        limits = Timeouts(between_events=7.0)
        upstream = DemoUpstream(place_of(dialect, timeouts=limits), sleep=sleep)
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
    whole = answered(dialect, Question()).text
    assert (kind, waits[-1]) == ("timeout", 7.0)
    assert 0.3 * len(whole) < len(half.response.text) < 0.7 * len(whole)


def test_a_model_that_is_slower_than_the_limit_is_unreachable() -> None:
    with pytest.raises(Unreachable) as problem:
        asked(CHAT, Question("slow"), timeouts=Timeouts(first_byte=5.0))
    assert (str(problem.value), problem.value.kind) == ("no answer within 5 s", "timeout")


def test_many_answers_at_a_time_do_not_mix() -> None:
    questions = [Question(text=f"Question {number}?") for number in range(20)]

    async def main() -> list[Got]:
        place = place_of(CHAT, "demo:fast")
        asking = [
            read_all(
                place, OutgoingRequest("/chat/completions", json.dumps(one.body(CHAT)).encode())
            )
            for one in questions
        ]
        return list(await asyncio.gather(*asking))

    found = [got.response(CHAT).text for got in asyncio.run(main())]
    quoted = [re.findall(r"^> (.*)$", text, re.MULTILINE) for text in found]
    assert quoted == [[one.text] for one in questions]
    assert all(one != other for one, other in pairwise(found))
