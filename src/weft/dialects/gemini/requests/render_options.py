"""How to answer, written: limits, thinking, the shape of the output, sampling."""

from typing import TypeVar

from msgspec import UNSET, Raw, UnsetType

from weft.dialects.asking.bridging import effort_of
from weft.dialects.asking.leftovers import drop_beside
from weft.dialects.gemini.quirks import ContentQuirks
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.schema_subset import Subset
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests import Losses
from weft.request import Effort, ReasoningOptions, Request

N = TypeVar("N", int, float)

_LEVELS: dict[Effort, schema.Level] = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "HIGH",
    "max": "HIGH",
}
_BUDGETS: dict[Effort, int] = {
    "none": 0,
    "minimal": 512,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
}
_LEAST = 512
_ANY = -1
_MOST_STOPS = 5


def config(
    request: Request, quirks: ContentQuirks, losses: Losses, *, native: bool
) -> schema.Config | UnsetType:
    """The generation config; nothing if nothing was asked."""
    told = request.sampling
    found = schema.Config(
        _set(told.temperature),
        _set(told.top_p),
        _set(told.top_k),
        UNSET if request.choices == 1 else request.choices,
        _set(request.max_output_tokens),
        (request.stop if native or not cut(request) else ()) or UNSET,
        seed=_set(told.seed),
        presence_penalty=_set(told.presence_penalty),
        frequency_penalty=_set(told.frequency_penalty),
        response_logprobs=UNSET if told.logprobs is None else True,
        logprobs=told.logprobs or UNSET,
    )
    if native:
        found.thinking_config = own_thinking(request.reasoning)
    else:
        found.thinking_config = thinking(request.reasoning, quirks, losses)
        _limits(request, losses)
    _output(request, found, quirks, losses, native=native)
    return UNSET if found == schema.Config() else found


def cut(request: Request) -> tuple[str, ...]:
    """The stop sequences that the wire does not take: all, if there are too many."""
    return request.stop if len(request.stop) > _MOST_STOPS else ()


def _set(value: N | None) -> N | UnsetType:
    return UNSET if value is None else value


def _limits(request: Request, losses: Losses) -> None:
    if request.max_output_tokens == 0:
        losses.refused("max_output_tokens", "ask for at least one token")
    if request.choices > 1:
        losses.refused("choices", "one answer at a time; ask again for another")
    if cut(request):
        losses.adapted("stop", f"{_MOST_STOPS} are taken; Weft cuts the answer itself")


def _output(
    request: Request, found: schema.Config, quirks: ContentQuirks, losses: Losses, *, native: bool
) -> None:
    output = request.output
    if output.kind == "text":
        return
    found.response_mime_type = schema.JSON_TYPE
    if output.kind == "json-schema" and isinstance(output.schema, Raw):
        if quirks.json_schema:
            found.response_json_schema = output.schema
        else:
            found.response_schema = Subset(output.schema, "output.schema", losses).schema()
    elif output.kind == "json-schema":
        losses.refused("output.schema", "a schema is needed")
    if native:
        return
    if request.tools and not quirks.schema_with_tools:
        losses.refused("output", "this model takes tools, or JSON, not both")
    for key, said in (("name", output.name), ("description", output.description)):
        if said is not None:
            losses.adapted(f"output.{key}", "left out: only the schema is sent")
    if output.strict is not None:
        losses.adapted("output.strict", "left out: the schema is always followed")


# Thinking


def own_thinking(options: ReasoningOptions | None) -> schema.ThinkingConfig | UnsetType:
    """As it was asked in this dialect."""
    if options is None:
        return UNSET
    level = _LEVELS[options.effort] if options.effort is not None else None
    budget = _ANY if options.adaptive else options.budget_tokens
    return _with_thoughts(options, budget, level)


def _with_thoughts(
    options: ReasoningOptions, budget: int | None, level: str | None
) -> schema.ThinkingConfig | UnsetType:
    shown = None if options.summary is None else options.summary != "none"
    found = schema.ThinkingConfig(shown, budget, level)
    return UNSET if found == schema.ThinkingConfig() else found


def thinking(
    options: ReasoningOptions | None, quirks: ContentQuirks, losses: Losses
) -> schema.ThinkingConfig | UnsetType:
    """As it was asked in another: a level, or on older models a budget."""
    if options is None:
        return UNSET
    drop_beside(options.extra, "reasoning", losses, NAME)
    if options.summary in ("concise", "detailed") and options.effort != "none":
        losses.adapted("reasoning.summary", "how long it is cannot be told")
    if quirks.thinking == "budget":
        return _with_thoughts(options, _budget(options, quirks, losses), None)
    return _with_thoughts(options, None, _level(options, losses))


def _level(options: ReasoningOptions, losses: Losses) -> schema.Level | None:
    effort = options.effort
    if options.budget_tokens is not None:
        effort = effort or effort_of(options.budget_tokens)
        losses.adapted("reasoning.budget_tokens", f"sent as the level {_LEVELS[effort]}")
    if effort is None:
        return None
    level = _LEVELS[effort]
    if level.lower() != effort and options.effort is not None:
        losses.warned("reasoning.effort", f"{effort} is sent as the level {level}")
    return level


def _budget(options: ReasoningOptions, quirks: ContentQuirks, losses: Losses) -> int | None:
    budget = options.budget_tokens
    if budget is None and options.effort is not None:
        budget = _BUDGETS.get(options.effort, quirks.most_thinking)
        losses.adapted("reasoning.effort", f"sent as a budget of {budget} tokens")
    if budget is None:
        return _ANY if options.adaptive else None
    if budget == 0 and not quirks.may_not_think:
        losses.warned("reasoning.effort", f"the model always thinks; it gets {_LEAST} tokens")
        return _LEAST
    if budget > quirks.most_thinking:
        detail = f"lowered to {quirks.most_thinking}, the most there is"
        losses.warned("reasoning.budget_tokens", detail)
        return quirks.most_thinking
    return budget
