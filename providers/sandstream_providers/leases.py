"""A process that wants a box to live holds its lease: a shared lock, which ends with the process.

The agent in the box looks at the lock every two seconds. If no process has held it for as long as
``Patience`` says, the agent ends the box. The files stay, and a process that needs the box later
starts it again. A box whose directory was removed ends at the agent's next look.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a box waits for a process that holds its lease."""

    idle_s: float = 600.0
    """When no command runs in it."""
    busy_s: float = 600.0
    """While a command runs in it, and if its files are in memory."""


class Leases:
    """The leases that this process holds."""

    def __init__(self, file_of: Callable[[str], Path]) -> None:
        """Args:
        file_of: Where the lease of a box lies, by the key of the box.
        """
        self._file_of = file_of
        self._held: dict[str, int] = {}

    def take(self, key: str) -> None:
        """Raises FileNotFoundError if the box is gone. This hardly waits: an agent that looks at
        the lock holds it for an instant only.
        """
        if key in self._held:
            return
        fd = os.open(self._file_of(key), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        except BaseException:
            os.close(fd)
            raise
        self._held[key] = fd

    def drop(self, key: str) -> None:
        fd = self._held.pop(key, None)
        if fd is not None:
            os.close(fd)

    def is_sole(self, key: str) -> bool:
        """Is this process the only one that holds it? In doubt it is not."""
        fd = self._held.get(key)
        if fd is None:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(fd, fcntl.LOCK_SH)
        return True

    def held(self) -> list[str]:
        return list(self._held)
