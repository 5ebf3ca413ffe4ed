"""`python -m bench.gateway.storing`: what it costs to store what is streamed.

Two gateways that differ in nothing but the store take turns, round by round, under the same load
of many streams at once. The figure is the median of the ratios of CPU per event in each round,
with the threads that write. While the streams run, /health is requested again and again: how long
that takes shows how long the event loop keeps other requests waiting.

Exits 1 when an answer was wrong, or storing costs more than its limit (15 %; the aim is 10 %).
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

from bench.gateway.build import helpers
from bench.gateway.gateways import ONE_WORKER, STORING, Gateway
from bench.gateway.load import WARM_UP, BadAnswers, Bench, Load
from bench.gateway.processes import Server, start_server
from bench.gateway.requests import RESPONSES
from bench.gateway.table import Aim

AIM, LIMIT = 10.0, 15.0
"""Percent of CPU per event."""

MAX_LAG = 5.0
"""Milliseconds that /health may take, of 99 in 100 requests."""

INTERVAL = 0.005


def load(streams: int) -> Load:
    """That many streams of 100 tokens, with an event every 300 ms: half of what a core can do. They
    begin within 10 seconds."""
    return Load("paced-100-300", 100, streams, streams, stagger=10_000_000 // streams)


class HealthProbe:
    """Requests /health again and again while something else goes on."""

    def __init__(self, server: Server) -> None:
        self._port = server.port
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self.times: list[float] = []

    def __enter__(self) -> "HealthProbe":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _poll(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        while not self._stopped.wait(INTERVAL):
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
        upstream = stack.enter_context(start_server(made.upstream, directory / "upstream.log"))
        bench = Bench(made.client, directory)
        both: list[tuple[Gateway, Server]] = [
            (one, stack.enter_context(one.start(upstream.port, directory)))
            for one in (ONE_WORKER, STORING)
        ]
        costs: dict[str, list[float]] = {one.name: [] for one, _ in both}
        lags: list[float] = []
        try:
            for one, server in both:
                bench.run(one, server, RESPONSES, WARM_UP[0])
            for number in range(given.rounds):
                print(f"… round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
                for one, server in both if number % 2 == 0 else both[::-1]:
                    with HealthProbe(server) as probe:
                        run = bench.run(one, server, RESPONSES, load(given.streams))
                    costs[one.name].append(run.cost)
                    lags += probe.times if one is STORING else []
        except BadAnswers as error:
            sys.exit(f"FAIL  {error}")
    plain, stored = costs[ONE_WORKER.name], costs[STORING.name]
    more = median(100 * (b / a - 1) for a, b in zip(plain, stored, strict=True))
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} after")
    print(f"{given.streams} streams: {median(plain):.1f} µs an event, stored {median(stored):.1f}")
    lags.sort()
    print(Aim("storing, CPU an event, more", more, AIM, "%"))
    print(Aim("/health beside it, p99", lags[len(lags) * 99 // 100], MAX_LAG, "ms"))
    sys.exit(more > LIMIT)


if __name__ == "__main__":
    main()
