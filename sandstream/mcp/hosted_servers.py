"""The servers of a deployed worker: connected while the worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Self

from sandstream_bus.wire.error_text import error_text

from sandstream.exceptions import UserError
from sandstream.mcp.limits import lifecycle_timeout_s
from sandstream.mcp.owner import ServerOwner
from sandstream.mcp.server import MCPServer

logger = logging.getLogger(__name__)


class ConnectedServers:
    """Connects each server once at the start and closes all at the end.

    A broken server does not prevent the worker from starting: few runs may need it, and it may
    recover. ``ensure`` tries to connect it again on each use.

    Args:
        servers: The servers. This object connects and closes them.
        connect_timeout_seconds: How long a server may take to connect; ``None`` removes the limit.
        cleanup_timeout_seconds: How long a server may take to close; ``None`` removes the limit.

    Example:
        async with ConnectedServers([git, files]) as connected:
            print(connected.errors)
    """

    def __init__(
        self,
        servers: Iterable[MCPServer],
        *,
        connect_timeout_seconds: float | None = 10.0,
        cleanup_timeout_seconds: float | None = 10.0,
    ) -> None:
        self._connect_timeout_s = lifecycle_timeout_s(
            connect_timeout_seconds, "connect_timeout_seconds"
        )
        self._cleanup_timeout_s = lifecycle_timeout_s(
            cleanup_timeout_seconds, "cleanup_timeout_seconds"
        )
        self._hosted = {server: _Hosted(server) for server in servers}
        self._stopped = False

    @property
    def errors(self) -> dict[MCPServer, str]:
        """The reasons why servers are not connected, by server; all others are connected."""
        return {
            server: hosted.problem
            for server, hosted in self._hosted.items()
            if hosted.problem is not None
        }

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect all servers concurrently. Failures are logged and listed in ``errors``."""
        self._stopped = False
        await asyncio.gather(*(self._connect(hosted) for hosted in self._hosted.values()))

    async def ensure(self, servers: Iterable[MCPServer]) -> None:
        """Connect those of the servers that are not connected or were lost.

        Args:
            servers: The servers that are about to be used.

        Raises:
            UserError: if one of them cannot be connected, or does not belong to this worker.
        """
        for server in servers:
            hosted = self._hosted.get(server)
            if hosted is None:
                known = ", ".join(repr(each.safe_name) for each in self._hosted) or "none"
                raise UserError(
                    f"MCP server '{server.safe_name}' is not one of this worker's ({known})."
                )
            if self._stopped:
                raise UserError(
                    f"MCP server '{server.safe_name}' is closed, because its worker stops."
                )
            if hosted.is_usable:
                continue
            await self._connect(hosted)
            if hosted.problem is not None:
                raise UserError(
                    f"MCP server '{server.safe_name}' is not connected: {hosted.problem} "
                    "It is tried again on its next use."
                )

    async def stop(self) -> None:
        """Close all servers concurrently. It never fails, and ends within the cleanup timeout."""
        self._stopped = True
        await asyncio.gather(*(self._close(hosted) for hosted in self._hosted.values()))

    async def _connect(self, hosted: _Hosted) -> None:
        async with hosted.lock:
            if hosted.is_usable or self._stopped:
                return
            if hosted.is_connected:
                await self._clean_up(hosted)
            try:
                await hosted.owner.connect(self._connect_timeout_s, self._cleanup_timeout_s)
            except Exception as error:  # noqa: BLE001 - kept for the callers that need the server
                hosted.problem = _text(error)
                logger.error(
                    "An MCP server does not connect; it is tried again on its next use",
                    extra={"server": hosted.server.safe_name, "error": hosted.problem},
                )
                await self._clean_up(hosted)
            else:
                hosted.is_connected = True
                hosted.problem = None

    async def _close(self, hosted: _Hosted) -> None:
        async with hosted.lock:
            if hosted.is_connected:
                await self._clean_up(hosted)

    async def _clean_up(self, hosted: _Hosted) -> None:
        hosted.is_connected = False
        try:
            await hosted.owner.cleanup(self._cleanup_timeout_s)
        except Exception as error:  # noqa: BLE001 - the worker stops anyway
            logger.error(
                "An MCP server was not cleaned up",
                extra={"server": hosted.server.safe_name, "error": _text(error)},
            )


class _Hosted:
    """One server and its state."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.owner = ServerOwner(server)
        self.lock = asyncio.Lock()
        self.is_connected = False
        self.problem: str | None = "It was not connected yet."

    @property
    def is_usable(self) -> bool:
        return self.is_connected and not self.server.connection_lost


def _text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "It took too long to connect or to close."
    return error_text(error)
