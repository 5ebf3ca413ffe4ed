"""The runtime with a real store and a real upstream."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.agent_processes import KillingStore, effects, runtime_on, to_rest
from tests.agent_upstream import AgentUpstream, Script, agent_upstream, by_turn, call, calls, text
from tests.stores import Kind, empty
from weft.agent.agents import Agent
from weft.agent.definition import Limits
from weft.agent.events import CallOutput, CallRefused, RunFailed, text_result
from weft.agent.lifecycle import ASKED, AWAITED, PARKED
from weft.agent.runtime import AgentRuntime, UnknownAgent
from weft.agent.state import IllegalEvent
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import tool
from weft.store.base import NotFound

Scene = Callable[[AgentRuntime, KillingStore, AgentUpstream, Path], Awaitable[None]]


def play(
    kind: Kind, folder: Path, script: Script, scene: Scene, agent: Agent | None = None
) -> None:
    url = empty(kind, folder)

    async def main(upstream: AgentUpstream) -> None:
        async with runtime_on(url, upstream.url, folder, agent=agent) as (runtime, store, _):
            await scene(runtime, store, upstream, folder)

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


KINDS = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@KINDS
def test_a_run_calls_its_tools_and_ends(kind: Kind, tmp_path: Path) -> None:
    script = by_turn(
        calls(call(0, "a", "look", {"at": "it"}), call(1, "b", "mail", {"to": "me"})),
        text("All is fine."),
    )

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.", owner="me", metadata={"k": "v"})
        last, events = await to_rest(runtime, id)
        kinds = [event.kind for event in events]
        assert last == "run.finished"
        assert sorted(kinds[3:7]) == ["call.finished"] * 2 + ["call.intended"] * 2
        assert [kinds[:3], kinds[7:]] == [
            ["run.created", "turn.started", "turn.finished"],
            ["turn.started", "turn.finished", "run.finished"],
        ]
        assert sorted(effects(folder)) == [f"{id}/a look", f"{id}/b mail"]
        results = [one for one in upstream.requests[1]["messages"] if one["role"] == "tool"]
        assert [one["content"] for one in results] == ["it is fine", "sent to me"]
        row = await runtime.row(id, "me")
        assert (row.status, row.until, row.due) == ("finished", 0.0, None)
        with pytest.raises(NotFound):
            await runtime.state(id, "somebody else")
        response = (await runtime.state(id)).turns[-1].response
        entry = await store.entry(response)
        assert entry is not None
        assert (entry.status, entry.owner) == ("completed", "me")

    play(kind, tmp_path, script, scene)


def test_seed_001_is_one_dispatch_one_result_and_an_end(tmp_path: Path) -> None:
    """The name came once, and 230 more pieces of the arguments each with an index of their own."""
    first = call(0, "call_1", "look", "")
    pieces = ['{"at"', ':"', *["x"] * 227, '"}']
    stray = [call(number, "", None, piece) for number, piece in enumerate(pieces, 1)]
    chunks: list[dict[str, object]] = [{"delta": {"tool_calls": [one]}} for one in (first, *stray)]
    script = by_turn([*chunks, {"delta": {}, "finish_reason": "tool_calls"}], text("Done."))

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        last, events = await to_rest(runtime, id)
        kinds = [event.kind for event in events]
        assert last == "run.finished"
        assert kinds.count("call.intended") <= 1
        assert len(effects(folder)) == kinds.count("call.finished") <= 1
        assert kinds.count("turn.started") == 2
        found = await store.run_events(id, kinds=["turn.finished"])
        numbers = [number for number, one in enumerate(kinds, 1) if one == "turn.finished"]
        assert [event.seq for event in found] == numbers

    play("sqlite", tmp_path, script, scene)


@KINDS
def test_a_person_approves_or_denies_and_the_same_again_changes_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    script = by_turn(
        calls(call(0, "a", "fire", {"who": "Al"}), call(1, "b", "fire", {"who": "Bo"})), text("OK")
    )

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        last, _ = await to_rest(runtime, id)
        assert last == "run.waiting"
        assert effects(folder) == []
        row = await runtime.row(id)
        assert (row.status, row.until) == ("waiting", 0.0), "it holds no lease"
        assert row.due is not None
        state = await runtime.state(id)
        approvals = [one.approval.approval for one in state.open_calls if one.approval]
        assert [one.state for one in state.open_calls] == [ASKED, ASKED]
        await runtime.decide_approval(id, approvals[0], True, by="me")
        await runtime.decide_approval(id, approvals[0], True, by="me")
        with pytest.raises(IllegalEvent):
            await runtime.decide_approval(id, approvals[0], False, by="me")
        with pytest.raises(NotFound):
            await runtime.decide_approval(id, "appr_x", True, by="me")
        await runtime.decide_approval(id, approvals[1], False, by="me", reason="he is nice")
        last, _ = await to_rest(runtime, id)
        assert last == "run.finished"
        assert effects(folder) == [f"{id}/a fire"]
        results = [m["content"] for m in upstream.requests[1]["messages"] if m["role"] == "tool"]
        assert results[0] == "Al is fired"
        assert "he is nice" in results[1]

    play(kind, tmp_path, script, scene)


@KINDS
def test_effects_of_a_transactional_tool_commit_with_their_receipt(
    kind: Kind, tmp_path: Path
) -> None:
    made = [call(n, f"c{n}", "book", {"seat": seat}) for n, seat in enumerate((1, 13, 1, 2))]
    script = by_turn(calls(*made), text("OK"))

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        await store.make_seats()
        id = await runtime.start("helper", "Go.")
        last, _ = await to_rest(runtime, id)
        assert last == "run.finished"
        calls = (await runtime.state(id)).calls
        outcomes = [(call.is_error, call.result[0]) for call in calls.values()]
        assert [one[0] for one in outcomes].count(False) == 2
        assert "nobody sits there" in str(outcomes[1][1])
        assert [seat for seat, _ in await store.seats()] == [1, 2]

    play(kind, tmp_path, script, scene)


def test_a_client_tool_waits_for_its_output(tmp_path: Path) -> None:
    class ClientTool:
        spec = ToolSpec("open", kind="client")

    agent = Agent("helper", "m/m", tools=[ClientTool()])
    script = by_turn(calls(call(0, "a", "open", {})), text("OK"))

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        assert (await to_rest(runtime, id))[0] == "run.waiting"
        assert [one.state for one in (await runtime.state(id)).open_calls] == [AWAITED]
        output = CallOutput("a", text_result("opened"))
        await runtime.submit_outputs(id, [output])
        await runtime.submit_outputs(id, [output])
        assert (await to_rest(runtime, id))[0] == "run.finished"
        with pytest.raises(IllegalEvent):
            await runtime.submit_outputs(id, [CallOutput("a", text_result("closed"))])

    play("sqlite", tmp_path, script, scene, agent)


def test_a_tool_that_takes_too_long_is_parked_and_a_person_settles_it(tmp_path: Path) -> None:
    @tool(timeout=0.05)
    async def wait() -> str:
        """Never comes back."""
        await asyncio.Event().wait()
        return "never"

    agent = Agent("helper", "m/m", tools=[wait])
    script = by_turn(calls(call(0, "a", "wait", {})), text("OK"))

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        assert (await to_rest(runtime, id))[0] == "run.waiting"
        [parked] = (await runtime.state(id)).open_calls
        assert parked.state is PARKED
        await runtime.resolve(id, "a", "done", by="me", result="it came")
        assert (await to_rest(runtime, id))[0] == "run.finished"
        [result] = [one for one in upstream.requests[1]["messages"] if one["role"] == "tool"]
        assert result["content"] == "it came"

    play("sqlite", tmp_path, script, scene, agent)


def test_a_run_that_is_cancelled_stops_at_once(tmp_path: Path) -> None:
    begun = asyncio.Event()
    stopped = asyncio.Event()

    @tool(retry="pure")
    async def wait() -> str:
        """Never comes back."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    agent = Agent("helper", "m/m", tools=[wait])
    script = by_turn(calls(call(0, "a", "wait", {})), text("OK"))

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        await begun.wait()
        await runtime.cancel(id, by="me")
        await runtime.cancel(id, by="me")
        assert (await to_rest(runtime, id))[0] == "run.cancelled"
        await stopped.wait()
        with pytest.raises(IllegalEvent, match="has ended"):
            await runtime.add_message(id, "Hello?")

    play("sqlite", tmp_path, script, scene, agent)


def test_a_message_during_the_run_is_answered(tmp_path: Path) -> None:
    script = by_turn(calls(call(0, "a", "fire", {"who": "Al"})), text("First."), text("Second."))

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        assert (await to_rest(runtime, id))[0] == "run.waiting"
        await runtime.add_message(id, "And be quick.")
        [pending] = (await runtime.state(id)).open_calls
        assert pending.approval is not None
        await runtime.decide_approval(id, pending.approval.approval, True, by="me")
        assert (await to_rest(runtime, id))[0] == "run.finished"
        said = [one["content"] for one in upstream.requests[1]["messages"] if one["role"] == "user"]
        assert said == ["Go.", "And be quick."]

    play("sqlite", tmp_path, script, scene)


def test_an_upstream_that_fails_is_asked_again_and_then_the_run_fails(tmp_path: Path) -> None:
    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        last, events = await to_rest(runtime, id)
        assert last == "run.failed"
        assert len(upstream.requests) == 2
        assert isinstance(events[-1], RunFailed)
        assert (events[-1].code, "not today" in events[-1].message) == ("model", True)

    play("sqlite", tmp_path, by_turn(400), scene)


def test_a_model_that_loops_is_ended_by_the_limits(tmp_path: Path) -> None:
    script = by_turn(calls(call(0, "a", "look", {"at": "it"})))

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.")
        _, events = await to_rest(runtime, id)
        assert isinstance(events[-1], RunFailed)
        assert events[-1].code == "loop"
        assert len(effects(folder)) == 2
        assert len(upstream.requests) == 5
        state = await runtime.state(id)
        assert list(state.calls) == ["a", "a_2", "a_3", "a_4", "a_5"], "each has a key of its own"

    play("sqlite", tmp_path, script, scene)


def test_a_call_of_the_last_turn_is_not_run(tmp_path: Path) -> None:
    """The model was told to use no tools, and could not read the result."""
    looks = [calls(call(0, id, "look", {"at": id})) for id in "abc"]

    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        id = await runtime.start("helper", "Go.", limits={"turns": 2})
        _, events = await to_rest(runtime, id)
        end, refused = events[-1], [one for one in events if isinstance(one, CallRefused)]
        assert isinstance(end, RunFailed)
        assert (end.code, end.message) == ("limit", "the run has had 2 turns")
        assert [(one.call, one.reason) for one in refused] == [("b", "limit")]
        assert effects(folder) == [f"{id}/a look"]
        assert upstream.requests[1]["tool_choice"] == "none"

    play("sqlite", tmp_path, by_turn(*looks), scene)


def test_starting_a_run_checks_what_it_is_given(tmp_path: Path) -> None:
    async def scene(
        runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream, folder: Path
    ) -> None:
        with pytest.raises(UnknownAgent, match="no agent 'nobody'; expected one of: helper"):
            await runtime.start("nobody", "Go.")
        one = await runtime.start("helper", "Go.", owner="me", key="k", limits={"turns": 1})
        assert await runtime.start("helper", "Go.", owner="me", key="k") == one
        assert (await runtime.state(one)).definition.limits == Limits(turns=1)
        last, _ = await to_rest(runtime, one)
        assert last == "run.finished"
        assert upstream.requests[0]["tool_choice"] == "none", "its only turn is its last"
        # Only now: two runs at once could ask the model in either order.
        assert await runtime.start("helper", "Go.", owner="you", key="k") != one

    play("sqlite", tmp_path, by_turn(text("Yes.")), scene)


def test_a_follower_learns_what_others_append_from_the_driver_here(tmp_path: Path) -> None:
    """It does not look itself while this process works on the run."""

    async def main(upstream: AgentUpstream) -> None:
        opened = asyncio.Event()

        @tool(retry="pure")
        async def wait_here() -> str:
            """Waits."""
            await opened.wait()
            return "open"

        url, agent = empty("sqlite", tmp_path), Agent("helper", "m/m", "Help.", [wait_here])
        async with (
            runtime_on(url, upstream.url, tmp_path, agent=agent) as (runtime, _, _),
            runtime_on(url, upstream.url, tmp_path, serving=False) as (other, _, _),
            asyncio.timeout(30),
        ):
            id, kinds = await runtime.start("helper", "Go."), []

            async def hurry() -> None:
                for _ in range(20):  # meanwhile the follower has read all there is, and waits
                    await other.row(id)
                await other.add_message(id, "Hurry up.")

            async for event in runtime.events(id):
                kinds.append(event.kind)
                if event.kind == "call.intended":
                    hurrying = asyncio.create_task(hurry())
                if event.kind == "message.added":
                    opened.set()
            assert kinds[3:6] == ["call.intended", "message.added", "call.finished"]
            assert kinds[-1] == "run.finished"
            await hurrying

    script = by_turn(calls(call(0, "a", "wait_here", {})), text("Done."))
    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))
