"""Who exports: one of the processes that share a store, or each span would go out several times.

The turn is a lock on a file beside the store. It is free again when its holder has died.
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
    """``path`` None: nobody else has this store, so it is always our turn."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd: int | None = None
        self._is_out_of_reach = False

    def take(self) -> bool:
        """Is it our turn, from now until ``give_up``? Not if the file cannot be made."""
        if self._path is None:
            return True
        if self._fd is not None and self._is_in_place(self._fd):
            return True
        self.give_up()  # somebody took the file away: whoever makes the next one goes by that
        try:
            return self._locked(self._path)
        except OSError as error:
            if not self._is_out_of_reach:
                logger.warning(
                    "whose turn it is to export cannot be told; spans wait",
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
