"""A proxy that leads to public hosts only. A clone that is made for a stranger goes through it.

Checking an address before git connects is not enough: a name can mean another address a moment
later, and a server can send git elsewhere (redirects, alternates). The gate resolves each name
itself, checks what it got, and connects to just that. It speaks SOCKS 5, as curl does for
``socks5h://``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator

from sandstream_providers.addresses import Resolve, first_not_public

logger = logging.getLogger(__name__)

_CONNECT_S = 20.0
_HELLO_S = 20.0
_PIECE_BYTES = 256 * 1024
_VERSION, _NO_PASSWORD, _CONNECT = 5, 0, 1
_V4, _NAME, _V6 = 1, 3, 4
_DONE, _FORBIDDEN, _UNREACHABLE, _UNKNOWN_COMMAND = 0, 2, 4, 7


class Forbidden(Exception):
    """A host that is not public."""

    def __init__(self, host: str, kind: str) -> None:
        super().__init__(f"{host} has a {kind} address")
        self.host = host
        self.kind = kind


class Gate:
    """Serves one clone."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.forbidden: Forbidden | None = None
        """The first host that was asked for and refused."""

    async def start(self) -> str:
        """The address that git's ``http.proxy`` needs."""
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"socks5h://127.0.0.1:{port}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def public_addresses(self, host: str, port: int) -> list[str]:
        """Raises :class:`Forbidden`, or OSError for a host that is not known."""
        addresses = await self._resolve(host, port)
        kind = first_not_public(addresses)
        if kind is not None:
            self.forbidden = self.forbidden or Forbidden(host, kind)
            raise Forbidden(host, kind)
        return addresses

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            logger.info("a connection of a clone ended", extra={"why": str(error)})
        finally:
            self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HELLO_S):
            _, methods = await reader.readexactly(2)
            await reader.readexactly(methods)
            writer.write(bytes([_VERSION, _NO_PASSWORD]))
            command, host, port = await _request(reader)
        if command != _CONNECT:
            await _answer(writer, _UNKNOWN_COMMAND)
            return
        try:
            addresses = await self.public_addresses(host, port)
            there = await _connected(addresses, port)
        except Forbidden:
            await _answer(writer, _FORBIDDEN)
            return
        except OSError:
            await _answer(writer, _UNREACHABLE)
            return
        try:
            await _answer(writer, _DONE)
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        finally:
            there[1].close()


@contextlib.asynccontextmanager
async def open_gate(resolve: Resolve) -> AsyncIterator[tuple[Gate, str]]:
    gate = Gate(resolve)
    try:
        yield gate, await gate.start()
    finally:
        await gate.stop()


async def _request(reader: asyncio.StreamReader) -> tuple[int, str, int]:
    _, command, _, kind = await reader.readexactly(4)
    if kind == _NAME:
        (size,) = await reader.readexactly(1)
        host = (await reader.readexactly(size)).decode("utf-8", "replace")
    elif kind in (_V4, _V6):
        family = socket.AF_INET if kind == _V4 else socket.AF_INET6
        host = socket.inet_ntop(family, await reader.readexactly(4 if kind == _V4 else 16))
    else:
        raise OSError(f"a proxy request with an address of the kind {kind}")
    (port,) = struct.unpack("!H", await reader.readexactly(2))
    return command, host, port


async def _connected(
    addresses: list[str], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers. They were resolved and checked before."""
    last: OSError = OSError("it has no address")
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.open_connection(address, port)
        except OSError as error:  # also its time is up
            last = error
    raise last


async def _answer(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes([_VERSION, code, 0, _V4, 0, 0, 0, 0, 0, 0]))
    await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
