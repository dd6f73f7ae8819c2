"""Spans of waiting for approvals: from the request to the first decision."""

from __future__ import annotations

from sandstream_bus.wire.messages import ApprovalDecided, ApprovalRequested
from sandstream_bus.wire.trace_context import span_id_of

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.span_list import SpanList
from sandstream_actors.tracing.span import Span


class ApprovalSpans:
    """The approval requests of one run."""

    def __init__(self, spans: SpanList) -> None:
        self._spans = spans
        self._open: dict[str, Span] = {}
        """By the call's id in the log and by the model's call id: decisions may use either."""

    def ask(self, asked: ApprovalRequested, parent: str, again: str, now: int) -> None:
        span = self._spans.open(
            span_id_of(self._spans.run, f"approval:{asked.call}{again}"),
            f"approval {asked.name}",
            "approval",
            parent=parent,
            start_ns=now,
            agent=asked.agent,
            attributes={
                semconv.TOOL_NAME: asked.name,
                semconv.TOOL_CALL_ID: asked.call_id,
                semconv.CALL: asked.call,
                semconv.TURN: asked.turn,
            },
        )
        self._open[asked.call] = self._open[asked.call_id] = span

    def decide(self, decided: ApprovalDecided, now: int) -> None:
        span = None if decided.run else self._open.get(decided.call)
        if span is None or not span.is_open:
            return  # for a child run, or not the first decision
        decision = "approved" if decided.approve else "rejected"
        span.attributes[semconv.APPROVAL_DECISION] = "expired" if decided.expired else decision
        if decided.by:
            span.attributes[semconv.APPROVAL_BY] = decided.by
        self._spans.close(span, now)

    def clear(self) -> None:
        """Forget all open requests."""
        self._open.clear()
