"""Logs of runs, for the tests of the agent runtime."""

from collections.abc import Sequence

from msgspec import Raw

from weft.agent.definition import AgentDefinition
from weft.agent.events import (
    AnyRunEvent,
    JudgedCall,
    RunCreated,
    TurnFinished,
    TurnStarted,
    Verdict,
)
from weft.agent.gate import digest_of
from weft.agent.state import RunState
from weft.agent.tool_spec import ToolSpec
from weft.parts import FinishReason

ASKED = Raw(b'{"type":"message","role":"user","content":"Go."}')


def append(state: RunState, *events: AnyRunEvent, at: float = 1.0) -> None:
    for event in events:
        state.apply(event, at)


def call_of(
    id: str, name: str, verdict: Verdict = "dispatch", arguments: str = "{}", text: str = ""
) -> JudgedCall:
    return JudgedCall(id, name, arguments, digest_of(arguments), verdict, text=text)


def started(
    definition: AgentDefinition,
    calls: Sequence[JudgedCall] = (),
    input: tuple[Raw, ...] = (ASKED,),
    finished: bool = True,
) -> RunState:
    """A run after its first turn, which made these calls."""
    state = RunState("run")
    append(state, RunCreated(definition, input), TurnStarted(1, 1, "resp_1"))
    if finished:
        reason: FinishReason = "tool-calls" if calls else "stop"
        append(state, TurnFinished(1, 1, reason, has_text=not calls, calls=tuple(calls)))
    return state


def run_with(*tools: ToolSpec, calls: Sequence[JudgedCall]) -> RunState:
    return started(AgentDefinition("a", "m", tools=tools), calls)
