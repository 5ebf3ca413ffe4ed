"""Responses streams for tests: the events of a byte stream, untyped, as a client sees them."""

import json
from typing import Any

Event = dict[str, Any]


def events(raw: bytes) -> list[Event]:
    """The JSON events, after checking the framing: `event:` equals type, `[DONE]` is last."""
    blocks = raw.split(b"\n\n")
    assert blocks.pop() == b""
    assert blocks.pop() == b"data: [DONE]"
    found: list[Event] = []
    for block in blocks:
        name, data = block.split(b"\n")
        event: Event = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        found.append(event)
    return found


def of_type(found: list[Event], type: str) -> list[Event]:
    return [event for event in found if event["type"] == type]


def item_ids(found: list[Event]) -> set[str]:
    """Every id under which items are spoken of, in events and in snapshots."""
    ids = {event["item"]["id"] for event in found if "item" in event}
    ids |= {event["item_id"] for event in found if "item_id" in event}
    snapshots = [event["response"] for event in found if "response" in event]
    return ids | {item["id"] for response in snapshots for item in response["output"]}
