"""Fills the store from the log, without a consumer: for a new store, and for who has no actor.

The log is read in windows. A window's runs are committed before the position moves behind it, so
whatever ends this process, the next one begins where something may be missing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.direct import Stored, direct_get_many
from sandstream_bus.errors import MessageError, ObjectMissing

from sandstream_actors.tracing.run_reading import read_run
from sandstream_actors.tracing.run_trace import RunTrace
from sandstream_actors.tracing.store import TraceStore

WINDOW: Final = 512
_AT_ONCE: Final = 16
_UNDER_WAY_READ: Final = 256
EVENTS_SKIPPED: Final = "events_skipped"

Progress = Callable[[int, int], None]
"""Gets the sequence of the log that was reached, and the last one."""


class CaughtUp(msgspec.Struct, kw_only=True):
    """What was done."""

    position: int = 0
    recorded: int = 0
    """Runs that were read and folded."""
    begun: int = 0
    """Runs under way that were only noted."""
    skipped: int = 0
    """Events that cannot be read here."""


async def catch_up(bus: Bus, store: TraceStore, *, progress: Progress | None = None) -> CaughtUp:
    """Bring the store up to the end of the log. Nothing of it is exported."""
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    last: int = state["last_seq"]
    position = await store.position()
    done = CaughtUp(position=position if position <= last else 0)
    while done.position < last:
        done.position = await _window(bus, store, done, last)
        await store.advance(done.position)
        if progress is not None:
            progress(done.position, last)
    await _read_those_under_way(bus, store, done)
    if done.skipped:
        await store.count(EVENTS_SKIPPED, done.skipped)
    return done


async def _window(bus: Bus, store: TraceStore, done: CaughtUp, last: int) -> int:
    """Record the runs that began or ended behind the position; up to where all are recorded."""
    prefix = bus.subjects.prefix
    starts, starts_end = await _some(bus, f"{prefix}.run.*.start.*", done.position, last)
    ends, ends_end = await _some(bus, f"{prefix}.run.*.done", done.position, last)
    reached = min(starts_end, ends_end)
    ended = {_run(bus, it): it.sequence for it in ends if it.sequence <= reached}
    begun = {_run(bus, it): it for it in starts if it.sequence <= reached}
    known = await store.last_seqs(ended)
    news = [run for run, end in ended.items() if known.get(run, 0) < end]
    await _together(_record(bus, store, done, run) for run in news)
    await _together(
        _note_start(bus, store, done, run, start)
        for run, start in begun.items()
        if run not in ended
    )
    return reached


async def _some(bus: Bus, subject: str, after: int, last: int) -> tuple[list[Stored], int]:
    """The next messages of a subject, and up to which sequence these are all there are."""
    found = await direct_get_many(
        bus.connection, bus.topology.log, subject, after=after, limit=WINDOW
    )
    return found, found[-1].sequence if len(found) == WINDOW else last


def _run(bus: Bus, stored: Stored) -> str:
    return bus.subjects.parse_run(stored.subject).run


async def _together(work: Iterable[Awaitable[None]]) -> None:
    """Several at once: the store commits them together."""
    todo = iter(work)

    async def some() -> None:
        for one in todo:
            await one

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(some())
    except ExceptionGroup as failed:  # of one bus or one store: they all failed for the same reason
        raise failed.exceptions[0] from None


async def _record(bus: Bus, store: TraceStore, done: CaughtUp, run: str) -> None:
    reading = await read_run(bus, run)
    done.skipped += reading.skipped
    if reading.events:  # else the log has forgotten it meanwhile, or nothing of it can be read
        trace = RunTrace.of(run, reading.events)
        await store.record(trace.facts(), trace.spans(), is_backfill=True)
        done.recorded += 1


async def _note_start(bus: Bus, store: TraceStore, done: CaughtUp, run: str, start: Stored) -> None:
    """A run that has not ended in this window: perhaps in the next one, perhaps never."""
    try:
        event = await bus.log.decoded(start)
    except (MessageError, ObjectMissing):
        done.skipped += 1
        return
    await store.begin(RunTrace.of(run, [event]).facts())
    done.begun += 1


async def _read_those_under_way(bus: Bus, store: TraceStore, done: CaughtUp) -> None:
    """What runs under way have come to: that they wait for people, what they have used."""
    found = await store.unfinished(_UNDER_WAY_READ, time.time_ns() + 1)
    await _together(_record(bus, store, done, facts.run) for facts in found)
