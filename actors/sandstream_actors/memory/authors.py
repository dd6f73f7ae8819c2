"""Which runs an edit comes from, so that it can be removed with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.memory_messages import EditRequested, MemoryState
from sandstream_bus.messages import RunDone, RunStarted
from sandstream_bus.subjects import RunId, sandbox_of
from sandstream_memory.selection import age_key

_LOOKED_AT: Final = 16
"""So many of the last runs that a memory knows, and of those that were removed from it."""


class Authors(NamedTuple):
    runs: list[str]
    is_told: bool
    """By the workspace; else it is what can be found out."""


class _Worked(NamedTuple):
    run: str
    until: str
    """When it ended."""


async def authors_of(bus: Bus, state: MemoryState, request: EditRequested) -> Authors:
    """The runs that worked in the workspace since it told something the last time."""
    told = list(dict.fromkeys([*filter(None, [request.run]), *request.runs]))
    if told:
        return Authors(told, is_told=True)
    found = [it for it in [await _worked(bus, run, request.sandbox) for run in _last(state)] if it]
    since = max(
        (it.at for it in state.history if it.kind == "edit" and it.by == request.sandbox),
        default="",
    )
    recent = [it for it in found if it.until > since] or found
    return Authors([it.run for it in recent], is_told=False)


def _last(state: MemoryState) -> Iterable[str]:
    by_age = sorted(state.rollouts.values(), key=age_key)
    runs = [run for it in by_age for run in it.runs]
    return [*state.forgotten[-_LOOKED_AT:], *runs[-_LOOKED_AT:]]


async def _worked(bus: Bus, run: str, sandbox: str) -> _Worked | None:
    """None: not there, or its log cannot be read any more."""
    try:
        first = await bus.log.read_subject(bus.subjects.run_all(RunId(run)), limit=1)
        done = await bus.log.last(bus.subjects.done(run))
    except (MessageError, ObjectMissing):
        return None
    if not first or done is None or not isinstance(done.event, RunDone):
        return None
    started = first[0].event
    if not isinstance(started, RunStarted):
        return None
    used = {
        agent.sandbox.id or sandbox_of(run, name)
        for name, agent in started.graph.agents.items()
        if agent.sandbox is not None
    }
    return _Worked(run, done.stored.time) if sandbox in used else None
