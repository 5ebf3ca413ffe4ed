"""What the tests of encoders feed, and how they read what is written."""

import json
from typing import Any

from weft.parts import (
    Part,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)

WrittenEvent = dict[str, Any]

TEXT: list[Part] = [TextStart("t"), TextDelta("t", "Hel"), TextDelta("t", "lo"), TextEnd("t")]
CALL: list[Part] = [
    ToolParamsStart("call_1", "look"),
    ToolParamsDelta("call_1", '{"at":'),
    ToolParamsDelta("call_1", "1}"),
    ToolParamsEnd("call_1"),
    ToolCall("call_1", "look", '{"at":1}'),
]


def data_events(raw: bytes) -> list[WrittenEvent]:
    """The events, after checking the framing: one data line each, `[DONE]` last."""
    blocks = raw.split(b"\n\n")
    assert blocks.pop() == b""
    assert blocks.pop() == b"data: [DONE]"
    assert all(block.startswith(b"data: {") and b"\n" not in block for block in blocks)
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]


def named_events(raw: bytes) -> list[WrittenEvent]:
    """The events, after checking the framing: `event:` equals type, nothing else stands there."""
    blocks = raw.split(b"\n\n")
    assert blocks.pop() == b""
    found: list[WrittenEvent] = []
    for block in blocks:
        name, data = block.split(b"\n")
        event: WrittenEvent = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        found.append(event)
    return found
