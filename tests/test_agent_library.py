"""Agents as a library: a runtime with its own store and models, handles of runs, single steps."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import weft
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
from weft.agent.library import RunNotEnded, UpstreamOptions
from weft.agent.runtime import RunBusy, UnknownAgent
from weft.agent.state import IllegalEvent
from weft.relay.routing import UnknownModel
from weft.store.base import NotFound
from weft.store.urls import store_from_url

LETTERS: list[str] = []


@weft.tool(retry="pure")
def look(at: str) -> str:
    """Looks."""
    return f"{at} is fine"


@weft.tool(approval="always")
def mail(context: weft.ToolContext, to: str) -> str:
    """Sends a letter."""
    LETTERS.append(context.key)
    return f"sent to {to}"


HELPER = weft.Agent("helper", "fast", "Help.", [look, mail], limits=weft.Limits(turns=5))
MAILED = by_turn(calls(call(0, "a", "mail", {"to": "Al"})), text("It is sent."))

Scene = Callable[[weft.Runtime, AgentUpstream], Awaitable[None]]


@asynccontextmanager
async def runtime_at(url: str, upstream: str, work: bool = True) -> AsyncIterator[weft.Runtime]:
    options: UpstreamOptions = {"dialect": "openai-chat", "base_url": upstream, "api_key": "k-1"}
    async with weft.Runtime(
        url, [HELPER], upstreams={"m": options}, models={"fast": "m/m"}, work=work
    ) as runtime:
        yield runtime


def play(folder: Path, script: Script, scene: Scene, work: bool = True) -> None:
    async def main(upstream: AgentUpstream) -> None:
        async with runtime_at(empty("sqlite", folder), upstream.url, work) as runtime:
            async with asyncio.timeout(30):
                await scene(runtime, upstream)

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


async def to_wait(run: weft.RunHandle) -> list[str]:
    kinds = []
    async for event in run.events():
        kinds.append(event.kind)
        if event.kind == "run.waiting":
            break
    return kinds


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_goes_on_in_the_next_runtime_on_its_store(kind: Kind, tmp_path: Path) -> None:
    async def main(upstream: AgentUpstream) -> None:
        url = empty(kind, tmp_path)
        async with runtime_at(url, upstream.url) as runtime:
            run = await runtime.start("helper", "Go.", key="one", metadata={"a": "b"})
            kinds = await to_wait(run)
            [pending] = await run.pending()
            assert (pending.id, pending.tool, pending.needs) == ("a", "mail", "approval")
            again = await runtime.start(HELPER, "Go.", key="one")
            assert again.id == run.id
        async with runtime_at(url, upstream.url) as runtime:
            run = await runtime.run(run.id)
            await run.approve(by="Ada", reason="because")
            events = [event async for event in run.events(after=len(kinds))]
            assert await run.result() == weft.RunResult("finished", "It is sent.")
            assert [event.seq for event in events] == [*range(len(kinds) + 1, events[-1].seq + 1)]
            assert (events[0].kind, events[-1].kind) == ("approval.decided", "run.finished")
            decided = {"approval", "call", "approved", "by", "reason"}
            assert events[0].fields.keys() == decided
            assert (events[0].fields["by"], events[0].fields["approved"]) == ("Ada", True)
            assert await run.pending() == []
            await run.approve("a")  # the same again
            with pytest.raises(IllegalEvent):
                await run.approve("a", approve=False)
            with pytest.raises(weft.ArgumentValueError, match="waiting: none"):
                await run.approve()
        assert LETTERS.count(f"{run.id}/a") == 1

    with agent_upstream(MAILED) as upstream:
        asyncio.run(main(upstream))


def test_each_step_is_one_action_and_nothing_happens_beside_it(tmp_path: Path) -> None:
    two = calls(call(0, "a", "look", {"at": "x"}), call(1, "b", "look", {"at": "y"}))

    async def scene(runtime: weft.Runtime, upstream: AgentUpstream) -> None:
        run = await runtime.start("helper", "Go.")
        assert upstream.requests == []
        found: list[tuple[str, list[str]]] = []
        while (step := await runtime.step(run)) is not None:
            name = type(step.action).__name__
            found.append((name, [entry.kind for entry in step.entries]))
        turn = ("StartTurn", ["turn.started", "turn.finished"])
        one_call = ("DispatchCall", ["call.intended", "call.finished"])
        assert found == [turn, one_call, one_call, turn, ("FinishRun", ["run.finished"])]
        assert await runtime.step(run) is None
        assert await run.result() == weft.RunResult("finished", "Fine.")

    play(tmp_path, by_turn(two, text("Fine.")), scene, work=False)


def test_a_run_that_was_stepped_is_finished_by_a_runtime_that_works(tmp_path: Path) -> None:
    async def main(upstream: AgentUpstream) -> None:
        url = empty("sqlite", tmp_path)
        async with runtime_at(url, upstream.url, work=False) as runtime:
            run = await runtime.start("helper", "Go.")
            assert await runtime.step(run) is not None
        async with runtime_at(url, upstream.url) as runtime, asyncio.timeout(30):
            assert (await (await runtime.run(run.id)).result()).output == "Done."
        assert len(upstream.requests) == 2

    script = by_turn(calls(call(0, "a", "look", {"at": "x"})), text("Done."))
    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


def test_a_step_needs_the_run_alone(tmp_path: Path) -> None:
    async def main() -> None:
        url = empty("sqlite", tmp_path)
        store = store_from_url(url)
        await store.open()
        try:
            agent = weft.Agent("helper", "demo/agent")
            async with weft.Runtime(store, [agent], work=False) as runtime:
                run = await runtime.start("helper", "Go.")
                claim = await store.claim_run(run.id, 60.0)
                with pytest.raises(RunBusy, match="another process is working on it"):
                    await runtime.step(run)
                await store.release_run(run.id, claim.epoch, 1, "running", 0.0, None)
                assert await runtime.step(run) is not None
            assert await store.run(run.id) is not None, "a store that was open stays open"
        finally:
            await store.close()

    asyncio.run(main())


def test_how_a_run_ends_otherwise(tmp_path: Path) -> None:
    async def scene(runtime: weft.Runtime, upstream: AgentUpstream) -> None:
        run = await runtime.start("helper", "Go.")
        await to_wait(run)
        await run.cancel("too late")
        assert await run.result() == weft.RunResult("cancelled", "", "too late")
        with pytest.raises(IllegalEvent):
            await run.say("Hello?")
        denied = await runtime.start("helper", "Go.")
        await to_wait(denied)
        with pytest.raises(weft.ArgumentValueError, match="no approval was requested"):
            await denied.approve("other")
        await denied.approve(approve=False)
        assert (await denied.result()).status == "finished"
        few = await runtime.start("helper", "Go.", limits={"turns": 1})
        assert (await few.result()).status == "failed"
        assert "1 turns" in ((await few.result()).error or "")
        assert LETTERS.count(f"{denied.id}/a") == 0

    play(tmp_path, MAILED, scene)


def test_a_runtime_that_is_closed_says_so(tmp_path: Path) -> None:
    async def main(upstream: AgentUpstream) -> None:
        async with runtime_at(empty("sqlite", tmp_path), upstream.url) as runtime:
            run = await runtime.start("helper", "Go.")
            await to_wait(run)
            waiting = asyncio.create_task(run.result())
            await asyncio.sleep(0)
        with pytest.raises(RunNotEnded):
            await waiting
        with pytest.raises(weft.ArgumentValueError, match="async with"):
            await runtime.start("helper", "Go.")

    with agent_upstream(MAILED) as upstream:
        asyncio.run(main(upstream))


def test_what_cannot_be_built_says_why(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/weft.db"

    def built(**options: object) -> None:
        weft.Runtime(url, [HELPER], models={"fast": "m/m"}, upstreams={"m": options})  # type: ignore[dict-item]

    for options, why in (
        ({}, "no preset 'm', and no base_url"),
        ({"preset": "nowhere"}, "no preset 'nowhere'"),
        ({"preset": "azure"}, "base_url is missing"),
        ({"base_url": "http://127.0.0.1:1"}, "dialect None; expected one of openai-chat"),
        ({"base_url": "ftp://x", "dialect": "gemini"}, "base_url: expected http"),
    ):
        with pytest.raises(weft.ArgumentValueError, match=why):
            built(**options)
    with pytest.raises(weft.ArgumentTypeError, match="unknown option 'key'; expected some of"):
        built(key="x")
    with pytest.raises(UnknownModel, match="no model 'fast'"):
        weft.Runtime(url, [HELPER])

    async def scene(runtime: weft.Runtime, upstream: AgentUpstream) -> None:
        with pytest.raises(UnknownAgent):
            await runtime.start("nobody", "Go.")
        with pytest.raises(NotFound):
            await runtime.run("run_none")
        with pytest.raises(weft.ClientError, match=r"limits\.turns"):
            await runtime.start("helper", "Go.", limits={"turns": 50})

    play(tmp_path, MAILED, scene)


WITH_KEY = """
import asyncio, sys, weft
url, upstream = sys.argv[1:]
async def main() -> None:
    options = {"preset": "openai-chat", "base_url": upstream}
    async with weft.Runtime(url, [weft.Agent("a", "m/m")], upstreams={"m": options}) as runtime:
        run = await runtime.start("a", "Go.")
        print((await run.result()).output, [event async for event in run.events()])
asyncio.run(main())
"""


def test_a_key_of_the_environment_is_used_and_never_shown(tmp_path: Path) -> None:
    """The variable is that of the preset."""
    key = "key-of-the-environment"
    with agent_upstream(by_turn(text("Hi."))) as upstream:
        done = subprocess.run(
            [sys.executable, "-c", WITH_KEY, empty("sqlite", tmp_path), upstream.url],
            env={**os.environ, "OPENAI_API_KEY": key},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stdout[:3], upstream.keys) == (0, "Hi.", [f"Bearer {key}"])
    assert key not in done.stdout + done.stderr


PROGRAM = """
import asyncio, sys, weft
from tests.agent_processes import KillingStore, Places
url, upstream = sys.argv[1:]
class FinishingStore(KillingStore):
    finished = asyncio.Event()
    async def finish(self, id, ending):
        done = await super().finish(id, ending)
        self.finished.set()
        return done
async def main() -> None:
    options = {"dialect": "openai-chat", "base_url": upstream}
    agent, store = weft.Agent("helper", "m/m"), FinishingStore(url, Places())
    await store.open()
    async with weft.Runtime(store, [agent], upstreams={"m": options}, lease=0.5) as runtime:
        run = await runtime.start("helper", "Go.", key="one")
        print((await run.result()).output)
        while not all(entry.ended for entry in await store.entries()):
            await store.finished.wait()
            store.finished.clear()
    await store.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_program_that_was_killed_inside_a_turn_goes_on_and_leaves_nothing_behind(
    kind: Kind, tmp_path: Path
) -> None:
    started: list[subprocess.Popen[str]] = []

    def script(messages: list[dict[str, Any]]) -> Chunks:
        if len(started) == 1:
            started[0].kill()
            started[0].wait()
        return text("Hi.")

    async def statuses() -> list[str]:
        store = store_from_url(url)
        await store.open()
        try:
            return sorted(entry.status for entry in await store.entries())
        finally:
            await store.close()

    url = empty(kind, tmp_path)
    with agent_upstream(script) as upstream:
        for _ in range(2):
            command = [sys.executable, "-c", PROGRAM, url, upstream.url]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                started.append(process)
                try:
                    out, _ = process.communicate(timeout=60)
                finally:
                    process.kill()
    assert (out, [one.returncode for one in started]) == ("Hi.\n", [-9, 0])
    assert asyncio.run(statuses()) == ["completed", "failed"]


WITHOUT = """
import sys
for name in ("httptools", "uvicorn", "starlette", "click", "asyncpg", "mcp"):
    sys.modules[name] = None  # as if it were not installed
import weft
agent = weft.Agent("a", "openai/x")
weft.Runtime("sqlite:///weft.db", [weft.Agent("a", "demo/agent")])
try:
    weft.Runtime("sqlite:///weft.db", [agent], upstreams={"openai": {"api_key": "x"}})
except weft.ArgumentValueError as error:
    print(error)
"""


def test_the_demo_needs_no_extra_and_a_missing_one_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    expected = "upstream openai needs an extra: pip install 'weft[gateway]' (httptools is missing)"
    assert done.stdout == expected + "\n"


def test_what_a_child_run_waits_for_is_pending_in_its_parent(tmp_path: Path) -> None:
    script = by_agent(
        B=by_turn(calls(call(0, "x", "helper", {"input": "Mail."})), text("He has.")), H=MAILED
    )
    boss = weft.Agent("boss", "fast", "Boss.", [HELPER])

    async def main(upstream: AgentUpstream) -> None:
        options: UpstreamOptions = {"dialect": "openai-chat", "base_url": upstream.url}
        url = empty("sqlite", tmp_path)
        async with weft.Runtime(
            url, [boss], upstreams={"m": options}, models={"fast": "m/m"}
        ) as runtime:
            run = await runtime.start("boss", "Go.")
            async for event in run.events():
                if event.kind == "call.intended":
                    child = await runtime.run(event.fields["child"])
                    await to_wait(child)
                    [pending] = await run.pending()
                    assert (pending.run, pending.id, pending.needs) == (child.id, "a", "approval")
                    await child.approve(pending.id)
            assert await run.result() == weft.RunResult("finished", "He has.")
            assert await child.result() == weft.RunResult("finished", "It is sent.")

    with agent_upstream(script) as upstream:
        asyncio.run(main(upstream))


def test_the_models_of_agents_that_are_tools_are_checked_too() -> None:
    tool = weft.Agent("tool", "nowhere/m")
    with pytest.raises(UnknownModel, match="nowhere"):
        weft.Runtime("sqlite:///x.db", [weft.Agent("caller", "demo/agent", tools=[tool])])
