"""Ending processes: ask, wait a little, then stop them all (so that none can multiply) and kill,
again and again until none is found.
"""

from __future__ import annotations

import os
import signal
import time

from sandstream_providers.box.agent.commands.tree import Process
from sandstream_providers.box.agent.loop import Loop

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Callable


GRACE_S = 0.5
POLL_S = 0.02
GIVE_UP_S = 20
ROUNDS_AT_ONCE = 20


def send_signal(processes: list[Process], number: int) -> None:
    for process in processes:
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # gone meanwhile, or not ours to end


class Killing:
    """Under way until ``done`` is called."""

    def __init__(
        self,
        loop: Loop,
        find: Callable[[], list[Process]],
        done: Callable[[], None],
        grace_s: float = GRACE_S,
    ) -> None:
        self._loop = loop
        self._find = find
        self._done = done
        self._hard_at = time.monotonic() + grace_s
        self._pause = 0.002
        if grace_s:
            found = find()
            send_signal(found, signal.SIGTERM)
            send_signal(found, signal.SIGCONT)
        else:
            kill_at_once(find)
        loop.after(0.002, self._poll)

    def _poll(self) -> None:
        found = self._find()
        if not found:
            self._done()
        elif time.monotonic() < self._hard_at:
            self._loop.after(POLL_S, self._poll)
        elif time.monotonic() > self._hard_at + GIVE_UP_S:
            self._done()  # do not wait for a process that cannot be killed
        else:
            kill_at_once(self._find)
            self._loop.after(self._pause, self._poll)
            self._pause = min(0.5, self._pause * 2)


def kill_at_once(find: Callable[[], list[Process]]) -> None:
    """Stop until nothing new appears, then kill. Some may be left if they are many: ask again."""
    stopped: set[int] = set()
    for _ in range(ROUNDS_AT_ONCE):
        fresh = [process for process in find() if process.pid not in stopped]
        if not fresh:
            break
        send_signal(fresh, signal.SIGSTOP)
        stopped.update(process.pid for process in fresh)
    send_signal(find(), signal.SIGKILL)
