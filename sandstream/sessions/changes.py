"""Tells when a session has changed, and reads through outages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusUnavailable
from sandstream_bus.nats.subscription import CoreMessage

_AGAIN_S = 0.5
T = TypeVar("T")


class Changes:
    """Hints that something may have changed. Hints that come together count as one."""

    def __init__(self) -> None:
        self._hinted = asyncio.Event()

    def hint(self) -> None:
        """Wake the reader."""
        self._hinted.set()

    async def next(self, *, within_s: float) -> bool:
        """Wait for the next hint, but not longer; return whether there was one."""
        try:
            async with asyncio.timeout(within_s):
                await self._hinted.wait()
        except TimeoutError:
            return False
        self._hinted.clear()
        return True


@contextlib.asynccontextmanager
async def watched(bus: Bus, session: str) -> AsyncIterator[Changes]:
    """Hints about a session, until the block ends; also after a broken connection. What is read
    inside of the block is not older than the first hint.
    """
    changes = Changes()

    def receive(_: CoreMessage) -> None:
        changes.hint()

    async def doubt() -> None:
        changes.hint()

    subscription = await bus.connection.subscribe(bus.subjects.session_changed(session), receive)
    forget = bus.connection.on_reconnect(doubt)
    try:
        await bus.connection.flush()  # the server must know the subscription before the first read
        yield changes
    finally:
        forget()
        await subscription.close()


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """Read until the server answers: an outage may be longer than one read waits."""
    while True:
        try:
            return await read()
        except (BusUnavailable, TimeoutError):
            await asyncio.sleep(_AGAIN_S)
