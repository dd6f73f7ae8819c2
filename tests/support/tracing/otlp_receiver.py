"""A real OTLP receiver on loopback, by HTTP and by gRPC, that decodes the real protobuf.

    with OtlpReceiver("http/protobuf") as receiver:        # or "grpc"
        environ = receiver.environment()                   # the standard variables that lead here
        ...
        receiver.wait_for_spans(3)                         # blocks; in a loop: await arrived(3)
        [span.name for span in receiver.spans]             # ``ReceivedSpan``s, in order of arrival
        receiver.metrics                                   # ``ReceivedMetric``s, of all exports

Faults can be switched on and off at any time, also during requests:

``refuse_with = 500``      every request is refused with this HTTP status or its gRPC equivalent;
                           OpenTelemetry's exporters repeat 429 and 503 by themselves, for seconds
``refuse_if = function``   gets a request's spans and returns a status, or None to accept
``hold()``, ``release()``  requests hang until they are released
``stop()``, ``start()``    stop listening; listen again on the same port
``requests``               the number of requests, including refused ones
``headers``                the headers of the last request, names in lower case

A refused request stores nothing. ``with_id(span_id)`` and ``named(name)`` find spans.
"""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

Protocol = Literal["http/protobuf", "grpc"]
Request = (
    trace_service_pb2.ExportTraceServiceRequest | metrics_service_pb2.ExportMetricsServiceRequest
)

WAIT_S = 20.0
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES = ("unset", "ok", "error")
GRPC_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
}


@dataclass(frozen=True)
class ReceivedScope:
    name: str
    version: str
    schema_url: str


@dataclass(frozen=True)
class ReceivedEvent:
    name: str
    time: int
    attributes: dict[str, Any]


@dataclass(frozen=True)
class ReceivedLink:
    trace_id: str
    span_id: str
    attributes: dict[str, Any]


@dataclass(frozen=True)
class ReceivedSpan:
    """Ids in hexadecimal digits, times in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty if it has none."""
    name: str
    kind: str
    """One of ``KINDS``."""
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[ReceivedEvent]
    links: list[ReceivedLink]
    status: str
    """One of ``STATUSES``."""
    status_message: str
    scope: ReceivedScope
    resource: dict[str, Any]


@dataclass(frozen=True)
class ReceivedPoint:
    """``value`` is for sums and gauges; ``count``, ``sum``, ``buckets`` are for histograms."""

    attributes: dict[str, Any]
    value: float = 0
    count: int = 0
    sum: float = 0
    buckets: list[int] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class ReceivedMetric:
    name: str
    unit: str
    description: str
    shape: str
    """``sum``, ``gauge`` or ``histogram``."""
    points: list[ReceivedPoint]
    scope: ReceivedScope
    resource: dict[str, Any]


class OtlpReceiver:
    """Listens from ``start`` to ``stop``; its data may be read from any thread."""

    def __init__(self, protocol: Protocol = "http/protobuf") -> None:
        self.protocol: Protocol = protocol
        self.port = 0
        self.spans: list[ReceivedSpan] = []
        self.metrics: list[ReceivedMetric] = []
        self.requests = 0
        self.headers: dict[str, str] = {}
        self.refuse_with: int | None = None
        self.refuse_if: Callable[[list[ReceivedSpan]], int | None] | None = None
        self._open = threading.Event()
        self._open.set()
        self._changed = threading.Condition()
        self._server: _HttpServer | _GrpcServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol,
        }

    def start(self) -> None:
        assert self._server is None
        kind = _GrpcServer if self.protocol == "grpc" else _HttpServer
        self._server = kind(self, self.port)
        self.port = self._server.port

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self.stop()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def with_id(self, span_id: str) -> ReceivedSpan:
        (found,) = [span for span in self.spans if span.span_id == span_id]
        return found

    def metric(self, name: str) -> ReceivedMetric:
        """The last exported metric of this name."""
        return [metric for metric in self.metrics if metric.name == name][-1]

    def wait_until(self, fulfilled: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Block until the condition holds; it is checked after each request."""
        with self._changed:
            if not self._changed.wait_for(fulfilled, timeout_s):
                raise TimeoutError(
                    f"after {timeout_s} s: {self.requests} requests, {len(self.spans)} spans, "
                    f"{len(self.metrics)} metrics"
                )

    def wait_for_spans(self, count: int, timeout_s: float = WAIT_S) -> list[ReceivedSpan]:
        self.wait_until(lambda: len(self.spans) >= count, timeout_s)
        return self.spans

    def wait_for_requests(self, count: int, timeout_s: float = WAIT_S) -> None:
        self.wait_until(lambda: self.requests >= count, timeout_s)

    async def arrived(self, count: int, timeout_s: float = WAIT_S) -> list[ReceivedSpan]:
        """``wait_for_spans`` for programs with an event loop."""
        return await asyncio.to_thread(self.wait_for_spans, count, timeout_s)

    async def requested(self, count: int, timeout_s: float = WAIT_S) -> None:
        await asyncio.to_thread(self.wait_for_requests, count, timeout_s)

    def take(self, message: Request, headers: dict[str, str]) -> int | None:
        """Keep a decoded request and return ``None``, or return the status that refuses it."""
        is_metrics = isinstance(message, metrics_service_pb2.ExportMetricsServiceRequest)
        spans = [] if is_metrics else spans_of(message)
        with self._changed:
            self.requests += 1
            self.headers = {name.lower(): value for name, value in headers.items()}
            self._changed.notify_all()
        self._open.wait()
        with self._changed:
            status = self.refuse_with
            if status is None and self.refuse_if is not None:
                status = self.refuse_if(spans)
            if status is None:
                self.spans.extend(spans)
                if is_metrics:
                    self.metrics.extend(metrics_of(message))
            self._changed.notify_all()
        return status


def spans_of(message: trace_service_pb2.ExportTraceServiceRequest) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            name=span.name,
            kind=KINDS[span.kind],
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes=_attributes(span.attributes),
            events=[
                ReceivedEvent(each.name, each.time_unix_nano, _attributes(each.attributes))
                for each in span.events
            ],
            links=[
                ReceivedLink(each.trace_id.hex(), each.span_id.hex(), _attributes(each.attributes))
                for each in span.links
            ],
            status=STATUSES[span.status.code],
            status_message=span.status.message,
            scope=_scope(scope),
            resource=_attributes(resource.resource.attributes),
        )
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def metrics_of(message: metrics_service_pb2.ExportMetricsServiceRequest) -> list[ReceivedMetric]:
    return [
        ReceivedMetric(
            name=metric.name,
            unit=metric.unit,
            description=metric.description,
            shape=str(metric.WhichOneof("data")),
            points=[
                _point(each) for each in getattr(metric, metric.WhichOneof("data")).data_points
            ],
            scope=_scope(scope),
            resource=_attributes(resource.resource.attributes),
        )
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


def _point(point: Any) -> ReceivedPoint:
    attributes = _attributes(point.attributes)
    if hasattr(point, "bucket_counts"):
        return ReceivedPoint(
            attributes=attributes,
            count=point.count,
            sum=point.sum,
            buckets=list(point.bucket_counts),
            bounds=list(point.explicit_bounds),
        )
    return ReceivedPoint(attributes=attributes, value=getattr(point, point.WhichOneof("value")))


def _scope(scope: Any) -> ReceivedScope:
    return ReceivedScope(scope.scope.name, scope.scope.version, scope.schema_url)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_value(each) for each in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case name:
            return getattr(value, name)


class _HttpServer:
    def __init__(self, receiver: OtlpReceiver, port: int) -> None:
        handler = type("Handler", (_HttpHandler,), {"receiver": receiver})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _HttpHandler(BaseHTTPRequestHandler):
    receiver: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        match self.headers.get("content-encoding"):
            case "gzip":
                body = gzip.decompress(body)
            case "deflate":
                body = zlib.decompress(body)
        is_metrics = self.path == "/v1/metrics"
        if self.headers["content-type"] != "application/x-protobuf":
            self._answer(415, b"")
        elif not is_metrics and self.path != "/v1/traces":
            self._answer(404, b"")
        else:
            kind = (
                metrics_service_pb2.ExportMetricsServiceRequest
                if is_metrics
                else trace_service_pb2.ExportTraceServiceRequest
            )
            message = kind.FromString(body)
            status = self.receiver.take(message, dict(self.headers.items()))
            self._answer(200 if status is None else status, b"")  # empty: all was accepted

    def _answer(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the sender has lost patience

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: tests inspect the receiver."""


class _GrpcServer:
    def __init__(self, receiver: OtlpReceiver, port: int) -> None:
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        traces, metrics = _Traces(receiver), _Metrics(receiver)
        add_traces: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server  # generated,
        add_metrics: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server  # no types
        add_traces(traces, self._server)
        add_metrics(metrics, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()
        self._pool.shutdown(wait=False)


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        _take(self._receiver, request, context)
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        _take(self._receiver, request, context)
        return metrics_service_pb2.ExportMetricsServiceResponse()


def _take(receiver: OtlpReceiver, request: Request, context: grpc.ServicerContext) -> None:
    headers = {key: str(value) for key, value in context.invocation_metadata()}
    status = receiver.take(request, headers)
    if status is not None:
        context.abort(GRPC_CODES.get(status, grpc.StatusCode.UNKNOWN), f"refused with {status}")
