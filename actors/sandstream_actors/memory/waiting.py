"""Whether a memory is up to date, for whoever wants to wait for that."""

from __future__ import annotations

from sandstream_bus.bus import Bus
from sandstream_bus.memory_messages import MemoryState

from sandstream_actors.memory.standing import has_news, is_extracting


async def settled(bus: Bus, scope: str, run: str | None = None) -> bool:
    """Is there nothing that still comes by itself? ``run``: and is this run part of it?

    What was given up, and waits for a person, is not waited for.
    """
    return is_settled((await bus.memories.read(scope)).state, run)


def is_settled(state: MemoryState, run: str | None = None) -> bool:
    if run is not None and not _has_noted(state, run):
        return False
    if state.merging is not None or state.merge_attempt or is_extracting(state):
        return False
    return bool(state.merge_problem) or not has_news(state)


def _has_noted(state: MemoryState, run: str) -> bool:
    return run in state.forgotten or any(run in it.runs for it in state.rollouts.values())
