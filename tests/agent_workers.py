"""Processes that work on runs, to be killed, frozen and stopped; and a model that waits.

python -m tests.agent_workers STORE UPSTREAM FOLDER LEASE SWEEP RUNS

Starts so many runs, and serves until SIGTERM. SWEEP is the interval of the sweep beside the queue,
or `local` for no queue.
"""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agent_processes import runtime_on
from tests.agent_upstream import Chunks, Script

NEVER = 3600.0
"""Seconds between two sweeps: what happens within a test, happens without one."""


class HeldScript:
    """A script that holds back the answers to one turn, until the test lets them go."""

    def __init__(self, script: Script, turn: int) -> None:
        self._script = script
        self._turn = turn
        self._arrived = threading.Semaphore(0)
        self._held: list[threading.Event] = []
        self._is_open = False

    def __call__(self, messages: list[dict[str, Any]]) -> Chunks | int:
        turn = len([one for one in messages if one["role"] == "assistant"])
        if turn == self._turn:
            mine = threading.Event()
            self._held.append(mine)
            self._arrived.release()
            assert self._is_open or mine.wait(60)
        return self._script(messages)

    async def arrived(self, count: int) -> None:
        """Returns when so many more requests for the turn have come."""
        for _ in range(count):
            assert await asyncio.to_thread(self._arrived.acquire, True, 60)

    def let_go(self) -> None:
        """Answers what is held back, and holds back nothing any more."""
        self._is_open = True
        self.let_go_first(len(self._held))

    def let_go_first(self, count: int) -> None:
        """Answers the first requests that came."""
        for one in self._held[:count]:
            one.set()


class WorkerProcess:
    """A process of this module."""

    def __init__(
        self,
        url: str,
        upstream: str,
        folder: Path,
        lease: float,
        sweep: float | None,
        runs: int,
    ) -> None:
        interval = "local" if sweep is None else str(sweep)
        arguments = [url, upstream, str(folder), str(lease), interval, str(runs)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent_workers", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )

    def is_ready(self) -> None:
        """Returns when it takes work."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        """Sends a signal that ends it; returns its exit code."""
        self.send(number)
        return self.process.wait(60)


@contextmanager
def workers(
    count: int,
    url: str,
    upstream: str,
    folder: Path,
    lease: float,
    sweep: float | None,
    runs: int = 0,
) -> Iterator[list[WorkerProcess]]:
    """So many processes, each of which starts so many runs; those processes that are left at the
    end are killed."""
    started = [WorkerProcess(url, upstream, folder, lease, sweep, runs) for _ in range(count)]
    try:
        for worker in started:
            worker.is_ready()
        yield started
    finally:
        for worker in started:
            worker.end(signal.SIGKILL)
            assert worker.process.stdout is not None
            worker.process.stdout.close()


async def main(
    url: str, upstream: str, folder: Path, lease: float, sweep: float | None, runs: int
) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with runtime_on(url, upstream, folder, lease=lease, sweep=sweep) as (runtime, _, _):
        for _ in range(runs):
            await runtime.start("helper", "Go.")
        print("ready", flush=True)
        await stopped.wait()


if __name__ == "__main__":
    store, model, place, seconds, interval, count = sys.argv[1:]
    swept = None if interval == "local" else float(interval)
    asyncio.run(main(store, model, Path(place), float(seconds), swept, int(count)))
