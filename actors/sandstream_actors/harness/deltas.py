"""Passes a model's stream events on to the run's live subject, in order, as they come."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import LiveEvent
from sandstream_bus.wire.subjects import RunId

_encode = msgspec.json.Encoder().encode


class DeltaSink:
    """Takes the stream events of one model call, as JSON."""

    def __init__(self, bus: Bus, run: RunId, turn: int, attempt: int = 1) -> None:
        self._connection = bus.connection
        self._subject = bus.subjects.delta(run)
        self._turn = turn
        self._attempt = attempt
        self._count = 0
        self._waiting: list[bytes] = []

    def __call__(self, event: bytes) -> None:
        """Take an event. Events that arrive together are sent together."""
        self._count += 1
        live = LiveEvent(turn=self._turn, n=self._count, event=Raw(event), attempt=self._attempt)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(_encode(live))

    def flush(self) -> None:
        """Send pending deltas; called before the answer is written, so that deltas precede it."""
        if self._waiting:
            self._connection.publish_now(self._subject, self._waiting)
            self._waiting = []
