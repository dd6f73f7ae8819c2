"""Approvals on the bus: lists open ones and records decisions. Any process may decide.

The first decision on an approval counts. It is written with compare-and-set, so that a second
person learns who decided first.
"""

from __future__ import annotations

import asyncio
import builtins
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw
from sandstream_actors.harness.children import Children
from sandstream_actors.run.state import RunState
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import PermissionDenied
from sandstream_bus.logs.open_runs import OpenEntry
from sandstream_bus.logs.runs import Conflict, LogEvent
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    InputStaged,
    RunStarted,
    RunWaiting,
)
from sandstream_bus.wire.open_runs import OpenRun, Question
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.summaries import read_known, read_last
from sandstream._wire.asks import Asks
from sandstream.exceptions import UserError

_RUNS_AT_ONCE = 200


class OpenApproval(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call that waits for a person."""

    run_id: str
    """The run that waits; a child run if an agent is used as a tool."""
    root_run: str
    """The run at the top of its tree."""
    call: str
    """The call's id in the log of its run."""
    call_id: str
    """The id that the model gave the call."""
    agent: str
    tool: str
    arguments: str
    since: str
    """When the approval was requested, RFC 3339."""
    expires_s: float | None = None


class Answered(NamedTuple):
    """A decision, and the time it was made."""

    decided: ApprovalDecided
    time: str


class ApprovalNotFound(UserError):
    """No call of that run waits for a person, or not the given one."""

    code = "approval_not_found"


class AlreadyDecided(UserError):
    """Another person decided first."""

    code = "already_decided"

    def __init__(self, run_id: str, question: str, answer: Answered) -> None:
        super().__init__(f"{question} of run {run_id} {told(answer)}: the first answer counts")
        self.run_id = run_id
        self.approved = answer.decided.approve
        self.by = answer.decided.by
        self.rejection_message = answer.decided.message
        self.decided_at = answer.time


def told(answer: Answered) -> str:
    """The decision, its author and its time, as text."""
    decided = answer.decided
    what = "approved" if decided.approve else "rejected"
    who = f" by {decided.by}" if decided.by else ""
    when = f" at {answer.time}" if answer.time else ""
    return f"was {what}{who}{when}"


def first_decision(
    events: Iterable[LogEvent], call: str, call_id: str, *, run: str = ""
) -> Answered | None:
    """The first decision on a request in a log; ``run``: the child run that asked."""
    for event in events:
        decided = event.event
        if not isinstance(decided, ApprovalDecided) or decided.run != run:
            continue
        if decided.call == call or (call_id and decided.call == call_id):
            return Answered(decided, event.stored.time)
    return None


# --- all open approvals ---------------------------------------------------------------------------


async def open_approvals(bus: Bus, *, limit: int) -> list[OpenApproval]:
    """The open approvals of the runs that began to wait last, newest first. The index of open runs
    names the candidates; requests and decisions come from the log. For a user who may not read the
    index, the log is searched for all runs that have ever waited.
    """
    stream = await bus.topology.stream_state(bus.connection, bus.topology.log)
    if not stream["messages"]:
        return []  # an empty stream has no time of its first message
    # Unless it is whole, the log may have lost the beginning of a run. The entry of a run is
    # slightly older than its first event, which may be the first event of the log.
    is_whole = stream["first_seq"] == 1
    entries = [
        it
        for it in reversed(await _may_wait(bus, stream["first_ts"]))  # latest to wait first
        if it.open.waited and (is_whole or it.since >= stream["first_ts"])
    ]
    found: dict[tuple[str, str], OpenApproval] = {}
    size = max(_RUNS_AT_ONCE, 2 * limit)
    for index in range(0, len(entries), size):
        for it in await _open_in(bus, entries[index : index + size]):
            found[it.run_id, it.call] = it  # a request is listed in its run and in the runs above
        if len(found) >= limit:
            break
    return sorted(found.values(), key=lambda it: it.since, reverse=True)[:limit]


async def _may_wait(bus: Bus, since: str) -> list[OpenEntry]:
    """The runs that may wait for people; ``since``: the time of the log's oldest event."""
    try:
        return await bus.open_runs.all()
    except PermissionDenied:
        filter = bus.subjects.waiting("*")
        found = await bus.topology.subjects_of(bus.connection, bus.topology.log, filter)
        runs = [bus.subjects.parse_run(subject).run for subject in found]
        return [OpenEntry(run, OpenRun(waited=True), 0, since) for run in runs]


async def _open_in(bus: Bus, entries: Sequence[OpenEntry]) -> list[OpenApproval]:
    """The open approvals of runs, from the index or, if they are too big for it, from the log."""
    current = {it.run: it.open.questions for it in entries if it.open.questions}
    placed = {it.run: it.open.at for it in entries}
    unknown = [it.run for it in entries if it.run not in current]
    for event in await read_last(bus, [bus.subjects.waiting(run) for run in unknown]):
        run = bus.subjects.parse_run(event.subject).run
        current[run] = await _questions(bus, run, event)
        placed[run] = event.sequence
    for end in await read_last(bus, [bus.subjects.done(run) for run in current]):
        run = bus.subjects.parse_run(end.subject).run
        if end.sequence > placed[run]:
            del current[run]
    asking = {it.asked.run for questions in current.values() for it in questions} - {""}
    answers = await _answers(bus, {*current, *map(RunId, asking)})
    roots = {str(it.run): it.open.root for it in entries}
    listed: dict[tuple[str, str], builtins.list[RunId]] = {}
    questions: dict[tuple[str, str], Question] = {}
    for run, asked in current.items():
        for it in asked:
            question = it.asked
            if first_decision(answers[run], question.call, question.call_id, run=question.run):
                continue
            own = answers[RunId(question.run or run)]
            if first_decision(own, question.call, question.call_id):
                continue
            key = (question.run or run, question.call)
            if not question.run or key not in questions:  # the asking run has the exact time
                questions[key] = it
            listed.setdefault(key, []).append(run)
    found = []
    for (run_id, call), it in questions.items():
        root = roots.get(run_id) or await _root(bus, run_id, listed[run_id, call])
        found.append(open_approval(run_id, root, it.asked, it.since))
    return found


async def _questions(bus: Bus, run: RunId, waiting: LogEvent) -> list[Question]:
    """The approvals that a run waits for, from the log."""
    if not isinstance(waiting.event, RunWaiting):
        return []
    asked = await read_known(bus, bus.subjects.approval_requested(run))
    since = waiting.stored.time
    return [
        Question(asked=it, since=_asked_at(asked, it) or since) for it in waiting.event.approvals
    ]


async def _answers(bus: Bus, runs: Iterable[RunId]) -> dict[RunId, list[LogEvent]]:
    """The decisions in each of the runs. Most runs have none yet; one request finds that out for
    hundreds of them.
    """
    found: dict[RunId, list[LogEvent]] = {run: [] for run in runs}
    last = await read_last(bus, [bus.subjects.approval_decided(run) for run in found])
    for event in last:
        run = bus.subjects.parse_run(event.subject).run
        found[run] = await read_known(bus, event.subject)
    return found


async def _asked(bus: Bus, run: RunId) -> list[LogEvent]:
    """What people were asked in a run, and what they answered."""
    return await read_known(bus, bus.subjects.approvals(run))


async def _root(bus: Bus, run_id: str, listing: Sequence[RunId]) -> str:
    above = [run for run in listing if run != run_id]
    for run in above:
        start = await bus.log.read_subject(bus.subjects.start(run, "*"), limit=1)
        event = start[0].event if start else None
        if not isinstance(event, RunStarted) or event.parent is None:
            return run
        if len(above) == 1:
            return event.parent.root
    return run_id


def _asked_at(events: Sequence[LogEvent], question: ApprovalRequested) -> str:
    """The time of a request; empty if these events do not contain it."""
    for it in events:
        if isinstance(it.event, ApprovalRequested) and it.event.call == question.call:
            return it.stored.time
    return ""


def open_approval(run_id: str, root: str, question: ApprovalRequested, since: str) -> OpenApproval:
    """The view of a request for an approval; ``since`` is its time."""
    return OpenApproval(
        run_id=run_id,
        root_run=root,
        call=question.call,
        call_id=question.call_id,
        agent=question.agent,
        tool=question.name,
        arguments=question.arguments,
        since=since,
        expires_s=question.expires_s,
    )


# --- one decision ---------------------------------------------------------------------------------


async def decide(
    bus: Bus,
    run: RunId,
    call: str | None,
    *,
    approve: bool,
    always: bool,
    by: str,
    message: str | None = None,
    asks: Asks | None = None,
) -> OpenApproval:
    """Decide on an approval of a run or of a run below it; return the approval.

    With ``asks`` the decision is a user's request, which a harness writes to the log.
    """
    while True:
        events = await _read(bus, run, asks)
        state = RunState.of(run, events)
        question = _question(run, state, events, call)
        below = await _read(bus, RunId(question.run), asks) if question.run else []
        earlier = first_decision(below, question.call, question.call_id)
        if earlier is not None:
            raise AlreadyDecided(question.run, _name(question), earlier)
        decided = ApprovalDecided(
            call=question.call,
            approve=approve,
            message=message,
            always=always,
            by=by,
            run=question.run,
        )
        crashpoint("client.before_decision")
        if asks is not None:
            await _ask(bus, asks, run, question, decided)
            break
        try:
            sequence = await bus.log.append(
                run,
                bus.subjects.approval_decided(run),
                decided,
                after=state.last_seq,
                msg_id=f"{run}:decide:{uuid.uuid4().hex}",
            )
        except Conflict:
            continue
        crashpoint("client.after_decision")
        if question.run:
            await _pass_on(bus, run, question, decided, sequence)
        break
    asked = below if question.run else events
    parent = state.started.parent if state.started else None
    root = parent.root if parent else run
    return open_approval(question.run or run, root, question, _asked_at(asked, question))


async def _ask(
    bus: Bus, asks: Asks, run: RunId, question: ApprovalRequested, decided: ApprovalDecided
) -> None:
    """Have a harness write the decision. Raises if another decision or the end came first."""
    event = await asks.of_run(run, "approval", decided)
    known = await _read(bus, run, asks)
    before = [it for it in known if it.sequence < event.sequence]
    state = RunState.of(run, before)
    still_open = [] if state.done is not None else state.open_approvals()
    if not any((it.run, it.call) == (question.run, question.call) for it in still_open):
        _raise_if_decided(run, before, [question])
        raise ApprovalNotFound(_nothing_waits(run, state, before))
    if question.run and isinstance(event.event, ApprovalDecided):
        await _await_passed_on(bus, asks, question, event.event)


async def _await_passed_on(
    bus: Bus, asks: Asks, question: ApprovalRequested, decided: ApprovalDecided
) -> None:
    """Wait until the harness passed the decision on; raises if another decision is first."""
    deadline = time.monotonic() + asks.patience_s
    while time.monotonic() < deadline:
        below = await _asked(bus, RunId(question.run))
        first = first_decision(below, question.call, question.call_id)
        if first is not None:
            _raise_if_other(question, first, decided)
            return
        await asyncio.sleep(0.05)


async def _pass_on(
    bus: Bus, above: RunId, question: ApprovalRequested, decided: ApprovalDecided, sequence: int
) -> None:
    """Pass the decision on to the child run. The harness does that too, but if another person
    decided differently in the child run first, this caller must be told.
    """
    await Children(bus).pass_on(above, decided, sequence)
    below = await _asked(bus, RunId(question.run))
    first = first_decision(below, question.call, question.call_id)
    if first is not None:
        _raise_if_other(question, first, decided)


def _raise_if_other(question: ApprovalRequested, first: Answered, decided: ApprovalDecided) -> None:
    if first.decided != msgspec.structs.replace(decided, run=""):
        raise AlreadyDecided(question.run, _name(question), first)


def _question(
    run: RunId, state: RunState, events: Sequence[LogEvent], call: str | None
) -> ApprovalRequested:
    waiting = [] if state.done is not None else state.open_approvals()
    if call is None:
        if len(waiting) == 1:
            return waiting[0]
        if not waiting:
            _raise_if_decided(run, events, _asked_last(events))
            raise ApprovalNotFound(_nothing_waits(run, state, events))
        names = ", ".join(f"{it.call} ({_name(it)})" for it in waiting)
        raise ApprovalNotFound(f"{len(waiting)} calls of run {run} wait; say which: {names}")
    found = [it for it in waiting if call in (it.call, it.call_id)]
    if len(found) == 1:
        return found[0]
    if found:
        runs = ", ".join(it.run or run for it in found)
        raise ApprovalNotFound(f"several runs have a call {call}; give the run's own id: {runs}")
    _raise_if_decided(
        run, events, [it for it in _ever_asked(events) if call in (it.call, it.call_id)]
    )
    names = ", ".join(it.call for it in waiting) or "none"
    raise ApprovalNotFound(f"run {run} has no waiting call {call!r} (waiting: {names})")


def _asked_last(events: Sequence[LogEvent]) -> list[ApprovalRequested]:
    """The last approval that the run waited for, if it was only one."""
    waits = [it.event for it in events if isinstance(it.event, RunWaiting)]
    return waits[-1].approvals if waits and len(waits[-1].approvals) == 1 else []


def _ever_asked(events: Sequence[LogEvent]) -> list[ApprovalRequested]:
    found: list[ApprovalRequested] = []
    for event in events:
        if isinstance(event.event, ApprovalRequested):
            found.append(event.event)
        elif isinstance(event.event, RunWaiting):
            found.extend(event.event.approvals)
    return found


def _raise_if_decided(
    run: RunId, events: Sequence[LogEvent], questions: Sequence[ApprovalRequested]
) -> None:
    for it in questions:
        earlier = first_decision(events, it.call, it.call_id, run=it.run)
        if earlier is not None:
            raise AlreadyDecided(it.run or run, _name(it), earlier)


def _nothing_waits(run: RunId, state: RunState, events: Sequence[LogEvent]) -> str:
    if not events:
        return f"there is no run {run!r}; `sandstream runs` lists all"
    if state.done is not None:
        return f"no call of run {run} waits for a person: it has ended ({state.done.status})"
    return f"no call of run {run} waits for a person"


def _name(question: ApprovalRequested) -> str:
    return f"the call of {question.name} ({question.call_id})"


# --- more input -----------------------------------------------------------------------------------


async def stage_input(
    bus: Bus, run: RunId, input: list[Raw], *, by: str, asks: Asks | None = None
) -> int:
    """Give a running run more input; return the event's sequence. ``asks``: see :func:`decide`."""
    while True:
        state = RunState.of(run, await _read(bus, run, asks))
        _raise_if_over(run, state)
        staged = InputStaged(input=input, by=by)
        if asks is not None:
            sequence = (await asks.of_run(run, "input", staged)).sequence
            known = await _read(bus, run, asks)
            _raise_if_over(run, RunState.of(run, [it for it in known if it.sequence < sequence]))
            return sequence
        try:
            return await bus.log.append(
                run,
                bus.subjects.input(run),
                staged,
                after=state.last_seq,
                msg_id=f"{run}:input:{uuid.uuid4().hex}",
            )
        except Conflict:
            continue


def _raise_if_over(run: RunId, state: RunState) -> None:
    if state.started is None:
        raise UserError(f"there is no run {run!r} under way; `sandstream runs` lists all")
    if state.done is not None:
        raise UserError(
            f"run {run} has ended ({state.done.status}): start another one with this input"
        )


async def _read(bus: Bus, run: RunId, asks: Asks | None) -> list[LogEvent]:
    """The run's current events. A user may lack the permission to read the biggest ones."""
    return await bus.log.read(run, skip_unknown=asks is not None)
