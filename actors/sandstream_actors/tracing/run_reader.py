"""The trace of a run's log, as the tracing actor makes it."""

from __future__ import annotations

import asyncio
from typing import Final

from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.consumer import Delivery
from sandstream_bus.wire.messages import RunEvent

from sandstream_actors.tracing.fold.run_trace import RunTrace

_LONG: Final = 1_000


async def folded(run: str, events: list[LogEvent], *, contents: bool = False) -> RunTrace:
    """The trace of a log, for storing and exporting; without ``contents`` also without error
    messages. A long log is folded in a thread, so that it does not block the event loop.
    """
    if len(events) < _LONG:
        return RunTrace.of(run, events, contents=contents, quotes=contents)
    return await asyncio.to_thread(RunTrace.of, run, events, contents=contents, quotes=contents)


def delivered(delivery: Delivery, event: RunEvent) -> LogEvent:
    """A delivered event, as if it had been read from the log."""
    return LogEvent(delivery.sequence, delivery.subject, event, delivery.stored)
