"""`python -m bench.gateway.stalls`: how long the event loop keeps other requests waiting.

The largest inputs of every kind go through one gateway, two at a time; then answers of 1, 8, 20 and
60 MB through one that stores them, streamed, whole, fetched and over WebSocket. How long the loop
goes without a turn is measured in its own process, as CPU time (tests/faults/watched.py). Beside
them a few clients send small requests at an even pace: alone, then to a second gateway on the same
machine, which shares only the CPUs with the large inputs, then to the gateway of the large inputs.
The last two are compared: how many small requests are answered, and how long they take.

The upstream and the clients of the large inputs have the lowest priority: they stand for other
machines.

All of it takes about eight minutes; `--scene`, `--kinds`, `--sizes` and `--clients` choose a part.

Exits 1 when an answer was wrong, or a stall was over the limit.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults import largest
from tests.faults.largest import MB, Case, Watch
from tests.faults.upstream import Upstream, upstream
from tests.faults.watched import STEPS, Measured
from tests.faults.wires import CHAT, DIALECTS, RESPONSES

from bench.gateway.table import Aim

AIM, LIMIT = 50.0, 250.0
"""Milliseconds of the longest stall."""

MAX_FEWER = 20.0
"""Percent: how many fewer small requests may be answered."""

MAX_LATENCY = 50.0
"""Milliseconds: how long 99 % of the small requests may take beside large answers."""

SIZES = (1, 8, 20, 60)
"""Megabytes of the stored answers."""

SMALL_MODEL = "demo/chat"
"""The model of the small requests."""


class Options(argparse.Namespace):
    """What is to be measured."""

    scene: list[str]
    kinds: list[str]
    sizes: list[int]
    clients: list[str]
    size: int
    alone: float


@dataclass
class Completed:
    """The small requests that were answered."""

    times: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def within(self, percent: int) -> float:
        """The milliseconds within which so many per cent of the requests were answered."""
        return sorted(self.times)[len(self.times) * percent // 100]

    def __str__(self) -> str:
        middle, late = self.within(50), self.within(99)
        return f"{self.rate:.1f} a second, p50 {middle:.1f} ms, p99 {late:.1f} ms"


@contextmanager
def small_requests(port: int) -> Iterator[Completed]:
    """Sends small requests while the context is open; its value is complete afterwards."""
    command = [sys.executable, "-m", "bench.gateway.small_requests", str(port), SMALL_MODEL]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        begun, completed = time.perf_counter(), Completed([], 0.0)
        yield completed
        completed.seconds = time.perf_counter() - begun
        written, _ = process.communicate()
        completed.times += json.loads(written)


PAIRS = list(product(DIALECTS, DIALECTS))
SOME_PAIRS = list(zip(DIALECTS, DIALECTS[1:] + DIALECTS[:1], strict=True))

MIX: dict[str, Callable[[Upstream, int], Iterable[Case]]] = {
    "conversations": lambda backend, _: largest.conversations(backend, 10_000, PAIRS),
    "shapes": lambda backend, size: largest.shapes(backend, size, SOME_PAIRS),
    "strings": lambda backend, size: largest.strings(backend, size, SOME_PAIRS),
    "answers": lambda backend, _: largest.answers(backend, 7 * MB, PAIRS),
    "calls": lambda backend, _: largest.calls(backend, 2 * MB, DIALECTS),
    "floods": lambda backend, _: [largest.flooded(backend, 60 * MB, *pair) for pair in SOME_PAIRS],
}
"""Every kind, and every pair of dialects of those whose cost depends on it."""


def run(watch: Watch, backend: Upstream, given: Options) -> list[str]:
    """Runs all cases, two at a time; returns what went wrong."""
    mix = (MIX[kind](backend, given.size * MB) for kind in given.kinds)
    cases, taking = chain.from_iterable(mix), threading.Lock()

    def work() -> list[str]:
        wrong: list[str] = []
        while True:
            with taking:
                case = next(cases, None)
            if case is None:
                return wrong
            wrong += filter(None, [watch.run(case)])

    with ThreadPoolExecutor(2, initializer=_step_back) as pool:
        both = [pool.submit(work) for _ in range(2)]
        return [one for worker in both for one in worker.result()]


def _step_back() -> None:
    """Gives this thread the lowest priority, and those that it starts; on Linux each has its
    own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def histogram(counts: dict[int, int]) -> str:
    found, rows = Counter(counts), []
    for low, high in zip((0, *STEPS), STEPS, strict=False):
        rows.append(f"  {low:>5} … {high:>5} ms {found[high]:>8}")
    return "\n".join(rows)


def inputs(given: Options) -> list[str]:
    """The largest inputs; returns what went wrong."""
    with two_gateways(stores=False) as (backend, watch, elsewhere):
        with small_requests(watch.port) as alone_times:
            time.sleep(given.alone)
        with small_requests(elsewhere.port) as elsewhere_times:
            wrong = run(watch, backend, given)
        watch.stalls()
        with small_requests(watch.port) as together:
            wrong += run(watch, backend, given)
        found = watch.stalls()
    print(f"small requests alone:              {alone_times}")
    print(f"small requests at another gateway: {elsewhere_times}")
    print(f"small requests in the mix:         {together}")
    print(
        Aim(
            "small requests answered, fewer",
            100 * (1 - together.rate / elsewhere_times.rate),
            MAX_FEWER,
            "%",
        )
    )
    return wrong + stalls(found)


def stored(given: Options) -> list[str]:
    """Answers that are stored; returns what went wrong."""
    with (
        two_gateways(stores=True) as (backend, watch, elsewhere),
        ThreadPoolExecutor(1, initializer=_step_back) as pool,
    ):

        def store() -> list[str]:
            found: list[str] = []
            for size in given.sizes:
                found += map(watch.store, largest.stored(backend, size * MB, given.clients))
                if RESPONSES in given.clients:
                    model = backend.script(largest.paragraphs(CHAT, size * MB))
                    found.append(watch.store_over_websocket(f"{CHAT}/{model}"))
            return [wrong for wrong in found if wrong]

        with small_requests(elsewhere.port) as elsewhere_times:
            wrong = pool.submit(store).result()
        watch.stalls()
        with small_requests(watch.port) as together:
            wrong += pool.submit(store).result()
        found = watch.stalls()
    print(f"small requests at another gateway:    {elsewhere_times}")
    print(f"small requests beside stored answers: {together}")
    print(Aim("small requests beside stored answers, p99", together.within(99), MAX_LATENCY, "ms"))
    return wrong + stalls(found)


@contextmanager
def two_gateways(*, stores: bool) -> Iterator[tuple[Upstream, Watch, Watch]]:
    """An upstream, a gateway for large inputs, and one for small requests only."""
    with (
        TemporaryDirectory(prefix="weft-bench-") as one,
        TemporaryDirectory(prefix="weft-bench-") as other,
        upstream(_step_back) as backend,
        largest.watched(Path(one), backend, stores=stores) as watch,
        largest.watched(Path(other), backend, stores=stores) as elsewhere,
    ):
        yield backend, watch, elsewhere


def stalls(found: Measured) -> list[str]:
    """Prints the histogram; returns what is over the limit."""
    print("turns of the loop:")
    print(histogram(found.counts))
    print(Aim("the longest stall", found.worst, AIM, "ms"))
    if found.worst > AIM:
        print(found.where)
    return [f"a stall of {found.worst:.0f} ms"] if found.worst > LIMIT else []


SCENES = {"inputs": inputs, "stored": stored}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.stalls")
    parser.add_argument("--size", type=int, default=30, help="MB of the largest requests")
    parser.add_argument("--alone", type=float, default=10.0, help="seconds without the mix")
    parser.add_argument("--scene", nargs="*", choices=SCENES, default=list(SCENES))
    parser.add_argument("--kinds", nargs="*", choices=MIX, default=list(MIX), help="of inputs")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, help="MB of stored answers")
    parser.add_argument("--clients", nargs="*", choices=DIALECTS, default=DIALECTS)
    given = parser.parse_args(namespace=Options())
    wrong = [one for scene in given.scene for one in SCENES[scene](given)]
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} after")
    for one in wrong:
        print(f"FAIL  {one}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
