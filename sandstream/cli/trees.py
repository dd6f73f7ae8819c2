"""A run and the runs below it, read from the log: for ``show`` and ``watch``.

An agent that is called as a tool is a run of its own. The call names it, so a tree is found by
reading run after run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    GuardrailRecord,
    RunStarted,
    TurnRequested,
)
from sandstream_bus.subjects import RunId

from sandstream.cli.event_texts import guardrail_text
from sandstream.summaries import RunSummary, children_in, read_known, summarize

_READ_AT_ONCE = 20


class Step(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Base of what can stand below a run in its tree."""

    time: str


class ChildCall(Step, kw_only=True, tag="child"):
    """An agent was called as a tool."""

    call: str
    tool: str
    arguments: str = ""
    run: RunTree | None = None
    """None: it has not started."""


class Handoff(Step, kw_only=True, tag="handoff"):
    source: str
    target: str


class Approval(Step, kw_only=True, tag="approval"):
    """A person was asked; ``time`` is when."""

    asked: ApprovalRequested
    decision: Literal["waiting", "approved", "rejected"] = "waiting"
    decided: ApprovalDecided | None = None
    decided_at: str = ""


class Objection(Step, kw_only=True, tag="guardrail"):
    """A guardrail objected."""

    guardrail: GuardrailRecord


TreeStep = ChildCall | Handoff | Approval | Objection


class RunTree(msgspec.Struct, kw_only=True):
    """A run, and what makes it more than one agent's loop, in order."""

    summary: RunSummary
    steps: list[TreeStep]


async def read_logs(bus: Bus, run: str, events: list[LogEvent]) -> dict[str, list[LogEvent]]:
    """The events of a run and of all runs below it, by run; the one asked for is the first."""
    logs = {run: events}
    limit = asyncio.Semaphore(_READ_AT_ONCE)

    async def read(child: str) -> list[LogEvent]:
        async with limit:
            return await read_known(bus, bus.subjects.run_all(child))

    level = [run]
    while level:
        below = [child for one in level for child in children_in(logs[one])]
        new = [child for child in dict.fromkeys(below) if child and child not in logs]
        logs.update(zip(new, await asyncio.gather(*map(read, new)), strict=True))
        level = new
    return logs


def tree_of(run: str, logs: dict[str, list[LogEvent]]) -> RunTree:
    """The tree below a run, from what :func:`read_logs` found."""
    return _tree(run, logs, set())


def _tree(run: str, logs: dict[str, list[LogEvent]], above: set[str]) -> RunTree:
    events = logs[run]
    steps: list[TreeStep] = []
    children: set[str] = set()
    approvals: dict[str, Approval] = {}
    agent = ""
    for logged in events:
        event, time = logged.event, logged.stored.time
        match event:
            case RunStarted():
                agent = agent or event.graph.start
            case TurnRequested() if event.reason == "handoff":
                steps.append(Handoff(time=time, source=agent, target=event.agent))
                agent = event.agent
            case CallRequested() if event.kind == "child" and event.child not in children:
                children.add(event.child)
                started = bool(logs.get(event.child)) and event.child not in {*above, run}
                tree = _tree(event.child, logs, {*above, run}) if started else None
                steps.append(
                    ChildCall(
                        time=time,
                        call=event.call,
                        tool=event.name,
                        arguments=event.arguments,
                        run=tree,
                    )
                )
            case ApprovalRequested() if event.call not in approvals:
                approvals[event.call] = Approval(time=time, asked=event)
                steps.append(approvals[event.call])
            case ApprovalDecided() if event.run in ("", run):
                _decide(approvals.values(), event, time)
            case CallFinished():
                steps.extend(
                    Objection(time=time, guardrail=it)
                    for it in event.guardrails
                    if guardrail_text(it)
                )
            case _:
                pass
    return RunTree(summary=summarize(RunId(run), events), steps=steps)


def _decide(approvals: Iterable[Approval], event: ApprovalDecided, time: str) -> None:
    """The first answer for a call counts."""
    for it in approvals:
        if it.decided is None and event.call in (it.asked.call, it.asked.call_id):
            it.decision = "approved" if event.approve else "rejected"
            it.decided = event
            it.decided_at = time
            return


def open_approvals(tree: RunTree) -> list[ApprovalRequested]:
    """What people are asked in the tree and have not answered, each with the run that asks."""
    if tree.summary.is_over:
        return []
    found: list[ApprovalRequested] = []
    for step in tree.steps:
        if isinstance(step, Approval) and step.decision == "waiting":
            found.append(msgspec.structs.replace(step.asked, run=tree.summary.run_id))
        elif isinstance(step, ChildCall) and step.run is not None:
            found.extend(open_approvals(step.run))
    return found
