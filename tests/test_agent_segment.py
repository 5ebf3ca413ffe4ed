"""Where a segment begins and ends in the log of a run, and what its calls are called."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent_processes import KillingStore, Places, tools_in
from tests.agent_runs import ASKED, call_of, run_with
from tests.agent_upstream import agent_upstream, by_turn, call, calls, text
from tests.stores import empty
from weft.agent import segment
from weft.agent.agents import Agent
from weft.agent.definition import AgentDefinition
from weft.agent.environment import FinishTurn, TurnRequest
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    RunCancelled,
    RunCreated,
    RunWaiting,
    TurnFinished,
    TurnStarted,
    encode_event,
)
from weft.agent.runtime import AgentRuntime
from weft.agent.segment import SegmentStart, SegmentStream, public_id, run_of, start_after
from weft.agent.state import RunState
from weft.agent.tool_spec import ToolSpec
from weft.assembler import Assembler
from weft.lifecycle import violations
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    ResponseMetadata,
    TextDelta,
    ToolApprovalRequest,
    ToolCall,
    ToolResult,
)
from weft.relay.persistence import Persistence
from weft.store.records import NewRun

RUN = f"run_{'0' * 32}"
METADATA = ResponseMetadata("resp_out")
AGENT = AgentDefinition("helper", "m", tools=(ToolSpec("fire", approval="always"),))
BEGUN: list[AnyRunEvent] = [
    RunCreated(AGENT, (ASKED,)),
    TurnStarted(1, 1, "resp_1"),
    TurnFinished(
        1, 1, "tool-calls", calls=(call_of("a", "fire", "ask"), call_of("b", "fire", "ask"))
    ),
    ApprovalRequested("appr_a", "a", "", 9e9),
    ApprovalRequested("appr_b", "b", "", 9e9),
    RunWaiting(approvals=("a", "b")),
]
NO_A, NO_B = (ApprovalDecided(f"appr_{id}", id, False, "me") for id in "ab")
CANCELLED = [ErrorPart("cancelled", "the run was cancelled"), Finish("error")]


def segment_of(
    folder: Path, events: Sequence[AnyRunEvent], answered: set[str], from_start: bool = False
) -> list[Part]:
    """The parts of the segment that begins with the answers to these calls."""

    async def main() -> list[Part]:
        async with KillingStore.opened(empty("sqlite", folder)) as store:
            stored = [(event.kind, encode_event(event)) for event in events]
            status = "cancelled" if isinstance(events[-1], RunCancelled) else "waiting"
            await store.create_run(
                NewRun(id=RUN, owner="", agent="helper", status=status, events=stored, due=None)
            )
            runtime = AgentRuntime(store, [], NobodyResponds())
            start = await start_after(store, RUN, answered)
            if from_start:
                start = SegmentStart(RUN, RunState(RUN))
            stream = SegmentStream(runtime, Persistence(store), start, METADATA, label="helper")
            async with asyncio.timeout(10):
                parts = await read_all(stream)
            assert await stream.next() == []
            await stream.close()
            await runtime.close()
            return parts[1:]

    return asyncio.run(main())


class NobodyResponds:
    async def respond(self, request: TurnRequest, finish: FinishTurn) -> None:
        raise AssertionError("nobody works on this run")


def asked_of(parts: Sequence[Part]) -> list[str]:
    return [part.approval_id for part in parts if isinstance(part, ToolApprovalRequest)]


@pytest.mark.parametrize(
    "rest",
    [
        [NO_B, NO_A],
        # The run waited for the second answer when it came; whoever gave both does not.
        [NO_B, RunWaiting(approvals=("a",)), NO_A],
    ],
)
def test_a_wait_that_is_over_does_not_end_a_segment(
    rest: list[AnyRunEvent], tmp_path: Path
) -> None:
    parts = segment_of(tmp_path, [*BEGUN, *rest, RunCancelled("me")], {"a", "b"})
    assert parts == CANCELLED


def test_a_segment_ends_where_the_run_waits_for_another_answer(tmp_path: Path) -> None:
    events = [*BEGUN, NO_B, RunWaiting(approvals=("a",)), NO_A, RunCancelled("me")]
    parts = segment_of(tmp_path, events, {"b"})
    assert (asked_of(parts), parts[-1]) == ([f"{RUN}_1"], Finish("tool-calls"))
    assert segment_of(tmp_path, events, {"a"}) == CANCELLED


def test_a_turn_whose_response_was_removed_holds_up_nothing(tmp_path: Path) -> None:
    """The log of the run still says that it was."""
    events = [*BEGUN[:2], TurnFinished(1, 1, "stop"), RunCancelled("me")]
    assert segment_of(tmp_path, events, set(), from_start=True) == CANCELLED


@given(calls=st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), data=st.data())
def test_the_public_id_of_a_call_leads_back_to_it(calls: list[str], data: st.DataObject) -> None:
    state = run_with(calls=[call_of(id, "x") for id in calls])
    state.id = RUN
    for id in calls:
        public = public_id(state, id)
        assert (run_of(public), segment.call_of(state, public)) == (RUN, id)
        assert segment.call_of(state, f"{public}_2") == id  # the same call, told once more
    unknown = data.draw(
        st.sampled_from(["", "a", f"{RUN}_0", f"{RUN}_{len(calls) + 1}", "run_1_1"])
    )
    assert segment.call_of(state, unknown) is None


# Processes that die

TALKING: list[dict[str, object]] = [
    {"delta": {"role": "assistant", "content": "I look."}},
    *calls(call(0, "a", "look", {"at": "it"})),
]
TURNS = by_turn(TALKING, text("All is fine."))


def worker(url: str, upstream: str, folder: Path, kill: str) -> int:
    """Works on the run until it ends, or until the process is killed at this place."""
    command = [sys.executable, "-m", "tests.agent_processes", url, upstream, str(folder), "local"]
    return subprocess.run([*command, kill], capture_output=True, timeout=60).returncode


@pytest.mark.long
@pytest.mark.parametrize("kill", ["before:1", "after:1", "before:2", "before:3", "effect:1"])
def test_a_segment_goes_on_with_the_process_that_takes_over(kill: str, tmp_path: Path) -> None:
    url = empty("sqlite", tmp_path)

    async def main(upstream: str) -> None:
        async with KillingStore.opened(url) as store:
            agent = Agent("helper", "m/m", "Help.", tools_in(tmp_path, Places()))
            runtime = AgentRuntime(store, [agent], NobodyResponds())
            run = await runtime.start("helper", "Go.", key="the run")
            start = SegmentStart(run, RunState(run))
            stream = SegmentStream(runtime, Persistence(store), start, METADATA, label="helper")
            reading = asyncio.create_task(read_all(stream))
            assert await asyncio.to_thread(worker, url, upstream, tmp_path, kill) == -9
            assert not reading.done()
            assert await asyncio.to_thread(worker, url, upstream, tmp_path, "") == 0
            parts = await reading
            await stream.close()
            await runtime.close()
            assert violations(parts, Assembler()) == []
            told = [part.name for part in parts if isinstance(part, ToolCall)]
            assert told == ["look"]
            assert len([part for part in parts if isinstance(part, ToolResult)]) == 1
            words = [part.delta for part in parts if isinstance(part, TextDelta)]
            # An attempt that died may have shown something; the one that counts is whole.
            assert words[-2:] == ["I look.", "All is fine."]
            assert parts[-1] == Finish("stop", raw_reason="completed")
            events = await store.run_events(run, kinds=["turn.interrupted"])
            assert [one.code for one in stream.findings.found] == ["turn-interrupted"] * len(events)

    with agent_upstream(TURNS) as upstream:
        asyncio.run(main(upstream.url))


async def read_all(stream: SegmentStream) -> list[Part]:
    parts: list[Part] = []
    while not stream.ended:
        parts += await stream.next()
    return parts
