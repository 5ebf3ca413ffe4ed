"""What a body says beside the fields that a canonical request has, both ways.

Unknown keys are kept in an `extra`; those of an inner object under their path, such as
`cache_control.scope`. The dialect they came in writes them back where they stood; for any other
target each of them is a loss.
"""

from collections.abc import Collection
from difflib import get_close_matches

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.dialects.frames import is_present
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of, other_fields
from weft.parts import Json
from weft.request import (
    OpaqueContent,
    Request,
    Sampling,
    Tool,
)

ESSENTIAL = frozenset(
    {
        "cachedContent",
        "container",
        "conversation",
        "function_call",
        "generationConfig.responseJsonSchema",
        "generationConfig.responseMimeType",
        "generationConfig.responseModalities",
        "generationConfig.responseSchema",
        "modalities",
        "output_config.format",
        "prompt",
        "response_format",
        "text.format",
        "thread",
        "tool_choice",
        "toolConfig.functionCallingConfig",
    }
)
"""Keys without which another answer would be given: which tool is called, what shape or medium the
output has, what was said before. A request that has one of them is refused, never sent without."""

ESSENTIAL_FOR_TOOLS = frozenset(
    {
        "allowed_callers",
        "allowed_tools",
        "configs",
        "container",
        "headers",
        "require_approval",
        "streamableHttpTransport.headers",
    }
)
"""The same for tools: who may call what, with whose consent, and what it works on."""

KNOWN_FIELDS = frozenset(
    {
        "audio",
        "behavior",
        "cache_control",
        "cache_control.ttl",
        "cache_control.type",
        "citations",
        "client_metadata",
        "compaction",
        "context_management",
        "defer_loading",
        "diagnostics",
        "eager_input_streaming",
        "external_web_access",
        "fallbacks",
        "generationConfig.mediaResolution",
        "generationConfig.speechConfig",
        "generationConfig.thinkingConfig.thinkingLevel",
        "inference_geo",
        "input_examples",
        "labels",
        "moderation",
        "namespace_description",
        "output_config.effort",
        "output_config.task_budget",
        "prediction",
        "prompt_cache_breakpoint",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "safetySettings",
        "search_content_types",
        "serviceTier",
        "speed",
        "store",
        "stream_options",
        "thinking",
        "thinking.display",
        "user_profile_id",
    }
)
"""Keys of one wire that have no canonical field. Any other is perhaps a slip."""

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
"""What a key that nobody knows may have been meant to be."""

OPTIONAL_TOOLS = ("tool_search", "image_generation")
"""How the kinds of hosted tools begin that a request can do without: its tools are all shown
anyway, and what a picture would show can be said."""

ADAPTED_FIELDS = {
    "search_result": "what was found is sent as text",
    "thoughtSignature": "left out: a proof goes back to where it came from",
}
"""Keys beside a content whose loss changes nothing for another target."""

UNPARSED_RESULT_PARTS = "functionResponse.parts"
UNPARSED_RESULT_FIELDS = frozenset({"content", "output", UNPARSED_RESULT_PARTS})
"""What a result shows, as a whole, when there is no canonical content for all of it."""

UNKNOWN_ROLE = "message"
"""The kind of an item that is a whole message, of a role that nobody here knows."""

PLACEHOLDERS = frozenset(
    {"compaction", "compaction_summary", "context_compaction", "item_reference"}
)
"""Items of the assistant that stand for something else that was said."""

_json = large_json.write


def remaining(
    data: bytes | Raw, known: type[msgspec.Struct], *handled: str, under: str = ""
) -> dict[str, Raw]:
    """The keys of an object that a shape does not know, each below a path."""
    prefix = f"{under}." if under else ""
    found = fields_of(other_fields(data, known, *handled))
    return {f"{prefix}{key}": value for key, value in found.items()}


def collect(*found: dict[str, Raw]) -> Json:
    """Keys as an `extra`; nothing when there are none."""
    every = {key: value for one in found for key, value in one.items()}
    return Raw(_json(every)) if every else UNSET


def encode_with_extra(value: msgspec.Struct, extra: Json, inner: Collection[str] = ()) -> Raw:
    """Writes a shape with what came beside it. Keys below one of `inner` go into that object."""
    if not isinstance(extra, Raw):
        return Raw(_json(value))
    fields = fields_of(Raw(_json(value)))
    merge_extra(fields, fields_of(extra), inner)
    return Raw(_json(fields))


def merge_extra(fields: dict[str, Raw], extra: dict[str, Raw], inner: Collection[str]) -> None:
    """Adds what came beside fields to them. Keys below one of `inner` go into that object."""
    for key, said in extra.items():
        _merge_field(fields, key, said, inner)


def _merge_field(fields: dict[str, Raw], key: str, said: Raw, inner: Collection[str]) -> None:
    head, _, rest = key.partition(".")
    if rest and head in inner:
        below = fields_of(fields[head]) if head in fields else {}
        _merge_field(below, rest, said, inner)
        fields[head] = Raw(_json(below))
    else:
        fields.setdefault(key, said)


def report_unknown(
    extra: Json, path: str, losses: Losses, target: str, decisive: Collection[str] = ESSENTIAL
) -> None:
    """Notes what only the dialect that it came in can say: refused, if it is decisive."""
    for key, where in _present(extra, path):
        if key in decisive:
            losses.refused(where, f"{key} is not available on {target}; remove it")
        else:
            losses.warned(where, _unknown_field_text(key, target))


def report_dropped_extras(extra: Json, path: str, losses: Losses, target: str) -> None:
    """Notes what came beside a message or its content: it is said without, if it can be."""
    for key, where in _present(extra, path):
        if key in UNPARSED_RESULT_FIELDS:
            losses.refused(where, "some of it only its own dialect can show; remove it")
        elif key in ADAPTED_FIELDS:
            losses.adapted(where, ADAPTED_FIELDS[key])
        else:
            losses.dropped(where, target)


def _unknown_field_text(key: str, target: str) -> str:
    if key in KNOWN_FIELDS:
        return f"dropped: {target} has no equivalent"
    word = key.rpartition(".")[2]
    close = get_close_matches(word, _SUGGESTIONS, n=1, cutoff=0.8)
    if close and close[0] != word:
        return f'unknown field "{word}" (did you mean "{close[0]}"?)'
    return f'unknown field "{word}": dropped'


def report_missing_tool(tool: Tool, path: str, losses: Losses, target: str) -> None:
    """Notes a tool that the target does not have."""
    if tool.kind.startswith(OPTIONAL_TOOLS):
        losses.dropped(path, target)
    else:
        losses.refused(path, f"{tool.kind} is not available on {target}; remove it")


def report_unsupported_item(
    item: OpaqueContent, path: str, losses: Losses, target: str, *, ours: bool
) -> None:
    """Notes an item that only its origin understands.

    What the assistant's upstream did by itself is left out. What the user shows is not, nor what
    stands for turns that are not there.
    """
    if item.kind == UNKNOWN_ROLE:
        losses.refused(path, f"this role is not available on {target}; use another")
    elif ours and item.kind not in PLACEHOLDERS:
        losses.dropped(path, target)
    else:
        losses.refused(path, f"{item.kind} is not available on {target}; remove it")


def _present(extra: Json, path: str) -> list[tuple[str, str]]:
    return [
        (key, f"{path}.{key}" if path else key)
        for key, value in fields_of(extra).items()
        if is_present(value)
    ]


_EMPTY_VALUES = frozenset((b"null", b"[]", b"{}"))


def without_empty(extra: Json) -> Json:
    """The keys of an object that say something: clients send back what they got, nulls and all."""
    found = {
        key: value for key, value in fields_of(extra).items() if bytes(value) not in _EMPTY_VALUES
    }
    return collect(found)
