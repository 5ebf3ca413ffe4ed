"""`python -m bench.agent`: what the agent runtime costs.

- The loop: a run of many turns with one call each, against the same turns asked one after the other
  without a run. Both store every response; the difference is what the log of the run, its lease and
  its decisions cost. The model is another process on this machine and answers at once.
- Waiting: what a thousand runs cost that wait for an approval.
- Many at once: how many short runs end in a second.

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
from weft.agent.definition import Limits
from weft.agent.driver import TurnQuestion
from weft.agent.models import RelayModels
from weft.agent.runtime import Agent, Runtime
from weft.agent.tools import tool
from weft.assembler import Response
from weft.codec import fresh_context
from weft.relay.persistence import FinishResponse
from weft.store.records import Ending

TURNS = 24
ROUNDS = 5
MANY = 1000
LOOP: dict[Kind, float] = {"sqlite": 5.0, "postgres": 10.0}
"""Milliseconds that the loop may cost a turn."""


@tool(retry="pure")
async def look(at: int) -> str:
    """Looks at something."""
    return f"{at} is fine"


@tool(approval="always")
async def fire(who: str) -> str:
    """Needs a person's consent."""
    return who


def script(messages: list[dict[str, Any]]) -> Chunks:
    """As many turns with a call as the first message says, and an answer."""
    wish = str(messages[-1]["content"] if len(messages) == 1 else messages[0]["content"])
    turn = len([one for one in messages if one["role"] == "assistant"])
    if wish == "wait":
        return calls(call(0, "a", "fire", {"who": "me"}))
    return calls(call(0, "a", "look", {"at": turn})) if turn < int(wish) else text("Done.")


@contextmanager
def model() -> Iterator[str]:
    """The model in a process of its own; gives its address."""
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


class Recorded:
    """The models of a runtime, with the questions that were asked."""

    def __init__(self, models: RelayModels) -> None:
        self._models = models
        self.questions: list[TurnQuestion] = []

    async def respond(self, question: TurnQuestion, finish: FinishResponse) -> None:
        self.questions.append(question)
        await self._models.respond(question, finish)


async def loop_cost(runtime: Runtime, store: KillingStore, models: Recorded) -> float:
    """Milliseconds a turn, more than the same turns without a run; the median of the rounds."""
    costs = []
    for _ in range(ROUNDS):
        models.questions.clear()
        begun = time.perf_counter()
        id = await runtime.start("worker", str(TURNS))
        last, _ = await to_rest(runtime, id)
        assert last == "run.finished", last
        with_run = time.perf_counter() - begun
        asked = list(models.questions)

        async def finish(id: str, ending: Ending, response: Response) -> bool:
            return await store.finish(id, ending)

        begun = time.perf_counter()
        for question in asked:
            new = fresh_context().ids.mint("resp")
            again = TurnQuestion("", question.model, question.owner, new, question.body)
            await models.respond(again, finish)
        costs.append((with_run - (time.perf_counter() - begun)) / len(asked) * 1000)
    return median(costs)


async def waiting_cost(runtime: Runtime) -> tuple[float, int]:
    """Megabytes and tasks that many waiting runs cost."""
    before, tasks = resident(), len(asyncio.all_tasks())
    ids = [await runtime.start("worker", "wait") for _ in range(MANY)]
    for id in ids:
        last, _ = await to_rest(runtime, id)
        assert last == "run.waiting", last
    return (resident() - before) / 1e6, len(asyncio.all_tasks()) - tasks


async def rate(runtime: Runtime) -> float:
    """Runs of one turn that end in a second."""
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
    recorded: list[Recorded] = []

    def record(models: RelayModels) -> Recorded:
        recorded.append(Recorded(models))
        return recorded[0]

    async with runtime_on(url, upstream, folder, "", agent, record) as (runtime, store, _):
        cost = await loop_cost(runtime, store, recorded[0])
        short = await rate(runtime)
        memory, tasks = await waiting_cost(runtime)
    return [
        Aim(f"{kind}: the loop, a turn", cost, LOOP[kind], "ms"),
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
    with TemporaryDirectory(prefix="weft-bench-") as folder, model() as upstream:
        for kind in given.kind or ["sqlite", "postgres"]:
            for aim in asyncio.run(measure(kind, upstream, Path(folder))):
                print(aim)
                missed += not aim.met
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
