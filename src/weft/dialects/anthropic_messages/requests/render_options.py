"""Renders the options of a request: limits, thinking, output format, sampling, metadata."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.requests.models import family_of
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.names import shorten_identifier
from weft.dialects.requests.reasoning import EFFORT_BUDGETS, effort_for_budget
from weft.dialects.requests.unknown_fields import report_dropped_extras
from weft.parts import Json
from weft.request import Effort, OutputFormat, ReasoningOptions, Request, Sampling

MIN_BUDGET = 1024
"""Vendor documentation: `budget_tokens` is at least 1024, and less than `max_tokens`."""

_USER_ID_LIMIT = 256
"""API reference, Messages, `metadata.user_id`: at most 256 characters."""

_json = msgspec.json.Encoder().encode


# A few upstreams with a few models each; but clients may name any model.
@lru_cache(maxsize=256)
def quirks_for_model(quirks: MessagesQuirks, model: str) -> MessagesQuirks:
    """The quirks of an upstream; what they leave open is filled in for the model."""
    family = family_of(model)
    sampling = family.sampling if quirks.sampling is None else quirks.sampling
    most = family.max_tokens if quirks.most_tokens is None else quirks.most_tokens
    return replace(quirks, sampling=sampling, most_tokens=most)


# Limit and thinking


class TokenPlan(NamedTuple):
    """How many tokens the answer may have, and how many of them are for thinking."""

    max_tokens: int
    thinking: schema.ThinkingConfigParam | None = None
    effort: Effort | None = None

    @property
    def has_budget(self) -> bool:
        return self.thinking is not None and self.thinking.type == "enabled"


def token_plan(request: Request, quirks: MessagesQuirks, losses: Losses) -> TokenPlan:
    """The plan of a request of another dialect."""
    most, limit = quirks.most_tokens, request.max_output_tokens
    if limit is None:
        # Large: the client set no limit, so its answer should not be cut.
        limit = quirks.max_tokens if most is None else min(quirks.max_tokens, most)
        losses.adapted("max_output_tokens", f"{NAME} requires max_tokens; using {limit}")
    if most is not None and limit > most:
        losses.warned("max_output_tokens", f"lowered to {most}, the most this model accepts")
        limit = most
    options = request.reasoning
    if options is None:
        return TokenPlan(limit)
    report_dropped_extras(options.extra, "reasoning", losses, NAME)
    if options.budget_tokens == 0:
        losses.adapted("reasoning", "a budget of 0 disables thinking")
    if options.summary in ("concise", "detailed") and options.effort != "none":
        losses.adapted("reasoning.summary", "the length of a summary cannot be chosen")
    # Absent thinking is not the same: some models think by default.
    if options.effort == "none" or options.budget_tokens == 0:
        if not quirks.may_not_think:
            losses.refused("reasoning.effort", "thinking cannot be disabled on this model")
        return TokenPlan(limit, schema.ThinkingConfigParam("disabled"))
    if quirks.adaptive:
        return _plan_with_effort(options, limit, quirks, losses)
    return _plan_with_budget(options, limit, quirks, losses)


def _plan_with_effort(
    options: ReasoningOptions, limit: int, quirks: MessagesQuirks, losses: Losses
) -> TokenPlan:
    requested, budget = options.effort, options.budget_tokens
    thinking = schema.ThinkingConfigParam("adaptive", display=display(options))
    # None is made up: the model has a default of its own.
    if requested is None and budget is None:
        return TokenPlan(limit, thinking)
    effort = schema.EFFORTS[requested or effort_for_budget(budget or 0)]
    # `high` exists everywhere; xhigh and max do not.
    if effort not in quirks.efforts:
        effort = "high"
    if budget is not None:
        losses.adapted("reasoning.budget_tokens", f"sent as effort {effort}")
    if requested is not None and effort != requested:
        losses.warned("reasoning.effort", f"{requested} is sent as {effort}")
    return TokenPlan(limit, thinking, effort)


def _plan_with_budget(
    options: ReasoningOptions, limit: int, quirks: MessagesQuirks, losses: Losses
) -> TokenPlan:
    """The budget is part of `max_tokens`, so the limit is raised if the budget does not fit."""
    most = quirks.most_tokens or quirks.max_tokens
    budget = options.budget_tokens
    if budget is None:
        budget = EFFORT_BUDGETS.get(options.effort or "medium", most // 2)  # max: half of the limit
        losses.adapted("reasoning.effort", f"sent as a budget of {budget} tokens")
    if budget < MIN_BUDGET:
        losses.warned("reasoning.budget_tokens", f"raised to {MIN_BUDGET}, the minimum")
        budget = MIN_BUDGET
    if budget >= limit:
        raised = limit + budget
        if quirks.most_tokens is not None and raised > most:
            # Half of the most that the model accepts: thinking must leave room for an answer.
            raised, budget = most, min(budget, most // 2)
        limit = max(raised, MIN_BUDGET + 1)
        losses.warned("max_output_tokens", f"raised to {limit}: it includes the thinking budget")
    return TokenPlan(limit, schema.ThinkingConfigParam("enabled", budget, display(options)))


def display(options: ReasoningOptions) -> str | None:
    if options.summary is None:
        return None
    # The API has one length of summary, or none at all.
    return "omitted" if options.summary == "none" else "summarized"


# Other options


def output_config(
    output: OutputFormat, effort: Effort | None, losses: Losses
) -> schema.OutputConfig | None:
    config = schema.OutputConfig(effort)
    if output.kind == "json":
        # OpenAI's JSON mode requires that the prompt asks for JSON, so the model is still told.
        losses.warned("output", f"dropped: {NAME} has no JSON mode without a schema")
    elif output.kind == "json-schema" and isinstance(output.schema, Raw):
        config.format = encode(schema.JsonOutputFormat("json_schema", output.schema))
    elif output.kind == "json-schema":
        losses.refused("output.schema", "is required")
    return None if config == schema.OutputConfig() else config


def report_output_options(output: OutputFormat, losses: Losses) -> None:
    """Reports the fields of an output format that this API does not have."""
    for key, value in (("name", output.name), ("description", output.description)):
        if value is not None:
            losses.adapted(f"output.{key}", "left out: only the schema is sent")
    if output.strict is not None:
        losses.adapted("output.strict", f"left out: {NAME} always enforces the schema")


def render_sampling(
    sampling: Sampling, quirks: MessagesQuirks, losses: Losses, *, thinking: bool
) -> Sampling:
    """The parameters that the model accepts."""
    if not quirks.sampling:
        # Dropped rather than tried: the newest models refuse the whole request for them.
        params = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        for key, value in (params | {"top_k": sampling.top_k}).items():
            if value is not None:
                losses.warned(f"sampling.{key}", "dropped: this model does not accept it")
        return Sampling()
    temperature = sampling.temperature
    # Vendor documentation, "Extended thinking": not compatible with changes of the temperature.
    if thinking and temperature not in (None, 1):
        losses.warned("sampling.temperature", "dropped: with thinking, only 1 is accepted")
        temperature = None
    elif temperature is not None and temperature > 1:
        # The range here is 0 to 1; that of other dialects ends at 2.
        losses.warned("sampling.temperature", "lowered to 1, the maximum")
        temperature = 1.0
    return Sampling(temperature, sampling.top_p, sampling.top_k)


def render_service_tier(tier: str | None, losses: Losses) -> str | None:
    if tier is not None and tier not in schema.SERVICE_TIERS:
        losses.warned("service_tier", f"{tier} is not available on {NAME}; the default is used")
    return schema.SERVICE_TIERS.get(tier or "")


def render_metadata(request: Request, losses: Losses) -> schema.Metadata | None:
    """The id of the user. One that is too long is replaced by its hash."""
    user, path = request.user, "user"
    # Both identify the end user. The newer of OpenAI's two fields counts, which replaced `user`.
    if request.safety_identifier:
        user, path = request.safety_identifier, "safety_identifier"
        losses.adapted(path, "sent as metadata.user_id")
        if request.user is not None:
            losses.warned("user", "left out: safety_identifier is sent instead")
    if user is None:
        return None
    shortened = shorten_identifier(user, _USER_ID_LIMIT)
    if shortened != user:
        losses.warned(path, "too long: its hash is sent")
    return schema.Metadata(shortened)


def encode(value: msgspec.Struct | None) -> Json:
    return UNSET if value is None else Raw(_json(value))
