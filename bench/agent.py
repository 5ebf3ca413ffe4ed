"""`python -m bench.agent`: what the agent runtime costs.

- The loop: a run of many turns with one call each, compared with the same requests without a run,
  one after the other. Both store every response; the difference is what the log of the run, its
  lease and its decisions cost. The model is another process on this machine and answers at once.
- Waiting: what a thousand runs cost that wait for an approval.
- Many at once: how many short runs end per second.

Each on SQLite, and on PostgreSQL if it is installed. Exits 1 beyond a limit.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.agent_processes import KillingStore, runtime_on, to_rest
from tests.agent_upstream import Chunks, agent_upstream, call, calls, text
from tests.stores import Kind, empty

from bench.gateway.table import Aim
from weft.agent.agents import Agent
from weft.agent.definition import Limits
from weft.agent.environment import FinishTurn, TurnRequest
from weft.agent.models import RelayModels
from weft.agent.runtime import AgentRuntime
from weft.agent.tools import tool
from weft.assembler import Response
from weft.codec import fresh_context
from weft.store.records import Ending

TURNS = 24
ROUNDS = 5
MANY = 1000
LOOP_LIMITS: dict[Kind, float] = {"sqlite": 5.0, "postgres": 10.0}
"""Milliseconds per turn that the loop may cost."""


@tool(retry="pure")
async def look(at: int) -> str:
    """Looks at something."""
    return f"{at} is fine"


@tool(approval="always")
async def fire(who: str) -> str:
    """Needs a person's approval."""
    return who


def script(messages: list[dict[str, Any]]) -> Chunks:
    """As many turns with a call as the first message says, and an answer."""
    task = str(messages[-1]["content"] if len(messages) == 1 else messages[0]["content"])
    turn = len([one for one in messages if one["role"] == "assistant"])
    if task == "wait":
        return calls(call(0, "a", "fire", {"who": "me"}))
    return calls(call(0, "a", "look", {"at": turn})) if turn < int(task) else text("Done.")


@contextmanager
def model_process() -> Iterator[str]:
    """Runs the model in a process of its own; yields its URL."""
    command = [sys.executable, "-m", "bench.agent", "--model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.stdout.readline().decode().strip()
        process.stdin.close()


def serve_model() -> None:
    with agent_upstream(script) as upstream:
        print(upstream.url, flush=True)
        sys.stdin.read()


class RecordingModels:
    """The models of a runtime, with the requests that they got."""

    def __init__(self, models: RelayModels) -> None:
        self._models = models
        self.requests: list[TurnRequest] = []

    async def respond(self, request: TurnRequest, finish: FinishTurn) -> None:
        self.requests.append(request)
        await self._models.respond(request, finish)


async def loop_cost(runtime: AgentRuntime, store: KillingStore, models: RecordingModels) -> float:
    """Milliseconds per turn beyond those of the same requests without a run; the median."""
    costs = []
    for _ in range(ROUNDS):
        models.requests.clear()
        begun = time.perf_counter()
        id = await runtime.start("worker", str(TURNS))
        last, _ = await to_rest(runtime, id)
        assert last == "run.finished", last
        with_run = time.perf_counter() - begun
        requests = list(models.requests)

        async def finish(id: str, ending: Ending, response: Response) -> bool:
            return await store.finish(id, ending)

        begun = time.perf_counter()
        for request in requests:
            new = fresh_context().ids.mint("resp")
            again = TurnRequest("", request.model, request.owner, new, request.body)
            await models.respond(again, finish)
        costs.append((with_run - (time.perf_counter() - begun)) / len(requests) * 1000)
    return median(costs)


async def waiting_cost(runtime: AgentRuntime) -> tuple[float, int]:
    """Megabytes and tasks that many waiting runs cost."""
    before, tasks = resident(), len(asyncio.all_tasks())
    ids = [await runtime.start("worker", "wait") for _ in range(MANY)]
    for id in ids:
        last, _ = await to_rest(runtime, id)
        assert last == "run.waiting", last
    return (resident() - before) / 1e6, len(asyncio.all_tasks()) - tasks


async def rate(runtime: AgentRuntime) -> float:
    """Runs of one turn that end per second."""
    begun = time.perf_counter()
    ids = await asyncio.gather(*(runtime.start("worker", "0") for _ in range(MANY)))
    for id in ids:
        last, _ = await to_rest(runtime, id)
        assert last == "run.finished", last
    return MANY / (time.perf_counter() - begun)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def measure(kind: Kind, upstream: str, folder: Path) -> list[Aim]:
    limits = Limits(turns=TURNS + 2)
    agent = Agent("worker", "m/m", "", [look, fire], limits=limits)
    url = empty(kind, folder)
    recorded: list[RecordingModels] = []

    def record(models: RelayModels) -> RecordingModels:
        recorded.append(RecordingModels(models))
        return recorded[0]

    async with runtime_on(url, upstream, folder, "", agent, record) as (runtime, store, _):
        cost = await loop_cost(runtime, store, recorded[0])
        short = await rate(runtime)
        memory, tasks = await waiting_cost(runtime)
    return [
        Aim(f"{kind}: the loop, a turn", cost, LOOP_LIMITS[kind], "ms"),
        Aim(f"{kind}: {MANY} short runs at once", short, 100.0, "a second", at_least=True),
        Aim(f"{kind}: {MANY} waiting runs", memory, 50.0, "MB"),
        Aim(f"{kind}: tasks of {MANY} waiting runs", tasks, 0.0, ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent")
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=["sqlite", "postgres"], action="append")
    given = parser.parse_args()
    if given.model:
        serve_model()
        return
    missed = 0
    with TemporaryDirectory(prefix="weft-bench-") as folder, model_process() as upstream:
        for kind in given.kind or ["sqlite", "postgres"]:
            for aim in asyncio.run(measure(kind, upstream, Path(folder))):
                print(aim)
                missed += not aim.met
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
