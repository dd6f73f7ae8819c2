"""A few threads for file work, so that the loop never waits for a disk."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Callable


WORKERS = 4


class Workers:
    """Started at once: in a sandbox full of processes there may be no more threads later."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.count = 0
        for _ in range(WORKERS):
            try:
                threading.Thread(target=self._work, daemon=True).start()
            except RuntimeError:
                break  # fewer will do
            self.count += 1

    def do(self, task: Callable[[], None]) -> None:
        """``task`` must not raise."""
        if self.count:
            self._tasks.put(task)
        else:
            task()

    def _work(self) -> None:
        # The kernel spares the first process of a sandbox, unless the signal comes while the loop's
        # thread blocks it (in posix_spawn) and another thread does not.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._tasks.get()()
