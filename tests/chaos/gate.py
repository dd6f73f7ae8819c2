"""A relay in front of the server, to cut one process off from it without ending either."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType


class Gate:
    """Passes connections on to a port of this machine while it is open."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()
        self._server.close()
        await self._server.wait_closed()

    def shut(self) -> None:
        """Break all connections; new ones are closed at once."""
        self._is_open = False
        for writer in self._writers:
            writer.transport.abort()

    def open(self) -> None:
        self._is_open = True

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ends = {writer, inner_writer}
        self._writers |= ends
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        self._writers -= ends


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):  # cut off: that is what it is for
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
