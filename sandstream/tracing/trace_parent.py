"""The caller's span that a run, a task or an operation belongs to."""

from __future__ import annotations

import sys

from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.trace_context import TraceContext, incoming

from sandstream.tracing.ids import NO_OP
from sandstream.tracing.parents import own_context
from sandstream.tracing.scope import Scope


def trace_headers() -> dict[str, str]:
    """Headers that make a published message part of the caller's trace, if there is one."""
    parent = trace_parent()
    return {} if parent is None else {TRACEPARENT: parent.header}


def trace_parent() -> TraceContext | None:
    """The caller's span: the program's own, one of OpenTelemetry, otherwise that of the call that
    is being processed. ``None`` if tracing is disabled.
    """
    current = Scope.get_current_trace()
    if current is not None and current.trace_id == NO_OP:
        return None
    return own_context() or _of_opentelemetry() or incoming()


def _of_opentelemetry() -> TraceContext | None:
    """The current span of a program that uses OpenTelemetry; others do not import it."""
    module = sys.modules.get("opentelemetry.trace")
    if module is None:
        return None
    context = module.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return TraceContext(
        f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags & 1)
    )
