"""The fold of a run's log, what it counts, and what it refuses."""

import msgspec
import pytest
from msgspec import Raw

from tests.agent_runs import ASKED, append, call_of, run_with, started
from weft.agent.decide import FailRun, FinishRun, RefuseCall, StartTurn, decide
from weft.agent.definition import AgentDefinition, Budget, Limits
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallOutput,
    CallParked,
    CallResolved,
    JudgedCall,
    LimitReached,
    MessageAdded,
    OutputsSubmitted,
    RunCancelled,
    RunCreated,
    RunFinished,
    RunWaiting,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    decode_event,
    encode_event,
    joined_text,
    text_result,
)
from weft.agent.lifecycle import CLOSED, PROPOSED
from weft.agent.state import ABANDONED, IllegalEvent, RunState, fold
from weft.agent.tool_spec import ToolSpec
from weft.errors import ClientError
from weft.parts import Usage

PLAIN = AgentDefinition("a", "m", tools=(ToolSpec("t"),))


def turn(state: RunState, *calls: JudgedCall, text: bool = False, at: float = 1.0) -> None:
    """One more turn, whose calls all succeed."""
    number = len(state.turns) + 1
    append(state, TurnStarted(number, 1, f"resp_{number}"), at=at)
    append(state, TurnFinished(number, 1, "tool-calls", has_text=text, calls=calls), at=at)
    for call in calls:
        if call.verdict == "dispatch":
            append(state, CallIntended(call.id, 1, f"run/{call.id}"), CallFinished(call.id), at=at)


def new_run(**limits: float) -> RunState:
    definition = msgspec.structs.replace(PLAIN, limits=Limits(**limits))  # type: ignore[arg-type]
    state = RunState("run")
    append(state, RunCreated(definition, (ASKED,)))
    return state


# What ends a run


def test_a_turn_with_text_and_without_calls_is_the_end() -> None:
    assert decide(started(PLAIN), 1.0) == [FinishRun(1, "stop")]


def test_a_message_that_came_meanwhile_is_answered_first() -> None:
    state = started(PLAIN)
    append(state, MessageAdded(ASKED))
    assert decide(state, 1.0) == [StartTurn(2, 1, is_last=False)]
    append(state, TurnStarted(2, 1, "resp_2"), TurnFinished(2, 1, "stop", has_text=True))
    assert decide(state, 1.0) == [FinishRun(2, "stop")]


def test_a_message_during_a_turn_that_fails_is_read_by_the_next_attempt() -> None:
    state = started(PLAIN, finished=False)
    append(state, MessageAdded(ASKED), TurnInterrupted(1, 1, "died"), TurnStarted(1, 2, "resp_2"))
    append(state, TurnFinished(1, 2, "stop", has_text=True))
    assert decide(state, 1.0) == [FinishRun(1, "stop")]


def test_the_same_call_in_a_row_ends_the_run_as_a_loop() -> None:
    state = new_run()
    for number in range(5):
        assert decide(state, 1.0) == [StartTurn(number + 1, 1, is_last=False)]
        turn(state, call_of(f"c{number}", "t", "dispatch" if number < 2 else "dropped"))
    [failure] = decide(state, 1.0)
    assert failure == FailRun("loop", "the model made the same call 5 times in a row")


def test_another_call_in_between_is_no_loop() -> None:
    state = new_run()
    for number in range(6):
        turn(state, call_of(f"c{number}", "t", arguments=str(number % 2)))
    assert decide(state, 1.0) == [StartTurn(7, 1, is_last=False)]


def test_turns_without_text_and_without_usable_calls_end_the_run() -> None:
    """Seed 001: nothing but nameless calls is asked for once more, and then no more."""
    state = new_run()
    turn(state, call_of("c1", "", "dropped"))
    assert decide(state, 1.0) == [StartTurn(2, 1, is_last=False)]
    turn(state, call_of("c2", "", "dropped"))
    [failure] = decide(state, 1.0)
    assert isinstance(failure, FailRun)
    assert failure.code == "no-progress"


def test_text_beside_a_nameless_call_is_an_answer() -> None:
    state = new_run()
    turn(state, call_of("c1", "", "dropped"), text=True)
    assert decide(state, 1.0) == [FinishRun(1, "tool-calls")]


def test_the_last_turn_is_asked_without_tools_and_no_turn_follows() -> None:
    state = new_run(turns=2)
    turn(state, call_of("c1", "t"))
    assert decide(state, 1.0) == [StartTurn(2, 1, is_last=True)]
    turn(state, call_of("c2", "t"))
    assert decide(state, 1.0) == [FailRun("limit", "the run has had 2 turns", "turns")]


def test_tokens_are_counted_as_reported_or_added_up() -> None:
    state = new_run(tokens=30)
    for number, usage in enumerate((Usage(10, 5), Usage(10, 5, 15)), 1):
        append(state, TurnStarted(number, 1, "resp"))
        calls = (call_of(f"c{number}", "t", "dropped"),)
        append(state, TurnFinished(number, 1, "tool-calls", calls=calls, usage=usage))
    assert state.tokens == 30
    assert decide(state, 1.0) == [FailRun("limit", "the run has used 30 tokens", "tokens")]


def test_dollars_are_those_of_the_receipts_with_the_attempts_that_failed() -> None:
    state = new_run(cost=1)
    append(state, TurnStarted(1, 1, "resp"), TurnInterrupted(1, 1, "died"))
    append(state, TurnStarted(1, 2, "resp"), TurnFinished(1, 2, "stop", cost=0.1))
    for number in range(2, 10):
        append(state, MessageAdded(ASKED), TurnStarted(number, 1, "resp"))
        append(state, TurnFinished(number, 1, "stop", has_text=True, cost=0.1))
    append(state, MessageAdded(ASKED))
    assert decide(state, 1.0) == [StartTurn(10, 1, is_last=False)]
    append(state, TurnStarted(10, 1, "resp"), TurnInterrupted(10, 1, "cut", 0.02))
    append(state, TurnStarted(10, 2, "resp"), TurnFinished(10, 2, "stop", cost=0.08))
    assert decide(state, 1.0) == [FinishRun(10, "stop")], "the result is there, and paid for"
    append(state, MessageAdded(ASKED))
    # In floating point the sum is less than 1.
    assert decide(state, 1.0) == [FailRun("limit", "the run has cost 1 US dollars", "cost")]


def test_a_turn_without_a_price_ends_only_a_run_whose_cost_is_limited() -> None:
    calls = (call_of("c", "t", "dropped"),)
    for limits, expected in (
        ({}, StartTurn(2, 1, is_last=False)),
        (
            {"cost": 1.0},
            FailRun(
                "limit", "the price of 1 of the turns is not known, and the cost is limited", "cost"
            ),
        ),
    ):
        state = new_run(**limits)
        append(state, TurnStarted(1, 1, "resp"), TurnFinished(1, 1, "tool-calls", calls=calls))
        assert (state.cost, state.unpriced) == (0.0, 1)
        assert decide(state, 1.0) == [expected]


def test_logs_of_before_prices_can_be_read() -> None:
    body = b'{"kind":"turn.finished","turn":1,"attempt":1,"reason":"stop"}'
    assert decode_event(body) == TurnFinished(1, 1, "stop")
    assert encode_event(TurnFinished(1, 1, "stop")) == body
    body = b'{"kind":"call.finished","call":"c","used":{"turns":2,"tokens":5}}'
    assert decode_event(body) == CallFinished("c", used=Budget(2, tokens=5))


def test_time_is_counted_only_while_the_run_does_not_wait() -> None:
    state = new_run(active=10)
    append(state, TurnStarted(1, 1, "resp"), at=5.0)
    calls = (call_of("c", "t", "client"), call_of("d", "t", "ask"))
    append(state, TurnFinished(1, 1, "tool-calls", calls=calls), at=8.0)
    append(state, RunWaiting((), ("c",)), at=9.0)
    assert (state.active, state.used(5000.0).active) == (8.0, 8.0)
    append(state, OutputsSubmitted((CallOutput("c"),)), at=1000.0)
    assert (state.active, state.used(1001.0).active) == (8.0, 9.0)
    [refused, failed] = decide(state, 1003.0)
    assert refused == RefuseCall("d"), "what has no effect yet is closed before the end"
    assert isinstance(failed, FailRun)
    assert failed.limit == "active"


def test_a_clock_that_is_set_back_does_not_make_a_run_younger() -> None:
    state = new_run()
    append(state, TurnStarted(1, 1, "resp"), at=50.0)
    append(state, TurnInterrupted(1, 1, "died"), at=20.0)
    append(state, TurnStarted(1, 2, "resp"), at=51.0)
    assert state.active == 50.0


def test_an_interrupted_turn_is_asked_again_or_fails_as_the_agent_says() -> None:
    state = started(PLAIN, finished=False)
    append(state, TurnInterrupted(1, 1, "HTTP 500"))
    assert decide(state, 1.0) == [StartTurn(1, 2, is_last=False)]
    append(state, TurnStarted(1, 2, "resp_2"), TurnInterrupted(1, 2, "HTTP 502"))
    failed = FailRun("model", "turn 1 failed 2 times, the last time: HTTP 502")
    assert decide(state, 1.0) == [failed]
    strict = started(msgspec.structs.replace(PLAIN, on_interrupt="fail"), finished=False)
    append(strict, TurnInterrupted(1, 1, "died"))
    assert decide(strict, 1.0) == [FailRun("interrupted", "turn 1 was interrupted: died")]


def test_what_has_ended_does_nothing_and_takes_nothing() -> None:
    state = started(PLAIN)
    append(state, RunFinished(1, "stop"))
    assert decide(state, 1.0) == []
    with pytest.raises(IllegalEvent, match=r"message.added: the run has ended \(run.finished\)"):
        append(state, MessageAdded(ASKED))


# What the fold refuses


def test_events_out_of_their_order_are_refused_with_what_was_expected() -> None:
    state = RunState("run")
    with pytest.raises(IllegalEvent, match=r"turn.started as event 1"):
        append(state, TurnStarted(1, 1, "r"))
    append(state, RunCreated(PLAIN, ()))
    with pytest.raises(IllegalEvent, match=r"run.created as event 2"):
        append(state, RunCreated(PLAIN, ()))
    with pytest.raises(IllegalEvent, match="expected turn 1, attempt 1"):
        append(state, TurnStarted(2, 1, "r"))
    with pytest.raises(IllegalEvent, match="this attempt is not open"):
        append(state, TurnFinished(1, 1, "stop"))
    with pytest.raises(IllegalEvent, match="the turn is not over"):
        append(state, RunFinished(1, "stop"))
    append(state, TurnStarted(1, 1, "r"))
    with pytest.raises(IllegalEvent, match="the turn before it is not over"):
        append(state, TurnStarted(2, 1, "r"))
    with pytest.raises(IllegalEvent, match="attempt 2: this attempt is not open"):
        append(state, TurnInterrupted(1, 2, "x"))
    with pytest.raises(IllegalEvent, match="used twice"):
        append(state, TurnFinished(1, 1, "stop", calls=(call_of("c", "t"), call_of("c", "t"))))
    assert state.seq == 2


def test_a_run_does_not_finish_before_the_model_has_read_everything() -> None:
    """A message may come between the decision to finish and the event."""
    state = started(AgentDefinition("a", "m"))
    append(state, MessageAdded(ASKED))
    with pytest.raises(IllegalEvent, match="a message was not read"):
        append(state, RunFinished(1, "stop"))
    assert state.end is None
    append(state, TurnStarted(2, 1, "resp_2"), TurnFinished(2, 1, "stop", has_text=True))
    append(state, RunFinished(2, "stop"))


def test_a_call_id_is_used_once_in_a_run() -> None:
    state = new_run()
    turn(state, call_of("c", "t"))
    append(state, TurnStarted(2, 1, "r"))
    with pytest.raises(IllegalEvent, match="used twice"):
        append(state, TurnFinished(2, 1, "tool-calls", calls=(call_of("c", "t"),)))


def test_all_outputs_are_taken_or_none() -> None:
    state = run_with(ToolSpec("t", kind="client"), calls=[call_of("c", "t", "client")])
    for outputs in ((), (CallOutput("c"), CallOutput("c")), (CallOutput("c"), CallOutput("x"))):
        with pytest.raises(IllegalEvent, match=r"outputs\.submitted"):
            append(state, OutputsSubmitted(outputs))
    assert state.open_calls
    append(state, OutputsSubmitted((CallOutput("c", text_result("there"), True),)))
    assert (state.calls["c"].result, state.calls["c"].is_error) == (text_result("there"), True)


def test_a_run_cannot_wait_for_what_has_come_meanwhile() -> None:
    state = run_with(ToolSpec("t", kind="client"), calls=[call_of("c", "t", "client")])
    append(state, OutputsSubmitted((CallOutput("c"),)))
    with pytest.raises(IllegalEvent, match="not for"):
        append(state, RunWaiting((), ("c",)))


def test_an_attempt_has_the_next_number() -> None:
    state = run_with(ToolSpec("t"), calls=[call_of("c", "t")])
    with pytest.raises(IllegalEvent, match="attempt 2: expected attempt 1"):
        append(state, CallIntended("c", 2, "k"))
    with pytest.raises(IllegalEvent, match="no call 'x'"):
        append(state, CallIntended("x", 1, "k"))


@pytest.mark.parametrize(
    ("event", "result"),
    [
        (CallResolved("c", "done", "me", text_result("paid")), "paid"),
        (CallResolved("c", "abandon", "me", text_result("ignored")), ABANDONED),
    ],
)
def test_a_person_settles_what_is_parked(event: CallResolved, result: str) -> None:
    state = run_with(ToolSpec("t"), calls=[call_of("c", "t")])
    append(state, CallIntended("c", 1, "k"), CallParked("c", "died"), event)
    assert (state.calls["c"].state, joined_text(state.calls["c"].result)) == (CLOSED, result)


def test_a_retry_keeps_the_approval() -> None:
    state = run_with(ToolSpec("t"), calls=[call_of("c", "t", "ask")])
    append(state, ApprovalRequested("a", "c", "d", 9.0), ApprovalDecided("a", "c", True, "me"))
    append(state, CallIntended("c", 1, "k"), CallParked("c", "died"))
    append(state, CallResolved("c", "retry", "me"))
    assert (state.calls["c"].state, state.calls["c"].approved) == (PROPOSED, True)
    append(state, CallIntended("c", 2, "k"))


# The log


def test_an_event_is_the_same_after_it_was_stored() -> None:
    for event in (
        RunCreated(PLAIN, (Raw(b'{"a":1}'),), "me", metadata={"k": "v"}),
        TurnFinished(1, 1, "tool-calls", calls=(call_of("c", "t"),), usage=Usage(1)),
        LimitReached("turns", "no more"),
        RunCancelled("me"),
    ):
        assert decode_event(encode_event(event)) == event
        assert event.kind.encode() in encode_event(event)


def test_an_unknown_kind_is_an_error_and_an_unknown_field_is_not() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"run\.exploded"):
        decode_event(b'{"kind":"run.exploded"}')
    newer = b'{"kind":"run.cancelled","by":"me","mood":"bad"}'
    assert decode_event(newer) == RunCancelled("me")


def test_a_copy_goes_its_own_way() -> None:
    state = run_with(ToolSpec("t"), calls=[call_of("c", "t"), call_of("d", "t")])
    before, copy = state.copy(), state.copy()
    assert copy == state
    append(copy, CallIntended("c", 1, "k"), MessageAdded(ASKED), RunCancelled("me"))
    copy.granted.add("t")
    copy.turns[-1].calls[1].why = "changed"
    assert state == before
    assert copy.calls["c"] is copy.turns[-1].calls[0]


def test_the_fold_of_a_log_is_its_state() -> None:
    events: list[AnyRunEvent] = [
        RunCreated(PLAIN, (ASKED,)),
        TurnStarted(1, 1, "r"),
        TurnFinished(1, 1, "stop"),
    ]
    assert fold("run", [(event, 1.0) for event in events]).seq == 3


# Definitions


def test_a_request_may_lower_a_limit_and_never_raise_it() -> None:
    assert Limits().lowered({"turns": 3, "tokens": 1000}) == Limits(turns=3, tokens=1000)
    for wished, why in (
        ({"turns": 26}, r"limits\.turns: 26 is above the agent's 25"),
        ({"turn": 3}, r"unknown limit 'turn'; expected one of turns, calls"),
        ({"turns": 0}, "expected a number above 0, got 0"),
        ({"turns": True}, "expected a number above 0"),
        ({"turns": "many"}, "expected a number above 0"),
        ({"turns": 2.5}, r"limits\.turns: Expected `int`"),
        ({"cost": float("nan")}, "expected a number above 0, got nan"),
    ):
        with pytest.raises(ClientError, match=why):
            Limits().lowered(wished)
    assert Limits().lowered({"cost": 1}) == Limits(cost=1.0)
    assert Limits(cost=0.5).lowered({"cost": 0.2}) == Limits(cost=0.2)
    with pytest.raises(ClientError, match=r"limits\.cost: 0\.6 is above the agent's 0\.5"):
        Limits(cost=0.5).lowered({"cost": 0.6})


def test_the_digest_of_a_definition_changes_with_it() -> None:
    assert PLAIN.digest == msgspec.structs.replace(PLAIN).digest
    assert PLAIN.digest != msgspec.structs.replace(PLAIN, instructions="Be kind.").digest
    assert PLAIN.tool("t") == ToolSpec("t")
    assert PLAIN.tool("u") is None
