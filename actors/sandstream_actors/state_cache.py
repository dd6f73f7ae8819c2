"""Folded states of the runs that this process has lately seen. A cache: the log can rebuild all of
it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandstream_bus.log import RunLog
from sandstream_bus.messages import RunEvent
from sandstream_bus.subjects import RunId

from sandstream_actors.run_state import RunState


class StateCache:
    """Loads states, brings them up to date, forgets the least recently used."""

    def __init__(self, log: RunLog, capacity: int = 512) -> None:
        self.log = log
        self._capacity = capacity
        self._states: OrderedDict[RunId, RunState] = OrderedDict()
        self._locks: dict[RunId, tuple[asyncio.Lock, int]] = {}

    async def load(self, run: RunId, *, upto: int = 0) -> RunState:
        """The run's state, which has at least the event at ``upto``."""
        state = self._states.get(run)
        if state is None:
            state = RunState(run)
        elif upto and state.last_seq >= upto:
            self._states.move_to_end(run)
            return state
        news = await self.log.read(run, after=state.last_seq)
        # somebody else may have folded some of it meanwhile
        state.fold(event for event in news if event.sequence > state.last_seq)
        self._keep(state)
        return state

    def begin(
        self, run: RunId, sequence: int, first: RunEvent, traceparent: str | None
    ) -> RunState:
        """The state of a run from its first event, without reading the log."""
        state = self._states.get(run)
        if state is None:
            state = RunState(run)
            state.traceparent = traceparent
            state.apply(sequence, first)
            self._keep(state)
        return state

    def drop(self, run: RunId) -> None:
        self._states.pop(run, None)

    def _keep(self, state: RunState) -> None:
        if state.done is not None:
            self._states.pop(state.run, None)
            return
        self._states[state.run] = state
        self._states.move_to_end(state.run)
        while len(self._states) > self._capacity:
            self._states.popitem(last=False)

    @asynccontextmanager
    async def exclusive(self, run: RunId) -> AsyncIterator[None]:
        """One handler at a time per run in this process; others queue."""
        lock, users = self._locks.get(run) or (asyncio.Lock(), 0)
        self._locks[run] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[run]
            if users == 1:
                del self._locks[run]
            else:
                self._locks[run] = (lock, users - 1)
