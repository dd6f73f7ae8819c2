"""A run and the runs below it, read from the log.

An agent that is called as a tool is a run of its own. The call names it, so a tree is found by
reading run after run.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

import msgspec
from sandstream_actors.run.state import RunState
from sandstream_bus.bus import Bus
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import ApprovalRequested
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.reader import RunReader
from sandstream._inspect.rows import Approval, ChildCall, RunTree
from sandstream._inspect.summaries import children_in, read_known, summarize

_READ_AT_ONCE = 20


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


def tree_of(
    run: str, logs: dict[str, list[LogEvent]], above: frozenset[str] = frozenset()
) -> RunTree:
    """The tree below a run, from what :func:`read_logs` found. ``above``: the runs above it."""
    reader = RunReader(run)
    reader.read(logs[run])
    above |= {run}
    for child, step in reader.children.items():
        if logs.get(child) and child not in above:
            step.run = tree_of(child, logs, above)
    return RunTree(summary=summarize(RunId(run), logs[run]), steps=reader.steps)


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


class Address(NamedTuple):
    """Where a person's answer goes."""

    run: str
    call: str


class Asked(Protocol):
    """A call that waits for a person."""

    @property
    def call(self) -> str: ...
    @property
    def call_id(self) -> str: ...


async def address_of(bus: Bus, root: str, run: str, asked: Asked) -> Address:
    """The run at the top of the tree, if it lists the question of ``run``: it passes the answer on
    and stops being shown as waiting. Otherwise the run itself.
    """
    if root and root != run:
        state = RunState.of(RunId(root), await read_known(bus, bus.subjects.run_all(root)))
        named = [it for it in state.open_approvals() if it.call_id == asked.call_id]
        if [it.run for it in named] == [run] and state.done is None:
            return Address(root, asked.call_id)
    return Address(run, asked.call)
