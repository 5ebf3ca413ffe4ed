"""What a body says beside the fields that a canonical request has, both ways.

Unknown keys are kept in an `extra`; those of an inner object under their path, such as
`cache_control.scope`. The dialect they came in writes them back where they stood; for any other
target each of them is a loss.
"""

from collections.abc import Collection

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.base import told
from weft.dialects.requests import Losses, keys_of, unknown
from weft.parts import Json
from weft.request import OpaqueContent, Tool

HINTS = frozenset(
    {
        "client_metadata",
        "context_management",
        "diagnostics",
        "labels",
        "prompt_cache_breakpoint",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safetySettings",
        "serviceTier",
        "speed",
        "stream_options",
        "user_profile_id",
    }
)
"""Keys that change what a request costs or who counts it, not what it means."""

TOOL_HINTS = frozenset(
    {
        "behavior",
        "cache_control",
        "defer_loading",
        "eager_input_streaming",
        "external_web_access",
        "input_examples",
        "namespace_description",
        "search_content_types",
    }
)
"""The same for tools: when a tool is shown, what is said of its group, how it gets at pages."""

EXTRAS = ("tool_search", "image_generation")
"""How the kinds of hosted tools begin that a request can do without: its tools are all shown
anyway, and what a picture would show can be said."""

SAID_OTHERWISE = {
    "search_result": "what was found is sent as text",
    "thoughtSignature": "left out: a proof goes back to where it came from",
}
"""Keys beside a content whose loss changes nothing for another target."""

UNSEEN = "content"
"""What a result shows, as a whole, when there is no canonical content for all of it."""

INSTEAD = frozenset({"compaction", "compaction_summary", "context_compaction", "item_reference"})
"""Items of the assistant that stand for something else that was said."""

_json = msgspec.json.Encoder().encode


def left(
    data: bytes | Raw, known: type[msgspec.Struct], *handled: str, under: str = ""
) -> dict[str, Raw]:
    """The keys of an object that a shape does not know, each below a path."""
    prefix = f"{under}." if under else ""
    found = keys_of(unknown(data, known, *handled))
    return {f"{prefix}{key}": value for key, value in found.items()}


def kept(*found: dict[str, Raw]) -> Json:
    """Keys as an `extra`; nothing when there are none."""
    every = {key: value for one in found for key, value in one.items()}
    return Raw(_json(every)) if every else UNSET


def written(value: msgspec.Struct, extra: Json, inner: Collection[str] = ()) -> Raw:
    """Writes a shape with what came beside it. Keys below one of `inner` go into that object."""
    if not isinstance(extra, Raw):
        return Raw(_json(value))
    fields = keys_of(Raw(_json(value)))
    for key, said in keys_of(extra).items():
        _put(fields, key, said, inner)
    return Raw(_json(fields))


def _put(fields: dict[str, Raw], key: str, said: Raw, inner: Collection[str]) -> None:
    head, _, rest = key.partition(".")
    if rest and head in inner:
        below = keys_of(fields[head]) if head in fields else {}
        _put(below, rest, said, inner)
        fields[head] = Raw(_json(below))
    else:
        fields.setdefault(key, said)


def refuse(extra: Json, path: str, losses: Losses, hints: Collection[str] = HINTS) -> None:
    """Notes what only the dialect that it came in can say: hints are lost, the rest refused."""
    for key, where in _said(extra, path):
        if key in hints:
            losses.warned(where, f"{key} is not sent: the target does not have it")
        else:
            losses.refused(where, f"{key} is not available on the target; remove it")


def warn(extra: Json, path: str, losses: Losses) -> None:
    """Notes what came beside a message or its content: it is said without, if it can be."""
    for key, where in _said(extra, path):
        if key == UNSEEN:
            losses.refused(where, "some of it only its own dialect can show; remove it")
        elif key in SAID_OTHERWISE:
            losses.adapted(where, SAID_OTHERWISE[key])
        else:
            losses.warned(where, f"{key} is not sent: the target does not have it")


def missing(tool: Tool, path: str, losses: Losses, name: str = "the target") -> None:
    """Notes a tool that the target does not have."""
    if tool.kind.startswith(EXTRAS):
        losses.warned(path, f"{tool.kind} is not available on {name}; left out")
    else:
        losses.refused(path, f"{tool.kind} is not available on {name}; remove it")


def unheard(item: OpaqueContent, path: str, losses: Losses, *, ours: bool) -> None:
    """Notes an item that only its origin understands.

    What the assistant's upstream did by itself is left out. What the user shows is not, nor what
    stands for turns that are not there.
    """
    if ours and item.kind not in INSTEAD:
        losses.warned(path, f"{item.kind} of {item.origin} is left out")
    else:
        losses.refused(path, f"{item.kind} is not available on the target; remove it")


def _said(extra: Json, path: str) -> list[tuple[str, str]]:
    return [
        (key, f"{path}.{key}" if path else key)
        for key, value in keys_of(extra).items()
        if told(value)
    ]
