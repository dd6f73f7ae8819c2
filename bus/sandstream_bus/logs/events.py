"""Results of the run log: events with their sequences, and conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sandstream_bus.errors import WrongSequence
from sandstream_bus.nats.leader import Stored
from sandstream_bus.wire.messages import RunEvent


class LogEvent(NamedTuple):
    """One decoded event of a run, with its position in the log."""

    sequence: int
    """The number of the event in the log. Later events have higher numbers."""
    subject: str
    """The subject under which it is stored."""
    event: RunEvent
    """The event itself."""
    stored: Stored
    """The message as it is stored, with its headers and its time."""


class Sent(NamedTuple):
    """A stored message that follows from a decision."""

    sequence: int
    after: int | None
    """The sequence of the run's previous event; None: unknown."""


class Appended(NamedTuple):
    """The sequence of a stored decision, and whether this publish stored it."""

    sequence: int
    is_new: bool


class Conflict(WrongSequence):
    """Another process appended first. ``news`` has the events that the caller has not seen."""

    def __init__(self, news: Sequence[LogEvent]) -> None:
        super().__init__("the run has new events; fold them and decide again")
        self.news = news
