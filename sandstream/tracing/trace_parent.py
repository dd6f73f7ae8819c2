"""Which span of the caller's a run, a task or an operation belongs to."""

from __future__ import annotations

import sys

from sandstream_bus.headers import TRACEPARENT
from sandstream_bus.trace_context import TraceContext, incoming

from sandstream.tracing.ids import NO_OP
from sandstream.tracing.parents import own_context
from sandstream.tracing.scope import Scope


def trace_headers() -> dict[str, str]:
    """Headers that make what is published part of the caller's trace, if there is one."""
    parent = trace_parent()
    return {} if parent is None else {TRACEPARENT: parent.header}


def trace_parent() -> TraceContext | None:
    """The caller's span: one that the program made here, one of OpenTelemetry's, else the call that
    is being worked on. None where tracing is turned off.
    """
    current = Scope.get_current_trace()
    if current is not None and current.trace_id == NO_OP:
        return None
    return own_context() or _of_opentelemetry() or incoming()


def _of_opentelemetry() -> TraceContext | None:
    """The current span of a program that uses OpenTelemetry; others need not import it."""
    module = sys.modules.get("opentelemetry.trace")
    if module is None:
        return None
    context = module.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return TraceContext(
        f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags & 1)
    )
