"""Where two servers of Chat Completions need opposite readings of the same bytes."""

from dataclasses import dataclass
from typing import Literal

from weft.context import Context, Quirks
from weft.dialects.stages.markup_calls import Markup


@dataclass(frozen=True, slots=True)
class ChatQuirks(Quirks):
    """The defaults fit every other stream we have seen."""

    text_markup_calls: Markup | None = None
    """The markup of tool calls inside `content`. Left as text unless the model is known to write
    it."""
    # capture: markup-calls-json, markup-calls-tokens, markup-calls-left-as-text

    implicit_think: bool = False
    """Whether the answer begins inside reasoning, so that only a closing tag shows where that ends.
    Left as text unless the model is known to do it."""
    # capture: orphan-think-closer, orphan-think-closer-left-as-text

    reasoning_back: tuple[Literal["reasoning_content", "reasoning", "reasoning_details"], ...] = ()
    """The fields of a message in which the host wants its reasoning back. Some hosts refuse what
    others require, so none is sent unless the host documents it."""

    developer_role: bool = True
    """Whether the host knows the role `developer`; else such messages are sent as `system`."""

    custom_tools: bool = False
    """Whether the host takes custom tools; else they are sent as functions with one string. Most
    hosts answer 400 to a tool that is not a function."""

    token_limit: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The name of the token limit, for requests that came in another dialect."""


def quirks_of(context: Context) -> ChatQuirks:
    return context.quirks if isinstance(context.quirks, ChatQuirks) else _DEFAULTS


_DEFAULTS = ChatQuirks()
