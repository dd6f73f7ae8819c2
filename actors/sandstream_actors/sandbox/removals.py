"""Removes closed boxes in the background; the reaper repeats a failed removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from sandstream_providers.interface import Provider, ProviderError

logger = logging.getLogger(__name__)


class Removals:
    """The background work of one node's sandboxes."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._tasks: set[asyncio.Task[None]] = set()
        self._keys: set[str] = set()
        """Of closed boxes that are not removed yet."""

    def remove(self, key: str) -> None:
        self._keys.add(key)
        self.go_on(self._remove(key))

    def go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Remove the rest. The end of an event loop may have cancelled removals: repeat those."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._remove(key) for key in tuple(self._keys)))

    async def _remove(self, key: str) -> None:
        try:
            await self._provider.delete(key)
        except ProviderError:  # the reaper tries again
            logger.exception("a box could not be removed", extra={"key": key})
        self._keys.discard(key)
