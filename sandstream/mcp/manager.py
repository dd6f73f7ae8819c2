"""Manages several servers together; some of them may be broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

from sandstream.mcp.limits import lifecycle_timeout_s
from sandstream.mcp.owner import ServerOwner
from sandstream.mcp.server import MCPServer

logger = logging.getLogger(__name__)


class MCPServerManager(AbstractAsyncContextManager["MCPServerManager"]):
    """Connects servers, cleans them up, and lists the usable ones.

    Args:
        servers: The servers.
        connect_timeout_seconds: How long one server may take to connect; ``None`` removes the
            limit.
        cleanup_timeout_seconds: How long one server may take to close; ``None`` removes the limit.
        drop_failed_servers: Do not list servers that did not connect as active.
        strict: Raise if a server does not connect, and clean up the others.
        suppress_cancelled_error: Count a server that cancels itself as failed. A cancellation of
            the caller still applies.
        connect_in_parallel: Connect all servers at once instead of one after the other.

    Example:
        async with MCPServerManager([files, search]) as manager:
            agent = Agent(name="Assistant", mcp_servers=manager.active_servers)
    """

    def __init__(
        self,
        servers: Iterable[MCPServer],
        *,
        connect_timeout_seconds: float | None = 10.0,
        cleanup_timeout_seconds: float | None = 10.0,
        drop_failed_servers: bool = True,
        strict: bool = False,
        suppress_cancelled_error: bool = True,
        connect_in_parallel: bool = False,
    ) -> None:
        self._owners = {server: ServerOwner(server) for server in servers}
        self.connect_timeout_seconds = connect_timeout_seconds
        self.cleanup_timeout_seconds = cleanup_timeout_seconds
        self.drop_failed_servers = drop_failed_servers
        self.strict = strict
        self.suppress_cancelled_error = suppress_cancelled_error
        self.connect_in_parallel = connect_in_parallel
        self._lifecycle = asyncio.Lock()
        self._connected: set[MCPServer] = set()
        self._failed: list[MCPServer] = []
        self._errors: dict[MCPServer, BaseException] = {}
        self._active = list(self._owners)

    @property
    def connect_timeout_seconds(self) -> float | None:
        return self._connect_timeout_s

    @connect_timeout_seconds.setter
    def connect_timeout_seconds(self, value: float | None) -> None:
        self._connect_timeout_s = lifecycle_timeout_s(value, "connect_timeout_seconds")

    @property
    def cleanup_timeout_seconds(self) -> float | None:
        return self._cleanup_timeout_s

    @cleanup_timeout_seconds.setter
    def cleanup_timeout_seconds(self, value: float | None) -> None:
        self._cleanup_timeout_s = lifecycle_timeout_s(value, "cleanup_timeout_seconds")

    @property
    def all_servers(self) -> list[MCPServer]:
        return list(self._owners)

    @property
    def active_servers(self) -> list[MCPServer]:
        """The usable servers, in the given order."""
        return list(self._active)

    @property
    def failed_servers(self) -> list[MCPServer]:
        return list(self._failed)

    @property
    def errors(self) -> dict[MCPServer, BaseException]:
        """The latest error of each server."""
        return dict(self._errors)

    async def __aenter__(self) -> MCPServerManager:
        await self.connect_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.cleanup_all()

    async def connect_all(self) -> list[MCPServer]:
        """Connect the servers that are not connected; return the active ones."""
        async with self._lifecycle:
            before = set(self._connected)
            self._failed, self._errors = [], {}
            waiting = [server for server in self._owners if server not in self._connected]
            try:
                await self._connect(waiting)
            except BaseException:
                await self._clean_up([server for server in waiting if server not in before])
                raise
            finally:
                self._refresh()
            return self.active_servers

    async def reconnect(self, *, failed_only: bool = True) -> list[MCPServer]:
        """Connect the failed servers again, or all of them; return the active ones.

        Args:
            failed_only: Whether to leave the connected servers alone; otherwise all are connected
                anew.
        """
        async with self._lifecycle:
            again = list(self._failed) if failed_only else list(self._owners)
            cleaned = await self._clean_up(again)
            if not failed_only:
                self._failed, self._errors, cleaned = [], {}, again
            try:
                await self._connect(cleaned)
            finally:
                self._refresh()
            return self.active_servers

    async def cleanup_all(self) -> None:
        """Clean up all servers, last first. Failures are listed in ``errors``."""
        async with self._lifecycle:
            try:
                await self._clean_up(list(self._owners))
            finally:
                self._refresh()

    def _refresh(self) -> None:
        self._active = [
            server
            for server in self._owners
            if server in self._connected or not self.drop_failed_servers
        ]

    async def _connect(self, servers: list[MCPServer]) -> None:
        if not self.connect_in_parallel:
            for server in servers:
                await self._connect_one(server, strict=self.strict)
            return
        # all are tried, even if one raises in the end
        await asyncio.gather(*(self._connect_one(server, strict=False) for server in servers))
        problems = [self._errors[server] for server in servers if server in self._failed]
        if self.strict and problems:
            raise problems[0]

    async def _connect_one(self, server: MCPServer, *, strict: bool) -> None:
        owner = self._owners[server]
        try:
            await owner.connect(self._connect_timeout_s, self._cleanup_timeout_s)
        except BaseException as error:
            self._record_failure(server, error)
            if strict or not self._may_go_on(error):
                raise
        else:
            self._connected.add(server)
            self._errors.pop(server, None)
            self._failed = [each for each in self._failed if each is not server]

    async def _clean_up(self, servers: list[MCPServer]) -> list[MCPServer]:
        """Clean up, last first; return the servers that were cleaned up."""
        clean: list[MCPServer] = []
        for server in reversed(servers):
            try:
                await self._owners[server].cleanup(self._cleanup_timeout_s)
            except BaseException as error:
                self._errors[server] = error
                logger.error(
                    "An MCP server was not cleaned up",
                    extra={"server": server.safe_name, "error": type(error).__name__},
                )
                if not self._may_go_on(error):
                    raise
            else:
                clean.insert(0, server)
            finally:
                self._connected.discard(server)
        return clean

    def _record_failure(self, server: MCPServer, error: BaseException) -> None:
        logger.error(
            "An MCP server did not connect",
            extra={"server": server.safe_name, "error": type(error).__name__},
        )
        self._errors[server] = error
        if server not in self._failed:
            self._failed.append(server)

    def _may_go_on(self, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            ours = task is not None and task.cancelling() > 0
            return self.suppress_cancelled_error and not ours
        return isinstance(error, Exception)
