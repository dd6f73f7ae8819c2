"""A workspace that was created from a snapshot of another one starts with its memory.

The new scope copies the parent's memory: at once, and again at later opens, until all pending work
of the parent is done. After that the two memories are independent.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.errors import InvalidSubject, ObjectMissing
from sandstream_bus.logs.memories import Memories
from sandstream_bus.logs.sandboxes import Sandboxes
from sandstream_bus.wire.memories import (
    FileRef,
    MemoryParent,
    MemoryState,
    Rollout,
    Tree,
)
from sandstream_bus.wire.memory_specs import is_workspace_scope
from sandstream_bus.wire.sandboxes import SandboxCheckpointed
from sandstream_bus.wire.subjects import check_token
from sandstream_memory.layout import MEMORIES, Files, is_editable, raw_path, rollout_path
from sandstream_memory.three_way_merge import merge_files

from sandstream_actors.memory.scope.files import change, revised
from sandstream_actors.memory.scope.pending_work import has_news, is_extracting
from sandstream_actors.run.sandbox_record import SandboxRecord

_COPIES_AT_ONCE = 16


async def is_parent(sandboxes: Sandboxes, record: SandboxRecord, scope: str) -> bool:
    """Was the workspace created from a snapshot of the workspace with the memory ``scope``? The
    marker alone proves nothing: any process in the workspace could write the name of any memory
    into it.
    """
    sources = {record.spec.base, *(tree.tree for tree in record.spec.plan.trees)} - {""}
    if not sources or not is_workspace_scope(scope):
        return False
    try:
        parent = check_token(scope.split(":")[1], "the sandbox")
    except InvalidSubject:
        return False
    events = [it.event for it in await sandboxes.read(parent)]
    return any(isinstance(it, SandboxCheckpointed) and it.tree in sources for it in events)


async def pull(bus: Bus, scope: str, parent: str, *, may_settle: bool) -> MemoryState:
    """Copy what ``parent`` has and ``scope`` lacks; return the new state of ``scope``.

    ``may_settle``: the parent's state names all work that is still on its way to it.
    """
    memories = bus.memories
    stored = await memories.read(parent)
    theirs = stored.state
    is_settled = may_settle and stored.sequence > 0 and _is_settled(theirs)
    available = _without_unfinished(theirs)

    async def decide(state: MemoryState) -> MemoryState | None:
        base = await memories.get_tree(scope, state.parent.tree) if state.parent else {}
        tree = await _Merge(memories, scope, parent).trees(base, state.tree, available)
        origin = MemoryParent(
            scope=parent, tree=await memories.put_tree(scope, available), is_settled=is_settled
        )
        rollouts = _finished(theirs) | state.rollouts
        if origin == state.parent and tree == state.tree and len(rollouts) == len(state.rollouts):
            return None
        changed = msgspec.structs.replace(
            state,
            parent=origin,
            rollouts=rollouts,
            selected=state.selected or [it for it in theirs.selected if it in rollouts],
            forgotten=[*dict.fromkeys([*state.forgotten, *theirs.forgotten])],
            use=state.use if state.rollouts else theirs.use,
        )
        if tree == state.tree:
            return changed
        runs = [run for rollout in _finished(theirs).values() for run in rollout.runs]
        return await revised(bus, changed, tree, "import", by=parent, runs=runs)

    return await change(bus, scope, decide)


class _Merge:
    """Files of the parent as files of the child."""

    def __init__(self, memories: Memories, scope: str, parent: str) -> None:
        self._memories = memories
        self._scope = scope
        self._parent = parent
        self._copying = asyncio.Semaphore(_COPIES_AT_ONCE)

    async def trees(self, base: Tree, ours: Tree, theirs: Tree) -> Tree:
        """A file that one side changed is taken from that side; of generated files changed by both,
        ours wins.
        """
        tree = dict(ours)
        both: list[str] = []
        copied: list[str] = []
        for path in sorted({*base, *theirs}):
            was, mine, other = base.get(path), ours.get(path), theirs.get(path)
            if other in (was, mine):
                continue
            if mine == was:
                if other is None:
                    del tree[path]
                else:
                    copied.append(path)
            elif is_editable(path):
                both.append(path)
        copies = await asyncio.gather(*(self._copy(theirs[path]) for path in copied))
        tree.update(zip(copied, copies, strict=True))
        merged = await asyncio.to_thread(
            merge_files,
            await self._files(base, both),
            await self._files(ours, both),
            await self._files(theirs, both, of=self._parent),
        )
        for path in both:
            if path in merged:
                tree[path] = await self._memories.put(self._scope, merged[path])
            else:
                tree.pop(path, None)
        return tree

    async def _copy(self, ref: FileRef) -> FileRef:
        async with self._copying:
            data = await self._memories.get(self._parent, ref)
            return await self._memories.put(self._scope, data)

    async def _files(self, tree: Tree, paths: list[str], *, of: str = "") -> Files:
        found: Files = {}
        for path in paths:
            if path in tree:
                with contextlib.suppress(ObjectMissing):  # forgotten since: treat it as absent
                    found[path] = await self._memories.get(of or self._scope, tree[path])
        return found


def _is_finished(rollout: Rollout) -> bool:
    is_extracted = not rollout.extracting and rollout.extracted >= len(rollout.runs)
    return is_extracted and (rollout.is_merged or rollout.empty)


def _is_settled(state: MemoryState) -> bool:
    is_idle = state.merging is None and not state.wanted
    return is_idle and not is_extracting(state) and not has_news(state)


def _finished(state: MemoryState) -> dict[str, Rollout]:
    return {id: it for id, it in state.rollouts.items() if _is_finished(it)}


def _without_unfinished(state: MemoryState) -> Tree:
    """Pending work of the parent is not copied: its result is copied later, and the work is not
    done twice.
    """
    tree = dict(state.tree)
    for rollout in state.rollouts.values():
        if not _is_finished(rollout):
            for path in (
                rollout_path(rollout.name),
                raw_path(rollout.name),
                MEMORIES + rollout.summary_file,
            ):
                tree.pop(path, None)
    return tree
