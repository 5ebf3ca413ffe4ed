"""`python -m bench.gateway.accounting`: what keys, limits and the ledger cost.

Two gateways take turns, round by round: one without any of these and without a store, and one with
a key that has every limit and a price for every response. The figures compare the best rounds of
both, which other programs on the machine have disturbed least: CPU per event of long streams, as a
ratio, and CPU per request of short answers, as a difference.

Exits 1 when an answer was wrong. An aim that is missed is marked; with --strict that is a failure.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.accounting")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--strict", action="store_true", help="a missed aim is a failure")
    given = parser.parse_args()
    loads: dict[str, Load] = {
        "event": replace(BURST, answers=1280),
        "request": replace(PLAIN, answers=4000),
    }
    costs: dict[tuple[str, str], list[float]] = {}
    with TemporaryDirectory(prefix="weft-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        made = helpers(directory)
        upstream = stack.enter_context(start_server(made.upstream, directory / "upstream.log"))
        bench = Bench(made.client, directory)
        both = [
            (one, stack.enter_context(one.start(upstream.port, directory)))
            for one in (ONE_WORKER, ACCOUNTING)
        ]
        try:
            for one, server in both:
                for warm in WARM_UP:
                    bench.run(one, server, CHAT, warm)
            for number in range(given.rounds):
                print(f"… round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
                for one, server in both if number % 2 == 0 else both[::-1]:
                    for what, load in loads.items():
                        run = bench.run(one, server, CHAT, load)
                        costs.setdefault((one.name, what), []).append(run.cost)
        except BadAnswers as error:
            sys.exit(f"FAIL  {error}")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} after")
    for (gateway, what), found in costs.items():
        print(f"{gateway}: {min(found):.2f} µs CPU per {what} (median {median(found):.2f})")
    best = {one: min(found) for one, found in costs.items()}
    ratio = best[ACCOUNTING.name, "event"] / best[ONE_WORKER.name, "event"]
    difference = best[ACCOUNTING.name, "request"] - best[ONE_WORKER.name, "request"]
    aims = (
        Aim("accounting, CPU an event, more", 100 * (ratio - 1), PER_EVENT, "%"),
        Aim("accounting, CPU a request, more", difference / 1000, PER_REQUEST, "ms"),
    )
    for aim in aims:
        print(aim)
    sys.exit(given.strict and not all(aim.met for aim in aims))


if __name__ == "__main__":
    main()
