"""The trace data of a saved run, so that it continues in the same trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandstream_bus.wire.trace_context import TraceContext

from sandstream.exceptions import UserError
from sandstream.tracing.ids import NO_OP, root_span_id, w3c_trace_id
from sandstream.tracing.traces import Trace

_API_KEY = "tracing_api_key"


@dataclass(frozen=True)
class SavedTrace:
    """``traceparent`` is the caller's span, ``trace`` the exported trace."""

    traceparent: str | None = None
    trace: dict[str, Any] | None = None

    @property
    def parent(self) -> TraceContext | None:
        return TraceContext.parse(self.traceparent)

    @property
    def trace_id(self) -> str | None:
        found = self.trace.get("id") if self.trace else None
        return found if isinstance(found, str) else None

    def without_key(self) -> dict[str, Any] | None:
        """The trace without the secret key that exporters use."""
        if self.trace is None:
            return None
        return {name: value for name, value in self.trace.items() if name != _API_KEY}

    @classmethod
    def of(cls, trace: Trace | None) -> SavedTrace:
        """From a trace that the user passes."""
        if trace is not None and not isinstance(trace, Trace):
            raise UserError(f"set_trace needs a Trace, not {type(trace).__name__}")
        if trace is None or trace.trace_id == NO_OP:
            return cls()
        trace_id = w3c_trace_id(trace.trace_id)
        header = TraceContext(trace_id, root_span_id(trace_id)).header
        return cls(header, trace.to_json(include_tracing_api_key=True))
