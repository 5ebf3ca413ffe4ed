"""What an agent is: model, instructions, tools, limits.

A run keeps a snapshot of the definition it was started with, so a changed setting, a new version of
a tool server or of Weft does not change a run that is under way.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from weft.agent.tool_spec import ToolSpec
from weft.errors import ClientError


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Bounds of one run. All are counted in its log, so that a restart resets none of them."""

    turns: int = 25
    """Questions to the model. The last one is asked without tools."""

    calls: int = 100
    """Calls of tools in the whole run."""

    calls_per_turn: int = 32
    """Calls of tools in one turn; what is above is refused."""

    parallel: int = 8
    """Calls that run at the same time."""

    attempts: int = 2
    """Of one turn: a model that fails, or a process that dies, is asked again so often."""

    call_attempts: int = 3
    """Of one call that may be repeated; after that it is parked."""

    same_call: int = 3
    """The same call so often in a row is refused, with a text that says so."""

    loop: int = 5
    """The same call so often in a row ends the run."""

    idle_turns: int = 2
    """So many turns in a row without text and without a usable call end the run."""

    result: int = 256 * 1024
    """Bytes of one result that the model gets; the rest is cut, with a notice."""

    active: float = 900.0
    """Seconds, without the time in which the run waits for a person or a client."""

    approval: float = 7 * 86400.0
    """Seconds after which an approval that nobody decided is denied."""

    tokens: int | None = None
    """Tokens of all turns together, as the upstreams report them."""

    cost: float | None = None
    """Reserved: prices are not known yet, so nothing can enforce it."""

    def lowered(self, wished: Mapping[str, object]) -> "Limits":
        """These limits, where `wished` has lower ones. Raises ClientError for a limit that does not
        exist, is no positive number, or is higher: a request may lower a limit, never raise it."""
        values = msgspec.structs.asdict(self)
        for name, value in wished.items():
            if name not in values:
                known = ", ".join(values)
                raise ClientError(f"limits: unknown limit {name!r}; expected one of {known}")
            if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
                raise ClientError(f"limits.{name}: expected a number above 0, got {value!r}")
            if values[name] is not None and value > values[name]:
                raise ClientError(f"limits.{name}: {value} is above the agent's {values[name]}")
            values[name] = value
        try:
            return msgspec.convert(values, Limits)
        except msgspec.ValidationError as error:
            raise ClientError(f"limits: {error}") from None


class AgentDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent. `model` is a name as a client of the gateway would use it."""

    name: str
    model: str
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    limits: Limits = Limits()
    on_interrupt: Literal["retry", "fail"] = "retry"
    """After a crash inside a turn: ask the model again, or end the run."""

    on_ambiguous: Literal["park", "tell-model"] = "park"
    """After a call whose outcome is unknown: wait for a person, or let the model find out."""

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()
