"""Spans of what no run's log tells: those that programs report, and operations on sandboxes.

Anybody may report spans, so nothing in them is taken as it is: sizes are bounded, what is not an
attribute's value becomes its JSON, and an operation that only a run can have becomes ``custom``.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

import msgspec
from sandstream_bus.consumer import Delivery
from sandstream_bus.errors import UndecodableMessage
from sandstream_bus.headers import ACTION, TRACEPARENT
from sandstream_bus.sandbox_messages import SandboxReply
from sandstream_bus.trace_context import TraceContext, span_id_of
from sandstream_bus.trace_messages import ReportedSpan, SpansReported

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, Operation, Span, Value

MAX_SPANS: Final = 10_000
"""In one message; a program reports in batches that are far smaller."""
MAX_ATTRIBUTES: Final = 128
MAX_TEXT: Final = 32 * 1024
MAX_LIST: Final = 1_000
_MAX_NAME: Final = 256
_INT64: Final = 2**63

_REPORTABLE: dict[str, Operation] = {
    "agent": "agent",
    "chat": "chat",
    "tool": "tool",
    "handoff": "handoff",
    "guardrail": "guardrail",
    "memory": "memory",
    "sandbox": "sandbox",
    "workflow": "workflow",
}
_KNOWN_ACTION: Final = 64


def reported_spans(
    message: SpansReported, subject_trace: str, *, contents: bool = False
) -> list[Span]:
    """The spans of a message that came on the subject of ``subject_trace``."""
    if message.trace_id != subject_trace:
        raise UndecodableMessage(
            f"spans of the trace {message.trace_id} are out of place on the subject of "
            f"{subject_trace[:80]!r}"
        )
    if len(message.spans) > MAX_SPANS:
        raise UndecodableMessage(
            f"{len(message.spans)} spans in one message; report at most {MAX_SPANS} at once"
        )
    return [_span(message, each, contents=contents) for each in message.spans]


def _span(message: SpansReported, reported: ReportedSpan, *, contents: bool) -> Span:
    operation = _REPORTABLE.get(reported.operation, "custom")
    attributes = attributes_of(reported.attributes)
    if operation == "workflow" and message.workflow_name:
        attributes[semconv.WORKFLOW_NAME] = _cut(message.workflow_name, _MAX_NAME)
    if message.group_id:
        attributes[semconv.GROUP_ID] = _cut(message.group_id, _MAX_NAME)
    if reported.error:
        attributes[semconv.ERROR_TYPE] = _cut(reported.error, _MAX_NAME)
    return Span(
        trace_id=message.trace_id,
        span_id=reported.span_id,
        parent_id=reported.parent_id or "",
        name=_cut(reported.name, _MAX_NAME) or operation,
        operation=operation,
        start_ns=reported.start_ns,
        end_ns=max(reported.end_ns, reported.start_ns, 1),
        error=_cut(reported.error, _MAX_NAME),
        attributes=attributes,
        contents=attributes_of(reported.contents) if contents else {},
        sampled=message.sampled,
    )


def attributes_of(values: dict[str, Any]) -> Attributes:
    """Any JSON object as attributes of bounded size."""
    kept = list(values.items())[:MAX_ATTRIBUTES]
    return {_cut(name, _MAX_NAME): _value(value) for name, value in kept if value is not None}


def _value(value: Any) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _cut(value, MAX_TEXT)
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list):
        items = cast(list[Any], value)
        if len(items) <= MAX_LIST and all(isinstance(item, str) for item in items):
            text = sum(map(len, items))
            return items if text <= MAX_TEXT else _cut(_json(items), MAX_TEXT)
    return _cut(_json(value), MAX_TEXT)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def operation_span(sandbox: str, reply: SandboxReply, delivery: Delivery) -> Span | None:
    """The span of an operation on a sandbox; None if nobody's trace asked for it."""
    asked = TraceContext.parse(delivery.headers.get(TRACEPARENT))
    if asked is None:
        return None
    action = delivery.headers.get(ACTION, "")[:_KNOWN_ACTION] or "operation"
    error = reply.error.code if reply.error is not None else ""
    attributes: Attributes = {semconv.SANDBOX_ID: sandbox}
    if error:
        attributes[semconv.ERROR_TYPE] = _cut(error, _MAX_NAME)
    return Span(
        trace_id=asked.trace_id,
        span_id=span_id_of(sandbox, f"op:{reply.op}"),
        parent_id=asked.span_id,
        name=f"sandbox.{action}",
        operation="sandbox",
        kind="client",
        start_ns=delivery.time_ns - max(reply.duration_ms, 0) * 1_000_000,
        end_ns=delivery.time_ns,
        error=_cut(error, _MAX_NAME),
        error_message=_cut(reply.error.message, 1_000) if reply.error is not None else "",
        attributes=attributes,
        first_seq=delivery.sequence,
        last_seq=delivery.sequence,
        sampled=asked.sampled,
    )
