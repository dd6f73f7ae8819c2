"""Read and write snapshots: roots and segments, with a cache of recent ones.

Decoded segments are cached, least recently used first, up to a number of bytes; successive
snapshots share them. Changes are applied segment by segment; other segments are not even loaded.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec
from sandstream_bus.errors import ObjectMissing, UndecodableMessage
from sandstream_bus.nats.objects import Objects

from sandstream_workspaces.errors import WorkspaceDamaged
from sandstream_workspaces.format import (
    Root,
    SegmentRef,
    TreeEntry,
    cut,
    decode_root,
    decode_segment,
    encode_root,
    encode_segment,
    make_root,
    starts_segment,
)
from sandstream_workspaces.freshness import Freshness
from sandstream_workspaces.packs import Locations
from sandstream_workspaces.parallel import in_parallel

_CACHED_BYTES = 32 * 1024 * 1024
_CACHED_ROOTS = 256
_AT_ONCE = 16

Entries = tuple[TreeEntry, ...]
Piece = SegmentRef | Entries
"""A segment that stays as it is, or entries that must be cut and stored."""


class Written(msgspec.Struct, frozen=True):
    """A stored snapshot, or a failure because objects that it needs are ``missing``."""

    tree: str
    root: Root
    new_bytes: int
    missing: set[str]


class Trees:
    """Loads and stores snapshots."""

    def __init__(self, objects: Objects, freshness: Freshness, locations: Locations) -> None:
        self._objects = objects
        self._freshness = freshness
        self._locations = locations
        self._roots: OrderedDict[str, Root] = OrderedDict()
        self._segments: OrderedDict[bytes, tuple[Entries, int]] = OrderedDict()
        self._cached_bytes = 0

    # --- reading -------------------------------------------------------------------------------

    async def root(self, tree: str) -> Root:
        known = self._roots.get(tree)
        if known is not None:
            self._roots.move_to_end(tree)
            return known
        data = await self._fetch(tree, tree)
        try:
            root = decode_root(data)
        except msgspec.DecodeError as error:
            raise WorkspaceDamaged(tree, tree, f"is not a snapshot: {error}") from error
        self._remember_root(tree, root)
        return root

    async def segment(self, tree: str, ref: SegmentRef) -> Entries:
        known = self._segments.get(ref.digest)
        if known is not None:
            self._segments.move_to_end(ref.digest)
            return known[0]
        digest = ref.digest.hex()
        data = await self._fetch(tree, digest)
        try:
            entries = decode_segment(data)
        except msgspec.DecodeError as error:
            raise WorkspaceDamaged(tree, digest, f"is not a list of files: {error}") from error
        self._remember_segment(ref.digest, entries, len(data))
        self._locations.learn_entries(entries)
        return entries

    async def all_entries(
        self, tree: str, segments: Sequence[SegmentRef] | None = None
    ) -> list[TreeEntry]:
        """The sorted entries of the whole snapshot or of some of its segments."""
        if segments is None:
            segments = (await self.root(tree)).segments
        if all(ref.digest in self._segments for ref in segments):
            loaded = [await self.segment(tree, ref) for ref in segments]
        else:
            loaded = await in_parallel(_AT_ONCE, partial(self.segment, tree), segments)
        return [entry for entries in loaded for entry in entries]

    async def lookup(self, tree: str, path: bytes) -> TreeEntry | None:
        root = await self.root(tree)
        index = _segment_of(root, path)
        if index < 0:
            return None
        entries = await self.segment(tree, root.segments[index])
        at = bisect_left(entries, path, key=_path)
        return entries[at] if at < len(entries) and entries[at].path == path else None

    async def below(self, tree: str, path: bytes) -> list[TreeEntry]:
        """All entries below a directory, without the directory itself."""
        root = await self.root(tree)
        if not path:
            return await self.all_entries(tree)
        low, high = path + b"/", path + b"0"  # "0" comes right after "/"
        start, end = max(_segment_of(root, low), 0), _segment_of(root, high)
        entries = await self.all_entries(tree, root.segments[start : end + 1])
        return entries[bisect_left(entries, low, key=_path) : bisect_left(entries, high, key=_path)]

    def forget(self, tree: str) -> None:
        self._roots.pop(tree, None)

    # --- writing -------------------------------------------------------------------------------

    async def build(self, entries: Iterable[TreeEntry]) -> Written:
        """A snapshot of exactly these entries, in any order, each path once."""
        return await self._write([tuple(sorted(entries, key=_path))])

    async def apply(
        self, base: str, changed: Mapping[bytes, TreeEntry], dropped: Iterable[bytes]
    ) -> Written:
        """Store a snapshot like ``base`` with these entries, and without everything at or below
        ``dropped``.
        """
        root = await self.root(base)
        drop_all = set(dropped)
        touched: dict[int, list[TreeEntry]] = {}
        for entry in changed.values():
            touched.setdefault(max(_segment_of(root, entry.path), 0), []).append(entry)
            if entry.kind != "dir":
                drop_all.add(entry.path)
        for path in drop_all:
            touched.setdefault(max(_segment_of(root, path), 0), [])
            low, high = _segment_of(root, path + b"/"), _segment_of(root, path + b"0")
            for index in range(max(low, 0), high + 1):
                touched.setdefault(index, [])
        if not root.segments:
            return await self.build(changed.values())
        pieces: list[Piece] = list(root.segments)
        for index, additions in touched.items():
            old = await self.segment(base, root.segments[index])
            kept = {
                entry.path: entry
                for entry in old
                if entry.path not in drop_all and not _is_below(entry.path, drop_all)
            }
            kept.update((entry.path, entry) for entry in additions)
            pieces[index] = tuple(sorted(kept.values(), key=_path))
        return await self._write(await self._join(base, pieces))

    async def _join(self, base: str, pieces: Sequence[Piece]) -> list[Piece]:
        """Append entries that lost the start of their segment to the previous segment."""
        joined: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, SegmentRef):
                joined.append(piece)
            elif piece:
                if joined and not starts_segment(piece[0].path):
                    before = joined.pop()
                    if isinstance(before, SegmentRef):
                        before = await self.segment(base, before)
                    piece = before + piece
                joined.append(piece)
        return joined

    async def _write(self, pieces: Sequence[Piece]) -> Written:
        refs: list[SegmentRef] = []
        fresh: list[tuple[SegmentRef, bytes]] = []
        for piece in pieces:
            if isinstance(piece, SegmentRef):
                refs.append(piece)
                continue
            for run in cut(piece):
                ref, data = encode_segment(run)
                refs.append(ref)
                if not self._freshness.knows(ref.digest.hex()):
                    fresh.append((ref, data))
                self._remember_segment(ref.digest, run, len(data))
        root = make_root(refs)

        async def put(segment: tuple[SegmentRef, bytes]) -> int:
            digest, data = segment[0].digest.hex(), segment[1]
            stored = await self._objects.put_new(data, digest)
            self._freshness.stored(digest)
            return len(data) if stored else 0

        sizes = await in_parallel(_AT_ONCE, put, fresh)
        missing = await self._freshness.ensure(it.hex() for it in root.objects())
        if missing:
            return Written("", root, sum(sizes), missing)
        data = encode_root(root)
        tree = hashlib.sha256(data).hexdigest()
        stored = await self._objects.put_new(data, tree)
        self._remember_root(tree, root)
        return Written(tree, root, sum(sizes) + (len(data) if stored else 0), set())

    # --- inside --------------------------------------------------------------------------------

    async def _fetch(self, tree: str, digest: str) -> bytes:
        try:
            return await self._objects.get(digest)
        except ObjectMissing as error:
            raise WorkspaceDamaged(tree, digest, "is missing") from error
        except UndecodableMessage as error:
            raise WorkspaceDamaged(tree, digest, "is damaged") from error

    def _remember_root(self, tree: str, root: Root) -> None:
        self._roots[tree] = root
        self._roots.move_to_end(tree)
        if len(self._roots) > _CACHED_ROOTS:
            self._roots.popitem(last=False)

    def _remember_segment(self, digest: bytes, entries: Entries, size: int) -> None:
        if digest in self._segments:
            self._segments.move_to_end(digest)
            return
        self._segments[digest] = (entries, size)
        self._cached_bytes += size
        while self._cached_bytes > _CACHED_BYTES and len(self._segments) > 1:
            _, (_, freed) = self._segments.popitem(last=False)
            self._cached_bytes -= freed


def _path(entry: TreeEntry) -> bytes:
    return entry.path


def _segment_of(root: Root, path: bytes) -> int:
    """The index of the segment that the path belongs to; -1 if it comes before all segments."""
    return bisect_right(root.segments, path, key=lambda segment: segment.first) - 1


def _is_below(path: bytes, directories: set[bytes]) -> bool:
    at = path.rfind(b"/")
    while at > 0:
        if path[:at] in directories:
            return True
        at = path.rfind(b"/", 0, at)
    return False
