"""Failures of the user's code that the run goes on after: only its own process sees them."""

from __future__ import annotations

from sandstream.tracing.scope import Scope
from sandstream.tracing.span_data import FunctionSpanData


def show_failure(tool: str, error: Exception) -> None:
    """The current call of a tool has failed, and the model is told so."""
    span, trace = Scope.get_current_span(), Scope.get_current_trace()
    if span is None or not isinstance(span.span_data, FunctionSpanData):
        return
    may_say = bool(getattr(trace, "include_sensitive_data", True))
    told = f"{type(error).__name__}: {error}" if may_say else type(error).__name__
    data = {"tool_name": tool, "error": told}
    span.set_error({"message": "Error running tool (non-fatal)", "data": data})
