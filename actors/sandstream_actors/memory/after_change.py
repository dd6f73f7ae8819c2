"""What follows from a person's change of a memory: it is told, what works on removed things is
stopped, and a consolidation is asked for.

The change itself says that this is still to be done. If whoever made it dies, the next one does it:
a memory actor, or the same command again.
"""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.memory_messages import ExtractRequested, MemoryChanged, MemoryState

from sandstream_actors.memory.files import change, replaced
from sandstream_actors.memory.standing import is_pending
from sandstream_actors.memory.telling import (
    ask_extraction,
    ask_merge,
    cancel_run,
    sync_workspaces,
    tell,
)


async def finish(bus: Bus, state: MemoryState) -> None:
    """Do what follows from the last change, if that is not done, and note that it is."""
    unfinished = state.unfinished
    if unfinished is None:
        return
    await follow(bus, state)
    crashpoint("memory.before_finished")

    async def decide(state: MemoryState) -> MemoryState | None:
        return replaced(state, unfinished=None) if state.unfinished == unfinished else None

    await change(bus, state.scope, decide)


async def follow(bus: Bus, state: MemoryState) -> None:
    """Send what follows, each message under an id that follows from the change."""
    done = state.unfinished
    if done is None:
        return
    for run in done.stopped:
        await cancel_run(bus, run, f"what it works on was removed from memory {state.scope}")
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
