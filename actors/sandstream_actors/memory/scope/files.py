"""The files of a scope: load, store and revise them, and remove objects that nothing names.

The trees in the history hold only editable files. Transcripts and raw memories are replaced and
removed with their rollouts, and an undo does not bring them back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import ObjectMissing
from sandstream_bus.logs.memories import Decide, is_blank
from sandstream_bus.wire.memories import MemoryState, Revision, RevisionKind, Rollout, Tree
from sandstream_memory.layout import Files, is_editable
from sandstream_memory.size_bound import to_drop

from sandstream_actors.memory.scope.pending_work import is_pending

logger = logging.getLogger(__name__)

KEPT_REVISIONS: Final = 50
_AT_ONCE: Final = 16
replaced = msgspec.structs.replace


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- reading and writing --------------------------------------------------------------------------


async def load(bus: Bus, scope: str, tree: Tree, paths: Iterable[str] | None = None) -> Files:
    """Load files of the tree. A file whose object is gone is left out, as if deleted."""
    wanted = [path for path in (tree if paths is None else paths) if path in tree]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(path: str) -> bytes | None:
        async with gate:
            try:
                return await bus.memories.get(scope, tree[path])
            except ObjectMissing:
                extra = {"scope": scope, "path": path, "digest": tree[path].digest}
                logger.warning("a file of a memory is gone from the store", extra=extra)
                return None

    found = await asyncio.gather(*map(read, wanted))
    return {path: data for path, data in zip(wanted, found, strict=True) if data is not None}


async def load_one(bus: Bus, scope: str, tree: Tree, path: str) -> bytes:
    """Load one file; empty if it does not exist."""
    return (await load(bus, scope, tree, [path])).get(path, b"")


async def with_files(bus: Bus, scope: str, tree: Tree, changes: Mapping[str, bytes | None]) -> Tree:
    """Store these files and return the new tree. ``None`` removes a file."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def put(path: str, data: bytes) -> None:
        async with gate:
            new[path] = await bus.memories.put(scope, data)

    new = {path: ref for path, ref in tree.items() if path not in changes}
    await asyncio.gather(*(put(path, data) for path, data in changes.items() if data is not None))
    return dict(sorted(new.items()))


def editable(tree: Tree) -> Tree:
    return {path: ref for path, ref in tree.items() if is_editable(path)}


def within_bounds(state: MemoryState, tree: Tree) -> Tree:
    """The tree without its least important files, if the whole exceeds ``max_bytes``. Transcripts
    that are not yet extracted stay, so until then a memory can be bigger.
    """
    dropped = to_drop(
        {path: ref.size for path, ref in tree.items()},
        state.rollouts.values(),
        selected=state.selected,
        needed=[id for id, it in state.rollouts.items() if is_pending(it)],
        max_bytes=state.use.max_bytes,
    )
    if not dropped:
        return tree
    logger.info("a memory reached its bound", extra={"scope": state.scope, "dropped": dropped})
    return {path: tree[path] for path in sorted(tree.keys() - set(dropped))}


# --- the history ----------------------------------------------------------------------------------


async def revised(
    bus: Bus,
    state: MemoryState,
    tree: Tree,
    kind: RevisionKind,
    *,
    by: str,
    runs: Sequence[str] = (),
    note: str = "",
    remarks: Sequence[str] = (),
) -> MemoryState:
    """The state with this tree and the change added to its history."""
    revision = Revision(
        number=state.revision + 1,
        kind=kind,
        at=now(),
        before=await bus.memories.put_tree(state.scope, editable(state.tree)),
        after=await bus.memories.put_tree(state.scope, editable(tree)),
        runs=list(runs),
        by=by,
        note=note,
        remarks=list(remarks),
    )
    if kind in ("merge", "import"):
        state = replaced(state, rollouts=_merged_by(revision, state.rollouts))
    return replaced(
        state,
        revision=revision.number,
        tree=tree,
        history=[*state.history, revision][-KEPT_REVISIONS:],
    )


def _merged_by(revision: Revision, rollouts: dict[str, Rollout]) -> dict[str, Rollout]:
    """Record the first revision that contains each rollout, unless it is already known."""
    runs = set(revision.runs)
    return {
        id: replaced(it, first_merged=min(it.first_merged or revision.number, revision.number))
        if runs.intersection(it.runs)
        else it
        for id, it in rollouts.items()
    }


async def tree_at(bus: Bus, state: MemoryState, revision: int) -> Tree:
    """The editable files at that revision, or at the oldest known one if that is newer."""
    later = [it for it in state.history if it.number > revision]
    if not later:
        return editable(state.tree)
    return await bus.memories.get_tree(state.scope, later[0].before)


# --- changing a state -----------------------------------------------------------------------------


async def change(bus: Bus, scope: str, decide: Decide) -> MemoryState:
    """Replace the scope's state, then remove objects that no state names any more.

    The new state lists these objects, so that they are known if this process dies before it
    removes them: the next change to the memory removes them first. If that change needs one of
    them, it stores the object anew, and the re-stored object is not removed. An object that a
    state has just named is therefore never lost.
    """
    tries: list[MemoryState] = []

    async def tidy(state: MemoryState) -> MemoryState | None:
        await bus.memories.discard(scope, state.outdated)
        state = msgspec.structs.replace(state, outdated={})
        new = await decide(state)
        if new is None and not tries:
            return None
        new = state if new is None else new
        gone = await _dropped(bus, [state, *tries], new)
        tries.append(new)
        places = await bus.memories.objects(scope).places(gone)
        return msgspec.structs.replace(new, outdated=new.outdated | places)

    new = await bus.memories.change(scope, tidy)
    if tries:
        crashpoint("memory.before_discard")
        await bus.memories.discard(scope, new.outdated)
        if is_blank(new):
            await bus.memories.remove_blank(scope)
    return new


async def _dropped(bus: Bus, old: Sequence[MemoryState], new: MemoryState) -> set[str]:
    """The objects that are named only by old states or by states that were never committed.

    Most changes replace only generated files. No tree of the history holds those, so these trees
    need not be read then.
    """
    refs = [it for state in old for it in state.tree.items()]
    named = {ref.digest for ref in new.tree.values()}
    edited = {ref.digest for path, ref in refs if is_editable(path)} - named
    made = {ref.digest for path, ref in refs if not is_editable(path)} - named
    kept_trees = _trees(new)
    gone_trees = {digest for state in old for digest in _trees(state)} - kept_trees
    gone = edited | made | (await _inside(bus, new.scope, gone_trees) - named)
    if gone:
        looked_at = kept_trees if edited or gone_trees else _whole_trees(new)
        gone -= await _inside(bus, new.scope, looked_at)
    return gone | gone_trees


async def named_objects(bus: Bus, state: MemoryState) -> set[str]:
    """The digests of all objects that a state names."""
    trees = _trees(state)
    files = {ref.digest for ref in state.tree.values()}
    return files | trees | await _inside(bus, state.scope, trees)


def _whole_trees(state: MemoryState) -> set[str]:
    """The trees that also hold generated files."""
    found = {state.merging.base} if state.merging is not None else set()
    return (found | ({state.parent.tree} if state.parent is not None else set())) - {""}


def _trees(state: MemoryState) -> set[str]:
    found = {digest for it in state.history for digest in (it.before, it.after)}
    return (found | _whole_trees(state)) - {""}


async def _inside(bus: Bus, scope: str, trees: Iterable[str]) -> set[str]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(digest: str) -> Tree:
        async with gate:
            try:
                return await bus.memories.get_tree(scope, digest)
            except ObjectMissing:  # a process died while it removed objects
                return {}

    found = await asyncio.gather(*map(read, trees))
    return {ref.digest for tree in found for ref in tree.values()}
