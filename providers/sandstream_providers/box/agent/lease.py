"""Whether a process still wants this box: one that does holds a lock on the box's lease file.

The box ends when the file is gone, because then its whole directory is gone, and when no process
has held the lock for long enough. The process that made the box may have been killed, so only the
box itself can end it.
"""

from __future__ import annotations

import fcntl
import os
import time

from sandstream_providers.box.agent.loop import Loop

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, Callable


LOOK_S = 2.0


class Lease:
    """Looks now and then, and stops the loop."""

    def __init__(self, loop: Loop, config: dict[str, Any], is_busy: Callable[[], bool]) -> None:
        self._loop = loop
        self._fd: int = config["lease_fd"]
        self._idle_s = float(config["idle_s"])
        self._busy_s = float(config["busy_s"])
        self._is_busy = is_busy
        self._every_s = min(LOOK_S, max(0.1, self._idle_s / 4))
        self._alone_since: float | None = None
        self._look()

    def _look(self) -> None:
        if os.fstat(self._fd).st_nlink == 0 or self._is_over():
            self._loop.stop()
        else:
            self._loop.after(self._every_s, self._look)

    def _is_over(self) -> bool:
        if self._is_held():
            self._alone_since = None
            return False
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
        return now - self._alone_since >= (self._busy_s if self._is_busy() else self._idle_s)

    def _is_held(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False


def watch(loop: Loop, config: dict[str, Any], is_busy: Callable[[], bool]) -> None:
    """Not in a box whose provider has other means."""
    if config.get("lease_fd") is not None:
        os.set_inheritable(config["lease_fd"], False)
        Lease(loop, config, is_busy)
