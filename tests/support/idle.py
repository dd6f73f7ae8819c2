"""Whether a consumer is idle, according to the log."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.nats.direct import stale_many


async def is_idle(bus: Bus, consumer: str) -> bool:
    """Whether everything that the log has for the consumer was delivered and acknowledged.

    The server updates the pending count a moment after it has acknowledged a publish, so that count
    alone can be zero too early.
    """
    info = await bus.topology.consumer_info(bus.connection, consumer)
    if info is None or info["num_pending"] or info["num_ack_pending"]:
        return False
    config, after = info["config"], info["delivered"]["stream_seq"]
    for subject in config.get("filter_subjects") or [config["filter_subject"]]:
        log = bus.topology.log
        if await stale_many(bus.connection, log, subject, after=after, limit=1):
            return False
    return True
