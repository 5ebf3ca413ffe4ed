"""What a run needs from the process that works on it: models, tools, threads, and ways to reach
other runs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from weft.agent.events import AnyRunEvent
from weft.agent.state import RunState
from weft.agent.tools import AgentTool
from weft.assembler import Response
from weft.relay.trace_context import TraceContext
from weft.store.base import Store
from weft.store.queries import Beside, Queries
from weft.store.records import Ending


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One request to a model."""

    run: str
    model: str
    owner: str
    response: str
    """The id under which the response is stored."""

    body: bytes
    """A request of the Responses API."""

    trace: TraceContext | None = None
    """The span of the turn, if the run is traced."""

    needs_price: bool = False
    """Whether to refuse models whose price is not known."""


FinishTurn = Callable[[str, Ending, Response], Awaitable[bool]]
"""Ends the response of a turn in the store, as `Store.finish` does, and appends the receipt of the
turn to the log of its run."""


class Models(Protocol):
    """Sends the requests of turns to models."""

    async def respond(self, request: TurnRequest, finish: FinishTurn) -> None:
        """Requests a response, and stores it from its first event on. Calls `finish` at its end,
        whether it is complete or failed. Raises StoreError."""
        ...


RunObserver = Callable[[RunState, AnyRunEvent, float], None]
"""Called with every event that this process has appended to a run, its time, and the state after
it. If the process dies right after an append, the observers of no process see that event."""


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """What all runs of a process share."""

    store: Store
    models: Models
    tools: Callable[[str], Mapping[str, AgentTool]]
    """Returns the tools of an agent, as this process has them."""

    threads: Executor
    wake: Callable[[str, str], Queries[None]]
    """Returns the statements that ask another process to look at a run now: its id, the cause."""

    hint: Callable[[str], Beside]
    """The same, for a run that this process may look at itself."""

    appended: Callable[[str], None]
    """Called with the id of another run that this one has appended to."""

    progress: Callable[[str, str, str], None]
    """Shows a preliminary result: run, call, text."""

    lease: float = 15.0
    observers: Sequence[RunObserver] = ()
