"""Opens the bus that the settings name: the cluster at ``NATS_URL``, or the private server."""

from __future__ import annotations

import asyncio

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.connect_options import ConnectOptions
from sandstream_bus.embedded import EmbeddedServer, ensure_server

from sandstream.settings import Settings


class OpenBus:
    """A bus and, if it is private, the lease on its server. Close it to let both go."""

    def __init__(self, bus: Bus, server: EmbeddedServer | None) -> None:
        self.bus = bus
        self.server = server

    async def close(self) -> None:
        try:
            await self.bus.close()
        finally:
            if self.server is not None:
                self.server.release()

    async def __aenter__(self) -> Bus:
        return self.bus

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Reviver:
    """Starts the private server again when it is gone."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._lock = asyncio.Lock()

    async def revive(self, options: ConnectOptions) -> ConnectOptions:
        async with self._lock:
            url = await self._server.revive()
        return msgspec.structs.replace(
            options,
            servers=[url],
            user=self._server.user,
            password=self._server.password,
        )


async def open_bus(settings: Settings, *, name: str = "sandstream") -> OpenBus:
    """Connect; start the private server first if there is no ``NATS_URL``."""
    if settings.nats is not None:
        options = msgspec.structs.replace(settings.nats, name=name)
        bus = await Bus.open(options, prefix=settings.prefix, retention=settings.retention)
        return OpenBus(bus, None)
    server = await ensure_server(settings.home, sync=settings.sync)
    try:
        options = ConnectOptions(
            servers=[server.url], user=server.user, password=server.password, name=name
        )
        bus = await Bus.open(
            options,
            prefix=settings.prefix,
            retention=settings.retention,
            reviver=_Reviver(server),
        )
    except BaseException:
        server.release()
        raise
    return OpenBus(bus, server)
