"""Fields of a body that the canonical request does not have.

They are kept in an `extra`, those of an inner object under their path, such as
`cache_control.scope`. The dialect they came in writes them back to the same place; for any other
target each of them is a loss.
"""

from collections.abc import Collection
from difflib import get_close_matches

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.dialects.frames import is_present
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of, undeclared_fields
from weft.dialects.requests.source_dialects import SOURCE_DIALECTS
from weft.parts import Json
from weft.request import (
    OpaqueContent,
    Request,
    Sampling,
    Tool,
)

# Of all dialects together, not of the request's own: hosts of one dialect borrow fields of another.
_SOURCES = SOURCE_DIALECTS.values()
ESSENTIAL = frozenset(field for source in _SOURCES for field in source.essential)
ESSENTIAL_FOR_TOOLS = frozenset(
    field for source in _SOURCES for field in source.essential_for_tools
)
KNOWN_FIELDS = frozenset(field for source in _SOURCES for field in source.known)

# Names of canonical fields in bodies, where they are spelled differently.
_WIRE_NAMES = (
    "input",
    "maxOutputTokens",
    "max_completion_tokens",
    "max_tokens",
    "output_config",
    "parameters",
    "reasoning_effort",
    "response_format",
    "stopSequences",
    "stop_sequences",
    "system",
    "thinking",
    "topK",
    "topP",
    "top_logprobs",
)
_SUGGESTIONS = (*Request.__struct_fields__, *Sampling.__struct_fields__, *_WIRE_NAMES)
"""What a misspelled field may have been meant to be."""

# Of Responses; the first also of Anthropic.
OPTIONAL_TOOLS = ("tool_search", "image_generation")
"""Prefixes of hosted tools that a request can do without: all tools are declared anyway, and the
model can describe an image."""

ADAPTED_FIELDS = {
    # Of Anthropic, and of Gemini
    "search_result": "its content is sent as text",
    "thoughtSignature": "dropped: a signature is only for its origin",
}
"""Fields of a content whose loss changes nothing for another target."""

# Of Chat Completions
SUPERSEDED_FIELDS = {"max_tokens": "max_completion_tokens"}
"""Deprecated fields, each with the one that counts if both are there and differ."""

# Of Gemini; `content` is the key of Chat Completions and Anthropic, `output` that of Responses.
UNPARSED_RESULT_PARTS = "functionResponse.parts"
UNPARSED_RESULT_FIELDS = frozenset({"content", "output", UNPARSED_RESULT_PARTS})
"""Fields that hold a whole result, if a part of it has no canonical content."""

UNKNOWN_ROLE = "message"
"""The kind of an item that is a whole message, of a role that is not canonical."""

# Of Responses: without the turns that they stand for, the conversation has a hole.
PLACEHOLDERS = frozenset(
    {"compaction", "compaction_summary", "context_compaction", "item_reference"}
)
"""Items of the assistant that replace earlier turns."""

_EMPTY_VALUES = frozenset((b"null", b"[]", b"{}"))

_json = large_json.write


def remaining(
    data: bytes | Raw, known: type[msgspec.Struct], *handled: str, under: str = ""
) -> dict[str, Raw]:
    """Returns the fields of an object that a struct does not declare, each below a path."""
    found = undeclared_fields(data, known, *handled)
    if not found or not under:
        return found
    return {f"{under}.{key}": value for key, value in found.items()}


def collect(*found: dict[str, Raw]) -> Json:
    """Returns fields as an `extra`; unset if there are none."""
    fields: dict[str, Raw] = {}
    for one in found:
        fields |= one
    return Raw(_json(fields)) if fields else UNSET


def collect_filled(fields: dict[str, Raw]) -> Json:
    """The same, without fields that are null or empty: clients send back what they received."""
    return collect(without_empty(fields)) if fields else UNSET


def without_empty(fields: dict[str, Raw]) -> dict[str, Raw]:
    """Returns the fields that are not null or empty: clients send back what they received."""
    return {key: raw for key, raw in fields.items() if not is_empty(raw)} if fields else fields


def is_empty(raw: Raw) -> bool:
    """Whether a value is null, or has no members."""
    return bytes(raw) in _EMPTY_VALUES


def encode_with_extra(value: msgspec.Struct, extra: Json, inner: Collection[str] = ()) -> Raw:
    """Encodes a struct with its extra fields. Those below one of `inner` go into that object."""
    if not isinstance(extra, Raw):
        return Raw(_json(value))
    fields = fields_of(Raw(_json(value)))
    merge_extra(fields, fields_of(extra), inner)
    return Raw(_json(fields))


def merge_extra(fields: dict[str, Raw], extra: dict[str, Raw], inner: Collection[str]) -> None:
    """Adds extra fields to others. Those below one of `inner` go into that object."""
    for key, value in extra.items():
        head, _, rest = key.partition(".")
        # A dot may also be part of a key: only objects that the caller names are entered.
        if rest and head in inner:
            below = fields_of(fields[head]) if head in fields else {}
            merge_extra(below, {rest: value}, inner)
            fields[head] = Raw(_json(below))
        else:
            # What the canonical request says wins over what came beside it.
            fields.setdefault(key, value)


def report_unknown(
    extra: Json, path: str, losses: Losses, target: str, essential: Collection[str] = ESSENTIAL
) -> None:
    """Reports fields that the target does not have: refused, if they are essential."""
    for key, where in _present(extra, path):
        if key in essential:
            losses.refused(where, f"{key} is not available on {target}; remove it")
        elif key in SUPERSEDED_FIELDS:
            report_superseded(key, where, losses)
        elif key in KNOWN_FIELDS:
            losses.dropped(where, target)
        else:
            word = key.rpartition(".")[2]
            # 0.8 finds one wrong or missing letter in a word of five or more.
            close = get_close_matches(word, _SUGGESTIONS, n=1, cutoff=0.8)
            # A known word in the wrong place would be suggested as itself.
            hint = f' (did you mean "{close[0]}"?)' if close and close[0] != word else ": dropped"
            losses.warned(where, f'unknown field "{word}"{hint}')


def report_superseded(key: str, path: str, losses: Losses) -> None:
    """Reports a deprecated field that differs from its successor."""
    losses.warned(path, f"dropped: {SUPERSEDED_FIELDS[key]} counts")


def report_dropped_extras(extra: Json, path: str, losses: Losses, target: str) -> None:
    """Reports the extra fields of a message or content, which is sent without them if possible."""
    for key, where in _present(extra, path):
        # The model would get a result with a piece missing.
        if key in UNPARSED_RESULT_FIELDS:
            losses.refused(where, "a part of it exists only in its own dialect; remove it")
        elif key in ADAPTED_FIELDS:
            losses.adapted(where, ADAPTED_FIELDS[key])
        else:
            losses.dropped(where, target)


def _present(extra: Json, path: str) -> list[tuple[str, str]]:
    """The fields that hold something, each with its path."""
    if extra is UNSET:  # nearly always
        return []
    fields = fields_of(extra).items()
    return [(key, f"{path}.{key}" if path else key) for key, value in fields if is_present(value)]


def report_missing_tool(tool: Tool, path: str, losses: Losses, target: str) -> None:
    """Reports a tool that the target does not have."""
    # Kinds carry versions: `tool_search_tool_bm25_20251119`.
    if tool.kind.startswith(OPTIONAL_TOOLS):
        losses.dropped(path, target)
    else:
        losses.refused(path, f"{tool.kind} is not available on {target}; remove it")


def report_unsupported_item(
    item: OpaqueContent, path: str, losses: Losses, target: str, *, ours: bool
) -> None:
    """Reports an item that only its origin understands.

    What the assistant's upstream did by itself (`ours`) is dropped. What the user sent is refused,
    and so are items that replace earlier turns.
    """
    if item.kind == UNKNOWN_ROLE:
        losses.refused(path, f"this role is not available on {target}; use another")
    elif ours and item.kind not in PLACEHOLDERS:
        losses.dropped(path, target)
    else:
        losses.refused(path, f"{item.kind} is not available on {target}; remove it")
