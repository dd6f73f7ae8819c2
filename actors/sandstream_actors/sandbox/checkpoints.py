"""Checkpoints of a live sandbox: take one, and find what a woken box has lost of the last one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sandstream_bus.counts import numbered
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.wire.sandboxes import Checkpointed, SandboxCheckpointed
from sandstream_providers.interface import Box
from sandstream_workspaces.errors import WorkspaceDamaged
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.run.sandbox_record import SandboxRecord

logger = logging.getLogger(__name__)


class Taken(NamedTuple):
    """A checkpoint."""

    result: Checkpointed
    event: SandboxCheckpointed | None
    """For the log; None: the log names this snapshot already."""


async def take_checkpoint(
    store: WorkspaceStore, record: SandboxRecord, box: Box, exclude: Iterable[str], reason: str
) -> Taken:
    """Store the changes of the workspace since the last checkpoint."""
    began = time.monotonic()
    left_out = sorted({*record.spec.plan.exclude, *exclude})
    crashpoint("sandbox.before_snapshot")
    snapshot = await store.checkpoint(box, base=record.base, exclude=left_out)
    crashpoint("sandbox.after_snapshot")
    event = None
    if snapshot.tree != record.tree or not record.checkpointed:
        event = SandboxCheckpointed(
            generation=record.generation,
            tree=snapshot.tree,
            files=snapshot.files,
            size_bytes=snapshot.size_bytes,
            new_bytes=snapshot.new_bytes,
            exclude=left_out,
            reason=reason,
            duration_ms=round((time.monotonic() - began) * 1000),
        )
    result = Checkpointed(
        tree=snapshot.tree,
        files=snapshot.files,
        size_bytes=snapshot.size_bytes,
        new_bytes=snapshot.new_bytes,
    )
    return Taken(result, event)


async def loss_of(store: WorkspaceStore, record: SandboxRecord, box: Box) -> str:
    """What the box has lost since its last checkpoint, as text; empty: nothing.

    Only files that are missing or cut short count: a command that was frozen in the middle may have
    written others since the checkpoint.
    """
    snapshot = await store.checkpoint(box, base=record.tree, exclude=record.excluded)
    if snapshot.tree == record.tree:
        return ""
    try:
        found = await store.diff(record.tree, snapshot.tree)
        missing = len(found.removed)
        cut = await _cut_short(store, record.tree, snapshot.tree, found.changed)
    except WorkspaceDamaged as error:  # the box has all that is left
        logger.warning("a woken box cannot be compared with its checkpoint: %s", error)
        return ""
    parts = [f"{numbered(missing, 'path')} missing"] if missing else []
    parts += [f"{numbered(cut, 'file')} cut short"] if cut else []
    return " and ".join(parts)


async def _cut_short(store: WorkspaceStore, before: str, after: str, paths: Sequence[str]) -> int:
    """How many of the files are shorter than they were, or are no files any more."""
    if not paths:
        return 0
    old = {entry.path: entry for entry in await store.entries(before)}
    new = {entry.path: entry for entry in await store.entries(after)}
    return sum(
        old[path].kind == "file" and (new[path].kind != "file" or new[path].size < old[path].size)
        for path in paths
    )
