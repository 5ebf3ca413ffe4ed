"""Parts are values: they survive JSON unchanged, and their names are those of the design."""

from types import UnionType
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import FEW, structs, values
from weft.parts import (
    AnyPart,
    ErrorPart,
    Finish,
    ItemPart,
    Part,
    ReasoningDelta,
    ReasoningStart,
    TextDelta,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolResult,
    Usage,
)

PARTS: tuple[type[Part], ...] = get_args(AnyPart)
DELTAS = {TextDelta, ReasoningDelta, ToolParamsDelta}
ITEMS = ("text-", "reasoning-", "tool-")

TABLE = """
response-metadata
text-start text-delta text-end
reasoning-start reasoning-delta reasoning-end
tool-params-start tool-params-delta tool-params-end tool-call tool-result tool-approval-request
source file opaque
error finish
"""
"""The names in the table of design.md, in its order."""


def name_of(part: type[Part]) -> str:
    return str(part.__struct_config__.tag)


@pytest.mark.parametrize("shape", PARTS, ids=name_of)
def test_the_literal_type_is_the_tag_and_no_field(shape: type[Part]) -> None:
    assert shape.type == name_of(shape)
    assert "type" not in shape.__struct_fields__


def test_the_parts_are_those_of_the_design() -> None:
    assert sorted(map(name_of, PARTS)) == sorted(TABLE.split())
    assert isinstance(AnyPart, UnionType)


@pytest.mark.parametrize("shape", PARTS, ids=name_of)
@FEW
@given(data=st.data())
def test_every_part_survives_json_with_its_type_first(
    shape: type[Part], data: st.DataObject
) -> None:
    part = data.draw(structs(shape))
    encoded = msgspec.json.encode(part)
    assert msgspec.json.decode(encoded, type=AnyPart) == part
    assert encoded.startswith(b'{"type":"%s"' % part.type.encode())


@FEW
@given(usage=values(Usage))
def test_usage_survives_json_and_leaves_out_what_is_unknown(usage: Usage) -> None:
    encoded = msgspec.json.encode(usage)
    assert msgspec.json.decode(encoded, type=Usage) == usage
    assert list(msgspec.json.decode(encoded)) == list(Usage.__struct_fields__)


@pytest.mark.parametrize("shape", PARTS, ids=name_of)
def test_a_part_is_frozen(shape: type[Part]) -> None:
    assert shape.__struct_config__.frozen


@pytest.mark.parametrize("shape", PARTS, ids=name_of)
def test_only_the_deltas_are_left_out_of_garbage_collection(shape: type[Part]) -> None:
    assert shape.__struct_config__.gc == (shape not in DELTAS)


@pytest.mark.parametrize("shape", PARTS, ids=name_of)
def test_every_part_has_room_for_what_a_dialect_wants_back(shape: type[Part]) -> None:
    assert shape.__struct_fields__[-1] == "extra"


@pytest.mark.parametrize("shape", PARTS, ids=name_of)
def test_the_parts_of_an_item_carry_its_id(shape: type[Part]) -> None:
    assert issubclass(shape, ItemPart) == name_of(shape).startswith(ITEMS)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (TextStart("t"), '{"type":"text-start","id":"t"}'),
        (ReasoningStart("r", "raw"), '{"type":"reasoning-start","id":"r","kind":"raw"}'),
        (
            ToolCall("c", "look", "{}"),
            '{"type":"tool-call","id":"c","name":"look","params":"{}"}',
        ),
        (
            ToolResult("c", msgspec.Raw(b"[1]")),
            '{"type":"tool-result","id":"c","result":[1]}',
        ),
        (
            ErrorPart("upstream", "no", code=7),
            '{"type":"error","kind":"upstream","message":"no","code":7}',
        ),
        (
            Finish("stop", usage=Usage(1, 2)),
            (
                '{"type":"finish","reason":"stop","usage":{"input_tokens":1,"output_tokens":2,'
                '"total_tokens":null,"reasoning_tokens":null,"cache_read_tokens":null,'
                '"cache_write_tokens":null}}'
            ),
        ),
    ],
    ids=lambda one: one.type if isinstance(one, Part) else "",
)
def test_what_holds_its_default_is_left_out_of_json(part: Part, text: str) -> None:
    assert msgspec.json.encode(part).decode() == text
