"""Workers that check messages of another stream and carry them to the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.nats.topology import ConsumerSpec
from sandstream_bus.runtime import Worker

_AT_ONCE = 8
"""Few: a flood of requests must leave the process time for active runs."""


def carrier(
    bus: Bus,
    stream: str,
    name: str,
    filters: list[str],
    carry: Callable[[Delivery], Awaitable[None]],
) -> Worker:
    """One consumer, shared by all replicas of all pools."""

    async def handle(delivery: Delivery) -> None:
        crashpoint("carrier.received")
        await carry(delivery)
        crashpoint("carrier.carried")

    spec = ConsumerSpec(name=name, stream=stream, kind="carrier", filters=filters)
    return Worker(bus, spec, handle, max_in_flight=_AT_ONCE)
