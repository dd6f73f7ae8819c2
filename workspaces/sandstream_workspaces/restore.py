"""Restore a snapshot into a box.

Everything is first fetched and verified, into a temporary file; only then is the box touched. An
unreadable snapshot therefore leaves the workspace unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, TypeVar

import msgspec
from sandstream_bus.errors import ObjectMissing, UndecodableMessage
from sandstream_bus.nats.objects import Objects
from sandstream_providers.interface import Box, Entry, FileWrite, NotFound, ResolveRule

from sandstream_workspaces.errors import WorkspaceDamaged
from sandstream_workspaces.format import TreeEntry, path_bytes
from sandstream_workspaces.parallel import in_parallel
from sandstream_workspaces.trees import Trees

T = TypeVar("T")

_FETCHES = 3
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ENTRIES = 1000
_BATCHES_SENT = 2
_PRIMED_AT_ONCE = 20_000
_OWNER = 0o700
_WRITABLE = 0o200
_WHOLE_BYTES = 32 * 1024 * 1024
"""A file that its owner may not write, such as a git pack, cannot be appended to. Up to this size
it is written at once.
"""


class Spool:
    """The verified packs of a snapshot in a temporary file. The caller closes it."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self._starts: dict[bytes, int] = {}
        self._length = 0

    def close(self) -> None:
        self._file.close()

    async def fill(self, objects: Objects, entries: Sequence[TreeEntry]) -> None:
        """Fetch the contents of these entries. Raises :class:`WorkspaceDamaged`."""
        packs: dict[bytes, list[TreeEntry]] = {}
        spread: list[TreeEntry] = []
        for entry in entries:
            places = {part.pack for part in entry.parts}
            for pack in places:
                packs.setdefault(pack, [])
            (packs[places.pop()] if len(places) == 1 else spread).append(entry)

        async def one(pack: bytes) -> None:
            data = await fetch_pack(objects, self._tree, pack)
            start = self._length
            self._length += len(data)
            await asyncio.to_thread(self._keep, data, start, packs[pack])
            self._starts[pack] = start

        await in_parallel(_FETCHES, one, sorted(packs))
        await asyncio.to_thread(self._check_spread, spread)

    def pieces(self, entry: TreeEntry) -> Iterator[bytes]:
        """A file's content."""
        for part in entry.parts:
            yield os.pread(self._file.fileno(), part.size, self._starts[part.pack] + part.offset)

    def _keep(self, pack: bytes, start: int, entries: Sequence[TreeEntry]) -> None:
        """Write a pack and verify the contents that are only in it, while the next is fetched."""
        _write_all(self._file.fileno(), pack, start)
        view = memoryview(pack)
        for entry in entries:
            self._check(entry, (view[it.offset : it.offset + it.size] for it in entry.parts))

    def _check_spread(self, entries: Iterable[TreeEntry]) -> None:
        for entry in entries:
            if entry.kind == "file":
                self._check(entry, self.pieces(entry))

    def _check(self, entry: TreeEntry, pieces: Iterable[bytes | memoryview]) -> None:
        hasher = hashlib.sha256()
        for piece in pieces:
            hasher.update(piece)
        if hasher.digest() != entry.digest:
            content = entry.digest.hex()
            raise WorkspaceDamaged(self._tree, content, f"(file {entry.path!r}) does not fit")


async def fetch_pack(objects: Objects, tree: str, pack: bytes) -> bytes:
    try:
        return await objects.get(pack.hex())
    except ObjectMissing as error:
        raise WorkspaceDamaged(tree, pack.hex(), "is missing") from error
    except UndecodableMessage as error:
        raise WorkspaceDamaged(tree, pack.hex(), "is damaged") from error


class Restore:
    """One restore into one box."""

    def __init__(self, objects: Objects, trees: Trees, box: Box, tree: str, op: str) -> None:
        self._objects = objects
        self._trees = trees
        self._box = box
        self._tree = tree
        self._op = op
        self._batches = 0
        self._is_empty = False
        """Whether the target is known to be empty, which allows the faster ``fill``."""
        self._sent: deque[asyncio.Task[None]] = deque()
        self._rule = ResolveRule(roots=[box.root])

    async def run(self, into: str, *, clear: bool, keep: Sequence[str]) -> int:
        """Restore the snapshot; return the number of entries."""
        if clear and into and keep:
            raise ValueError("keep is for the whole root: it cannot be combined with into")
        root = await self._trees.root(self._tree)
        await self._all_there({it.hex() for it in root.objects()})
        entries = await self._trees.all_entries(self._tree)
        spool = Spool(self._tree)
        try:
            await spool.fill(self._objects, entries)
            if clear:
                await self._clear(into, keep)
                self._is_empty = True
            await self._lay_out(entries, into, spool)
        finally:
            for task in self._sent:
                task.cancel()
            await asyncio.gather(*self._sent, return_exceptions=True)
            spool.close()
        prefix = path_bytes(into.strip("/"))
        files = [_below(entry, prefix).public() for entry in entries if entry.kind == "file"]
        for some in _batches(files, _PRIMED_AT_ONCE, _path_length):
            await self._box.prime(some)
        return len(entries)

    async def _all_there(self, digests: set[str]) -> None:
        ages = await self._objects.ages(digests)
        if missing := digests - ages.keys():
            raise WorkspaceDamaged(self._tree, min(missing), "is missing")

    async def _clear(self, into: str, keep: Sequence[str]) -> None:
        if not into:
            await self._box.clear(f"{self._op}-clear", keep)
            return
        with contextlib.suppress(NotFound):
            await self._box.remove(
                f"{self._op}-clear", self._path(into), self._rule, recursive=True
            )

    async def _lay_out(self, entries: Sequence[TreeEntry], into: str, spool: Spool) -> None:
        """Write directories, files and links; finally set the modes of unwritable directories."""
        batch: list[FileWrite] = []
        size = 0
        closed: list[FileWrite] = []
        links: list[FileWrite] = []
        base = self._path(into)
        for entry in entries:
            path = f"{base}/{os.fsdecode(entry.path)}"
            size += len(path)
            if entry.kind == "dir":
                write = FileWrite(path=path, kind="dir", mode=entry.mode)
                if entry.mode & _OWNER != _OWNER:
                    closed.append(write)
                    write = FileWrite(path=path, kind="dir", mode=entry.mode | _OWNER)
                batch.append(write)
            elif entry.kind == "link":
                target = os.fsdecode(entry.target)
                links.append(FileWrite(path=path, kind="link", target=target))
            elif entry.size > (_BATCH_BYTES if entry.mode & _WRITABLE else _WHOLE_BYTES):
                await self._put(batch)
                batch, size = [], 0
                await self._big_file(path, entry, spool)
            else:
                data = b"".join(spool.pieces(entry))
                batch.append(FileWrite(path=path, data=data, mode=entry.mode))
                size += len(data)
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_ENTRIES:
                await self._put(batch)
                batch, size = [], 0
        await self._put(batch)
        await self._all_put()
        for some in _batches(links, _BATCH_ENTRIES, _path_length):
            await self._put(some)
        await self._all_put()
        closed.reverse()  # a directory before its parent
        for some in _batches(closed, _BATCH_ENTRIES, _path_length):
            await self._put(some)
            await self._all_put()

    async def _big_file(self, path: str, entry: TreeEntry, spool: Spool) -> None:
        await self._put([FileWrite(path=path, mode=entry.mode)])
        await self._all_put()
        at = 0
        for piece in spool.pieces(entry):
            for start in range(0, len(piece), _BATCH_BYTES):
                data = piece[start : start + _BATCH_BYTES]
                await self._box.append(self._next_op(), path, data, self._rule, at=at)
                at += len(data)

    async def _put(self, batch: Sequence[FileWrite]) -> None:
        """Write a batch. In an empty target, the box writes it while the next one is prepared."""
        if not batch:
            return
        if not self._is_empty:
            await self._box.change(self._next_op(), batch, self._rule)
            return
        while len(self._sent) >= _BATCHES_SENT:
            await self._sent.popleft()
        work = self._box.fill(self._next_op(), batch, self._rule)
        self._sent.append(asyncio.create_task(work))

    async def _all_put(self) -> None:
        while self._sent:
            await self._sent.popleft()

    def _next_op(self) -> str:
        self._batches += 1
        return f"{self._op}-{self._batches}"

    def _path(self, into: str) -> str:
        names = [self._box.root.strip("/"), into.strip("/")]
        return "/" + "/".join(name for name in names if name)


def _write_all(file: int, data: bytes, start: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, memoryview(data)[done:], start + done)


def _path_length(item: FileWrite | Entry) -> int:
    return len(item.path)


def _batches(items: Sequence[T], most: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """At most ``most`` items, or fewer if they are big, like the paths of deep trees."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) >= most or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _below(entry: TreeEntry, prefix: bytes) -> TreeEntry:
    if not prefix:
        return entry
    return msgspec.structs.replace(entry, path=prefix + b"/" + entry.path)
