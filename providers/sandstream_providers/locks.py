"""Locks by file: one process of this machine at a time, free again when its holder dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path


class KeyLock:
    """Held inside ``async with``. Not a generator: none can begin any more when an event loop is
    closing, and that is when the last boxes are removed.
    """

    def __init__(self, path: Path, *, remove_after: bool) -> None:
        self._path = path
        self._remove_after = remove_after
        self._fd = -1

    async def __aenter__(self) -> None:
        self._fd = await _lock(self._path)

    async def __aexit__(self, *_: object) -> None:
        if self._remove_after:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)


async def _lock(path: Path) -> int:
    """An open, locked file that is still the one at the path: its holder may have removed it."""
    pause_s = 0.005
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if _locked_in_place(fd, path):
            return fd
        os.close(fd)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)


def _locked_in_place(fd: int, path: Path) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
