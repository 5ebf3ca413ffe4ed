"""What an agent is: model, instructions, tools, limits.

A run keeps a snapshot of the definition it was started with, so a changed setting, a new version of
a tool server or of Weft does not change a run that is under way.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from weft.agent.tool_spec import ToolSpec
from weft.errors import ClientError

Amount = TypeVar("Amount", int, float)


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """An amount of what a run can use up: what it may use, or has used."""

    turns: int = 0
    calls: int = 0
    active: float = 0.0
    tokens: int | None = None
    """None: not limited, or not known."""

    cost: float | None = None
    """US dollars. None: not limited, or not known."""

    unpriced: int = 0
    """Turns whose price is not known; `cost` is without them."""

    def __add__(self, other: "Budget") -> "Budget":
        costs = _known(self.cost, other.cost)
        tokens = _known(self.tokens, other.tokens)
        return Budget(
            self.turns + other.turns,
            self.calls + other.calls,
            self.active + other.active,
            sum(tokens) if tokens else None,
            add_dollars(*costs) if costs else None,
            self.unpriced + other.unpriced,
        )


def add_dollars(*amounts: float) -> float:
    """Their sum, in whole billionths: ten times 0.1 is 1."""
    return round(sum(amounts, 0.0), 9)


def _known(*amounts: Amount | None) -> list[Amount]:
    return [one for one in amounts if one is not None]


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Bounds of one run. All are counted in its log, so that a restart resets none of them."""

    turns: int = 25
    """Requests to the model, with those of the agents that it calls. The last one has no tools."""

    calls: int = 100
    """Calls of tools in the whole run, with those of the agents that it calls."""

    calls_per_turn: int = 32
    """Calls of tools in one turn; what is above is refused."""

    parallel: int = 8
    """Calls that run at the same time."""

    attempts: int = 2
    """Attempts at one turn, if a model fails or a process dies."""

    call_attempts: int = 3
    """Attempts at one call that may be repeated; after that it is parked."""

    same_call: int = 3
    """The same call this many times in a row is refused, with a text that says so."""

    loop: int = 5
    """The same call this many times in a row ends the run."""

    idle_turns: int = 2
    """This many turns in a row without text and without a usable call end the run."""

    result: int = 256 * 1024
    """Bytes of one result that the model gets; the rest is cut, with a notice."""

    active: float = 900.0
    """Seconds, with those of the agents that it calls, and without the time in which the run waits
    for a person, a client, or a server that works on it."""

    approval: float = 7 * 86400.0
    """Seconds after which an approval without a decision is denied."""

    tokens: int | None = None
    """Tokens of all turns together, as the upstreams report them, with those of the agents that it
    calls."""

    cost: float | None = None
    """US dollars of all turns together, with those of the agents that it calls. A model whose
    price is not known is not used."""

    def within(self, budget: Budget, result: int) -> "Limits":
        """These limits for a run with this budget, whose result may have `result` bytes."""
        return msgspec.structs.replace(
            self,
            turns=min(self.turns, budget.turns),
            calls=min(self.calls, budget.calls),
            active=min(self.active, budget.active),
            tokens=min(_known(self.tokens, budget.tokens), default=None),
            cost=min(_known(self.cost, budget.cost), default=None),
            result=min(self.result, result),
        )

    def lowered(self, wanted: Mapping[str, object]) -> "Limits":
        """These limits, where `wanted` has lower ones. Raises ClientError for a limit that does not
        exist, is no positive number, or is higher: a request may lower a limit, never raise it."""
        values = msgspec.structs.asdict(self)
        for name, value in wanted.items():
            if name not in values:
                known = ", ".join(values)
                raise ClientError(f"limits: unknown limit {name!r}; expected one of {known}")
            if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
                raise ClientError(f"limits.{name}: expected a number above 0, got {value!r}")
            if values[name] is not None and value > values[name]:
                raise ClientError(f"limits.{name}: {value} is above the agent's {values[name]}")
            values[name] = value
        try:
            return msgspec.convert(values, Limits)
        except msgspec.ValidationError as error:
            # msgspec names the field in the text of its message, and nowhere else.
            message, _, field = str(error).partition(" - at `$.")
            raise ClientError(f"limits.{field.rstrip('`')}: {message}") from None


class AgentDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent. `model` is a name as a client of the gateway would use it."""

    name: str
    model: str
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    limits: Limits = Limits()
    on_interrupt: Literal["retry", "fail"] = "retry"
    """After a crash inside a turn: request it again, or end the run."""

    on_ambiguous: Literal["park", "tell-model"] = "park"
    """After a call whose outcome is unknown: wait for a person, or let the model find out."""

    description: str = ""
    """What the model of another agent reads that has this one as a tool."""

    tools_visible: bool = True
    """Whether clients that use the agent as a model see the calls that it runs."""

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()
