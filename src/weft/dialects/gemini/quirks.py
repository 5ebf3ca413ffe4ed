"""Differences between hosts and models in what they accept in a request."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from weft.context import Context, Quirks


@dataclass(frozen=True, slots=True)
class GeminiQuirks(Quirks):
    """The defaults fit the newest models. A request that came in this dialect is changed only where
    the host would reject it.
    """

    # `thinkingLevel` and `thinkingBudget` exclude each other; models before Gemini 3 know only
    # budgets.
    thinking: Literal["level", "budget"] = "level"
    """Whether `thinkingLevel` is sent or, for older models, `thinkingBudget`."""

    most_thinking: Annotated[int, Meta(ge=1)] = 32_768
    """The budget of the highest efforts."""

    may_not_think: bool = False
    """Accepts a budget of 0. Newer models cannot disable thinking."""

    json_schema: bool = True
    """Accepts JSON Schema. Else schemas are converted to the subset that every host accepts."""

    schema_with_tools: bool = True
    """Accepts an output schema together with tools."""

    fetches: bool = True
    """Fetches images and files from any URL."""

    result_media: bool = True
    """Accepts images and files inside a functionResponse. Else they are sent behind it."""

    # From Gemini 3 on, a thinking model refuses a call of an earlier turn without its signature.
    signed_calls: bool = True
    """Rejects calls of earlier turns without a signature. The first call of each step that another
    model made is sent with the mark that it accepts instead."""


def quirks_of(context: Context) -> GeminiQuirks:
    quirks = context.quirks
    return quirks if isinstance(quirks, GeminiQuirks) else _DEFAULTS


_DEFAULTS = GeminiQuirks()
