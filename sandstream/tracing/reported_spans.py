"""Convert the user's traces and spans to the form that the bus carries."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sandstream_bus.wire.traces import ReportedSpan

from sandstream._surface.json_values import as_json, as_plain
from sandstream.tracing.ids import root_span_id, w3c_span_id, w3c_trace_id
from sandstream.tracing.span_data import SpanData
from sandstream.tracing.spans import SpanImpl
from sandstream.tracing.traces import TraceImpl

MAX_VALUE_BYTES: Final = 16 * 1024
"""Longer values are cut: a trace is not meant to store data."""
_MAX_NAME: Final = 256
_OPERATIONS: dict[str, str] = {
    "agent": "agent",
    "function": "tool",
    "generation": "chat",
    "guardrail": "guardrail",
    "handoff": "handoff",
    "response": "chat",
}
_CONTENTS = frozenset({"data", "input", "output", "result"})
"""Fields with contents: what people, models and tools said."""
_ERROR_DATA = "sandstream.error.data"
"""Counts as contents, because it quotes the error."""
_IN_NAME = frozenset({"name", "type"})


def reported_trace(trace: TraceImpl) -> tuple[str, ReportedSpan]:
    """The W3C id of the trace, and the span that represents the whole trace."""
    trace_id = w3c_trace_id(trace.trace_id)
    metadata = trace.metadata if isinstance(trace.metadata, dict) else {}
    attributes = {f"sandstream.metadata.{key}": _bounded(it) for key, it in metadata.items()}
    return trace_id, ReportedSpan(
        span_id=root_span_id(trace_id),
        name=str(trace.name)[:_MAX_NAME],
        operation="workflow",
        start_ns=_nanoseconds(trace.started_at),
        end_ns=_nanoseconds(trace.ended_at),
        attributes={**attributes, "sandstream.sdk.trace_id": trace.trace_id},
    )


def reported_span(span: SpanImpl[Any]) -> tuple[str, ReportedSpan]:
    """The W3C id of the span's trace, and the span."""
    data: SpanData = span.span_data
    exported = data.export()
    may_say = bool(getattr(span.trace, "include_sensitive_data", True))
    contents = {key: exported[key] for key in _CONTENTS & exported.keys()} if may_say else {}
    if data.type == "custom":  # a program's own measurements do not count as contents
        contents = {}
        exported = {**exported, **_named(exported.get("data"))}
    attributes = {
        f"sandstream.{data.type}.{key}": _bounded(value)
        for key, value in exported.items()
        if key not in _CONTENTS and key not in _IN_NAME and value is not None
    }
    error = span.error
    if error is not None and error.get("data") is not None and may_say:
        contents[_ERROR_DATA] = error["data"]
    return w3c_trace_id(span.trace_id), ReportedSpan(
        span_id=w3c_span_id(span.trace_id, span.span_id),
        parent_id=span.w3c_parent_id,
        name=_name(data),
        operation=_OPERATIONS.get(data.type, "custom"),
        start_ns=_nanoseconds(span.started_at),
        end_ns=_nanoseconds(span.ended_at),
        error="" if error is None else str(error.get("message") or "error"),
        attributes=attributes,
        contents={key: _bounded(it) for key, it in contents.items() if it is not None},
    )


def _name(data: SpanData) -> str:
    for attribute in ("name", "server", "model"):
        value = getattr(data, attribute, None)
        if isinstance(value, str) and value:
            return value[:_MAX_NAME]
    if data.type == "handoff":
        return f"{getattr(data, 'from_agent', '')} to {getattr(data, 'to_agent', '')}"[:_MAX_NAME]
    return data.type


def _named(data: Any) -> dict[str, Any]:
    return {str(key): value for key, value in data.items()} if isinstance(data, dict) else {}


def _bounded(value: Any) -> Any:
    """A plain JSON value; long values become a shortened text."""
    if len(as_json(value)) <= MAX_VALUE_BYTES:
        return as_plain(value)
    text = value if isinstance(value, str) else bytes(as_json(value)).decode()
    return text[: MAX_VALUE_BYTES // 4] + "…"


def _nanoseconds(time: str | None) -> int:
    """Since 1970; 0 if a custom provider returns something else."""
    if time is None:
        return 0
    try:
        at = datetime.fromisoformat(time)
    except ValueError:
        return 0
    return max(0, int(at.timestamp() * 1_000_000) * 1000)
