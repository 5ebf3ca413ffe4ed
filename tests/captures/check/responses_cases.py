"""Streams for the rules of the Responses wire: a few good ones, and one edit a rule."""

import json
from collections.abc import Sequence
from itertools import count

from tests.captures.check.cases import Case, dumped
from weft.dialects.rules import JsonValue
from weft.sse import DONE, write

Event = dict[str, JsonValue]

USAGE: Event = {
    "input_tokens": 9,
    "output_tokens": 4,
    "total_tokens": 13,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
RESPONSE: Event = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1790000000,
    "completed_at": None,
    "status": "in_progress",
    "incomplete_details": None,
    "model": "m-1",
    "previous_response_id": None,
    "instructions": None,
    "output": [],
    "error": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": {"effort": None, "summary": None},
    "usage": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
ARGUMENTS = ('{"city":', '"Oslo"}')
CITATION: Event = {
    "type": "url_citation",
    "url": "https://a.example",
    "title": "A",
    "start_index": 0,
    "end_index": 5,
}


# Good streams


def said(type: str, **fields: JsonValue) -> Event:
    return {"type": f"response.{type}", **fields}


def part(text: str, *annotations: Event) -> Event:
    return {"type": "output_text", "text": text, "annotations": [*annotations], "logprobs": []}


def message(
    index: int, *pieces: str, id: str = "msg_1", status: str = "completed", cited: bool = False
) -> list[Event]:
    """A message with one text, in these deltas."""
    text = "".join(pieces)
    place: Event = {"item_id": id, "output_index": index, "content_index": 0}
    whole = part(text, *([CITATION] if cited else []))
    item: Event = {"type": "message", "id": id, "role": "assistant"}
    annotation = said(
        "output_text.annotation.added", **place, annotation_index=0, annotation=CITATION
    )
    return [
        said("output_item.added", output_index=index, item=opened(item, content=[])),
        said("content_part.added", **place, part=part("")),
        *(said("output_text.delta", **place, logprobs=[], delta=piece) for piece in pieces),
        *([annotation] if cited else []),
        said("output_text.done", **place, logprobs=[], text=text),
        said("content_part.done", **place, part=whole),
        said("output_item.done", output_index=index, item=closed(item, status, content=[whole])),
    ]


def opened(item: Event, **fields: JsonValue) -> Event:
    return {**item, "status": "in_progress", **fields}


def closed(item: Event, status: str = "completed", **fields: JsonValue) -> Event:
    return {**item, "status": status, **fields}


def call(
    index: int,
    *pieces: str,
    id: str = "fc_1",
    call_id: str = "call_1",
    name: str = "look",
    status: str = "completed",
) -> list[Event]:
    """A function call whose arguments come in these deltas."""
    arguments = "".join(pieces)
    place: Event = {"item_id": id, "output_index": index}
    item: Event = {"type": "function_call", "id": id, "call_id": call_id, "name": name}
    done = closed(item, status, arguments=arguments)
    return [
        said("output_item.added", output_index=index, item=opened(item, arguments="")),
        *(said("function_call_arguments.delta", **place, delta=piece) for piece in pieces),
        said("function_call_arguments.done", **place, arguments=arguments),
        said("output_item.done", output_index=index, item=done),
    ]


def reasoning(index: int, text: str, id: str = "rs_1") -> list[Event]:
    """A reasoning item with one summary."""
    place: Event = {"item_id": id, "output_index": index, "summary_index": 0}
    item: Event = {"type": "reasoning", "id": id}
    summary: Event = {"type": "summary_text", "text": text}
    return [
        said("output_item.added", output_index=index, item=opened(item, summary=[])),
        said("reasoning_summary_part.added", **place, part={**summary, "text": ""}),
        said("reasoning_summary_text.delta", **place, delta=text),
        said("reasoning_summary_text.done", **place, text=text),
        said("reasoning_summary_part.done", **place, part=summary),
        said("output_item.done", output_index=index, item=closed(item, summary=[summary])),
    ]


def refusal(index: int, text: str) -> list[Event]:
    """A message that is a refusal."""
    place: Event = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    item: Event = {"type": "message", "id": "msg_1", "role": "assistant"}
    whole: Event = {"type": "refusal", "refusal": text}
    return [
        said("output_item.added", output_index=index, item=opened(item, content=[])),
        said("content_part.added", **place, part={**whole, "refusal": ""}),
        said("refusal.delta", **place, delta=text),
        said("refusal.done", **place, refusal=text),
        said("content_part.done", **place, part=whole),
        said("output_item.done", output_index=index, item=closed(item, content=[whole])),
    ]


def thought(index: int, text: str, type: str = "reasoning") -> list[Event]:
    """A reasoning item that says all it thinks, by events of this type."""
    place: Event = {"item_id": "rs_1", "output_index": index, "content_index": 0}
    item: Event = {"type": "reasoning", "id": "rs_1", "summary": []}
    whole: Event = {"type": "reasoning_text", "text": text}
    return [
        said("output_item.added", output_index=index, item=opened(item, content=[])),
        said("content_part.added", **place, part={**whole, "text": ""}),
        said(f"{type}.delta", **place, delta=text),
        said(f"{type}.done", **place, text=text),
        said("content_part.done", **place, part=whole),
        said("output_item.done", output_index=index, item=closed(item, content=[whole])),
    ]


def custom(index: int, text: str) -> list[Event]:
    """A call whose input is free text."""
    place: Event = {"item_id": "ctc_1", "output_index": index}
    item: Event = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "run"}
    return [
        said("output_item.added", output_index=index, item=opened(item, input="")),
        said("custom_tool_call_input.delta", **place, delta=text),
        said("custom_tool_call_input.done", **place, input=text),
        said("output_item.done", output_index=index, item=closed(item, input=text)),
    ]


def snapshot(type: str, **fields: JsonValue) -> Event:
    return said(type, response={**RESPONSE, **fields})


def started(*items: list[Event]) -> list[Event]:
    head = [snapshot("created"), snapshot("in_progress")]
    return [*head, *(event for item in items for event in item)]


def ended(status: str, events: list[Event], **fields: JsonValue) -> list[Event]:
    """The events and their terminal one, with the items that are done as its output."""
    output = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    end = snapshot(status, status=status, output=output, usage=USAGE, **fields)
    return [*events, end]


def completed(*items: list[Event]) -> list[Event]:
    return ended("completed", started(*items), completed_at=1790000001)


TEXT = completed(message(0, "Hel", "lo"))
CITED = completed(message(0, "Hel", "lo", cited=True))
CALL = completed(call(0, *ARGUMENTS))
THOUGHT = completed(reasoning(0, "So."), message(1, "Hel", "lo"))
REFUSED = completed(refusal(0, "No."))
TWO = completed(message(0, "Hel", "lo"), call(1, *ARGUMENTS))
CALLS = completed(
    call(0, *ARGUMENTS), call(1, '{"city":"Rome"}', id="fc_2", call_id="call_2", name="look")
)
REASON: Event = {"reason": "max_output_tokens"}
CUT = ended(
    "incomplete",
    started(call(0, *ARGUMENTS), message(1, "Hel", status="incomplete")),
    incomplete_details=REASON,
)
ERROR: Event = {"code": "server_error", "message": "out of memory"}
FAILURE: Event = {
    "type": "error",
    **ERROR,
    "param": None,
    "error": {"type": "server_error", **ERROR, "param": None},
}
FAILED = [*started(), FAILURE, snapshot("failed", status="failed", error=ERROR)]


# How they are written


def numbered(events: Sequence[Event]) -> list[Event]:
    """The events with their numbers, save those that have one, be it none."""
    return [{"sequence_number": number, **event} for number, event in enumerate(events)]


def named(event: Event) -> bytes:
    told = {key: value for key, value in event.items() if value != NONE}
    return write(str(event["type"]), dumped(told))


NONE = "(none)"
"""In place of a value: no such key."""


def sse(events: Sequence[Event], end: bytes = write("", DONE)) -> bytes:
    return b"".join(map(named, numbered(events))) + end


# How they are broken


def found(events: list[Event], type: str, nth: int = 0) -> int:
    """Where the nth event of a type stands."""
    places = [at for at, event in enumerate(events) if event["type"] == f"response.{type}"]
    return places[nth]


def edited(
    events: list[Event], type: str, path: str, value: JsonValue, nth: int = 0
) -> list[Event]:
    """The events with one value of one event replaced, or removed."""
    copy: list[Event] = json.loads(json.dumps(events))  # nothing in it is shared
    place: JsonValue = copy[found(copy, type, nth)]
    *steps, last = path.split(".")
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else _inside(place)[step]
    if isinstance(place, list):
        place[int(last)] = value
    elif value == NONE:
        del _inside(place)[last]
    else:
        _inside(place)[last] = value
    return copy


def _inside(value: JsonValue) -> Event:
    assert isinstance(value, dict)
    return value


def without(events: list[Event], *types: str) -> list[Event]:
    full = {f"response.{type}" for type in types}
    return [event for event in events if event["type"] not in full]


def inserted(events: list[Event], at: int, *more: Event) -> list[Event]:
    return [*events[:at], *more, *events[at:]]


def again(events: list[Event], type: str, after: str = "") -> list[Event]:
    """The events with one of them repeated, at once or after another."""
    at = found(events, type)
    return inserted(events, (found(events, after) if after else at) + 1, events[at])


def replaced(events: list[Event], old: str, new: str, start: int = 0) -> list[Event]:
    """The events with one text replaced by another, from one of them on."""
    return [
        json.loads(json.dumps(event).replace(old, new)) if at >= start else event
        for at, event in enumerate(events)
    ]


def renumbered(events: list[Event], *numbers: int) -> list[Event]:
    """The events with these numbers; the rest counts on."""
    rest = count(numbers[-1] + 1)
    told = [*numbers, *(next(rest) for _ in events[len(numbers) :])]
    return [
        {**event, "sequence_number": number} for event, number in zip(events, told, strict=True)
    ]


def moved(events: list[Event], type: str, to: int) -> list[Event]:
    at = found(events, type)
    rest = [*events[:at], *events[at + 1 :]]
    return [*rest[:to], events[at], *rest[to:]]


def final(events: list[Event], path: str, value: JsonValue) -> list[Event]:
    return edited(events, "completed", f"response.{path}", value)


def output(events: list[Event], *order: int) -> list[Event]:
    """The events with a terminal output of these items."""
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    return final(events, "output", [done[place] for place in order])


def row(rule: str, good: list[Event], bad: list[Event]) -> Case:
    return Case(rule, sse(good), sse(bad))


DELTA = said(
    "output_text.delta", item_id="msg_1", output_index=0, content_index=0, logprobs=[], delta="!"
)
STRANGE: Event = {
    "type": "message",
    "id": "msg_9",
    "role": "assistant",
    "status": "completed",
    "content": [],
}
PING: Event = {"type": "ping"}
DONE_AT = found(CALL, "output_item.done")
BROKEN_DATA = b'event: response.output_text.delta\ndata: {"type":"response.output_text.del\n\n'

CASES: list[Case] = [
    # Frames
    Case("data-invalid", sse(TEXT), sse(TEXT[:4], BROKEN_DATA)),
    Case("event-name-differs", sse(TEXT), sse(TEXT).replace(b": response.created\n", b": start\n")),
    Case("event-name-missing", sse(TEXT), sse(TEXT).replace(b"event: response.created\n", b"")),
    Case("id-line", sse(TEXT), b"id: 1\n" + sse(TEXT)),
    Case("type-missing", sse(TEXT), sse(TEXT).replace(b'"type":"response.in_progress",', b"")),
    row("unknown-event", TEXT, inserted(TEXT, 3, PING)),
    row("event-keys", TEXT, edited(TEXT, "output_text.delta", "content_index", NONE)),
    # Sequence numbers
    row("number-missing", TEXT, [{**TEXT[0], "sequence_number": NONE}, *TEXT[1:]]),
    row("number-start", TEXT, renumbered(TEXT, 1)),
    row("number-order", TEXT, renumbered(TEXT, 0, 1, 3, 2, 4)),
    row("number-repeated", TEXT, renumbered(TEXT, 0, 1, 1)),
    row("number-gap", TEXT, renumbered(TEXT, 0, 1, 3)),
    # The course of a response
    row("created-first", TEXT, TEXT[1:]),
    row("in-progress-missing", TEXT, without(TEXT, "in_progress")),
    row("terminal-missing", TEXT, TEXT[:-1]),
    row("terminal-repeated", TEXT, [*TEXT, TEXT[-1]]),
    row("after-terminal", TEXT, [*TEXT, TEXT[1]]),
    Case("done-missing", sse(TEXT), sse(TEXT, b"")),
    Case("after-done", sse(TEXT), sse(TEXT) + write("", DONE)),
    row("error-without-failed", FAILED, FAILED[:-1]),
    row("error-shape", FAILED, [*FAILED[:2], {"type": "error", "error": "busy"}, FAILED[-1]]),
    row("failed-without-error", FAILED, edited(FAILED, "failed", "response.error", None)),
    row(
        "incomplete-without-reason",
        CUT,
        edited(CUT, "incomplete", "response.incomplete_details", None),
    ),
    # Response objects
    row("snapshot-keys", TEXT, edited(TEXT, "created", "response.output", NONE)),
    row("snapshot-spec-keys", TEXT, edited(TEXT, "created", "response.temperature", NONE)),
    row("snapshot-added-keys", TEXT, edited(TEXT, "created", "response.completed_at", NONE)),
    row("snapshot-types", TEXT, edited(TEXT, "created", "response.created_at", 1790000000.5)),
    row("status-differs", TEXT, final(TEXT, "status", "in_progress")),
    row("response-id-changed", TEXT, final(TEXT, "id", "resp_2")),
    row("usage-missing", TEXT, final(TEXT, "usage", None)),
    row("usage-invalid", TEXT, final(TEXT, "usage.output_tokens", -4)),
    row("usage-total", TEXT, final(TEXT, "usage.total_tokens", 99)),
    # Items
    row("item-not-added", TEXT, without(TEXT, "output_item.added", "content_part.added")),
    row("item-repeated", TEXT, again(TEXT, "output_item.added")),
    row("item-not-done", CALL, without(CALL, "output_item.done")),
    row("item-done-repeated", CALL, again(CALL, "output_item.done")),
    row("item-closed", TWO, inserted(TWO, found(TWO, "output_item.done") + 1, DELTA)),
    row("index-order", CALL, replaced(CALL, '"output_index": 0', '"output_index": 1')),
    row("index-repeated", TWO, replaced(TWO, '"output_index": 1', '"output_index": 0')),
    row("index-changed", TWO, edited(TWO, "output_text.done", "output_index", 1)),
    row("item-id-changed", CALL, edited(CALL, "function_call_arguments.done", "item_id", "call_1")),
    row("item-id-repeated", CALLS, replaced(CALLS, '"fc_2"', '"fc_1"')),
    row("item-type-changed", CALL, edited(CALL, "output_item.done", "item.type", "mcp_call")),
    row("item-keys", THOUGHT, edited(THOUGHT, "output_item.added", "item.summary", NONE)),
    row("item-status-missing", TEXT, edited(TEXT, "output_item.added", "item.status", NONE)),
    row("item-status", CALL, completed(call(0, *ARGUMENTS, status="in_progress"))),
    row("incomplete-item", CALL, completed(call(0, *ARGUMENTS, status="incomplete"))),
    row(
        "incomplete-not-last",
        CUT,
        ended(
            "incomplete",
            started(call(0, *ARGUMENTS, status="incomplete"), message(1, "Hel")),
            incomplete_details=REASON,
        ),
    ),
    row("reasoning-null", THOUGHT, edited(THOUGHT, "output_item.added", "item.content", None)),
    # Calls
    row("call-nameless", CALL, replaced(CALL, '"look"', '""')),
    row("call-name-changed", CALL, replaced(CALL, '"look"', '"read"', DONE_AT)),
    row("call-id-missing", CALL, replaced(CALL, '"call_1"', '""')),
    row("call-id-changed", CALL, replaced(CALL, '"call_1"', '"call_2"', DONE_AT)),
    row("call-repeated", CALLS, replaced(CALLS, '"call_2"', '"call_1"')),
    row("call-arguments-invalid", CALL, completed(call(0, '{"city":', '"Oslo"'))),
    # Parts and what they say
    row("part-not-added", TEXT, without(TEXT, "content_part.added")),
    row("part-repeated", TEXT, again(TEXT, "content_part.added")),
    row("part-index", TEXT, replaced(TEXT, '"content_index": 0', '"content_index": 1')),
    row("part-kind", REFUSED, edited(REFUSED, "content_part.added", "part", part(""))),
    row("part-keys", TEXT, edited(TEXT, "content_part.added", "part.annotations", NONE)),
    row("part-closed", TEXT, inserted(TEXT, found(TEXT, "output_text.done") + 1, DELTA)),
    row("part-not-done", TEXT, without(TEXT, "content_part.done")),
    row("text-done-missing", TEXT, without(TEXT, "output_text.done")),
    row("added-not-empty", CALL, edited(CALL, "output_item.added", "item.arguments", "{}")),
    row("empty-delta", TEXT, completed(message(0, "Hel", "", "lo"))),
    row("deltas-missing", CALL, without(CALL, "function_call_arguments.delta")),
    row("deltas-differ", TEXT, edited(TEXT, "output_text.delta", "delta", "Bel")),
    row("part-differs", TEXT, edited(TEXT, "content_part.done", "part.text", "Hello!")),
    row("annotation-lost", CITED, edited(CITED, "content_part.done", "part.annotations", [])),
    row("item-differs", CALL, replaced(CALL, "Oslo", "Rome", DONE_AT)),
    # The final output
    row("output-differs", CALL, final(CALL, "output.0.arguments", '{"city":"Rome"}')),
    row("output-lost", TWO, output(TWO, 0)),
    row("output-unknown", TEXT, final(TEXT, "output", [TEXT[-2]["item"], STRANGE])),
    row("output-order", TWO, output(TWO, 1, 0)),
]
