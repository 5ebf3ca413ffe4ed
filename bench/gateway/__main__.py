"""`python -m bench.gateway`: Weft, nginx and no gateway in front of one upstream, with limits.

Loads: *burst*, whole streams as fast as they go; *paced*, 5, 50 and 400 streams with an event every
20 ms; *plain*, answers that are no streams; and open streams that are silent, for their memory. All
gateways take turns, round by round, since machines are noisy; a figure is the median of the rounds,
and a ratio is the median of the ratios of each round. CPU is that of the gateway's processes alone,
read from the kernel's CPU clock of each process.

Prints all figures, then those that have limits as a table in Markdown. Exits 1 when an answer was
wrong, an event lost, or a figure is beyond its limit; with --strict, when an aim is missed.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.gateway import table
from bench.gateway.build import helpers
from bench.gateway.gateways import (
    DIRECT,
    NGINX_GATEWAY,
    ONE_WORKER,
    STORING,
    TWO_WORKERS,
    Gateway,
    available,
)
from bench.gateway.load import (
    BURST,
    FEW,
    MANY,
    PACED,
    PLAIN,
    SPREAD,
    STORING_LOAD,
    WARM_UP,
    BadAnswers,
    Bench,
    Load,
)
from bench.gateway.processes import NotStarted, Server, start_server
from bench.gateway.requests import Client
from bench.gateway.table import Row

BUSY = 0.25
"""Load average per core above which other programs keep the machine busy."""


QUICK = 0.4
"""The share of each load in a quick run."""

NGINX, WEFT, STORED = (
    (NGINX_GATEWAY.name, "chat"),
    (ONE_WORKER.name, "responses"),
    (STORING.name, "responses"),
)
ALL = None
MEASURED: dict[Load, tuple[tuple[str, str], ...] | None] = {
    BURST: ALL,
    PLAIN: ALL,
    PACED: ((DIRECT.name, "chat"), NGINX, WEFT),
    FEW: (NGINX, WEFT),
    MANY: (NGINX, WEFT),
    STORING_LOAD: (WEFT, STORED),
}
"""The gateways, each with its client, that are measured under each load."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running gateway, one kind of client, and their row in the table."""

    gateway: Gateway
    server: Server
    client: Client
    row: Row


class Comparison:
    """One run of everything. A gateway that gives a wrong answer is not measured any further."""

    def __init__(self, bench: Bench, upstream: Server, rounds: int, share: float) -> None:
        self._bench = bench
        self._upstream = upstream
        self._rounds = rounds
        self._share = share
        self.rows: list[Row] = []
        self.workers: list[float] = []
        self.failures: list[str] = []

    def measure(self, gateways: list[Gateway]) -> None:
        with ExitStack() as stack:
            candidates = [one for gateway in gateways for one in self._start(gateway, stack)]
            self.rows += [one.row for one in candidates]
            self._take_turns(candidates, WARM_UP)
            for number in range(self._rounds):
                _progress(f"round {number + 1} of {self._rounds}")
                running = [one for one in candidates if not number or one.gateway.share == 1]
                # Every second round in the opposite order: who comes second finds other caches.
                self._take_turns(running if number % 2 == 0 else running[::-1], tuple(MEASURED))
        _progress("memory")
        for one in candidates:
            if one.gateway is not STORING:
                self._try(one, self._memory)

    def compare_workers(self) -> None:
        """Compares two workers with one, under the same number of connections."""
        _progress("two workers compared with one")
        with ExitStack() as stack:
            both = [*self._start(ONE_WORKER, stack)[:1], *self._start(TWO_WORKERS, stack)]
            self._take_turns(both, WARM_UP)
            for _ in range(self._rounds):
                self._take_turns(both, (SPREAD,))
        if not any(one.row.broken for one in both):
            single, double = (one.row.runs[SPREAD] for one in both)
            self.workers = [two.rate / one.rate for one, two in zip(single, double, strict=True)]

    def _start(self, gateway: Gateway, stack: ExitStack) -> list[Candidate]:
        starting = gateway.start(self._upstream.port, self._bench.directory)
        server, why = Server(0), None
        try:
            server = stack.enter_context(starting)
        except NotStarted as error:
            why = self._record_failure(gateway, str(error))
        return [
            Candidate(gateway, server, client, Row(gateway.name, client.name, broken=why))
            for client in gateway.clients
        ]

    def _take_turns(self, candidates: list[Candidate], loads: tuple[Load, ...]) -> None:
        for load in loads:
            measured = MEASURED.get(load)
            for one in candidates:
                if measured is None or (one.row.gateway, one.row.client) in measured:
                    self._try(one, partial(self._run, load))

    def _run(self, load: Load, one: Candidate) -> None:
        part = load if load in WARM_UP else load.of(self._share)
        run = self._bench.run(one.gateway, one.server, one.client, part)
        one.row.runs[load].append(run)

    def _memory(self, one: Candidate) -> None:
        if one.server.pid is None:
            return
        with one.gateway.start(self._upstream.port, self._bench.directory) as server:
            one.row.memory = self._bench.memory(one.gateway, server, one.client)

    def _try(self, one: Candidate, act: Callable[[Candidate], None]) -> None:
        if one.row.broken:
            return
        try:
            act(one)
        except (BadAnswers, NotStarted) as error:
            one.row.broken = self._record_failure(one.gateway, str(error))

    def _record_failure(self, gateway: Gateway, why: str) -> str:
        if gateway.exact:
            self.failures.append(why)
        return why


def _progress(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway")
    parser.add_argument("--rounds", type=int, default=3, help="of each load (3)")
    parser.add_argument("--quick", action="store_true", help="one round of shorter loads")
    parser.add_argument("--strict", action="store_true", help="a missed aim is a failure")
    parser.add_argument("--only", action="append", help="measure these gateways alone")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    # By an exception, so that the processes that were started are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    gateways_here, missing = available()
    wanted = [one for one in gateways_here if given.only is None or one.name in given.only]
    with TemporaryDirectory(prefix="weft-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # nginx's worker may be another user
        made = helpers(directory)
        print_machine(missing if made.note is None else [made.note, *missing])
        with start_server(made.upstream, directory / "upstream.log") as upstream:
            rounds, share = (1, QUICK) if given.quick else (given.rounds, 1.0)
            comparison = Comparison(Bench(made.client, directory), upstream, rounds, share)
            comparison.measure(wanted)
            if ONE_WORKER in wanted:
                comparison.compare_workers()
    sys.exit(print_results(comparison, strict=given.strict))


def print_machine(notes: list[str]) -> None:
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    print(f"{cores} cores, load average {load:.2f} before")
    if load > BUSY * cores:
        print("note: other programs keep the machine busy, so CPU figures and times are higher")
    for note in notes:
        print(f"note: {note}")


def print_results(comparison: Comparison, *, strict: bool) -> bool:
    """Returns whether the run has failed."""
    print("\n".join(table.lines(comparison.rows)))
    print(f"load average {os.getloadavg()[0]:.2f} after\n")
    measured = table.measure(comparison.rows, comparison.workers)
    print("\n".join(table.markdown(measured)))
    for failure in comparison.failures:
        print(f"FAIL  {failure}")
    allowed = {"ok"} if strict else {"ok", "ok, aim missed"}
    verdicts = {limit.verdict(measured[name]) for name, limit in table.LIMITS.items()}
    return bool(comparison.failures or verdicts - {*allowed, "not measured"})


main()
