"""Raw JSON that is carried: packed, read if it fits, and without line ends."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.strategies import JSON, QUICK
from weft.dialects.raw_json import (
    blank_line_ends,
    copy_raw,
    decode_or_default,
    pack_extra,
    to_one_line,
)
from weft.parts import Json


class Extra(msgspec.Struct, omit_defaults=True):
    title: str | None = None
    raw: Json = UNSET


@pytest.mark.parametrize(
    ("extra", "packed"),
    [
        (Extra(), UNSET),
        (Extra("a"), Raw(b'{"title":"a"}')),
        (Extra(raw=Raw(b"null")), Raw(b'{"raw":null}')),
    ],
)
def test_an_extra_is_packed_unless_it_is_empty(extra: Extra, packed: Json) -> None:
    assert pack_extra(extra) == packed
    assert decode_or_default(packed, Extra) == extra


@pytest.mark.parametrize("raw", [UNSET, Raw(b"1"), Raw(b'{"title":1}'), Raw(b"{"), Raw(b"")])
def test_a_value_that_does_not_fit_is_an_empty_one(raw: Json) -> None:
    assert decode_or_default(raw, Extra) == Extra()


def test_a_value_that_is_nested_too_deeply_is_an_empty_one() -> None:
    assert decode_or_default(Raw(b'{"title":' + b"[" * 100_000), Extra) == Extra()


@QUICK
@given(value=JSON, indent=st.integers(0, 3), end=st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_json_of_several_lines_becomes_one_line_with_the_same_value(
    value: object, indent: int, end: bytes
) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=indent).replace(b"\n", end)
    for line in (to_one_line(text), bytes(copy_raw(Raw(text))), blank_line_ends(text)):
        assert line.splitlines() == [line]
        assert msgspec.json.decode(line) == value


def test_json_of_one_line_keeps_its_blanks() -> None:
    assert to_one_line(b'{"a": 1.50}') == blank_line_ends(b'{"a": 1.50}') == b'{"a": 1.50}'


def test_what_is_not_json_can_lose_its_line_ends() -> None:
    assert blank_line_ends(b"{\r\nno") == b"{  no"
    with pytest.raises(ValueError, match="malformed"):
        to_one_line(b"{\r\nno")
