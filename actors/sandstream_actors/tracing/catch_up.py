"""Fill the store from the log without a consumer: for a new store, or without a tracing actor.

The log is read in windows. The runs of a window are committed before the position moves past it,
so after a crash the next process starts where something may be missing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError, ObjectMissing, UndecodableMessage
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_many
from sandstream_bus.wire.subjects import ANY, is_token
from sandstream_bus.wire.traces import SpansReported

from sandstream_actors.run.observed_log import has_news, read_run
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.redaction import Redactor
from sandstream_actors.tracing.reported import reported_spans
from sandstream_actors.tracing.run_reader import folded
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.trace_store import TraceStore

WINDOW: Final = 512
_AT_ONCE: Final = 16
_UNDER_WAY_READ: Final = 256
EVENTS_SKIPPED: Final = "events_skipped"

Progress = Callable[[int, int], None]
"""Called with the sequence of the log that was reached, and the last one."""


class CaughtUp(msgspec.Struct, kw_only=True):
    """Statistics of a catch-up."""

    position: int = 0
    recorded: int = 0
    """Runs that were read and folded."""
    begun: int = 0
    """Open runs of which only the start was recorded."""
    skipped: int = 0
    """Events that could not be read."""


async def catch_up(
    bus: Bus,
    store: TraceStore,
    *,
    progress: Progress | None = None,
    redactor: Redactor | None = None,
) -> CaughtUp:
    """Bring the store up to the end of the log. Nothing is exported."""
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    last: int = state["last_seq"]
    position = await store.position()
    reader = _Reader(bus, store, redactor or Redactor())
    done = reader.done
    done.position = position if position <= last else 0
    while done.position < last:
        done.position = await reader.window(done.position, last)
        await store.advance(done.position)
        if progress is not None:
            progress(done.position, last)
    await reader.those_under_way()
    if done.skipped:
        await store.count(EVENTS_SKIPPED, done.skipped)
    return done


class _Reader:
    """Reads the log into the store and counts."""

    def __init__(self, bus: Bus, store: TraceStore, redactor: Redactor) -> None:
        self.done = CaughtUp()
        self._bus = bus
        self._store = store
        self._redactor = redactor

    async def window(self, after: int, last: int) -> int:
        """Record the runs that began or ended after a sequence; up to where all are recorded."""
        subjects = self._bus.subjects
        [spans] = subjects.matching("trace.*.spans")
        starts, starts_end = await self._some(subjects.start(ANY, ANY), after, last)
        ends, ends_end = await self._some(subjects.done(ANY), after, last)
        reports, reports_end = await self._some(spans, after, last)
        reached = min(starts_end, ends_end, reports_end)
        ended = {run: it.sequence for run, it in self._runs(ends) if it.sequence <= reached}
        begun = {run: it for run, it in self._runs(starts) if it.sequence <= reached}
        known = await self._store.last_seqs(ended)
        news = [run for run, end in ended.items() if known.get(run, 0) < end]
        await _together(self._record(run) for run in news)
        await _together(
            self._note_start(run, start) for run, start in begun.items() if run not in ended
        )
        await _together(self._record_reported(it) for it in reports if it.sequence <= reached)
        return reached

    async def _some(self, subject: str, after: int, last: int) -> tuple[list[Stored], int]:
        """The next messages of a subject, and the sequence up to which they are complete."""
        found = await fresh_many(
            self._bus.connection, self._bus.topology.log, subject, after=after, limit=WINDOW
        )
        return found, found[-1].sequence if len(found) == WINDOW else last

    def _runs(self, found: list[Stored]) -> Iterator[tuple[str, Stored]]:
        """The runs of these messages. A server also stores subjects that contain wildcards, and
        ``*`` as an id would match all runs.
        """
        for stored in found:
            run = self._bus.subjects.parse_run(stored.subject).run
            if is_token(run):
                yield run, stored

    async def _record(self, run: str) -> None:
        reading = await read_run(self._bus, run)
        self.done.skipped += reading.skipped
        trace = await folded(run, reading.events)
        if trace.spans():  # otherwise the log has expired meanwhile, or is unreadable
            await self._keep(trace.facts(), trace.spans())
            self.done.recorded += 1

    async def _note_start(self, run: str, start: Stored) -> None:
        """Record a run that does not end in this window; it may end in the next one, or never."""
        try:
            event = await self._bus.log.decoded(start)
        except (MessageError, ObjectMissing):
            self.done.skipped += 1
            return
        trace = RunTrace.of(run, [event], quotes=False)
        await self._keep(trace.facts(), trace.spans())
        self.done.begun += 1

    async def _record_reported(self, stored: Stored) -> None:
        """Record spans that a program has reported."""
        trace_id = stored.subject.split(".")[-2]
        try:
            message = await self._bus.codec.trace_event(stored.data)
            if not isinstance(message, SpansReported):
                raise UndecodableMessage(f"there are no spans on {stored.subject}")
            spans = reported_spans(message, trace_id, sequence=stored.sequence)
        except (MessageError, ObjectMissing):
            self.done.skipped += 1
            return
        await self._keep(None, spans)

    async def _keep(self, facts: RunFacts | None, spans: Sequence[Span]) -> None:
        ended = [self._redactor.redact_span(span) for span in spans if not span.is_open]
        clean = None if facts is None else self._redactor.redact_facts(facts)
        await self._store.record(clean, ended, is_backfill=True)

    async def those_under_way(self) -> None:
        """Update open runs: whether they wait for approvals, and their usage."""
        found = await self._store.unfinished(_UNDER_WAY_READ, time.time_ns() + 1)
        await _together(self._look_again(facts) for facts in found)

    async def _look_again(self, known: RunFacts) -> None:
        if await has_news(self._bus, known.run, known.last_seq):
            await self._record(known.run)
        else:
            await self._store.begin(known)  # marks it as checked: others come first next time


async def _together(work: Iterable[Awaitable[None]]) -> None:
    """Run several at once, so that the store commits them together."""
    todo = iter(work)

    async def some() -> None:
        for one in todo:
            await one

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(some())
    except ExceptionGroup as failed:  # one bus and one store: all failed for the same reason
        raise failed.exceptions[0] from None
