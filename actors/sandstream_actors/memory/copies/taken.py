"""Finds which reported changes of a workspace its memory has taken over since.

The memory's current version of these files counts, even if the change was undone there. The
workspace must neither keep such a change nor report it again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sandstream_bus.errors import ObjectMissing, UndecodableMessage
from sandstream_bus.logs.memories import Memories
from sandstream_bus.wire.memories import FileRef, MemoryState, Revision

from sandstream_actors.memory.copies.marker import Laid
from sandstream_actors.memory.scope.files import KEPT_REVISIONS


class Taken(NamedTuple):
    """By path."""

    versions: dict[str, FileRef | None]
    """The memory's version after it took over the change, if known: later changes in the workspace
    are relative to it. None: the file was deleted.
    """
    settled: frozenset[str]
    """The memory has decided on these, one way or the other."""
    is_any: bool = False
    """A change from this workspace was taken over, or that is unknown."""


NOTHING_TAKEN = Taken({}, frozenset())


async def taken_over(
    memories: Memories, state: MemoryState, marker: Laid, ours: Collection[str]
) -> Taken:
    """``ours``: the names of the workspace in the history."""
    known = [it for it in state.history if it.number > marker.revision]
    is_cut = len(state.history) >= KEPT_REVISIONS and len(known) == len(state.history)
    if is_cut and known[0].number > marker.revision + 1:
        return Taken({}, frozenset(marker.told), is_any=True)
    is_any = any(it.kind == "edit" and it.by in ours for it in known)
    if marker.scope != state.scope:
        return Taken({}, frozenset(), is_any)
    versions: dict[str, FileRef | None] = {}
    settled = set()
    if any(it.kind == "remove" for it in known):  # including changes reported on an older revision
        settled = {*marker.told}
    by_note = {it.note: it for it in known if it.kind == "edit"}
    for path in marker.told:
        revision = by_note.get(f"message {marker.messages.get(path, 0)}")
        if revision is None:
            continue
        settled.add(path)
        tree = await _after(memories, state.scope, revision)
        if tree is not None:
            versions[path] = tree.get(path)
    return Taken(versions, frozenset(settled), is_any)


async def _after(memories: Memories, scope: str, revision: Revision) -> dict[str, FileRef] | None:
    try:
        return await memories.get_tree(scope, revision.after)
    except (ObjectMissing, UndecodableMessage):
        return None
