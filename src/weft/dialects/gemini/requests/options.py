"""The options of a request: their canonical paths, their paths in a body, and what gets lost."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from msgspec import UNSET

from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.passthrough import FieldGetters
from weft.request import Request


class GeminiOption(NamedTuple):
    """One option."""

    canonical: str
    wire: str | None
    """The path in a body; None: this API has no such option."""

    is_lost: Callable[[Request], bool] | None = None
    """Whether a request of another dialect loses what it has here."""

    refusal: str | None = None
    """Why a request must not lose it; None: it is dropped with a warning."""


_CONFIG = "generationConfig"
_THINKING = "generationConfig.thinkingConfig"

OPTIONS: tuple[GeminiOption, ...] = (
    # What both have; the paths name the field in messages about a client's body.
    GeminiOption("tool_choice", "toolConfig.functionCallingConfig"),
    GeminiOption("sampling.temperature", f"{_CONFIG}.temperature"),
    GeminiOption("sampling.top_p", f"{_CONFIG}.topP"),
    GeminiOption("sampling.top_k", f"{_CONFIG}.topK"),
    GeminiOption("sampling.seed", f"{_CONFIG}.seed"),
    GeminiOption("sampling.presence_penalty", f"{_CONFIG}.presencePenalty"),
    GeminiOption("sampling.frequency_penalty", f"{_CONFIG}.frequencyPenalty"),
    GeminiOption("sampling.logprobs", f"{_CONFIG}.logprobs"),
    GeminiOption("stop", f"{_CONFIG}.stopSequences"),
    GeminiOption("output", f"{_CONFIG}.responseMimeType"),
    GeminiOption("output.schema", f"{_CONFIG}.responseJsonSchema"),
    GeminiOption("reasoning", _THINKING),
    GeminiOption("reasoning.effort", f"{_THINKING}.thinkingLevel"),
    GeminiOption("reasoning.budget_tokens", f"{_THINKING}.thinkingBudget"),
    GeminiOption("reasoning.summary", f"{_THINKING}.includeThoughts"),
    GeminiOption(
        "max_output_tokens",
        f"{_CONFIG}.maxOutputTokens",
        lambda request: request.max_output_tokens == 0,
        # Anthropic takes 0, to warm up a cache without an answer.
        "must be at least 1",
    ),
    GeminiOption(
        "choices",
        f"{_CONFIG}.candidateCount",
        lambda request: request.choices > 1,
        f"several choices are not available on {NAME}",
    ),
    # What this API does not have
    GeminiOption(
        "previous_response_id",
        None,
        lambda request: request.previous_response_id is not None,
        f"previous_response_id is not available on {NAME}; send the messages",
    ),
    GeminiOption("verbosity", None, lambda request: request.verbosity is not None),
    GeminiOption("prompt_cache_key", None, lambda request: request.prompt_cache_key is not None),
    GeminiOption("cache", None, lambda request: request.cache is not None),
    GeminiOption("user", None, lambda request: request.user is not None),
    GeminiOption("safety_identifier", None, lambda request: request.safety_identifier is not None),
    GeminiOption("betas", None, lambda request: bool(request.betas)),
    GeminiOption(
        "sampling.logit_bias",
        None,
        lambda request: request.sampling.logit_bias is not UNSET,
    ),
    GeminiOption("max_tool_calls", None, lambda request: request.max_tool_calls is not None),
    GeminiOption("truncation", None, lambda request: request.truncation not in (None, "disabled")),
)

WIRE_PATHS: dict[str, str] = {
    option.canonical: option.wire for option in OPTIONS if option.wire is not None
}
"""The path of each option in a body."""


def _sources(key: str) -> tuple[str, ...]:
    """The fields of a request that the options below a key of a body are rendered from."""
    below = (name for name, path in WIRE_PATHS.items() if path.partition(".")[0] == key)
    return tuple(dict.fromkeys(name.partition(".")[0] for name in below))


RENDERED_FROM: FieldGetters = {
    "systemInstruction": lambda request: [
        message for message in request.messages if message.role == "system"
    ],
    "contents": attrgetter("messages"),
    "tools": attrgetter("tools"),
    "toolConfig": attrgetter(*_sources("toolConfig"), "parallel_tool_calls", "extra"),
    _CONFIG: attrgetter(*_sources(_CONFIG), "extra"),
}
"""The canonical fields that each key of a body is rendered from. A key whose fields did not change
is sent in its original bytes."""


def report_lost_options(request: Request, losses: Losses) -> None:
    """Reports the options that a request of another dialect loses here."""
    for option in OPTIONS:
        if option.is_lost is None or not option.is_lost(request):
            continue
        if option.refusal is None:
            losses.dropped(option.canonical, NAME)
        else:
            losses.refused(option.canonical, option.refusal)
    tier = request.service_tier
    if tier in ("auto", "default"):
        losses.adapted("service_tier", "left out: it is the default")
    elif tier is not None:
        losses.warned("service_tier", f"{tier} is not available on {NAME}; the default is used")
    if request.metadata:
        losses.adapted("metadata", "stored by Weft, not sent")
