"""Opens the bus that the settings name: the cluster at ``NATS_URL``, or the private server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Literal

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.embedded.lease import EmbeddedServer, ensure_server
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import Retention, RetentionChoice, retention_text
from sandstream_bus.setup.installation import create_missing

from sandstream.settings import Settings

logger = logging.getLogger(__name__)


class OpenBus:
    """A bus and, if it is private, the lease on its server. ``close`` releases both."""

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
    """Restarts the private server when it is gone."""

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


async def open_bus(
    settings: Settings,
    *,
    name: str = "sandstream",
    create: Literal["never", "if_empty"] = "never",
    outsider: bool = False,
) -> OpenBus:
    """Connect; start the private server first if there is no ``NATS_URL``.

    Args:
        settings: Where the bus is.
        name: The connection's name in the server's lists.
        create: Whether to create the streams on a server at ``NATS_URL`` that has none. Those of
            the private server are always created.
        outsider: Check only the log of a server at ``NATS_URL``: outside users may not see more.

    Raises:
        NotSetUp: The server at ``NATS_URL`` has no streams of this installation.
        StreamsDiffer: Its streams do not match what this release needs.
    """
    retention = settings.retention.over(Retention())
    if settings.nats is not None:
        options = msgspec.structs.replace(settings.nats, name=name)
        bus = await Bus.open(
            options,
            prefix=settings.prefix,
            create=create,
            retention=retention,
            outsider=outsider,
        )
        _warn_of_ignored(settings.retention, bus)
        return OpenBus(bus, None)
    server = await ensure_server(settings.home, sync=settings.sync)
    try:
        bus = await Bus.open(
            private_options(server, name),
            prefix=settings.prefix,
            create="missing",
            retention=retention,
            reviver=_Reviver(server),
        )
    except BaseException:
        server.release()
        raise
    _warn_of_ignored(settings.retention, bus)
    # a private server has no administrator who would recreate its streams
    bus.guard.recreate = partial(create_missing, bus.connection, bus.topology)
    return OpenBus(bus, server)


@contextlib.asynccontextmanager
async def open_connection(settings: Settings, *, name: str) -> AsyncIterator[Connection]:
    """Open a connection without checking the streams, for ``sandstream setup``."""
    if settings.nats is not None:
        connection = await Connection.open(msgspec.structs.replace(settings.nats, name=name))
        try:
            yield connection
        finally:
            await connection.close()
        return
    async with await ensure_server(settings.home, sync=settings.sync) as server:
        connection = await Connection.open(private_options(server, name))
        try:
            yield connection
        finally:
            await connection.close()


def private_options(server: EmbeddedServer, name: str) -> ConnectOptions:
    """How to connect to the private server."""
    return ConnectOptions(
        servers=[server.url], user=server.user, password=server.password, name=name
    )


VARIABLES = {
    "replicas": "SANDSTREAM_REPLICAS",
    "max_age_days": "SANDSTREAM_MAX_AGE_DAYS",
    "max_bytes": "SANDSTREAM_MAX_BYTES",
}


def ignored_variables(asked: RetentionChoice, has: Retention) -> list[str]:
    """The environment variables that differ from the installation's settings."""
    would = asked.over(has)
    return [
        VARIABLES[field]
        for field in asked.given()
        if _normal(getattr(would, field)) != _normal(getattr(has, field))
    ]


def _normal(value: float) -> float:
    return max(round(value, 6), 0)  # both 0 and -1 mean no limit


def _warn_of_ignored(asked: RetentionChoice, bus: Bus) -> None:
    names = ignored_variables(asked, bus.topology.retention)
    if names:
        logger.warning(
            "%s: ignored, the installation has its own settings: %s. `sandstream setup` changes "
            "them",
            ", ".join(names),
            retention_text(bus.topology.retention),
        )
