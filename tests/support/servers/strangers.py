"""Scenarios with untrusted clients: our bus, and a connection that writes arbitrary bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fuzz.wire import Wire
from sandstream_bus.bus import Bus
from support.nats_server import NatsServer, open_bus

Story = Callable[[Bus, Wire], Awaitable[None]]


def told(server: NatsServer, story: Story) -> None:
    """Run the scenario on a server that has our streams."""

    async def main() -> None:
        async with open_bus(server) as bus, asyncio.timeout(40):
            wire = await Wire.open(server.port)
            try:
                await story(bus, wire)
            finally:
                await wire.close()

    asyncio.run(main())
