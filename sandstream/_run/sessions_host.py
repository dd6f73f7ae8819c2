"""Starts the sessions actor inside a caller's process as long as no other process serves it."""

from __future__ import annotations

import asyncio
import logging

from sandstream_actors.sessions.actor import CONSUMER, SessionsActor
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0


class EmbeddedSessions:
    """The sessions actor of a caller's process. It ends with the process; the next actor continues
    its work.

    Args:
        bus: The bus of the process.
        look_every_s: How often to look whether another process still serves sessions.
    """

    def __init__(self, bus: Bus, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._bus = bus
        self._look_every_s = look_every_s
        self._running: SessionsActor | None = None
        self._lock = asyncio.Lock()
        self._watching: asyncio.Future[None] | None = None
        self._is_stopped = False

    async def ensure(self) -> None:
        """From now on, make sure that some process serves sessions."""
        await self._start()
        if self._watching is None and self._running is None:
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while self._running is None:
            await asyncio.sleep(self._look_every_s)
            try:
                await self._start()
            except BusError as error:
                logger.warning("sessions are not served now: %s", error)

    async def _start(self) -> None:
        async with self._lock:
            if self._is_stopped or self._running is not None:
                return
            if not await self._bus.presence.is_served(CONSUMER):
                actor = SessionsActor(self._bus)
                await actor.start()
                self._running = actor

    async def stop(self) -> None:
        """Stop the actor, if it was started here."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        async with self._lock:  # it may be starting
            self._is_stopped = True
            if self._running is not None:
                await self._running.stop(0.0)
