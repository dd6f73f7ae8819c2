"""Lists of runs, newest first, without reading the whole log.

Open runs come from their index (``sandstream_bus.logs.open_runs``); each one that is shown is
folded from the log, which decides. Ended runs come from the newest part of the log, read backwards
in windows, each window once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Literal

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import PermissionDenied
from sandstream_bus.logs.open_runs import OpenEntry
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import Stored, stale_many
from sandstream_bus.wire.messages import ParentLink, RunDone, RunStarted
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.run_filter import OPEN_STATUSES
from sandstream._inspect.summaries import (
    RunSummary,
    known_events,
    read_known,
    read_last,
    summarize,
    summary_of_end,
)

Which = Literal["all", "top_level", "trees"]
"""All runs; those that no other run started; those, and all runs below them."""
LOOK_BACK_EVENTS = 30_000
"""How far a list of ended runs with one status looks back, unless it is asked for all."""
_AT_ONCE = 32
_FIRST_WINDOW = 1000
_LARGEST_WINDOW = 64_000
_BATCH = 2048


class RunList(msgspec.Struct, kw_only=True):
    """What was found, and how far it was looked for."""

    runs: list[RunSummary]
    has_more: bool = False
    """The log goes further back than was looked."""
    looked_at: int = 0
    """How many ended runs were looked at, where ``has_more`` says that there are others."""
    back_to: str = ""
    """When the oldest of these ended; in a search, when it began."""
    asked_older: bool = False
    """The index of older runs was searched, too."""


async def list_runs(bus: Bus, *, limit: int, which: Which = "all") -> list[RunSummary]:
    """The newest runs, newest first."""
    found = await _newest(bus, limit, only_tops=which != "all")
    links = {run: _parent_of(it) for run, it in found.items()}
    children = Counter(link.run for link in links.values() if link is not None)
    chosen = [run for run, link in links.items() if which == "all" or link is None][:limit]
    if which == "trees":
        roots = set(chosen)
        chosen = [run for run, link in links.items() if (link.root if link else run) in roots]
    ended = await ends_of(bus, chosen)
    shown = await _folded(bus, [run for run in chosen if run not in ended])
    shown |= {run: summary_of_end(run, found[run], end) for run, end in ended.items()}
    for run, summary in shown.items():
        summary.children = max(summary.children, children[run])
    return [shown[run] for run in chosen if run in shown]


async def list_with_status(
    bus: Bus, status: str, *, limit: int, which: Which = "all", look_at_all: bool = False
) -> RunList:
    """The newest runs of one status, newest first."""
    if status in OPEN_STATUSES:
        return RunList(runs=await list_open(bus, limit=limit, which=which, status=status))
    return await _list_ended(bus, status, limit=limit, which=which, look_at_all=look_at_all)


# --- open runs ------------------------------------------------------------------------------------


async def list_open(
    bus: Bus, *, limit: int, which: Which = "all", status: str | None = None
) -> list[RunSummary]:
    """The newest runs that have not ended, newest first: ``running``, ``waiting`` or both.

    A user who may not read the index gets those among the newest runs; with a status, the error.
    """
    try:
        entries = await open_entries(bus, which, status)
    except PermissionDenied:
        if status is not None:
            raise
        newest = await list_runs(bus, limit=limit, which=which)
        return [it for it in newest if not it.is_over]
    shown: list[RunSummary] = []
    for index in range(0, len(entries), limit):
        found = await _folded(bus, [it.run for it in entries[index : index + limit]])
        for summary in found.values():
            if not summary.is_over and status in (None, summary.status):
                shown.append(summary)
        if len(shown) >= limit:
            break
    return shown[:limit]


async def open_entries(bus: Bus, which: Which, status: str | None) -> list[OpenEntry]:
    """What the index has of runs that may have this status, newest first."""
    entries = [
        it
        for it in await bus.open_runs.all()
        if (which != "top_level" or not it.open.parent) and (status != "waiting" or it.open.waited)
    ]
    entries.sort(key=lambda it: it.since, reverse=True)
    if status != "running":
        return entries
    waiting = await _surely_waiting(bus, entries)
    return [it for it in entries if it.run not in waiting]


async def _surely_waiting(bus: Bus, entries: Iterable[OpenEntry]) -> set[RunId]:
    """Those that began to wait for people and got no answer since. Asked of subjects that such a
    run has no message of, so that the server need not look into the log.
    """
    may_wait = {it.run: it.open.at for it in entries if it.open.at and it.open.questions}
    s = bus.subjects
    wanted = [
        subject
        for run in may_wait
        for subject in (s.approval_decided(run), s.cancel(run), s.done(run), s.turn(run, "*"))
    ]
    for event in await read_last(bus, wanted):
        run = s.parse_run(event.subject).run
        if event.sequence > may_wait.get(run, 0):
            may_wait.pop(run, None)
    below = {it.run for it in entries if any(asked.asked.run for asked in it.open.questions)}
    return set(may_wait) - below  # an answer to a child run is not in its parent's log


async def _folded(bus: Bus, runs: Iterable[RunId]) -> dict[RunId, RunSummary]:
    """The runs as the log has them; without those that it does not know."""
    found = await events_of_each(bus, runs)
    return {run: summarize(run, events) for run, events in found.items()}


async def events_of_each(bus: Bus, runs: Iterable[RunId]) -> dict[RunId, list[LogEvent]]:
    """All events of each run; without those that the log does not know."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(run: RunId) -> tuple[RunId, list[LogEvent]]:
        subject = bus.subjects.run_all(run)
        async with gate:
            # a read without a count makes the server look for more up to the end of the log
            count = await bus.topology.count(bus.connection, bus.topology.log, subject)
            return run, await read_known(bus, subject, limit=count)

    found = await asyncio.gather(*map(read, runs))
    return {run: events for run, events in found if events}


# --- ended runs -----------------------------------------------------------------------------------


async def _list_ended(
    bus: Bus, status: str, *, limit: int, which: Which, look_at_all: bool
) -> RunList:
    shown: list[RunSummary] = []
    found = RunList(runs=shown)
    async for window in windows_back(bus, ("done",), None if look_at_all else LOOK_BACK_EVENTS):
        found.has_more = window.has_more
        ends = [it for it in await known_events(bus, window.events) if is_last(it, window)]
        found.looked_at += len(ends)
        found.back_to = ends[0].stored.time if ends else found.back_to
        matching = [
            it for it in ends if isinstance(it.event, RunDone) and it.event.status == status
        ]
        shown.extend(await _ended(bus, matching, which))
        if len(shown) >= limit:
            found.has_more = False  # enough was found: nothing is missing
            break
    found.runs = shown[:limit]
    return found


async def _ended(bus: Bus, ends: list[LogEvent], which: Which) -> list[RunSummary]:
    """Ended runs, newest first, without those that were opened again."""
    runs = [bus.subjects.parse_run(it.subject).run for it in reversed(ends)]
    final = await ends_of(bus, runs)
    starts = await read_last(bus, [bus.subjects.start(run, "*") for run in final])
    first = {bus.subjects.parse_run(it.subject).run: it for it in starts}
    summaries = [summary_of_end(run, first.get(run), final[run]) for run in runs if run in final]
    return [it for it in summaries if which != "top_level" or not it.parent]


# --- the log, backwards ---------------------------------------------------------------------------


class Window(msgspec.Struct, kw_only=True):
    """A part of the log."""

    events: list[Stored]
    last: dict[str, int]
    """The newest sequence of each subject in the windows so far."""
    has_more: bool
    """There is more of the log before it that could be looked at."""
    looked: int
    """How many events of any kind are behind its beginning, of those to look at."""
    total: int


def is_last(event: LogEvent, window: Window) -> bool:
    """A run that was opened again may have ended twice: its last end counts."""
    return window.last[event.subject] == event.sequence


async def windows_back(
    bus: Bus, kinds: tuple[str, ...], most: int | None, *, after: int = 0, upto: int | None = None
) -> AsyncIterator[Window]:
    """The run events of some kinds, window by window, the newest first.

    Args:
        most: how many events of any kind it goes back; None: all.
        after: nothing up to this sequence is looked at.
        upto: nothing behind this sequence is looked at.
    """
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    oldest: int = max(state["first_seq"] - 1, after)
    newest: int = state["last_seq"] if upto is None else min(upto, state["last_seq"])
    floor = oldest if most is None else max(oldest, newest - most)
    total = newest - floor
    size = _FIRST_WINDOW
    last: dict[str, int] = {}
    while newest > floor:
        begin = max(floor, newest - size)
        parts = await asyncio.gather(
            *(_range(bus, it, begin, newest) for it in bus.subjects.events(*kinds))
        )
        events = sorted(it for part in parts for it in part)
        for event in reversed(events):
            last.setdefault(event.subject, event.sequence)
        yield Window(
            events=events,
            last=last,
            has_more=begin > oldest,
            looked=total - (begin - floor),
            total=total,
        )
        newest, size = begin, min(size * 4, _LARGEST_WINDOW)


async def sequence_before(bus: Bus, time: datetime) -> int:
    """The last sequence of the log from before a time, found by halving; 0 if there is none."""
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    [everything] = bus.subjects.matching(">")
    low: int = state["first_seq"] - 1
    high: int = state["last_seq"]
    while low < high:
        middle = (low + high + 1) // 2
        found = await stale_many(
            bus.connection, bus.topology.log, everything, after=middle - 1, limit=1
        )
        if found and found[0].sequence <= high and datetime.fromisoformat(found[0].time) < time:
            low = found[0].sequence
        else:
            high = middle - 1
    return max(low, 0)


async def _range(bus: Bus, subject: str, after: int, upto: int) -> list[Stored]:
    """The messages of a subject with sequences in a range."""
    found: list[Stored] = []
    batch = min(_BATCH, upto - after)
    while True:
        some = await stale_many(
            bus.connection, bus.topology.log, subject, after=after, limit=batch, batch=batch
        )
        found += [it for it in some if it.sequence <= upto]
        if len(some) < batch or some[-1].sequence >= upto:
            return found
        after = some[-1].sequence


async def begins_back(
    bus: Bus, most: int | None, *, after: int = 0, upto: int | None = None
) -> AsyncIterator[tuple[Window, dict[RunId, LogEvent], dict[RunId, LogEvent]]]:
    """Windows of the log, the newest first, each with the first events of the runs that began
    there, newest first, and with the last ends. Arguments as for :func:`windows_back`.
    """
    async for window in windows_back(bus, ("start.*", "done"), most, after=after, upto=upto):
        first: dict[RunId, LogEvent] = {}
        ends: dict[RunId, LogEvent] = {}
        for event in await known_events(bus, window.events):
            run = bus.subjects.parse_run(event.subject).run
            if not isinstance(event.event, RunDone):
                first.setdefault(run, event)
            elif is_last(event, window):
                ends[run] = event
        # a task that was refused has an end and no start; other starts are further back
        refused = {run: it for run, it in ends.items() if run not in first and _turns(it) == 0}
        for older in await read_last(bus, [bus.subjects.start(run, "*") for run in refused]):
            refused.pop(bus.subjects.parse_run(older.subject).run, None)
        found = sorted((first | refused).items(), key=lambda item: -item[1].sequence)
        yield window, dict(found), ends


async def _newest(bus: Bus, limit: int, *, only_tops: bool) -> dict[RunId, LogEvent]:
    """The first events of at least so many runs (or runs at the top), newest first."""
    found: dict[RunId, LogEvent] = {}
    async for _, first, _ in begins_back(bus, None):
        found = {**first, **found}
        if sum(not only_tops or _parent_of(it) is None for it in found.values()) >= limit:
            break
    return dict(sorted(found.items(), key=lambda item: -item[1].sequence))


def _turns(end: LogEvent) -> int | None:
    return end.event.turns if isinstance(end.event, RunDone) else None


def _parent_of(first: LogEvent) -> ParentLink | None:
    return first.event.parent if isinstance(first.event, RunStarted) else None


async def ends_of(bus: Bus, runs: Iterable[RunId]) -> dict[RunId, LogEvent]:
    """The ends of the runs that have certainly ended: no turn was requested afterwards."""
    subjects = [
        name for run in runs for name in (bus.subjects.done(run), bus.subjects.turn(run, "*"))
    ]
    last = {bus.subjects.parse_run(it.subject).run: it for it in await read_last(bus, subjects)}
    return {run: it for run, it in last.items() if isinstance(it.event, RunDone)}
