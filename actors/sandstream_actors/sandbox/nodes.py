"""The nodes of a provider take over the work of a dead node.

Each node has its own consumer. If a consumer has pending work but no actor serves it, any actor
that notices serves it. The sandbox's log then decides: it is restored here, or lost.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sandstream_bus.bus import Bus
from sandstream_bus.errors import BusError
from sandstream_bus.logs.sandboxes import OWN_NODE
from sandstream_bus.runtime import Worker

if TYPE_CHECKING:
    from sandstream_actors.sandbox.actor import SandboxActor

logger = logging.getLogger(__name__)

_MISSED_LOOKS = 6
"""How many checks in a row must go unanswered before a node counts as dead."""
_EMPTY_LOOKS = 120
"""How many checks in a row must find no work before a dead node's consumer is released: a run that
was taken over sends its next call there too, and it should not wait for the next check.
"""


class NodeWatch:
    """Checks the other nodes' consumers, and serves those of dead nodes until they are empty."""

    def __init__(self, bus: Bus, actor: SandboxActor, *, every_s: float) -> None:
        self._bus = bus
        self._actor = actor
        self._every_s = every_s
        self._prefix = f"sandbox-{actor.provider.name}-"
        self._missed: dict[str, int] = {}
        self._empty: dict[str, int] = {}
        self._adopted: dict[str, Worker] = {}

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._every_s)
                try:
                    await self.look()
                except BusError as error:
                    logger.warning("the nodes cannot be checked", extra={"why": str(error)})
        finally:
            await asyncio.gather(*(worker.stop(0.0) for worker in self._adopted.values()))

    async def look(self) -> None:
        waiting = await self._bus.topology.waiting(self._bus.connection, self._prefix)
        for consumer, count in waiting.items():
            node = consumer.removeprefix(self._prefix)
            if node == self._actor.node or node.startswith(OWN_NODE):
                continue
            alive = await self._bus.presence.is_served(consumer)
            self._missed[node] = 0 if alive else self._missed.get(node, 0) + 1
            adopted = self._adopted.get(node)
            self._empty[node] = 0 if count else self._empty.get(node, 0) + 1
            if adopted is not None and (alive or self._empty[node] > _EMPTY_LOOKS):
                del self._adopted[node]
                await adopted.stop(10.0)
            elif adopted is None and count and self._missed[node] >= _MISSED_LOOKS:
                logger.warning("a node is gone; its work is taken over", extra={"node": node})
                worker = self._actor.worker_for(self._actor.consumer_of(node), announce=False)
                self._adopted[node] = worker
                await worker.start()
