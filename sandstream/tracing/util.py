"""Times and ids, as the trace provider makes them."""

from __future__ import annotations

from sandstream.tracing.setup import get_trace_provider


def time_iso() -> str:
    """The time now, in ISO 8601."""
    return get_trace_provider().time_iso()


def gen_trace_id() -> str:
    """A new id of a trace."""
    return get_trace_provider().gen_trace_id()


def gen_span_id() -> str:
    """A new id of a span."""
    return get_trace_provider().gen_span_id()


def gen_group_id() -> str:
    """A new id of a group of traces."""
    return get_trace_provider().gen_group_id()
