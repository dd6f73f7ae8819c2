"""Pipes between the server and the processes of a box."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

CHUNK = 65_536


async def reader(fd: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Read the end of a pipe, or a named pipe, without blocking. The transport closes ``fd``."""
    os.set_blocking(fd, False)
    stream = asyncio.StreamReader(limit=1 << 20)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(fd, "rb", buffering=0)
    )
    return stream, transport


async def writer(fd: int) -> asyncio.StreamWriter:
    """Write to the end of a pipe without blocking. Closing the writer closes ``fd``."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(fd, "wb", buffering=0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def named_reader(path: Path) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Make a named pipe and read it. It ends when a writer has come and all writers are gone."""
    os.mkfifo(path, 0o600)
    return await reader(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


async def read_all(stream: asyncio.StreamReader) -> bytes:
    """Everything until the last process that holds the pipe has closed it."""
    chunks = []
    while chunk := await stream.read(CHUNK):
        chunks.append(chunk)
    return b"".join(chunks)


def text(content: bytes) -> str:
    """Output as JSON carries it: every byte that is no UTF-8 becomes one U+FFFD."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        escaped = content.decode("utf-8", "surrogateescape")
        return "".join("\ufffd" if "\udc80" <= it <= "\udcff" else it for it in escaped)


def exit_status(code: int) -> int:
    """The exit code as a shell reports it: 128 + n for signal n."""
    return 128 - code if code < 0 else code
