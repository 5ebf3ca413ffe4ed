"""What the request codecs share: reading with a path, losses, places, spellings."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.strategies import QUICK
from weft.dialects.requests.codec import Loss, Losses, SourcePaths
from weft.dialects.requests.fields import (
    exact_reader,
    object_reader,
    other_fields,
    read_object,
    set_fields,
)
from weft.dialects.requests.names import NameSanitizer
from weft.errors import BadRequest
from weft.large_json import LARGE


class Inner(msgspec.Struct, omit_defaults=True):
    size: int = 0


class Shape(msgspec.Struct, omit_defaults=True, tag="shape", tag_field="type"):
    items: list[Inner] = []


def test_a_body_is_read_by_its_shape() -> None:
    assert read_object(b'{"type":"shape","items":[{"size":3}]}', Shape) == Shape([Inner(3)])


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b'{"items":[{},{"size":"x"}]}', "in.items[1].size", "expected `int`, got `str`"),
        (b"[]", "in", "expected `object`, got `array`"),
        (b'{"items"', "in", "input data was truncated"),
        (b'{"a":' + b"[" * 100_000, "in", "nested too deeply"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(data: bytes, path: str, reason: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_object(data, Shape, "in")
    assert (caught.value.path, caught.value.reason) == (path, reason)
    assert str(caught.value) == f"{path}: {reason}"


def test_a_path_at_the_top_has_no_leading_dot() -> None:
    with pytest.raises(BadRequest, match=r"^items: expected `array`, got `int`$"):
        read_object(b'{"items":3}', Shape)
    with pytest.raises(BadRequest, match=r"^expected `object`"):
        read_object(b"3", Shape)


def test_keys_that_a_shape_does_not_know_are_kept_as_they_were() -> None:
    data = b'{"type":"shape","items":[],"b":1.50,"a":{"z":1,"y":2},"seen":0}'
    extra = other_fields(data, Shape, "seen")
    assert isinstance(extra, Raw)
    assert bytes(extra) == b'{"b":1.50,"a":{"z":1,"y":2}}'
    assert other_fields(b'{"items":[]}', Shape) is UNSET


@pytest.mark.parametrize(
    ("data", "exact"),
    [
        (b'{"type":"shape","items":[{"size":3}]}', Shape([Inner(3)])),
        (b'{"items":[],"more":1}', None),
        (b'{"type":"other"}', None),
        (b'{"items":[{"size":"x"}]}', None),
        (b'{"items":[]' + b" " * LARGE + b"}", None),
    ],
    ids=["exact", "another-field", "another-tag", "another-type", "large"],
)
def test_an_exact_reader_reads_only_objects_without_other_fields(
    data: bytes, exact: Shape | None
) -> None:
    found = exact_reader(Shape)(data)
    assert (found is None) == (exact is None)
    assert found is None or found.items == [Inner(3)]


def test_an_object_reader_returns_what_its_shape_does_not_declare() -> None:
    read = object_reader(Shape)
    whole, nothing = read(Raw(b'{"items":[{"size":3}]}'), "in")
    assert (whole.items, nothing) == ([Inner(3)], {})
    value, unknown = read(Raw(b'{"items":[{"size":3}],"more":1.50}'), "in")
    assert (value, unknown) == (Shape([Inner(3)]), {"more": Raw(b"1.50")})
    with pytest.raises(BadRequest, match=r"^in\.items\[0\]\.size: expected `int`, got `str`$"):
        read(Raw(b'{"items":[{"size":"x"}]}'), "in")


def test_the_fields_that_are_set_are_those_that_are_written() -> None:
    class Written(msgspec.Struct, omit_defaults=True):
        a: int | None = None
        b: Raw | msgspec.UnsetType = UNSET
        c: int | None = None

    assert set_fields(Written(c=0)) == {"c": 0}
    assert set_fields(Written(1, Raw(b"2"))) == {"a": 1, "b": Raw(b"2")}


def test_losses_are_kept_in_order_and_once() -> None:
    losses = Losses()
    losses.adapted("a", "1")
    losses.warned("b", "2")
    losses.adapted("a", "1")
    losses.refused("c", "3")
    losses.refused("d", "4")
    assert losses.refusal == Loss("c", "refused", "3")
    assert [loss.path for loss in losses.found] == ["a", "b", "c", "d"]


def test_without_a_refusal_a_request_may_go() -> None:
    losses = Losses()
    losses.warned("a", "1")
    assert losses.refusal is None


def test_a_canonical_path_is_told_as_the_client_wrote_it() -> None:
    places = SourcePaths({"sampling": "generationConfig", "max_output_tokens": "max_tokens"})
    places["messages[1]"] = "input[3]"
    places["messages[1].content[0]"] = "input[3].content"
    assert places.source("messages[1].content[0].detail") == "input[3].content.detail"
    assert places.source("messages[1].name") == "input[3].name"
    assert places.source("messages[10]") == "messages[10]"
    assert places.source("sampling.top_k") == "generationConfig.top_k"
    assert places.source("max_output_tokens") == "max_tokens"
    assert places.source("max_output_tokens_more") == "max_output_tokens_more"


@QUICK
@given(st.text(), st.text())
def test_a_spelling_is_legal_stable_and_keeps_two_apart(one: str, other: str) -> None:
    spelling = NameSanitizer("a-zA-Z0-9_-", 64)
    first, second = spelling.sanitize(one), spelling.sanitize(other)
    for spelled in (first, second):
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", spelled)
    assert (first == second) == (one == other)
    assert spelling.sanitize(one) == first == NameSanitizer("a-zA-Z0-9_-", 64).sanitize(one)
    assert spelling.changed.get(first, first) == one


@pytest.mark.parametrize(
    ("original", "spelled"),
    [
        ("call_1", "call_1"),
        ("a" * 64, "a" * 64),
        ("get.weather", "get_weather_f65d4328"),
        ("", "_e3b0c442"),
        ("a" * 65, "a" * 55 + "_635361c4"),
    ],
)
def test_what_is_legal_stays_and_the_rest_gets_a_mark(original: str, spelled: str) -> None:
    assert NameSanitizer("a-zA-Z0-9_-", 64).sanitize(original) == spelled
