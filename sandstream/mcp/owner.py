"""One task that connects a server and cleans it up again.

A server of the user's own may need both to happen in the same task; this holds for any server.
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
        """Connect. What a failed, late or cancelled attempt has begun is cleaned up at once.

        Raises:
            TimeoutError: if it took too long.
            Exception: what the server raised.
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
        except Exception as error:  # noqa: BLE001 - the failure to connect is what is told
            logger.warning(
                "An MCP server that did not connect was not cleaned up",
                extra={"server": self._server.safe_name, "error": type(error).__name__},
            )

    async def cleanup(self, timeout_s: float | None) -> None:
        """Clean up a server that was connected; nothing happens to another.

        Raises:
            TimeoutError: if it takes too long; the server is given up.
            Exception: what the server raised.
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
