"""What people do to a memory: take a change back, remove runs or rollouts, remove all of it.

Functions over the bus, for the command line and for programs; they need no memory actor, though it
takes one to consolidate afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import SandstreamError
from sandstream_bus.memory_messages import (
    ExtractRequested,
    MemoryChanged,
    MemoryState,
    Revision,
    Rollout,
)
from sandstream_memory.diffing import reverted
from sandstream_memory.forgetting import without_rollouts

from sandstream_actors.memory.files import (
    change,
    copied_objects,
    editable,
    load,
    revised,
    with_files,
)
from sandstream_actors.memory.standing import is_pending
from sandstream_actors.memory.telling import (
    ask_extraction,
    ask_merge,
    cancel_run,
    sync_workspaces,
    tell,
)

_FORGOTTEN: Final = 100_000
"""So many runs are remembered as removed: their ends are long over."""
_UNDO_OF: Final = "undo of "


class NotInMemory(SandstreamError):
    """There is no such revision, run, rollout or scope."""

    code = "memory.not_found"


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
        gone = _runs_of(state, runs, rollouts)
        stopped.clear()
        stopped.update(state.rollouts[id].extracting for id in gone)
        if state.merging is not None:
            stopped.add(state.merging.run)
        removed[:] = [run for each in gone.values() for run in each]
        return await _without(bus, state, gone, by)

    state = await change(bus, scope, decide)
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
) -> dict[str, list[str]]:
    """What is to be removed, by rollout."""
    known = {run for it in state.rollouts.values() for run in it.runs}
    for what, wanted, there in (("run", runs, known), ("rollout", rollouts, state.rollouts)):
        missing = sorted(set(wanted) - set(there))
        if missing:
            raise NotInMemory(f"memory {state.scope!r} knows no {what} {missing[0]!r}")
    found = {
        id: [run for run in it.runs if id in rollouts or run in runs]
        for id, it in state.rollouts.items()
    }
    return {id: each for id, each in found.items() if each}


async def _without(
    bus: Bus, state: MemoryState, gone: dict[str, list[str]], by: str
) -> MemoryState | None:
    if not gone:
        return None
    removed = [msgspec.structs.replace(state.rollouts[id], runs=gone[id]) for id in gone]
    files = await load(bus, state.scope, state.tree)
    others = [it for id, it in state.rollouts.items() if id not in gone]
    left = await asyncio.to_thread(without_rollouts, files, removed, others)
    changes: dict[str, bytes | None] = dict.fromkeys(state.tree.keys() - left.keys())
    changes |= {path: data for path, data in left.items() if files.get(path) != data}
    tree = await with_files(bus, state.scope, state.tree, changes)
    runs = [run for each in gone.values() for run in each]
    rollouts = {id: _remaining(it, gone.get(id, [])) for id, it in state.rollouts.items()}
    new = msgspec.structs.replace(
        state,
        tree=tree,  # so that the history does not hold what was there before
        rollouts={id: it for id, it in rollouts.items() if it.runs},
        history=_untouched(state, removed, runs),
        forgotten=[*state.forgotten, *runs][-_FORGOTTEN:],
        merging=None,
        wanted="removed",
    )
    what = f"{len(runs)} run{'s' * (len(runs) != 1)} removed"
    return await revised(bus, new, tree, "remove", by=by, note=what)


def _remaining(rollout: Rollout, gone: Sequence[str]) -> Rollout:
    """A rollout without some of its runs: what was extracted from all of them does not count."""
    if not gone:
        return rollout
    return Rollout(
        id=rollout.id,
        name=rollout.name,
        runs=[run for run in rollout.runs if run not in gone],
        updated_at=rollout.updated_at,
        terminal_state=rollout.terminal_state,
    )


def _untouched(state: MemoryState, removed: list[Rollout], runs: list[str]) -> list[Revision]:
    """The revisions from before the first one that they had a part in."""
    gone = set(runs)
    involved = [it for it in state.history if gone & {*it.runs, it.by}]
    is_older = any(it.is_merged for it in removed) and not any(
        it.kind == "merge" for it in involved
    )
    if is_older:
        return []  # the history does not reach back so far
    first = min((it.number for it in involved), default=state.revision + 1)
    return [it for it in state.history if it.number < first]


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
