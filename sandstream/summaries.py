"""Short descriptions of runs, for lists and tables: folded from the log."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from sandstream_actors.run_state import RunState
from sandstream_bus.bus import Bus
from sandstream_bus.direct import Stored, direct_get_last_each, direct_get_many
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import ErrorInfo, RunDone, RunStarted, TokenUsage
from sandstream_bus.subjects import RunId

logger = logging.getLogger(__name__)


class RunSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of a list of runs."""

    run_id: str
    agent: str
    status: str
    """``running`` until the end, then the ``done`` event's status."""
    step: str
    """What the run does or waits for now."""
    turns: int
    usage: TokenUsage
    started_at: str = ""
    ended_at: str = ""
    pool: str = ""
    key: str | None = None
    error: ErrorInfo | None = None
    output: Any = None
    last_sequence: int = 0


def summarize(run: RunId, events: list[LogEvent]) -> RunSummary:
    """A run's summary from its events."""
    state = RunState.of(run, events)
    summary = summary_of_state(state)
    if events:
        summary.started_at = events[0].stored.time
        if state.done is not None:
            summary.ended_at = events[-1].stored.time
    return summary


def summary_of_state(state: RunState) -> RunSummary:
    done = state.done
    if done is not None:
        return _of_done(state.run, done, state.started, state.pool if state.started else "")
    return RunSummary(
        run_id=state.run,
        agent=state.agent_name,
        status="running",
        step=current_step(state),
        turns=state.turn,
        usage=state.usage,
        pool=state.pool if state.started else "",
        key=state.started.key if state.started else None,
        last_sequence=state.last_seq,
    )


def _of_done(run: RunId, done: RunDone, started: RunStarted | None, pool: str) -> RunSummary:
    output: Any = None
    if done.output:
        try:
            output = msgspec.json.decode(done.output)
        except msgspec.DecodeError:  # an answer that is no JSON: shown as it is
            output = bytes(done.output).decode("utf-8", "replace")
    return RunSummary(
        run_id=run,
        agent=done.agent,
        status=done.status,
        step="",
        turns=done.turns,
        usage=done.usage,
        pool=pool,
        key=started.key if started else None,
        error=done.error,
        output=output,
    )


def current_step(state: RunState) -> str:
    """What a running run is at, in two or three words."""
    if state.started is None:
        return "starting"
    if state.cancel is not None:
        return "cancelling"
    if state.deferred is not None:
        return "waiting for the rate limit"
    open_calls = [call for call in state.open_tool_calls() if call.id in state.asked]
    if open_calls:
        names = ", ".join(sorted({call.name for call in open_calls}))
        return f"tool {names}"
    waiting = [call for call in state.asked.values() if call.call not in state.results]
    if waiting:
        return f"{waiting[-1].kind} ({'sandbox' if waiting[-1].sandbox else 'your code'})"
    return "model"


async def list_runs(bus: Bus, *, limit: int) -> list[RunSummary]:
    """The newest runs, newest first."""
    firsts = await _newest(bus, limit)
    subjects = [bus.subjects.done(run) for run in firsts]
    dones = await _known(
        bus, await direct_get_last_each(bus.connection, bus.topology.log, subjects)
    )
    ended = {bus.subjects.parse_run(done.subject).run: done for done in dones}
    summaries: list[RunSummary] = []
    for run, first in firsts.items():
        done = ended.get(run)
        if done is not None and isinstance(done.event, RunDone):
            started = first.event if isinstance(first.event, RunStarted) else None
            summary = _of_done(run, done.event, started, started.pool if started else "")
            summary.started_at = first.stored.time
            summary.ended_at = done.stored.time
            summary.last_sequence = done.sequence
        else:
            summary = summarize(run, await read_known(bus, bus.subjects.run_all(run)))
        summaries.append(summary)
    return summaries


async def _newest(bus: Bus, limit: int) -> dict[RunId, LogEvent]:
    """The first events of the newest runs, found by looking back in growing windows."""
    state = await bus.topology.stream_state(bus.connection, bus.topology.log)
    last, first = state["last_seq"], state["first_seq"]
    prefix = bus.subjects.prefix
    window = max(1000, limit * 20)
    while True:
        after = max(last - window, first - 1, 0)
        found: dict[RunId, LogEvent] = {}
        # a task that was refused has a done and no start
        for filter_ in (f"{prefix}.run.*.start.*", f"{prefix}.run.*.done"):
            for event in await read_known(bus, filter_, after=after):
                found.setdefault(bus.subjects.parse_run(event.subject).run, event)
        if len(found) >= limit or after <= first - 1 or after == 0:
            newest = sorted(found.items(), key=lambda item: -item[1].sequence)
            return dict(newest[:limit])
        window *= 4


async def read_known(bus: Bus, subject: str, *, after: int = 0) -> list[LogEvent]:
    """Stored events as observers read them: one that cannot be read here hides no other."""
    found = await direct_get_many(bus.connection, bus.topology.log, subject, after=after)
    return await _known(bus, found)


async def _known(bus: Bus, found: list[Stored]) -> list[LogEvent]:
    events: list[LogEvent] = []
    for stored in found:
        try:
            event = await bus.codec.run_event(stored.data)
        except (MessageError, ObjectMissing) as error:
            logger.warning("skipped an event", extra={"subject": stored.subject, "why": str(error)})
        else:
            events.append(LogEvent(stored.sequence, stored.subject, event, stored))
    return events
