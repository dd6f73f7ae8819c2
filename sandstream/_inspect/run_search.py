"""Looks for runs by agent, time, text and metadata.

Open runs of a status come from the index of open runs. All others come from the log, which is read
backwards from the newest run (or from ``until``) to the oldest (or to ``since``), but not further
than :data:`LOOK_BACK_EVENTS` unless all is asked for. Of each run only the first and the last event
are read. An index, such as the trace store, may name older runs; their data comes from the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime

from sandstream_bus.bus import Bus
from sandstream_bus.errors import PermissionDenied
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import RunDone, RunStarted
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.run_filter import OPEN_STATUSES, RunFilter
from sandstream._inspect.run_lists import (
    LOOK_BACK_EVENTS,
    RunList,
    Which,
    begins_back,
    ends_of,
    events_of_each,
    open_entries,
    sequence_before,
)
from sandstream._inspect.summaries import (
    RunSummary,
    read_last,
    started_in,
    summarize,
    summary_of_end,
)

Progress = Callable[[int, int], None]
"""Gets how many events were looked at, and how many there are to look at."""
Older = Callable[[datetime | None], AsyncIterator[list[str]]]
"""Ids of runs that began before a time and may fit, newest first, some at a time."""
LOOK_AT_OPEN = 2000
"""How many open runs are looked at, unless all is asked for."""
_AT_ONCE = 100


async def search_runs(
    bus: Bus,
    wanted: RunFilter,
    *,
    limit: int,
    which: Which = "all",
    look_at_all: bool = False,
    progress: Progress | None = None,
    older: Older | None = None,
) -> RunList:
    """The newest runs that fit, newest first; and how far was looked."""
    search = _Search(bus, wanted, limit, which)
    if wanted.status in OPEN_STATUSES:
        await search.open_runs(look_at_all, progress)
    else:
        await search.log(look_at_all, progress)
        if search.found.has_more and older is not None:
            search.found.asked_older = True
            await search.older(older)
    search.found.runs = search.found.runs[:limit]
    return search.found


class _Search:
    """One search, and what it has found so far."""

    def __init__(self, bus: Bus, wanted: RunFilter, limit: int, which: Which) -> None:
        self.found = RunList(runs=[])
        self._bus = bus
        self._wanted = wanted
        self._limit = limit
        self._which: Which = which
        self._seen: set[RunId] = set()
        self._ends: dict[RunId, LogEvent] = {}
        """Ends that were read before the beginnings of their runs."""
        self._asked_index = False
        self._open: set[RunId] | None = None

    @property
    def _is_enough(self) -> bool:
        return len(self.found.runs) >= self._limit

    async def open_runs(self, look_at_all: bool, progress: Progress | None) -> None:
        entries = await open_entries(self._bus, self._which, self._wanted.status)
        most = len(entries) if look_at_all else min(len(entries), LOOK_AT_OPEN)
        for index in range(0, most, _AT_ONCE):
            some = [it.run for it in entries[index : min(index + _AT_ONCE, most)]]
            await self._take_folded(some)
            if self._is_enough:
                return
            if progress is not None:
                progress(min(index + _AT_ONCE, most), most)
        self.found.has_more = most < len(entries)

    async def log(self, look_at_all: bool, progress: Progress | None) -> None:
        wanted = self._wanted
        upto = None if wanted.until is None else await sequence_before(self._bus, wanted.until)
        after = 0 if wanted.since is None else await sequence_before(self._bus, wanted.since)
        most = None if look_at_all else LOOK_BACK_EVENTS
        async for window, first, ends in begins_back(self._bus, most, after=after, upto=upto):
            self._ends |= ends
            newest = list(first.items())
            self.found.looked_at += len(newest)
            if newest:
                self.found.back_to = newest[-1][1].stored.time
            await self._take(newest)
            if progress is not None:
                progress(window.looked, window.total)
            self.found.has_more = window.has_more and not self._is_enough
            if self._is_enough:  # then nothing is missing
                return

    async def older(self, older: Older) -> None:
        """Continue with the runs that the index of older runs names."""
        before = datetime.fromisoformat(self.found.back_to) if self.found.back_to else None
        async for runs in older(before):
            asked = [self._bus.subjects.start(run, "*") for run in runs]
            starts = {
                self._bus.subjects.parse_run(it.subject).run: it
                for it in await read_last(self._bus, asked)
            }
            await self._take([(RunId(it), starts[RunId(it)]) for it in runs if it in starts])
            if self._is_enough:
                self.found.has_more = False
                return

    async def _take(self, newest: list[tuple[RunId, LogEvent]]) -> None:
        """Those of the runs that fit; each with its first event, newest first."""
        first = {run: it for run, it in newest if run not in self._seen and self._may_fit(it)}
        self._seen.update(first)
        runs = [run for run in first if await self._may_fit_at_end(run, first[run])]
        for index in range(0, len(runs), _AT_ONCE):
            some = runs[index : index + _AT_ONCE]
            ended = await ends_of(self._bus, some)
            whole = [run for run in some if run not in ended or not _says_all(first[run])]
            logs = await events_of_each(self._bus, whole)
            for run in some:
                if run in logs:
                    self._add(summarize(run, logs[run]), started_in(run, logs[run]))
                elif run in ended:
                    begin = first[run]
                    self._add(summary_of_end(run, begin, ended[run]), started_in(run, [begin]))
            if self._is_enough:
                return

    async def _take_folded(self, runs: list[RunId]) -> None:
        logs = await events_of_each(self._bus, runs)
        for run in runs:
            if run in logs:
                self._add(summarize(run, logs[run]), started_in(run, logs[run]))

    def _may_fit(self, first: LogEvent) -> bool:
        if not self._wanted.is_in_time(first.stored.time):
            return False
        event = first.event
        if not isinstance(event, RunStarted):
            return True
        if self._which == "top_level" and event.parent is not None:
            return False
        return self._wanted.may_fit(event)

    async def _may_fit_at_end(self, run: RunId, first: LogEvent) -> bool:
        """An end that was read anyway rules most runs out. It is not the last word about a run that
        continues after it, or about one that was restored.
        """
        end = self._ends.pop(run, None)
        if end is None or not _says_all(first) or not await self._is_surely_over(run):
            return True
        return self._wanted.fits(summary_of_end(run, first, end), started_in(run, [first]))

    async def _is_surely_over(self, run: RunId) -> bool:
        if not self._asked_index:
            self._asked_index = True
            with contextlib.suppress(PermissionDenied):  # of a user who may not read the index
                self._open = {it.run for it in await self._bus.open_runs.all()}
        return self._open is not None and run not in self._open

    def _add(self, summary: RunSummary, started: RunStarted | None) -> None:
        if self._which == "top_level" and summary.parent:
            return
        if self._wanted.fits(summary, started):
            self.found.runs.append(summary)


def _says_all(first: LogEvent) -> bool:
    """Of a run that was restored, the first event holds others."""
    return isinstance(first.event, RunStarted | RunDone)
