"""Looks after runs that nothing is heard of, and keeps the store tidy.

A run that goes on for long has spans that ended long ago; they are stored and exported before its
end. A run that another replica has finished, in a store of its own, is noticed here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import SandstreamError
from sandstream_bus.subjects import RunId

from sandstream_actors.tracing.exported import exported_through, tell_exported
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.keeper import TraceKeeper
from sandstream_actors.tracing.metrics.gauges import read_gauges
from sandstream_actors.tracing.metrics.instruments import Metrics
from sandstream_actors.tracing.run_reading import folded, has_news, read_run

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_MOST: Final = 500
"""Runs looked at in one round, those first that were not for the longest time."""
_GAUGES_S: Final = 5.0
_REBUILD_S: Final = 2.0
_RETAIN_S: Final = 600.0
LOST: Final = "lost"
"""The status of a run that never ended as far as is known, and that the log has no more."""


class Sweep:
    """Works from ``start`` to ``stop``."""

    def __init__(
        self,
        bus: Bus,
        keeper: TraceKeeper,
        group: str,
        *,
        metrics: Metrics | None = None,
        contents: bool = False,
        interval_s: float = 30.0,
    ) -> None:
        self._bus = bus
        self._keeper = keeper
        self._group = group
        self._metrics = metrics
        self._contents = contents
        self._interval_s = interval_s
        self._tasks: list[asyncio.Task[None]] = []
        self._rebuilt: Path | None = None

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._forever(self.round, self._interval_s), name="trace sweep"),
            asyncio.create_task(self._forever(self._rebuild, _REBUILD_S), name="trace rebuild"),
            asyncio.create_task(self._forever(self._retain, _RETAIN_S), name="trace retention"),
        ]
        if self._metrics is not None:
            gauges = self._forever(self._refresh, min(_GAUGES_S, self._interval_s))
            self._tasks.append(asyncio.create_task(gauges, name="trace gauges"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forever(self, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        """Failures are of the bus or of the store: the next time will do. Any other is a fault of
        ours, which must not end this work for good and in silence.
        """
        while True:
            try:
                await work()
            except SandstreamError as error:
                logger.warning("a sweep of traces failed", extra={"why": str(error)})
            except Exception:
                logger.exception("a sweep of traces failed")
            await asyncio.sleep(every_s)

    async def round(self) -> None:
        """Look once at every run that nobody has looked at for a while."""
        before = time.time_ns() - int(self._interval_s * 1e9)
        found = await self._keeper.store.unfinished(_MOST, before)
        for index in range(0, len(found), _AT_ONCE):
            await asyncio.gather(*map(self._look_at, found[index : index + _AT_ONCE]))

    async def _look_at(self, known: RunFacts) -> None:
        run = RunId(known.run)
        if not await has_news(self._bus, run, known.last_seq):
            await self._note_quiet(known)
            return
        events, _ = await read_run(self._bus, run)
        trace = await folded(run, events, contents=self._contents)
        facts = trace.facts()
        if facts.is_over:  # another replica has its end, or will: that one exports it
            await self._keeper.fill_in(facts, trace.spans())
            return
        exports = self._keeper.exports
        through = await exported_through(self._bus, run, self._group) if exports else 0
        new = await self._keeper.keep(facts, trace.spans(), exported_through=through)
        if exports and new:
            await tell_exported(self._bus, run, self._group, facts.last_seq)

    async def _note_quiet(self, known: RunFacts) -> None:
        """Nothing has happened: look at others first. Or is there nothing left of it?"""
        is_there = await has_news(self._bus, known.run, 0)
        facts = known if is_there else msgspec.structs.replace(known, status=LOST)
        await self._keeper.fill_in(facts, [])

    async def _rebuild(self) -> None:
        """A damaged store was put aside and begun anew: the log has what is missing in it."""
        damaged = self._keeper.store.replaced
        if damaged is not None and damaged != self._rebuilt:
            done = await self._keeper.rebuild(self._bus)
            self._rebuilt = damaged
            logger.warning("the trace store was built again", extra={"runs": done.recorded})

    async def _retain(self) -> None:
        await self._keeper.store.retain(time.time_ns())

    async def _refresh(self) -> None:
        assert self._metrics is not None
        self._metrics.show(await read_gauges(self._bus, self._keeper.store))
