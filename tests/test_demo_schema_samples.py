"""Samples of JSON schemas: they satisfy the schema, fit the message, and stay small."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import THOROUGH
from weft.upstream.demo.schema_samples import sample

Object = dict[str, Any]


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
def test_a_sample_fits_its_schema_and_the_message(
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
    """How a value violates a schema, by the keywords that are drawn below."""
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
@given(schema=SCHEMAS, message=st.text(max_size=40), optional=st.booleans())
def test_a_sample_satisfies_its_schema(schema: Object, message: str, optional: bool) -> None:
    root = {**schema, "$defs": {"tree": TREE}}
    made = sample(Raw(json.dumps(root).encode()), message, optional=optional)
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
def test_an_unusual_schema_gives_a_small_sample(schema: object) -> None:
    made = sample(Raw(json.dumps(schema).encode()), "x", optional=True)
    assert len(json.dumps(made)) < 100_000


def test_a_schema_that_is_not_json_allows_anything() -> None:
    assert sample(Raw(b"{"), "", optional=True) == "example"
