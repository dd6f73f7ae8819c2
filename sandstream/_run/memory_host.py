"""Starts memory actors: beside other actors of a machine, or in the process of a caller while
nobody else does their work.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from sandstream_actors.harness.actor import Harness
from sandstream_actors.harness.model_turn import ModelCaller
from sandstream_actors.memory.actor import CONSUMER, MemoryActor
from sandstream_actors.memory.means import Place
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError
from sandstream_workspaces.store import WorkspaceStore

logger = logging.getLogger(__name__)

POOL = "memory"
"""The harnesses that take the turns of phases whose run's own harness is gone."""
LOOK_EVERY_S = 10.0


@dataclass
class RunningMemory:
    """A memory actor and the harness beside it."""

    actor: MemoryActor
    harness: Harness

    async def stop(self, grace_s: float = 10.0) -> None:
        await asyncio.gather(self.actor.stop(grace_s), self.harness.stop(grace_s))


async def anywhere() -> tuple[str, str]:
    """Consolidations work on any node of this installation."""
    return "local", ""


async def start_memory_actor(
    bus: Bus, models: ModelCaller, place: Place = anywhere, *, concurrency: int = 256
) -> RunningMemory:
    """``place`` says where consolidations have their workspaces: the provider, and the node.
    ``concurrency``: how many turns its harness takes at once.
    """
    actor = MemoryActor(bus, WorkspaceStore(bus), place=place, pool=POOL)
    harness = Harness(bus, models, pool=POOL, max_in_flight=concurrency, takes_tasks=False)
    await harness.start()
    try:
        await actor.start()
    except BaseException:
        await harness.stop(0.0)
        raise
    return RunningMemory(actor, harness)


class EmbeddedMemory:
    """The memory actor of a caller's process, started when it is needed and nobody else is there.
    It ends with the process; what is unfinished is done by the next one.
    """

    def __init__(self, bus: Bus, models: ModelCaller, place: Place) -> None:
        self._bus = bus
        self._models = models
        self._place = place
        self._running: RunningMemory | None = None
        self._lock = asyncio.Lock()
        self._watching: asyncio.Future[None] | None = None
        self._is_stopped = False

    def want(self) -> None:
        """From now on, see to it that somebody works on memories."""
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while self._running is None:
            try:
                await self.ensure()
            except BusError as error:
                logger.warning("nobody works on memories now: %s", error)
            await asyncio.sleep(LOOK_EVERY_S)

    async def ensure(self) -> None:
        """Start the actor unless somebody serves its consumer."""
        async with self._lock:
            if self._is_stopped or self._running is not None:
                return
            if not await self._bus.presence.is_served(CONSUMER):
                self._running = await start_memory_actor(self._bus, self._models, self._place)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        async with self._lock:  # somebody may be starting it
            self._is_stopped = True
            if self._running is not None:
                await self._running.stop(0.0)
