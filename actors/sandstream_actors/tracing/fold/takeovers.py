"""The takeovers of one run: those that its messages report, and moves to another program."""

from __future__ import annotations

from sandstream_bus.wire.attempts import Attempt
from sandstream_bus.wire.messages import RunEvent, RunMoved

from sandstream_actors.run.takeovers import REMARKS, TakeoverCount
from sandstream_actors.tracing.fold.hop_spans import HopSpans
from sandstream_actors.tracing.fold.span_list import SpanList
from sandstream_actors.tracing.fold.tries import Lost
from sandstream_actors.tracing.span import Span


class RunTakeovers:
    """Counts takeovers, and attributes the lost time to the steps that lost it."""

    def __init__(self, spans: SpanList, hops: HopSpans) -> None:
        self._spans = spans
        self._hops = hops
        self._told = TakeoverCount()
        self._worked_ns = 0
        """The time of the last sign of work."""
        self._moved: Lost | None = None
        """The time lost by the last move, until a step is repeated because of it."""

    @property
    def count(self) -> int:
        return self._told.count

    def note(self, event: RunEvent, attempt: Attempt, now: int) -> tuple[int, Lost | None]:
        """Process the next event.

        Returns:
            The number of takeovers that this event is the first to report, and the lost time that
            only the run's own span can show: a takeover of its task, or a move to another program.
        """
        new, since_ns = self._told.note(event, attempt), now
        is_moved = new > 0 and isinstance(event, RunMoved)
        if is_moved:
            since_ns = self._worked_ns or now
        if not isinstance(event, REMARKS):
            self._worked_ns = now
        if not new or (attempt.cause and not is_moved):
            return new, None
        lost = Lost(since_ns, now, new, by=attempt.worker)
        self._moved = lost._replace(is_told=True) if is_moved else None
        return new, lost

    def mark_turn(self, span: Span, cause: int) -> None:
        """Mark a model call with the attempts at its message. After a move without open calls, the
        previous program was lost during this turn.
        """
        if self._moved is not None:
            self._hops.inherit(cause, self._moved)
            self._moved = None
        self._hops.mark(span, cause)

    def is_asked_again(self, before: tuple[Span, int], sequence: int, now: int) -> bool:
        """After a move, the open calls of the previous program are requested again. Both requests
        are one step, whose time with that program was lost; its first span is dropped.
        """
        span, earlier = before
        lost = self._hops.lose(earlier, now, self._moved.by if self._moved else "")
        if lost is None:
            return False
        self._spans.drop(span)
        self._hops.inherit(sequence, lost)
        self._moved = None
        return True
