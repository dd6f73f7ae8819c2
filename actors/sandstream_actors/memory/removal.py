"""Remove runs from a memory: what they said, what was derived from it, and what they wrote into
the memory themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.errors import ObjectMissing
from sandstream_bus.wire.memories import MemoryState, Revision, Rollout
from sandstream_memory.diffs import reverted
from sandstream_memory.layout import Files, is_editable
from sandstream_memory.removals import without_rollouts

from sandstream_actors.memory.scope.files import editable, load, revised, with_files

_FORGOTTEN: Final = 100_000
"""How many removed runs are remembered. Older ones have long ended and do not come back."""


async def without(
    bus: Bus, state: MemoryState, gone: dict[str, list[str]], runs: Sequence[str], by: str
) -> MemoryState:
    """``gone``: the runs to remove, by rollout; ``runs``: all of them, also those of no rollout."""
    removed = [msgspec.structs.replace(state.rollouts[id], runs=gone[id]) for id in gone]
    files = await load(bus, state.scope, state.tree)
    left, remarks = await _without_edits(bus, state, runs, files)
    others = [it for id, it in state.rollouts.items() if id not in gone]
    left = await asyncio.to_thread(without_rollouts, left, removed, others)
    changes: dict[str, bytes | None] = dict.fromkeys(state.tree.keys() - left.keys())
    changes |= {path: data for path, data in left.items() if files.get(path) != data}
    tree = await with_files(bus, state.scope, state.tree, changes)
    rollouts = {id: _remaining(it, gone.get(id, [])) for id, it in state.rollouts.items()}
    new = msgspec.structs.replace(
        state,
        tree=tree,  # so that the history does not hold the previous tree
        rollouts={id: it for id, it in rollouts.items() if it.runs},
        history=_untouched(state, removed, runs),
        forgotten=[*state.forgotten, *runs][-_FORGOTTEN:],
        merging=None,
        wanted="removed",
    )
    what = f"{numbered(len(runs), 'run')} removed"
    return await revised(bus, new, tree, "remove", by=by, note=what, remarks=remarks)


async def _without_edits(
    bus: Bus, state: MemoryState, runs: Sequence[str], files: Files
) -> tuple[Files, list[str]]:
    """The files without the edits of these runs, and remarks. An edit that either a removed run or
    another run may have made is removed too, because its author is unknown.
    """
    gone = set(runs)
    remarks: list[str] = []
    left = {path: data for path, data in files.items() if is_editable(path)}
    for edit in reversed(state.history):
        if edit.kind != "edit" or not gone & {*edit.runs, edit.by}:
            continue
        try:
            trees = [
                await bus.memories.get_tree(state.scope, it) for it in (edit.before, edit.after)
            ]
        except ObjectMissing:
            remarks.append(
                f"change {edit.number} could not be taken back: it is not known any more"
            )
            continue
        before, after = [await load(bus, state.scope, editable(it)) for it in trees]
        left = await asyncio.to_thread(reverted, before, after, left)
        others = [run for run in edit.runs if run not in gone]
        if others:
            remarks.append(
                f"change {edit.number} was taken back, though {others[0]} may have made it"
            )
    others_files = {path: data for path, data in files.items() if not is_editable(path)}
    return others_files | left, remarks


def _remaining(rollout: Rollout, gone: Sequence[str]) -> Rollout:
    """A rollout without some of its runs. Its earlier extraction no longer counts."""
    if not gone:
        return rollout
    return Rollout(
        id=rollout.id,
        name=rollout.name,
        runs=[run for run in rollout.runs if run not in gone],
        updated_at=rollout.updated_at,
        terminal_state=rollout.terminal_state,
        first_merged=rollout.first_merged,
    )


def _untouched(state: MemoryState, removed: list[Rollout], runs: Sequence[str]) -> list[Revision]:
    """The revisions before the first one that the removed runs contributed to."""
    gone = set(runs)
    involved = [it for it in state.history if gone & {*it.runs, it.by}]
    for it in removed:
        is_in_it = it.is_merged or it.id in state.selected
        if is_in_it and not it.first_merged and not _merges_of(it, involved):
            return []  # unknown since when
    firsts = [it.first_merged for it in removed if it.first_merged]
    first = min([*firsts, *(it.number for it in involved)], default=state.revision + 1)
    return [it for it in state.history if it.number < first]


def _merges_of(rollout: Rollout, revisions: list[Revision]) -> list[Revision]:
    known = {"merge", "import"}
    return [it for it in revisions if it.kind in known and set(it.runs) & set(rollout.runs)]
