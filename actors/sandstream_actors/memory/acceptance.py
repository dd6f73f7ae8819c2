"""The result of a consolidation: read from its workspace, checked, and made the scope's."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec
from sandstream_bus.errors import ObjectMissing
from sandstream_bus.memory_messages import MemoryState, Merge, Rollout, Tree
from sandstream_memory.layout import (
    MEMORIES,
    RAW_FILE,
    SELECTION_FILE,
    Files,
    is_editable,
    raw_path,
)
from sandstream_memory.limits import within_limits
from sandstream_memory.merging import merge_files
from sandstream_memory.phase_two import MergeRefused, accept, workspace_files
from sandstream_memory.selection import (
    Selection,
    raw_memories_file,
    selection_file,
)
from sandstream_workspaces.errors import NoSuchPath, WorkspaceDamaged

from sandstream_actors.memory.files import editable, load, now, revised, with_files, within_bounds
from sandstream_actors.memory.means import Means
from sandstream_actors.memory.oldest import without_oldest
from sandstream_actors.memory.standing import selected_by
from sandstream_actors.sandbox.record import SandboxRecord

MAX_FILES: Final = 10_000
_MOST_REMARKS: Final = 20
_LONGEST_REMARK: Final = 200


class Refused(Exception):
    """The result cannot be taken over."""


class Result(NamedTuple):
    """What a consolidation has made of the files that can be edited, and what was done to that."""

    files: Files
    remarks: list[str]


async def result_of(means: Means, state: MemoryState, merge: Merge) -> Result:
    """From the workspace of the consolidation, checked."""
    record = SandboxRecord.of(merge.sandbox, await means.bus.sandboxes.read(merge.sandbox))
    if not record.tree:
        raise Refused(f"its workspace {merge.sandbox} is gone: {record.reason or record.state}")
    base = await load(
        means.bus, state.scope, await means.bus.memories.get_tree(state.scope, merge.base)
    )
    selection = selected_by(state, merge)
    before = workspace_files(base, selection, state.rollouts, "")
    after = await _snapshot(means, record.tree, state.use.max_bytes)
    for path in (SELECTION_FILE, RAW_FILE):  # ours, and made anew
        if path in after:
            after[path] = before[path]
    try:
        accepted = await asyncio.to_thread(
            accept,
            before,
            after,
            selection=selection,
            rollouts=state.rollouts,
            scrub=means.scrub,
            max_bytes=state.use.max_bytes,
        )
    except MergeRefused as error:
        raise Refused(f"its result was refused: {error}") from error
    files = {path: data for path, data in accepted.files.items() if is_editable(path)}
    return Result(files, accepted.notes)


def _remarks(notes: list[str]) -> list[str]:
    """So many, and so long, as a person reads, and a state has room for fifty times."""
    short = [it if len(it) <= _LONGEST_REMARK else f"{it[:_LONGEST_REMARK]}…" for it in notes]
    more = len(short) - _MOST_REMARKS
    return [*short[:_MOST_REMARKS], *([f"and {more} more"] if more > 0 else [])]


async def _snapshot(means: Means, tree: str, max_bytes: int) -> Files:
    """The regular files below the memory's directory; links and whatever else are left out."""
    try:
        found = [it for it in await means.store.entries(tree) if it.kind == "file"]
        found = [it for it in found if it.path.startswith(MEMORIES) and it.path.isprintable()]
        size = sum(it.size for it in found)
        if len(found) > MAX_FILES or size > 2 * max_bytes:
            raise Refused(f"its workspace holds {len(found)} files of {size} bytes: too much")
        return {
            it.path: b"".join([part async for part in means.store.read_file(tree, it.path)])
            for it in found
        }
    except (WorkspaceDamaged, NoSuchPath, ObjectMissing) as error:
        raise Refused(f"its workspace cannot be read: {error}") from error


async def accepted_state(
    means: Means, state: MemoryState, merge: Merge, result: Result
) -> MemoryState:
    """The state after the merge, with what others have changed meanwhile.

    Raises :class:`Refused` if both together are too big.
    """
    bus, scope = means.bus, state.scope
    base_tree = await bus.memories.get_tree(scope, merge.base)
    base = await load(bus, scope, editable(base_tree))
    head = await load(bus, scope, editable(state.tree))
    clashes: list[str] = []
    merged = await asyncio.to_thread(merge_files, base, head, result.files, clashes)
    if beyond := within_limits(head, merged, state.use.max_bytes)[1]:
        raise Refused(f"with what others have changed meanwhile it is too big: {beyond[0]}")
    new_runs = [
        run
        for id in merge.selected
        if id in state.rollouts and not state.rollouts[id].is_merged
        for run in state.rollouts[id].runs
    ]
    rollouts = {
        id: msgspec.structs.replace(it, is_merged=True)
        if id in merge.selected and _is_same(it, base_tree, state.tree)
        else it
        for id, it in state.rollouts.items()
    }
    selected = [id for id in merge.selected if id in rollouts]
    selection = Selection(selected=selected)
    raw = await load(bus, scope, state.tree, [raw_path(rollouts[id].name) for id in selected])
    changes: dict[str, bytes | None] = dict.fromkeys(head.keys() - merged.keys())
    changes |= {path: data for path, data in merged.items() if head.get(path) != data}
    changes[SELECTION_FILE] = selection_file(selection, rollouts, now())
    changes[RAW_FILE] = raw_memories_file(raw, selection, rollouts)
    tree = await with_files(bus, scope, state.tree, changes)
    state = msgspec.structs.replace(
        state,
        rollouts=rollouts,
        selected=selected,
        merging=None,
        merges=merge.number,
        merge_attempt=0,
        merge_problem="",
    )
    state, tree = without_oldest(state, tree)
    tree = within_bounds(state, tree)
    return await revised(
        bus,
        state,
        tree,
        "merge",
        by=merge.run,
        runs=new_runs,
        note=merge.reason,
        remarks=_remarks([*result.remarks, *clashes]),
    )


def _is_same(rollout: Rollout, base: Tree, head: Tree) -> bool:
    """Is its memory the one that the consolidation has read?"""
    path = raw_path(rollout.name)
    return path in base and base[path] == head.get(path)
