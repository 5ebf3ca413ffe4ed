"""Bodies of requests: how much, how deep, how wide, how large a number."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from weft.errors import BadRequest
from weft.gateway.auth import HttpRejection
from weft.gateway.bodies import JsonLimits, RequestAborted, check, read
from weft.large_json import SLICE

SHAPE = JsonLimits(depth=5, object_keys=4, array_items=6)
LEAVES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text('"\\[]{},', max_size=5)
KEYS = st.text(max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def width(value: object) -> bool:
    """Whether something is too wide, the plain way."""
    if isinstance(value, dict):
        return len(value) > SHAPE.object_keys or any(map(width, value.values()))
    return isinstance(value, list) and (len(value) > SHAPE.array_items or any(map(width, value)))


@QUICK
@given(VALUES, st.sampled_from([None, 2]))
def test_a_body_is_refused_if_it_is_too_deep_or_too_wide_and_only_then(
    value: object, indent: int | None
) -> None:
    body = json.dumps(value, indent=indent).encode()
    try:
        check(body, SHAPE)
        refused = False
    except BadRequest:
        refused = True
    assert refused == (depth(value) > SHAPE.depth or width(value))


@QUICK
@given(VALUES, st.integers(-60, 60), st.text('"\\\\[]{},', max_size=5))
def test_where_a_slice_ends_changes_nothing(value: object, shift: int, text: str) -> None:
    """A long string moves what follows it to the end of the first slice."""
    filler = json.dumps(text)[1:-1].encode() + b"x" * (SLICE - 60 + shift)
    for inner in (json.dumps(value).encode(), b'{"a":12345678901234567890}'):
        found = []
        for body in (b"[%b]" % inner, b'["%b",%b]' % (filler, inner)):
            try:
                check(body, JsonLimits(depth=6, object_keys=4, array_items=7))
                found.append("")
            except BadRequest as problem:
                found.append(problem.reason)
        assert found[0] == found[1]


def test_objects_are_counted_but_not_braces_in_strings() -> None:
    many = b",".join([b'{"a":"{{{","b":{}}'] * 20_000)
    assert check(b"[%b]" % many, JsonLimits()) == 40_000
    assert check(b'[{"a":"%b"}]' % (b"{" * 100_000), JsonLimits()) == 1


def test_the_number_of_all_values_has_a_limit() -> None:
    inner = b"[" + b",".join([b"[]"] * 90_000) + b"]"
    check(b"[%b]" % b",".join([inner] * 5), JsonLimits())
    with pytest.raises(BadRequest, match="more than 1000000 values"):
        check(b"[%b]" % b",".join([inner] * 6), JsonLimits())
    check(b"[%b]" % b",".join([b"1"] * 10), JsonLimits(values=10))
    with pytest.raises(BadRequest, match="more than 10 values"):
        check(b"[%b]" % b",".join([b"1"] * 11), JsonLimits(values=10))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty; expected a JSON object"),
        (b" \n", "the body is empty; expected a JSON object"),
        (b'{"a":{"b":[1,9223372036854775808]}}', "a.b[1]: the integer has more than 64 bits"),
        (b'{"a":[{}],"b":{"c":[0,0,0,0,0,0,0]}}', "b.c: an array with more than 6 items"),
        (
            b'{"a":{"\\"[":{"1":1,"2":2,"3":3,"4":4,"5":5}}}',
            'a."[: an object with more than 4 keys',
        ),
        (b'{"a":1e999}', "a: the number is out of range"),
        (b'{"a":' + b"9" * 5000 + b"}", "a: the integer has more than 64 bits"),
        (b"[" * 100_000, "nested deeper than 5 levels"),
        (b'{"a":1' * 100_000, "nested deeper than 5 levels"),
    ],
)
def test_what_no_request_can_be_is_named(body: bytes, reason: str) -> None:
    with pytest.raises(BadRequest) as problem:
        check(body, SHAPE)
    assert str(problem.value) == reason


@pytest.mark.parametrize(
    "body", [b'{"a":9223372036854775807}', b'{"a":1.5e99}', b'{"a":"[[[[[[[[1e999"}', b"nonsense"]
)
def test_the_rest_is_for_the_parser(body: bytes) -> None:
    check(body, SHAPE)


def test_a_large_body_is_looked_at_like_a_small_one() -> None:
    text = json.dumps(["x[" * SLICE, 'quoted " ]}', "\\" * SLICE])
    check(text.encode(), SHAPE)
    with pytest.raises(BadRequest):
        check(f"[[[[[{text}]]]]]".encode(), SHAPE)


def received(*messages: dict[str, Any], told: bytes | None = None) -> bytes:
    left = list(messages)

    async def receive() -> MutableMapping[str, Any]:
        return left.pop(0)

    return asyncio.run(read(receive, told, 10))


def piece(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_is_read_to_its_end_and_no_further_than_the_limit() -> None:
    assert received(piece(b"01234", True), piece(b"56789")) == b"0123456789"
    for messages, told in (([piece(b"01234", True), piece(b"567890")], None), ([], b"11")):
        with pytest.raises(HttpRejection) as shut:
            received(*messages, told=told)
        assert (shut.value.status, str(shut.value)) == (413, "the body is larger than 10 bytes")


def test_a_client_that_leaves_is_noticed() -> None:
    with pytest.raises(RequestAborted):
        received(piece(b"0", True), {"type": "http.disconnect"})
