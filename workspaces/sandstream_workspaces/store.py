"""Workspaces in the object store: the interface of this package for actors and clients."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec
from sandstream_bus.bus import Bus
from sandstream_providers.interface import Box, Entry

from sandstream_workspaces.checkpoint import Checkpoint, Scans, Snapshot
from sandstream_workspaces.errors import CheckpointFailed, NoSuchPath, WorkspaceDamaged
from sandstream_workspaces.format import (
    TreeEntry,
    dir_entry,
    file_entry,
    path_bytes,
)
from sandstream_workspaces.freshness import Freshness
from sandstream_workspaces.host_directory import HostDirectories, SymlinkPolicy
from sandstream_workspaces.packs import Locations, PackWriter
from sandstream_workspaces.restore import Restore, Spool, fetch_pack
from sandstream_workspaces.trees import Trees


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two snapshots, as sorted paths."""

    added: list[str]
    changed: list[str]
    removed: list[str]


class WorkspaceStore:
    """Stores and restores workspaces. Use one per process, because of its caches."""

    def __init__(self, bus: Bus) -> None:
        self._objects = bus.objects
        self._freshness = Freshness(bus.objects)
        self._locations = Locations()
        self._trees = Trees(bus.objects, self._freshness, self._locations)
        self._scans: WeakKeyDictionary[Box, Scans] = WeakKeyDictionary()
        self._host_directories = HostDirectories()

    # --- boxes ---------------------------------------------------------------------------------

    async def checkpoint(self, box: Box, *, base: str = "", exclude: Sequence[str]) -> Snapshot:
        """Store the box's workspace, except these relative paths and everything below them.

        ``base`` is the previous snapshot, if any; its contents are neither read nor stored again.
        """
        work = Checkpoint(self._objects, self._freshness, self._locations, self._trees, box)
        return await work.run(base, exclude, self._scans.setdefault(box, Scans()))

    async def restore(
        self,
        box: Box,
        tree: str,
        *,
        op: str,
        into: str = "",
        clear: bool = True,
        keep: Sequence[str] = (),
    ) -> int:
        """Restore the snapshot into the box; return its number of entries.

        If the snapshot cannot be read, raises :class:`WorkspaceDamaged` before anything is changed.
        ``keep``: relative paths that stay when the root is cleared.
        """
        scans = self._scans.setdefault(box, Scans())
        async with scans.lock:
            scans.last = None
            work = Restore(self._objects, self._trees, box, tree, op)
            return await work.run(into, clear=clear, keep=keep)

    # --- contents of a snapshot ----------------------------------------------------------------

    async def entries(self, tree: str) -> list[Entry]:
        return [entry.public() for entry in await self._trees.all_entries(tree)]

    async def lookup(self, tree: str, path: str) -> Entry | None:
        entry = await self._trees.lookup(tree, _relative(path))
        return None if entry is None else entry.public()

    async def read_file(self, tree: str, path: str) -> AsyncIterator[bytes]:
        """A file's content, piece by piece. Links are not followed."""
        entry = await self._trees.lookup(tree, _relative(path))
        if entry is None or entry.kind != "file":
            what = "nothing" if entry is None else f"a {entry.kind}"
            raise NoSuchPath(f"there is {what} at {path!r} in snapshot {tree}, not a file")
        hasher = hashlib.sha256()
        for part in entry.parts:
            pack = await fetch_pack(self._objects, tree, part.pack)
            piece = pack[part.offset : part.offset + part.size]
            hasher.update(piece)
            yield piece
        if hasher.digest() != entry.digest:
            raise WorkspaceDamaged(tree, entry.digest.hex(), "does not fit its digest")

    async def diff(self, before: str, after: str) -> Difference:
        """Compare two snapshots. Reads only the segments that differ."""
        old_root, new_root = await self._trees.root(before), await self._trees.root(after)
        shared = {it.content for it in old_root.segments} & {it.content for it in new_root.segments}
        old_refs = [it for it in old_root.segments if it.content not in shared]
        new_refs = [it for it in new_root.segments if it.content not in shared]
        old = {it.path: it.content() for it in await self._trees.all_entries(before, old_refs)}
        new = {it.path: it.content() for it in await self._trees.all_entries(after, new_refs)}
        return Difference(
            added=_public_paths(new.keys() - old.keys()),
            changed=_public_paths(it for it in new.keys() & old.keys() if new[it] != old[it]),
            removed=_public_paths(old.keys() - new.keys()),
        )

    async def subtree(self, tree: str, path: str) -> str:
        """Make a snapshot of a directory in a snapshot."""
        directory = _relative(path)
        if not directory:
            return tree
        below = await self._trees.below(tree, directory)
        if not below:
            entry = await self._trees.lookup(tree, directory)
            if entry is None or entry.kind != "dir":
                what = "nothing" if entry is None else f"a {entry.kind}"
                raise NoSuchPath(f"there is {what} at {path!r} in snapshot {tree}, not a directory")
        start = len(directory) + 1
        return await self.write(
            [msgspec.structs.replace(entry, path=entry.path[start:]) for entry in below]
        )

    # --- snapshots from other sources ----------------------------------------------------------

    async def add_files(self, files: Sequence[tuple[str, bytes, int]]) -> str:
        """Make a snapshot from (path, content, mode); parent directories are added."""
        return await self._twice(lambda: self._add_files(files))

    async def _add_files(self, files: Sequence[tuple[str, bytes, int]]) -> str:
        async with self.packs() as packs:
            digests = []
            for _, data, _ in files:
                digest = hashlib.sha256(data).digest()
                digests.append(digest)
                await packs.add(digest, data)
            await packs.finish()
            return await self.write(
                file_entry(
                    _relative(path), mode, len(data), digest, packs.parts(digest) if data else ()
                )
                for (path, data, mode), digest in zip(files, digests, strict=True)
            )

    async def add_directory(self, path: Path, *, symlinks: SymlinkPolicy = "reject") -> str:
        """Make a snapshot of a host directory: files, directories and, depending on the policy,
        links.

        Raises :class:`HostDirectoryFailed`.
        """
        return await self._twice(lambda: self._add_directory(path, symlinks))

    async def _add_directory(self, path: Path, symlinks: SymlinkPolicy) -> str:
        async with self.packs() as packs:
            found = await self._host_directories.read(path, packs, symlinks)
            await packs.finish()
            return await self.write(found.entries(packs))

    async def _twice(self, work: Callable[[], Awaitable[str]]) -> str:
        """Retry once: the first attempt forgets contents that the store has lost, the second stores
        them.
        """
        try:
            return await work()
        except CheckpointFailed:
            return await work()

    def packs(self) -> PackWriter:
        """A writer for the contents of a snapshot that :meth:`write` will store."""
        return PackWriter(self._objects, self._freshness, self._locations)

    async def write(self, entries: Iterable[TreeEntry]) -> str:
        """Store a snapshot of entries whose contents are already stored."""
        written = await self._trees.build(_with_parents(entries))
        if written.missing:
            self._locations.forget_packs({bytes.fromhex(it) for it in written.missing})
            raise CheckpointFailed(
                f"the object store lost contents of a snapshot: {min(written.missing)}. Try again."
            )
        return written.tree

    async def tree_entries(self, tree: str) -> list[TreeEntry]:
        """All entries, with the places of their contents."""
        return await self._trees.all_entries(tree)

    async def renew(self, tree: str) -> None:
        """Make a snapshot live as long as one that is stored now: store its old objects anew.

        Raises :class:`WorkspaceDamaged` if a part of it is gone. Nothing is remembered: the caller
        knows what it has renewed.
        """
        root = await self._trees.root(tree)
        objects = [*(it.hex() for it in root.objects()), tree]
        lost = await Freshness(self._objects).ensure(objects)
        if lost:
            self._trees.forget(tree)
            raise WorkspaceDamaged(tree, min(lost), "is missing or damaged")

    async def spool(self, spool: Spool, entries: Sequence[TreeEntry]) -> None:
        """Fetch the contents of these entries. Raises :class:`WorkspaceDamaged`."""
        await spool.fill(self._objects, entries)


def _relative(path: str) -> bytes:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError(f"a path in a snapshot cannot have '..': {path!r}")
    return path_bytes("/".join(names))


def _with_parents(entries: Iterable[TreeEntry]) -> list[TreeEntry]:
    """Add entries for all directories above the given entries."""
    found = {entry.path: entry for entry in entries}
    for path in list(found):
        at = path.rfind(b"/")
        while at > 0 and path[:at] not in found:
            found[path[:at]] = dir_entry(path[:at])
            at = path.rfind(b"/", 0, at)
    return list(found.values())


def _public_paths(paths: Iterable[bytes]) -> list[str]:
    return [os.fsdecode(path) for path in sorted(paths)]
