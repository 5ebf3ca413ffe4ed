"""Where a stretch begins and ends in the log of a run, and what its calls are called."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent_processes import KillingStore
from tests.agent_runs import ASKED, call_of, run_with
from tests.stores import empty
from weft.agent import stretch
from weft.agent.definition import AgentDefinition
from weft.agent.driver import TurnQuestion
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
from weft.agent.runtime import Runtime
from weft.agent.state import RunState
from weft.agent.stretch import StretchStart, StretchStream, public_id, run_of, start_after
from weft.agent.tool_spec import ToolSpec
from weft.parts import ErrorPart, Finish, Part, ResponseMetadata, ToolApprovalRequest
from weft.relay.persistence import FinishResponse, Persistence
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


def stretch_of(
    folder: Path, events: Sequence[AnyRunEvent], answered: set[str], from_start: bool = False
) -> list[Part]:
    """The parts of the stretch that begins with the answers to these calls."""

    async def main() -> list[Part]:
        async with KillingStore.opened(empty("sqlite", folder)) as store:
            stored = [(event.kind, encode_event(event)) for event in events]
            status = "cancelled" if isinstance(events[-1], RunCancelled) else "waiting"
            await store.create_run(
                NewRun(id=RUN, owner="", agent="helper", status=status, events=stored, due=None)
            )
            runtime = Runtime(store, [], NobodyResponds())
            start = await start_after(store, RUN, answered)
            if from_start:
                start = StretchStart(RUN, RunState(RUN))
            stream = StretchStream(runtime, Persistence(store), start, METADATA, label="helper")
            parts: list[Part] = []
            async with asyncio.timeout(10):
                while not stream.ended:
                    parts += await stream.next()
            assert await stream.next() == []
            await stream.close()
            await runtime.close()
            return parts[1:]

    return asyncio.run(main())


class NobodyResponds:
    async def respond(self, question: TurnQuestion, finish: FinishResponse) -> None:
        raise AssertionError("nobody works on this run")


def asked_of(parts: Sequence[Part]) -> list[str]:
    return [part.approval_id for part in parts if isinstance(part, ToolApprovalRequest)]


@pytest.mark.parametrize(
    "rest",
    [
        [NO_B, NO_A],
        # The run waited for the second answer when it came; whoever gave both does not.
        [NO_B, RunWaiting(approvals=("a",)), NO_A],
        # Written while the answer came: nobody waits for it any more.
        [NO_B, NO_A, RunWaiting(approvals=("a",))],
    ],
)
def test_a_wait_that_is_over_does_not_end_a_stretch(
    rest: list[AnyRunEvent], tmp_path: Path
) -> None:
    parts = stretch_of(tmp_path, [*BEGUN, *rest, RunCancelled("me")], {"a", "b"})
    assert parts == CANCELLED


def test_a_stretch_ends_where_the_run_waits_for_another_answer(tmp_path: Path) -> None:
    events = [*BEGUN, NO_B, RunWaiting(approvals=("a",)), NO_A, RunCancelled("me")]
    parts = stretch_of(tmp_path, events, {"b"})
    assert (asked_of(parts), parts[-1]) == ([f"{RUN}_1"], Finish("tool-calls"))
    assert stretch_of(tmp_path, events, {"a"}) == CANCELLED


def test_a_turn_whose_response_was_removed_holds_up_nothing(tmp_path: Path) -> None:
    """The log of the run still says that it was."""
    events = [*BEGUN[:2], TurnFinished(1, 1, "stop"), RunCancelled("me")]
    assert stretch_of(tmp_path, events, set(), from_start=True) == CANCELLED


@given(calls=st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), data=st.data())
def test_the_public_id_of_a_call_leads_back_to_it(calls: list[str], data: st.DataObject) -> None:
    state = run_with(calls=[call_of(id, "x") for id in calls])
    state.id = RUN
    for id in calls:
        public = public_id(state, id)
        assert (run_of(public), stretch.call_of(state, public)) == (RUN, id)
        assert stretch.call_of(state, f"{public}_2") == id  # the same call, told once more
    unknown = data.draw(
        st.sampled_from(["", "a", f"{RUN}_0", f"{RUN}_{len(calls) + 1}", "run_1_1"])
    )
    assert stretch.call_of(state, unknown) is None
