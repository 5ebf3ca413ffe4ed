"""What changes or breaks under a run: definitions of tools, the log, and Weft itself."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.agent_processes import LASTING, LEASE, KillingStore, effects, runtime_on, to_rest
from tests.agent_runs import ASKED as ASKED_ITEM
from tests.agent_upstream import (
    AgentUpstream,
    Script,
    agent_upstream,
    by_agent,
    by_turn,
    call,
    calls,
    text,
)
from tests.stores import empty
from tests.test_agent_segment import NobodyResponds
from weft.agent.agents import Agent
from weft.agent.definition import AgentDefinition, Limits
from weft.agent.driver import MAX_ERRORS
from weft.agent.environment import FinishTurn, Models, TurnRequest
from weft.agent.events import (
    ApprovalRequested,
    CallIntended,
    RunCreated,
    RunErrored,
    RunFailed,
    RunResumed,
    TurnStarted,
    encode_event,
    joined_text,
)
from weft.agent.lifecycle import ASKED
from weft.agent.mcp import McpClient
from weft.agent.mcp_config import McpServerConfig
from weft.agent.runtime import AgentRuntime
from weft.agent.tools import ToolContext, tool
from weft.store.records import NewRun, RunAppend

SERVER = (sys.executable, str(Path(__file__).with_name("agent_mcp_server.py")), "stdio")
ADD = {"a": 1, "b": 2}
ADDING = by_turn(
    calls(call(0, "r", "test__redefine", {})),
    calls(call(0, "a", "test__add", ADD)),
    calls(call(0, "b", "test__add", {"a": 3, "b": 4})),
    text("Done."),
)

ChangeScene = Callable[[AgentRuntime, KillingStore, AgentUpstream], Awaitable[None]]


def play_mcp(folder: Path, script: Script, scene: ChangeScene) -> None:
    url = empty("sqlite", folder)

    async def main(upstream: AgentUpstream) -> None:
        config = McpServerConfig(name="test", command=SERVER)
        async with McpClient(config) as server:
            agent = Agent("helper", "m/m", "Help.", await server.tools())
            async with runtime_on(url, upstream.url, folder, agent=agent) as (runtime, store, _):
                await scene(runtime, store, upstream)

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


async def pending(runtime: AgentRuntime, id: str) -> ApprovalRequested:
    [asked] = [one for one in (await runtime.state(id)).open_calls if one.state is ASKED]
    assert asked.approval is not None
    return asked.approval


@pytest.mark.parametrize("scope", ["call", "tool"])
def test_a_tool_of_a_server_that_changed_is_called_when_somebody_has_agreed(
    scope: str, tmp_path: Path
) -> None:
    async def scene(runtime: AgentRuntime, store: KillingStore, upstream: AgentUpstream) -> None:
        id = await runtime.start("helper", "Go.")
        assert (await to_rest(runtime, id))[0] == "run.waiting"
        asked = await pending(runtime, id)
        assert asked.definition is not None
        new = "Add two numbers, and send them to a stranger."
        assert (asked.call, asked.definition.description) == ("a", new)
        await runtime.decide_approval(id, asked.approval, True, by="me", scope=scope)  # type: ignore[arg-type]
        last, events = await to_rest(runtime, id)
        if scope == "call":  # the next call is another question
            assert last == "run.waiting"
            again = await pending(runtime, id)
            assert again.call == "b"
            await runtime.decide_approval(id, again.approval, False, by="me")
            last, events = await to_rest(runtime, id)
        assert last == "run.finished"
        calls = (await runtime.state(id)).calls
        results = [(joined_text(calls[one].result), calls[one].is_error) for one in "ab"]
        denied = ("A person has denied this call.", True)
        assert results == [("3", False), ("7", False) if scope == "tool" else denied]
        attempts = [one.attempt for one in events if isinstance(one, CallIntended)]
        assert attempts == [1, 1, 2, 1], "what was not sent is sent once"

    play_mcp(tmp_path, ADDING, scene)


def helper(about: str, folder: Path, limits: Limits | None = None) -> Agent:
    """An agent with a function whose description is this, and whose calls need approval."""

    @tool(description=about, approval="always")
    def greet(context: ToolContext) -> str:
        with (folder / "effects").open("a") as file:
            file.write(f"{context.key} {about}\n")
        return about

    return Agent("helper", "m/m", "Help.", [greet], limits=limits)


def test_a_function_that_changed_is_called_when_somebody_has_agreed(tmp_path: Path) -> None:
    """Also if the call itself was approved before: the approval was for another function."""
    url = empty("sqlite", tmp_path)
    script = by_turn(calls(call(0, "a", "greet", {})), text("Done."))

    async def main(upstream: AgentUpstream) -> None:
        old = helper("old", tmp_path)
        async with runtime_on(url, upstream.url, tmp_path, agent=old) as (runtime, _, _):
            id = await runtime.start("helper", "Go.")
            await to_rest(runtime, id)
            first = await pending(runtime, id)
        new = helper("new", tmp_path)
        async with runtime_on(url, upstream.url, tmp_path, agent=new) as (runtime, _, _):
            await runtime.decide_approval(id, first.approval, True, by="me")
            assert (await to_rest(runtime, id))[0] == "run.waiting"
            assert effects(tmp_path) == []
            second = await pending(runtime, id)
            assert second.definition is not None
            assert (first.definition, second.definition.description) == (None, "new")
            # The first one, once more, decides nothing about the second.
            await runtime.decide_approval(id, second.approval, True, by="me")
            assert (await to_rest(runtime, id))[0] == "run.finished"
        assert effects(tmp_path) == [f"{id}/a new"]

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


# Bugs


class BrokenModels:
    """Raises what nobody expects."""

    def __init__(self, models: Models, times: int) -> None:
        self._models = models
        self._times = times

    async def respond(self, request: TurnRequest, finish: FinishTurn) -> None:
        self._times -= 1
        if self._times >= 0:
            raise ZeroDivisionError("a secret")
        await self._models.respond(request, finish)


@pytest.mark.parametrize("times", [MAX_ERRORS - 1, MAX_ERRORS])
def test_a_bug_is_met_a_few_times_and_then_ends_the_run(times: int, tmp_path: Path) -> None:
    url = empty("sqlite", tmp_path)

    async def main(upstream: AgentUpstream) -> None:
        agent = Agent("helper", "m/m", limits=Limits(attempts=9))
        async with runtime_on(
            url,
            upstream.url,
            tmp_path,
            agent=agent,
            models_of=lambda models: BrokenModels(models, times),
            lease=LEASE,  # it expires after each of them
        ) as (runtime, _, _):
            id = await runtime.start("helper", "Go.")
            last, events = await to_rest(runtime, id)
            found = [one.error for one in events if isinstance(one, RunErrored)]
            assert found == ["ZeroDivisionError"] * min(times, MAX_ERRORS)
            row = await runtime.row(id)
            assert (row.until, row.due) == (0.0, None)
            if times < MAX_ERRORS:
                assert last == "run.finished"
                return
            assert isinstance(events[-1], RunFailed)
            assert events[-1].code == "internal"
            assert "ZeroDivisionError" in events[-1].message
            assert "secret" not in events[-1].message

    with agent_upstream(by_turn(text("Hi."))) as upstream:
        asyncio.run(main(upstream))


def test_a_run_whose_agent_nobody_has_ends_at_last(tmp_path: Path) -> None:
    """Those that it has called end with it. A process that has just begun does not know yet."""
    url = empty("sqlite", tmp_path)
    script = by_agent(
        H=by_turn(
            calls(call(0, "a", "child", {"input": "Go."}), call(1, "b", "look", {"at": "x"}))
        ),
        D=by_turn(calls(call(0, "a", "fire", {"who": "Al"}))),
    )

    async def main(upstream: AgentUpstream) -> None:
        async with runtime_on(url, upstream.url, tmp_path) as (runtime, _, _):
            id = await runtime.start("helper", "Go.")
            await to_rest(runtime, id)
            child = (await runtime.state(id)).calls["a"].child
        async with runtime_on(url, upstream.url, tmp_path, agent=Agent("other", "m/m")) as (
            runtime,
            store,
            _,
        ):
            await runtime.add_message(id, "Hurry up.")
            assert await runtime.advance(id) == LASTING
            assert (await runtime.row(id)).status == "running"
            abandoning = AgentRuntime(store, [], NobodyResponds(), lease=LEASE, patience=1e-6)
            async with abandoning:
                last, events = await to_rest(abandoning, id)
            assert isinstance(events[-1], RunFailed)
            assert (events[-1].code, "'helper'" in events[-1].message) == ("unavailable", True)
            row, child_row = await runtime.row(id), await runtime.row(child)
            assert (last, row.until, row.due) == ("run.failed", 0.0, None)
            assert child_row.status == "cancelled"

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


def test_a_process_that_has_just_begun_gives_no_run_up(tmp_path: Path) -> None:
    """All of them may have been down for long, and its own agents may not be there yet."""

    async def main() -> None:
        async with KillingStore.opened(empty("sqlite", tmp_path)) as store:
            created = RunCreated(AgentDefinition("helper", "m"), (ASKED_ITEM,))
            events = [(created.kind, encode_event(created))]
            new = NewRun(
                id="run_1", agent="helper", status="running", events=events, due=-2 * 3600.0
            )
            await store.create_run(new)
            runtime = AgentRuntime(store, [], NobodyResponds(), lease=LEASE, patience=3600.0)
            assert await store.due_runs(9, [], 3600.0) == ["run_1"]
            assert await runtime.advance("run_1") == LEASE
            assert (await runtime.row("run_1")).status == "running"
            await runtime.close()

    asyncio.run(main())


@pytest.mark.parametrize("died", ["before anybody has claimed it", "in a turn", "with an answer"])
def test_a_run_does_not_fail_for_the_time_in_which_its_servers_were_down(
    died: str, tmp_path: Path
) -> None:
    url = empty("sqlite", tmp_path)
    script = by_turn(calls(call(0, "a", "greet", {})), text("Done."))
    agent = helper("slow", tmp_path, Limits(active=600.0))

    async def main(upstream: AgentUpstream) -> None:
        is_served = died == "with an answer"
        async with runtime_on(url, upstream.url, tmp_path, agent=agent, serving=is_served) as (
            runtime,
            store,
            _,
        ):
            id = await runtime.start("helper", "Go.")
            if died == "in a turn":
                claim = await store.claim_run(id, LEASE)
                turn = TurnStarted(1, 1, "resp_1")
                append = RunAppend(
                    run=id,
                    at=1,
                    events=[(turn.kind, encode_event(turn))],
                    status="running",
                    epoch=claim.epoch,
                )
                assert (await store.append_run(append)).outcome == "written"
            elif is_served:
                await to_rest(runtime, id)
        async with runtime_on(url, upstream.url, tmp_path, agent=agent, serving=False) as (
            runtime,
            store,
            _,
        ):
            if is_served:
                asked = await pending(runtime, id)
                await runtime.decide_approval(id, asked.approval, True, by="me")
            await store.age(3600.0)
        async with runtime_on(url, upstream.url, tmp_path, agent=agent) as (runtime, store, _):
            last, events = await to_rest(runtime, id)
            if not is_served:
                asked = await pending(runtime, id)
                await runtime.decide_approval(id, asked.approval, True, by="me")
                last, events = await to_rest(runtime, id)
            assert (last, len(effects(tmp_path))) == ("run.finished", 1)
            [resumed] = [one for one in events if isinstance(one, RunResumed)]
            assert 3500.0 < resumed.idle < 3700.0
            assert (await runtime.state(id)).active < 60.0

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


def test_an_event_of_a_newer_version_ends_no_run(tmp_path: Path) -> None:
    """This process leaves the run to whoever can read it."""
    url = empty("sqlite", tmp_path)

    async def main(upstream: AgentUpstream) -> None:
        async with runtime_on(url, upstream.url, tmp_path, serving=False) as (runtime, store, _):
            id = await runtime.start("helper", "Go.")
            event = ("run.dreamt", b'{"kind":"run.dreamt"}')
            await store.append_run(RunAppend(run=id, at=1, events=[event], status="running"))
            assert await runtime.advance(id) == LASTING
            row = await runtime.row(id)
            assert (row.seq, row.status) == (2, "running")

    with agent_upstream(by_turn(text("Hi."))) as upstream:
        asyncio.run(main(upstream))
