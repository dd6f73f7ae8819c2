"""What a memory that is too big can do without, the least needed first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sandstream_bus.memory_messages import Rollout

from sandstream_memory.layout import (
    RAW_FILE,
    RAW_MEMORIES,
    SESSIONS,
    SUMMARIES,
    raw_path,
    rollout_path,
)
from sandstream_memory.selection import age_key, summary_of

_OF_ROLLOUTS = (SESSIONS, RAW_MEMORIES, SUMMARIES)


def to_drop(
    sizes: Mapping[str, int],
    rollouts: Collection[Rollout],
    *,
    selected: Collection[str],
    needed: Collection[str],
    max_bytes: int,
) -> list[str]:
    """The paths to drop so that the rest has at most ``max_bytes``, as far as that goes without the
    handbook, its digest, what people wrote, and recordings that are still to be read.

    ``selected``: ids of rollouts that the last consolidation was made of; ``needed``: of those that
    are still to be extracted. Their recordings are all that there is of them.
    """
    total = sum(sizes.values())
    dropped: list[str] = []
    if total <= max_bytes:  # as nearly always: every note of a run asks
        return dropped
    for path in _least_needed_first(sizes, rollouts, selected, needed):
        if total <= max_bytes:
            break
        total -= sizes[path]
        dropped.append(path)
    return dropped


def _least_needed_first(
    paths: Collection[str],
    rollouts: Collection[Rollout],
    selected: Collection[str],
    needed: Collection[str],
) -> list[str]:
    """Recordings that were read, oldest first; raw memories beyond the selection; then what else
    can be done without.
    """
    by_age = sorted(rollouts, key=age_key)
    known = {path for each in by_age for path in _paths(each)}
    orphans = [path for path in sorted(paths) if path.startswith(_OF_ROLLOUTS)]
    orphans = [path for path in orphans if path not in known]
    beyond = [each for each in by_age if each.id not in selected and each.is_merged]
    order = [
        *orphans,
        *(rollout_path(each.name) for each in by_age if each.id not in needed),
        *(path for each in beyond for path in _paths(each)[1:]),
        RAW_FILE,
        *(path for each in by_age if each.is_merged for path in _paths(each)[1:]),
        *(path for each in by_age if not each.is_merged for path in _paths(each)[1:]),
    ]
    return [path for path in dict.fromkeys(order) if path in paths]


def _paths(rollout: Rollout) -> list[str]:
    """The recording, then what was made of it."""
    return [rollout_path(rollout.name), raw_path(rollout.name), summary_of(rollout)]
