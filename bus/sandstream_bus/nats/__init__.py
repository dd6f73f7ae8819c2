"""The NATS client layer: connection, consumers, reads, writes, objects, streams."""

from sandstream_bus.nats.aiohttp_on_demand import import_nats

import_nats()
