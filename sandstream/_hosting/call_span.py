"""Sets the current span while the user's code works on a call.

Spans that the code creates, with the SDK or with OpenTelemetry, become part of the run's trace,
in any process.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from sandstream_bus.wire.messages import CallRequested
from sandstream_bus.wire.subjects import RunId
from sandstream_bus.wire.trace_context import TraceContext, incoming

from sandstream._hosting.hosted_run import HostedRun
from sandstream.tracing.ids import sdk_span_id, sdk_trace_id
from sandstream.tracing.provider import SynchronousMultiTracingProcessor
from sandstream.tracing.scope import current
from sandstream.tracing.span_data import (
    FunctionSpanData,
    HandoffSpanData,
    SpanData,
    TurnSpanData,
)
from sandstream.tracing.spans import NoOpSpan, Span, SpanImpl
from sandstream.tracing.traces import NoOpTrace, Trace, TraceImpl

_NOBODY = SynchronousMultiTracingProcessor()
"""Receives spans that are shown elsewhere, and drops them."""


@contextlib.asynccontextmanager
async def span_of_call(hosted: HostedRun, run: RunId, call: CallRequested) -> AsyncIterator[None]:
    """Make the call's span the current span."""
    context = incoming()
    if not hosted.options.traced:
        with current(NoOpTrace(), NoOpSpan(_data(hosted, call))), _opentelemetry(context):
            yield
    elif context is None:
        with current(None, None), _opentelemetry(None):
            yield
    else:
        trace, span = await _shown(hosted, run, call, context)
        with current(trace, span), _opentelemetry(context):
            yield


async def _shown(
    hosted: HostedRun, run: RunId, call: CallRequested, context: TraceContext
) -> tuple[Trace, Span[Any]]:
    """The trace and span that processors know; otherwise stand-ins with what is known here."""
    tracing = hosted.tracing
    span = await tracing.span_for(run, call) if tracing is not None else None
    trace = tracing.trace if tracing is not None else None
    if trace is None:
        trace = _trace_of(hosted, context)
    if span is None:
        here = SpanImpl(
            trace.trace_id,
            sdk_span_id(context.span_id),
            None,
            _NOBODY,
            _data(hosted, call),
            trace.tracing_api_key,
        )
        here.trace, here.is_of_run = trace, True
        here.start()
        span = here
    return trace, span


def _trace_of(hosted: HostedRun, context: TraceContext) -> TraceImpl:
    options = hosted.options
    trace = TraceImpl(
        options.workflow_name,
        sdk_trace_id(context.trace_id),
        options.group_id,
        options.metadata or None,
        None,
    )
    trace.is_of_run = True
    trace.include_sensitive_data = options.trace_contents
    return trace


def _data(hosted: HostedRun, call: CallRequested) -> SpanData:
    if call.traits.is_tool:
        arguments = call.arguments if hosted.options.trace_contents else None
        return FunctionSpanData(call.name, arguments, None)
    if call.traits.is_handoff:
        return HandoffSpanData(call.agent, None)
    return TurnSpanData(call.turn, call.agent)


@contextlib.contextmanager
def _opentelemetry(context: TraceContext | None) -> Iterator[None]:
    """Set the current OpenTelemetry span, if the program has imported OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    api = sys.modules.get("opentelemetry.context")
    if trace is None or api is None:
        yield
        return
    above = api.Context()
    if context is not None:
        known = trace.SpanContext(
            trace_id=int(context.trace_id, 16),
            span_id=int(context.span_id, 16),
            is_remote=True,
            trace_flags=trace.TraceFlags(1 if context.sampled else 0),
        )
        above = trace.set_span_in_context(trace.NonRecordingSpan(known), above)
    token = api.attach(above)
    try:
        yield
    finally:
        api.detach(token)
