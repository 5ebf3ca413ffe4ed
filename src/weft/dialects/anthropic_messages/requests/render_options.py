"""How to answer, written: limits, thinking, the shape of the output, sampling."""

from dataclasses import replace
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.requests.models import model_named
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.asking.bridging import BUDGETS, effort_of
from weft.dialects.asking.leftovers import drop_beside
from weft.dialects.asking.wording import identifier
from weft.dialects.requests import Losses, keys_of
from weft.request import Effort, ReasoningOptions, Request

LEAST_BUDGET = 1024
_FINER = frozenset({"concise", "detailed"})
_TIERS = {"auto": "auto", "default": "standard_only"}
_WORDS: dict[Effort, Effort] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}


_json = msgspec.json.Encoder().encode


class Plan(NamedTuple):
    """How much may be written, and how much of it is thinking."""

    max_tokens: int
    thinking: schema.Thinking | UnsetType = UNSET
    effort: Effort | None = None


# In the words of this dialect


def own_plan(request: Request, quirks: MessagesQuirks) -> Plan:
    """The plan of a request that came in this dialect, as it was."""
    limit = request.max_output_tokens
    limit = quirks.max_tokens if limit is None else limit
    options = request.reasoning
    if options is None:
        return Plan(limit)
    display = _display(options)
    effort = _WORDS.get(options.effort or "none")
    if options.effort == "none":
        kept = keys_of(options.extra).get("effort")
        return Plan(limit, schema.Thinking("disabled"), _effort(kept))
    if options.budget_tokens is not None:
        return Plan(limit, schema.Thinking("enabled", options.budget_tokens, display), effort)
    if options.adaptive:
        return Plan(limit, schema.Thinking("adaptive", display=display), effort)
    return Plan(limit, effort=effort)


def _effort(kept: Raw | None) -> Effort | None:
    words = {f'"{word}"'.encode(): word for word in _WORDS.values()}
    return words.get(bytes(kept)) if kept is not None else None


def _display(options: ReasoningOptions) -> str | None:
    if options.summary is None:
        return None
    return "omitted" if options.summary == "none" else "summarized"


# In the words of others


def for_model(quirks: MessagesQuirks, name: str) -> MessagesQuirks:
    """The quirks of an upstream, with what is left to its model."""
    model = model_named(name)
    sampling = model.sampling if quirks.sampling is None else quirks.sampling
    most = model.most_tokens if quirks.most_tokens is None else quirks.most_tokens
    return replace(quirks, sampling=sampling, most_tokens=most)


def plan(request: Request, quirks: MessagesQuirks, losses: Losses) -> Plan:
    """The plan of a request of another dialect."""
    limit = _limit(request, quirks, losses)
    options = request.reasoning
    if options is None:
        return Plan(limit)
    drop_beside(options.extra, "reasoning", losses, NAME)
    if options.budget_tokens == 0:
        losses.adapted("reasoning", "no budget: thinking is switched off")
    if options.summary in _FINER and options.effort != "none":
        losses.adapted("reasoning.summary", "how long it is cannot be told")
    if options.effort == "none" or options.budget_tokens == 0:
        return Plan(limit, _switched_off(quirks, losses))
    if quirks.adaptive:
        return _adaptive(options, limit, quirks, losses)
    return _budgeted(options, limit, quirks, losses)


def _limit(request: Request, quirks: MessagesQuirks, losses: Losses) -> int:
    most, wanted = quirks.most_tokens, request.max_output_tokens
    if wanted is None:
        wanted = quirks.max_tokens if most is None else min(quirks.max_tokens, most)
        losses.adapted("max_output_tokens", f"{NAME} requires max_tokens; using {wanted}")
    if most is not None and wanted > most:
        losses.warned("max_output_tokens", f"the model writes at most {most} tokens")
        return most
    return wanted


def _switched_off(quirks: MessagesQuirks, losses: Losses) -> schema.Thinking:
    if not quirks.may_not_think:
        losses.refused("reasoning.effort", "this model cannot be kept from thinking")
    return schema.Thinking("disabled")


def _adaptive(
    options: ReasoningOptions, limit: int, quirks: MessagesQuirks, losses: Losses
) -> Plan:
    effort, budget = options.effort, options.budget_tokens
    thinking = schema.Thinking("adaptive", display=_display(options))
    if effort is None and budget is None:
        return Plan(limit, thinking)
    word = _word(effort or effort_of(budget or 0), quirks)
    if budget is not None:
        losses.adapted("reasoning.budget_tokens", f"sent as the effort {word}")
    if effort is not None and word != effort:
        losses.warned("reasoning.effort", f"{effort} is sent as {word}")
    return Plan(limit, thinking, word)


def _word(effort: Effort, quirks: MessagesQuirks) -> Effort:
    word = _WORDS[effort]
    return word if word in quirks.efforts else "high"


def _budgeted(
    options: ReasoningOptions, limit: int, quirks: MessagesQuirks, losses: Losses
) -> Plan:
    """A budget fits below the limit: the limit grows, as it holds the thinking too."""
    most = quirks.most_tokens or quirks.max_tokens
    budget = options.budget_tokens
    if budget is None:
        budget = BUDGETS.get(options.effort or "medium", most // 2)
        losses.adapted("reasoning.effort", f"sent as a budget of {budget} tokens")
    if budget < LEAST_BUDGET:
        losses.warned("reasoning.budget_tokens", f"raised to {LEAST_BUDGET}, the least there is")
        budget = LEAST_BUDGET
    if budget >= limit:
        raised = limit + budget
        if quirks.most_tokens is not None and raised > most:
            raised, budget = most, min(budget, most // 2)
        limit = max(raised, LEAST_BUDGET + 1)
        losses.warned("max_output_tokens", f"raised to {limit}: it holds the thinking too")
    return Plan(limit, schema.Thinking("enabled", budget, _display(options)))


# The rest


def output_config(
    request: Request, effort: Effort | None, losses: Losses, *, native: bool
) -> schema.OutputConfig | UnsetType:
    output = request.output
    found = schema.OutputConfig(effort)
    if output.kind == "json":
        losses.warned("output", f"dropped: {NAME} has no JSON mode without a schema")
    elif output.kind == "json-schema" and isinstance(output.schema, Raw):
        found.format = Raw(_json(schema.Format("json_schema", output.schema)))
    elif output.kind == "json-schema":
        losses.refused("output.schema", "a schema is needed")
    if not native:
        for key, said in (("name", output.name), ("description", output.description)):
            if said is not None:
                losses.adapted(f"output.{key}", "left out: only the schema is sent")
        if output.strict is not None:
            losses.adapted("output.strict", "left out: the schema is always followed")
    return UNSET if found == schema.OutputConfig() else found


class Drawn(NamedTuple):
    """How words are drawn."""

    temperature: float | UnsetType
    top_p: float | UnsetType
    top_k: int | UnsetType


def own_sampling(request: Request) -> Drawn:
    told = request.sampling
    return Drawn(
        UNSET if told.temperature is None else told.temperature,
        UNSET if told.top_p is None else told.top_p,
        UNSET if told.top_k is None else told.top_k,
    )


def sampling(request: Request, quirks: MessagesQuirks, thinks: bool, losses: Losses) -> Drawn:
    told = own_sampling(request)
    for key, value in zip(Drawn._fields, told, strict=True):
        if value is not UNSET and not quirks.sampling:
            losses.warned(f"sampling.{key}", "dropped: the model does not take it")
    if not quirks.sampling:
        return Drawn(UNSET, UNSET, UNSET)
    heat = told.temperature
    if thinks and heat not in (UNSET, 1):
        losses.warned("sampling.temperature", "dropped: a model that thinks takes only 1")
        return told._replace(temperature=UNSET)
    if not isinstance(heat, UnsetType) and heat > 1:
        losses.warned("sampling.temperature", "lowered to 1, the highest there is")
        return told._replace(temperature=1.0)
    return told


def tier(request: Request, losses: Losses, *, native: bool) -> str | UnsetType:
    wanted = request.service_tier
    if wanted is None:
        return UNSET
    if wanted in _TIERS:
        return _TIERS[wanted]
    if native:
        return wanted
    losses.warned("service_tier", f"{wanted} is not available; the usual one is used")
    return UNSET


def metadata(request: Request, losses: Losses, *, native: bool) -> schema.Metadata | UnsetType:
    """Whose request it is. A name that is too long becomes a hash of it."""
    if native or not request.safety_identifier:
        user, path = request.user, "user"
    else:
        user, path = request.safety_identifier, "safety_identifier"
        losses.adapted(path, "sent as the id of the user")
        if request.user is not None:
            losses.warned("user", "left out: there is room for one identifier")
    if user is None:
        return UNSET
    if identifier(user) != user and not native:
        losses.warned(path, "too long: a hash of it is sent")
        user = identifier(user)
    return schema.Metadata(user)
