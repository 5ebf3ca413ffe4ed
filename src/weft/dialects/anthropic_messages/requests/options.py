"""The options of a request: their canonical paths, their paths in a body, and what gets lost."""

from operator import attrgetter
from typing import NamedTuple

from msgspec import UNSET

from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.passthrough import FieldGetters
from weft.dialects.requests.turns import leading_instructions
from weft.request import Request


class MessagesOption(NamedTuple):
    """One option. An option with two keys in a body has two rows, the preferred one first."""

    canonical: str
    wire: str | None
    """The path in a body; None: this API has no such option, so that a request loses it."""

    depends_on: tuple[str, ...] = ()
    """What else of a request its top-level key in a body is rendered from."""

    default: object = None
    """A value whose loss changes nothing."""

    refused: bool = False
    """Whether a request is refused rather than sent without it."""


OPTIONS: tuple[MessagesOption, ...] = (
    MessagesOption("model", "model"),
    MessagesOption("max_output_tokens", "max_tokens"),
    # `system` also holds the leading system messages: see RENDERED_FROM.
    MessagesOption("instructions", "system"),
    MessagesOption("messages", "messages"),
    MessagesOption("tools", "tools"),
    MessagesOption("tools", "mcp_servers"),  # with a toolset in `tools` each
    MessagesOption("tool_choice", "tool_choice", ("parallel_tool_calls", "extra")),
    MessagesOption("tool_choice.mode", "tool_choice.type"),
    MessagesOption("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),  # inverted
    MessagesOption("reasoning", "thinking", ("extra",)),
    MessagesOption("reasoning.summary", "thinking.display"),
    MessagesOption("output", "output_config.format", ("reasoning", "extra")),
    MessagesOption("reasoning.effort", "output_config.effort"),
    MessagesOption("stop", "stop_sequences"),
    # Gone from the newest models: `requests/models.py` knows which still accept them.
    MessagesOption("sampling.temperature", "temperature"),
    MessagesOption("sampling.top_p", "top_p"),
    MessagesOption("sampling.top_k", "top_k"),
    MessagesOption("user", "metadata.user_id", ("extra",)),
    MessagesOption("service_tier", "service_tier"),
    MessagesOption("cache", "cache_control", ("extra",)),
    MessagesOption("stream", "stream"),
    # What this API does not have
    MessagesOption("sampling.seed", None),
    MessagesOption("sampling.presence_penalty", None),
    MessagesOption("sampling.frequency_penalty", None),
    MessagesOption("verbosity", None),
    MessagesOption("prompt_cache_key", None),
    MessagesOption("sampling.logprobs", None),
    MessagesOption("sampling.logit_bias", None),
    MessagesOption("max_tool_calls", None),
    MessagesOption("truncation", None, default="disabled"),
    # Refused, because without them the answer would be another one.
    MessagesOption("choices", None, default=1, refused=True),
    MessagesOption("previous_response_id", None, refused=True),
)

# Where two rows have the same option, or the same key of a body, the first one counts.

WIRE_PATHS: dict[str, str] = {
    option.canonical: option.wire for option in reversed(OPTIONS) if option.wire is not None
}
"""The path of each option in a body."""

RENDERED_FROM: FieldGetters = {
    **{
        option.wire.partition(".")[0]: attrgetter(option.canonical, *option.depends_on)
        for option in reversed(OPTIONS)
        if option.wire is not None
    },
    "system": lambda request: (
        request.instructions,
        request.messages[: leading_instructions(request.messages)],
    ),
}
"""What of a request each key of a body is rendered from. A key for which that did not change is
sent in its original bytes."""


_LOST = tuple(option for option in OPTIONS if option.wire is None)
_values_lost = attrgetter(*(option.canonical for option in _LOST))
_VALUES_OF_NONE = _values_lost(Request(""))


def report_lost_options(request: Request, losses: Losses) -> None:
    """Reports the options that a request of another dialect loses here."""
    values = _values_lost(request)
    if values == _VALUES_OF_NONE:
        return
    for option, value in zip(_LOST, values, strict=True):
        if value in (None, UNSET, option.default):
            continue
        if option.refused:
            detail = f"{option.canonical} is not available on {NAME}; remove it"
            losses.refused(option.canonical, detail)
        else:
            losses.dropped(option.canonical, NAME)
