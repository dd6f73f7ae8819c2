"""Hand-written logs with subjects, times and causes, from which traces are folded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import SpanEvent
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import Stored
from sandstream_bus.wire.messages import RunEvent

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
T0_NS = int(T0.timestamp()) * 1_000_000_000
MS = 1_000_000


class TimedLog:
    """``add`` appends an event ``at`` milliseconds after the start."""

    def __init__(self, run: str = "r", first: int = 1) -> None:
        self.run = run
        self.events: list[LogEvent] = []
        self._next = first

    def add(
        self,
        kind: str,
        event: RunEvent,
        *,
        at: float,
        cause: int = 0,
        traceparent: str = "",
        deliveries: int = 1,
        worker: str = "",
        headers: dict[str, str] | None = None,
    ) -> int:
        """``kind`` is the rest of the subject: ``call.h``, ``model``. Returns the sequence."""
        sequence, self._next = self._next, self._next + 1
        stamp = T0 + timedelta(milliseconds=at)
        found = {"Nats-Time-Stamp": stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        if cause:
            found["Sandstream-Cause"] = str(cause)
        if traceparent:
            found["traceparent"] = traceparent
        if deliveries > 1:
            found["Sandstream-Deliveries"] = str(deliveries)
        if worker:
            found["Sandstream-Worker"] = worker
        subject = f"sandstream.run.{self.run}.{kind}"
        stored = Stored(sequence, subject, b"{}", found | (headers or {}))
        self.events.append(LogEvent(sequence, subject, event, stored))
        return sequence


def takeovers_told(event: SpanEvent) -> int:
    """How many takeovers this event of a span tells of."""
    count = event.attributes[semconv.TAKEOVERS]
    assert isinstance(count, int)
    return count
