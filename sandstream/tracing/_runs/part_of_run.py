"""Spans of what a run does in this process, before its log shows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sandstream.tracing.ids import NO_OP
from sandstream.tracing.provider import DefaultTraceProvider
from sandstream.tracing.scope import Scope
from sandstream.tracing.setup import get_trace_provider
from sandstream.tracing.spans import SpanImpl, TSpanData


@contextlib.contextmanager
def part_of_run(data: TSpanData) -> Iterator[TSpanData]:
    """Show a span to processors only; the bus is not told, because the log has the outcome."""
    provider = get_trace_provider()
    above = Scope.get_current_span()
    is_heard = not isinstance(provider, DefaultTraceProvider) or provider.has_processors
    if above is None or above.trace_id == NO_OP or not is_heard:
        yield data
        return
    span = provider.create_span(data, parent=above)
    if isinstance(span, SpanImpl):
        span.is_of_run = True
    with span:
        yield data
