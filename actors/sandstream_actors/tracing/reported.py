"""Spans from outside a run's log: those that programs report, and operations on sandboxes.

Any client may report spans, so they are not trusted: values that an attribute cannot hold become
JSON text, and operations that only a run can have become ``custom``. The limits for all spans
(limits.py) apply as well.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sandstream_bus.errors import UndecodableMessage
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire.headers import ACTION
from sandstream_bus.wire.sandboxes import SandboxReply
from sandstream_bus.wire.trace_context import TraceContext, span_id_of
from sandstream_bus.wire.traces import ReportedSpan, SpansReported

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.limits import shortened
from sandstream_actors.tracing.span import Attributes, Operation, Span, Value

MAX_SPANS: Final = 10_000
"""The limit for one message; programs report in far smaller batches."""
_MAX_NAME: Final = 256
ERROR_DATA: Final = "sandstream.error.data"

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
    """The spans of a message that arrived on the subject of ``subject_trace``."""
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
    said = attributes_of(reported.contents)
    if ERROR_DATA in attributes:  # older programs send it as attribute, but it quotes errors
        said[ERROR_DATA] = attributes.pop(ERROR_DATA)
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
        contents=said if contents else {},
        first_seq=sequence,
        last_seq=sequence,
        sampled=message.sampled,
    )


def attributes_of(values: dict[str, Any]) -> Attributes:
    """Any JSON object as attributes; values that an attribute cannot hold become JSON text."""
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
    sandbox: str,
    reply: SandboxReply,
    asked: TraceContext,
    delivery: Delivery,
    *,
    contents: bool = False,
) -> Span:
    """The span of a sandbox operation that was requested within the span ``asked``. The error
    message counts as contents: it quotes paths, commands and their output.
    """
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
        error_message=reply.error.message if reply.error is not None and contents else "",
        attributes=attributes,
        first_seq=delivery.sequence,
        last_seq=delivery.sequence,
        sampled=asked.sampled,
    )
