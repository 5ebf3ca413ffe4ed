"""Agents as tools: a call is a run of its own, which lives and ends with its caller."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent_processes import KillingStore, Places, effects, runtime_on, to_rest, tools_in
from tests.agent_runs import append, call_of, started
from tests.agent_upstream import (
    AgentUpstream,
    Chunks,
    Script,
    agent_upstream,
    by_agent,
    by_turn,
    call,
    calls,
    text,
)
from tests.stores import Kind, empty
from weft.agent.agents import Agent
from weft.agent.children import ChildTool
from weft.agent.decide import DispatchCall, FailRun, FinishRun, StartTurn, WaitOutside, decide
from weft.agent.definition import AgentDefinition, Budget, Limits
from weft.agent.events import (
    CallFinished,
    CallIntended,
    CallRefused,
    RunCancelled,
    RunFailed,
    RunWaiting,
    TurnFinished,
    TurnStarted,
    decode_event,
    joined_text,
    text_result,
)
from weft.agent.lifecycle import INTENDED
from weft.agent.runtime import AgentRuntime
from weft.agent.state import IllegalEvent, RunState
from weft.agent.tools import ToolContext, tool
from weft.errors import ArgumentValueError

CHILD_SAYS = "Research."
GRANDCHILD_SAYS = "Dig."


def research(*inputs: str) -> Chunks:
    made = [call(at, f"r{at}", "researcher", {"input": one}) for at, one in enumerate(inputs)]
    return calls(*made)


def agent_in(
    folder: Path, limits: Limits | None = None, child: Limits | None = None, **more: Any
) -> Agent:
    """An agent that calls an agent that calls an agent."""
    tools = tools_in(folder, Places())
    digger = Agent("digger", "m/m", GRANDCHILD_SAYS, tools)
    about = "Finds things out."
    researcher = Agent(
        "researcher", "m/m", CHILD_SAYS, [*tools, digger], limits=child, description=about
    )
    return Agent("helper", "m/m", "Help.", [*tools, researcher], limits=limits, **more)


ChildScene = Callable[[AgentRuntime, KillingStore, AgentUpstream], Awaitable[None]]


def play(
    kind: Kind, folder: Path, script: Script, scene: ChildScene, agent: Agent | None = None
) -> None:
    url = empty(kind, folder)

    async def main(upstream: AgentUpstream) -> None:
        own = agent or agent_in(folder)
        async with runtime_on(url, upstream.url, folder, agent=own) as (runtime, store, _):
            await scene(runtime, store, upstream)

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


async def to_end(runtime: AgentRuntime, id: str) -> list[Any]:
    """Waits for the end of a run, whatever it waits for on the way; returns its events."""
    found = [decode_event(event.body) async for event in runtime.events(id)]
    await runtime.join(id)
    return found


async def child_of(runtime: AgentRuntime, id: str) -> str:
    """The run of the first agent that this run calls."""
    async for event in runtime.events(id):
        state = await runtime.state(id)
        if event.kind == "call.intended":
            return next(one.child for one in state.calls.values() if one.child)
    raise AssertionError("no agent was called")


KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@KINDS
def test_the_answer_of_the_agent_is_the_result_of_the_call(kind: Kind, tmp_path: Path) -> None:
    script = by_agent(
        H=by_turn(research("What is it?"), text("I know.")),
        R=by_turn(calls(call(0, "a", "look", {"at": "it"})), text("It is a cat.")),
    )

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.", owner="me")
        events = await to_end(runtime, id)
        state = await runtime.state(id)
        [intended] = [one for one in events if isinstance(one, CallIntended)]
        [finished] = [one for one in events if isinstance(one, CallFinished)]
        assert (intended.executor, intended.key) == ("agent", f"{id}/r0")
        assert (joined_text(finished.result), finished.is_error) == ("It is a cat.", False)
        assert finished.used is not None
        assert (finished.used.turns, finished.used.calls) == (2, 1)
        assert state.used(0.0).turns == 4
        row = await runtime.row(intended.child, "me")
        assert (row.parent, row.key, row.status, row.until) == (id, f"{id}/r0", "finished", 0.0)
        child = await runtime.state(intended.child)
        assert (child.parent, child.owner) == (f"{id}/r0", "me")
        page = await store.runs("me", parent=id)
        assert [one.id for one in page.runs] == [intended.child]
        assert effects(tmp_path) == [f"{intended.child}/a look"]
        asked = [one["messages"] for one in upstream.requests]
        assert [one["content"] for one in asked[1][1:]] == ["What is it?"]
        assert asked[-1][-1]["content"] == "It is a cat."
        names = {one["function"]["name"]: one["function"] for one in upstream.requests[0]["tools"]}
        assert names["researcher"]["description"] == "Finds things out."

    play(kind, tmp_path, script, scene)


@KINDS
def test_who_waits_for_an_agent_holds_nothing_and_a_person_decides_there(
    kind: Kind, tmp_path: Path
) -> None:
    script = by_agent(
        H=by_turn(research("Fire them."), text("Done.")),
        R=by_turn(calls(call(0, "a", "fire", {"who": "Bob"})), text("Bob is gone.")),
    )

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        child = await child_of(runtime, id)
        assert (await to_rest(runtime, child))[0] == "run.waiting"
        assert (await to_rest(runtime, id))[0] == "run.waiting"
        row, of_child = await runtime.row(id), await runtime.row(child)
        assert (row.status, row.until, row.due) == ("running", 0.0, None)
        assert (of_child.status, of_child.until) == ("waiting", 0.0)
        state = await runtime.state(id)
        assert state.waiting == RunWaiting(children=("r0",))
        approval = (await runtime.state(child)).calls["a"].approval
        assert approval is not None
        await runtime.decide_approval(child, approval.approval, True, by="me")
        events = await to_end(runtime, id)
        assert events[-1].kind == "run.finished"
        assert effects(tmp_path) == [f"{child}/a fire"]

    play(kind, tmp_path, script, scene)


def test_an_agent_that_fails_is_an_error_for_its_caller(tmp_path: Path) -> None:
    script = by_agent(H=by_turn(research("?"), text("Well.")), R=by_turn(500))

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        events = await to_end(runtime, id)
        [finished] = [one for one in events if isinstance(one, CallFinished)]
        assert finished.is_error
        assert joined_text(finished.result).startswith("The run of agent researcher failed: ")
        assert events[-1].kind == "run.finished"

    play("sqlite", tmp_path, script, scene)


HANGING = by_agent(
    H=by_turn(research("?"), text("Well.")),
    R=by_turn(calls(call(0, "d", "digger", {"input": "?"})), text("Well.")),
    D=by_turn(calls(call(0, "a", "fire", {"who": "Bob"})), text("Done.")),
)
"""The agent at the bottom waits for a person."""


@KINDS
def test_a_run_that_is_cancelled_cancels_its_descendants(kind: Kind, tmp_path: Path) -> None:
    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        child = await child_of(runtime, id)
        grandchild = await child_of(runtime, child)
        await to_rest(runtime, grandchild)
        await runtime.cancel(id, by="me")
        for one in (id, child, grandchild):
            row, state = await runtime.row(one), await runtime.state(one)
            assert (row.status, row.ended is None) == ("cancelled", False)
            assert isinstance(state.end, RunCancelled)
        assert (await runtime.state(child)).calls["d"].state is INTENDED, "no receipt follows"
        assert effects(tmp_path) == []

    play(kind, tmp_path, HANGING, scene)


def test_a_run_that_is_cancelled_in_the_middle_tells_its_caller(tmp_path: Path) -> None:
    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        child = await child_of(runtime, id)
        grandchild = await child_of(runtime, child)
        await to_rest(runtime, grandchild)
        await runtime.cancel(child, by="me", reason="too slow")
        assert (await to_end(runtime, id))[-1].kind == "run.finished"
        told = (await runtime.state(id)).calls["r0"]
        assert (told.is_error, joined_text(told.result)) == (
            True,
            "The run of agent researcher was cancelled: too slow",
        )
        assert (await runtime.row(grandchild)).status == "cancelled"

    play("sqlite", tmp_path, HANGING, scene)


def test_a_run_whose_time_is_up_cancels_its_descendants(tmp_path: Path) -> None:
    """A tool that never ends is cut off by the deadline, while an agent waits for a person."""
    seen: list[float | None] = []

    @tool
    async def hang(context: ToolContext) -> None:
        seen.append(context.remaining)
        await asyncio.Event().wait()

    firing = Agent("researcher", "m/m", CHILD_SAYS, tools_in(tmp_path, Places()))
    agent = Agent("helper", "m/m", "Help.", [firing, hang], limits=Limits(active=4.0))
    asks = call(0, "r0", "researcher", {"input": "?"})
    script = by_agent(
        H=by_turn(calls(asks, call(1, "h", "hang", {}))),
        R=by_turn(calls(call(0, "a", "fire", {"who": "Bob"}))),
    )

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        child = await child_of(runtime, id)
        events = await to_end(runtime, id)
        assert isinstance(events[-1], RunFailed)
        assert events[-1].code == "limit"
        [remaining] = seen
        assert remaining is not None
        assert 0 < remaining <= 4.0
        assert isinstance((await runtime.state(child)).end, RunCancelled)

    play("sqlite", tmp_path, script, scene, agent)


def test_the_fork_of_a_called_run_answers_nobody(tmp_path: Path) -> None:
    script = by_agent(H=by_turn(research("?"), text("Well.")), R=by_turn(text("Yes.")))

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        await to_end(runtime, id)
        [child] = (await store.runs("", parent=id)).runs
        fork = await runtime.fork(child.id, 1)
        assert (await to_end(runtime, fork))[-1].kind == "run.finished"
        assert (await runtime.state(fork)).parent is None
        assert len((await store.runs("", parent=id)).runs) == 1

    play("sqlite", tmp_path, script, scene)


def test_a_key_that_a_client_has_used_starts_no_child_and_takes_no_run(tmp_path: Path) -> None:
    script = by_agent(
        H=by_turn(calls(call(0, "a", "fire", {"who": "x"})), research("?"), text("Well."))
    )

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        await to_rest(runtime, id)
        other = await runtime.start("helper", "Else.", key=f"{id}/r0")
        approval = (await runtime.state(id)).calls["a"].approval
        assert approval is not None
        await runtime.decide_approval(id, approval.approval, False, by="me")
        events = await to_end(runtime, id)
        assert not [one for one in events if isinstance(one, CallIntended)]
        assert [one.reason for one in events if isinstance(one, CallRefused)] == ["limit"]
        await runtime.cancel(other, by="me")

    play("sqlite", tmp_path, script, scene)


# Limits


def test_agents_share_what_their_caller_has_left(tmp_path: Path) -> None:
    agent = agent_in(tmp_path, Limits(turns=8, calls=20, tokens=900), Limits(turns=5))
    script = by_agent(H=by_turn(research("1", "2"), text("Well.")), R=by_turn(text("Yes.")))

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        events = await to_end(runtime, id)
        drawn = [one.drawn for one in events if isinstance(one, CallIntended)]
        assert [(one.turns, one.calls, one.tokens) for one in drawn if one] == [(3, 9, 450)] * 2
        for row in (await store.runs("", parent=id)).runs:
            limits = (await runtime.state(row.id)).definition.limits
            assert (limits.turns, limits.calls, limits.tokens) == (3, 9, 450)
            assert limits.active <= 450
        assert events[-1].kind == "run.finished"

    play("sqlite", tmp_path, script, scene, agent)


def test_an_agent_is_not_called_if_too_little_is_left(tmp_path: Path) -> None:
    script = by_agent(H=by_turn(research("1"), text("Well.")))

    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        events = await to_end(runtime, id)
        assert [one.reason for one in events if isinstance(one, CallRefused)] == ["limit"]
        assert events[-1].kind == "run.finished"

    play("sqlite", tmp_path, script, scene, agent_in(tmp_path, Limits(turns=2)))


@dataclass
class Tree:
    """Plays runs that call one another, on the pure parts of the runtime alone."""

    data: st.DataObject
    turns: int = 0
    calls: int = 0
    depth: int = 0
    events: int = 0
    ends: list[str] = field(default_factory=list)

    def play(self, limits: Limits, depth: int = 0) -> Budget:
        """Plays one run to its end; returns what it has used."""
        self.depth = max(self.depth, depth)
        spec = ChildTool(AgentDefinition("again", "m")).spec
        state = started(AgentDefinition("again", "m", tools=(spec,), limits=limits), finished=False)
        self._finish_turn(state, 1)
        while state.end is None:
            actions = decide(state, 1.0)
            assert actions, "a run that waits for nobody goes on"
            for action in actions:
                self.events += 1
                match action:
                    case StartTurn(turn, attempt):
                        append(state, TurnStarted(turn, attempt, f"resp_{turn}"))
                        self._finish_turn(state, turn)
                    case DispatchCall(id):
                        self._call(state, id, depth)
                    case WaitOutside(waiting):
                        append(state, waiting)
                        for id in waiting.children:
                            self._end_child(state, id, depth)
                    case FinishRun() | FailRun():
                        self.ends.append(type(action).__name__)
                        return state.used(1.0)
                    case _:
                        raise AssertionError(action)
        raise AssertionError("unreachable")

    def _finish_turn(self, state: RunState, turn: int) -> None:
        self.turns += 1
        wanted = self.data.draw(st.integers(0, 3))
        room = state.definition.limits.calls - state.used(1.0).calls
        made = [
            call_of(f"c{turn}.{number}", "again", arguments=f'{{"input":"{turn}.{number}"}}')
            for number in range(min(wanted, max(0, room)))
        ]
        self.calls += len(made)
        reason = "tool-calls" if made else "stop"
        append(state, TurnFinished(turn, 1, reason, has_text=True, calls=tuple(made)))  # type: ignore[arg-type]

    def _call(self, state: RunState, id: str, depth: int) -> None:
        budget = state.share(1.0)
        if budget is None:
            append(state, CallRefused(id, "limit", "no"))
        else:
            append(state, CallIntended(id, 1, f"run/{id}", "agent", f"run_{id}", budget))

    def _end_child(self, state: RunState, id: str, depth: int) -> None:
        limits = Limits().within(state.calls[id].drawn, 1000)
        used = self.play(limits, depth + 1)
        append(state, CallFinished(id, text_result("ok"), used=used))


@given(data=st.data(), turns=st.integers(1, 12), calls=st.integers(1, 12))
def test_a_whole_tree_of_runs_stays_within_the_limits_of_its_root(
    data: st.DataObject, turns: int, calls: int
) -> None:
    tree = Tree(data)
    used = tree.play(Limits(turns=turns, calls=calls))
    assert (used.turns, used.calls) == (tree.turns, tree.calls), "nothing is forgotten"
    assert tree.turns <= turns
    assert tree.calls <= calls
    assert tree.depth <= turns // 2
    assert set(tree.ends) <= {"FinishRun", "FailRun"}


def test_agents_share_the_dollars_that_are_left() -> None:
    spec = ChildTool(AgentDefinition("again", "m")).spec
    definition = AgentDefinition("a", "m", tools=(spec,), limits=Limits(cost=1.0))
    state = started(definition, finished=False)
    calls = tuple(call_of(id, "again") for id in "cde")
    append(state, TurnFinished(1, 1, "tool-calls", calls=calls, cost=0.4))
    drawn = state.share(1.0)
    assert drawn is not None
    assert drawn.cost == pytest.approx(0.2)
    limits = [Limits(cost=cost).within(Budget(9, cost=0.2), 9).cost for cost in (None, 0.1, 0.3)]
    assert limits == [0.2, 0.1, 0.2]
    assert Limits().within(Budget(9), 9).cost is None
    append(state, CallIntended("c", 1, "run/c", "agent", "run_c", drawn))
    assert (rest := state.share(1.0)) is not None
    assert rest.cost == pytest.approx(0.2), "what was drawn is not there for the others"
    append(state, CallFinished("c", text_result("ok"), used=Budget(1, cost=0.6)))
    assert state.used(1.0).cost == 1.0
    assert state.share(1.0) is None


@pytest.mark.parametrize("unknown", [True, False])
def test_a_turn_of_a_child_without_a_price_is_one_of_its_caller(unknown: bool) -> None:
    spec = ChildTool(AgentDefinition("again", "m")).spec
    definition = AgentDefinition("a", "m", tools=(spec,), limits=Limits(cost=1.0))
    state = started(definition, finished=False)
    calls = (call_of("c", "again"),)
    append(state, TurnFinished(1, 1, "tool-calls", calls=calls, cost=0.0))
    append(state, CallIntended("c", 1, "run/c", "agent", "run_c", state.share(1.0)))
    used = Budget(1, cost=0.0, unpriced=int(unknown))
    append(state, CallFinished("c", text_result("ok"), used=used))
    [action] = decide(state, 1.0)
    assert isinstance(action, FailRun if unknown else StartTurn)


def test_a_child_is_no_left_behind_call() -> None:
    """Whoever has died, its run writes the receipt: nothing is repeated, looked up or parked."""
    spec = ChildTool(AgentDefinition("again", "m")).spec
    definition = AgentDefinition("a", "m", tools=(spec,))
    state = started(definition, [call_of("c", "again"), call_of("d", "again")])
    append(state, CallIntended("c", 1, "run/c", "agent", "run_c", Budget(3)))
    assert decide(state, 1.0) == [DispatchCall("d", 1)]
    append(state, CallIntended("d", 1, "run/d", "agent", "run_d", Budget(3)))
    waiting = RunWaiting(children=("c", "d"))
    assert decide(state, 1.0) == [WaitOutside(waiting, None)]
    append(state, waiting)
    assert decide(state, 1.0) == []
    append(state, CallFinished("d", text_result("ok"), used=Budget(2)))
    with pytest.raises(IllegalEvent):
        append(state, waiting)
    assert decide(state, 1.0) == [WaitOutside(RunWaiting(children=("c",)), None)]


# Declaring


def test_agents_that_are_tools_are_agents_of_the_runtime(tmp_path: Path) -> None:
    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        assert [*runtime.agents] == ["helper", "researcher", "digger"]

    play("sqlite", tmp_path, by_turn(text("Hi.")), scene)


def test_what_cannot_be_a_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="cannot be a tool"):
        Agent("a", "m", tools=[Agent("b.c", "m")])
    with pytest.raises(ArgumentValueError, match="two of its tools have the same name"):
        Agent("a", "m", tools=[Agent("b", "m"), Agent("b", "m")])
