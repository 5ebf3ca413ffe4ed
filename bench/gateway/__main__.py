"""`python -m bench.gateway`: Weft, nginx and no gateway before one upstream, in one table.

Loads: *burst*, whole streams as fast as they go; *paced*, 50 streams with an event every 20 ms;
*plain*, answers that are no streams; and open streams that are silent, for their memory. All of
them take turns, round by round, since machines are noisy; a figure is the median of the rounds.
CPU is that of the gateway's processes alone, from the kernel's clock of each.

Exits 1 when an answer was wrong or an event lost. An aim that is missed is marked; with --strict
that is a failure too.
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
from bench.gateway.asking import Client
from bench.gateway.build import helpers
from bench.gateway.gateways import DIRECT, ONE, PASS_THROUGH, TWO, Gateway, present
from bench.gateway.load import BURST, PACED, PLAIN, SPREAD, WARM, Bench, Broken, Load
from bench.gateway.processes import NotStarted, Server, announced
from bench.gateway.table import Row

BUSY = 0.25
"""A load average above so much for each core is somebody else's."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A gateway that runs, one kind of client, and the row of the two."""

    gateway: Gateway
    server: Server
    client: Client
    row: Row


class Contest:
    """One run of everything. Who gives a wrong answer is out from then on."""

    def __init__(self, bench: Bench, upstream: Server, rounds: int) -> None:
        self._bench = bench
        self._upstream = upstream
        self._rounds = rounds
        self.rows: list[Row] = []
        self.workers: list[float] = []
        self.failures: list[str] = []

    def row(self, gateway: Gateway) -> Row | None:
        """The gateway's first row, unless that is broken."""
        found = next((row for row in self.rows if row.gateway == gateway.name), None)
        return None if found is None or found.broken else found

    def measure(self, gateways: list[Gateway]) -> None:
        with ExitStack() as stack:
            entered = [one for gateway in gateways for one in self._enter(gateway, stack)]
            self.rows += [one.row for one in entered]
            self._take_turns(entered, WARM)
            for number in range(self._rounds):
                _progress(f"round {number + 1} of {self._rounds}")
                running = [one for one in entered if not number or one.gateway.share == 1]
                self._take_turns(running, (BURST, PACED, PLAIN))
        _progress("memory")
        for one in entered:
            self._judge(one, self._memory)

    def compare_workers(self) -> None:
        """Two workers beside one, each with the same many connections."""
        _progress("two workers beside one")
        with ExitStack() as stack:
            both = [*self._enter(ONE, stack)[:1], *self._enter(TWO, stack)]
            self._take_turns(both, WARM)
            for _ in range(self._rounds):
                self._take_turns(both, (SPREAD,))
        if not any(one.row.broken for one in both):
            single, double = (one.row.runs[SPREAD] for one in both)
            self.workers = [two.rate / one.rate for one, two in zip(single, double, strict=True)]

    def _enter(self, gateway: Gateway, stack: ExitStack) -> list[Contestant]:
        starting = gateway.start(self._upstream.port, self._bench.directory)
        server, why = Server(0), None
        try:
            server = stack.enter_context(starting)
        except NotStarted as error:
            why = self._failed(gateway, str(error))
        return [
            Contestant(gateway, server, client, Row(gateway.name, client.name, broken=why))
            for client in gateway.clients
        ]

    def _take_turns(self, contestants: list[Contestant], loads: tuple[Load, ...]) -> None:
        for load in loads:
            for one in contestants:
                self._judge(one, partial(self._run, load))

    def _run(self, load: Load, one: Contestant) -> None:
        run = self._bench.run(one.gateway, one.server, one.client, load)
        one.row.runs[load].append(run)

    def _memory(self, one: Contestant) -> None:
        """In a process of its own: one that has served much has memory to spare."""
        if one.server.pid is None:
            return
        with one.gateway.start(self._upstream.port, self._bench.directory) as server:
            for load in WARM:
                self._bench.run(one.gateway, server, one.client, load.of(0.2))
            one.row.memory.append(self._bench.per_stream(one.gateway, server, one.client))

    def _judge(self, one: Contestant, act: Callable[[Contestant], None]) -> None:
        if one.row.broken:
            return
        try:
            act(one)
        except (Broken, NotStarted) as error:
            one.row.broken = self._failed(one.gateway, str(error))

    def _failed(self, gateway: Gateway, why: str) -> str:
        if gateway.exact:
            self.failures.append(why)
        return why


def _progress(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway")
    parser.add_argument("--rounds", type=int, default=3, help="of each load (3)")
    parser.add_argument("--strict", action="store_true", help="a missed aim is a failure")
    parser.add_argument("--only", action="append", help="measure these gateways alone")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    found, absent = present()
    wanted = [one for one in found if given.only is None or one.name in given.only]
    with TemporaryDirectory(prefix="weft-bench-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # nginx's worker may be another user
        made = helpers(directory)
        say_where(absent if made.note is None else [made.note, *absent])
        with announced(made.upstream, directory / "upstream.log") as upstream:
            contest = Contest(Bench(made.client, directory), upstream, given.rounds)
            contest.measure(wanted)
            if ONE in wanted:
                contest.compare_workers()
    missed = say_result(contest)
    sys.exit(bool(contest.failures) or (given.strict and missed))


def say_where(notes: list[str]) -> None:
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    print(f"{cores} cores, load average {load:.2f} before")
    if load > BUSY * cores:
        print("note: the machine is busy with other things, so CPU costs more and times are longer")
    for note in notes:
        print(f"note: {note}")


def say_result(contest: Contest) -> bool:
    """Returns whether an aim was missed."""
    print("\n".join(table.lines(contest.rows)))
    print(f"load average {os.getloadavg()[0]:.2f} after")
    for failure in contest.failures:
        print(f"FAIL  {failure}")
    weft, direct = contest.row(ONE), contest.row(DIRECT)
    if weft is None or direct is None:
        return False
    print("aims, chat upstream to Responses client:")
    aims = table.aims(weft, direct, contest.row(PASS_THROUGH), contest.workers)
    print(*aims, sep="\n")
    return not all(aim.met for aim in aims)


main()
