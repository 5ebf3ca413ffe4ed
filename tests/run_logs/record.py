"""Records the log of a run with this version of Weft: python -m tests.run_logs.record

A release adds one. The log of a version that was released is never recorded again.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Raw

from tests.agent_processes import runtime_on, to_rest
from tests.agent_upstream import AgentUpstream, Chunks, Script, agent_upstream
from tests.run_logs.recorded import (
    FOLDER,
    RecordedEvent,
    RecordedLog,
    RecordedResponse,
    RecordedRun,
    reached,
    version,
)
from tests.run_logs.scene import carry_to_end, recorded_agent, recorded_model
from tests.stores import empty
from weft.agent.runtime import AgentRuntime
from weft.store.base import Store


def failing_once(script: Script) -> Script:
    """The first question gets no answer: its turn is interrupted."""
    asked = 0

    def answer(messages: list[dict[str, Any]]) -> Chunks | int:
        nonlocal asked
        asked += 1
        return 500 if asked == 1 else script(messages)

    return answer


def record(folder: Path) -> RecordedLog:
    """Plays the run with a store in this folder."""

    async def main(upstream: AgentUpstream) -> RecordedLog:
        url = empty("sqlite", folder)
        async with runtime_on(url, upstream.url, folder, agent=recorded_agent()) as opened:
            runtime, store, _ = opened
            id = await runtime.start("helper", "Go.", metadata={"of": "tests"})
            await to_rest(runtime, id)
            await runtime.add_message(id, "Go on.")
            await carry_to_end(runtime, id)
            calls = (await runtime.state(id)).calls.values()
            return await _read(runtime, store, [id, *(one.child for one in calls if one.child)])

    with agent_upstream(failing_once(recorded_model())) as upstream:
        return asyncio.run(main(upstream))


async def _read(runtime: AgentRuntime, store: Store, ids: list[str]) -> RecordedLog:
    log = RecordedLog([], {}, [])
    for id in ids:
        row, state = await runtime.row(id), await runtime.state(id)
        log.runs.append(RecordedRun(id, row.agent, row.parent, reached(state)))
        log.events[id] = [
            RecordedEvent(id, one.at, Raw(one.body)) async for one in runtime.events(id)
        ]
        for turn in state.turns:
            entry = await store.entry(turn.response)
            if entry is not None and entry.body is not None:
                log.responses.append(RecordedResponse(turn.response, Raw(entry.body)))
    return log


def main() -> None:
    path = FOLDER / f"{version()}.jsonl"
    if path.exists():
        sys.exit(f"{path} exists. If {version()} is not released yet, delete it first.")
    with tempfile.TemporaryDirectory() as folder:
        path.write_text(record(Path(folder)).render())
    print(path)


if __name__ == "__main__":
    main()
