"""What Open Responses demands of a response, its items and its events: tables, and a reader.

Written from the specification, with its contradictions settled as the strictest reader does: keys
that a schema requires are there, those that it lacks may be.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

Object = dict[str, Any]
Check = Callable[[object, str], list[str]]
"""Returns what is wrong with a value at a path."""


# Values


def _kind(name: str, *kinds: type) -> Check:
    def check(value: object, path: str) -> list[str]:
        right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        return [] if right else [f"{path}: {value!r:.80} is no {name}"]

    return check


TEXT = _kind("string", str)
INTEGER = _kind("integer", int)
NUMBER = _kind("number", int, float)
BOOLEAN = _kind("boolean", bool)
ANYTHING = _kind("value", object, bool)


def word(*words: str) -> Check:
    def check(value: object, path: str) -> list[str]:
        return [] if value in words else [f"{path}: {value!r:.80} is none of {words}"]

    return check


def nullable(inner: Check) -> Check:
    return lambda value, path: [] if value is None else inner(value, path)


def array(inner: Check) -> Check:
    def check(value: object, path: str) -> list[str]:
        if not isinstance(value, list):
            return [f"{path}: {value!r:.80} is no array"]
        return [one for at, item in enumerate(value) for one in inner(item, f"{path}[{at}]")]

    return check


def shape(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    def check(value: object, path: str) -> list[str]:
        if not isinstance(value, dict):
            return [f"{path}: {value!r:.80} is no object"]
        missing = [f"{path}.{key}: missing" for key in required if key not in value]
        checks = {**required, **(optional or {})}
        found = [checks[key](one, f"{path}.{key}") for key, one in value.items() if key in checks]
        return missing + [problem for problems in found for problem in problems]

    return check


def typed(kinds: Mapping[str, Check]) -> Check:
    """One of several shapes, told apart by `type`."""

    def check(value: object, path: str) -> list[str]:
        kind = str(value.get("type")) if isinstance(value, dict) else "nothing"
        if kind not in kinds:
            return [f"{path}.type: {kind!r:.80} is not known"]
        return kinds[kind](value, path)

    return check


def either(*inner: Check) -> Check:
    def check(value: object, path: str) -> list[str]:
        found = [one(value, path) for one in inner]
        return [] if [] in found else found[0]

    return check


# Items

_TOP = shape({"token": TEXT, "logprob": NUMBER, "bytes": array(INTEGER)})
_LOGPROB = shape(
    {"token": TEXT, "logprob": NUMBER, "bytes": array(INTEGER), "top_logprobs": array(_TOP)}
)
ANNOTATION = typed(
    {
        "url_citation": shape(
            {"url": TEXT, "title": TEXT, "start_index": INTEGER, "end_index": INTEGER}
        )
    }
)
PARTS: dict[str, Check] = {
    "output_text": shape(
        {"text": TEXT, "annotations": array(ANNOTATION)}, {"logprobs": array(_LOGPROB)}
    ),
    "refusal": shape({"refusal": TEXT}),
    "reasoning_text": shape({"text": TEXT}),
    "summary_text": shape({"text": TEXT}),
}
PART = typed(PARTS)
_SPOKEN = typed({name: PARTS[name] for name in ("output_text", "refusal")})
_THOUGHT = typed({name: PARTS[name] for name in ("reasoning_text", "output_text")})
SUMMARY = typed({"summary_text": PARTS["summary_text"]})
_STATUS = word("in_progress", "completed", "incomplete")

ITEM = typed(
    {
        "message": shape(
            {
                "id": TEXT,
                "status": _STATUS,
                "role": word("assistant"),
                "content": array(_SPOKEN),
            },
            {"phase": word("commentary", "final_answer")},
        ),
        "function_call": shape(
            {"id": TEXT, "call_id": TEXT, "name": TEXT, "arguments": TEXT, "status": _STATUS}
        ),
        "reasoning": shape(
            {"id": TEXT, "summary": array(SUMMARY), "status": _STATUS},
            {"content": array(_THOUGHT), "encrypted_content": TEXT},
        ),
    }
)

# The response

_TOOL = shape(
    {
        "type": word("function"),
        "name": TEXT,
        "description": nullable(TEXT),
        "parameters": nullable(shape({})),
        "strict": nullable(BOOLEAN),
    }
)
_CHOICE = either(
    word("none", "auto", "required"),
    shape({"type": word("function"), "name": TEXT}),
    shape({"type": word("allowed_tools"), "tools": array(shape({})), "mode": TEXT}),
)
_USAGE = shape(
    {
        "input_tokens": INTEGER,
        "output_tokens": INTEGER,
        "total_tokens": INTEGER,
        "input_tokens_details": shape({"cached_tokens": INTEGER}),
        "output_tokens_details": shape({"reasoning_tokens": INTEGER}),
    }
)
RESPONSE = shape(
    {
        "id": TEXT,
        "object": word("response"),
        "created_at": INTEGER,
        "completed_at": nullable(INTEGER),
        "status": TEXT,
        "incomplete_details": nullable(shape({"reason": TEXT})),
        "model": TEXT,
        "previous_response_id": nullable(TEXT),
        "instructions": nullable(TEXT),
        "output": array(ITEM),
        "error": nullable(shape({"code": TEXT, "message": TEXT})),
        "tools": array(_TOOL),
        "tool_choice": _CHOICE,
        "truncation": word("auto", "disabled"),
        "parallel_tool_calls": BOOLEAN,
        "text": shape({"format": shape({"type": TEXT})}, {"verbosity": TEXT}),
        "top_p": NUMBER,
        "presence_penalty": NUMBER,
        "frequency_penalty": NUMBER,
        "top_logprobs": INTEGER,
        "temperature": NUMBER,
        "reasoning": nullable(shape({"effort": nullable(TEXT), "summary": nullable(TEXT)})),
        "usage": nullable(_USAGE),
        "max_output_tokens": nullable(INTEGER),
        "max_tool_calls": nullable(INTEGER),
        "store": BOOLEAN,
        "background": BOOLEAN,
        "service_tier": TEXT,
        "metadata": nullable(shape({})),
        "safety_identifier": nullable(TEXT),
        "prompt_cache_key": nullable(TEXT),
    }
)

# Events

_PLACE: dict[str, Check] = {"item_id": TEXT, "output_index": INTEGER}
_IN_PART: dict[str, Check] = {**_PLACE, "content_index": INTEGER}
_IN_SUMMARY: dict[str, Check] = {**_PLACE, "summary_index": INTEGER}
_SNAPSHOT: dict[str, Check] = {"response": RESPONSE}
_ITEM_AT: dict[str, Check] = {"output_index": INTEGER, "item": ITEM}
ERROR = shape({"type": TEXT, "code": nullable(TEXT), "message": TEXT, "param": nullable(TEXT)})
_LOGPROBS: dict[str, Check] = {"logprobs": array(_LOGPROB)}

TERMINAL = ("response.completed", "response.incomplete", "response.failed")
_EVENTS: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    **dict.fromkeys(
        ("response.created", "response.queued", "response.in_progress", *TERMINAL), (_SNAPSHOT, {})
    ),
    "response.output_item.added": (_ITEM_AT, {}),
    "response.output_item.done": (_ITEM_AT, {}),
    "response.content_part.added": ({**_IN_PART, "part": PART}, {}),
    "response.content_part.done": ({**_IN_PART, "part": PART}, {}),
    "response.output_text.delta": ({**_IN_PART, "delta": TEXT}, _LOGPROBS),
    "response.output_text.done": ({**_IN_PART, "text": TEXT}, _LOGPROBS),
    "response.output_text.annotation.added": (
        {**_IN_PART, "annotation_index": INTEGER, "annotation": ANNOTATION},
        {},
    ),
    "response.refusal.delta": ({**_IN_PART, "delta": TEXT}, {}),
    "response.refusal.done": ({**_IN_PART, "refusal": TEXT}, {}),
    "response.function_call_arguments.delta": ({**_PLACE, "delta": TEXT}, {}),
    "response.function_call_arguments.done": ({**_PLACE, "arguments": TEXT}, {}),
    "response.reasoning.delta": ({**_IN_PART, "delta": TEXT}, {}),
    "response.reasoning.done": ({**_IN_PART, "text": TEXT}, {}),
    "response.reasoning_summary_part.added": ({**_IN_SUMMARY, "part": SUMMARY}, {}),
    "response.reasoning_summary_part.done": ({**_IN_SUMMARY, "part": SUMMARY}, {}),
    "response.reasoning_summary_text.delta": ({**_IN_SUMMARY, "delta": TEXT}, {}),
    "response.reasoning_summary_text.done": ({**_IN_SUMMARY, "text": TEXT}, {}),
    "error": ({"error": ERROR}, {}),
}
EVENT = typed(
    {
        name: shape({"sequence_number": INTEGER, **required}, optional)
        for name, (required, optional) in _EVENTS.items()
    }
)
ERROR_FRAME = shape(
    {
        "type": word("error"),
        "status": INTEGER,
        "error": shape({"code": TEXT, "message": TEXT}, {"param": nullable(TEXT), "type": TEXT}),
    }
)
"""How a socket tells an error: its code is never null."""


def problems(check: Check, value: object) -> list[str]:
    return check(value, "$")


# The order of events


def terminal(events: Sequence[Object]) -> Object:
    """The response that the last event tells, after a look at all of them in their order."""
    kinds = [event["type"] for event in events]
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert numbers[:-1] == list(range(len(events) - 1)), "a socket leaves out the error at the end"
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]
    told: Object = events[-1]["response"]
    for first in events[:2]:
        assert first["response"]["output"] == []
        assert first["response"]["status"] == "in_progress"
        assert first["response"]["id"] == told["id"]
    assert followed(events[2:-1]) == told["output"]
    return told


def followed(events: Sequence[Object]) -> list[Object]:
    """The items, as a client has them that follows the events; each event must fit."""
    reader = Reader()
    for event in events:
        if event["type"] != "error":
            reader.read(event)
    assert all(reader.closed)
    return reader.items


class Reader:
    """Builds items from events. Whatever is repeated must be what was told before."""

    def __init__(self) -> None:
        self.items: list[Object] = []
        self.closed: list[bool] = []
        self._open_parts: set[tuple[int, str, int]] = set()

    def read(self, event: Object) -> None:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            self._added(event)
            return
        at = event["output_index"]
        assert not self.closed[at], f"{kind} for an item that is done"
        item = self.items[at]
        if kind == "output_item.done":
            self._done(at, event["item"])
            return
        assert event["item_id"] == item["id"]
        what, _, verb = kind.rpartition(".")
        if what == "function_call_arguments":
            self._arguments(item, verb, event)
        elif what in ("content_part", "reasoning_summary_part"):
            self._part(at, item, verb, event)
        elif what == "output_text.annotation":
            self._opened(at, "content", event)["annotations"].append(event["annotation"])
        else:
            self._text(at, what, verb, event)

    def _added(self, event: Object) -> None:
        item = event["item"]
        assert event["output_index"] == len(self.items)
        assert item["status"] == "in_progress"
        assert item["id"] not in [one["id"] for one in self.items]
        empty = {"message": "content", "reasoning": "summary", "function_call": "arguments"}
        assert not item[empty[item["type"]]]
        assert item.get("name", "a name")
        self.items.append(deepcopy(item))
        self.closed.append(False)

    def _done(self, at: int, item: Object) -> None:
        assert not [key for key in self._open_parts if key[0] == at]
        assert item["status"] in ("completed", "incomplete")
        built = {**self.items[at], "status": item["status"]}
        if "encrypted_content" in item:
            built["encrypted_content"] = item["encrypted_content"]
        assert item == built
        self.items[at], self.closed[at] = item, True

    def _arguments(self, item: Object, verb: str, event: Object) -> None:
        if verb == "delta":
            item["arguments"] += event["delta"]
        else:
            assert event["arguments"] == item["arguments"]

    def _part(self, at: int, item: Object, verb: str, event: Object) -> None:
        field = "summary" if "summary_index" in event else "content"
        index = event[f"{field}_index"]
        parts = item.setdefault(field, [])
        if verb == "added":
            assert index == len(parts)
            assert not event["part"].get("text", event["part"].get("refusal"))
            parts.append(deepcopy(event["part"]))
            self._open_parts.add((at, field, index))
        else:
            assert event["part"] == parts[index]
            self._open_parts.remove((at, field, index))

    def _opened(self, at: int, field: str, event: Object) -> Object:
        index = event[f"{field}_index"]
        assert (at, field, index) in self._open_parts
        part: Object = self.items[at][field][index]
        return part

    def _text(self, at: int, what: str, verb: str, event: Object) -> None:
        field = "summary" if "summary_index" in event else "content"
        part = self._opened(at, field, event)
        key = "refusal" if what == "refusal" else "text"
        if verb == "delta":
            assert event["delta"]
            part[key] += event["delta"]
        else:
            assert event[key] == part[key]
