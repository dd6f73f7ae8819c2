"""Times and ids from the trace provider."""

from __future__ import annotations

from sandstream.tracing.setup import get_trace_provider


def time_iso() -> str:
    """The current time, in ISO 8601."""
    return get_trace_provider().time_iso()


def gen_trace_id() -> str:
    """A new trace id."""
    return get_trace_provider().gen_trace_id()


def gen_span_id() -> str:
    """A new span id."""
    return get_trace_provider().gen_span_id()


def gen_group_id() -> str:
    """A new id for a group of traces."""
    return get_trace_provider().gen_group_id()
