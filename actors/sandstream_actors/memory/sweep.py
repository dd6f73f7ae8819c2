"""Clean up what dead processes left in the memory store: unfinished changes, and files that no
state names because the process died between storing and naming them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError, MessageError
from sandstream_bus.logs.memories import StoredMemory
from sandstream_bus.wire.memories import MemoryState
from sandstream_bus.wire.subjects import scope_token, session_of

from sandstream_actors.memory.after_change import finish
from sandstream_actors.memory.scope.files import named_objects, replaced

logger = logging.getLogger(__name__)

GRACE_S: Final = 600.0
"""Younger files may still be about to be named."""
_FIRST_S: Final = 60.0


class Sweeper:
    """Sweeps periodically; several replicas may do so at the same time."""

    def __init__(self, bus: Bus, *, every_s: float, grace_s: float = GRACE_S) -> None:
        self._bus = bus
        self._memories = bus.memories
        self._every_s = every_s
        self._grace_s = grace_s

    async def run(self) -> None:
        pause_s = min(_FIRST_S, self._every_s)
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))  # not all replicas at once
            pause_s = self._every_s
            try:
                await self.sweep()
            except BusError as error:
                logger.warning("the memories cannot be checked", extra={"why": str(error)})

    async def sweep(self) -> None:
        """Sweep all scopes, one after the other: there is no hurry."""
        await self._memories.sweep_chunks(older_than_s=self._grace_s)
        stored = {scope_token(it): all for it, all in (await self._memories.stored()).items()}
        names = {scope_token(it): it for it in await self._memories.scopes()}
        for token in sorted({*stored, *names}):
            scope = names.get(token) or session_of(token)
            try:
                await finish(self._bus, (await self._memories.read(scope)).state)
                await self._sweep_scope(scope, stored.get(token, set()))
            except BusError:
                raise
            except MessageError as error:
                extra = {"scope": scope, "why": str(error)}
                logger.warning("a memory cannot be checked", extra=extra)
            except Exception:  # one bad scope must not block the others
                logger.exception("a memory cannot be checked", extra={"scope": scope})

    async def _sweep_scope(self, scope: str, digests: set[str]) -> None:
        objects = self._memories.objects(scope)
        unnamed = digests - await self._named(await self._memories.read(scope))
        ages = await objects.ages(unnamed)
        old = {digest for digest, age_s in ages.items() if age_s >= self._grace_s}
        if not old:
            return

        async def decide(stored: StoredMemory) -> MemoryState | None:
            places = await objects.places(old - await self._named(stored))
            return replaced(stored.state, outdated=stored.state.outdated | places)

        state = await self._memories.change_stored(scope, decide)
        await self._memories.discard(scope, state.outdated)
        await self._memories.remove_blank(scope)
        extra = {"scope": scope, "objects": len(old)}
        logger.info("files that nothing named were removed from a memory", extra=extra)

    async def _named(self, stored: StoredMemory) -> set[str]:
        return {stored.digest} | await named_objects(self._bus, stored.state)
