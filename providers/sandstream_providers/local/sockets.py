"""Unix sockets below directories with any name: an address holds about a hundred bytes.

Linux has a short name for every open directory. So the socket of a box lies in the directory of the
box, and nothing is left elsewhere when that is removed. Other systems need a short path.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from sandstream_providers.processes import LINUX

ADDRESS_BYTES = 100
"""The kernel takes 107 (Linux) or 103 (macOS)."""
_BACKLOG = 128


def fits(path: Path) -> bool:
    """Can a socket have this path?"""
    return LINUX or len(os.fsencode(path)) <= ADDRESS_BYTES


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    if len(os.fsencode(path)) <= ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


async def connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with _address(path) as address:
        return await asyncio.open_unix_connection(address)
