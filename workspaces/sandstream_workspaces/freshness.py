"""Objects expire. Those that a new snapshot refers to must be young, or they are stored anew.

The age of an object is checked once in ``RECHECK_AFTER_S``. So when a snapshot refers to it, the
object may be older than ``REFRESH_AFTER_S`` by that much; this is still less than the day by which
objects outlive the log.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable

from sandstream_bus.errors import ObjectMissing, UndecodableMessage
from sandstream_bus.nats import objects as bus_objects
from sandstream_bus.nats.objects import Objects

from sandstream_workspaces.parallel import in_parallel

RECHECK_AFTER_S = 6 * 3600.0
_REMEMBERED = 200_000
_AT_ONCE = 2


class Freshness:
    """Remembers, per process, which objects were young at the last check."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._seen: OrderedDict[str, float] = OrderedDict()

    def knows(self, digest: str) -> bool:
        seen = self._seen.get(digest)
        return seen is not None and time.time() - seen < RECHECK_AFTER_S

    def stored(self, digest: str) -> None:
        """Note that the object was stored just now."""
        self._seen[digest] = time.time()
        self._seen.move_to_end(digest)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def forget(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._seen.pop(digest, None)

    async def ensure(self, digests: Iterable[str]) -> set[str]:
        """Store old objects anew; return those that are gone or damaged."""
        doubtful = [digest for digest in digests if not self.knows(digest)]
        if not doubtful:
            return set()
        ages = await self._objects.ages(doubtful)
        missing = {digest for digest in doubtful if digest not in ages}

        async def renew(digest: str) -> None:
            try:
                await self._objects.put(await self._objects.get(digest))
            except (ObjectMissing, UndecodableMessage):
                missing.add(digest)

        old = [it for it, age_s in ages.items() if age_s >= bus_objects.REFRESH_AFTER_S]
        await in_parallel(_AT_ONCE, renew, old)
        for digest in doubtful:
            if digest not in missing:
                self.stored(digest)
        return missing
