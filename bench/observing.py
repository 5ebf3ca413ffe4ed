"""`python -m bench.observing`: the CPU time that metrics and traces take.

A stream goes through the relay with and without them, in turns, so that other programs on the
machine slow down both alike. CPU time is that of the whole process, with all threads. Exits 1 if a
figure is over its limit.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

from tests.otlp import collector
from tests.played import Play, Played
from tests.test_relay_run import DONE, HEAD, HELLO, STOP, incoming_request, upstream_config

from weft.gateway.metrics import Metrics, ModelLabels
from weft.gateway.settings.schema import OtelSettings
from weft.gateway.telemetry import Telemetry
from weft.gateway.worker_metrics import MetricsFolder
from weft.prices import Price, PriceTable
from weft.relay.incoming import RequestLimits
from weft.relay.request_record import Observer, RequestRecord
from weft.relay.routing import Routing
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.sse import Event

EVENTS = 500
REQUESTS = 20
ROUNDS = 15
RECORDS = 5_000
PER_REQUEST = 0.05
"""Milliseconds of CPU that a request may cost, with keys and the ledger."""

PER_EVENT = 5.0
"""Percent of the CPU of an event."""

USAGE = b'data: {"id":"1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":500}}\n\n'
SCRUB = Scrubber([])


async def run_stream(observers: Sequence[Observer], events: int) -> None:
    """Runs one request whose stream has that many events."""
    frames: list[bytes] = [HEAD, *[HELLO] * events, STOP, USAGE, DONE]
    upstream = Played(upstream_config(), Play(frames))
    routing = Routing({"a": upstream}, {})
    run = Run(incoming_request(), routing.targets("a/m"), RequestLimits(), SCRUB, observers)
    stream = await run.open()

    def write(events: list[Event]) -> bool:
        return True

    while await stream.next():
        await stream.flow(write)
    await run.close()


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def metrics() -> Metrics:
    prices = PriceTable({"a/m": Price(input=1.0, output=2.0)})
    return Metrics(["a/m"], SCRUB, prices.cost_of)


def record() -> RequestRecord:
    """The record of a stream."""
    found: list[RequestRecord] = []
    asyncio.run(run_stream([found.append], 10))
    return found[0]


def metrics_cost() -> float:
    """Milliseconds of CPU to count one request in the metrics."""
    made, one = metrics(), record()

    def work() -> None:
        for _ in range(RECORDS):
            made.observe(one)

    work()
    return 1000 * median(cpu_seconds(work) for _ in range(5)) / RECORDS


def metrics_overhead() -> float:
    """Percent of CPU that a stream with metrics takes more than one without."""
    made = metrics()

    def work(observers: Sequence[Observer]) -> None:
        async def several() -> None:
            for _ in range(REQUESTS):
                await run_stream(observers, EVENTS)

        asyncio.run(several())

    work([])
    ratios = []
    for _ in range(ROUNDS):
        without = cpu_seconds(lambda: work([]))
        ratios.append(cpu_seconds(lambda: work([made.observe])) / without)
    return 100 * (median(ratios) - 1)


def trace_cost() -> float:
    """Milliseconds of CPU that a traced request takes more, with the export of its spans."""
    with collector() as place:
        settings = OtelSettings(endpoint=place.url, metrics=False, interval=3600.0)
        models = ModelLabels(["a/m"], SCRUB)
        made = Telemetry(settings, models, {"a": upstream_config()}, SCRUB, nested="")
        one = record()

        def work() -> None:
            for _ in range(500):
                one.trace = made.begin("")
                made.observe(one)
            made.flush()

        received = len(place.raw)
        work()
        assert len(place.raw) > received
        seconds = median(cpu_seconds(work) for _ in range(5)) / 500
        asyncio.run(made.close())
    return 1000 * seconds


def main() -> int:
    alone, events, traced = metrics_cost(), metrics_overhead(), trace_cost()
    with MetricsFolder() as folder:
        folder.join(0)
        shared = metrics_cost()
    rows = (
        ("metrics, ms a request", alone, PER_REQUEST),
        ("metrics of several workers, ms a request", shared, PER_REQUEST),
        (f"metrics, % of a stream of {EVENTS} events", events, PER_EVENT),
        ("traces, ms a request (with the collector in this process)", traced, None),
    )
    for name, value, limit in rows:
        print(f"{name:60} {value:8.3f}" + ("" if limit is None else f"   limit {limit}"))
    return int(any(limit is not None and value > limit for _, value, limit in rows))


if __name__ == "__main__":
    sys.exit(main())
