"""What people can do to a memory: undo a change, remove runs or rollouts, delete all of it.

These are functions over the bus, for the command line and for programs. They need no memory actor;
only the consolidation afterwards does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import SandstreamError
from sandstream_bus.logs.memories import is_blank
from sandstream_bus.wire.memories import MemoryState, Revision, Unfinished
from sandstream_memory.diffs import reverted
from sandstream_memory.limits import within_limits

from sandstream_actors.memory.after_change import finish, follow
from sandstream_actors.memory.removal import without
from sandstream_actors.memory.scope.files import (
    change,
    editable,
    load,
    now,
    replaced,
    revised,
    with_files,
)

_UNDO_OF: Final = "undo of "


class NotInMemory(SandstreamError):
    """The revision, run, rollout or scope does not exist."""

    code = "memory.not_found"


class TooBig(SandstreamError):
    """A file would exceed its size limit."""

    code = "memory.too_big"


# --- undo -----------------------------------------------------------------------------------------


async def undo(bus: Bus, scope: str, number: int | None, by: str) -> Revision:
    """Undo one change and keep later ones. ``None``: the last change that was not yet undone."""

    async def decide(state: MemoryState) -> MemoryState | None:
        await follow(bus, state)
        revision = _to_undo(state, number)
        before = await bus.memories.get_tree(scope, revision.before)
        after = await bus.memories.get_tree(scope, revision.after)
        head = await load(bus, scope, editable(state.tree))
        new = await asyncio.to_thread(
            reverted, await load(bus, scope, before), await load(bus, scope, after), head
        )
        for problem in within_limits(head, new, state.use.max_bytes)[1]:
            raise TooBig(f"change {revision.number} cannot be undone: {problem}")
        changes: dict[str, bytes | None] = dict.fromkeys(head.keys() - new.keys())
        changes |= {path: data for path, data in new.items() if head.get(path) != data}
        tree = await with_files(bus, scope, state.tree, changes)
        note = f"{_UNDO_OF}{revision.number}"
        undone = await revised(bus, state, tree, "undo", by=by, runs=revision.runs, note=note)
        return _to_finish(undone, Unfinished(kind="undo", revision=0, at="", runs=revision.runs))

    crashpoint("memory.before_change")
    state = await change(bus, scope, decide)
    crashpoint("memory.after_change")
    await finish(bus, state)
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


def _to_finish(state: MemoryState, what: Unfinished) -> MemoryState:
    """The state after a change, with its pending consequences recorded."""
    last = state.history[-1]
    what = replaced(what, revision=last.number, at=last.at)
    return replaced(state, unfinished=what)


# --- removal --------------------------------------------------------------------------------------


async def remove(
    bus: Bus,
    scope: str,
    *,
    runs: Collection[str] = (),
    rollouts: Collection[str] = (),
    by: str,
) -> list[str]:
    """Remove runs, or all runs of rollouts, with everything derived from them.

    They are also removed from the history. This cannot be undone, and removed runs never come back.
    The remaining runs of a rollout are extracted anew, and the memory is consolidated without the
    removed ones.

    Returns:
        The ids of the removed runs.
    """
    removed: list[str] = []

    async def decide(state: MemoryState) -> MemoryState | None:
        await follow(bus, state)
        gone, also = _runs_of(state, runs, rollouts)
        removed[:] = [*(run for each in gone.values() for run in each), *also]
        if not removed:
            return None
        new = await without(bus, state, gone, removed, by)
        whole = [id for id in gone if id not in new.rollouts]
        stopped = _running(state, gone)
        return _to_finish(
            new, Unfinished(kind="remove", revision=0, at="", rollouts=whole, stopped=stopped)
        )

    crashpoint("memory.before_change")
    state = await change(bus, scope, decide)
    crashpoint("memory.after_change")
    await finish(bus, state)
    return removed


def _running(state: MemoryState, rollouts: Iterable[str]) -> list[str]:
    """The runs of phases that work on these rollouts, and of a running consolidation."""
    found = {state.rollouts[id].extracting for id in rollouts}
    if state.merging is not None:
        found.add(state.merging.run)
    return sorted(found - {""})


def _runs_of(
    state: MemoryState, runs: Collection[str], rollouts: Collection[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """The runs to remove, by rollout, and runs that only edited the memory. Runs that were removed
    earlier are skipped.
    """
    known = {run for it in state.rollouts.values() for run in it.runs}
    editors = {run for it in state.history if it.kind == "edit" for run in (*it.runs, it.by)}
    known_runs = known | editors | set(state.forgotten)
    before = state.unfinished.rollouts if state.unfinished is not None else []
    known_rollouts = {*state.rollouts, *before}
    for what, wanted, found in (("run", runs, known_runs), ("rollout", rollouts, known_rollouts)):
        missing = sorted(set(wanted) - found)
        if missing:
            raise NotInMemory(f"memory {state.scope!r} knows no {what} {missing[0]!r}")
    by_rollout = {
        id: [run for run in it.runs if id in rollouts or run in runs]
        for id, it in state.rollouts.items()
    }
    also = sorted((set(runs) & editors) - known - set(state.forgotten))
    return {id: each for id, each in by_rollout.items() if each}, also


async def delete_scope(bus: Bus, scope: str) -> None:
    """Delete the whole memory with its files and history, and cancel its running phases."""

    async def decide(state: MemoryState) -> MemoryState | None:
        if is_blank(state) and state.unfinished is not None:
            return None  # another process deletes it, or died while doing so
        outdated = await bus.memories.all_of(scope)
        if not outdated and is_blank(state):
            raise NotInMemory(f"there is no memory {scope!r}")
        await follow(bus, state)
        stopped = _running(state, state.rollouts)
        gone = Unfinished(kind="delete", revision=state.revision, at=now(), stopped=stopped)
        return MemoryState(scope=state.scope, outdated=outdated, unfinished=gone)

    crashpoint("memory.before_change")
    state = await change(bus, scope, decide)
    crashpoint("memory.after_change")
    await finish(bus, state)
