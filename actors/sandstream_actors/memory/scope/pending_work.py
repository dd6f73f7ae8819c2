"""What a scope's state implies: which work is running, pending or wanted. Pure."""

from __future__ import annotations

from sandstream_bus.wire.memories import MemoryState, Merge, Rollout
from sandstream_memory.layout import raw_path
from sandstream_memory.selection import Selection, select

CANCELLED = "cancelled"
"""Prefix of the problem of a cancelled phase. The next trigger starts the phase again."""
AGAIN = "again"
"""The reason of a consolidation that was requested although nothing is new."""
ENOUGH = 8
"""With this many unmerged rollouts, a consolidation does not wait for further extractions."""


def has_given_up(rollout: Rollout) -> bool:
    """Whether its extraction has failed and will not be retried by itself."""
    return bool(rollout.problem) and rollout.attempt == 0 and not rollout.extracting


def is_pending(rollout: Rollout) -> bool:
    """Whether an extraction of it is running or will start by itself."""
    return rollout.extracted < len(rollout.runs) and not has_given_up(rollout)


def is_extracting(state: MemoryState) -> bool:
    return any(map(is_pending, state.rollouts.values()))


def is_held_up(state: MemoryState) -> bool:
    """Whether a consolidation should wait for extractions that will finish soon. It does not wait
    for retries after a pause or for slow extractions, nor if ``ENOUGH`` rollouts are unmerged.
    """
    pending = [it for it in state.rollouts.values() if is_pending(it)]
    comes_at_once = [it for it in pending if not it.is_slow and (it.extracting or not it.attempt)]
    return bool(comes_at_once) and len(unmerged(state, selection_of(state))) < ENOUGH


def selection_of(state: MemoryState) -> Selection:
    """The rollouts of the next consolidation."""
    known = {id: it for id, it in state.rollouts.items() if raw_path(it.name) in state.tree}
    return select(known, state.selected, state.use.max_raw_memories)


def selected_by(state: MemoryState, merge: Merge) -> Selection:
    """The selection that a consolidation was started with."""
    before = set() if merge.reason == AGAIN else set(state.selected)
    added = [id for id in merge.selected if id not in before or not _is_merged(state, id)]
    return Selection(
        selected=merge.selected,
        added=added,
        retained=[id for id in merge.selected if id not in added],
        removed=merge.removed,
    )


def _is_merged(state: MemoryState, id: str) -> bool:
    return id in state.rollouts and state.rollouts[id].is_merged


def unmerged(state: MemoryState, selection: Selection) -> list[Rollout]:
    """The selected rollouts that are not yet merged."""
    chosen = [state.rollouts[id] for id in selection.selected]
    return [it for it in chosen if not it.is_merged]


def has_news(state: MemoryState) -> bool:
    """Whether there is anything to consolidate."""
    selection = selection_of(state)
    return bool(selection.removed or unmerged(state, selection))


def why_now(state: MemoryState) -> str:
    """Why a consolidation must begin now; empty if none is due."""
    is_wanted = state.wanted == AGAIN or has_news(state)
    if state.merging is not None or state.merge_attempt or not is_wanted:
        return ""
    new = unmerged(state, selection_of(state))
    if state.use.batch_size is not None and len(new) >= state.use.batch_size:
        return "batch"
    if is_held_up(state):
        return ""
    return state.wanted or ("eager" if state.use.eager else "")
