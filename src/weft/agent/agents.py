"""Agents as programs declare them: a definition, and the tools that run in this process."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from weft.agent.children import ChildTool
from weft.agent.definition import AgentDefinition, Limits
from weft.agent.tools import AgentTool, tool_of
from weft.errors import ArgumentValueError


class Agent:
    """An agent with its tools: functions with `@weft.tool`, tools of MCP servers, other agents."""

    def __init__(
        self,
        name: str,
        model: str,
        instructions: str = "",
        tools: Iterable[object] = (),
        *,
        limits: Limits | None = None,
        approval: Mapping[str, Literal["never", "always"]] | None = None,
        on_interrupt: Literal["retry", "fail"] = "retry",
        on_ambiguous: Literal["park", "tell-model"] = "park",
        description: str = "",
        tools_visible: bool = True,
    ) -> None:
        """`approval` overrides what the tools say of themselves, by their names. `description` is
        for the models of agents that have this one as a tool. With `tools_visible=False`, clients
        that use the agent as a model do not see the calls that it runs."""
        given = [*tools]
        self.agents = tuple(one for one in given if isinstance(one, Agent))
        """The agents among its tools."""
        found: list[AgentTool] = []
        for one in given:
            if isinstance(one, Agent):
                found.append(ChildTool(one.definition))
            else:
                # What has a spec is a tool; a function becomes one.
                found.append(one if hasattr(one, "spec") else tool_of(one))  # type: ignore[arg-type]
        self.tools = {one.spec.name: one for one in found}
        if len(self.tools) < len(found):
            raise ArgumentValueError(f"agent {name}: two of its tools have the same name")
        overrides = dict(approval or {})
        specs = [
            msgspec.structs.replace(
                one.spec, approval=overrides.pop(one.spec.name, one.spec.approval)
            )
            for one in found
        ]
        if overrides:
            unknown = ", ".join(overrides)
            raise ArgumentValueError(
                f"agent {name}: approval for tools it does not have: {unknown}"
            )
        self.definition: AgentDefinition = AgentDefinition(
            name,
            model,
            instructions,
            tuple(specs),
            limits or Limits(),
            on_interrupt,
            on_ambiguous,
            description,
            tools_visible,
        )


def with_children(agents: Iterable[Agent]) -> dict[str, Agent]:
    """The agents and those that they call, by their names. Raises ArgumentValueError if two have
    the same name."""
    found: dict[str, Agent] = {}
    waiting = [*agents]
    while waiting:
        agent = waiting.pop(0)
        name = agent.definition.name
        if found.setdefault(name, agent) is not agent:
            raise ArgumentValueError(f"there are two agents with the name {name!r}")
        waiting += [one for one in agent.agents if found.get(one.definition.name) is not one]
    return found
