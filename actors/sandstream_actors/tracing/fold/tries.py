"""The attempts at the steps of one run: which process worked on each message, and the lost time.

A killed process reports nothing. Its attempt is only known from the next one, whose messages count
it. So the lost time lasts from the last sign of the lost attempt, or from its message, until the
next process began; when the lost process really died is unknown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sandstream_bus.wire.attempts import Attempt

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.span import Attributes, Span, SpanEvent

_NS: Final = 1_000_000_000


class Tried(NamedTuple):
    """The attempt that produced an event."""

    attempt: Attempt
    takeovers: int
    """Those that the event is the first to report."""


class Lost(NamedTuple):
    """A period in which a process held a step that it did not finish."""

    start_ns: int
    end_ns: int
    """When the next process began."""
    takeovers: int
    worker: str = ""
    """The process that was lost; empty if the log does not name it."""
    by: str = ""
    """The process that continued."""
    is_told: bool = False
    """Whether another span already reports the takeover: each is reported once."""

    @property
    def event(self) -> SpanEvent:
        attributes: Attributes = {
            semconv.TAKEOVERS: 0 if self.is_told else self.takeovers,
            semconv.LOST: (self.end_ns - self.start_ns) / _NS,
        }
        if self.worker:
            attributes[semconv.TAKEN_FROM] = self.worker
        if self.by:
            attributes[semconv.WORKER] = self.by
        return SpanEvent(name=semconv.TAKEOVER, time_ns=self.end_ns, attributes=attributes)


class Tries:
    """All attempts at one message."""

    def __init__(self, time_ns: int) -> None:
        self._time_ns = time_ns
        self.lost: list[Lost] = []
        self.first_ns = 0
        """The first sign of any attempt; 0 if there is none yet."""
        self._last_ns = 0
        self.attempt = Attempt(0)
        """The newest attempt."""

    def note(self, attempt: Attempt, takeovers: int, began_ns: int, now: int) -> Lost | None:
        """Process an event that the message caused; return the time lost before it. ``takeovers``:
        how many the event is the first to report.
        """
        found: Lost | None = None
        if takeovers:
            start = self._last_ns or self._time_ns
            began_ns = max(start, began_ns)
            found = Lost(start, began_ns, takeovers, self.attempt.worker, attempt.worker)
            self.lost.append(found)
            self.first_ns = self.first_ns or start
        self.first_ns = self.first_ns or began_ns
        self._last_ns = now
        if attempt.number >= self.attempt.number:
            self.attempt = attempt
        return found

    @property
    def sign(self) -> tuple[int, str]:
        """The last sign of the newest attempt, and its process."""
        return self._last_ns or self._time_ns, self.attempt.worker

    def mark(self, span: Span, before_ns: int) -> None:
        """Record on the span of a step the number of attempts and the process of the last one.
        Takeovers after ``before_ns`` belong to later work.
        """
        lost = [it for it in self.lost if it.end_ns <= before_ns]
        takeovers = sum(it.takeovers for it in lost)
        told = self.attempt.number - self.attempt.takeovers + takeovers
        mark(
            span, self.attempt.worker, told, takeovers, sum(it.end_ns - it.start_ns for it in lost)
        )


def mark(span: Span, worker: str, attempts: int, takeovers: int, lost_ns: int) -> None:
    """Set the attributes; the normal case (one attempt, no takeover) is not recorded."""
    if worker:
        span.attributes[semconv.WORKER] = worker
    if attempts > 1:
        span.attributes[semconv.ATTEMPTS] = attempts
    if takeovers:
        span.attributes[semconv.TAKEOVERS] = takeovers
        span.attributes[semconv.LOST] = lost_ns / _NS
