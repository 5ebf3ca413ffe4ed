"""Runs that older versions of Weft began: their logs are folded, and finished, by this one."""

import asyncio
from pathlib import Path
from typing import get_args

import pytest

from tests.agent_processes import KillingStore, runtime_on
from tests.agent_upstream import AgentUpstream, agent_upstream
from tests.run_logs.record import record
from tests.run_logs.recorded import FOLDER, ReachedState, RecordedLog, reached, version
from tests.run_logs.scene import carry_to_end, recorded_agent, recorded_model
from tests.stores import empty, entry
from weft.agent.events import AnyRunEvent, RunCancelled, RunErrored, RunResumed
from weft.agent.status import status_of
from weft.store.records import Ending, NewRun, RunAppend

RECORDED = sorted(FOLDER.glob("*.jsonl"))
LOGS = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)

NOT_IN_THE_SCENE = {RunCancelled, RunErrored, RunResumed}
"""What another run would be needed for, or a server that was down."""


def test_this_version_has_a_log() -> None:
    assert version() in [path.stem for path in RECORDED], "run: python -m tests.run_logs.record"


def test_a_log_that_is_recorded_now_has_every_kind_of_event(tmp_path: Path) -> None:
    log = RecordedLog.parse(record(tmp_path).render())
    kinds = {type(one.event) for events in log.events.values() for one in events}
    assert set(get_args(AnyRunEvent)) - kinds == NOT_IN_THE_SCENE


@LOGS
def test_a_recorded_log_leads_to_the_state_of_then(path: Path) -> None:
    log = RecordedLog.parse(path.read_text())
    assert {run.id: reached(log.state(run.id)) for run in log.runs} == {
        run.id: run.reached for run in log.runs
    }


def cuts(log: RecordedLog) -> list[int]:
    """Where the log of the first run can have stopped: events of one time are of one
    transaction."""
    times = [one.at for one in log.events[log.runs[0].id]]
    return [count for count in range(1, len(times)) if times[count] != times[count - 1]]


async def load(store: KillingStore, log: RecordedLog) -> None:
    """Writes a log into a store, as if its process had died there."""
    for response in log.responses:
        body = bytes(response.body)
        await store.begin(entry(response.id, model="m/m", server=store.server))
        ending = Ending(status="completed", ended=1.0, body=body)
        assert await store.finish(response.id, ending)
    for run in log.runs:
        bodies = [(one.event.kind, bytes(one.body)) for one in log.events[run.id]]
        first = NewRun(
            id=run.id, agent=run.agent, status="running", events=bodies[:1], parent=run.parent
        )
        await store.create_run(first)
        ended = log.has_ended(run.id)
        rest = RunAppend(
            run=run.id,
            at=1,
            events=bodies[1:],
            status=status_of(log.events[run.id][-1].event),
            due=None if ended else 0.0,
            ended=ended,
        )
        assert (await store.append_run(rest)).outcome == "written"


def outcomes(state: ReachedState) -> dict[str, str | None]:
    """The results of the calls. What a model is told of an error may be worded anew."""
    return {id: None if error else text for id, (_, text, error) in state.calls.items()}


@LOGS
@pytest.mark.parametrize(
    "step", [pytest.param(6, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)]
)
def test_a_recorded_log_that_stops_anywhere_is_finished(
    path: Path, step: int, tmp_path: Path
) -> None:
    recorded = RecordedLog.parse(path.read_text())
    unfinished = [
        recorded.renamed(f"x{count}").until(count) for count in cuts(recorded)[step - 1 :: step]
    ]
    url = empty("sqlite", tmp_path)

    async def main(upstream: AgentUpstream) -> None:
        async with KillingStore.opened(url) as store:
            for log in unfinished:
                await load(store, log)
        async with runtime_on(url, upstream.url, tmp_path, agent=recorded_agent()) as opened:
            runtime, _, _ = opened
            for log in unfinished:
                main, *_ = log.runs
                at = len(log.events[main.id])
                assert await carry_to_end(runtime, main.id) == main.reached.end, at
                ended = reached(await runtime.state(main.id))
                assert ended.turns == main.reached.turns, at
                assert outcomes(ended) == outcomes(main.reached), at

    with agent_upstream(recorded_model()) as upstream:
        asyncio.run(main(upstream))
