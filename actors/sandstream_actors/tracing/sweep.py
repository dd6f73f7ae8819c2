"""Looks after quiet runs, and keeps the store tidy.

A long run has spans that ended long ago; they are stored and exported before its end. The sweep
also notices runs that another replica with its own store has finished.
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
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.observed_log import has_news, read_run
from sandstream_actors.tracing.exported import exported_through, tell_exported
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.keeper import TraceKeeper
from sandstream_actors.tracing.metrics.gauges import read_gauges
from sandstream_actors.tracing.metrics.instruments import Metrics
from sandstream_actors.tracing.run_reader import folded

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_MOST: Final = 500
"""The limit of runs per round; the least recently checked come first."""
_GAUGES_S: Final = 5.0
_REBUILD_S: Final = 2.0
_RETAIN_S: Final = 600.0
LOST: Final = "lost"
"""The status of a run without a known end that has expired from the log."""


class Sweep:
    """Looks after the traces of runs that have not ended, and after the store."""

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
        self._rebuilt: Path | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        work = [
            self._forever(self.round, self._interval_s),
            self._forever(self._rebuild, _REBUILD_S),
            self._forever(self._retain, _RETAIN_S),
        ]
        if self._metrics is not None:
            work.append(self._forever(self._refresh, min(_GAUGES_S, self._interval_s)))
        await asyncio.gather(*work)

    async def _forever(self, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        """Repeat the work. Failures of the bus or the store are retried in the next round. Any
        other exception is our bug; it is logged and must not end this work.
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
        """Check every open run that was not checked within the last interval."""
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
        if facts.is_over:  # another replica has the end, or will get it, and exports it
            await self._keeper.fill_in(facts, trace.spans())
            return
        exports = self._keeper.exports
        through = await exported_through(self._bus, run, self._group) if exports else 0
        new = await self._keeper.keep(facts, trace.spans(), exported_through=through)
        if exports and new:
            await tell_exported(self._bus, run, self._group, facts.last_seq)

    async def _note_quiet(self, known: RunFacts) -> None:
        """Nothing new: mark the run as checked, or as lost if the log no longer has it."""
        is_there = await has_news(self._bus, known.run, 0)
        facts = known if is_there else msgspec.structs.replace(known, status=LOST)
        await self._keeper.fill_in(facts, [])

    async def _rebuild(self) -> None:
        """If a damaged store was replaced by a new one, fill it from the log."""
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
