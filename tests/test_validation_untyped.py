"""Untyped values are read with care, and lines of JSON are told from server-sent events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures.check.cases import frames_of
from tests.strategies import QUICK
from weft.dialects.rules import JsonValue
from weft.dialects.validation.untyped import (
    FramingDetector,
    count,
    elements,
    fields,
    parse_json,
    same,
    shown,
    text,
)
from weft.sse import Frame


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({"a": 1}, ({"a": 1}, [], "", None)),
        ([1], ({}, [1], "", None)),
        ("a", ({}, [], "a", None)),
        (7, ({}, [], "", 7)),
        (0, ({}, [], "", 0)),
        (-1, ({}, [], "", None)),
        (True, ({}, [], "", None)),
        (False, ({}, [], "", None)),
        (1.0, ({}, [], "", None)),
        (None, ({}, [], "", None)),
    ],
)
def test_a_value_is_read_as_what_it_is_and_as_nothing_else(
    value: JsonValue, seen: tuple[object, ...]
) -> None:
    assert (fields(value), elements(value), text(value), count(value)) == seen


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ({}, "{}"),
        ({"a": 1}, "an object"),
        ([], "[]"),
        ([1], "an array"),
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (10**40, "a large number"),
        ("Oslo", '"Oslo"'),
        ("\ud800", '"\\ud800"'),
        ("a" * 100, '"' + "a" * 59 + "…"),
    ],
)
def test_a_detail_quotes_a_value_briefly(value: JsonValue, quoted: str) -> None:
    assert shown(value) == quoted


def test_json_text_is_parsed_strictly() -> None:
    assert parse_json('{"a":[1,"x"]}') == {"a": [1, "x"]}
    for written in ("", "{", "{}{}", "NaN", "[-Infinity]", "[" * 100_000):
        with pytest.raises(ValueError, match=r"\w"):
            parse_json(written)


def nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


def test_values_that_are_too_deep_to_compare_are_not_called_different() -> None:
    assert same({"a": [1]}, {"a": [1]})
    assert not same({"a": [1]}, {"a": [2]})
    assert same(nested(100_000), nested(100_000))


# Framing


def events(raw: bytes) -> bool | None:
    framing = FramingDetector()
    for frame in frames_of(raw):
        framing.feed(frame)
    return framing.events


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", None),
        (b'{"a":1}\n', None),
        (b'data: {"a":1}\n\n', None),
        (b'event: x\ndata: {"a":1}\n\n', True),
        (b'id: 1\ndata: {"a":1}\n\n', True),
        (b'data: {"a":1}\ndata: {"a":2}\n\n', True),
        (b'data:{"a":1}\n\ndata:{"a":2}\n\n', True),
        (b'data: {"a":1}\r\n\r\ndata: {"a":2}\r\n\r\n', True),
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', True),
        (b'{"a":1}\n{"a":2}\n', False),
        (b'{"a":1}\r\n{"a":2}\r\n', False),
        (b'{"a":1}\n\n{"a":2}\n', False),
        (b'{\n  "a": 1\n}\n{\n  "a": 2\n}\n', False),
    ],
)
def test_events_are_told_from_lines_of_json(raw: bytes, told: bool | None) -> None:
    assert events(raw) == told


@QUICK
@given(
    values=st.lists(st.dictionaries(st.text(), st.integers() | st.text()), min_size=2),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_any_values_are_told_apart_by_how_they_are_framed(
    values: list[dict[str, int | str]], end: bytes
) -> None:
    data = [json.dumps(value).encode() for value in values]
    assert events(b"".join(one + end for one in data)) is False
    assert events(b"".join(b"data: " + one + end + end for one in data)) is True


def test_what_was_told_once_stays() -> None:
    framing = FramingDetector()
    framing.feed(Frame(b"{}", event="x"))
    framing.feed(Frame(b"{}", offset=3))
    framing.feed(Frame(b"{}", offset=6))
    assert framing.events is True
