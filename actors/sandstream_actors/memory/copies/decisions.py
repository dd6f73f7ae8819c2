"""Decides about each editable file at a sync. No I/O.

It compares three versions by digest: the file as it was last written to the workspace, the file in
the workspace now, and the file in the current memory. Contents are needed only if two of them
changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Literal

from sandstream_bus.wire.memories import Tree
from sandstream_memory.layout import MEMORY_FILE, SUMMARY_FILE, is_editable

ALWAYS_THERE = (MEMORY_FILE, SUMMARY_FILE)
"""Files that always exist. An empty one counts as absent, so that it is not reported as a change.
"""
ABSENT = ""
EMPTY = hashlib.sha256(b"").hexdigest()

Decision = Literal["head", "pending", "edit"]
"""Use the memory's version; keep a reported change that the memory does not have yet; report a
change.
"""


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_in(tree: Tree, path: str) -> str:
    ref = tree.get(path)
    if ref is not None:
        return ref.digest
    return EMPTY if path in ALWAYS_THERE else ABSENT


def in_place_of_folders(paths: Collection[str], folders: Collection[str]) -> set[str]:
    """Which of these files have the path of a directory: one of ``folders``, or of another file."""
    above = {folder.rstrip("/") for folder in folders}
    for path in paths:
        parts = path.split("/")
        above |= {"/".join(parts[:count]) for count in range(1, len(parts))}
    return above.intersection(paths)


def decide(
    local: Mapping[str, str],
    *,
    base: Tree,
    head: Tree,
    told: Mapping[str, str],
    is_taken: bool = False,
    settled: Collection[str] = (),
    unreadable: Collection[str] = (),
    writable: bool,
    may_delete: bool,
) -> dict[str, Decision]:
    """The decision for every editable file; ``local`` are digests. An ``unreadable`` file counts as
    unchanged.

    ``settled``: files whose reported changes the memory has handled; its version counts.
    ``is_taken``: the memory has taken over some reported changes, but it is unknown which.
    ``may_delete``: missing files were deleted, except for the handbook and its summary.
    """
    paths = {path for path in {*local, *base, *head, *ALWAYS_THERE} if is_editable(path)}
    decisions: dict[str, Decision] = {}
    for path in sorted(paths):
        was, now = digest_in(base, path), digest_in(head, path)
        mine = local.get(path, ABSENT)
        is_missing = mine == ABSENT and (path in ALWAYS_THERE or not may_delete)
        if path in unreadable or is_missing:
            mine = was
        if not writable or mine in (was, now):
            decisions[path] = "head"
        elif told.get(path) == mine:
            is_over = path in settled or (is_taken and now != was)
            decisions[path] = "head" if is_over else "pending"
        else:
            decisions[path] = "edit"
    return decisions
