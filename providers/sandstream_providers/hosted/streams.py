"""A terminal as the pair of streams that a link to an agent wants."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from sandstream_providers.box.agent.network.packer import Packer, Unpacker
from sandstream_providers.box.link import Streams
from sandstream_providers.hosted.vendor import Terminal
from sandstream_providers.interface import ProviderError

_CHUNK = 256 * 1024
_MOST = 4 * 1024 * 1024
"""Bytes that are packed at once: some vendors want a request for each piece."""
_MUCH = 64 * 1024
"""From so many bytes on more may follow, and packing takes longer than other tasks should wait."""


async def streams_of(terminal: Terminal, already: bytes, tasks: set[asyncio.Task[None]]) -> Streams:
    """The terminal is closed with the streams, and the streams end with the terminal.

    Args:
        terminal: What the streams are connected to.
        already: What was received from it before.
        tasks: Gets the task that moves bytes, until the terminal is closed.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    task = asyncio.create_task(_pump(terminal, theirs, already))
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    task.add_done_callback(lambda _: theirs.close())  # also if it was cancelled before it began
    return await asyncio.open_connection(sock=ours)


async def _pump(terminal: Terminal, theirs: socket.socket, already: bytes) -> None:
    ways = [
        asyncio.create_task(_in(terminal, theirs)),
        asyncio.create_task(_out(terminal, theirs, already)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        theirs.close()
        await terminal.close()


async def _in(terminal: Terminal, theirs: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    packer = Packer()
    # the other side sees the end of its stream, and connects again
    with contextlib.suppress(OSError, ProviderError):
        while data := await loop.sock_recv(theirs, _CHUNK):
            if len(data) >= _MUCH:
                data += await _more(theirs, _MOST - len(data))
                await terminal.send(await asyncio.to_thread(packer.packed, data))
            else:
                await terminal.send(packer.packed(data))


async def _more(theirs: socket.socket, most: int) -> bytes:
    """What follows at once."""
    found: list[bytes] = []
    try:
        while most > 0:
            for _ in range(2):  # the writer fills the socket again
                await asyncio.sleep(0)
            found.append(data := theirs.recv(min(_CHUNK, most)))
            most -= len(data)
            if not data:
                break
    except BlockingIOError:
        pass
    return b"".join(found)


async def _out(terminal: Terminal, theirs: socket.socket, already: bytes) -> None:
    loop = asyncio.get_running_loop()
    unpacker = Unpacker()
    with contextlib.suppress(OSError, ProviderError):
        data = already or await terminal.receive()
        while data:
            for piece in unpacker.pieces(data):
                await loop.sock_sendall(theirs, piece)
            data = await terminal.receive()
