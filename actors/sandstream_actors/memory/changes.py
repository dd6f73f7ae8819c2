"""What people do to a memory: take a change back, remove runs or rollouts, remove all of it.

Functions over the bus, for the command line and for programs; they need no memory actor, though it
takes one to consolidate afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_bus.errors import SandstreamError
from sandstream_bus.memory_messages import (
    ExtractRequested,
    MemoryChanged,
    MemoryState,
    Revision,
)
from sandstream_memory.diffing import reverted

from sandstream_actors.memory.bounds import grown_too_big
from sandstream_actors.memory.files import (
    change,
    copied_objects,
    editable,
    load,
    revised,
    with_files,
)
from sandstream_actors.memory.removing import without
from sandstream_actors.memory.standing import is_pending
from sandstream_actors.memory.telling import (
    ask_extraction,
    ask_merge,
    cancel_run,
    sync_workspaces,
    tell,
)

_UNDO_OF: Final = "undo of "


class NotInMemory(SandstreamError):
    """There is no such revision, run, rollout or scope."""

    code = "memory.not_found"


class TooBig(SandstreamError):
    """A file would become bigger than it may be."""

    code = "memory.too_big"


# --- undo -----------------------------------------------------------------------------------------


async def undo(bus: Bus, scope: str, number: int | None, by: str) -> Revision:
    """Take a change back; what came later stays. None: the last one that was not taken back."""

    async def decide(state: MemoryState) -> MemoryState | None:
        revision = _to_undo(state, number)
        before = await bus.memories.get_tree(scope, revision.before)
        after = await bus.memories.get_tree(scope, revision.after)
        head = await load(bus, scope, editable(state.tree))
        new = await asyncio.to_thread(
            reverted, await load(bus, scope, before), await load(bus, scope, after), head
        )
        for problem in grown_too_big(head, new).values():
            raise TooBig(f"change {revision.number} cannot be undone: {problem}")
        changes: dict[str, bytes | None] = dict.fromkeys(head.keys() - new.keys())
        changes |= {path: data for path, data in new.items() if head.get(path) != data}
        tree = await with_files(bus, scope, state.tree, changes)
        note = f"{_UNDO_OF}{revision.number}"
        return await revised(bus, state, tree, "undo", by=by, runs=revision.runs, note=note)

    state = await change(bus, scope, decide)
    await _announce(bus, state, state.history[-1])
    return state.history[-1]


def _to_undo(state: MemoryState, number: int | None) -> Revision:
    known = {it.number: it for it in state.history if it.kind != "remove"}
    if number is None:
        undone = {it.note.removeprefix(_UNDO_OF) for it in state.history if it.kind == "undo"}
        left = [it for it in known.values() if it.kind != "undo" and str(it.number) not in undone]
        if not left:
            raise NotInMemory(f"memory {state.scope!r} has no change that could be undone")
        return left[-1]
    if number not in known:
        some = ", ".join(map(str, known)) or "none"
        raise NotInMemory(
            f"memory {state.scope!r} has no revision {number} that can be undone; known: {some}"
        )
    return known[number]


async def _announce(bus: Bus, state: MemoryState, revision: Revision) -> None:
    assert revision.kind in ("undo", "remove")
    changed = MemoryChanged(revision=revision.number, kind=revision.kind, runs=revision.runs)
    await tell(bus, state.scope, changed, cause=f"revision:{revision.number}")
    await sync_workspaces(bus, state)


# --- removal --------------------------------------------------------------------------------------


async def remove(
    bus: Bus,
    scope: str,
    *,
    runs: Collection[str] = (),
    rollouts: Collection[str] = (),
    by: str,
) -> list[str]:
    """Remove runs, or all runs of rollouts, with all that was derived from them; the runs' ids.

    Also from the history, which cannot be undone, and for good: they do not come back. What other
    runs of a rollout say is extracted anew, and the memory is consolidated without the rest.
    """
    stopped: set[str] = set()
    removed: list[str] = []

    async def decide(state: MemoryState) -> MemoryState | None:
        gone, also = _runs_of(state, runs, rollouts)
        stopped.clear()
        stopped.update(state.rollouts[id].extracting for id in gone)
        if state.merging is not None:
            stopped.add(state.merging.run)
        removed[:] = [*(run for each in gone.values() for run in each), *also]
        return await without(bus, state, gone, removed, by) if removed else None

    state = await change(bus, scope, decide)
    if not removed:
        return []
    for run in sorted(stopped - {""}):
        await cancel_run(bus, run, "what it works on was removed")
    revision = state.history[-1]
    cause = f"revision:{revision.number}"
    for rollout in state.rollouts.values():
        if is_pending(rollout) and not rollout.extracting:
            request = ExtractRequested(rollout=rollout.id, runs=len(rollout.runs))
            await ask_extraction(bus, scope, request, cause=cause)
    await ask_merge(bus, scope, "removed", cause=cause)
    await _announce(bus, state, revision)
    return removed


def _runs_of(
    state: MemoryState, runs: Collection[str], rollouts: Collection[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """What is to be removed, by rollout, and runs that only changed the memory. What was removed
    before is done.
    """
    known = {run for it in state.rollouts.values() for run in it.runs}
    editors = {run for it in state.history if it.kind == "edit" for run in (*it.runs, it.by)}
    there = known | editors | set(state.forgotten)
    for what, wanted, found in (("run", runs, there), ("rollout", rollouts, state.rollouts)):
        missing = sorted(set(wanted) - set(found))
        if missing:
            raise NotInMemory(f"memory {state.scope!r} knows no {what} {missing[0]!r}")
    by_rollout = {
        id: [run for run in it.runs if id in rollouts or run in runs]
        for id, it in state.rollouts.items()
    }
    also = sorted((set(runs) & editors) - known - set(state.forgotten))
    return {id: each for id, each in by_rollout.items() if each}, also


async def delete_scope(bus: Bus, scope: str) -> None:
    """Remove the whole memory, its files and its history; stop what works on it."""
    stored = await bus.memories.read(scope)
    state = stored.state
    if not stored.sequence:
        raise NotInMemory(f"there is no memory {scope!r}")
    running = {it.extracting for it in state.rollouts.values()}
    if state.merging is not None:
        running.add(state.merging.run)
    copies = await copied_objects(bus, state)
    await bus.memories.delete(scope)
    await bus.memories.forget(scope, copies)
    for run in sorted(running - {""}):
        await cancel_run(bus, run, f"memory {scope} was removed")
