"""Short descriptions of runs, for lists and tables: folded from the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from sandstream_actors.run_state import RunState
from sandstream_bus.bus import Bus
from sandstream_bus.direct import Stored, direct_get_last_each, direct_get_many
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import (
    CallRequested,
    ErrorInfo,
    ParentLink,
    RunDone,
    RunStarted,
    TokenUsage,
)
from sandstream_bus.subjects import RunId

logger = logging.getLogger(__name__)


Which = Literal["all", "top_level", "trees"]
"""All runs; those that no other run started; those, and all runs below them."""


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
    approvals: int = 0
    """How many calls wait for a person, those of runs below included."""
    memory: str = ""
    """The memory that it is remembered in, or whose extraction or consolidation it is."""

    @property
    def is_over(self) -> bool:
        return self.status not in ("running", "waiting")


def summarize(run: RunId, events: list[LogEvent]) -> RunSummary:
    """A run's summary from its events."""
    state = RunState.of(run, events)
    summary = summary_of_state(state)
    summary.children = len(children_in(events))
    if events:
        summary.started_at = events[0].stored.time
        if state.done is not None:
            summary.ended_at = events[-1].stored.time
    return summary


def children_in(events: Iterable[LogEvent]) -> list[str]:
    """The runs that a run has started, in order."""
    found = [it.event for it in events]
    calls = [it for it in found if isinstance(it, CallRequested) and it.kind == "child"]
    return list(dict.fromkeys(call.child for call in calls))


def summary_of_state(state: RunState) -> RunSummary:
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


async def list_runs(bus: Bus, *, limit: int, which: Which = "all") -> list[RunSummary]:
    """The newest runs, newest first."""
    found = await _newest(bus, limit, only_tops=which != "all")
    links = {run: _parent_of(it) for run, it in found.items()}
    children = Counter(link.run for link in links.values() if link is not None)
    chosen = [run for run, link in links.items() if which == "all" or link is None][:limit]
    if which == "trees":
        roots = set(chosen)
        chosen = [run for run, link in links.items() if (link.root if link else run) in roots]
    firsts = {run: found[run] for run in chosen}
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
        summary.children = max(summary.children, children[run])
        summaries.append(summary)
    return summaries


def _parent_of(first: LogEvent) -> ParentLink | None:
    return first.event.parent if isinstance(first.event, RunStarted) else None


async def _newest(bus: Bus, limit: int, *, only_tops: bool) -> dict[RunId, LogEvent]:
    """The first events of at least so many runs (or runs at the top), newest first, found by
    looking back in growing windows.
    """
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
        counted = [it for it in found.values() if not only_tops or _parent_of(it) is None]
        if len(counted) >= limit or after <= first - 1 or after == 0:
            return dict(sorted(found.items(), key=lambda item: -item[1].sequence))
        window *= 4


async def read_known(bus: Bus, subject: str, *, after: int = 0) -> list[LogEvent]:
    """Stored events as observers read them: one that cannot be read here hides no other."""
    found = await direct_get_many(bus.connection, bus.topology.log, subject, after=after)
    return await _known(bus, found)


async def _known(bus: Bus, found: list[Stored]) -> list[LogEvent]:
    events: list[LogEvent] = []
    for stored in found:
        try:
            events.append(await bus.log.decoded(stored))
        except (MessageError, ObjectMissing) as error:
            logger.warning("skipped an event", extra={"subject": stored.subject, "why": str(error)})
    return events
