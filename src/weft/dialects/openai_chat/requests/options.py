"""The options of a request: their canonical paths, and their paths in a body."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from weft.dialects.requests.openai_family import RefusedFields, WarnedFields
from weft.dialects.requests.passthrough import FieldGetters
from weft.request import Request


class ChatOption(NamedTuple):
    """One option. An option with two keys in a body has two rows, the preferred one first."""

    canonical: str
    wire: str | None
    """The path in a body; None: Chat Completions has no such option."""

    depends_on: tuple[str, ...] = ()
    """What else of a request its key in a body is rendered from."""

    is_set: Callable[[Request], bool] | None = None
    """Without a path in a body: whether a request has the option, so that it gets lost."""

    instead: str | None = None
    """What the client can do instead of an option that a request must not lose; None: it is
    dropped with a warning."""


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

OPTIONS: tuple[ChatOption, ...] = (
    ChatOption("model", "model"),
    ChatOption("tools", "tools", _CHOICE),
    ChatOption("tools", "functions", _CHOICE),
    ChatOption("tools", "web_search_options", _CHOICE),
    ChatOption("tool_choice", "tool_choice", (*_CHOICE, "extra")),
    ChatOption("tool_choice", "function_call", (*_CHOICE, "extra")),
    ChatOption("tool_choice.allowed", "tool_choice.allowed_tools.tools"),
    ChatOption("parallel_tool_calls", "parallel_tool_calls", _CHOICE),
    ChatOption("max_output_tokens", "max_completion_tokens"),
    ChatOption("max_output_tokens", "max_tokens"),
    ChatOption("sampling.temperature", "temperature"),
    ChatOption("sampling.top_p", "top_p"),
    ChatOption("sampling.presence_penalty", "presence_penalty"),
    ChatOption("sampling.frequency_penalty", "frequency_penalty"),
    ChatOption("sampling.seed", "seed"),
    ChatOption("sampling.logit_bias", "logit_bias"),
    ChatOption("sampling.logprobs", "top_logprobs"),
    ChatOption("sampling.logprobs", "logprobs"),
    ChatOption("stop", "stop"),
    ChatOption("choices", "n"),
    ChatOption("output", "response_format", ("extra",)),
    ChatOption("output.schema", "response_format.json_schema.schema"),
    ChatOption("output.name", "response_format.json_schema.name"),
    ChatOption("output.strict", "response_format.json_schema.strict"),
    ChatOption("verbosity", "verbosity"),
    ChatOption("reasoning", "reasoning_effort"),
    ChatOption("reasoning.effort", "reasoning_effort"),
    ChatOption("reasoning.reasoning_effort", "reasoning_effort"),
    ChatOption("stream", "stream"),
    ChatOption("include_usage", "stream_options.include_usage"),
    ChatOption("include_usage", "stream_options", ("stream", "extra")),
    ChatOption("store", "store"),
    ChatOption("metadata", "metadata"),
    ChatOption("user", "user"),
    ChatOption("safety_identifier", "safety_identifier"),
    ChatOption("prompt_cache_key", "prompt_cache_key"),
    ChatOption("cache", "prompt_cache_retention", ("extra",)),
    ChatOption("service_tier", "service_tier"),
    # What Chat Completions does not have
    ChatOption(
        "previous_response_id",
        None,
        is_set=lambda request: request.previous_response_id is not None,
        instead="send the messages",
    ),
    ChatOption(
        "max_output_tokens",
        None,
        is_set=lambda request: request.max_output_tokens == 0,
        instead="ask for at least one token",
    ),
    ChatOption("max_tool_calls", None, is_set=lambda request: request.max_tool_calls is not None),
    ChatOption("background", None, is_set=lambda request: request.background),
    ChatOption(
        "truncation", None, is_set=lambda request: request.truncation not in (None, "disabled")
    ),
    ChatOption("sampling.top_k", None, is_set=lambda request: request.sampling.top_k is not None),
    ChatOption("betas", None, is_set=lambda request: bool(request.betas)),
    ChatOption(
        "include", None, is_set=lambda request: bool(set(request.include) - _NEEDLESS_INCLUDES)
    ),
    ChatOption("reasoning.summary", None, is_set=_wants_summary),
)

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
