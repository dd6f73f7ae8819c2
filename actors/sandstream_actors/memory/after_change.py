"""The consequences of a person's change to a memory: announce it, cancel phases that work on
removed rollouts, and request a consolidation.

The changed state itself records that this is still to be done. If the process that made the change
dies, the next one finishes: a memory actor, or the same command run again.
"""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.memories import ExtractRequested, MemoryChanged, MemoryState

from sandstream_actors.memory.outbox import (
    ask_extraction,
    ask_merge,
    cancel_run,
    sync_workspaces,
    tell,
)
from sandstream_actors.memory.scope.files import change, replaced
from sandstream_actors.memory.scope.pending_work import is_pending


async def finish(bus: Bus, state: MemoryState) -> None:
    """Carry out the consequences of the last change if they are pending, then mark them done."""
    unfinished = state.unfinished
    if unfinished is None:
        return
    await follow(bus, state)
    crashpoint("memory.before_finished")

    async def decide(state: MemoryState) -> MemoryState | None:
        return replaced(state, unfinished=None) if state.unfinished == unfinished else None

    await change(bus, state.scope, decide)


async def follow(bus: Bus, state: MemoryState) -> None:
    """Send the messages that follow; their ids are derived from the change."""
    done = state.unfinished
    if done is None:
        return
    for run in done.stopped:
        await cancel_run(bus, run, f"its rollouts were removed from memory {state.scope}")
    if done.kind == "delete":
        return
    cause = f"revision:{done.revision}:{done.at}"
    if done.kind == "remove":
        for rollout in state.rollouts.values():
            if is_pending(rollout) and not rollout.extracting:
                request = ExtractRequested(rollout=rollout.id, runs=len(rollout.runs))
                await ask_extraction(bus, state.scope, request, cause=cause)
        await ask_merge(bus, state.scope, "removed", cause=cause)
    changed = MemoryChanged(revision=done.revision, kind=done.kind, runs=done.runs)
    await tell(bus, state.scope, changed, cause=cause)
    await sync_workspaces(bus, state)
