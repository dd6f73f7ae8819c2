"""Whether a memory is up to date, for callers that wait for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sandstream_bus.wire.memories import MemoryState

from sandstream_actors.memory.scope.pending_work import (
    has_given_up,
    has_news,
    is_extracting,
    selection_of,
    unmerged,
)

Marks = Mapping[str, int]
"""Rollout ids with the number of their runs that a caller waits for."""


def is_settled(state: MemoryState, run: str | None = None) -> bool:
    """Whether no more work is scheduled, for the whole memory or only for ``run``.

    A phase that was given up waits for a person and does not count.
    """
    if run is not None:
        marks = marks_of(state, run)
        return run in state.forgotten or (bool(marks) and has_reached(state, marks))
    if state.merging is not None or state.merge_attempt or is_extracting(state):
        return False
    return bool(state.merge_problem) or not has_news(state)


def marks_of(state: MemoryState, run: str | None = None) -> dict[str, int]:
    """The current work to wait for, in total or for one run. Later additions do not count."""
    if run is None:
        forgotten = dict.fromkeys(selection_of(state).removed, 0)
        return forgotten | {id: len(it.runs) for id, it in state.rollouts.items()}
    found = ((id, it.runs.index(run) + 1) for id, it in state.rollouts.items() if run in it.runs)
    return dict(found)


def has_reached(state: MemoryState, marks: Marks) -> bool:
    """Whether all of ``marks`` is part of the memory, given up, or removed."""
    waited = [it for id, it in state.rollouts.items() if id in marks]
    if any(it.extracted < marks[it.id] and not has_given_up(it) for it in waited):
        return False
    selection = selection_of(state)
    news = {*selection.removed, *(it.id for it in unmerged(state, selection))}
    if not news & marks.keys():
        return True
    return state.merging is None and not state.merge_attempt and bool(state.merge_problem)
