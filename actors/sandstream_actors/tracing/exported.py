"""How far a run under way was exported, told to replicas that do not share a store.

Whoever exports spans before a run's end says so on a subject of the run and its group, after they
are safe in its store; whoever gets the end leaves these out. A kill between the two lets spans go
out twice, with the same ids and contents, but never not at all.
"""

from __future__ import annotations

import logging

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.direct import direct_get_last
from sandstream_bus.errors import BusError, MessageError, ObjectMissing
from sandstream_bus.trace_messages import SpansExported

logger = logging.getLogger(__name__)


async def exported_through(bus: Bus, run: str, group: str) -> int:
    """The event up to which the group has exported the run's ended spans; 0: nothing."""
    subject = bus.subjects.trace_exported(run, group)
    stored = await direct_get_last(bus.connection, bus.topology.log, subject)
    if stored is None:
        return 0
    try:
        event = await bus.codec.trace_event(stored.data)
    except (MessageError, ObjectMissing) as error:
        logger.warning("a mark cannot be read", extra={"subject": subject, "why": str(error)})
        return 0
    return event.through if isinstance(event, SpansExported) else 0


async def tell_exported(bus: Bus, run: str, group: str, through: int) -> None:
    """Say it. Without the bus nobody hears it, and spans go out twice: no reason to wait."""
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
