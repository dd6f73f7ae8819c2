"""A trace processor that keeps what it is told, and runs whose traces are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandstream_bus.bus import Bus
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.traces import ReportedSpan, SpansReported

from sandstream import (
    Span,
    Trace,
    TracingProcessor,
    set_trace_processors,
    set_trace_provider,
)
from sandstream.tracing.provider import DefaultTraceProvider


class Recorder(TracingProcessor):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.spans: list[Span[Any]] = []
        self.ended: list[Span[Any]] = []
        self.told: list[str] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.traces.append(trace)
        self.told.append(f"+{trace.name}")

    def on_trace_end(self, trace: Trace) -> None:
        self.told.append(f"-{trace.name}")

    def on_span_start(self, span: Span[Any]) -> None:
        self.spans.append(span)
        self.told.append(f"+{span.span_data.type}")

    def on_span_end(self, span: Span[Any]) -> None:
        self.ended.append(span)
        self.told.append(f"-{span.span_data.type}")

    def shutdown(self) -> None:
        self.told.append("shutdown")

    def force_flush(self) -> None:
        self.told.append("flush")

    def of_type(self, kind: str) -> list[Span[Any]]:
        return [span for span in self.spans if span.span_data.type == kind]

    def one(self, kind: str) -> Span[Any]:
        (span,) = self.of_type(kind)
        return span


@contextmanager
def recording() -> Iterator[Recorder]:
    """A provider of the test's own, with a recorder."""
    set_trace_provider(DefaultTraceProvider())
    recorder = Recorder()
    set_trace_processors([recorder])
    try:
        yield recorder
    finally:
        set_trace_provider(DefaultTraceProvider())


async def reported(bus: Bus, trace_id: str) -> tuple[list[SpansReported], list[ReportedSpan]]:
    """What the bus was told of a trace."""
    subject = bus.subjects.trace_spans(trace_id.removeprefix("trace_"))
    stored = await stale_many(bus.connection, bus.topology.log, subject, after=0)
    messages = [await bus.codec.trace_event(it.data) for it in stored]
    found = [it for it in messages if isinstance(it, SpansReported)]
    return found, [span for it in found for span in it.spans]
