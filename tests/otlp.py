"""A collector of OpenTelemetry on loopback: keeps the spans and metrics that it gets."""

import http.server
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

Value = str | int | float | bool | list[str]


@dataclass(frozen=True)
class Span:
    """A span as it was received."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty if it has no parent."""

    start: int
    end: int
    attributes: dict[str, Value]
    failed: bool
    events: list[str]
    resource: dict[str, Value]


@dataclass
class Collector:
    url: str = ""
    spans: list[Span] = field(default_factory=list)
    points: list[tuple[str, dict[str, Value], float]] = field(default_factory=list)
    """Name, attributes, and sum of the points of histograms; each export has the totals so far."""

    headers: list[dict[str, str]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans) if span.name == name]

    def children(self, span: Span) -> list[Span]:
        return [
            one
            for one in list(self.spans)
            if (one.trace_id, one.parent_id) == (span.trace_id, span.span_id)
        ]

    def accept(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.headers.append(headers)
        self.raw.append(body)
        self.paths.append(path)
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = values(group.resource.attributes)
                for scope in group.scope_spans:
                    self.spans += [_span(one, resource) for one in scope.spans]
        elif path == "/v1/metrics":
            for some in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for several in some.scope_metrics:
                    for metric in several.metrics:
                        for point in metric.histogram.data_points:
                            about = values(point.attributes)
                            self.points.append((metric.name, about, point.sum))


def _span(one: WireSpan, resource: dict[str, Value]) -> Span:
    return Span(
        one.name,
        WireSpan.SpanKind.Name(one.kind).removeprefix("SPAN_KIND_"),
        one.trace_id.hex(),
        one.span_id.hex(),
        one.parent_span_id.hex(),
        one.start_time_unix_nano,
        one.end_time_unix_nano,
        values(one.attributes),
        one.status.code == 2,
        [event.name for event in one.events],
        resource,
    )


def values(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    if value.HasField("array_value"):
        return [one.string_value for one in value.array_value.values]
    found: Value = getattr(value, value.WhichOneof("value") or "string_value")
    return found


@contextmanager
def collector() -> Iterator[Collector]:
    made = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.accept(self.path, headers, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
