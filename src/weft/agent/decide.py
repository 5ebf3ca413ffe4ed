"""What to do next, given the state of a run: the whole policy of the runtime in one pure function.

`decide` is asked after every event, and after a restart. It sees the state, the time, and which
turn and calls this process is running right now (`live`); whatever is under way and not live was
left behind by a process that died. It returns the actions to start now; none means that there is
something live to wait for, or that the run waits or has ended.

1. A turn begins when every call of the turn before has its result.
2. What was intended and has no receipt is repeated only if its tool allows that. Otherwise it is
   looked up, or parked: nothing happens twice because its outcome was unknown.
3. Every action uses up something that is limited, so every run ends or waits for somebody,
   whatever the model does.
"""

from collections.abc import Collection
from dataclasses import dataclass

from weft.agent.events import FailureCode, RunWaiting
from weft.agent.lifecycle import ASKED, AWAITED, INTENDED, PARKED, PROPOSED
from weft.agent.state import Call, RunState, TurnState
from weft.parts import FinishReason


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Ask the model. The last turn that the limits allow is asked without tools."""

    turn: int
    attempt: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class InterruptTurn:
    """Close the attempt that a dead process has left."""

    turn: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RefuseCall:
    """Close a call that was refused at the gate, or that the end of the run overtakes."""

    call: str


@dataclass(frozen=True, slots=True)
class RequestApproval:
    call: str


@dataclass(frozen=True, slots=True)
class ExpireApproval:
    """Deny a call about which nobody decided in time."""

    call: str


@dataclass(frozen=True, slots=True)
class DispatchCall:
    """Write the intent, run the tool, write the receipt."""

    call: str
    attempt: int


@dataclass(frozen=True, slots=True)
class LookUpCall:
    """Ask the tool whether the call has happened."""

    call: str


@dataclass(frozen=True, slots=True)
class ParkCall:
    call: str
    why: str


@dataclass(frozen=True, slots=True)
class SettleCall:
    """Tell the model that the outcome of a call is unknown, instead of a person."""

    call: str


@dataclass(frozen=True, slots=True)
class WaitOutside:
    """Give the run back until something comes from outside, or until `due`."""

    waiting: RunWaiting
    due: float | None


@dataclass(frozen=True, slots=True)
class FinishRun:
    turn: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class FailRun:
    code: FailureCode
    message: str
    limit: str | None = None


Action = (
    StartTurn
    | InterruptTurn
    | RefuseCall
    | RequestApproval
    | ExpireApproval
    | DispatchCall
    | LookUpCall
    | ParkCall
    | SettleCall
    | WaitOutside
    | FinishRun
    | FailRun
)

TURN = ""
"""Stands for the open turn in `live`; calls stand there by their ids."""

LEFT_BEHIND = "the process that ran it has died, or was replaced, before it wrote a receipt"


def decide(state: RunState, now: float, live: Collection[str] = ()) -> list[Action]:
    """The actions to start now."""
    if state.end is not None:
        return []
    turn = state.turn
    if turn is not None and turn.state is TurnState.OPEN:
        return [] if TURN in live else [InterruptTurn(turn.number, turn.attempt)]
    limits = state.definition.limits
    if state.used(now).active > limits.active and not live:
        detail = f"the run has been active for more than {limits.active:g} seconds"
        # What is parked or intended stays as it is: it is unknown whether it has happened, and the
        # log must not claim to know.
        closable = [call for call in state.open_calls if call.state in (PROPOSED, ASKED, AWAITED)]
        return [*(RefuseCall(call.id) for call in closable), FailRun("limit", detail, "active")]
    if state.open_calls:
        return _next_of_calls(state, now, live)
    return [_next_turn(state, now)]


def due(state: RunState) -> float | None:
    """When somebody must look at a run that waits: the first approval expires then."""
    times = [
        call.approval.expires
        for call in state.open_calls
        if call.state is ASKED and call.approval is not None
    ]
    return min(times, default=None)


def _next_turn(state: RunState, now: float) -> Action:
    """All calls have their results: the next request to the model, or the end."""
    limits, turn, used = state.definition.limits, state.turn, state.used(now)
    if turn is None:
        return StartTurn(1, 1, limits.turns == 1)
    if turn.state is TurnState.INTERRUPTED:
        if state.definition.on_interrupt == "fail":
            return FailRun("interrupted", f"turn {turn.number} was interrupted: {turn.why}")
        if turn.attempt >= limits.attempts:
            tries = f"turn {turn.number} failed {turn.attempt} times"
            return FailRun("model", f"{tries}, the last time: {turn.why}")
        return StartTurn(turn.number, turn.attempt + 1, used.turns >= limits.turns)
    if state.streak >= limits.loop:
        return FailRun("loop", f"the model made the same call {state.streak} times in a row")
    if state.idle_turns >= limits.idle_turns:
        detail = f"{state.idle_turns} turns in a row had neither text nor a call that can be run"
        return FailRun("no-progress", detail)
    is_idle = not turn.has_text and not turn.answerable and bool(turn.calls)
    if not turn.answerable and not is_idle and not state.has_unread:
        return FinishRun(turn.number, turn.reason or "other")
    if used.turns >= limits.turns:
        return FailRun("limit", f"the run has had {used.turns} turns", "turns")
    if limits.tokens is not None and (used.tokens or 0) >= limits.tokens:
        return FailRun("limit", f"the run has used {used.tokens} tokens", "tokens")
    if limits.cost is not None and used.unpriced:
        detail = f"the price of {used.unpriced} of the turns is not known, and the cost is limited"
        return FailRun("limit", detail, "cost")
    if limits.cost is not None and (used.cost or 0) >= limits.cost:
        return FailRun("limit", f"the run has cost {used.cost:g} US dollars", "cost")
    return StartTurn(turn.number + 1, 1, used.turns + 1 >= limits.turns)


def _next_of_calls(state: RunState, now: float, live: Collection[str]) -> list[Action]:
    actions: list[Action] = []
    running = [call for call in state.open_calls if call.id in live or call.is_child]
    for call in state.open_calls:
        if call.id in live:
            continue
        match call.state:
            case _ if call.state is PROPOSED:
                action = _proposed(state, call, running)
            case _ if call.state is ASKED:
                expired = call.approval is not None and call.approval.expires <= now
                action = ExpireApproval(call.id) if expired else None
            case _ if call.is_child:
                action = None  # its own run writes the receipt, even if a process has died here
            case _ if call.state is INTENDED:
                action = _left_behind(state, call)
            case _ if call.state is PARKED and state.definition.on_ambiguous == "tell-model":
                action = SettleCall(call.id)
            case _:  # AWAITED or PARKED: somebody outside must act
                action = None
        if isinstance(action, DispatchCall | LookUpCall):
            running.append(call)
        if action is not None:
            actions.append(action)
    if not actions and all(call.is_child for call in running):
        waiting = state.waits_for
        if waiting != state.waiting:
            actions.append(WaitOutside(waiting, due(state)))
    return actions


def _proposed(state: RunState, call: Call, running: list[Call]) -> Action | None:
    if call.judged.verdict == "refused":
        return RefuseCall(call.id)
    if (
        call.judged.verdict == "ask"
        and not call.approved
        and not state.is_granted(call.judged.name)
    ):
        return RequestApproval(call.id)
    exclusive = call.tool.exclusive if call.tool is not None else None
    taken = {one.tool.exclusive for one in running if one.tool is not None}
    if len(running) >= state.definition.limits.parallel or (exclusive and exclusive in taken):
        return None
    return DispatchCall(call.id, call.attempts + 1)


def _left_behind(state: RunState, call: Call) -> Action:
    """What is done with an intent without a receipt, by the class of its tool."""
    tool, limits = call.tool, state.definition.limits
    if tool is None or tool.retry == "once":
        if tool is not None and tool.has_lookup:
            return LookUpCall(call.id)
        return ParkCall(call.id, LEFT_BEHIND)
    if call.attempts >= limits.call_attempts:
        return ParkCall(call.id, f"{LEFT_BEHIND}, for the {call.attempts}th time")
    return DispatchCall(call.id, call.attempts + 1)
