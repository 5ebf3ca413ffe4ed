"""The gate before any intent."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent_runs import append, call_of, run_with, started
from weft.agent.definition import AgentDefinition, Limits
from weft.agent.events import CallFinished, CallIntended, TurnFinished, TurnStarted
from weft.agent.gate import MAX_CALLS, digest_of, judge
from weft.agent.state import RunState
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import BadArguments
from weft.assembler import Response
from weft.parts import FinishReason, Invalid, ToolCall

TOOLS = (ToolSpec("pay", approval="always"), ToolSpec("read"), ToolSpec("open", kind="client"))


def needs_approval(tool: ToolSpec, arguments: str) -> bool:
    if "bad" in arguments:
        raise BadArguments("expected `int` at `$.days`")
    return tool.approval == "always"


def verdicts(
    state: RunState, *calls: ToolCall, reason: FinishReason = "tool-calls"
) -> list[object]:
    response = Response("resp", items=calls, finish_reason=reason)
    return [one.refusal or one.verdict for one in judge(state, response, needs_approval)]


def fresh(limits: Limits = Limits()) -> RunState:  # noqa: B008
    return started(AgentDefinition("a", "m", tools=TOOLS, limits=limits), finished=False)


def call(name: str, params: str = "{}", invalid: Invalid | None = None, id: str = "c") -> ToolCall:
    return ToolCall(id, name, params, invalid=invalid)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (call("read"), "dispatch"),
        (call("pay"), "ask"),
        (call("open"), "client"),
        (call("open", "bad"), "client"),
        (call("", invalid="nameless"), "nameless"),
        (call(""), "nameless"),
        (call("read", invalid="stream-failed"), "stream-failed"),
        (call("delete"), "unknown-tool"),
        (call("read", '{"bad"', invalid="bad-arguments"), "bad-arguments"),
        (call("read", '{"bad":1}'), "bad-arguments"),
    ],
)
def test_each_call_gets_the_verdict_of_the_first_check_that_it_fails(
    one: ToolCall, expected: str
) -> None:
    assert verdicts(fresh(), one) == [expected]


@pytest.mark.parametrize("reason", ["stop", "length", "content-filter", "pause", "error", "other"])
def test_nothing_is_dispatched_from_a_response_that_did_not_end_with_tool_calls(
    reason: FinishReason,
) -> None:
    assert verdicts(fresh(), call("read"), reason=reason) == ["stream-failed"]


def test_the_calls_of_the_upstream_itself_are_not_judged() -> None:
    assert verdicts(fresh(), ToolCall("c", "web", "{}", provider_executed=True)) == []


def test_a_refusal_says_what_there_is() -> None:
    response = Response("resp", items=(call("delete"),), finish_reason="tool-calls")
    [one] = judge(fresh(), response, needs_approval)
    assert one.text == "There is no tool 'delete'; there are: pay, read, open"


def test_seed_001_unmerged_is_one_call_and_230_that_have_no_name() -> None:
    """The stream as it was before any ledger: one name, then 230 pieces without one."""
    calls = [call("read"), *(call("", invalid="nameless", id=f"c{n}") for n in range(230))]
    found = verdicts(fresh(), *calls)
    assert found[:32] == ["dispatch", *["nameless"] * 31]
    assert set(found[32:]) == {"nameless"}


def test_calls_beyond_the_limits_of_turn_and_run_are_not_run() -> None:
    calls = [call("read", f'{{"n":{n}}}', id=f"c{n}") for n in range(9)]
    limits = Limits(calls_per_turn=6, calls=4)
    response = Response("resp", items=tuple(calls), finish_reason="tool-calls")
    found = judge(fresh(limits), response, needs_approval)
    assert [one.verdict for one in found] == [*["dispatch"] * 4, *["refused"] * 2, *["dropped"] * 3]
    assert {one.refusal for one in found[4:]} == {"limit"}


def test_nothing_is_run_in_the_last_turn() -> None:
    made = call("read"), call("pay", id="d"), call("open", id="e"), call("gone", id="f")
    assert verdicts(fresh(Limits(turns=1)), *made) == [*["limit"] * 3, "unknown-tool"]
    assert verdicts(fresh(Limits(turns=2)), *made[:3]) == ["dispatch", "ask", "client"]


def test_a_long_id_becomes_a_short_one() -> None:
    """Each event of a call has it, and an event has a limit."""
    long = ["i" * 700_000, "j" * 700_000]
    response = Response(
        "resp", items=tuple(call("read", id=id) for id in long), finish_reason="tool-calls"
    )
    first, second = judge(fresh(), response, needs_approval)
    assert [first.wire_id, second.wire_id] == long
    assert len({first.id, second.id}) == 2
    assert len(first.id) < 100


def test_a_response_may_hold_more_calls_than_are_kept() -> None:
    calls = [call("read", id=f"c{n}") for n in range(MAX_CALLS + 5)]
    assert len(verdicts(fresh(), *calls)) == MAX_CALLS


def test_the_same_call_in_a_row_is_refused_across_turns_too() -> None:
    state = run_with(*TOOLS, calls=[call_of("a", "read"), call_of("b", "read")])
    for id in "ab":
        append(state, CallIntended(id, 1, f"run/{id}"), CallFinished(id))
    append(state, TurnStarted(2, 1, "resp_2"))
    again = [call("read", " { } "), call("read", '{"n":1}', id="d"), call("read", id="e")]
    assert verdicts(state, *again) == ["repeated", "dispatch", "dispatch"]


def test_an_id_that_an_earlier_turn_used_becomes_another() -> None:
    """Keys are made of ids: the second call must not look like a repetition of the first."""
    state = run_with(*TOOLS, calls=[call_of("c", "read"), call_of("c_2", "read")])
    for id in ("c", "c_2"):
        append(state, CallIntended(id, 1, f"run/{id}"), CallFinished(id))
    append(state, TurnStarted(2, 1, "resp_2"))
    response = Response("resp", items=(call("pay"),), finish_reason="tool-calls")
    [judged] = judge(state, response, needs_approval)
    assert (judged.id, judged.wire_id) == ("c_3", "c")
    append(state, TurnFinished(2, 1, "tool-calls", calls=(judged,)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
)


@given(JSON, JSON)
def test_digests_are_equal_exactly_when_the_arguments_are(one: object, other: object) -> None:
    spaced = json.dumps(one, indent=2, sort_keys=True)
    assert digest_of(spaced) == digest_of(json.dumps(one))
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest_of(json.dumps(one)) == digest_of(json.dumps(other))) is same


def test_arguments_that_are_not_json_have_a_digest_too() -> None:
    assert digest_of("ls -l") != digest_of("ls  -l")
    assert digest_of("[" * 5000) == digest_of("[" * 5000)
    assert digest_of('"\ud800"'[1:-1]) == digest_of("\ud800")
