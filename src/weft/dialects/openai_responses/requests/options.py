"""Which fields of a request are in which fields of a Responses body."""

from operator import attrgetter
from typing import NamedTuple

from weft.dialects.requests.passthrough import FieldGetters


class ResponsesOption(NamedTuple):
    """A field of the body, and the field of the request that it holds."""

    wire: str
    canonical: str
    depends_on: tuple[str, ...] = ()
    """Other fields of the request that the top-level field of the body is rendered from."""


OPTIONS = (
    ResponsesOption("model", "model"),
    ResponsesOption("input", "messages"),
    ResponsesOption("instructions", "instructions"),
    ResponsesOption("tools", "tools", ("tool_choice", "parallel_tool_calls")),
    ResponsesOption("tool_choice", "tool_choice", ("tools", "parallel_tool_calls", "extra")),
    ResponsesOption("parallel_tool_calls", "parallel_tool_calls", ("tools", "tool_choice")),
    ResponsesOption("max_tool_calls", "max_tool_calls"),
    ResponsesOption("max_output_tokens", "max_output_tokens"),
    ResponsesOption("temperature", "sampling.temperature"),
    ResponsesOption("top_p", "sampling.top_p"),
    ResponsesOption("presence_penalty", "sampling.presence_penalty"),
    ResponsesOption("frequency_penalty", "sampling.frequency_penalty"),
    ResponsesOption("top_logprobs", "sampling.logprobs", ("include",)),
    ResponsesOption("text.format", "output", ("extra",)),
    ResponsesOption("text.verbosity", "verbosity"),
    ResponsesOption("reasoning", "reasoning"),
    ResponsesOption("include", "include", ("sampling.logprobs",)),
    ResponsesOption("stream", "stream"),
    ResponsesOption("store", "store"),
    ResponsesOption("background", "background"),
    ResponsesOption("previous_response_id", "previous_response_id"),
    ResponsesOption("truncation", "truncation"),
    ResponsesOption("service_tier", "service_tier"),
    ResponsesOption("metadata", "metadata"),
    ResponsesOption("user", "user"),
    ResponsesOption("safety_identifier", "safety_identifier"),
    ResponsesOption("prompt_cache_key", "prompt_cache_key"),
    ResponsesOption("prompt_cache_retention", "cache", ("extra",)),
)

WIRE_PATHS = {
    **{row.canonical: row.wire for row in OPTIONS if row.canonical not in (row.wire, "messages")},
    "tool_choice.allowed": "tool_choice.tools",
}
"""Where canonical fields are found in a body, if not under their own name. Each message has its own
path."""


def _sources() -> FieldGetters:
    paths: dict[str, list[str]] = {}
    for row in OPTIONS:
        paths.setdefault(row.wire.partition(".")[0], []).extend((row.canonical, *row.depends_on))
    return {key: attrgetter(*canonical) for key, canonical in paths.items()}


RENDERED_FROM = _sources()
"""Reads what a top-level field of the body is rendered from; its source bytes are kept if that did
not change."""
