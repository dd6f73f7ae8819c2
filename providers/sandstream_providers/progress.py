"""What a provider says while its caller waits for something slow, such as a download.

The listener belongs to the task that asked, so it is a context variable: tasks that this one starts
have it too, and what several callers wait for is told to each by its own task.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

OnProgress = Callable[[str], None]
"""Gets a line such as "python:3.13-slim: 31 of 48 MB"."""
_listener: ContextVar[OnProgress | None] = ContextVar("sandstream_progress", default=None)


@contextlib.contextmanager
def listening(on_progress: OnProgress) -> Iterator[None]:
    """Tell ``on_progress`` what providers say within this context."""
    token = _listener.set(on_progress)
    try:
        yield
    finally:
        _listener.reset(token)


def teller() -> OnProgress:
    """A function that tells the current task's listener, if there is one, from any thread."""
    on_progress, loop = _listener.get(), asyncio.get_running_loop()

    def tell(text: str) -> None:
        if on_progress is not None:
            loop.call_soon_threadsafe(on_progress, text)

    return tell
