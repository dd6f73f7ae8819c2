"""Convert our spans to OpenTelemetry's, for its exporters. Ids, times and parents are kept.

OpenTelemetry is imported on first use, because most processes never export anything.
"""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, Span, Value

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext

_NS: Final = 1_000_000_000
_UNNAMED: Final = "unknown_service"
"""The prefix of OpenTelemetry's default service name."""


def readable_span(span: Span, resource: Resource) -> ReadableSpan:
    """An ended span in the form that exporters take."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode

    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id, sampled=span.sampled),
        parent=_context(span.trace_id, span.parent_id, sampled=span.sampled)
        if span.parent_id
        else None,
        resource=resource,
        attributes=_plain(span_attributes(span)),
        events=[
            Event(event.name, _plain(event.attributes), event.time_ns) for event in span.events
        ],
        links=[
            Link(_context(link.trace_id, link.span_id), _plain(link.attributes))
            for link in span.links
        ],
        kind=SpanKind[span.kind.upper()],
        status=Status(StatusCode.ERROR, span.error_message or span.error)
        if span.error
        else Status(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=instrumentation_scope(),
    )


def span_attributes(span: Span) -> Attributes:
    """The span's attributes, with those that backends expect."""
    attributes = span.attributes | span.contents
    if span.error:
        attributes[semconv.ERROR_TYPE] = span.error
    if span.queued_ns:
        attributes[semconv.QUEUED] = span.queued_ns / _NS
    if span.run:
        attributes.setdefault(semconv.RUN_ID, span.run)
    return attributes


def make_resource() -> Resource:
    """The exporting service, as OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES define it."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        found = found.merge(Resource({SERVICE_NAME: semconv.SCOPE}))
    return found


@functools.cache
def instrumentation_scope() -> InstrumentationScope:
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    return InstrumentationScope(semconv.SCOPE, sandstream_version(), semconv.SCHEMA_URL)


@functools.cache
def sandstream_version() -> str:
    try:
        return version("sandstream")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"


def _context(trace_id: str, span_id: str, *, sampled: bool = True) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags)


def _plain(attributes: Attributes) -> dict[str, Any]:
    return {key: _value(value) for key, value in attributes.items()}


def _value(value: Value) -> Any:
    return tuple(value) if isinstance(value, list) else value
