"""What a saved run keeps of its trace, so that it goes on in the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandstream_bus.trace_context import TraceContext

from sandstream.exceptions import UserError
from sandstream.tracing.ids import NO_OP, root_span_id, w3c_trace_id
from sandstream.tracing.traces import Trace

_API_KEY = "tracing_api_key"


@dataclass(frozen=True)
class SavedTrace:
    """``traceparent`` is the caller's span, ``trace`` the trace as it was exported."""

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
        """The trace without the secret that exporters use."""
        if self.trace is None:
            return None
        return {name: value for name, value in self.trace.items() if name != _API_KEY}

    @classmethod
    def of(cls, trace: Trace | None) -> SavedTrace:
        """A trace that the user names."""
        if trace is not None and not isinstance(trace, Trace):
            raise UserError(f"set_trace needs a Trace, not {type(trace).__name__}")
        if trace is None or trace.trace_id == NO_OP:
            return cls()
        trace_id = w3c_trace_id(trace.trace_id)
        header = TraceContext(trace_id, root_span_id(trace_id)).header
        return cls(header, trace.to_json(include_tracing_api_key=True))
