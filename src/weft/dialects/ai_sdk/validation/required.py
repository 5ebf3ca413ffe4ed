"""What must be there, and what may be: the keys of both forms, type by type."""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject
from weft.dialects.validation.untyped import count, fields, text


class Form(Enum):
    """What a stream is made of."""

    UNKNOWN = "unknown"
    MODEL = "parts of a model"
    UI = "chunks for a front end"
    DUMP = "a dump"


class Shape(NamedTuple):
    """The keys of one type. A key whose kind is `object` may hold any value, null too."""

    required: dict[str, type]
    optional: frozenset[str] = frozenset()


_METADATA = frozenset({"providerMetadata"})
_ID: dict[str, type] = {"id": str}
_DELTA: dict[str, type] = {"id": str, "delta": str}
_CALL: dict[str, type] = {"toolCallId": str}
_NAMED: dict[str, type] = {**_CALL, "toolName": str}
_TOLD = _METADATA | {"providerExecuted", "dynamic", "title", "toolMetadata"}
_FILE: dict[str, type] = {"url": str, "mediaType": str}
_ITEMS = {
    f"{item}-{verb}": Shape(keys, _METADATA)
    for item in ("text", "reasoning")
    for verb, keys in (("start", _ID), ("delta", _DELTA), ("end", _ID))
}

UI: dict[str, Shape] = {
    **_ITEMS,
    "start": Shape({}, frozenset({"messageId", "messageMetadata"})),
    "finish": Shape({}, frozenset({"finishReason", "messageMetadata"})),
    "start-step": Shape({}),
    "finish-step": Shape({}),
    "reset-step": Shape({}),
    "tool-input-start": Shape(_NAMED, _TOLD),
    "tool-input-delta": Shape({**_CALL, "inputTextDelta": str}),
    "tool-input-available": Shape({**_NAMED, "input": object}, _TOLD),
    "tool-input-error": Shape({**_NAMED, "input": object, "errorText": str}, _TOLD),
    "tool-output-available": Shape({**_CALL, "output": object}, _TOLD | {"preliminary"}),
    "tool-output-error": Shape({**_CALL, "errorText": str}, _TOLD),
    "tool-output-denied": Shape(_CALL, _TOLD),
    "tool-approval-request": Shape(
        {"approvalId": str, **_CALL}, _TOLD | {"isAutomatic", "signature"}
    ),
    "tool-approval-response": Shape({"approvalId": str, "approved": bool}, _TOLD | {"reason"}),
    "source-url": Shape({"sourceId": str, "url": str}, _METADATA | {"title"}),
    "source-document": Shape(
        {"sourceId": str, "mediaType": str, "title": str}, _METADATA | {"filename"}
    ),
    "file": Shape(_FILE, _METADATA),
    "reasoning-file": Shape(_FILE, _METADATA),
    "custom": Shape({"kind": str}, _METADATA),
    "message-metadata": Shape({"messageMetadata": object}),
    "abort": Shape({}, frozenset({"reason"})),
    "error": Shape({"errorText": str}),
}
DATA = Shape({"data": object}, frozenset({"id", "transient"}))

MODEL: dict[str, Shape] = {
    **_ITEMS,
    "stream-start": Shape({"warnings": list}),
    "response-metadata": Shape({}),
    "tool-input-start": Shape({**_ID, "toolName": str}),
    "tool-input-delta": Shape(_DELTA),
    "tool-input-end": Shape(_ID),
    "tool-call": Shape({**_NAMED, "input": object}),
    "tool-result": Shape({**_NAMED, "result": object}),
    "tool-approval-request": Shape({"approvalId": str, **_CALL}),
    "source": Shape({**_ID, "sourceType": str}),
    "file": Shape({"mediaType": str, "data": object}),
    "reasoning-file": Shape({"mediaType": str, "data": object}),
    "custom": Shape({"kind": str}),
    "raw": Shape({"rawValue": object}),
    "error": Shape({"error": object}),
    "finish": Shape({"usage": dict, "finishReason": object}),
}
SOURCES: dict[str, dict[str, type]] = {
    "url": {"url": str},
    "document": {"mediaType": str, "title": str},
}
NEWER = frozenset({"reset-step", "tool-approval-response", "reasoning-file", "custom"})
"""Chunks that only the newest front ends know."""

_NULLABLE = frozenset({"input", "output", "data", "messageMetadata"})
_ONLY_MODEL = frozenset(MODEL) - frozenset(UI)
_ONLY_UI = frozenset(UI) - frozenset(MODEL)
_TELLING: dict[str, tuple[str, str]] = {
    "tool-input-start": ("id", "toolCallId"),
    "tool-input-delta": ("id", "toolCallId"),
    "error": ("error", "errorText"),
    "file": ("data", "url"),
    "reasoning-file": ("data", "url"),
    "finish": ("usage", "type"),
}
"""Types of both forms, with the key that tells a model's part, and the one that tells a chunk."""


def told(type: str, event: JsonObject) -> Form:
    """The form that one event can only have."""
    if _is_dumped(type, event):
        return Form.DUMP
    if type in _ONLY_MODEL:
        return Form.MODEL
    if type in _ONLY_UI or type.startswith("data-"):
        return Form.UI
    model, ui = _TELLING.get(type, ("", ""))
    if model in event:
        return Form.MODEL
    return Form.UI if ui in event else Form.UNKNOWN


def _is_dumped(type: str, event: JsonObject) -> bool:
    if type in ("text-delta", "reasoning-delta"):
        return "text" in event and "delta" not in event
    stepped = type == "start-step" and len(event) > 1
    return stepped or type == "tool-error" or "totalUsage" in event


def shape(form: Form, type: str) -> Shape | None:
    """The keys of a type; None for one that this form does not have."""
    if form is Form.UI and type.startswith("data-") and len(type) > len("data-"):
        return DATA
    return (UI if form is Form.UI else MODEL).get(type)


def missing(shaped: Shape, event: JsonObject) -> list[str]:
    """The required keys that are not there, or hold something else."""
    wanted = dict(shaped.required)
    if event.get("type") == "source":
        wanted |= SOURCES.get(text(event.get("sourceType")), {"sourceType (url, document)": str})
    return [key for key, kind in wanted.items() if not _holds(event, key, kind)]


def _holds(event: JsonObject, key: str, kind: type) -> bool:
    return key in event and (kind is object or isinstance(event[key], kind))


def nulls(event: JsonObject) -> list[str]:
    """The keys of a chunk that are null where null is no value."""
    return [key for key, value in event.items() if value is None and key not in _NULLABLE]


def strange(shaped: Shape, event: JsonObject) -> list[str]:
    """The keys of a chunk that its type does not have."""
    return [key for key in event if key not in {"type", *shaped.required} | shaped.optional]


# Usage of a model's stream

_TOTALS = (
    ("", "totalTokens", ("inputTokens", "outputTokens")),
    ("inputTokens", "total", ("noCache", "cacheRead", "cacheWrite")),
    ("outputTokens", "total", ("text", "reasoning")),
)
"""Where totals stand, and what they are made of."""


def counts(usage: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    """All counts of a usage, flat or nested, with where they stand."""
    for key in ("inputTokens", "outputTokens", "totalTokens", "reasoningTokens"):
        value = usage.get(key)
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", one) for name, one in value.items())
        else:
            yield key, value


def excess(usage: JsonObject) -> str | None:
    """A total that is less than its parts, as a detail; None if there is none."""
    for home, name, parts in _TOTALS:
        holder = fields(usage.get(home)) if home else usage
        total = count(holder.get(name))
        summed = sum(count(holder.get(part)) or 0 for part in parts)
        if total is not None and total < summed:
            return f"{home or 'usage'}.{name} is {total}; expected no less than {summed}, its parts"
    return None
