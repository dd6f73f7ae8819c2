"""Passes a model's stream events on to the run's live subject, in order, as they come."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.messages import LiveEvent
from sandstream_bus.subjects import RunId

_encode = msgspec.json.Encoder().encode


class DeltaPump:
    """A synchronous sink for stream events with one task that publishes them."""

    def __init__(self, bus: Bus, run: RunId, turn: int, attempt: int) -> None:
        self._connection = bus.connection
        self._subject = bus.subjects.delta(run)
        self._turn = turn
        self._attempt = attempt
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._count = 0
        self._task = asyncio.ensure_future(self._pump())

    def __call__(self, event: bytes) -> None:
        self._count += 1
        live = LiveEvent(turn=self._turn, n=self._count, event=Raw(event), attempt=self._attempt)
        self._waiting.append(_encode(live))
        self._wake.set()

    async def close(self) -> None:
        """Publish what is left, then stop."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._publish_waiting()

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._publish_waiting()

    async def _publish_waiting(self) -> None:
        while self._waiting:
            await self._connection.publish_core(self._subject, self._waiting[0])
            self._waiting.popleft()
