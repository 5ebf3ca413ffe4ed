"""Renders generationConfig for requests of other dialects."""

from msgspec import Raw

from weft.dialects.gemini.quirks import GeminiQuirks
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.schema_subset import SubsetRenderer
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.reasoning import effort_for_budget
from weft.dialects.requests.unknown_fields import report_dropped_extras
from weft.request import Effort, ReasoningOptions, Request

# Thinking cannot be disabled by a level, and there is none above HIGH: the nearest is sent, with a
# warning.
_LEVELS: dict[Effort, schema.ThinkingLevel] = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
# `effort_for_budget` reads each of them back as the same effort. Higher efforts take the model's
# maximum.
_BUDGETS: dict[Effort, int] = {
    "none": 0,
    "minimal": 512,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
}
_MIN_BUDGET = 512
_UNLIMITED = -1
_MAX_STOPS = 5
"""Vendor documentation: at most five stop sequences."""


def render_config(
    request: Request, quirks: GeminiQuirks, losses: Losses
) -> schema.GenerationConfig | None:
    """Returns the generationConfig; None if nothing in it was requested."""
    config = common_config(request, quirks, losses)
    if unsupported_stops(request):
        losses.adapted("stop", f"more than {_MAX_STOPS}: Weft itself cuts the response at them")
        config.stop_sequences = None
    if request.reasoning is not None:
        config.thinking_config = _render_thinking(request.reasoning, quirks, losses)
    output = request.output
    if output.kind == "text":
        return None if config == schema.GenerationConfig() else config
    if request.tools and not quirks.schema_with_tools:
        # Older models refuse the pair; which of the two matters more is for the client to decide.
        losses.refused("output", "this model does not accept tools together with JSON output")
    for key, value in (("name", output.name), ("description", output.description)):
        if value is not None:
            losses.adapted(f"output.{key}", "left out: only the schema is sent")
    if output.strict is not None:
        losses.adapted("output.strict", f"left out: {NAME} always enforces the schema")
    return config


def unsupported_stops(request: Request) -> tuple[str, ...]:
    """The stop sequences that Weft must apply itself: all, if there are too many."""
    return request.stop if len(request.stop) > _MAX_STOPS else ()


def common_config(
    request: Request, quirks: GeminiQuirks, losses: Losses
) -> schema.GenerationConfig:
    """Returns the options that are rendered alike for requests of all dialects."""
    sampling, output = request.sampling, request.output
    config = schema.GenerationConfig(
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        None if request.choices == 1 else request.choices,
        request.max_output_tokens,
        list(request.stop) or None,
        None if output.kind == "text" else schema.JSON_TYPE,
        seed=sampling.seed,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        response_logprobs=None if sampling.logprobs is None else True,
        # 0 alternatives is the chosen token alone, which responseLogprobs gives by itself.
        logprobs=sampling.logprobs or None,
    )
    if output.kind == "json-schema":
        if not isinstance(output.schema, Raw):
            losses.refused("output.schema", "is required")
        elif quirks.json_schema:
            config.response_json_schema = output.schema
        else:
            config.response_schema = SubsetRenderer(output.schema, "output.schema", losses).render()
    return config


def thinking_config(options: ReasoningOptions) -> schema.ThinkingConfig:
    """Returns the options as they are, without losses."""
    return schema.ThinkingConfig(
        None if options.summary is None else options.summary != "none",
        _UNLIMITED if options.adaptive else options.budget_tokens,
        None if options.effort is None else _LEVELS[options.effort],
    )


def _render_thinking(
    options: ReasoningOptions, quirks: GeminiQuirks, losses: Losses
) -> schema.ThinkingConfig | None:
    """A level or, on older models, a budget."""
    config = thinking_config(options)
    report_dropped_extras(options.extra, "reasoning", losses, NAME)
    if options.summary in ("concise", "detailed") and options.effort != "none":
        losses.adapted("reasoning.summary", "the length of a summary cannot be chosen")
    effort, budget = options.effort, options.budget_tokens
    if quirks.thinking == "budget":
        # Level and budget exclude each other.
        config.thinking_level = None
        config.thinking_budget = _budget(options, quirks, losses)
        return None if config == schema.ThinkingConfig() else config
    config.thinking_budget = None
    if budget is not None:
        level = config.thinking_level or _LEVELS[effort_for_budget(budget)]
        config.thinking_level = level
        losses.adapted("reasoning.budget_tokens", f"sent as thinkingLevel {level}")
    if effort is not None and _LEVELS[effort].lower() != effort:
        losses.warned("reasoning.effort", f"{effort} is sent as thinkingLevel {_LEVELS[effort]}")
    return None if config == schema.ThinkingConfig() else config


def _budget(options: ReasoningOptions, quirks: GeminiQuirks, losses: Losses) -> int | None:
    budget = options.budget_tokens
    if budget is None and options.effort is not None:
        budget = _BUDGETS.get(options.effort, quirks.most_thinking)
        losses.adapted("reasoning.effort", f"sent as a budget of {budget} tokens")
    if budget is None:
        return _UNLIMITED if options.adaptive else None
    if budget == 0 and not quirks.may_not_think:
        detail = f"thinking cannot be disabled on this model; using {_MIN_BUDGET} tokens"
        losses.warned("reasoning.effort", detail)
        return _MIN_BUDGET
    if budget > quirks.most_thinking:
        detail = f"lowered to {quirks.most_thinking}, the maximum"
        losses.warned("reasoning.budget_tokens", detail)
        return quirks.most_thinking
    return budget
