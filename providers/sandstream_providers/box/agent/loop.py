"""The event loop: descriptors, timers, and calls handed over by workers. asyncio costs too much
start-up time.
"""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import sys
import time
from collections import deque

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Callable


READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Timer:
    """A call that is due at a time; may be cancelled."""

    __slots__ = ("call", "cancelled", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due


class Loop:
    """Runs until :meth:`stop`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._posted: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.on_child: Callable[[], None] = lambda: None
        self.watch(self._wake_read, READ, self._woken)

    def catch_signals(self, on_child: Callable[[], None]) -> None:
        """Children that end wake the loop; a request to terminate stops it."""
        self.on_child = on_child
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # As the first process of a sandbox it gets these only from commands: kill 1.
        stop = signal.SIG_IGN if os.getpid() == 1 else lambda *_: self.stop()
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)

    def watch(self, fd: int, events: int, call: Callable[[int], None]) -> None:
        """Call with the events that are ready. Replaces an earlier watch of the descriptor."""
        try:
            self._selector.modify(fd, events, call)
        except KeyError:
            self._selector.register(fd, events, call)

    def unwatch(self, fd: int) -> None:
        """No error if it is not watched."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(time.monotonic() + seconds, call)
        heapq.heappush(self._timers, timer)
        return timer

    def post(self, call: Callable[[], None]) -> None:
        """Call it on the loop's thread. The only method that other threads may use."""
        self._posted.append(call)
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups: one more is not needed

    def stop(self) -> None:
        self._stopping = True

    def run(self) -> None:
        while not self._stopping:
            for key, events in self._selector.select(self._patience()):
                # an earlier call of this round may have closed the descriptor
                if self._selector.get_map().get(key.fd) is key:
                    _guarded(lambda call=key.data, ready=events: call(ready))  # type: ignore[misc]
            self._run_due()

    def _patience(self) -> float | None:
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0].due - time.monotonic())

    def _run_due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0].due <= now:
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                _guarded(timer.call)

    def _woken(self, _events: int) -> None:
        try:
            os.read(self._wake_read, 65536)
        except BlockingIOError:
            pass
        self.on_child()
        for _ in range(len(self._posted)):
            _guarded(self._posted.popleft())


def _guarded(call: Callable[[], None]) -> None:
    """Call it and log what it raises: one fault must not end the agent and all commands."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - it is reported on stderr
        sys.excepthook(type(error), error, error.__traceback__)
