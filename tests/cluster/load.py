"""Runs one after the other, a few at a time, while something goes wrong in the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from cluster.fleet import ClusterFleet
from cluster.mix import Job
from sandstream_bus.nats.topology import ACK_WAIT_S

QUIET_S = 30.0
"""When no fault is left and nothing was stored for so long, what has not ended hangs."""

_LASTS_S = ACK_WAIT_S + 1.0
"""A beat that was lost in a fault makes the server give the work to somebody else so much later."""


class Load:
    """Asks for runs and follows them to their ends."""

    def __init__(self, fleet: ClusterFleet, jobs: Sequence[Job], *, in_flight: int) -> None:
        self.fleet = fleet
        self.jobs = jobs
        self.late: list[str] = []
        """Runs that did not end in time, or whose end the client did not see."""
        self.faults_ns: list[tuple[int, int]] = []
        """From when to when something was wrong with the cluster."""
        self._ends: set[str] = set()
        self._free = asyncio.Semaphore(in_flight)
        self._news = asyncio.Condition()

    async def play(self, fault: Callable[[Load], Awaitable[None]], *, pace_s: float) -> None:
        """Ask for a run every ``pace_s`` if there is a free place, and let the fault happen."""
        going = asyncio.ensure_future(fault(self))
        asking = asyncio.ensure_future(self._ask(pace_s))
        hanging = asyncio.ensure_future(self._hang(going))
        try:
            await asyncio.wait([asking, hanging], return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                await asking
            await going
        finally:
            for task in (asking, hanging, going):
                task.cancel()
            await asyncio.gather(asking, hanging, going, return_exceptions=True)
        self.late = sorted({job.key for job in self.jobs} - self._ends)

    async def _ask(self, pace_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for job in self.jobs:
                await self._free.acquire()
                group.create_task(self._one(job))
                await asyncio.sleep(pace_s)

    async def _hang(self, fault: asyncio.Future[None]) -> None:
        """Ends when there is no hope that anything still happens."""
        await asyncio.wait([fault])
        began = time.monotonic()
        while time.monotonic() - max(began, self.fleet.last_news) < QUIET_S:
            await asyncio.sleep(0.5)

    async def _one(self, job: Job) -> None:
        try:
            await self.fleet.ask_for(job)
            await self.fleet.finish(job)
            # a client that comes when it is over reads it, and must not read what was before
            await self.fleet.client.wait(job.key)
        finally:
            self._free.release()
        self._ends.add(job.key)
        async with self._news:
            self._news.notify_all()

    @contextlib.contextmanager
    def faulty(self) -> Iterator[None]:
        """Something is wrong with the cluster meanwhile."""
        began = time.time_ns()
        try:
            yield
        finally:
            self.faults_ns.append((began, time.time_ns() + int(_LASTS_S * 1e9)))

    @property
    def ended(self) -> int:
        """How many runs are over."""
        return len(self._ends)

    async def until_ended(self, count: int) -> None:
        """Wait until so many runs are over."""
        async with self._news:
            await self._news.wait_for(lambda: self.ended >= min(count, len(self.jobs)))
