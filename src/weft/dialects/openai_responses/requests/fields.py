"""Which fields of a request are in which fields of a Responses body."""

from operator import attrgetter
from typing import NamedTuple

from weft.dialects.requests.passthrough import FieldGetters


class ResponsesField(NamedTuple):
    """A field of the body, and the field of the request that it holds."""

    wire: str
    canonical: str
    depends_on: tuple[str, ...] = ()
    """Other fields of the request that the top-level field of the body is rendered from."""


_FIELDS = (
    ResponsesField("model", "model"),
    ResponsesField("input", "messages"),
    ResponsesField("instructions", "instructions"),
    ResponsesField("tools", "tools", ("tool_choice", "parallel_tool_calls")),
    ResponsesField("tool_choice", "tool_choice", ("tools", "parallel_tool_calls", "extra")),
    ResponsesField("parallel_tool_calls", "parallel_tool_calls", ("tools", "tool_choice")),
    ResponsesField("max_tool_calls", "max_tool_calls"),
    ResponsesField("max_output_tokens", "max_output_tokens"),
    ResponsesField("temperature", "sampling.temperature"),
    ResponsesField("top_p", "sampling.top_p"),
    ResponsesField("presence_penalty", "sampling.presence_penalty"),
    ResponsesField("frequency_penalty", "sampling.frequency_penalty"),
    ResponsesField("top_logprobs", "sampling.logprobs", ("include",)),
    ResponsesField("text.format", "output", ("extra",)),
    ResponsesField("text.verbosity", "verbosity"),
    ResponsesField("reasoning", "reasoning"),
    ResponsesField("include", "include", ("sampling.logprobs",)),
    ResponsesField("stream", "stream"),
    ResponsesField("store", "store"),
    ResponsesField("background", "background"),
    ResponsesField("previous_response_id", "previous_response_id"),
    ResponsesField("truncation", "truncation"),
    ResponsesField("service_tier", "service_tier"),
    ResponsesField("metadata", "metadata"),
    ResponsesField("user", "user"),
    ResponsesField("safety_identifier", "safety_identifier"),
    ResponsesField("prompt_cache_key", "prompt_cache_key"),
    ResponsesField("prompt_cache_retention", "cache", ("extra",)),
)

SOURCE_PATHS = {
    **{row.canonical: row.wire for row in _FIELDS if row.canonical not in (row.wire, "messages")},
    "tool_choice.allowed": "tool_choice.tools",
}
"""Where canonical fields are found in a body, if not under their own name. Each message has its own
path."""


def _sources() -> FieldGetters:
    paths: dict[str, list[str]] = {}
    for row in _FIELDS:
        paths.setdefault(row.wire.partition(".")[0], []).extend((row.canonical, *row.depends_on))
    return {key: attrgetter(*canonical) for key, canonical in paths.items()}


FIELD_SOURCES = _sources()
"""Reads what a top-level field of the body is rendered from; its source bytes are kept if that did
not change."""
