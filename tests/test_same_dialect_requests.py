"""A request that stays in its dialect goes out as it came, whatever it says that nobody here knows.

Any words of a valid body are replaced by one that no version of the wire has, and any objects get
a key of tomorrow: the body is read, and sent with the same values in the same order.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from tests.tables import each_row
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.requests.codec import Losses, RequestCodec

CODECS: dict[str, RequestCodec] = {
    name: dialect.request for name, dialect in DIALECTS.items() if dialect.request is not None
}
EVERY = pytest.mark.parametrize("dialect", CODECS)
UNKNOWN = "a-word-of-tomorrow"
KEY = "a_key_of_tomorrow"
SNAKE = {
    "system_instruction": "systemInstruction",
    "generation_config": "generationConfig",
    "tool_config": "toolConfig",
}
"""Keys at the top of a body that have two spellings: they are sent in the wire's own."""

MAPS = frozenset({"metadata"})
"""Objects of texts, whose keys are the client's own."""

Path = tuple[str | int, ...]


@cache
def bodies(dialect: str) -> st.SearchStrategy[Any]:
    """Bodies of a dialect, from the strategies beside its tests."""
    module = import_module(f"tests.requests_{dialect.replace('-', '_')}")
    found: st.SearchStrategy[Any] = module.bodies()
    return found


def words(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where texts stand. The model is the gateway's business."""
    match value:
        case str():
            yield path
        case dict():
            for key, inner in value.items():
                yield from () if (*path, key) == ("model",) else words(inner, (*path, key))
        case list():
            for number, inner in enumerate(value):
                yield from words(inner, (*path, number))


def objects(value: Any, path: Path = ()) -> Iterator[Path]:
    match value:
        case dict():
            yield from () if path and path[-1] in MAPS else [path]
            for key, inner in value.items():
                yield from objects(inner, (*path, key))
        case list():
            for number, inner in enumerate(value):
                yield from objects(inner, (*path, number))


def at(body: Any, path: Path) -> Any:
    for step in path:
        body = body[step]
    return body


def sent(dialect: str, body: object) -> bytes:
    codec = CODECS[dialect]
    losses = Losses()
    parsed = codec.parse(json.dumps(body).encode(), Context())
    rendered = codec.render(parsed.request, Context(origin="api.example"), losses)
    assert losses.found == []
    return rendered.body


def exact(data: bytes) -> object:
    """A body with the order of its keys and the spelling of its numbers."""
    return json.loads(data, object_pairs_hook=list, parse_float=str, parse_int=str)


def expected(body: dict[str, Any], dialect: str) -> bytes:
    """The body as it was, with what is always asked for: the usage of a chat stream."""
    told = {SNAKE.get(key, key): value for key, value in body.items()}
    if dialect == "openai-chat" and body.get("stream"):
        told["stream_options"] = {"include_usage": True} | (told.get("stream_options") or {})
    return json.dumps(told).encode()


@EVERY
@QUICK
@given(data=st.data())
def test_words_and_keys_that_nobody_knows_pass(dialect: str, data: st.DataObject) -> None:
    body = data.draw(bodies(dialect).map(lambda one: json.loads(json.dumps(one))))
    keyed = data.draw(st.sets(st.sampled_from(list(objects(body)))))
    replaced = data.draw(st.sets(st.sampled_from(list(words(body)) or [()])))
    for number, path in enumerate(replaced - {()}):  # two equal ids would mean each other
        at(body, path[:-1])[path[-1]] = f"{UNKNOWN}-{number}"
    for path in keyed:
        at(body, path)[KEY] = {"a": [1, 2.50]}
    assert exact(sent(dialect, body)) == exact(expected(body, dialect))


CHAT, RESPONSES, MESSAGES, GEMINI = (
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini",
)
PLAIN: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    RESPONSES: {"model": "m", "input": [{"role": "user", "content": "Hi"}]},
    MESSAGES: {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
FUNCTION = {"name": "f", "input_schema": {"type": "object"}}
CALLING = "toolConfig.functionCallingConfig"


def config(**fields: object) -> dict[str, Any]:
    return {"generationConfig": fields}


def said(dialect: str, message: object) -> dict[str, Any]:
    key = {RESPONSES: "input", GEMINI: "contents"}.get(dialect, "messages")
    return {key: [message]}


def part(dialect: str, raw: object) -> dict[str, Any]:
    return said(dialect, {"role": "user", "parts" if dialect == GEMINI else "content": [raw]})


CASES: list[tuple[str, dict[str, Any], str, str]] = [
    # Claude Code, twice a session
    (
        MESSAGES,
        {"thinking": {"type": "adaptive", "display": UNKNOWN}},
        "thinking.display",
        "warned",
    ),
    (
        MESSAGES,
        {"thinking": {"type": "enabled", "budget_tokens": 2048, "display": UNKNOWN}},
        "thinking.display",
        "warned",
    ),
    (MESSAGES, {"thinking": {"type": UNKNOWN}}, "thinking", "warned"),
    (MESSAGES, {"output_config": {"effort": UNKNOWN}}, "output_config.effort", "warned"),
    (MESSAGES, {"output_config": {"format": {"type": UNKNOWN}}}, "output_config.format", "refused"),
    (MESSAGES, {"tools": [FUNCTION], "tool_choice": {"type": UNKNOWN}}, "tool_choice", "refused"),
    (MESSAGES, {"cache_control": {"type": "ephemeral", "ttl": UNKNOWN}}, "cache_control", "warned"),
    (
        MESSAGES,
        part(MESSAGES, {"type": "text", "text": "a", "cache_control": {"type": UNKNOWN}}),
        "messages[0].content[0].cache_control",
        "warned",
    ),
    (MESSAGES, part(MESSAGES, {"type": UNKNOWN, "a": 1}), "messages[0].content[0]", "refused"),
    (MESSAGES, {"tools": [{"type": UNKNOWN, "max_uses": "few"}]}, "tools[0]", "refused"),
    (MESSAGES, said(MESSAGES, {"role": UNKNOWN, "content": 1}), "messages[0].role", "refused"),
    (CHAT, {"tool_choice": UNKNOWN}, "tool_choice", "refused"),
    (CHAT, {"tool_choice": {"type": UNKNOWN, "function": "f"}}, "tool_choice", "refused"),
    (CHAT, {"response_format": {"type": UNKNOWN}}, "response_format", "refused"),
    (CHAT, {"reasoning_effort": UNKNOWN}, "reasoning_effort", "warned"),
    (CHAT, {"modalities": ["text", UNKNOWN]}, "modalities", "refused"),
    (CHAT, said(CHAT, {"role": UNKNOWN}), "messages[0].role", "refused"),
    (CHAT, part(CHAT, {"type": UNKNOWN}), "messages[0].content[0]", "refused"),
    (CHAT, {"tools": [{"type": UNKNOWN}]}, "tools[0]", "refused"),
    (RESPONSES, {"tool_choice": UNKNOWN}, "tool_choice", "refused"),
    (RESPONSES, {"text": {"format": {"type": UNKNOWN}}}, "text.format", "refused"),
    (RESPONSES, {"text": {KEY: 1}}, f"text.{KEY}", "warned"),
    (RESPONSES, {"reasoning": {"effort": UNKNOWN}}, "reasoning.effort", "warned"),
    (RESPONSES, {"truncation": UNKNOWN}, "truncation", "warned"),
    (RESPONSES, {"tools": [{"type": UNKNOWN}]}, "tools[0]", "refused"),
    (RESPONSES, part(RESPONSES, {"type": UNKNOWN}), "input[0].content[0]", "refused"),
    (GEMINI, {"toolConfig": {"functionCallingConfig": {"mode": UNKNOWN}}}, CALLING, "refused"),
    (GEMINI, {"safetySettings": [{"category": UNKNOWN}]}, "safetySettings", "warned"),
    (GEMINI, part(GEMINI, {UNKNOWN: {}}), "contents[0].parts[0]", "refused"),
    (GEMINI, part(GEMINI, {"text": "a", KEY: 1}), f"contents[0].parts[0].{KEY}", "warned"),
    (
        GEMINI,
        config(thinkingConfig={"thinkingLevel": UNKNOWN}),
        "generationConfig.thinkingConfig.thinkingLevel",
        "warned",
    ),
    (
        GEMINI,
        config(responseModalities=[UNKNOWN]),
        "generationConfig.responseModalities",
        "refused",
    ),
]


@each_row("dialect, fields, path, outcome", CASES)
def test_what_nobody_knows_passes_at_home_and_is_a_loss_elsewhere(
    dialect: str, fields: dict[str, Any], path: str, outcome: str
) -> None:
    body = {**PLAIN[dialect], **fields}
    data = json.dumps(body).encode()
    assert exact(sent(dialect, body)) == exact(data)
    parsed = CODECS[dialect].parse(data, Context())
    for target in CODECS.keys() - {dialect}:
        losses = Losses()
        CODECS[target].render(parsed.request, Context(), losses)
        found = {parsed.source_paths.source(one.path): one.outcome for one in losses.found}
        assert found[path] == outcome, target
        assert outcome == "refused" or losses.refusal is None


@EVERY
@QUICK
@given(data=st.data())
def test_what_was_parsed_once_is_rendered_for_every_target_and_again(
    dialect: str, data: st.DataObject
) -> None:
    body = json.dumps(data.draw(bodies(dialect))).encode()
    parsed = CODECS[dialect].parse(body, Context())
    for _ in range(2):
        for target, codec in CODECS.items():
            fresh = CODECS[dialect].parse(body, Context())
            losses, others = Losses(), Losses()
            rendered = codec.render(parsed.request, Context(origin=target), losses)
            assert rendered == codec.render(fresh.request, Context(origin=target), others)
            assert losses.found == others.found
