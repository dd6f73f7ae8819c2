"""Checkpoint a box's workspace: apply what a scan found to the previous snapshot."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.nats.objects import Objects
from sandstream_providers.interface import (
    Box,
    Entry,
    NotFound,
    ResolveRule,
    ScanOutdated,
    WrongKind,
)

from sandstream_workspaces.compaction import compact, has_too_many_packs
from sandstream_workspaces.errors import CheckpointFailed, WorkspaceDamaged
from sandstream_workspaces.format import (
    PERMISSIONS,
    TreeEntry,
    dir_entry,
    file_entry,
    link_entry,
    path_bytes,
)
from sandstream_workspaces.freshness import Freshness
from sandstream_workspaces.packs import PART_BYTES, Locations, PackWriter, Placed
from sandstream_workspaces.trees import Trees, Written

_READ_BYTES = 4 * 1024 * 1024
_READS_PER_FILE = 5


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A stored workspace."""

    tree: str
    content: str
    """Equal for equal files, wherever and whenever they were stored; ``tree`` may differ."""
    files: int
    size_bytes: int
    new_bytes: int
    """The bytes that had to be stored."""


class Scans:
    """The snapshot that resulted from a box's last scan. Allows one checkpoint at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last: tuple[str, tuple[str, ...]] | None = None
        """The snapshot and its excluded paths; ``None`` if unknown, so a full scan is needed."""


class Checkpoint:
    """One checkpoint of one box."""

    def __init__(
        self,
        objects: Objects,
        freshness: Freshness,
        locations: Locations,
        trees: Trees,
        box: Box,
    ) -> None:
        self._objects = objects
        self._freshness = freshness
        self._locations = locations
        self._trees = trees
        self._box = box
        self._rule = ResolveRule(roots=[box.root])

    async def run(self, base: str, exclude: Sequence[str], scans: Scans) -> Snapshot:
        excluded = tuple(sorted(exclude))
        async with scans.lock:
            full = not base or scans.last != (base, excluded)
            scans.last = None
            try:
                written = await self._try(base, excluded, full=full)
            except ScanOutdated:  # another process has scanned the box since
                written = await self._try(base, excluded, full=True)
            if written.missing:
                # The store lost objects that the base needs: store everything again.
                self._locations.forget_packs({bytes.fromhex(it) for it in written.missing})
                self._trees.forget(base)
                written = await self._try("", excluded, full=True)
            if written.missing:
                lost = numbered(len(written.missing), "object")
                raise CheckpointFailed(
                    f"the object store lost {lost} while the workspace of "
                    f"{self._box.key} was written down, {min(written.missing)} for one. Try again."
                )
            scans.last = (written.tree, excluded)
        root = written.root
        return Snapshot(
            tree=written.tree,
            content=root.content.hex(),
            files=root.files,
            size_bytes=root.size,
            new_bytes=written.new_bytes,
        )

    async def _try(self, base: str, exclude: Sequence[str], *, full: bool) -> Written:
        before = await self._base_entries(base) if full and base else {}
        found: dict[bytes, Entry] = {}
        kept: dict[bytes, TreeEntry] = {}
        removed: list[bytes] = []
        async with PackWriter(self._objects, self._freshness, self._locations) as packs:
            async for item in self._box.scan(exclude, full=full):
                entry = item.entry
                path = path_bytes(entry.path)
                if item.removed or entry.kind == "other":
                    removed.append(path)
                    found.pop(path, None)
                    continue
                old = before.get(path)
                if old is not None and _is_same(old, entry):
                    kept[path] = old
                elif entry.kind == "file":
                    stored = await self._store(packs, entry, item.data)
                    if stored is not None:
                        found[path] = stored
                else:
                    found[path] = entry
            await packs.finish()
            changed = {path: _tree_entry(path, entry, packs) for path, entry in found.items()}
            if full:
                written = await self._trees.build([*kept.values(), *changed.values()])
            else:
                written = await self._trees.apply(base, changed, removed)
            written = msgspec.structs.replace(
                written, new_bytes=written.new_bytes + packs.new_bytes
            )
        if written.missing or not has_too_many_packs(written.root):
            return written
        return await compact(self._objects, self._freshness, self._locations, self._trees, written)

    async def _base_entries(self, base: str) -> dict[bytes, TreeEntry]:
        """The entries of the base, so that equal files keep their place. Empty if the base cannot
        be read; the new snapshot does not need it.
        """
        try:
            return {entry.path: entry for entry in await self._trees.all_entries(base)}
        except WorkspaceDamaged:
            return {}

    async def _store(self, packs: PackWriter, entry: Entry, data: bytes | None) -> Entry | None:
        """Store a file's content and return the entry that matches it; ``None`` if it is gone."""
        digest = bytes.fromhex(entry.digest)
        if entry.size == 0 or packs.has(digest):
            return entry
        if data is not None and hashlib.sha256(data).digest() == digest:
            await packs.add(digest, data)
            return entry
        expected = entry.digest
        for _ in range(_READS_PER_FILE):
            try:
                parts, actual, size = await self._read(packs, entry.path)
            except (NotFound, WrongKind):
                return None  # the next scan will report its new state
            if actual == expected:
                packs.place(bytes.fromhex(actual), parts)
                return msgspec.structs.replace(entry, digest=actual, size=size)
            expected = actual  # it changed since the scan: accept what two reads agree on
        raise CheckpointFailed(
            f"{entry.path!r} in {self._box.key} changes all the time: {_READS_PER_FILE} reads gave "
            "different contents. Stop what writes to it, or leave it out of snapshots."
        )

    async def _read(self, packs: PackWriter, path: str) -> tuple[list[Placed], str, int]:
        parts: list[Placed] = []
        hasher = hashlib.sha256()
        size = 0
        at_end = False
        while not at_end:
            pieces: list[bytes] = []
            for _ in range(PART_BYTES // _READ_BYTES):
                data = await self._box.read(
                    f"{self._box.root}/{path}", self._rule, offset=size, limit=_READ_BYTES
                )
                await asyncio.to_thread(hasher.update, data)
                pieces.append(data)
                size += len(data)
                at_end = len(data) < _READ_BYTES
                if at_end:
                    break
            if part := b"".join(pieces):
                parts.append(await packs.add_part(part))
        return parts, hasher.hexdigest(), size


def _is_same(old: TreeEntry, entry: Entry) -> bool:
    if old.kind != entry.kind:
        return False
    if entry.kind == "link":
        return old.target == path_bytes(entry.target)
    return old.mode == entry.mode & PERMISSIONS and (
        entry.kind == "dir" or old.digest.hex() == entry.digest
    )


def _tree_entry(path: bytes, entry: Entry, packs: PackWriter) -> TreeEntry:
    if entry.kind == "link":
        return link_entry(path, path_bytes(entry.target))
    if entry.kind == "dir":
        return dir_entry(path, entry.mode)
    digest = bytes.fromhex(entry.digest)
    return file_entry(
        path, entry.mode, entry.size, digest, packs.parts(digest) if entry.size else ()
    )
