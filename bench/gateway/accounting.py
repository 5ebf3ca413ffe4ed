"""`python -m bench.gateway.accounting`: what keys, limits and the ledger cost.

Two gateways take turns, round by round: one without any of these and without a store, and one with
a key that has every limit and a price for every response. Each figure is the median over all rounds
of what the second one cost more than the first one right before or after it: CPU per event of long
streams, in percent, and CPU per request of short answers, in milliseconds.

Two processes of the same program differ by some percent for as long as they live, by where their
memory lies. So there are several pairs of processes, and the medians of each pair are printed, too:
they show how far the figure can be trusted.

Exits 1 when an answer was wrong. An aim that is missed is marked; with --strict that is a failure.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.gateway.build import helpers
from bench.gateway.gateways import ONE_WORKER, WEFT_CONFIG, Gateway
from bench.gateway.load import BURST, PLAIN, WARM_UP, BadAnswers, Bench, Load
from bench.gateway.processes import Server, start_server
from bench.gateway.requests import CHAT, KEY
from bench.gateway.table import Aim

PER_EVENT, PER_REQUEST = 5.0, 0.05
"""Percent of CPU per event, and milliseconds of CPU per request."""

ACCOUNTING_CONFIG = """
reasoning = false

[server.keys.bench]
secret = "{key}"
models = ["up/*"]
requests_per_minute = 100000000
tokens_per_minute = 100000000000
streams = 4000
budget = {{ day = 1000000, month = 1000000, total = 1000000 }}

"""
PRICE = """
[prices."up/{model}"]
input = 1.0
output = 2.0

"""


def accounting_settings(text: str, models: Iterable[str]) -> str:
    """These settings, with a key that has every limit, and prices of these models."""
    before, _, after = text.partition("[upstreams.up]")
    prices = "".join(PRICE.format(model=model) for model in models)
    added = ACCOUNTING_CONFIG.format(key=KEY) + prices
    return before.rstrip() + added + "[upstreams.up]" + after


@contextmanager
def _accounted(upstream: int, directory: Path) -> Iterator[Server]:
    text = WEFT_CONFIG.format(workers=1, upstream=upstream, stored="true")
    settings = directory / "accounted.toml"
    settings.write_text(accounting_settings(text, (BURST.model, PLAIN.model)))
    program = Path(sys.executable).with_name("weft")
    command = [str(program), "serve", "--config", str(settings), "--port", "0"]
    with start_server(command, directory / "accounted.log", directory) as server:
        yield server


ACCOUNTING = Gateway("weft, accounted", _accounted, (CHAT,), ONE_WORKER.prefix)


LOADS: dict[str, Load] = {
    "event": replace(BURST, answers=480),
    "request": replace(PLAIN, answers=2000),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """What the rounds of two processes have cost more with accounting than without."""

    event: list[float]
    """Percent."""

    request: list[float]
    """Milliseconds."""


def measure(bench: Bench, upstream: int, rounds: int) -> Pair:
    """Starts both gateways, and lets them take turns."""
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        both = [
            (one, stack.enter_context(one.start(upstream, bench.directory)))
            for one in (ONE_WORKER, ACCOUNTING)
        ]
        for one, server in both:
            for warm in WARM_UP:
                bench.run(one, server, CHAT, warm)
        for number in range(rounds):
            for what, load in LOADS.items():
                for one, server in both if number % 2 == 0 else both[::-1]:
                    costs[one.name, what].append(bench.run(one, server, CHAT, load).cost)
    event, request = (
        list(zip(costs[ONE_WORKER.name, what], costs[ACCOUNTING.name, what], strict=True))
        for what in LOADS
    )
    return Pair(
        [100 * (accounted / plain - 1) for plain, accounted in event],
        [(accounted - plain) / 1000 for plain, accounted in request],
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.accounting")
    parser.add_argument("--pairs", type=int, default=6, help="of processes")
    parser.add_argument("--rounds", type=int, default=6, help="of each pair")
    parser.add_argument("--strict", action="store_true", help="a missed aim is a failure")
    given = parser.parse_args()
    pairs: list[Pair] = []
    with TemporaryDirectory(prefix="weft-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        made = helpers(directory)
        upstream = stack.enter_context(start_server(made.upstream, directory / "upstream.log"))
        bench = Bench(made.client, directory)
        try:
            for number in range(given.pairs):
                print(f"… pair {number + 1} of {given.pairs}", file=sys.stderr, flush=True)
                pairs.append(measure(bench, upstream.port, given.rounds))
        except BadAnswers as error:
            sys.exit(f"FAIL  {error}")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} after")
    for one in pairs:
        print(
            f"a pair: {median(one.event):+.1f} % an event, {median(one.request):+.3f} ms a request"
        )
    aims = (
        Aim(
            "accounting, CPU an event, more",
            median(chain.from_iterable(one.event for one in pairs)),
            PER_EVENT,
            "%",
        ),
        Aim(
            "accounting, CPU a request, more",
            median(chain.from_iterable(one.request for one in pairs)),
            PER_REQUEST,
            "ms",
        ),
    )
    for aim in aims:
        print(aim)
    sys.exit(given.strict and not all(aim.met for aim in aims))


if __name__ == "__main__":
    main()
