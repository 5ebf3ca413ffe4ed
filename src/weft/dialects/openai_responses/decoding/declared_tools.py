"""The tools that the model was given, as far as they decide who executes a call."""

from typing import NamedTuple

from msgspec import Raw

from weft.dialects.frames import Salvage
from weft.dialects.openai_responses import wire
from weft.parts import Json
from weft.request import Request


class DeclaredTools(NamedTuple):
    """What the decoder needs to know about the tools that the model was given."""

    names: frozenset[str]
    any_hosted: bool
    """Whether the provider executes some tool, and no tool can be loaded later."""
    shell_in_container: bool | None
    """Whether shell commands run in a container of the provider; None if there is no shell tool."""


_CLIENT_TOOLS = frozenset({"function", "custom"})
_LOADING_TOOLS = frozenset({"namespace", "tool_search"})
"""Tools that load further tools, whose names are not known beforehand."""


def declared_tools(
    salvage: Salvage, listed: list[Raw] | None, request: Request | None
) -> DeclaredTools | None:
    """Returns the tools that the response lists, or else those of the request; None if neither has
    any.
    """
    # The response echoes the effective tools, so it counts before the request.
    tools = [salvage.item(raw, wire.ResponsesTool) for raw in listed or ()]
    if not tools and request is not None:
        tools = [
            wire.ResponsesTool(
                tool.kind, tool.name, salvage.item(tool.raw, wire.ResponsesTool).environment
            )
            for tool in request.tools
        ]
    if not tools:
        return None
    types = {tool.type for tool in tools}
    shells = [is_container(salvage, tool.environment) for tool in tools if tool.type == "shell"]
    return DeclaredTools(
        frozenset(tool.name for tool in tools if tool.name),
        # A name that is not listed may belong to a tool that was loaded meanwhile.
        bool(types - _CLIENT_TOOLS) and not types & _LOADING_TOOLS,
        any(shells) if shells else None,
    )


def is_container(salvage: Salvage, environment: Json) -> bool:
    """Whether this environment is a container of the provider."""
    return (salvage.item(environment, wire.Identity).type or "").startswith("container")
