"""The required and the optional keys of every type of event, in both forms of stream."""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject
from weft.dialects.validation.untyped import count, fields, text


class StreamForm(Enum):
    """The form of a stream. The values are used in reports."""

    UNKNOWN = "unknown"
    MODEL = "parts of a model"
    UI = "chunks for a front end"
    DUMP = "a dump"


class EventShape(NamedTuple):
    """The keys of one type. A key of type `object` may have any value, even null."""

    required: dict[str, type]
    optional: frozenset[str] = frozenset()


_METADATA = frozenset({"providerMetadata"})
_ID: dict[str, type] = {"id": str}
_DELTA: dict[str, type] = {"id": str, "delta": str}
_CALL: dict[str, type] = {"toolCallId": str}
_NAMED: dict[str, type] = {**_CALL, "toolName": str}
# `title` came with version 6, `toolMetadata` with 6.0.200 and 7.
_CALL_OPTIONS = _METADATA | {"providerExecuted", "dynamic", "title", "toolMetadata"}
_FILE: dict[str, type] = {"url": str, "mediaType": str}
_ITEMS = {
    f"{item}-{verb}": EventShape(keys, _METADATA)
    for item in ("text", "reasoning")
    for verb, keys in (("start", _ID), ("delta", _DELTA), ("end", _ID))
}

# As the SDK's schema for chunks has them, which rejects what it does not list.
UI: dict[str, EventShape] = {
    **_ITEMS,
    # The message and its steps
    "start": EventShape({}, frozenset({"messageId", "messageMetadata"})),
    "finish": EventShape({}, frozenset({"finishReason", "messageMetadata"})),
    "start-step": EventShape({}),
    "finish-step": EventShape({}),
    "reset-step": EventShape({}),
    # Calls and their outputs
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
    # Sources, files and the rest
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
# Any `data-<name>`: the application's own chunks.
DATA = EventShape({"data": object}, frozenset({"id", "transient"}))

# Only required keys: readers of model parts accept any others.
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
"""Chunks that front ends know since version 7."""

# Values of tools and of the application, which may be any JSON.
_NULLABLE = frozenset({"input", "output", "data", "messageMetadata"})
_ONLY_MODEL = frozenset(MODEL) - frozenset(UI)
_ONLY_UI = frozenset(UI) - frozenset(MODEL)
# Framing proves nothing: model parts come as lines of JSON and as server-sent events.
_DISTINCTIVE_KEYS: dict[str, tuple[str, str]] = {
    "tool-input-start": ("id", "toolCallId"),
    "tool-input-delta": ("id", "toolCallId"),
    "error": ("error", "errorText"),
    "file": ("data", "url"),
    "reasoning-file": ("data", "url"),
    "finish": ("usage", "type"),  # no key is peculiar to a chunk, so any other is one
}
"""Types that both forms have, each with a key that only model parts have, and one of chunks."""


def form_of(type: str, event: JsonObject) -> StreamForm:
    """Returns the only form that has such an event; UNKNOWN if several do."""
    # A dump has `text` for `delta`, and its `start-step` has the request.
    if type in ("text-delta", "reasoning-delta"):
        dump = "text" in event and "delta" not in event
    else:
        dump = type == "tool-error" or "totalUsage" in event
        dump = dump or (type == "start-step" and len(event) > 1)
    if dump:
        return StreamForm.DUMP
    if type in _ONLY_MODEL:
        return StreamForm.MODEL
    if type in _ONLY_UI or type.startswith("data-"):
        return StreamForm.UI
    model, ui = _DISTINCTIVE_KEYS.get(type, ("", ""))
    if model in event:
        return StreamForm.MODEL
    return StreamForm.UI if ui in event else StreamForm.UNKNOWN


def shape_of(form: StreamForm, type: str) -> EventShape | None:
    """Returns the keys of a type; None if this form has no such type."""
    if form is StreamForm.UI and type.startswith("data-") and len(type) > len("data-"):
        return DATA
    return (UI if form is StreamForm.UI else MODEL).get(type)


def missing_keys(shape: EventShape, event: JsonObject) -> list[str]:
    """Returns the required keys that are absent or have a value of another type."""
    required = dict(shape.required)
    if event.get("type") == "source":
        # The name of a key that cannot exist, so that it is reported as missing.
        required |= SOURCES.get(text(event.get("sourceType")), {"sourceType (url, document)": str})
    return [
        key
        for key, kind in required.items()
        if key not in event or not (kind is object or isinstance(event[key], kind))
    ]


def null_keys(event: JsonObject) -> list[str]:
    """Returns the keys of a chunk that are null and must not be."""
    return [key for key, value in event.items() if value is None and key not in _NULLABLE]


def unknown_keys(shape: EventShape, event: JsonObject) -> list[str]:
    """Returns the keys of a chunk that its type does not have."""
    return [key for key in event if key not in {"type", *shape.required} | shape.optional]


# Usage

_TOTALS = (
    ("", "totalTokens", ("inputTokens", "outputTokens")),
    ("inputTokens", "total", ("noCache", "cacheRead", "cacheWrite")),
    ("outputTokens", "total", ("text", "reasoning")),
)
"""The object that a total is in, the key of the total, and the keys of what it is the sum of."""


def token_counts(usage: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    """Yields all counts, each with its path."""
    for key in ("inputTokens", "outputTokens", "totalTokens", "reasoningTokens"):
        value = usage.get(key)
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", one) for name, one in value.items())
        else:
            yield key, value


def exceeded_total(usage: JsonObject) -> str | None:
    """Returns the detail of a total that is less than its parts; None if there is none."""
    for path, key, parts in _TOTALS:
        counts = fields(usage.get(path)) if path else usage
        total = count(counts.get(key))
        summed = sum(count(counts.get(part)) or 0 for part in parts)
        if total is not None and total < summed:
            return f"{path or 'usage'}.{key} is {total}; expected no less than {summed}, its parts"
    return None
