"""Handles a parked message after all. Talks to the bus only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.wire.messages import RunReopened
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.summaries import summarize
from sandstream.exceptions import UserError


async def parked_entry(bus: Bus, entry_id: str) -> ParkedEntry:
    """Find a parked message."""
    entry = await bus.parking.get(entry_id)
    if entry is None:
        raise UserError(f"nothing is parked under {entry_id!r}; `sandstream parked` lists all")
    return entry


async def redrive(
    bus: Bus, entry: ParkedEntry, retry: Callable[[RunId, str], Awaitable[object]]
) -> int:
    """Continue the run that ended because of the message, or publish the message again.

    Args:
        bus: Where the message is parked.
        entry: The parked message.
        retry: Retries a run, for a reason.
    """
    reason = f"re-driven: {entry.parked.reason}"
    if bus.subjects.split(entry.parked.subject).family == "run":
        run = bus.subjects.delivered_run(entry.parked.subject).run
        reopened = await _reopen(bus, run, reason)
        if reopened is not None:
            await bus.parking.drop(entry)
            return reopened
    refused = await _refused_run(bus, entry)
    if refused is not None:
        await retry(refused, reason)
        await bus.parking.drop(entry)
        return await bus.log.last_sequence(refused)
    return await bus.parking.redrive(entry)


async def _refused_run(bus: Bus, entry: ParkedEntry) -> RunId | None:
    """The run that a parked task would have become, if the run was refused because of that task."""
    from sandstream_actors.run.state import RunState

    parked = entry.parked
    if bus.subjects.split(parked.subject).family not in ("task", "ask"):
        return None
    try:
        run = bus.subjects.run_of_task(parked.subject, parked.headers, parked.sequence)
        state = RunState.of(run, await bus.log.read(run))
    except MessageError:
        return None  # the message is not a task, or its run cannot be read
    is_refused = state.started is None and state.done is not None
    return run if is_refused and state.done and state.done.task == parked.sequence else None


async def _reopen(bus: Bus, run: RunId, reason: str) -> int | None:
    """Continue a run that ended because a message of it was parked."""
    events = await bus.log.read(run)
    summary = summarize(run, events)
    if summary.error is None or summary.error.code != "parked":
        return None
    return await bus.log.append(
        run,
        bus.subjects.turn(run, summary.pool),
        RunReopened(reason=reason),
        after=events[-1].sequence,
        msg_id=f"{run}:reopen{events[-1].sequence}",
    )
