"""Marks in the log how far an open run was exported, for replicas that do not share a store.

A replica that exports spans before a run's end publishes a mark on a subject of the run and its
group, after the spans are in its store. The replica that gets the end skips these spans. A kill
between the two steps exports spans twice, with the same ids and contents, but never loses them.
"""

from __future__ import annotations

import logging

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusError, MessageError, ObjectMissing
from sandstream_bus.nats.fresh import fresh_last
from sandstream_bus.wire.traces import SpansExported

logger = logging.getLogger(__name__)


async def exported_through(bus: Bus, run: str, group: str) -> int:
    """The sequence up to which the group has exported the run's ended spans; 0 if none."""
    subject = bus.subjects.trace_exported(run, group)
    stored = await fresh_last(bus.connection, bus.topology.log, subject)
    if stored is None:
        return 0
    try:
        event = await bus.codec.trace_event(stored.data)
    except (MessageError, ObjectMissing) as error:
        logger.warning("a mark cannot be read", extra={"subject": subject, "why": str(error)})
        return 0
    return event.through if isinstance(event, SpansExported) else 0


async def tell_exported(bus: Bus, run: str, group: str, through: int) -> None:
    """Publish the mark. If the bus is down, spans are exported twice; that is not worth waiting."""
    crashpoint("tracing.before_mark")
    data = await bus.codec.encode(SpansExported(through=through))
    try:
        await bus.connection.publish(
            bus.subjects.trace_exported(run, group),
            data,
            msg_id=f"{run}:exported:{group}:{through}",
        )
    except BusError as error:
        if not error.retryable:
            raise
        logger.warning("a mark was not stored", extra={"run_id": run, "why": str(error)})
    crashpoint("tracing.after_mark")
