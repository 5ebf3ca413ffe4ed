"""The options of a request: their canonical paths, and their paths in a body."""

from operator import attrgetter

from weft.dialects.requests.openai_family import OpenAIFamilyOption as Option
from weft.dialects.requests.openai_family import UnavailableOptions
from weft.dialects.requests.passthrough import FieldGetters
from weft.request import Request

_NEEDLESS_INCLUDES = frozenset(
    {"reasoning.encrypted_content", "message.output_text.logprobs"}
    | {"reasoning.raw", "required_action"}
)
"""Values of `include` that other fields ask for here, or that are not for the upstream."""


def _wants_summary(request: Request) -> bool:
    reasoning = request.reasoning
    if reasoning is None or reasoning.effort == "none":
        return False
    return reasoning.summary not in (None, "none")


_CHOICE = ("tools", "tool_choice", "parallel_tool_calls")

OPTIONS: tuple[Option, ...] = (
    Option("model", "model"),
    # Tools. The API rejects a choice without tools, so each key depends on the others.
    Option("tools", "tools", _CHOICE),
    # `functions` and `function_call` are deprecated (API reference), and old clients send them.
    Option("tools", "functions", _CHOICE),
    Option("tools", "web_search_options", _CHOICE),
    Option("tool_choice", "tool_choice", (*_CHOICE, "extra")),
    Option("tool_choice", "function_call", (*_CHOICE, "extra")),
    Option("tool_choice.allowed", "tool_choice.allowed_tools.tools"),
    Option("parallel_tool_calls", "parallel_tool_calls", _CHOICE),
    # Limits and sampling. `max_tokens` is deprecated, but the only name that some hosts know.
    Option("max_output_tokens", "max_completion_tokens"),
    Option("max_output_tokens", "max_tokens"),
    Option("sampling.temperature", "temperature"),
    Option("sampling.top_p", "top_p"),
    Option("sampling.presence_penalty", "presence_penalty"),
    Option("sampling.frequency_penalty", "frequency_penalty"),
    Option("sampling.seed", "seed"),
    Option("sampling.logit_bias", "logit_bias"),
    Option("sampling.logprobs", "top_logprobs"),
    Option("sampling.logprobs", "logprobs"),
    Option("stop", "stop"),
    Option("choices", "n"),
    # Output
    Option("output", "response_format", ("extra",)),
    Option("output.schema", "response_format.json_schema.schema"),
    Option("output.name", "response_format.json_schema.name"),
    Option("output.strict", "response_format.json_schema.strict"),
    Option("verbosity", "verbosity"),
    Option("reasoning", "reasoning_effort"),
    Option("reasoning.effort", "reasoning_effort"),
    # An effort that only one host knows is kept in `reasoning.extra`.
    Option("reasoning.reasoning_effort", "reasoning_effort"),
    # Streaming, storage and accounting
    Option("stream", "stream"),
    Option("include_usage", "stream_options.include_usage"),
    Option("include_usage", "stream_options", ("stream", "extra")),
    Option("store", "store"),
    Option("metadata", "metadata"),
    Option("user", "user"),
    Option("safety_identifier", "safety_identifier"),
    Option("prompt_cache_key", "prompt_cache_key"),
    Option("cache", "prompt_cache_retention", ("extra",)),
    Option("service_tier", "service_tier"),
    # What Chat Completions does not have
    Option(
        "previous_response_id",
        None,
        is_set=lambda request: request.previous_response_id is not None,
        instead="send the messages",
    ),
    Option(
        "max_output_tokens",
        None,
        # Anthropic takes 0, to fill its cache without an answer.
        is_set=lambda request: request.max_output_tokens == 0,
        instead="ask for at least one token",
    ),
    Option("max_tool_calls", None, is_set=lambda request: request.max_tool_calls is not None),
    Option("background", None, is_set=lambda request: request.background),
    # `disabled` is what happens anyway.
    Option("truncation", None, is_set=lambda request: request.truncation not in (None, "disabled")),
    Option("sampling.top_k", None, is_set=lambda request: request.sampling.top_k is not None),
    Option("betas", None, is_set=lambda request: bool(request.betas)),
    Option("include", None, is_set=lambda request: bool(set(request.include) - _NEEDLESS_INCLUDES)),
    Option("reasoning.summary", None, is_set=_wants_summary),
)

UNAVAILABLE = UnavailableOptions(OPTIONS)

# Where two rows have the same key, the first one counts.

WIRE_PATHS: dict[str, str] = {
    option.canonical: option.wire for option in reversed(OPTIONS) if option.wire is not None
}
"""The path of each option in a body."""

RENDERED_FROM: FieldGetters = {
    option.wire: attrgetter(option.canonical, *option.depends_on)
    for option in reversed(OPTIONS)
    if option.wire is not None and "." not in option.wire
}
"""What of a request each key of a body is rendered from."""
