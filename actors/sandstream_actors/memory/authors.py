"""Find the runs that made an edit, so that the edit can be removed with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.errors import MessageError, ObjectMissing
from sandstream_bus.wire.memories import EditRequested, MemoryState
from sandstream_bus.wire.messages import RunDone, RunStarted
from sandstream_bus.wire.subjects import RunId, sandbox_of
from sandstream_memory.selection import age_key

_LOOKED_AT: Final = 16
"""How many runs to inspect: the latest in the memory, and the latest removed from it."""


class Authors(NamedTuple):
    runs: list[str]
    is_told: bool
    """Whether the workspace named the runs; otherwise they are inferred."""


class _Worked(NamedTuple):
    run: str
    until: str
    """When the run ended."""


async def authors_of(bus: Bus, state: MemoryState, request: EditRequested) -> Authors:
    """The runs that worked in the workspace since its last edit."""
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
    """``None`` if it did not use this sandbox or its log can no longer be read."""
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
