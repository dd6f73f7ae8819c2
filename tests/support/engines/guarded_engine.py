"""A real Docker engine behind TLS, as on another machine.

An engine that listens on a port of this machine would share its network, and remove the bridge of
the tests' own engine. So the engine has a network of its own, and this ends TLS before its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from types import TracebackType
from typing import Self

_HANDSHAKE = 0x16
_PLAIN = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n"
    b"Client sent an HTTP request to an HTTPS server.\n"
)
"""What an engine answers to a client without TLS."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class GuardedEngine:
    """Lets in clients whose certificate the authority has signed."""

    def __init__(self, engine_url: str, certificates: Path) -> None:
        """Args:
        engine_url: The engine's own socket, as a URL.
        certificates: A directory with ``ca.pem``, ``cert.pem`` and ``key.pem``.
        """
        self._engine = engine_url.removeprefix("unix://")
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(certificates / "ca.pem")
        self._context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._inner = await asyncio.start_server(self._trusted, "127.0.0.1", 0, ssl=self._context)
        self._outer = await asyncio.start_server(self._unknown, "127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{_port(self._outer)}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._outer.close()
        self._inner.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _unknown(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note()
        first = await reader.read(65536)
        if first[:1] != bytes([_HANDSHAKE]):
            writer.write(_PLAIN)
            writer.close()
            return
        inner = await asyncio.open_connection("127.0.0.1", _port(self._inner))
        inner[1].write(first)
        await _joined((reader, writer), inner)

    async def _trusted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._note()
        await _joined((reader, writer), await asyncio.open_unix_connection(self._engine))

    def _note(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _joined(one: Streams, other: Streams) -> None:
    """What comes from one goes to the other, until either ends."""
    copies = [
        asyncio.create_task(_copied(one[0], other[1])),
        asyncio.create_task(_copied(other[0], one[1])),
    ]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for it in copies:
            it.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        for writer in (one[1], other[1]):
            writer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):  # the other side has closed
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port
