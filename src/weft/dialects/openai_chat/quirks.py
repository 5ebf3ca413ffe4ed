"""Where two imitators of Chat Completions need opposite readings of the same bytes."""

from dataclasses import dataclass
from typing import Literal

from weft.context import Context, Quirks
from weft.dialects.stages.markup_calls import Markup


@dataclass(frozen=True, slots=True)
class ChatQuirks(Quirks):
    """Defaults fit every other stream we have seen."""

    text_markup_calls: Markup | None = None
    """Tool calls written as markup inside `content`. Left as text unless the model is known to
    do it (captures: markup-calls-json, markup-calls-tokens)."""

    implicit_think: bool = False
    """The answer begins inside reasoning, with only a closing tag to tell where it ends. Left as
    text unless the model is known to do it (capture: orphan-think-closer)."""

    reasoning_back: tuple[Literal["reasoning_content", "reasoning", "reasoning_details"], ...] = ()
    """The fields of a message in which the host wants its reasoning back. Some refuse what
    others want, so it is left out unless the host documents it."""

    developer_role: bool = True
    """Whether the host knows the role `developer`; else its messages are the system's."""

    custom_tools: bool = False
    """Whether the host takes tools for free text; else they are functions with one text. Most
    hosts answer 400 to a tool that is no function."""

    token_limit: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The name of the limit of a request that came in another dialect."""


def quirks_of(context: Context) -> ChatQuirks:
    found = context.quirks
    return found if isinstance(found, ChatQuirks) else ChatQuirks()
