"""Convert between snapshots and archives: a snapshot as a tar stream, an archive as a snapshot."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tarfile
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from itertools import islice
from typing import BinaryIO

from sandstream_workspaces.archive_readers import Piece, Scheme, read_archive, tar_scheme
from sandstream_workspaces.archive_rules import ArchiveLimits, Member
from sandstream_workspaces.errors import ArchiveRejected
from sandstream_workspaces.format import TreeEntry, dir_entry, file_entry, link_entry
from sandstream_workspaces.packs import PackWriter, Placed
from sandstream_workspaces.restore import Spool
from sandstream_workspaces.store import WorkspaceStore

NO_LIMITS = ArchiveLimits()
_BLOCK = tarfile.BLOCKSIZE
_GROUP_BYTES = 4 * 1024 * 1024
_GROUP_MEMBERS = 500
_KINDS = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}


async def tar_of(store: WorkspaceStore, tree: str) -> AsyncIterator[bytes]:
    """The snapshot as a tar file; equal files give equal bytes. All contents are verified before
    the first byte is yielded.
    """
    entries = await store.tree_entries(tree)
    spool = Spool(tree)
    try:
        await store.spool(spool, entries)
        blocks = _blocks(spool, entries)
        while data := await asyncio.to_thread(_gather, blocks):
            yield data
    finally:
        spool.close()


async def tree_of_tar(
    store: WorkspaceStore, stream: AsyncIterable[bytes], limits: ArchiveLimits = NO_LIMITS
) -> str:
    """Make a snapshot from a tar file of a workspace, compressed or not."""
    return await _tree_of(store, stream, None, limits, strict=False)


async def tree_of_archive(
    store: WorkspaceStore,
    stream: AsyncIterable[bytes],
    scheme: Scheme | None,
    limits: ArchiveLimits = NO_LIMITS,
    *,
    strict: bool,
) -> str:
    """Make a snapshot from an archive. Without a scheme: a tar file, compressed or not.

    Raises :class:`ArchiveRejected`.
    """
    return await _tree_of(store, stream, scheme, limits, strict=strict)


async def _tree_of(
    store: WorkspaceStore,
    stream: AsyncIterable[bytes],
    scheme: Scheme | None,
    limits: ArchiveLimits,
    *,
    strict: bool,
) -> str:
    with tempfile.TemporaryFile() as file:
        await _receive(stream, file, limits.max_input_bytes)
        found = read_archive(file, scheme or tar_scheme(file), limits, strict=strict)
        async with store.packs() as packs:
            contents = _Contents(packs)
            while group := await asyncio.to_thread(_take_group, found):
                for piece in group:
                    await contents.add(piece)
            await packs.finish()
            return await store.write(contents.entries())


async def _receive(stream: AsyncIterable[bytes], file: BinaryIO, limit: int | None) -> None:
    size = 0
    async for data in stream:
        size += len(data)
        if limit is not None and size > limit:
            raise ArchiveRejected("it is too big", limit=limit, actual=size)
        await asyncio.to_thread(file.write, data)
    file.seek(0)


class _Contents:
    """Collects members and puts their contents into packs."""

    def __init__(self, packs: PackWriter) -> None:
        self._packs = packs
        self._members: list[tuple[Member, bytes]] = []
        self._parts: list[Placed] = []
        self._hasher = hashlib.sha256()

    async def add(self, piece: Piece) -> None:
        member = piece.member
        if member.kind != "file":
            self._members.append((member, b""))
            return
        self._hasher.update(piece.data)
        if piece.last and not self._parts:
            digest = self._hasher.digest()
            await self._packs.add(digest, piece.data)
        else:
            self._parts.append(await self._packs.add_part(piece.data))
            if not piece.last:
                return
            digest = self._hasher.digest()
            self._packs.place(digest, self._parts)
        self._members.append((member, digest))
        self._parts, self._hasher = [], hashlib.sha256()

    def entries(self) -> Iterator[TreeEntry]:
        for member, digest in self._members:
            if member.kind == "dir":
                yield dir_entry(member.path, member.mode)
            elif member.kind == "link":
                yield link_entry(member.path, member.target)
            else:
                parts = self._packs.parts(digest) if member.size else ()
                yield file_entry(member.path, member.mode, member.size, digest, parts)


def _take_group(found: Iterator[Piece]) -> list[Piece]:
    group: list[Piece] = []
    size = 0
    for piece in islice(found, _GROUP_MEMBERS):
        group.append(piece)
        size += len(piece.data)
        if size >= _GROUP_BYTES:
            break
    return group


def _blocks(spool: Spool, entries: list[TreeEntry]) -> Iterator[bytes]:
    for entry in entries:
        yield _header(entry)
        if entry.kind == "file":
            yield from spool.pieces(entry)
            yield bytes(-entry.size % _BLOCK)
    yield bytes(2 * _BLOCK)


def _header(entry: TreeEntry) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(entry.path))
    info.type = _KINDS[entry.kind]
    info.mode = entry.mode
    info.size = entry.size
    info.linkname = os.fsdecode(entry.target)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _gather(blocks: Iterator[bytes]) -> bytes:
    gathered: list[bytes] = []
    size = 0
    for block in blocks:
        gathered.append(block)
        size += len(block)
        if size >= _GROUP_BYTES:
            break
    return b"".join(gathered)
