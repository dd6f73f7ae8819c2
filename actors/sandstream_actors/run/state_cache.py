"""A cache of folded run states in this process. The log can rebuild all of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent, RunLog
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire.messages import RunEvent
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.state import RunState

logger = logging.getLogger(__name__)

MAX_RUNS = 8192
MAX_BYTES = 64 * 1024 * 1024
"""The limit for the size of the folded events; the states use a few times as much memory."""
MAX_IDLE_S = 60.0
"""A tool host is not notified of the end of a run. So it forgets a state that was not used for this
time, and memory depends on the number of active runs, not of all runs.
"""


class States(Protocol):
    """Gives the states of runs to the user's code."""

    @property
    def log(self) -> RunLog: ...

    async def load(self, run: RunId) -> RunState: ...


class StateCache:
    """Loads states, brings them up to date, forgets the least recently used."""

    def __init__(
        self,
        log: RunLog,
        *,
        max_runs: int = MAX_RUNS,
        max_bytes: int = MAX_BYTES,
        max_idle_s: float = MAX_IDLE_S,
    ) -> None:
        self._log = log
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._max_idle_s = max_idle_s
        self._bytes = 0
        self._states: OrderedDict[RunId, RunState] = OrderedDict()
        """The least recently used first."""
        self._sizes: dict[RunId, int] = {}
        self._used_at: dict[RunId, float] = {}
        self._epoch = log.epoch
        self._locks: dict[RunId, tuple[asyncio.Lock, int]] = {}

    @property
    def log(self) -> RunLog:
        return self._log

    def at(self, run: RunId, delivery: Delivery) -> States:
        """The same states, where this run's state need not be newer than the delivered call."""
        return _AtCall(self, run, delivery)

    async def load(self, run: RunId) -> RunState:
        """The run's current state."""
        state = self._known(run) or RunState(run)
        self._fold(state, await self.log.read(run, after=state.last_seq))
        return state

    async def has_begun(self, run: RunId, delivery: Delivery) -> bool:
        """Does the log have the run's first event? Cheap even for an invented run."""
        return self._known(run) is not None or await self.log.has_begun(run, delivery.headers)

    async def woken(self, run: RunId, delivery: Delivery) -> RunState:
        """The run's state including the delivered event and all events before it.

        If the message may have been delivered before, the state includes all later events too: work
        of the earlier delivery must not be repeated.
        """
        if not delivery.fresh:
            return await self.load(run)
        state = self._known(run) or RunState(run)
        if state.last_seq > delivery.sequence and state.lacks(delivery.sequence):
            logger.warning("a cached state lacks an event", extra={"run_id": run})
            self.drop(run)
            return await self.load(run)
        if state.last_seq < delivery.sequence:
            news = await self.log.read_upto(run, delivery.stored, after=state.last_seq)
            self._fold(state, news)
        return state

    async def begin(self, run: RunId, delivery: Delivery) -> RunState:
        """The state of a run from its first event, without reading the log."""
        state = self._known(run)
        if state is None:
            state = RunState(run)
            self._fold(state, [await self.log.decoded(delivery.stored)])
        return state

    def _known(self, run: RunId) -> RunState | None:
        """The run's cached state. If the log was lost, all states are dropped."""
        if self._epoch != self.log.epoch:
            self._epoch = self.log.epoch
            self._states.clear()
            self._sizes.clear()
            self._used_at.clear()
            self._bytes = 0
        return self._states.get(run)

    def drop(self, run: RunId) -> None:
        if self._states.pop(run, None) is not None:
            self._bytes -= self._sizes.pop(run)
            del self._used_at[run]

    def _fold(self, state: RunState, news: list[LogEvent]) -> None:
        # another handler may have folded some of it meanwhile
        state.fold(event for event in news if event.sequence > state.last_seq)
        self._keep(state)

    def _keep(self, state: RunState) -> None:
        self.drop(state.run)
        if state.done is not None:
            return
        self._states[state.run] = state
        self._sizes[state.run] = state.size_bytes
        self._bytes += state.size_bytes
        now = self._used_at[state.run] = time.monotonic()
        while self._states:
            oldest = next(iter(self._states))
            is_idle = self._used_at[oldest] < now - self._max_idle_s
            is_full = len(self._states) > self._max_runs or self._bytes > self._max_bytes
            if not is_idle and not is_full:
                break
            self.drop(oldest)

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


class _AtCall:
    """The state that a call needs: everything up to the call. This saves a request."""

    def __init__(self, cache: StateCache, run: RunId, delivery: Delivery) -> None:
        self._cache = cache
        self._run = run
        self._delivery = delivery

    @property
    def log(self) -> RunLog:
        return self._cache.log

    async def load(self, run: RunId) -> RunState:
        if run == self._run:
            return await self._cache.woken(run, self._delivery)
        return await self._cache.load(run)


async def take_in(bus: Bus, state: RunState, sequence: int, event: RunEvent, subject: str) -> None:
    """Fold an event that was just written, and events that may precede it."""
    if bus.log.has_proof:
        state.apply(sequence, event, subject)
    else:
        news = await bus.work_log.read_reaching(state.run, after=state.last_seq, upto=sequence)
        state.fold(news)
