"""Where the bus draws what happens in the user's traces and spans.

The spans of a run that the SDK shows (its task, its turns) are not all among those that are drawn
from the log. What is below one of them belongs to the call that is being worked on.
"""

from __future__ import annotations

from typing import Any

from sandstream_bus.trace_context import TraceContext, incoming

from sandstream.tracing.ids import NO_OP, root_span_id, w3c_span_id, w3c_trace_id
from sandstream.tracing.scope import Scope
from sandstream.tracing.spans import Span
from sandstream.tracing.traces import Trace


def w3c_parent_id(trace: Trace | None, span: Span[Any] | None) -> str | None:
    """The id of whatever a new span with this parent is drawn below."""
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
    """The span or trace of the user's that the running code belongs to, in the W3C's words."""
    span, trace = Scope.get_current_span(), Scope.get_current_trace()
    if trace is None or trace.trace_id == NO_OP:
        return None
    known = span if span is not None and span.trace_id == trace.trace_id else trace
    if known.trace_id == NO_OP or is_of_run(known):
        return None  # the call that is being worked on says it better
    trace_id = w3c_trace_id(trace.trace_id)
    if isinstance(known, Span):
        return TraceContext(trace_id, w3c_span_id(trace.trace_id, known.span_id))
    return TraceContext(trace_id, root_span_id(trace_id))


def is_of_run(one: Trace | Span[Any]) -> bool:
    """Was it made for a run, and not by the user?"""
    return bool(getattr(one, "is_of_run", False))
