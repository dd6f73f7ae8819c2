"""Choose which files to drop from a memory that is too big, least needed first."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sandstream_bus.wire.memories import Rollout

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
    """The paths to drop so that the rest has at most ``max_bytes``.

    The handbook, its digest, files that people wrote, and transcripts that are still to be
    extracted are never dropped, so the rest can still be bigger.

    Args:
        selected: ids of the rollouts of the last consolidation.
        needed: ids of rollouts that are not yet extracted; nothing else exists of them.
    """
    total = sum(sizes.values())
    dropped: list[str] = []
    if total <= max_bytes:  # nearly always; this is called for every run that ends
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
    """Orphans, then extracted transcripts, oldest first, then raw memories beyond the selection,
    then other generated files.
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
    """The transcript, then the files made from it."""
    return [rollout_path(rollout.name), raw_path(rollout.name), summary_of(rollout)]
