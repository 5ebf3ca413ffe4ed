"""The options of a request: their canonical paths, and their paths in a body."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from msgspec import UNSET

from weft.dialects.requests.openai_family import RefusedFields, WarnedFields
from weft.dialects.requests.passthrough import FieldGetters
from weft.request import Request


class ResponsesOption(NamedTuple):
    """One option."""

    canonical: str
    wire: str | None
    """The path in a body; None: Responses has no such option, or none with this value."""

    depends_on: tuple[str, ...] = ()
    """What else of a request its top-level field in a body is rendered from."""

    is_set: Callable[[Request], bool] | None = None
    """Whether a request of another dialect has the option, so that it gets lost."""

    instead: str | None = None
    """What the client can do instead of an option that a request must not lose; None: it is
    dropped with a warning."""


OPTIONS: tuple[ResponsesOption, ...] = (
    ResponsesOption("model", "model"),
    ResponsesOption("messages", "input"),
    ResponsesOption("instructions", "instructions"),
    ResponsesOption("tools", "tools", ("tool_choice", "parallel_tool_calls")),
    ResponsesOption("tool_choice", "tool_choice", ("tools", "parallel_tool_calls", "extra")),
    ResponsesOption("parallel_tool_calls", "parallel_tool_calls", ("tools", "tool_choice")),
    ResponsesOption("max_tool_calls", "max_tool_calls"),
    ResponsesOption("max_output_tokens", "max_output_tokens"),
    ResponsesOption("sampling.temperature", "temperature"),
    ResponsesOption("sampling.top_p", "top_p"),
    # In the specification, but not in the original API.
    ResponsesOption(
        "sampling.presence_penalty",
        "presence_penalty",
        is_set=lambda request: bool(request.sampling.presence_penalty),
    ),
    ResponsesOption(
        "sampling.frequency_penalty",
        "frequency_penalty",
        is_set=lambda request: bool(request.sampling.frequency_penalty),
    ),
    ResponsesOption("sampling.logprobs", "top_logprobs", ("include",)),
    ResponsesOption("output", "text.format", ("verbosity", "extra")),
    ResponsesOption("verbosity", "text.verbosity"),
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
    ResponsesOption("cache", "prompt_cache_retention", ("extra",)),
    # What Responses does not have
    ResponsesOption(
        "choices",
        None,
        is_set=lambda request: request.choices > 1,
        instead="ask for one answer",
    ),
    ResponsesOption(
        "max_output_tokens",
        None,
        is_set=lambda request: request.max_output_tokens == 0,
        instead="ask for at least one token",
    ),
    ResponsesOption(
        "sampling.logit_bias", None, is_set=lambda request: request.sampling.logit_bias is not UNSET
    ),
    ResponsesOption(
        "sampling.top_k", None, is_set=lambda request: request.sampling.top_k is not None
    ),
    ResponsesOption(
        "sampling.seed", None, is_set=lambda request: request.sampling.seed is not None
    ),
    ResponsesOption("betas", None, is_set=lambda request: bool(request.betas)),
)

WIRE_PATHS = {
    option.canonical: option.wire
    for option in OPTIONS
    if option.wire not in (None, option.canonical) and option.canonical != "messages"
} | {"tool_choice.allowed": "tool_choice.tools"}
"""Where options are in a body, if not under their own name. Each message has its own path."""


RENDERED_FROM: FieldGetters = {
    option.wire.partition(".")[0]: attrgetter(option.canonical, *option.depends_on)
    for option in reversed(OPTIONS)
    if option.wire is not None
}
"""What of a request each top-level field of a body is rendered from. Of two options in one field
the first counts.
"""

REFUSED: RefusedFields = tuple(
    (option.canonical, option.is_set, option.instead)
    for option in OPTIONS
    if option.is_set is not None and option.instead is not None
)
"""Options without which the request would mean something else."""

DROPPED: WarnedFields = tuple(
    (option.canonical, option.is_set)
    for option in OPTIONS
    if option.is_set is not None and option.instead is None
)
