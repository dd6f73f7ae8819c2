"""The files of a memory by their digests. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandstream_bus.wire.memories import FileRef, Tree
from sandstream_memory.layout import is_editable

_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_FILES = 200


def with_versions(tree: Tree, versions: Mapping[str, FileRef | None]) -> Tree:
    changed = {path: ref for path, ref in tree.items() if path not in versions}
    return changed | {path: ref for path, ref in versions.items() if ref is not None}


def editable(tree: Tree) -> Tree:
    return {path: ref for path, ref in tree.items() if is_editable(path)}


def batches(tree: Tree) -> Iterator[Tree]:
    """Parts that are written at once."""
    batch: Tree = {}
    size = 0
    for path, ref in sorted(tree.items()):
        if batch and (len(batch) == _BATCH_FILES or size + ref.size > _BATCH_BYTES):
            yield batch
            batch, size = {}, 0
        batch[path] = ref
        size += ref.size
    if batch:
        yield batch
