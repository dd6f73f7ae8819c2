"""Where the bus places what happens in the user's traces and spans.

The SDK shows some spans of a run (its task, its turns) that are not drawn from the log. What is
below one of those belongs to the call that is being processed.
"""

from __future__ import annotations

from typing import Any

from sandstream_bus.wire.trace_context import TraceContext, incoming

from sandstream.tracing.ids import NO_OP, root_span_id, w3c_span_id, w3c_trace_id
from sandstream.tracing.scope import Scope
from sandstream.tracing.spans import Span
from sandstream.tracing.traces import Trace


def w3c_parent_id(trace: Trace | None, span: Span[Any] | None) -> str | None:
    """The id of the span below which a new span with this parent is placed."""
    known = span if span is not None else trace
    assert known is not None
    trace_id = w3c_trace_id(known.trace_id)
    if is_of_run(known):
        working_on = incoming()
        if working_on is not None and working_on.trace_id == trace_id:
            return working_on.span_id
        return w3c_span_id(known.trace_id, span.span_id) if span is not None else None
    if span is not None:
        return w3c_span_id(known.trace_id, span.span_id)
    return root_span_id(trace_id)


def own_context() -> TraceContext | None:
    """The user's span or trace that the running code belongs to, as a W3C context."""
    span, trace = Scope.get_current_span(), Scope.get_current_trace()
    if trace is None or trace.trace_id == NO_OP:
        return None
    known = span if span is not None and span.trace_id == trace.trace_id else trace
    if known.trace_id == NO_OP or is_of_run(known):
        return None  # the call that is being processed is more precise
    trace_id = w3c_trace_id(trace.trace_id)
    if isinstance(known, Span):
        return TraceContext(trace_id, w3c_span_id(trace.trace_id, known.span_id))
    return TraceContext(trace_id, root_span_id(trace_id))


def is_of_run(one: Trace | Span[Any]) -> bool:
    """Whether it was made for a run rather than by the user."""
    return bool(getattr(one, "is_of_run", False))
