"""Counts the takeovers of one run, event by event, for all views.

``sandstream_bus.wire.attempts`` defines a takeover. The move of a run to another program
(``run_key``) is also one, because the previous program is gone. Headers report all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.attempts import Attempt, Takeovers, attempt_of
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    CancelRequested,
    InputStaged,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    RunWaiting,
)

REMARKS = (ApprovalDecided, CancelRequested, InputStaged)
"""Messages about a run by other users: they do not show that a process works on it."""


class TakeoverCount:
    """Feed it every event in order. Events after a run's end do not count."""

    def __init__(self) -> None:
        self._told = Takeovers()
        self._is_waiting = False
        """The run waits for people: no process holds any of it, so none can be lost."""
        self._is_over = False

    @classmethod
    def of(cls, events: Iterable[LogEvent]) -> TakeoverCount:
        count = cls()
        for event in events:
            count.note(event.event, attempt_of(event.stored.headers))
        return count

    @property
    def count(self) -> int:
        return self._told.count

    def note(self, event: RunEvent, attempt: Attempt) -> int:
        """How many takeovers this event is the first to report."""
        if isinstance(event, RunReopened):
            self._is_over = False
        if self._is_over:
            return 0
        new = self._told.note(attempt)
        if isinstance(event, RunMoved) and not self._is_waiting:
            new += self._told.move()
        if not isinstance(event, REMARKS):
            self._is_waiting = isinstance(event, RunWaiting)
        self._is_over = isinstance(event, RunDone)
        return new
