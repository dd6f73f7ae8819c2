"""Short descriptions of runs, for lists and tables: folded from the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from sandstream_actors.run.state import RunState
from sandstream_actors.run.takeovers import TakeoverCount
from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.logs.remarks import is_stray
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.nats.direct import Stored, stale_last_each, stale_many
from sandstream_bus.wire.attempts import attempt_of
from sandstream_bus.wire.messages import (
    CallRequested,
    ErrorInfo,
    RunDone,
    RunRestored,
    RunStarted,
    TokenUsage,
)
from sandstream_bus.wire.subjects import RunId

logger = logging.getLogger(__name__)


class RunSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of a list of runs."""

    run_id: str
    agent: str
    status: str
    """``running`` until the end, or ``waiting`` while only people can go on; then the ``done``
    event's status.
    """
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
    parent: str = ""
    """The run whose call this one answers."""
    root: str = ""
    """The run at the top of the tree, if that is another one."""
    children: int = 0
    """How many runs it has started itself."""
    session: str = ""
    """The conversation that it continues."""
    takeovers: int | None = None
    """How often another process took over; ``None`` if the log was not read for that."""
    approvals: int = 0
    """How many calls wait for a person, those of runs below included."""
    memory: str = ""
    """The memory that it is remembered in, or whose extraction or consolidation it is."""
    metadata: dict[str, Any] = {}
    """What its caller noted of it."""

    @property
    def is_over(self) -> bool:
        return self.status not in ("running", "waiting")


class SummaryReader:
    """Reads one run, event by event, for its summary."""

    def __init__(self, run: RunId, events: Iterable[LogEvent] = ()) -> None:
        self.state = RunState(run)
        self._takeovers = TakeoverCount()
        self._started_at = ""
        self._last_at = ""
        for event in events:
            self.feed(event)

    def feed(self, event: LogEvent) -> None:
        """Take in the next event."""
        self.state.fold([event])
        self._takeovers.note(event.event, attempt_of(event.stored.headers))
        self._last_at = event.stored.time
        self._started_at = self._started_at or self._last_at

    @property
    def items(self) -> list[Any]:
        """The conversation of the run as items of the Responses API."""
        state = self.state
        said = state.own_input + state.said if state.started is not None else []
        return [msgspec.json.decode(item) for item in said]

    def summary(self) -> RunSummary:
        """The run as it is after the last event."""
        summary = _summary_of(self.state)
        summary.takeovers = self._takeovers.count
        summary.started_at = self._started_at
        summary.ended_at = self._last_at if self.state.done is not None else ""
        return summary


def summarize(run: RunId, events: list[LogEvent]) -> RunSummary:
    """A run's summary from its events."""
    summary = SummaryReader(run, events).summary()
    summary.children = len(children_in(events))
    return summary


def started_in(run: RunId, events: list[LogEvent]) -> RunStarted | None:
    """How the run began; None if the log has lost that."""
    for event in events:
        if isinstance(event.event, RunStarted):
            return event.event
    is_restored = any(isinstance(it.event, RunRestored) for it in events)
    return RunState.of(run, events).started if is_restored else None


def children_in(events: Iterable[LogEvent]) -> list[str]:
    """The runs that a run has started, in order."""
    found = [it.event for it in events]
    calls = [it for it in found if isinstance(it, CallRequested) and it.traits.is_child_run]
    return list(dict.fromkeys(call.child for call in calls))


def _summary_of(state: RunState) -> RunSummary:
    done = state.done
    if done is not None:
        return _of_done(state.run, done, state.started, state.pool if state.started else "")
    summary = RunSummary(
        run_id=state.run,
        agent=state.agent_name,
        status="running" if state.waiting is None else "waiting",
        step=current_step(state),
        turns=state.turn,
        usage=state.usage,
        pool=state.pool if state.started else "",
        last_sequence=state.last_seq,
        approvals=len(state.open_approvals()),
    )
    _add_links(summary, state.started)
    return summary


def _add_links(summary: RunSummary, started: RunStarted | None) -> None:
    """What the start of a run says about its place among others."""
    if started is None:
        return
    summary.key = started.key
    summary.metadata = started.options.metadata
    if started.parent is not None:
        summary.parent = started.parent.run
        summary.root = started.parent.root
    if started.options.session is not None:
        summary.session = started.options.session.id
    if started.options.memory is not None:
        summary.memory = started.options.memory.scope


def _of_done(run: RunId, done: RunDone, started: RunStarted | None, pool: str) -> RunSummary:
    output: Any = None
    if done.output:
        try:
            output = msgspec.json.decode(done.output)
        except msgspec.DecodeError:  # an answer that is no JSON: shown as it is
            output = bytes(done.output).decode("utf-8", "replace")
    summary = RunSummary(
        run_id=run,
        agent=done.agent,
        status=done.status,
        step="",
        turns=done.turns,
        usage=done.usage,
        pool=pool,
        error=done.error,
        output=output,
    )
    _add_links(summary, started)
    if done.memory is not None:
        summary.memory = done.memory.scope
    return summary


def summary_of_end(run: RunId, first: LogEvent | None, end: LogEvent) -> RunSummary:
    """An ended run's summary from its first event, if it is known, and its end."""
    assert isinstance(end.event, RunDone)
    started = first.event if first is not None and isinstance(first.event, RunStarted) else None
    summary = _of_done(run, end.event, started, started.pool if started else "")
    summary.started_at = first.stored.time if first is not None else end.stored.time
    summary.ended_at = end.stored.time
    summary.last_sequence = end.sequence
    return summary


def current_step(state: RunState) -> str:
    """What a running run is at, in two or three words."""
    if state.started is None:
        return "starting"
    if state.cancel is not None:
        return "cancelling"
    if state.deferred is not None:
        return "waiting for the rate limit"
    if state.waiting is not None:
        return f"approval of {_names(it.name for it in state.waiting.approvals)}"
    session = state.options.session
    if session is not None and session.kind == "bus" and state.history is None:
        return f"waiting for conversation {session.id}"
    open_calls = [call for call in state.open_tool_calls() if call.id in state.asked]
    if open_calls:
        return f"tool {_names(call.name for call in open_calls)}"
    waiting = [call for call in state.asked.values() if call.call not in state.results]
    if waiting:
        return f"{waiting[-1].kind} ({'sandbox' if waiting[-1].sandbox else 'your code'})"
    return "model"


def _names(names: Iterable[str]) -> str:
    """Each once, with how often it is there."""
    counts = Counter(names)
    return ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in sorted(counts.items()))


async def read_known(
    bus: Bus, subject: str, *, after: int = 0, limit: int | None = None
) -> list[LogEvent]:
    """Stored events as observers read them: one that cannot be read here hides no other."""
    found = await stale_many(bus.connection, bus.topology.log, subject, after=after, limit=limit)
    return await known_events(bus, found)


async def read_last(bus: Bus, subjects: list[str]) -> list[LogEvent]:
    """The last event of each subject, in the order of the log."""
    found = await stale_last_each(bus.connection, bus.topology.log, subjects)
    events: list[LogEvent] = []
    for stored in found:
        events += await known_events(bus, [stored]) or await _before(bus, stored)
    return sorted(events, key=lambda it: it.sequence)


async def _before(bus: Bus, stored: Stored) -> list[LogEvent]:
    """The last event of a subject whose last message cannot be read, if that one says nothing."""
    if not is_stray(bus.subjects, stored.subject, stored.headers):
        return []
    return (await read_known(bus, stored.subject))[-1:]


async def known_events(bus: Bus, found: list[Stored]) -> list[LogEvent]:
    """Those of the stored messages that can be read here, decoded."""
    events: list[LogEvent] = []
    for stored in found:
        try:
            event = await bus.log.observed(stored)
            if event is not None:
                events.append(event)
        except (MessageError, ObjectMissing) as error:
            logger.warning("skipped an event", extra={"subject": stored.subject, "why": str(error)})
    return events
