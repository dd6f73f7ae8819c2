"""Whether a memory is up to date, for whoever wants to wait for that. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sandstream_bus.memory_messages import MemoryState

from sandstream_actors.memory.standing import (
    has_given_up,
    has_news,
    is_extracting,
    selection_of,
    unmerged,
)

Marks = Mapping[str, int]
"""For rollouts, by id: how many of their runs are waited for."""


def is_settled(state: MemoryState, run: str | None = None) -> bool:
    """Is there nothing that still comes by itself? ``run``: of what this run taught.

    What was given up, and waits for a person, is not waited for.
    """
    if run is not None:
        marks = marks_of(state, run)
        return run in state.forgotten or (bool(marks) and has_reached(state, marks))
    if state.merging is not None or state.merge_attempt or is_extracting(state):
        return False
    return bool(state.merge_problem) or not has_news(state)


def marks_of(state: MemoryState, run: str | None = None) -> dict[str, int]:
    """What there is to wait for now, or this run's part of it; what comes later is not meant."""
    if run is None:
        forgotten = dict.fromkeys(selection_of(state).removed, 0)
        return forgotten | {id: len(it.runs) for id, it in state.rollouts.items()}
    found = ((id, it.runs.index(run) + 1) for id, it in state.rollouts.items() if run in it.runs)
    return dict(found)


def has_reached(state: MemoryState, marks: Marks) -> bool:
    """Is all that is waited for part of the memory, or given up, or removed?"""
    waited = [it for id, it in state.rollouts.items() if id in marks]
    if any(it.extracted < marks[it.id] and not has_given_up(it) for it in waited):
        return False
    selection = selection_of(state)
    news = {*selection.removed, *(it.id for it in unmerged(state, selection))}
    if not news & marks.keys():
        return True
    return state.merging is None and not state.merge_attempt and bool(state.merge_problem)
