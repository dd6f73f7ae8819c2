"""Fills the store from the log, without a consumer: for a new store, and for who has no actor.

The log is read in windows. A window's runs are committed before the position moves behind it, so
whatever ends this process, the next one begins where something may be missing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.direct import Stored, direct_get_many
from sandstream_bus.errors import MessageError, ObjectMissing, UndecodableMessage
from sandstream_bus.trace_messages import SpansReported

from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.redaction import Redactor
from sandstream_actors.tracing.reported import reported_spans
from sandstream_actors.tracing.run_reading import folded, has_news, read_run
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.trace_store import TraceStore

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


async def catch_up(
    bus: Bus,
    store: TraceStore,
    *,
    progress: Progress | None = None,
    redactor: Redactor | None = None,
) -> CaughtUp:
    """Bring the store up to the end of the log. Nothing of it is exported."""
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
    """Reads the log into the store, and counts."""

    def __init__(self, bus: Bus, store: TraceStore, redactor: Redactor) -> None:
        self.done = CaughtUp()
        self._bus = bus
        self._store = store
        self._redactor = redactor

    async def window(self, after: int, last: int) -> int:
        """Record the runs that began or ended after a sequence; up to where all are recorded."""
        prefix = self._bus.subjects.prefix
        starts, starts_end = await self._some(f"{prefix}.run.*.start.*", after, last)
        ends, ends_end = await self._some(f"{prefix}.run.*.done", after, last)
        reports, reports_end = await self._some(f"{prefix}.trace.*.spans", after, last)
        reached = min(starts_end, ends_end, reports_end)
        ended = {self._run(it): it.sequence for it in ends if it.sequence <= reached}
        begun = {self._run(it): it for it in starts if it.sequence <= reached}
        known = await self._store.last_seqs(ended)
        news = [run for run, end in ended.items() if known.get(run, 0) < end]
        await _together(self._record(run) for run in news)
        await _together(
            self._note_start(run, start) for run, start in begun.items() if run not in ended
        )
        await _together(self._record_reported(it) for it in reports if it.sequence <= reached)
        return reached

    async def _some(self, subject: str, after: int, last: int) -> tuple[list[Stored], int]:
        """The next messages of a subject, and up to which sequence these are all there are."""
        found = await direct_get_many(
            self._bus.connection, self._bus.topology.log, subject, after=after, limit=WINDOW
        )
        return found, found[-1].sequence if len(found) == WINDOW else last

    def _run(self, stored: Stored) -> str:
        return self._bus.subjects.parse_run(stored.subject).run

    async def _record(self, run: str) -> None:
        reading = await read_run(self._bus, run)
        self.done.skipped += reading.skipped
        trace = await folded(run, reading.events)
        if trace.spans():  # else the log has forgotten it meanwhile, or nothing can be read
            await self._keep(trace.facts(), trace.spans())
            self.done.recorded += 1

    async def _note_start(self, run: str, start: Stored) -> None:
        """A run that has not ended in this window: perhaps in the next one, perhaps never."""
        try:
            event = await self._bus.log.decoded(start)
        except (MessageError, ObjectMissing):
            self.done.skipped += 1
            return
        trace = RunTrace.of(run, [event])
        await self._keep(trace.facts(), trace.spans())
        self.done.begun += 1

    async def _record_reported(self, stored: Stored) -> None:
        """What a program has reported of its own."""
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
        """What runs under way have come to: that they wait for people, what they have used."""
        found = await self._store.unfinished(_UNDER_WAY_READ, time.time_ns() + 1)
        await _together(self._look_again(facts) for facts in found)

    async def _look_again(self, known: RunFacts) -> None:
        if await has_news(self._bus, known.run, known.last_seq):
            await self._record(known.run)
        else:
            await self._store.begin(known)  # the next time, others come first


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
