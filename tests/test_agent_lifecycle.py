"""The law of a call: `decide` and the fold agree with the table, for every state and every class of
tool."""

from itertools import product

import pytest
from msgspec import Raw

from tests.agent_runs import append, call_of, run_with, started
from tests.tables import each_row
from weft.agent.decide import (
    TURN,
    Action,
    DispatchCall,
    ExpireApproval,
    InterruptTurn,
    LookUpCall,
    ParkCall,
    RefuseCall,
    RequestApproval,
    SettleCall,
    StartTurn,
    WaitOutside,
    decide,
)
from weft.agent.definition import AgentDefinition
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallOutput,
    CallParked,
    CallRefused,
    CallResolved,
    OutputsSubmitted,
    RunWaiting,
    Verdict,
    text_result,
)
from weft.agent.lifecycle import CALL, CLOSED, CallTransition, RunCallState
from weft.agent.state import IllegalEvent, RunState
from weft.agent.tool_spec import RetryClass, ToolSpec

STEPS: dict[CallTransition, AnyRunEvent] = {
    CallTransition.REFUSE: CallRefused("c", "cancelled", "no"),
    CallTransition.ASK: ApprovalRequested("a", "c", "d", expires=100.0),
    CallTransition.APPROVE: ApprovalDecided("a", "c", True, "me"),
    CallTransition.DENY: ApprovalDecided("a", "c", False, "me"),
    CallTransition.INTEND: CallIntended("c", 1, "run/c"),
    CallTransition.FINISH: CallFinished("c", text_result("ok")),
    CallTransition.PARK: CallParked("c", "who knows"),
    CallTransition.SETTLE: CallResolved("c", "done", "me", text_result("ok")),
    CallTransition.RETRY: CallResolved("c", "retry", "me"),
    CallTransition.SUBMIT: OutputsSubmitted((CallOutput("c", text_result("ok")),)),
}
WAYS: dict[RunCallState, tuple[Verdict, tuple[CallTransition, ...]]] = {
    RunCallState.PROPOSED: ("dispatch", ()),
    RunCallState.ASKED: ("ask", (CallTransition.ASK,)),
    RunCallState.AWAITED: ("client", ()),
    RunCallState.INTENDED: ("dispatch", (CallTransition.INTEND,)),
    RunCallState.PARKED: ("dispatch", (CallTransition.INTEND, CallTransition.PARK)),
    RunCallState.CLOSED: ("dispatch", (CallTransition.INTEND, CallTransition.FINISH)),
}
"""How a call gets into each state."""


def run_in(call: RunCallState, **tool: object) -> RunState:
    verdict, steps = WAYS[call]
    state = run_with(ToolSpec("t", **tool), calls=[call_of("c", "t", verdict)])  # type: ignore[arg-type]
    for step in steps:
        append(state, STEPS[step])
    assert state.calls["c"].state is call
    return state


@each_row("before, step", list(product(RunCallState, CallTransition)))
def test_exactly_the_steps_of_the_table_are_legal(
    before: RunCallState, step: CallTransition
) -> None:
    state = run_in(before)
    event, seq = STEPS[step], state.seq
    if isinstance(event, CallIntended):
        event = CallIntended("c", state.calls["c"].attempts + 1, event.key)
    if step in CALL[before]:
        append(state, event)
        assert state.calls["c"].state is CALL[before][step]
        return
    with pytest.raises(IllegalEvent, match="call 'c'"):
        append(state, event)
    assert (state.calls["c"].state, state.seq) == (before, seq), "nothing has changed"


RETRIED = [DispatchCall("c", 2)]
LEFT_BEHIND: dict[tuple[RetryClass, bool], list[type[Action]]] = {
    ("once", False): [ParkCall],
    ("once", True): [LookUpCall],
    ("idempotent", False): [DispatchCall],
    ("pure", False): [DispatchCall],
    ("transactional", False): [DispatchCall],
}


@pytest.mark.parametrize(("retry", "has_lookup"), LEFT_BEHIND)
def test_an_intent_without_receipt_is_repeated_only_if_its_tool_allows_it(
    retry: RetryClass, has_lookup: bool
) -> None:
    state = run_in(RunCallState.INTENDED, retry=retry, has_lookup=has_lookup)
    assert decide(state, 10.0, live={"c"}) == [], "it is still running here"
    actions = decide(state, 10.0)
    assert [type(one) for one in actions] == LEFT_BEHIND[retry, has_lookup]
    if retry != "once":
        assert actions == RETRIED
        append(state, CallIntended("c", 2, "run/c"))
        append(state, CallIntended("c", 3, "run/c"))
        assert [type(one) for one in decide(state, 10.0)] == [ParkCall], "not for ever"


def test_what_each_state_of_a_call_leads_to() -> None:
    assert decide(run_in(RunCallState.PROPOSED), 10.0) == [DispatchCall("c", 1)]
    assert decide(run_in(RunCallState.ASKED), 99.0) == [WaitOutside(RunWaiting(("c",)), 100.0)]
    assert decide(run_in(RunCallState.ASKED), 100.0) == [ExpireApproval("c")]
    assert decide(run_in(RunCallState.AWAITED), 10.0) == [WaitOutside(RunWaiting((), ("c",)), None)]
    waiting = RunWaiting((), (), ("c",))
    assert decide(run_in(RunCallState.PARKED), 10.0) == [WaitOutside(waiting, None)]
    assert decide(run_in(RunCallState.CLOSED), 10.0) == [StartTurn(2, 1, is_last=False)]


def test_a_run_that_waits_already_does_nothing() -> None:
    state = run_in(RunCallState.PARKED)
    append(state, RunWaiting((), (), ("c",)))
    assert decide(state, 10.0) == []


def test_a_call_that_must_be_approved_is_run_only_after_that() -> None:
    state = run_with(ToolSpec("t"), calls=[call_of("c", "t", "ask")])
    assert decide(state, 10.0) == [RequestApproval("c")]
    append(state, STEPS[CallTransition.ASK])
    with pytest.raises(IllegalEvent, match="'b' was not requested"):
        append(state, ApprovalDecided("b", "c", True, "me"))
    append(state, STEPS[CallTransition.APPROVE])
    assert decide(state, 10.0) == [DispatchCall("c", 1)]


@pytest.mark.parametrize(("scope", "other"), [("tool", RequestApproval), ("run", DispatchCall)])
def test_an_approval_may_hold_for_later_calls(scope: str, other: type[Action]) -> None:
    calls = [call_of("c", "t", "ask"), call_of("d", "t", "ask"), call_of("e", "u", "ask")]
    state = run_with(ToolSpec("t"), ToolSpec("u"), calls=calls)
    append(state, STEPS[CallTransition.ASK])
    append(state, ApprovalDecided("a", "c", True, "me", scope=scope))  # type: ignore[arg-type]
    assert [type(one) for one in decide(state, 10.0)] == [DispatchCall, DispatchCall, other]


def test_a_denied_call_tells_the_model_why() -> None:
    state = run_in(RunCallState.ASKED)
    append(state, ApprovalDecided("a", "c", False, "me", reason="too expensive"))
    call = state.calls["c"]
    assert (call.state, call.is_error) == (CLOSED, True)
    assert call.result == text_result("A person has denied this call. Reason: too expensive")


def test_calls_of_one_resource_run_one_after_the_other_and_the_number_is_limited() -> None:
    spec = ToolSpec("t", exclusive="printer")
    calls = [call_of(id, "t") for id in "ab"] + [call_of(str(n), "u") for n in range(9)]
    state = run_with(spec, ToolSpec("u"), calls=calls)
    dispatched = [one.call for one in decide(state, 10.0) if isinstance(one, DispatchCall)]
    assert dispatched == ["a", *"0123456"]
    append(state, CallIntended("a", 1, "run/a"))
    append(state, CallFinished("a"))
    assert decide(state, 10.0, live=set("0123456")) == [DispatchCall("b", 1)]


def test_a_refused_call_is_closed_before_anything_else() -> None:
    state = run_with(ToolSpec("t"), calls=[call_of("c", "", "refused")])
    assert decide(state, 10.0) == [RefuseCall("c")]


def test_an_unknown_outcome_may_be_left_to_the_model() -> None:
    definition = AgentDefinition("a", "m", tools=(ToolSpec("t"),), on_ambiguous="tell-model")
    state = started(definition, calls=[call_of("c", "t")])
    append(state, CallIntended("c", 1, "run/c"))
    append(state, CallParked("c", "lost"))
    assert decide(state, 10.0) == [SettleCall("c")]


def test_a_turn_that_a_dead_process_left_is_interrupted_and_asked_again() -> None:
    state = started(AgentDefinition("a", "m"), input=(Raw(b"{}"),), finished=False)
    assert decide(state, 10.0, live={TURN}) == []
    assert decide(state, 10.0) == [InterruptTurn(1, 1)]
