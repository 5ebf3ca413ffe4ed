"""Responses streams for tests: the events of a byte stream, untyped, as a client sees them."""

from tests.encoded import WrittenEvent, named_events

Event = WrittenEvent


def events(raw: bytes) -> list[Event]:
    """The events, after checking the framing: `event:` equals type, `[DONE]` is last."""
    assert raw.endswith(b"\n\ndata: [DONE]\n\n")
    return named_events(raw.removesuffix(b"data: [DONE]\n\n"))


def of_type(found: list[Event], type: str) -> list[Event]:
    return [event for event in found if event["type"] == type]


def item_ids(found: list[Event]) -> set[str]:
    """Every id under which items are spoken of, in events and in snapshots."""
    ids = {event["item"]["id"] for event in found if "item" in event}
    ids |= {event["item_id"] for event in found if "item_id" in event}
    snapshots = [event["response"] for event in found if "response" in event]
    return ids | {item["id"] for response in snapshots for item in response["output"]}
