"""`python -m bench.gateway.storing`: what it costs to keep what is streamed.

Two gateways that differ in nothing but the store take turns, round by round, under the same load
of many streams at once. The figure is the median of the rounds' ratios of CPU an event, threads
that write included. While the streams run, somebody asks for /health again and again: how long
that takes is how long the event loop lets others wait.

Exits 1 when an answer was wrong, or storing costs more than it may (20 %; the aim is 15 %).
"""

import argparse
import http.client
import os
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.gateway.asking import RESPONSES
from bench.gateway.build import helpers
from bench.gateway.gateways import KEEPING, ONE, Gateway
from bench.gateway.load import WARM, Bench, Broken, Load
from bench.gateway.processes import Server, announced
from bench.gateway.table import Aim

AIM, LIMIT = 15.0, 20.0
"""Per cent of CPU an event."""

LAG = 20.0
"""Milliseconds that /health may take, of 99 in 100 requests."""

EVERY = 0.005


def load(streams: int) -> Load:
    """So many streams, each with an event every 300 ms: half of what a core can do. They begin over
    10 seconds. 200 tokens are what people get who chat; what it costs that a response begins and
    ends weighs twice as much where an answer is half as long."""
    return Load("paced-200-300", 200, streams, streams, stagger=10_000_000 // streams)


class Probe:
    """Asks for /health while something else goes on."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.times: list[float] = []

    def __enter__(self) -> "Probe":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        while not self._over.wait(EVERY):
            begun = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            self.times.append((time.perf_counter() - begun) * 1000)
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.storing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=1000)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="weft-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        made = helpers(directory)
        upstream = stack.enter_context(announced(made.upstream, directory / "upstream.log"))
        bench = Bench(made.client, directory)
        both: list[tuple[Gateway, Server]] = [
            (one, stack.enter_context(one.start(upstream.port, directory)))
            for one in (ONE, KEEPING)
        ]
        costs: dict[str, list[float]] = {one.name: [] for one, _ in both}
        lags: list[float] = []
        try:
            for one, server in both:
                bench.run(one, server, RESPONSES, WARM[0])
            for number in range(given.rounds):
                print(f"… round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
                for one, server in both if number % 2 == 0 else both[::-1]:
                    with Probe(server) as probe:
                        run = bench.run(one, server, RESPONSES, load(given.streams))
                    costs[one.name].append(run.cost)
                    lags += probe.times if one is KEEPING else []
        except Broken as error:
            sys.exit(f"FAIL  {error}")
    plain, kept = costs[ONE.name], costs[KEEPING.name]
    more = median(100 * (b / a - 1) for a, b in zip(plain, kept, strict=True))
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} after")
    print(f"{given.streams} streams: {median(plain):.1f} µs an event, stored {median(kept):.1f}")
    lags.sort()
    print(Aim("storing, CPU an event, more", more, AIM, "%"))
    print(Aim("/health beside it, p99", lags[len(lags) * 99 // 100], LAG, "ms"))
    sys.exit(more > LIMIT)


if __name__ == "__main__":
    main()
