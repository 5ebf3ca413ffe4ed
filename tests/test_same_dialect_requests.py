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
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.requests import Losses, RequestCodec

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
    for path in replaced - {()}:
        at(body, path[:-1])[path[-1]] = UNKNOWN
    for path in keyed:
        at(body, path)[KEY] = {"a": [1, 2.50]}
    assert exact(sent(dialect, body)) == exact(expected(body, dialect))
