"""The options of a request: their canonical paths, and their paths in a body."""

from operator import attrgetter

from msgspec import UNSET

from weft.dialects.requests.openai_family import OpenAIFamilyOption as Option
from weft.dialects.requests.openai_family import UnavailableOptions
from weft.dialects.requests.passthrough import FieldGetters

OPTIONS: tuple[Option, ...] = (
    Option("model", "model"),
    Option("messages", "input"),
    Option("instructions", "instructions"),
    Option("tools", "tools", ("tool_choice", "parallel_tool_calls")),
    Option("tool_choice", "tool_choice", ("tools", "parallel_tool_calls", "extra")),
    Option("parallel_tool_calls", "parallel_tool_calls", ("tools", "tool_choice")),
    Option("max_tool_calls", "max_tool_calls"),
    Option("max_output_tokens", "max_output_tokens"),
    Option("sampling.temperature", "temperature"),
    Option("sampling.top_p", "top_p"),
    # In the specification, but not in the original API.
    Option(
        "sampling.presence_penalty",
        "presence_penalty",
        is_set=lambda request: bool(request.sampling.presence_penalty),
    ),
    Option(
        "sampling.frequency_penalty",
        "frequency_penalty",
        is_set=lambda request: bool(request.sampling.frequency_penalty),
    ),
    # Both ways to ask for log probabilities are read as one option.
    Option("sampling.logprobs", "top_logprobs", ("include",)),
    Option("output", "text.format", ("verbosity", "extra")),
    Option("verbosity", "text.verbosity"),
    Option("reasoning", "reasoning"),
    Option("include", "include", ("sampling.logprobs",)),
    Option("stream", "stream"),
    Option("store", "store"),
    Option("background", "background"),
    Option("previous_response_id", "previous_response_id"),
    Option("truncation", "truncation"),
    Option("service_tier", "service_tier"),
    Option("metadata", "metadata"),
    Option("user", "user"),
    Option("safety_identifier", "safety_identifier"),
    Option("prompt_cache_key", "prompt_cache_key"),
    Option("cache", "prompt_cache_retention", ("extra",)),
    # What Responses does not have. Stop sequences are not listed: Weft cuts the answer itself.
    Option(
        "choices",
        None,
        is_set=lambda request: request.choices > 1,
        instead="ask for one answer",
    ),
    Option(
        "max_output_tokens",
        None,
        is_set=lambda request: request.max_output_tokens == 0,
        instead="ask for at least one token",
    ),
    Option(
        "sampling.logit_bias", None, is_set=lambda request: request.sampling.logit_bias is not UNSET
    ),
    Option("sampling.top_k", None, is_set=lambda request: request.sampling.top_k is not None),
    Option("sampling.seed", None, is_set=lambda request: request.sampling.seed is not None),
    Option("betas", None, is_set=lambda request: bool(request.betas)),
)

UNAVAILABLE = UnavailableOptions(OPTIONS)

WIRE_PATHS = {
    option.canonical: option.wire
    for option in OPTIONS
    # Two rows may have one canonical path, once with and once without a wire path.
    if option.wire not in (None, option.canonical) and option.canonical != "messages"
} | {"tool_choice.allowed": "tool_choice.tools"}
"""Where options are in a body, if not under their own name. Each message has its own path."""


RENDERED_FROM: FieldGetters = {
    option.wire.partition(".")[0]: attrgetter(option.canonical, *option.depends_on)
    # Reversed, so that the first row of a field is the last one written.
    for option in reversed(OPTIONS)
    if option.wire is not None
}
"""What of a request each top-level field of a body is rendered from. Of two options in one field
the first counts.
"""
