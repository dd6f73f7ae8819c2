"""A run's log for observers: an unreadable event does not hide the others."""

from __future__ import annotations

from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.logs.remarks import is_stray
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.subjects import RunId


class Reading(NamedTuple):
    """The events of a run's log."""

    events: list[LogEvent]
    skipped: int
    """Events that could not be read: of a newer version, broken, or their object is gone."""


async def read_run(bus: Bus, run: str) -> Reading:
    """All readable events of a run. Unreadable remarks of outsiders are not counted as skipped."""
    found = await bus.log.stored(RunId(run))
    events: list[LogEvent] = []
    skipped = 0
    for stored in found:
        try:
            events.append(await bus.log.decoded(stored))
        except (MessageError, ObjectMissing):
            skipped += not is_stray(bus.subjects, stored.subject, stored.headers)
    return Reading(events, skipped)


async def has_news(bus: Bus, run: str, after: int) -> bool:
    """Is there an event of the run behind this one?"""
    return await bus.log.last_sequence(RunId(run)) > after
