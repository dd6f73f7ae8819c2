"""Several HTTP clients for one endpoint, so that many concurrent calls stay cheap.

An HTTP connection pool scans all its connections for every request and response: with 500 of them
that cost 10 ms of CPU per call. Here no pool grows beyond `CALLS_PER_CLIENT`. The first client is
preferred, so that a quiet process reuses one connection.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

CALLS_PER_CLIENT = 16
IDLE_S = 60.0


class _Slot:
    __slots__ = ("calls", "client", "idle_since")

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls = 0
        self.idle_since = 0.0


class ClientPool:
    """Creates clients as needed; closes them after a long idle time, and at the end.

    A lent client is the only one and is not closed.
    """

    def __init__(self, make: Callable[[], Any], lent_client: Any | None = None) -> None:
        self._make = make
        self._lent = lent_client
        self._slots: list[_Slot] = []

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        """A client for one call."""
        if self._lent is not None:
            yield self._lent
            return
        await self._retire()
        slot = next((slot for slot in self._slots if slot.calls < CALLS_PER_CLIENT), None)
        if slot is None:
            slot = _Slot(self._make())
            self._slots.append(slot)
        slot.calls += 1
        try:
            yield slot.client
        finally:
            slot.calls -= 1
            slot.idle_since = time.monotonic()

    async def aclose(self) -> None:
        slots, self._slots = self._slots, []
        for slot in slots:
            await slot.client.close()

    async def _retire(self) -> None:
        before = time.monotonic() - IDLE_S
        stale = [slot for slot in self._slots[1:] if not slot.calls and slot.idle_since < before]
        for slot in stale:
            self._slots.remove(slot)
        for slot in stale:
            await slot.client.close()
