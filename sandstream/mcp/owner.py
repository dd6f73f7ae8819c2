"""One task that connects a server and cleans it up.

The user's own server class may need both in the same task, so this is done for all servers.
"""

from __future__ import annotations

import asyncio
import logging

from sandstream.mcp.server import MCPServer

logger = logging.getLogger(__name__)


class ServerOwner:
    """Owns one server. After ``cleanup`` it can connect the server again, in a new task."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()

    async def connect(self, timeout_s: float | None, cleanup_timeout_s: float | None) -> None:
        """Connect. After a failed, late or cancelled attempt the server is cleaned up at once.

        Raises:
            TimeoutError: if it took too long.
            Exception: the server's error.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task = asyncio.create_task(
            self._own(ready, self._leaving, cleanup_timeout_s), name="mcp-server-owner"
        )
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(ready)
        except BaseException:
            if not ready.done():
                ready.cancel()
                self._task.cancel()
            await asyncio.wait({self._task}, timeout=cleanup_timeout_s)
            raise

    async def _own(
        self,
        ready: asyncio.Future[None],
        leaving: asyncio.Event,
        cleanup_timeout_s: float | None,
    ) -> None:
        try:
            await self._server.connect()
        except BaseException as error:
            await self._clean_up_failure(cleanup_timeout_s)
            if ready.cancelled():
                raise
            ready.set_exception(error)
            return
        ready.set_result(None)
        await leaving.wait()
        await self._server.cleanup()

    async def _clean_up_failure(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._server.cleanup()
        except Exception as error:  # noqa: BLE001 - the connection failure is reported instead
            logger.warning(
                "An MCP server that did not connect was not cleaned up",
                extra={"server": self._server.safe_name, "error": type(error).__name__},
            )

    async def cleanup(self, timeout_s: float | None) -> None:
        """Clean up the server if it was connected; otherwise do nothing.

        Raises:
            TimeoutError: if it takes too long; the server is abandoned.
            Exception: the server's error.
        """
        task, self._task = self._task, None
        if task is None:
            return
        self._leaving.set()
        await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            task.cancel()
            raise TimeoutError(f"MCP server '{self._server.safe_name}' takes too long to close")
        if not task.cancelled():
            task.result()
