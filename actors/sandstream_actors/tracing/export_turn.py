"""Who exports: one of the processes that share a store, or each span would go out several times.

The turn is a lock on a file beside the store. It is free again when its holder has died.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class ExportTurn:
    """``path`` None: nobody else has this store, so it is always our turn."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd: int | None = None

    def take(self) -> bool:
        """Is it our turn, from now until ``give_up``?"""
        if self._path is None or self._fd is not None:
            return True
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return True

    def give_up(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @contextlib.contextmanager
    def given_up_at_end(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.give_up()
