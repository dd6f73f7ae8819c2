"""Work under way that a cancel request must stop, whichever replica gets the request first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.subjects import RunId
from sandstream_bus.subscription import CoreMessage

_REMEMBERED = 1000


class _Mode(msgspec.Struct):
    mode: str = ""


_decode = msgspec.json.Decoder(_Mode).decode


class Cancellations:
    """The tasks of runs in this process. A cancel that comes just before its task is not missed."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._tasks: defaultdict[RunId, set[asyncio.Task[Any]]] = defaultdict(set)
        self._lately: OrderedDict[RunId, None] = OrderedDict()

    async def start(self) -> None:
        """Listen to all cancel requests as they are stored."""
        self._subscription = await self._bus.connection.subscribe(
            self._bus.subjects.live("cancel"), self._on_request
        )

    async def stop(self) -> None:
        await self._subscription.close()

    @contextmanager
    def watching(self, run: RunId, task: asyncio.Task[Any]) -> Iterator[None]:
        """Cancel the task if its run is cancelled meanwhile, or was a moment ago."""
        self._tasks[run].add(task)
        if run in self._lately:
            task.cancel()
        try:
            yield
        finally:
            self._tasks[run].discard(task)
            if not self._tasks[run]:
                del self._tasks[run]

    def stop_run(self, run: RunId) -> None:
        """Cancel what runs for it now."""
        for task in tuple(self._tasks.get(run, ())):
            task.cancel()

    def _on_request(self, message: CoreMessage) -> None:
        self.take(self._bus.subjects.parse_run(message.subject).run, message.data)

    def take(self, run: RunId, request: bytes) -> None:
        """A cancel request, however it came. One for later stops nothing now."""
        if _mode(request) == "after_turn":
            return
        self._lately[run] = None
        while len(self._lately) > _REMEMBERED:
            self._lately.popitem(last=False)
        self.stop_run(run)


def _mode(request: bytes) -> str:
    try:
        return _decode(request).mode
    except msgspec.DecodeError:
        return ""
