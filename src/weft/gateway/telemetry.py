"""Traces and metrics for OpenTelemetry, by its conventions for generative AI, over OTLP and HTTP.

1. A request is one span, and each attempt at an upstream is one inside of it. A run of an agent is
   a span with its turns and calls; the attempts of a turn are inside of the turn. Spans are written
   when what they stand for is over. Their ids are known before (`relay/trace_context.py`).
2. Without `otel.content` no span has anything of a prompt, a response, arguments or a result.
3. Nothing waits for the collector: what does not fit into the queue is dropped.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from uuid import uuid4

import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from weft.agent.events import (
    AnyRunEvent,
    CallFinished,
    CallParked,
    RunCancelled,
    RunFailed,
    RunFinished,
    TurnFinished,
    TurnInterrupted,
    joined_text,
)
from weft.agent.run_trace import call_span, run_span, turn_span
from weft.agent.state import RunState
from weft.agent.status import STATUS
from weft.assembler import Response
from weft.dialects.error_classes import class_of
from weft.gateway.metrics import ModelLabels
from weft.gateway.settings.schema import OtelSettings
from weft.relay.metering import plausible
from weft.relay.request_record import Attempt, RequestRecord
from weft.relay.trace_context import TraceContext, parse_traceparent
from weft.request import AnyContent, CallContent, ResultContent, TextContent
from weft.scrub import Scrubber
from weft.upstream.base import UpstreamConfig

SHUTDOWN = 2.0
"""Seconds to send what is left when the process stops. The server gives all of us five."""

REPORT = 60.0
"""Seconds between two lines of the log about a collector that does not answer."""

EXPORT_TIMEOUT = 10.0
MAX_DELAY = 5.0
"""Seconds until a span is sent, at most."""

MAX_CONTENT = 65_536
"""Characters of a prompt or a response in one attribute."""

TOKEN_BUCKETS = [4.0**exponent for exponent in range(14)]
SECOND_BUCKETS = [0.01 * 2**exponent for exponent in range(14)]
"""The buckets that the conventions recommend."""

HISTOGRAMS = (
    (
        "gen_ai.client.operation.duration",
        "s",
        "Duration of an attempt at an upstream.",
        SECOND_BUCKETS,
    ),
    (
        "gen_ai.client.operation.time_to_first_chunk",
        "s",
        "From the request to the upstream to the first event for the client.",
        SECOND_BUCKETS,
    ),
    ("gen_ai.client.token.usage", "{token}", "Tokens of a response.", TOKEN_BUCKETS),
)

PROVIDERS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "amazonaws.com": "aws.bedrock",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral_ai",
    "api.groq.com": "groq",
    "api.x.ai": "x_ai",
    "api.perplexity.ai": "perplexity",
    "api.cohere.com": "cohere",
}
"""Names of providers in the conventions, by the ends of their hosts. Others have the name of the
upstream."""

Attributes = dict[str, str | int | float | bool | Sequence[str]]

log = logging.getLogger("weft.telemetry")
_json = msgspec.json.Encoder().encode


class SdkLogHandler(logging.Handler):
    """Logs what the SDK logs, once in a while: a collector that is away is no news each time."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last = -REPORT

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._last >= REPORT:
            self._last = now
            log.warning("OpenTelemetry: %s", record.getMessage().partition("\n")[0][:500])


class PresetIds(IdGenerator):
    """Gives the next span the ids that it was announced with."""

    def __init__(self) -> None:
        self.next = TraceContext(1, 1)

    def generate_trace_id(self) -> int:
        return self.next.trace_id

    def generate_span_id(self) -> int:
        return self.next.span_id


class Telemetry:
    """What one process sends. `observe` is an Observer, `observe_run` a RunObserver."""

    def __init__(
        self,
        settings: OtelSettings,
        models: ModelLabels,
        upstreams: Mapping[str, UpstreamConfig],
        scrub: Scrubber,
        *,
        nested: str,
    ) -> None:
        """`nested` is the upstream of the agents of this gateway: what it spends is reported with
        its turns. Starts threads, which do not survive a fork."""
        self._nested = nested
        sdk = logging.getLogger("opentelemetry")
        sdk.handlers, sdk.propagate = [SdkLogHandler()], False
        self._settings = settings
        self._models = models
        self._scrub = scrub
        self._upstreams = {name: _place(config) for name, config in upstreams.items()}
        self._ids = PresetIds()
        self._traces, self._meters = _providers(settings, self._ids)
        self._tracer = self._traces.get_tracer("weft", version("weft"))
        meter = self._meters.get_meter("weft", version("weft"))
        self._duration, self._first_chunk, self._tokens = (
            meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)
            for name, unit, text, buckets in HISTOGRAMS
        )

    def flush(self) -> None:
        """Sends what was written so far, and waits for it."""
        self._traces.force_flush()
        self._meters.force_flush()

    async def close(self) -> None:
        """Sends what is left, for at most SHUTDOWN seconds."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._traces.shutdown()
            self._meters.shutdown()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        # Not of the executor of the loop, which waits for its threads at the end.
        threading.Thread(target=shut_down, name="telemetry-shutdown", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), SHUTDOWN)

    # Traces

    def begin(self, traceparent: str) -> TraceContext | None:
        """Returns the span of a new request; None if there are no traces."""
        if not self._settings.traces:
            return None
        parent, span_id = parse_traceparent(traceparent), random.getrandbits(64) or 1
        if parent is not None:  # who began the trace has decided
            return TraceContext(parent.trace_id, span_id, parent.span_id, parent.sampled)
        sampled = random.random() < self._settings.sample
        return TraceContext(random.getrandbits(128) or 1, span_id, sampled=sampled)

    @contextmanager
    def traced(self, name: str, traceparent: str) -> Iterator[str]:
        """A span around something that has no record. Yields the traceparent for what is inside;
        nothing if there are no traces."""
        trace, started = self.begin(traceparent), time.time()
        failed: str | None = "error"
        try:
            yield "" if trace is None else trace.traceparent
            failed = None
        finally:
            if trace is not None:
                self._write(trace, name, SpanKind.SERVER, started, time.time(), {}, failed)

    def _write(
        self,
        trace: TraceContext,
        name: str,
        kind: SpanKind,
        start: float,
        end: float,
        attributes: Attributes,
        error: str | None = None,
        unsent: Sequence[Attempt] = (),
    ) -> None:
        if not trace.sampled:
            return
        parent = Context()
        if trace.parent_id:
            flags = TraceFlags(TraceFlags.SAMPLED)
            remote = SpanContext(trace.trace_id, trace.parent_id, True, flags)
            parent = set_span_in_context(NonRecordingSpan(remote), parent)
        if error is not None:
            attributes["error.type"] = error
        self._ids.next = trace
        span = self._tracer.start_span(
            name, parent, kind, attributes, start_time=_nanoseconds(start)
        )
        for attempt in unsent:
            why = "" if attempt.error is None else class_of(attempt.error)
            about = {"weft.target": self._scrub(attempt.target[:200]), "error.type": why}
            span.add_event("weft.attempt.unsent", about)
        if error is not None and error != "cancelled":
            span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(max(end, start)))

    # Requests

    def observe(self, record: RequestRecord) -> None:
        ended = record.ended or time.time()
        response, trace = record.response, record.trace
        failure = record.error or (None if response is None else response.error)
        for number, attempt in enumerate(record.attempts, 1):
            if attempt.started is not None:
                span = None if trace is None else trace.child(number)
                self._observe_attempt(record, attempt, span, attempt.ended or ended)
        if trace is None or trace.is_turn:
            return
        attributes: Attributes = {
            "weft.request.id": record.id,
            "weft.dialect": record.dialect,
            "weft.model": self._scrub(record.model[:200]),
            "weft.stream": record.stream,
            "weft.attempts": len(record.attempts),
            "http.response.status_code": record.status,
        }
        if record.caller:
            attributes["weft.key"] = record.caller
        if record.findings:
            attributes["weft.findings"] = sorted({one.code for one in record.findings})
        self._write(
            trace,
            f"{record.dialect} request",
            SpanKind.SERVER,
            record.started,
            ended,
            attributes,
            None if failure is None else class_of(failure),
            [one for one in record.attempts if one.started is None],
        )

    def _observe_attempt(
        self, record: RequestRecord, attempt: Attempt, trace: TraceContext | None, ended: float
    ) -> None:
        response = record.response if attempt is record.attempts[-1] else None
        error = attempt.error or (None if response is None else response.error)
        kind = None if error is None else class_of(error)
        if response is None and error is None:
            kind = "cancelled"
        upstream, _, model = attempt.target.partition("/")
        # One that came with new settings is known by its name alone.
        unknown: Attributes = {"gen_ai.provider.name": upstream, "weft.upstream": upstream}
        place = self._upstreams.get(upstream, unknown)
        started = attempt.started or record.started
        is_nested = upstream == self._nested
        operation = "invoke_agent" if is_nested else "chat"
        common: Attributes = {"gen_ai.operation.name": operation, **place}
        label = self._models.of(attempt.target, response is not None and error is None)
        labels: Attributes = {**common, "gen_ai.request.model": label}
        if response is not None and response.usage is not None and not is_nested:
            usage = plausible(response.usage)
            for type, number in (("input", usage.input_tokens), ("output", usage.output_tokens)):
                if number is not None:
                    self._tokens.record(number, {**labels, "gen_ai.token.type": type})
        if kind is not None:
            labels["error.type"] = kind
        self._duration.record(max(ended - started, 0.0), labels)
        if response is not None and record.stream and record.first is not None:
            self._first_chunk.record(max(record.first - started, 0.0), labels)
        if trace is None or not trace.sampled:
            return
        attributes = {**common, "gen_ai.request.model": self._scrub(model[:200])}
        attributes |= self._request_attributes(record) | self._response_attributes(response)
        name = f"{'agent' if is_nested else operation} {attributes['gen_ai.request.model']}"
        span_kind = SpanKind.INTERNAL if is_nested else SpanKind.CLIENT
        self._write(trace, name, span_kind, started, ended, attributes, kind)

    def _request_attributes(self, record: RequestRecord) -> Attributes:
        request = record.request
        found: Attributes = {"gen_ai.request.stream": record.stream}
        if request is None:
            return found
        sampling = request.sampling
        for name, value in (
            ("max_tokens", request.max_output_tokens),
            ("temperature", sampling.temperature),
            ("top_p", sampling.top_p),
            ("top_k", sampling.top_k),
            ("presence_penalty", sampling.presence_penalty),
            ("frequency_penalty", sampling.frequency_penalty),
            ("seed", sampling.seed),
        ):
            if value is not None:
                found[f"gen_ai.request.{name}"] = value
        if self._settings.content:
            messages = [
                {"role": one.role, "parts": [_part(content) for content in one.content]}
                for one in request.messages
            ]
            found["gen_ai.input.messages"] = self._content(messages)
            if request.instructions:
                parts = [{"type": "text", "content": request.instructions}]
                found["gen_ai.system_instructions"] = self._content(parts)
        return found

    def _response_attributes(self, response: Response | None) -> Attributes:
        if response is None:
            return {}
        found: Attributes = {"gen_ai.response.id": response.id}
        if response.model is not None:
            found["gen_ai.response.model"] = self._scrub(response.model[:200])
        if response.finish_reason is not None:
            found["gen_ai.response.finish_reasons"] = [response.finish_reason]
        usage = plausible(response.usage)
        for name, number in (
            ("input_tokens", usage.input_tokens),
            ("output_tokens", usage.output_tokens),
            ("reasoning.output_tokens", usage.reasoning_tokens),
            ("cache_read.input_tokens", usage.cache_read_tokens),
            ("cache_creation.input_tokens", usage.cache_write_tokens),
        ):
            if number is not None:
                found[f"gen_ai.usage.{name}"] = number
        if self._settings.content:
            found["gen_ai.output.messages"] = self._content(_output_messages(response))
        return found

    def _content(self, value: object) -> str:
        return self._scrub(_json(value).decode())[:MAX_CONTENT]

    # Runs

    def observe_run(self, state: RunState, event: AnyRunEvent, at: float) -> None:
        agent = state.definition.name
        about: Attributes = {"gen_ai.agent.name": agent, "weft.run.id": state.id}
        match event:
            case (
                TurnFinished(turn=number, attempt=attempt)
                | TurnInterrupted(turn=number, attempt=attempt)
            ):
                trace, turn = turn_span(state, number, attempt), state.turns[number - 1]
                error = "interrupted" if isinstance(event, TurnInterrupted) else None
                about |= {"weft.turn": number, "gen_ai.response.id": turn.response}
                if trace is not None:
                    name = f"turn {number}"
                    self._write(trace, name, SpanKind.INTERNAL, turn.started_at, at, about, error)
            case CallFinished() | CallParked():
                self._observe_call(state, event, at, about)
            case RunFinished() | RunFailed() | RunCancelled():
                trace, status = run_span(state), STATUS[event.kind]
                error = None if status == "finished" else status
                if isinstance(event, RunFailed):
                    error = event.code
                about |= {"gen_ai.operation.name": "invoke_agent", "weft.run.status": status}
                if trace is not None:
                    name = f"invoke_agent {agent}"
                    self._write(trace, name, SpanKind.INTERNAL, state.created_at, at, about, error)
            case _:
                pass

    def _observe_call(
        self, state: RunState, event: CallFinished | CallParked, at: float, about: Attributes
    ) -> None:
        call = state.calls[event.call]
        trace = call_span(state, call.id, call.attempts)
        if trace is None:
            return
        about |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.judged.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        error = "outcome-unknown" if isinstance(event, CallParked) else None
        if isinstance(event, CallFinished) and event.is_error:
            error = "tool-error"
        if self._settings.content:
            about["gen_ai.tool.call.arguments"] = self._scrub(call.judged.arguments)[:MAX_CONTENT]
            if isinstance(event, CallFinished):
                result = self._scrub(joined_text(event.result))
                about["gen_ai.tool.call.result"] = result[:MAX_CONTENT]
        name = f"execute_tool {call.judged.name}"
        self._write(trace, name, SpanKind.INTERNAL, call.intended_at or at, at, about, error)


def _providers(settings: OtelSettings, ids: IdGenerator) -> tuple[TracerProvider, MeterProvider]:
    """What collects spans and metrics, and sends them."""
    endpoint = (settings.endpoint or "").rstrip("/")
    headers = {name: value.reveal() for name, value in settings.headers.items()}
    resource = Resource.create(
        {
            "service.name": settings.service,
            "service.version": version("weft"),
            "service.instance.id": str(uuid4()),
        }
    )
    # Whether a trace is sampled is decided by `begin`, or was decided by the client.
    traces = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=ids)
    if settings.traces:
        url, delay = f"{endpoint}/v1/traces", 1000 * min(settings.interval, MAX_DELAY)
        spans = OTLPSpanExporter(url, headers=headers, timeout=EXPORT_TIMEOUT)
        traces.add_span_processor(BatchSpanProcessor(spans, schedule_delay_millis=delay))
    readers = []
    if settings.metrics:
        url, interval = f"{endpoint}/v1/metrics", 1000 * settings.interval
        points = OTLPMetricExporter(url, headers=headers, timeout=EXPORT_TIMEOUT)
        readers.append(PeriodicExportingMetricReader(points, interval))
    return traces, MeterProvider(readers, resource, shutdown_on_exit=False)


def _place(config: UpstreamConfig) -> Attributes:
    """Who an upstream is."""
    # A port follows the last colon, unless that is inside of the brackets of an address.
    host, colon, port = config.origin.rpartition(":")
    if not colon or not port.isdigit():
        host, port = config.origin, ""
    ends = (end for end in PROVIDERS if host == end or host.endswith(f".{end}"))
    provider = PROVIDERS.get(next(ends, ""), config.name)
    found: Attributes = {"gen_ai.provider.name": provider, "weft.upstream": config.name}
    if host:
        found["server.address"] = host
    if port:
        found["server.port"] = int(port)
    return found


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def _part(content: AnyContent) -> dict[str, object]:
    match content:
        case TextContent(text=text):
            return {"type": "text", "content": text}
        case CallContent(id=id, name=name, params=params):
            return {"type": "tool_call", "id": id, "name": name, "arguments": params}
        case ResultContent(id=id, content=contents):
            return {"type": "tool_call_response", "id": id, "response": joined_text(contents)}
        case _:  # images, files and reasoning are named, not sent
            return {"type": str(content.__struct_config__.tag)}


def _output_messages(response: Response) -> list[object]:
    parts: list[dict[str, object]] = []
    if response.text:
        parts.append({"type": "text", "content": response.text})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.params}
        for call in response.tool_calls
    ]
    finish = response.finish_reason or "error"
    return [{"role": "assistant", "parts": parts, "finish_reason": finish}]
