"""What must be there, and what may be: the keys of both forms, type by type."""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from weft.dialects.checking.once import JsonObject
from weft.dialects.checking.untyped import count, fields, text
from weft.dialects.rules import JsonValue


class StreamForm(Enum):
    """What a stream is made of."""

    UNKNOWN = "unknown"
    MODEL = "parts of a model"
    UI = "chunks for a front end"
    DUMP = "a dump"


class EventShape(NamedTuple):
    """The keys of one type. A key whose kind is `object` may hold any value, null too."""

    required: dict[str, type]
    optional: frozenset[str] = frozenset()


_METADATA = frozenset({"providerMetadata"})
_ID: dict[str, type] = {"id": str}
_DELTA: dict[str, type] = {"id": str, "delta": str}
_CALL: dict[str, type] = {"toolCallId": str}
_NAMED: dict[str, type] = {**_CALL, "toolName": str}
_CALL_OPTIONS = _METADATA | {"providerExecuted", "dynamic", "title", "toolMetadata"}
_FILE: dict[str, type] = {"url": str, "mediaType": str}
_ITEMS = {
    f"{item}-{verb}": EventShape(keys, _METADATA)
    for item in ("text", "reasoning")
    for verb, keys in (("start", _ID), ("delta", _DELTA), ("end", _ID))
}

UI: dict[str, EventShape] = {
    **_ITEMS,
    "start": EventShape({}, frozenset({"messageId", "messageMetadata"})),
    "finish": EventShape({}, frozenset({"finishReason", "messageMetadata"})),
    "start-step": EventShape({}),
    "finish-step": EventShape({}),
    "reset-step": EventShape({}),
    "tool-input-start": EventShape(_NAMED, _CALL_OPTIONS),
    "tool-input-delta": EventShape({**_CALL, "inputTextDelta": str}),
    "tool-input-available": EventShape({**_NAMED, "input": object}, _CALL_OPTIONS),
    "tool-input-error": EventShape({**_NAMED, "input": object, "errorText": str}, _CALL_OPTIONS),
    "tool-output-available": EventShape(
        {**_CALL, "output": object}, _CALL_OPTIONS | {"preliminary"}
    ),
    "tool-output-error": EventShape({**_CALL, "errorText": str}, _CALL_OPTIONS),
    "tool-output-denied": EventShape(_CALL, _CALL_OPTIONS),
    "tool-approval-request": EventShape(
        {"approvalId": str, **_CALL}, _CALL_OPTIONS | {"isAutomatic", "signature"}
    ),
    "tool-approval-response": EventShape(
        {"approvalId": str, "approved": bool}, _CALL_OPTIONS | {"reason"}
    ),
    "source-url": EventShape({"sourceId": str, "url": str}, _METADATA | {"title"}),
    "source-document": EventShape(
        {"sourceId": str, "mediaType": str, "title": str}, _METADATA | {"filename"}
    ),
    "file": EventShape(_FILE, _METADATA),
    "reasoning-file": EventShape(_FILE, _METADATA),
    "custom": EventShape({"kind": str}, _METADATA),
    "message-metadata": EventShape({"messageMetadata": object}),
    "abort": EventShape({}, frozenset({"reason"})),
    "error": EventShape({"errorText": str}),
}
DATA = EventShape({"data": object}, frozenset({"id", "transient"}))

MODEL: dict[str, EventShape] = {
    **_ITEMS,
    "stream-start": EventShape({"warnings": list}),
    "response-metadata": EventShape({}),
    "tool-input-start": EventShape({**_ID, "toolName": str}),
    "tool-input-delta": EventShape(_DELTA),
    "tool-input-end": EventShape(_ID),
    "tool-call": EventShape({**_NAMED, "input": object}),
    "tool-result": EventShape({**_NAMED, "result": object}),
    "tool-approval-request": EventShape({"approvalId": str, **_CALL}),
    "source": EventShape({**_ID, "sourceType": str}),
    "file": EventShape({"mediaType": str, "data": object}),
    "reasoning-file": EventShape({"mediaType": str, "data": object}),
    "custom": EventShape({"kind": str}),
    "raw": EventShape({"rawValue": object}),
    "error": EventShape({"error": object}),
    "finish": EventShape({"usage": dict, "finishReason": object}),
}
SOURCES: dict[str, dict[str, type]] = {
    "url": {"url": str},
    "document": {"mediaType": str, "title": str},
}
SINCE_VERSION_7 = frozenset({"reset-step", "tool-approval-response", "reasoning-file", "custom"})
"""Chunks that only the newest front ends know."""

_NULLABLE = frozenset({"input", "output", "data", "messageMetadata"})
_ONLY_MODEL = frozenset(MODEL) - frozenset(UI)
_ONLY_UI = frozenset(UI) - frozenset(MODEL)
_DISTINCTIVE_KEYS: dict[str, tuple[str, str]] = {
    "tool-input-start": ("id", "toolCallId"),
    "tool-input-delta": ("id", "toolCallId"),
    "error": ("error", "errorText"),
    "file": ("data", "url"),
    "reasoning-file": ("data", "url"),
    "finish": ("usage", "type"),
}
"""Types of both forms, with the key that tells a model's part, and the one that tells a chunk."""


def form_of(type: str, event: JsonObject) -> StreamForm:
    """The form that one event can only have."""
    if _is_dump(type, event):
        return StreamForm.DUMP
    if type in _ONLY_MODEL:
        return StreamForm.MODEL
    if type in _ONLY_UI or type.startswith("data-"):
        return StreamForm.UI
    model, ui = _DISTINCTIVE_KEYS.get(type, ("", ""))
    if model in event:
        return StreamForm.MODEL
    return StreamForm.UI if ui in event else StreamForm.UNKNOWN


def _is_dump(type: str, event: JsonObject) -> bool:
    if type in ("text-delta", "reasoning-delta"):
        return "text" in event and "delta" not in event
    stepped = type == "start-step" and len(event) > 1
    return stepped or type == "tool-error" or "totalUsage" in event


def shape_of(form: StreamForm, type: str) -> EventShape | None:
    """The keys of a type; None for one that this form does not have."""
    if form is StreamForm.UI and type.startswith("data-") and len(type) > len("data-"):
        return DATA
    return (UI if form is StreamForm.UI else MODEL).get(type)


def missing_keys(shaped: EventShape, event: JsonObject) -> list[str]:
    """The required keys that are not there, or hold something else."""
    wanted = dict(shaped.required)
    if event.get("type") == "source":
        wanted |= SOURCES.get(text(event.get("sourceType")), {"sourceType (url, document)": str})
    return [key for key, kind in wanted.items() if not _holds(event, key, kind)]


def _holds(event: JsonObject, key: str, kind: type) -> bool:
    return key in event and (kind is object or isinstance(event[key], kind))


def null_keys(event: JsonObject) -> list[str]:
    """The keys of a chunk that are null where null is no value."""
    return [key for key, value in event.items() if value is None and key not in _NULLABLE]


def unknown_keys(shaped: EventShape, event: JsonObject) -> list[str]:
    """The keys of a chunk that its type does not have."""
    return [key for key in event if key not in {"type", *shaped.required} | shaped.optional]


# Usage of a model's stream

_TOTALS = (
    ("", "totalTokens", ("inputTokens", "outputTokens")),
    ("inputTokens", "total", ("noCache", "cacheRead", "cacheWrite")),
    ("outputTokens", "total", ("text", "reasoning")),
)
"""Where totals stand, and what they are made of."""


def token_counts(usage: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    """All counts of a usage, flat or nested, with where they stand."""
    for key in ("inputTokens", "outputTokens", "totalTokens", "reasoningTokens"):
        value = usage.get(key)
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", one) for name, one in value.items())
        else:
            yield key, value


def exceeded_total(usage: JsonObject) -> str | None:
    """A total that is less than its parts, as a detail; None if there is none."""
    for home, name, parts in _TOTALS:
        holder = fields(usage.get(home)) if home else usage
        total = count(holder.get(name))
        summed = sum(count(holder.get(part)) or 0 for part in parts)
        if total is not None and total < summed:
            return f"{home or 'usage'}.{name} is {total}; expected no less than {summed}, its parts"
    return None
