"""The servers of a deployed worker: connected for as long as the worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Self

from sandstream.exceptions import UserError
from sandstream.mcp.limits import lifecycle_timeout_s
from sandstream.mcp.owner import ServerOwner
from sandstream.mcp.server import MCPServer

logger = logging.getLogger(__name__)


class ConnectedServers:
    """Connects each server once at the start and closes all at the end.

    A server that is out of order does not keep the worker from starting, as it may be needed by few
    runs and may come back: ``ensure`` tries it again whenever somebody wants to use it.
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
        """Why servers are not connected, by server; those not in it are connected."""
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
        """Connect all, side by side. What fails is logged and is in ``errors``."""
        self._stopped = False
        await asyncio.gather(*(self._connect(hosted) for hosted in self._hosted.values()))

    async def ensure(self, servers: Iterable[MCPServer]) -> None:
        """Connect those of the servers that are not connected, or not any more.

        Raises:
            UserError: if one of them still does not connect, or is none of this worker's.
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
        """Close all, side by side. It does not fail, and ends within the limit for cleaning up."""
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
            except Exception as error:  # noqa: BLE001 - it is kept and told to whoever needs it
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
        except Exception as error:  # noqa: BLE001 - a worker stops all the same
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
    return str(error) or type(error).__name__
