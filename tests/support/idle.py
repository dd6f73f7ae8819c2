"""Whether a consumer has nothing left to do, as the log tells it."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.direct import direct_get_many


async def is_idle(bus: Bus, consumer: str) -> bool:
    """Was everything delivered that the log has for it, and acknowledged?

    The server counts what is pending a moment after it has acknowledged a publish, so that count
    alone can say too early that there is nothing.
    """
    info = await bus.topology.consumer_info(bus.connection, consumer)
    if info is None or info["num_pending"] or info["num_ack_pending"]:
        return False
    config, after = info["config"], info["delivered"]["stream_seq"]
    for subject in config.get("filter_subjects") or [config["filter_subject"]]:
        log = bus.topology.log
        if await direct_get_many(bus.connection, log, subject, after=after, limit=1):
            return False
    return True
