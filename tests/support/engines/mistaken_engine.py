"""A real Docker engine behind a relay that refuses to resume containers for a while."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from types import TracebackType
from typing import Self

_BODY = json.dumps({"message": "Container is not paused"}).encode()
_REFUSAL = (
    b"HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class MistakenEngine:
    """Answers the first resumptions as an engine does that has not heard of the pause yet."""

    def __init__(self, socket: Path, engine_url: str, *, times: int) -> None:
        """Args:
        socket: Where to listen.
        engine_url: The engine's own socket, as a URL.
        times: How many resumptions to refuse.
        """
        self.url = f"unix://{socket}"
        self.refusals = 0
        self._socket = socket
        self._engine = engine_url.removeprefix("unix://")
        self._times = times
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._connected, self._socket)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        engine_reader, engine_writer = await asyncio.open_unix_connection(self._engine)
        answers = asyncio.create_task(_copied(engine_reader, writer))
        try:
            with contextlib.suppress(ConnectionError):  # the other side has closed
                # a client sends a request at a time, so each begins a piece of its own
                while piece := await reader.read(65536):
                    if self._is_refused(piece):
                        writer.write(_REFUSAL)
                        await writer.drain()
                    else:
                        engine_writer.write(piece)
                        await engine_writer.drain()
                engine_writer.write_eof()
                await answers
        finally:
            answers.cancel()
            for it in (engine_writer, writer):
                it.close()

    def _is_refused(self, piece: bytes) -> bool:
        line = piece.partition(b"\r\n")[0]
        is_resumption = line.startswith(b"POST ") and b"/unpause " in line
        if not is_resumption or self.refusals == self._times:
            return False
        self.refusals += 1
        return True


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):  # the other side has closed
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
