"""A run's log as the tracing actor reads it: an event that cannot be read here hides no other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.consumer import Delivery
from sandstream_bus.direct import Stored, direct_get_many
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.headers import TIME
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import RunEvent
from sandstream_bus.remarks import is_remark

from sandstream_actors.tracing.fold.run_trace import RunTrace

_LONG: Final = 1_000


class Reading(NamedTuple):
    """What a run's log holds."""

    events: list[LogEvent]
    skipped: int
    """Events that could not be read: of a newer version, broken, or their object is gone."""


async def read_run(bus: Bus, run: str) -> Reading:
    """All events of a run. What outsiders have said that says nothing is nobody's loss."""
    found = await direct_get_many(
        bus.connection, bus.topology.log, bus.subjects.run_all(run), after=0
    )
    events: list[LogEvent] = []
    skipped = 0
    for stored in found:
        try:
            events.append(await bus.log.decoded(stored))
        except (MessageError, ObjectMissing):
            skipped += not is_remark(bus.subjects, stored.subject)
    return Reading(events, skipped)


async def has_news(bus: Bus, run: str, after: int) -> bool:
    """Is there an event of the run behind this one?"""
    subject = bus.subjects.run_all(run)
    found = await direct_get_many(bus.connection, bus.topology.log, subject, after=after, limit=1)
    return bool(found)


async def folded(run: str, events: list[LogEvent], *, contents: bool = False) -> RunTrace:
    """The trace of a log; that of a long one is made beside the loop, which has others to serve."""
    if len(events) < _LONG:
        return RunTrace.of(run, events, contents=contents)
    return await asyncio.to_thread(RunTrace.of, run, events, contents=contents)


def delivered(delivery: Delivery, event: RunEvent) -> LogEvent:
    """A delivered event as if it were read back."""
    seconds, nanoseconds = divmod(delivery.time_ns, 1_000_000_000)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    headers = {**delivery.headers, TIME: f"{stamp}.{nanoseconds:09d}Z"}
    stored = Stored(delivery.sequence, delivery.subject, delivery.data, headers)
    return LogEvent(delivery.sequence, delivery.subject, event, stored)
