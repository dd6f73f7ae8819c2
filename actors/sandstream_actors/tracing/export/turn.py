"""Choose the process that exports, of those that share a store; otherwise spans are sent twice.

The turn is a lock on a file beside the store. It is released when its holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)


class ExportTurn:
    """If ``path`` is ``None``, no other process has this store, so it is always our turn."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd: int | None = None
        self._is_out_of_reach = False

    def take(self) -> bool:
        """Whether it is our turn, from now until ``give_up``. Not if the file cannot be created."""
        if self._path is None:
            return True
        if self._fd is not None and self._is_in_place(self._fd):
            return True
        self.give_up()  # the file was removed; other processes lock its successor
        try:
            return self._locked(self._path)
        except OSError as error:
            if not self._is_out_of_reach:
                logger.warning(
                    "cannot determine which process exports; spans wait",
                    extra={"file": str(self._path), "why": error.strerror},
                )
            self._is_out_of_reach = True
            return False

    def _locked(self, path: Path) -> bool:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        self._is_out_of_reach = False
        return True

    def _is_in_place(self, fd: int) -> bool:
        assert self._path is not None
        try:
            return os.path.samestat(os.fstat(fd), self._path.stat())
        except OSError:
            return False

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
