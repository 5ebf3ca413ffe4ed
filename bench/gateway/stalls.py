"""`python -m bench.gateway.stalls`: how long the event loop lets others wait.

The largest inputs of every kind go through one gateway, two at a time; then answers of 1, 8, 20 and
60 MB through one that stores them, streamed, whole and fetched. How long the loop goes without a
turn is measured in its own process, as time of the CPU (tests/faults/watched.py). Beside them a few
clients go on with small requests at an even pace: alone, then at a second gateway on the same
machine, which has only the CPUs in common with the mix, then in the mix itself. The last two are
compared: what they get done, and how long it takes them.

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
from collections.abc import Iterator
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
from tests.faults.wires import DIALECTS

from bench.gateway.table import Aim

AIM, LIMIT = 50.0, 250.0
"""Milliseconds of the longest stall."""

LESS = 20.0
"""Per cent: how much less others may get done."""

LATE = 50.0
"""Milliseconds: how long nearly every small request beside large answers may take."""

SIZES = (1, 8, 20, 60)
"""Megabytes of the stored answers."""

SMALL = "demo/chat"
"""What others ask for."""


@dataclass
class Done:
    """What others got done."""

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
def others(port: int) -> Iterator[Done]:
    """While inside, others ask for small things; afterwards it is known what they got done."""
    command = [sys.executable, "-m", "bench.gateway.others", str(port), SMALL]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        begun, done = time.perf_counter(), Done([], 0.0)
        yield done
        done.seconds = time.perf_counter() - begun
        written, _ = process.communicate()
        done.times += json.loads(written)


def mix(far: Upstream, size: int) -> Iterator[Case]:
    """Every kind, and every pair of dialects of those whose cost depends on it."""
    pairs = list(product(DIALECTS, DIALECTS))
    some = [(one, other) for one, other in zip(DIALECTS, DIALECTS[1:] + DIALECTS[:1], strict=True)]
    return chain(
        largest.conversations(far, 10_000, pairs),
        largest.shapes(far, size, some),
        largest.strings(far, size, some),
        largest.answers(far, 7 * MB, pairs),
        largest.calls(far, 2 * MB, DIALECTS),
        [largest.flooded(far, 60 * MB, client, target) for client, target in some],
    )


def run(watch: Watch, far: Upstream, size: int) -> list[str]:
    """Does all of it, two at a time; returns what went wrong."""
    cases, taking = mix(far, size), threading.Lock()

    def work() -> list[str]:
        wrong: list[str] = []
        while True:
            with taking:
                case = next(cases, None)
            if case is None:
                return wrong
            wrong += filter(None, [watch.run(case)])

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(work) for _ in range(2)]
        return [one for done in both for one in done.result()]


def shown(counts: dict[int, int]) -> str:
    found, rows = Counter(counts), []
    for low, high in zip((0, *STEPS), STEPS, strict=False):
        rows.append(f"  {low:>5} … {high:>5} ms {found[high]:>8}")
    return "\n".join(rows)


def inputs(size: int, alone: float) -> list[str]:
    """The largest inputs; returns what went wrong."""
    with two_gateways(stores=False) as (far, watch, elsewhere):
        with others(watch.port) as before:
            time.sleep(alone)
        with others(elsewhere.port) as apart:
            wrong = run(watch, far, size)
        watch.stalls()
        with others(watch.port) as beside:
            wrong += run(watch, far, size)
        found = watch.stalls()
    print(f"others alone:             {before}")
    print(f"others at another gateway: {apart}")
    print(f"others in the mix:        {beside}")
    print(Aim("what others get done, less", 100 * (1 - beside.rate / apart.rate), LESS, "%"))
    return wrong + stalls(found)


def stored() -> list[str]:
    """Answers that are stored; returns what went wrong."""
    with two_gateways(stores=True) as (far, watch, elsewhere):

        def store() -> list[str]:
            cases = (case for size in SIZES for case in largest.stored(far, size * MB, DIALECTS))
            return [wrong for case in cases if (wrong := watch.store(case))]

        with others(elsewhere.port) as apart:
            wrong = store()
        watch.stalls()
        with others(watch.port) as beside:
            wrong += store()
        found = watch.stalls()
    print(f"others at another gateway:    {apart}")
    print(f"others beside stored answers: {beside}")
    print(Aim("small requests beside stored answers, p99", beside.within(99), LATE, "ms"))
    return wrong + stalls(found)


@contextmanager
def two_gateways(*, stores: bool) -> Iterator[tuple[Upstream, Watch, Watch]]:
    """An upstream, a gateway for large things and one for nothing else than small ones."""
    with (
        TemporaryDirectory(prefix="weft-bench-") as one,
        TemporaryDirectory(prefix="weft-bench-") as other,
        upstream() as far,
        largest.watched(Path(one), far, stores=stores) as watch,
        largest.watched(Path(other), far, stores=stores) as elsewhere,
    ):
        yield far, watch, elsewhere


def stalls(found: Measured) -> list[str]:
    """Prints the histogram; returns what is over the limit."""
    print("turns of the loop:")
    print(shown(found.counts))
    print(Aim("the longest stall", found.worst, AIM, "ms"))
    if found.worst > AIM:
        print(found.where)
    return [f"a stall of {found.worst:.0f} ms"] if found.worst > LIMIT else []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.stalls")
    parser.add_argument("--size", type=int, default=30, help="MB of the largest requests")
    parser.add_argument("--alone", type=float, default=10.0, help="seconds without the mix")
    given = parser.parse_args()
    wrong = inputs(given.size * MB, given.alone) + stored()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} after")
    for one in wrong:
        print(f"FAIL  {one}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
