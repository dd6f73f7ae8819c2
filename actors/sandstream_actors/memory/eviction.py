"""If there are too many rollouts, drop the oldest that are no longer in use. Pure."""

from __future__ import annotations

from typing import Final

import msgspec
from sandstream_bus.wire.memories import MemoryState, Tree
from sandstream_memory.layout import raw_path, rollout_path
from sandstream_memory.selection import age_key, summary_of

from sandstream_actors.memory.scope.pending_work import is_pending, selection_of

_KEPT_PER_SELECTED: Final = 4
"""A memory keeps at most this many times the size of a selection; older rollouts are dropped."""


def without_oldest(state: MemoryState, tree: Tree) -> tuple[MemoryState, Tree]:
    """The state and its tree without the oldest unused rollouts, if there are too many."""
    limit = state.use.max_raw_memories * _KEPT_PER_SELECTED
    by_age = sorted(state.rollouts.values(), key=age_key)
    kept = {*state.selected, *selection_of(state).selected}
    gone = [
        it
        for it in by_age[: max(len(by_age) - limit, 0)]
        if it.id not in kept and not is_pending(it) and not it.extracting
    ]
    if not gone:
        return state, tree
    ids = {it.id for it in gone}
    paths = {
        path for it in gone for path in (rollout_path(it.name), raw_path(it.name), summary_of(it))
    }
    rollouts = {id: it for id, it in state.rollouts.items() if id not in ids}
    return (
        msgspec.structs.replace(state, rollouts=rollouts),
        {path: ref for path, ref in tree.items() if path not in paths},
    )
