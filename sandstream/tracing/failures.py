"""Non-fatal failures of user code: only its own process sees them."""

from __future__ import annotations

from sandstream_bus.wire.error_text import named_error

from sandstream.tracing.scope import Scope
from sandstream.tracing.span_data import FunctionSpanData


def show_failure(tool: str, error: Exception) -> None:
    """Mark the current tool call as failed; the model is told about it."""
    span, trace = Scope.get_current_span(), Scope.get_current_trace()
    if span is None or not isinstance(span.span_data, FunctionSpanData):
        return
    may_say = bool(getattr(trace, "include_sensitive_data", True))
    told = named_error(error) if may_say else type(error).__name__
    data = {"tool_name": tool, "error": told}
    span.set_error({"message": "Error running tool (non-fatal)", "data": data})
