"""A terminal of a box: a shell behind a websocket. Its output waits with the sender until it is
asked for, so no queue is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sandstream_providers.hosted.errors import VendorSilent
from sandstream_providers.interface import ProviderError

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

PROTOCOLS = ("X-Daytona-Pty-Exit-Control",)
"""Asks for a message when the shell has ended."""
LARGEST_FRAME = 32 * 1024
"""The daemon closes a connection on which it gets more than 64 KiB at once."""

_END_S = 2.0
"""How long the other side may take to say goodbye."""


class DaytonaTerminal:
    """Implements :class:`sandstream_providers.hosted.vendor.Terminal`."""

    def __init__(
        self,
        box_id: str,
        socket: aiohttp.ClientWebSocketResponse,
        kill: Callable[[], Awaitable[None]],
    ) -> None:
        """Args:
        box_id: The box whose terminal this is.
        socket: Closed together with this terminal.
        kill: Ends the shell, which would go on without a connection.
        """
        self.box_id = box_id
        self._socket = socket
        self._kill = kill
        self._has_ended = False
        self._is_closed = False
        self._closing = asyncio.Lock()
        self._early = b""

    async def opened(self) -> None:
        """Wait until the shell runs. Raises VendorSilent if it does not."""
        while True:
            event, data = await self._next()
            if event == "connected":
                return
            if event == "data":  # output that overtook the message
                self._early += data
            else:
                why = data.decode() or "the connection ended"
                raise VendorSilent(f"Daytona has opened no terminal: {why}")

    async def send(self, data: bytes) -> None:
        if self._has_ended:
            raise ConnectionResetError("the terminal has ended")
        for start in range(0, len(data), LARGEST_FRAME):
            await self._socket.send_bytes(data[start : start + LARGEST_FRAME])

    async def receive(self) -> bytes:
        if self._early:
            early, self._early = self._early, b""
            return early
        while not self._is_closed:
            event, data = await self._next()
            if event == "data" and data:
                return data
            if event in ("ended", "error"):
                break
        return b""

    async def close(self) -> None:
        """If it is being closed already, wait for that."""
        is_first, self._is_closed = not self._is_closed, True
        async with self._closing:
            if is_first:
                await self._end()

    async def leave(self) -> None:
        """End the connection only: the box is about to end the shell."""
        self._has_ended = True
        await self.close()

    async def _end(self) -> None:
        try:
            if not self._has_ended:
                await self._kill()
        except ProviderError as error:  # the shell ends with its box at the latest
            logger.warning("a terminal may live on in its box", extra={"why": str(error)})
        finally:
            with contextlib.suppress(TimeoutError):  # then the connection is cut
                async with asyncio.timeout(_END_S):
                    await self._socket.close()

    async def _next(self) -> tuple[str, bytes]:
        """(``data``, ``connected``, ``ended``, ``error`` or ``control``; the data or the reason)"""
        from aiohttp import WSMsgType

        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            return "data", message.data
        if message.type is not WSMsgType.TEXT:
            return "ended", b""
        control = _control(message.data)
        if control is None:
            return "data", message.data.encode()
        status = str(control.get("status"))
        if status == "exited":
            self._has_ended = True
            return "ended", str(control.get("exitReason", "")).encode()
        if status == "error":
            return "error", str(control.get("error", "")).encode()
        return ("connected" if status == "connected" else "control"), b""


def _control(text: str) -> dict[str, object] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if isinstance(found, dict) and found.get("type") == "control":
        return found
    return None
