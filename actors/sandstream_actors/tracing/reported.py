"""Spans of what no run's log tells: those that programs report, and operations on sandboxes.

Anybody may report spans, so nothing in them is taken as it is: what is not an attribute's value
becomes its JSON, and an operation that only a run can have becomes ``custom``. The limits of all
spans (limits.py) hold for them as well.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sandstream_bus.consumer import Delivery
from sandstream_bus.errors import UndecodableMessage
from sandstream_bus.headers import ACTION
from sandstream_bus.sandbox_messages import SandboxReply
from sandstream_bus.trace_context import TraceContext, span_id_of
from sandstream_bus.trace_messages import ReportedSpan, SpansReported

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.limits import shortened
from sandstream_actors.tracing.span import Attributes, Operation, Span, Value

MAX_SPANS: Final = 10_000
"""In one message; a program reports in batches that are far smaller."""
_MAX_NAME: Final = 256

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


def reported_spans(
    message: SpansReported, subject_trace: str, *, sequence: int, contents: bool = False
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
    return [_span(message, each, sequence, contents=contents) for each in message.spans]


def _span(message: SpansReported, reported: ReportedSpan, sequence: int, *, contents: bool) -> Span:
    operation = _REPORTABLE.get(reported.operation, "custom")
    attributes = attributes_of(reported.attributes)
    if operation == "workflow" and message.workflow_name:
        attributes[semconv.WORKFLOW_NAME] = shortened(message.workflow_name, _MAX_NAME)
    if message.group_id:
        attributes[semconv.GROUP_ID] = shortened(message.group_id, _MAX_NAME)
    if reported.error:
        attributes[semconv.ERROR_TYPE] = shortened(reported.error, _MAX_NAME)
    return Span(
        trace_id=message.trace_id,
        span_id=reported.span_id,
        parent_id=reported.parent_id or "",
        name=shortened(reported.name, _MAX_NAME) or operation,
        operation=operation,
        start_ns=reported.start_ns,
        end_ns=max(reported.end_ns, reported.start_ns, 1),
        error=shortened(reported.error, _MAX_NAME),
        attributes=attributes,
        contents=attributes_of(reported.contents) if contents else {},
        first_seq=sequence,
        last_seq=sequence,
        sampled=message.sampled,
    )


def attributes_of(values: dict[str, Any]) -> Attributes:
    """Any JSON object as attributes: what is no attribute's value becomes its JSON."""
    return {name: _value(value) for name, value in values.items() if value is not None}


def _value(value: Any) -> Value:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list):
        items: list[Any] = value
        if all(isinstance(item, str) for item in items):
            return items
    return msgspec.json.encode(value).decode()


def operation_span(
    sandbox: str, reply: SandboxReply, asked: TraceContext, delivery: Delivery
) -> Span:
    """An operation on a sandbox that was asked for within the span ``asked``."""
    action = delivery.headers.get(ACTION, "")[:64] or "operation"
    error = reply.error.code if reply.error is not None else ""
    attributes: Attributes = {semconv.SANDBOX_ID: sandbox}
    if error:
        attributes[semconv.ERROR_TYPE] = shortened(error, _MAX_NAME)
    return Span(
        trace_id=asked.trace_id,
        span_id=span_id_of(sandbox, f"op:{reply.op}"),
        parent_id=asked.span_id,
        name=f"sandbox.{action}",
        operation="sandbox",
        kind="client",
        start_ns=max(delivery.time_ns - max(reply.duration_ms, 0) * 1_000_000, 0),
        end_ns=max(delivery.time_ns, 1),
        error=shortened(error, _MAX_NAME),
        error_message=reply.error.message if reply.error is not None else "",
        attributes=attributes,
        first_seq=delivery.sequence,
        last_seq=delivery.sequence,
        sampled=asked.sampled,
    )
