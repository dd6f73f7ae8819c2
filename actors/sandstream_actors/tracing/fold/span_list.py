"""The spans of one run during the fold: events of the log open and close them."""

from __future__ import annotations

from sandstream_bus.wire.trace_context import span_id_of

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, Kind, Operation, Span


class SpanList:
    """Spans in the order in which they were opened, so parents come before their children."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.trace_id = ""
        self.sampled = True
        self.sequence = 0
        """The sequence of the event that is being folded."""
        self._now = 0
        self._spans: dict[str, Span] = {}

    def tick(self, sequence: int, time_ns: int) -> int:
        """Advance to the next event. Time never runs backwards, even if the server's clock did,
        and is never 0, which would mean an open span.
        """
        self.sequence = sequence
        self._now = max(self._now, time_ns, 1)
        return self._now

    def open(
        self,
        span_id: str,
        name: str,
        operation: Operation,
        *,
        parent: str,
        start_ns: int,
        agent: str = "",
        kind: Kind = "internal",
        attributes: Attributes | None = None,
    ) -> Span:
        if span_id in self._spans:  # a repeated id in one log: each gets its own span
            span_id = span_id_of(self.run, f"{span_id}:{self.sequence}")
        span = Span(
            trace_id=self.trace_id,
            span_id=span_id,
            parent_id=parent,
            name=name,
            operation=operation,
            kind=kind,
            run=self.run,
            agent=agent,
            start_ns=start_ns,
            attributes={semconv.RUN_ID: self.run, **(attributes or {})},
            first_seq=self.sequence,
            sampled=self.sampled,
        )
        self._spans[span_id] = span
        return span

    def close(self, span: Span, end_ns: int) -> None:
        span.end_ns = max(end_ns, span.start_ns)
        span.last_seq = self.sequence

    def drop(self, span: Span) -> None:
        """Forget an open span, because another one represents the same step."""
        self._spans.pop(span.span_id, None)

    def close_all(self, end_ns: int, error: str, message: str) -> None:
        """Close all open spans, with an error if they should have ended by themselves."""
        for span in self._spans.values():
            if span.is_open:
                span.error, span.error_message = span.error or error, span.error_message or message
                self.close(span, end_ns)

    def get(self, span_id: str) -> Span | None:
        return self._spans.get(span_id)

    def in_order(self) -> list[Span]:
        return list(self._spans.values())
