"""The required keys of events, response objects, items and parts, with their types."""

from typing import NamedTuple

from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter, json_type, quote_word
from weft.dialects.validation.untyped import count, elements, fields, shown, text

_OUTPUT = ("output_index",)
_ITEM = ("item_id", *_OUTPUT)
_CONTENT = (*_ITEM, "content_index")
_SUMMARY = (*_ITEM, "summary_index")


class StreamedField(NamedTuple):
    """A value that is streamed as deltas, then sent whole in a `.done` event, then in its part or
    item.
    """

    group: str
    """The list of parts it belongs to; empty for a field of the item itself."""
    key: str
    parts: tuple[str, ...] = ()
    """The types of part it may belong to."""


STREAMED_FIELDS: dict[str, StreamedField] = {
    "response.output_text": StreamedField("content", "text", ("output_text",)),
    "response.refusal": StreamedField("content", "refusal", ("refusal",)),
    # The specification's name, and the one of the original API. Its example has an `output_text`
    # part in a reasoning.
    "response.reasoning": StreamedField("content", "text", ("reasoning_text", "output_text")),
    "response.reasoning_text": StreamedField("content", "text", ("reasoning_text", "output_text")),
    "response.reasoning_summary_text": StreamedField("summary", "text", ("summary_text",)),
    "response.function_call_arguments": StreamedField("", "arguments"),
    "response.custom_tool_call_input": StreamedField("", "input"),
    "response.mcp_call_arguments": StreamedField("", "arguments"),
    "response.code_interpreter_call_code": StreamedField("", "code"),
    "response.apply_patch_call_operation_diff": StreamedField("", "diff"),
}

PART_EVENTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}
"""Events that add and finish a part, and the list it belongs to."""

INDEX_KEYS = {"content": "content_index", "summary": "summary_index"}

# The same names stand in the decoder's and the encoder's tables. They are repeated on purpose: a
# mistake there must not hide itself here.
_PROGRESS = {
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
    "file_search_call": ("in_progress", "searching", "completed"),
    "web_search_call": ("in_progress", "searching", "completed"),
    "image_generation_call": ("in_progress", "generating", "partial_image", "completed"),
    "mcp_call": ("in_progress", "completed", "failed"),
    "mcp_list_tools": ("in_progress", "completed", "failed"),
}
"""The progress events of hosted calls."""

_POSITIONS = {"": _ITEM, "content": _CONTENT, "summary": _SUMMARY}
"""The keys by which an event about an item, or about a part in one of its lists, refers to it."""

EVENTS: dict[str, tuple[str, ...]] = {
    "response.created": ("response",),
    "response.queued": ("response",),
    "response.in_progress": ("response",),
    "response.completed": ("response",),
    "response.incomplete": ("response",),
    "response.failed": ("response",),
    "response.output_item.added": ("output_index", "item"),
    "response.output_item.done": ("output_index", "item"),
    **{f"{part}.added": (*_POSITIONS[group], "part") for part, group in PART_EVENTS.items()},
    **{f"{part}.done": (*_POSITIONS[group], "part") for part, group in PART_EVENTS.items()},
    **{f"{name}.delta": (*_POSITIONS[row.group], "delta") for name, row in STREAMED_FIELDS.items()},
    **{f"{name}.done": (*_POSITIONS[row.group], row.key) for name, row in STREAMED_FIELDS.items()},
    "response.output_text.annotation.added": (*_CONTENT, "annotation_index", "annotation"),
    **{f"response.{call}.{step}": _ITEM for call in _PROGRESS for step in _PROGRESS[call]},
    # These have no `item_id` on the wire.
    **{f"response.shell_call_command.{step}": _OUTPUT for step in ("added", "delta", "done")},
    **{f"response.shell_call_output_content.{step}": _OUTPUT for step in ("delta", "done")},
    "response.compaction.compacting": (),
    # Audio belongs to no item.
    "response.audio.delta": (),
    "response.audio.done": (),
    "response.audio.transcript.delta": (),
    "response.audio.transcript.done": (),
    # Flat or nested, so its fields have a rule of their own.
    "error": (),
}
"""Every event type, and its keys besides `type` and `sequence_number` (Open Responses,
Streaming; those of hosted tools from the original API)."""

EVENT_KEYS: dict[str, str] = {
    "output_index": "integer",
    "content_index": "integer",
    "summary_index": "integer",
    "annotation_index": "integer",
    "item_id": "text",
    "delta": "text",
    "text": "text",
    "refusal": "text",
    "arguments": "text",
    "input": "text",
    "code": "text",
    "diff": "text",
    "response": "object",
    "item": "object",
    "part": "object",
    "annotation": "object",
}

# Without these a client fails; the other keys only fail the schema.
CLIENT_KEYS = (
    "id",
    "object",
    "created_at",
    "model",
    "status",
    "output",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
)
"""Keys of the response object that the official client relies on."""

# A rule of their own, because responses of the original API lack them.
ADDED_KEYS = ("completed_at", "presence_penalty", "frequency_penalty", "metadata")
"""Keys of the response object that the specification adds to the original API."""

RESPONSE_KEYS: dict[str, str] = {
    "id": "text",
    "object": "text",
    # A fraction of a second is rejected.
    "created_at": "integer",
    "completed_at": "integer or null",
    "status": "text",
    "incomplete_details": "object or null",
    "model": "text",
    "previous_response_id": "text or null",
    # The specification allows only text; the original API also returns a list of items.
    "instructions": "text or array or null",
    "output": "array",
    "error": "object or null",
    "tools": "array",
    "tool_choice": "text or object",
    "truncation": "text",
    "parallel_tool_calls": "boolean",
    "text": "object",
    "top_p": "number",
    "presence_penalty": "number",
    "frequency_penalty": "number",
    "top_logprobs": "integer",
    "temperature": "number",
    "reasoning": "object or null",
    "usage": "object or null",
    "max_output_tokens": "integer or null",
    "max_tool_calls": "integer or null",
    "store": "boolean",
    "background": "boolean",
    # Null is rejected here, as it is in `truncation` and the numbers above.
    "service_tier": "text",
    # The validator of the specification even lets it be absent.
    "metadata": "object or null",
    "safety_identifier": "text or null",
    "prompt_cache_key": "text or null",
}
"""Keys that the specification requires in every response object (ResponseResource)."""

ITEM_KEYS: dict[str, dict[str, str]] = {
    "message": {"id": "text", "role": "text", "content": "array"},
    "function_call": {"id": "text", "arguments": "text"},
    "custom_tool_call": {"id": "text", "input": "text"},
    "function_call_output": {"id": "text", "call_id": "text", "output": "text or array"},
    # `summary` may be empty, never absent.
    "reasoning": {"id": "text", "summary": "array"},
    "compaction": {"id": "text", "encrypted_content": "text"},
}
"""Required keys by item type. The name and the call id of a call have rules of their own."""

ANY_ITEM_KEYS = {"id": "text"}

PART_KEYS: dict[str, dict[str, str]] = {
    # `annotations` is often forgotten; `logprobs` is optional since 2026-04-24.
    "output_text": {"text": "text", "annotations": "array"},
    "refusal": {"refusal": "text"},
    "reasoning_text": {"text": "text"},
    "summary_text": {"text": "text"},
}

# The text of the specification wants a status on every item, its schema on these.
ITEMS_WITH_STATUS = frozenset({"message", "function_call", "function_call_output"})
USAGE_KEYS = ("input_tokens", "output_tokens", "total_tokens")

# Hosted calls are not among them: a client never acts on those.
CALL_VALUES = {"function_call": "arguments", "custom_tool_call": "input"}
"""Calls that the client executes, and the key of their params."""


def has_type(value: JsonValue, expected: str) -> bool:
    """Whether a value has one of the types in, for example, `integer or null`."""
    found = json_type(value)
    # Every JSON integer is a number, too.
    return found in expected.split(" or ") or (found == "integer" and expected.startswith("number"))


class ShapeValidator:
    """Checks keys and types against these tables."""

    def __init__(self, report: Reporter) -> None:
        self._report = report

    def event(self, type: str, event: JsonObject) -> None:
        for key in EVENTS.get(type, ()):
            expected = EVENT_KEYS[key]
            if not has_type(event.get(key), expected):
                detail = f"{type} has {_quoted(event, key)} as {key}; expected {expected}"
                self._report("event-keys", (type, key), detail)

    def snapshot(self, where: str, response: JsonObject) -> None:
        missing: dict[str, list[str]] = {}
        # One report for each rule, with all keys: one server was seen to lack 24.
        for key in RESPONSE_KEYS:
            if key not in response:
                rule = "snapshot-keys" if key in CLIENT_KEYS else "snapshot-spec-keys"
                rule = "snapshot-added-keys" if key in ADDED_KEYS else rule
                missing.setdefault(rule, []).append(key)
        for rule, keys in missing.items():
            detail = f"{where} has a response without {', '.join(keys)}"
            self._report(rule, "", f"{detail}; expected each in every snapshot")
        for key, expected in RESPONSE_KEYS.items():
            if key in response and not has_type(response[key], expected):
                detail = f"{where} has a response with {shown(response[key])} as {key}"
                self._report("snapshot-types", key, f"{detail}; expected {expected}")

    def item(self, where: str, item: JsonObject) -> None:
        type = text(item.get("type"))
        subject = f"{quote_word(type or 'item')} {shown(item.get('id'))}"
        for key, expected in {"type": "text", **ITEM_KEYS.get(type, ANY_ITEM_KEYS)}.items():
            if not has_type(item.get(key), expected) or (key == "id" and not item[key]):
                detail = (
                    f"{where} has {_quoted(item, key)} as {key} of {subject}; expected {expected}"
                )
                self._report("item-keys", (type, key), detail)
        if type in ITEMS_WITH_STATUS and not text(item.get("status")):
            detail = f"{where} has {_quoted(item, 'status')} as status of {subject}"
            expected = "expected in_progress, completed or incomplete"
            self._report("item-status-missing", type, f"{detail}; {expected}")
        # The specification's text says that they can be null; its schema rejects it.
        nulls = [key for key in ("content", "encrypted_content") if item.get(key, "") is None]
        if type == "reasoning" and nulls:
            detail = f"{where} has null as {' and '.join(nulls)} of {subject}; expected no such key"
            self._report("reasoning-null", "", detail)
        for part in (*elements(item.get("content")), *elements(item.get("summary"))):
            self.part(where, fields(part))

    def part(self, where: str, part: JsonObject) -> None:
        type = text(part.get("type"))
        for key, expected in {"type": "text", **PART_KEYS.get(type, {})}.items():
            if not has_type(part.get(key), expected):
                detail = f"{where} has {_quoted(part, key)} as {key} of a part; expected {expected}"
                self._report("part-keys", (type, key), detail)
        # The default tells an absent key from null.
        if part.get("logprobs", "") is None:
            detail = f"{where} has null as logprobs of a part; expected an array, or no such key"
            self._report("part-keys", (type, "logprobs"), detail)

    def usage(self, where: str, usage: JsonValue) -> None:
        # Null is legal, but leaves the client without a count.
        if usage is None:
            self._report("usage-missing", "", f"{where} has no usage; expected token counts")
            return
        tokens = fields(usage)
        counts = [count(tokens.get(key)) for key in USAGE_KEYS]
        if any(number is None for number in counts):
            found = ", ".join(f"{key} {_quoted(tokens, key)}" for key in USAGE_KEYS)
            detail = f"usage of {where} has {found}; expected three integers, none below 0"
            self._report("usage-invalid", "", detail)
            return
        input_tokens, output_tokens, total = (number or 0 for number in counts)
        if input_tokens + output_tokens != total:
            parts = f"{shown(input_tokens)} in, {shown(output_tokens)} out"
            detail = f"usage of {where} has {parts} and {shown(total)} in all"
            self._report(
                "usage-total", "", f"{detail}; expected {shown(input_tokens + output_tokens)}"
            )

    def error(self, where: str, event: JsonObject) -> None:
        # The documented shape is flat, the recorded one nested. Either will do.
        messages = (fields(event.get("error")).get("message"), event.get("message"))
        if not any(isinstance(message, str) for message in messages):
            detail = f"{where} without a message; expected error.message, or message"
            self._report("error-shape", "", detail)


def _quoted(value: JsonObject, key: str) -> str:
    return shown(value[key]) if key in value else "nothing"
