"""Questions to people, on the bus: which are open, and how one is answered. By anybody, anywhere.

The first answer to a question counts. It is written under compare-and-set, so that whoever comes
second hears who was first.
"""

from __future__ import annotations

import asyncio
import builtins
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw
from sandstream_actors.harness.children import Children
from sandstream_actors.run_state import RunState
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.log import Conflict, LogEvent
from sandstream_bus.messages import (
    ApprovalDecided,
    ApprovalRequested,
    InputStaged,
    RunStarted,
    RunWaiting,
)
from sandstream_bus.subjects import RunId

from sandstream.exceptions import UserError
from sandstream.summaries import read_known


class OpenApproval(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call that waits for a person."""

    run_id: str
    """The run that waits: a child run where an agent is used as a tool."""
    root_run: str
    """The run at the top of its tree."""
    call: str
    """The call's id in the log of its run."""
    call_id: str
    """The id that the model gave it."""
    agent: str
    tool: str
    arguments: str
    since: str
    """When the question was asked, RFC 3339."""
    expires_s: float | None = None


class Answered(NamedTuple):
    """An answer, and when it was given."""

    decided: ApprovalDecided
    time: str


class ApprovalNotFound(UserError):
    """No call of that run waits for a person, or not this one."""

    code = "approval_not_found"


class AlreadyDecided(UserError):
    """Somebody else was first."""

    code = "already_decided"

    def __init__(self, run_id: str, question: str, answer: Answered) -> None:
        super().__init__(f"{question} of run {run_id} {told(answer)}: the first answer counts")
        self.run_id = run_id
        self.approved = answer.decided.approve
        self.by = answer.decided.by
        self.rejection_message = answer.decided.message
        self.decided_at = answer.time


def told(answer: Answered) -> str:
    """Who said what, and when."""
    decided = answer.decided
    what = "approved" if decided.approve else "rejected"
    who = f" by {decided.by}" if decided.by else ""
    when = f" at {answer.time}" if answer.time else ""
    return f"was {what}{who}{when}"


def first_decision(
    events: Iterable[LogEvent], call: str, call_id: str, *, run: str = ""
) -> Answered | None:
    """The first answer to a question in a log; ``run``: the child run whose question it is."""
    for event in events:
        decided = event.event
        if not isinstance(decided, ApprovalDecided) or decided.run != run:
            continue
        if decided.call == call or (call_id and decided.call == call_id):
            return Answered(decided, event.stored.time)
    return None


# --- all open questions ---------------------------------------------------------------------------


async def open_approvals(bus: Bus, *, limit: int) -> list[OpenApproval]:
    """The questions of the runs that waited last, newest first. Reads only what runs say about
    waiting, and of those that may still wait what people were asked and answered.
    """
    stream = await bus.topology.stream_state(bus.connection, bus.topology.log)
    first, last = stream["first_seq"], stream["last_seq"]
    window = max(1000, limit * 20)
    while True:
        after = max(last - window, first - 1, 0)
        found = await _open_since(bus, after)
        if len(found) >= limit or after <= first - 1 or after == 0:
            return sorted(found, key=lambda it: it.since, reverse=True)[:limit]
        window *= 4


async def _open_since(bus: Bus, after: int) -> list[OpenApproval]:
    waiting: dict[RunId, LogEvent] = {}
    for event in await read_known(bus, f"{bus.subjects.prefix}.run.*.waiting", after=after):
        waiting[bus.subjects.parse_run(event.subject).run] = event
    ends = await bus.log.last_each([bus.subjects.done(run) for run in waiting])
    ended = {bus.subjects.parse_run(end.subject).run: end.sequence for end in ends}
    current = {run: event for run, event in waiting.items() if ended.get(run, 0) < event.sequence}
    asked = dict(
        zip(current, await asyncio.gather(*(_asked(bus, it) for it in current)), strict=True)
    )
    listed: dict[tuple[str, str], builtins.list[RunId]] = {}
    questions: dict[tuple[str, str], ApprovalRequested] = {}
    for run, event in current.items():
        assert isinstance(event.event, RunWaiting)
        for question in event.event.approvals:
            if first_decision(asked[run], question.call, question.call_id, run=question.run):
                continue
            key = (question.run or run, question.call)
            questions[key] = question
            listed.setdefault(key, []).append(run)
    found = []
    for (run_id, call), question in questions.items():
        own = asked.get(RunId(run_id)) or await _asked(bus, RunId(run_id))
        if first_decision(own, call, question.call_id):
            continue
        root = await _root(bus, run_id, listed[run_id, call])
        found.append(_shown(run_id, root, question, own))
    return found


async def _asked(bus: Bus, run: RunId) -> list[LogEvent]:
    """What people were asked in a run, and what they answered."""
    return await read_known(bus, f"{bus.subjects.prefix}.run.{run}.approval.*")


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


def _shown(
    run_id: str, root: str, question: ApprovalRequested, events: Sequence[LogEvent]
) -> OpenApproval:
    since = next(
        (
            it.stored.time
            for it in events
            if isinstance(it.event, ApprovalRequested) and it.event.call == question.call
        ),
        "",
    )
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


# --- one answer -----------------------------------------------------------------------------------


async def decide(
    bus: Bus,
    run: RunId,
    call: str | None,
    *,
    approve: bool,
    always: bool,
    by: str,
    message: str | None = None,
) -> OpenApproval:
    """Answer a question of a run, or of a run below it; the question."""
    while True:
        events = await bus.log.read(run)
        state = RunState.of(run, events)
        question = _question(run, state, events, call)
        below = await bus.log.read(RunId(question.run)) if question.run else []
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
        asked = below if question.run else events
        parent = state.started.parent if state.started else None
        root = parent.root if parent else run
        return _shown(question.run or run, root, question, asked)


async def _pass_on(
    bus: Bus, above: RunId, question: ApprovalRequested, decided: ApprovalDecided, sequence: int
) -> None:
    """The harness does it, too; but of two people, one here and one below, the second must hear
    that the first answer is another one.
    """
    await Children(bus).pass_on(above, decided, sequence)
    below = await _asked(bus, RunId(question.run))
    first = first_decision(below, question.call, question.call_id)
    if first is not None and first.decided != msgspec.structs.replace(decided, run=""):
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
    """What the run waited for last, if that was one thing."""
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
        return f"there is no run {run!r}; `sandstream runs` lists those there are"
    if state.done is not None:
        return f"no call of run {run} waits for a person: it has ended ({state.done.status})"
    return f"no call of run {run} waits for a person"


def _name(question: ApprovalRequested) -> str:
    return f"the call of {question.name} ({question.call_id})"


# --- more input -----------------------------------------------------------------------------------


async def stage_input(bus: Bus, run: RunId, input: list[Raw], *, by: str) -> int:
    """Give a run under way more input; the sequence of that event."""
    while True:
        state = RunState.of(run, await bus.log.read(run))
        if state.started is None:
            raise UserError(f"there is no run {run!r} under way; `sandstream runs` lists all")
        if state.done is not None:
            raise UserError(
                f"run {run} has ended ({state.done.status}): start another one with this input"
            )
        try:
            return await bus.log.append(
                run,
                bus.subjects.input(run),
                InputStaged(input=input, by=by),
                after=state.last_seq,
                msg_id=f"{run}:input:{uuid.uuid4().hex}",
            )
        except Conflict:
            continue
