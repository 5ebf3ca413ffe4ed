"""`GET /metrics`: what this gateway does, for Prometheus.

1. Whatever belongs to a request is counted when it is over, from its record; nothing is done per
   event. Gauges are sampled: by the worker that is scraped, and once a second by the others.
2. Several workers are one gateway: each scrape sees the sum of all (`worker_metrics.py`).
3. The number of series is bounded. The names of upstreams, agents and tools come from the settings.
   A model gets a label if the settings name it, or if an upstream has answered for it, which at
   most MAX_MODELS others do; all the rest is `other`. Names of client keys are no labels: the
   ledger has them.
"""

import asyncio
import re
import resource
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Literal, NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from weft.agent.events import (
    AnyRunEvent,
    CallFinished,
    RunCancelled,
    RunFailed,
    RunFinished,
    TurnFinished,
    TurnInterrupted,
)
from weft.agent.state import RunState
from weft.agent.status import STATUS
from weft.dialects.error_classes import class_of
from weft.gateway.access import AccessRecord
from weft.gateway.worker_metrics import workers_collector
from weft.parts import Usage
from weft.relay.metering import plausible
from weft.relay.request_record import Attempt, RequestRecord
from weft.scrub import Scrubber
from weft.store.base import Store, StoreError
from weft.upstream.breaker import BreakerState

MAX_MODELS = 100
"""Models without a place in the settings that have series of their own."""

COUNT_INTERVAL = 1.0
"""Seconds between two counts of the runs in the store, at least: each reads all of them."""

MAX_COUNTED = 100
"""Requests that are counted together before they are added to the metrics, at most."""

OTHER = "other"
SAMPLE_INTERVAL = 1.0
"""Seconds between two samples of the gauges of a worker."""

FIRST_TOKEN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUEST_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)

_LABEL = re.compile(r"[\x21-\x7e]{1,128}")
_KIB = 1024 if sys.platform == "linux" else 1  # ru_maxrss is in KiB there, in bytes on macOS

Kind = Literal["counter", "sum", "max", "histogram"]
"""What a metric is; gauges are named after how those of several workers become one."""


class Definition(NamedTuple):
    """One metric."""

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


DEFINITIONS: dict[str, Definition] = {
    "weft_requests": Definition(
        "counter",
        "Requests that are over, by HTTP status, and by the class of the error if there was one.",
        ("dialect", "upstream", "model", "stream", "status", "error"),
    ),
    "weft_request_seconds": Definition(
        "histogram",
        "From the start of a request to its end.",
        ("upstream", "model"),
        REQUEST_BUCKETS,
    ),
    "weft_time_to_first_token_seconds": Definition(
        "histogram",
        "From the start of a streaming request to the first event for the client.",
        ("upstream", "model"),
        FIRST_TOKEN_BUCKETS,
    ),
    "weft_other_requests": Definition(
        "counter",
        "Requests that reached no model: refused, or for stored objects, the page and probes.",
        ("status", "error"),
    ),
    "weft_events": Definition("counter", "Events of streams for clients.", ("dialect",)),
    "weft_received_bytes": Definition("counter", "Bytes of responses of upstreams.", ("upstream",)),
    "weft_sent_bytes": Definition("counter", "Bytes of responses to clients.", ("dialect",)),
    "weft_tokens": Definition(
        "counter",
        "Tokens that upstreams reported. `input` includes `cache_read` and `cache_write`, `output` "
        "includes `reasoning`.",
        ("upstream", "model", "type"),
    ),
    "weft_cost_dollars": Definition(
        "counter", "Cost of responses whose price is known.", ("upstream", "model")
    ),
    "weft_upstream_attempts": Definition(
        "counter",
        "Attempts at upstreams: `ok` if there was content, `failed`, `abandoned` by the client, or "
        "`unsent` because the breaker was open or the request could not be translated.",
        ("upstream", "model", "result"),
    ),
    "weft_upstream_errors": Definition(
        "counter",
        "Errors of upstreams before and after the first content.",
        ("upstream", "model", "error", "status"),
    ),
    "weft_findings": Definition("counter", "What was repaired in responses.", ("code",)),
    "weft_unstored": Definition("counter", "Responses that should have been stored and were not."),
    "weft_runs_ended": Definition("counter", "Runs of agents that ended.", ("agent", "status")),
    "weft_agent_turns": Definition("counter", "Turns of agents.", ("agent", "result")),
    "weft_agent_calls": Definition(
        "counter", "Calls of tools by agents.", ("agent", "tool", "result")
    ),
    "weft_open_requests": Definition("sum", "Requests in progress."),
    "weft_open_streams": Definition("sum", "Those of them that stream."),
    "weft_workers": Definition("sum", "Worker processes that serve requests."),
    "weft_breaker_state": Definition(
        "max",
        "The breaker of a model, or without a model that of the connections to an upstream: "
        "0 closed, 1 half-open, 2 open; of several workers, the highest.",
        ("upstream", "model"),
    ),
    "weft_store_lag_seconds": Definition(
        "max", "How long the oldest write to the store has been waiting."
    ),
    "weft_store_queue_bytes": Definition("sum", "Writes to the store that are waiting."),
    "weft_memory_peak_bytes": Definition("max", "The most memory that a worker has used."),
}
"""The metrics by name. A counter is exported with `_total` behind its name."""

RUNS = Definition("max", "Runs of agents in the store, by their status.", ("status",))
BUILD = Definition("max", "Always 1.", ("version",))
"""What is the same in every worker: read when it is scraped."""

COLLECTED = {"weft_runs": RUNS, "weft_build_info": BUILD}

BREAKER_VALUES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class GatewayState(NamedTuple):
    """What gauges show."""

    open_requests: int
    open_streams: int
    breakers: Iterable[tuple[str, str, BreakerState]]
    """Those that were ever open: upstream, model ("" for its connections), state."""

    store_lag: float
    store_queue: int


class ModelLabels:
    """Which models have a label of their own, as `<upstream>/<model>`."""

    def __init__(self, known: Iterable[str], scrub: Scrubber) -> None:
        self._labels = {name: name.partition("/")[2] for name in known}
        self._room = MAX_MODELS
        self._scrub = scrub

    def of(self, target: str, answered: bool = False) -> str:
        """`answered`: an upstream has answered for it, so it is not an invention of a client."""
        label = self._labels.get(target)
        if label is not None:
            return label
        name = target.partition("/")[2]
        # A key that somebody has sent as a model must not become a label.
        is_clean = _LABEL.fullmatch(name) is not None and self._scrub(target) == target
        if not (answered and is_clean and self._room > 0):
            return OTHER
        self._room -= 1
        self._labels[target] = name
        return name


class RequestCounts(msgspec.Struct):
    """What was counted of requests with the same labels, since it was added to the metrics."""

    requests: int = 0
    answered: int = 0
    """Those whose only attempt was."""

    seconds: list[float] = msgspec.field(default_factory=list)
    first_token_seconds: list[float] = msgspec.field(default_factory=list)
    events: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0


class Metrics:
    """The metrics of one process. `observe` is an Observer."""

    def __init__(
        self,
        models: Iterable[str],
        scrub: Scrubber,
        cost_of: Callable[[str, Usage | None], float | None],
        *,
        nested: Iterable[str] = (),
    ) -> None:
        """`models` are the targets that the settings name. `nested` are the upstreams in this
        gateway whose tokens are counted where they are spent."""
        self._models = ModelLabels(models, scrub)
        self._cost_of = cost_of
        self._nested = frozenset(nested)
        self._registry = CollectorRegistry(auto_describe=False)
        shared = workers_collector()
        # Values of a worker are in files, and read from there with those of all others.
        own = self._registry if shared is None else None
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for name, (kind, text, labels, buckets) in DEFINITIONS.items():
            if kind == "counter":
                self._counters[name] = Counter(name, text, labels, registry=own)
            elif kind == "histogram":
                self._histograms[name] = Histogram(
                    name, text, labels, buckets=buckets, registry=own
                )
            else:
                mode: Literal["livesum", "livemax"] = "livesum" if kind == "sum" else "livemax"
                self._gauges[name] = Gauge(name, text, labels, registry=own, multiprocess_mode=mode)
        if shared is not None:
            self._registry.register(shared)
        self.is_shared = shared is not None
        self._runs = _RunsCollector()
        self._registry.register(self._runs)
        # To add to a metric of the library takes ten times as long as to add to a number.
        self._requests: dict[tuple[str, str, str, bool, int, str], RequestCounts] = {}
        """By dialect, upstream, model, whether it is a stream, status, and class of the error."""
        self._sums: dict[tuple[str, ...], float] = {}
        """What else was counted since the last sample, if nobody else reads it."""
        # Found by one look here, instead of by several in the library.
        self._counted: dict[tuple[str, ...], Counter] = {}
        self._measured: dict[tuple[str, ...], Histogram] = {}
        self._breakers: set[tuple[str, str]] = set()
        """The breakers that were ever open, by their labels."""

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        key = (name, *labels)
        if self.is_shared:  # other workers may look at any time
            self._add(key, by)
        else:
            self._sums[key] = self._sums.get(key, 0) + by

    def _add(self, key: tuple[str, ...], by: float) -> None:
        child = self._counted.get(key)
        if child is None:
            name, *labels = key
            metric = self._counters[name]
            child = self._counted[key] = metric.labels(*labels) if labels else metric
        child.inc(by)

    def _measure(self, name: str, values: Sequence[float], *labels: str) -> None:
        if not values:
            return
        key = (name, *labels)
        child = self._measured.get(key)
        if child is None:
            child = self._measured[key] = self._histograms[name].labels(*labels)
        for value in values:
            child.observe(max(value, 0.0))  # a clock that was set back

    # Requests

    def observe(self, record: RequestRecord) -> None:
        """Counts a request that is over."""
        response, attempts = record.response, record.attempts
        failure = record.error or (None if response is None else response.error)
        is_answered = response is not None and response.error is None
        upstream = model = target = ""
        if attempts:
            target = attempts[-1].target
            upstream = target.partition("/")[0]
            model = self._models.of(target, is_answered)
        error = "" if failure is None else class_of(failure)
        labels = (record.dialect, upstream, model, record.stream, record.status, error)
        counts = self._requests.get(labels)
        if counts is None:
            counts = self._requests[labels] = RequestCounts()
        counts.requests += 1
        if record.ended is not None:
            counts.seconds.append(record.ended - record.started)
        if record.first is not None and record.stream:
            counts.first_token_seconds.append(record.first - record.started)
        counts.events += record.events
        counts.bytes_in += record.bytes_in
        counts.bytes_out += record.bytes_out
        if len(attempts) == 1 and is_answered and attempts[0].error is None:
            counts.answered += 1
        else:
            for attempt in attempts:
                self._count_attempt(attempt, record)
        if record.findings:
            for code, number in Tally(one.code for one in record.findings).items():
                self._count("weft_findings", code, by=number)
        if record.unstored is not None:
            self._count("weft_unstored")
        if response is not None and response.usage is not None and upstream not in self._nested:
            # A counter cannot fall, and one count of 10^300 would be all that is left of it.
            usage = plausible(response.usage)
            counts.input += usage.input_tokens or 0
            counts.output += usage.output_tokens or 0
            counts.reasoning += usage.reasoning_tokens or 0
            counts.cache_read += usage.cache_read_tokens or 0
            counts.cache_write += usage.cache_write_tokens or 0
            counts.cost += self._cost_of(target, usage) or 0.0
        # Other workers may look at any time; and nobody may ever look, while times pile up.
        if self.is_shared or counts.requests >= MAX_COUNTED:
            self._add_counts()

    def _add_counts(self) -> None:
        """Adds what was counted to the metrics of the library."""
        found, self._requests = self._requests, {}
        for labels, counts in found.items():
            dialect, upstream, model, stream, status, error = labels
            shown = (dialect, upstream, model, "true" if stream else "false", str(status), error)
            self._add(("weft_requests", *shown), counts.requests)
            self._measure("weft_request_seconds", counts.seconds, upstream, model)
            first = counts.first_token_seconds
            self._measure("weft_time_to_first_token_seconds", first, upstream, model)
            sums: tuple[tuple[float, tuple[str, ...]], ...] = (
                (counts.events, ("weft_events", dialect)),
                (counts.bytes_in, ("weft_received_bytes", upstream)),
                (counts.bytes_out, ("weft_sent_bytes", dialect)),
                (counts.answered, ("weft_upstream_attempts", upstream, model, "ok")),
                (counts.input, ("weft_tokens", upstream, model, "input")),
                (counts.output, ("weft_tokens", upstream, model, "output")),
                (counts.reasoning, ("weft_tokens", upstream, model, "reasoning")),
                (counts.cache_read, ("weft_tokens", upstream, model, "cache_read")),
                (counts.cache_write, ("weft_tokens", upstream, model, "cache_write")),
                (counts.cost, ("weft_cost_dollars", upstream, model)),
            )
            for number, key in sums:
                if number:
                    self._add(key, number)

    def observe_access(self, record: AccessRecord) -> None:
        """Counts a request that has no record of its own."""
        error = "" if record.error is None else class_of(record.error)
        self._count("weft_other_requests", str(record.status), error)

    def _count_attempt(self, attempt: Attempt, record: RequestRecord) -> None:
        target, error = attempt.target, attempt.error
        upstream, model = target.partition("/")[0], self._models.of(target)
        response = record.response
        if attempt.started is None:
            self._count("weft_upstream_attempts", upstream, model, "unsent")
            return
        if error is None and attempt is record.attempts[-1] and response is not None:
            failure = response.error
            self._count("weft_upstream_attempts", upstream, model, "ok")
            # After content: the client has left, or the stream broke.
            if failure is not None and failure.kind != "cancelled":
                status = str(failure.status or "")
                self._count("weft_upstream_errors", upstream, model, class_of(failure), status)
        elif error is None or error.kind == "cancelled":
            self._count("weft_upstream_attempts", upstream, model, "abandoned")
        else:
            self._count("weft_upstream_attempts", upstream, model, "failed")
            status = str(error.status or "")
            self._count("weft_upstream_errors", upstream, model, class_of(error), status)

    # Agents

    def observe_run(self, state: RunState, event: AnyRunEvent, at: float) -> None:
        """Counts what happened in a run, once it is in the log."""
        agent = state.definition.name
        match event:
            case TurnFinished():
                self._count("weft_agent_turns", agent, "finished")
            case TurnInterrupted():
                self._count("weft_agent_turns", agent, "interrupted")
            case CallFinished(call=id, is_error=is_error):
                result = "failed" if is_error else "ok"
                self._count("weft_agent_calls", agent, state.calls[id].judged.name, result)
            case RunFinished() | RunFailed() | RunCancelled():
                self._count("weft_runs_ended", agent, STATUS[event.kind])
            case _:
                pass

    # Gauges

    def sample(self, state: GatewayState) -> None:
        """Brings gauges and counters up to date. To be called before `render`."""
        self._add_counts()
        sums, self._sums = self._sums, {}
        for key, number in sums.items():
            self._add(key, number)
        gauges = self._gauges
        gauges["weft_workers"].set(1)
        gauges["weft_open_requests"].set(state.open_requests)
        gauges["weft_open_streams"].set(state.open_streams)
        gauges["weft_store_lag_seconds"].set(state.store_lag)
        gauges["weft_store_queue_bytes"].set(state.store_queue)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        gauges["weft_memory_peak_bytes"].set(used * _KIB)
        worst: dict[tuple[str, str], int] = {}
        for upstream, model, breaker in state.breakers:
            label = self._models.of(f"{upstream}/{model}") if model else ""
            key = (upstream, label)
            worst[key] = max(worst.get(key, 0), BREAKER_VALUES[breaker])
        self._breakers |= worst.keys()
        for key in self._breakers:
            gauges["weft_breaker_state"].labels(*key).set(worst.get(key, 0))

    async def sample_forever(self, state: Callable[[], GatewayState]) -> None:
        """Keeps the gauges of this worker right for those that are scraped."""
        while True:
            self.sample(state())
            await asyncio.sleep(SAMPLE_INTERVAL)

    # The endpoint

    def render(self, accept: str, runs: Mapping[str, int]) -> tuple[bytes, str]:
        """Returns the metrics and their content type. May be called in a thread."""
        self._runs.counts = runs
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class RunCounts:
    """The number of runs by their status, read from the store at most once in COUNT_INTERVAL."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, int] = {}
        self._read_at = -COUNT_INTERVAL

    async def read(self) -> Mapping[str, int]:
        """Returns nothing while the store cannot be read: no number is better than an old one."""
        now = time.monotonic()
        if now - self._read_at >= COUNT_INTERVAL:
            try:
                self._counts = await self._store.count_runs()
            except StoreError:
                return {}
            self._read_at = now
        return self._counts


class _RunsCollector(Collector):
    """What no worker measures."""

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}

    def collect(self) -> Iterable[Metric]:
        runs = GaugeMetricFamily("weft_runs", RUNS.help, labels=RUNS.labels)
        for status, number in self.counts.items():
            runs.add_metric([status], number)
        build = GaugeMetricFamily("weft_build_info", BUILD.help, labels=BUILD.labels)
        build.add_metric([version("weft")], 1)
        return runs, build
