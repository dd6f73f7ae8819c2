"""Starts memory actors: beside other actors of a machine, or inside a caller's process as long as
no other process serves memories.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from sandstream_actors.harness.actor import Harness
from sandstream_actors.harness.model_turn import ModelCaller
from sandstream_actors.memory.actor import CONSUMER, MemoryActor
from sandstream_actors.memory.context import Place
from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_workspaces.store import WorkspaceStore

logger = logging.getLogger(__name__)

POOL = "memory"
"""The harness pool that takes a phase's turns if the harness of the original run is gone."""
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
    return DEFAULT_PROVIDER, ""


async def start_memory_actor(
    bus: Bus, models: ModelCaller, place: Place = anywhere, *, concurrency: int = 256
) -> RunningMemory:
    """Start a memory actor and its harness.

    ``place`` returns the provider and the node of the workspaces for consolidations.
    ``concurrency`` is the number of turns that the harness takes at once.
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
    """The memory actor of a caller's process, started if memories need work and no other process
    serves them. It ends with the process; the next memory actor does the unfinished work.
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
        """From now on, make sure that some process works on memories."""
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        while self._running is None:
            try:
                await self.ensure()
            except BusError as error:
                logger.warning("memories are not processed now: %s", error)
            await asyncio.sleep(LOOK_EVERY_S)

    async def ensure(self) -> None:
        """Start the actor unless another process serves its consumer."""
        async with self._lock:
            if self._is_stopped or self._running is not None:
                return
            if not await self._bus.presence.is_served(CONSUMER):
                self._running = await start_memory_actor(self._bus, self._models, self._place)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        async with self._lock:  # it may be starting
            self._is_stopped = True
            if self._running is not None:
                await self._running.stop(0.0)
