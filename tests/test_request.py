"""Requests are values: whatever can be requested survives JSON unchanged."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import FEW, structs
from weft.request import (
    AnyContent,
    CallContent,
    Content,
    Message,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    TextContent,
    Tool,
    ToolChoice,
)

CONTENTS: tuple[type[Content], ...] = get_args(AnyContent)
SHAPES = (Message, Tool, ToolChoice, OutputFormat, ReasoningOptions, Sampling, Request)


def name_of(shape: type[msgspec.Struct]) -> str:
    return shape.__name__


def test_a_message_holds_these_kinds_of_content() -> None:
    names = [shape.__struct_config__.tag for shape in CONTENTS]
    assert names == ["text", "image", "file", "reasoning", "call", "result", "opaque"]


@pytest.mark.parametrize("shape", CONTENTS, ids=name_of)
@FEW
@given(data=st.data())
def test_every_content_survives_json_with_its_type_first(
    shape: type[Content], data: st.DataObject
) -> None:
    content = data.draw(structs(shape))
    encoded = msgspec.json.encode(content)
    assert msgspec.json.decode(encoded, type=AnyContent) == content
    assert encoded.startswith(b'{"type":"%s"' % str(shape.__struct_config__.tag).encode())


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
@FEW
@given(data=st.data())
def test_every_shape_of_a_request_survives_json(
    shape: type[msgspec.Struct], data: st.DataObject
) -> None:
    value = data.draw(structs(shape))
    assert msgspec.json.decode(msgspec.json.encode(value), type=shape) == value


@pytest.mark.parametrize("shape", [*CONTENTS, *SHAPES], ids=name_of)
def test_a_request_is_frozen(shape: type[msgspec.Struct]) -> None:
    assert shape.__struct_config__.frozen


def test_what_was_not_asked_is_left_out_of_json() -> None:
    request = Request(
        "m",
        messages=(
            Message("user", (TextContent("hi"),)),
            Message("assistant", (CallContent("c", "look", "{}"),)),
        ),
        tools=(Tool("look"),),
        tool_choice=ToolChoice(),
    )
    assert msgspec.json.encode(request).decode() == (
        '{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},'
        '{"role":"assistant","content":[{"type":"call","id":"c","name":"look","params":"{}"}]}],'
        '"tools":[{"name":"look"}],"tool_choice":{}}'
    )
