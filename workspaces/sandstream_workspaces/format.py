"""The format of a snapshot in the object store.

The root object lists segments. A segment is a sorted run of entries; an entry says which packs hold
its content. All are MessagePack and named by their SHA-256. A path starts a new segment if its own
checksum says so, regardless of its neighbours. So one changed file changes one segment and the
root. Times and owners are not stored: equal files give the same ``content`` digest at any time.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from sandstream_providers.interface import Entry

VERSION = 1
PERMISSIONS = 0o777
_CUT_MASK = 0xFF  # one path in 256 starts a segment

Kind = Literal["file", "dir", "link"]


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A piece of a file's content."""

    pack: bytes
    """The digest of the pack."""
    offset: int
    size: int


class TreeEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One path of a snapshot."""

    path: bytes
    kind: Kind
    mode: int = 0
    size: int = 0
    digest: bytes = b""
    target: bytes = b""
    parts: tuple[Part, ...] = ()

    def content(self) -> tuple[bytes, str, int, int, bytes, bytes]:
        """Everything except the place where the content is stored."""
        return (self.path, self.kind, self.mode, self.size, self.digest, self.target)

    def public(self) -> Entry:
        return Entry(
            path=os.fsdecode(self.path),
            kind=self.kind,
            mode=self.mode,
            size=self.size,
            digest=self.digest.hex(),
            target=os.fsdecode(self.target),
        )


def file_entry(
    path: bytes, mode: int, size: int, digest: bytes, parts: tuple[Part, ...]
) -> TreeEntry:
    return TreeEntry(path, "file", mode & PERMISSIONS, size, digest, b"", parts)


def dir_entry(path: bytes, mode: int = 0o755) -> TreeEntry:
    return TreeEntry(path, "dir", mode & PERMISSIONS)


def link_entry(path: bytes, target: bytes) -> TreeEntry:
    return TreeEntry(path, "link", 0o777, target=target)


class SegmentRef(msgspec.Struct, frozen=True, array_like=True):
    """The root's reference to a segment."""

    first: bytes
    """Its first path."""
    digest: bytes
    content: bytes
    """The digest of its entries without the places of their contents."""
    files: int
    size: int
    """The size of all its files, in bytes."""
    packs: tuple[bytes, ...]


class Root(msgspec.Struct, frozen=True, array_like=True):
    version: int
    content: bytes
    """Equal for equal files."""
    files: int
    size: int
    segments: tuple[SegmentRef, ...]

    def objects(self) -> set[bytes]:
        """All objects that it refers to."""
        return self.packs().union(segment.digest for segment in self.segments)

    def packs(self) -> set[bytes]:
        return set().union(*(segment.packs for segment in self.segments))


_encode = msgspec.msgpack.encode
_decode_entries = msgspec.msgpack.Decoder(tuple[TreeEntry, ...]).decode
_decode_root = msgspec.msgpack.Decoder(Root).decode


def path_bytes(path: str) -> bytes:
    return os.fsencode(path)


def starts_segment(path: bytes) -> bool:
    return zlib.crc32(path) & _CUT_MASK == 0


def cut(entries: Iterable[TreeEntry]) -> Iterator[tuple[TreeEntry, ...]]:
    """Split sorted entries into segments."""
    run: list[TreeEntry] = []
    for entry in entries:
        if run and starts_segment(entry.path):
            yield tuple(run)
            run = []
        run.append(entry)
    if run:
        yield tuple(run)


def encode_segment(entries: Sequence[TreeEntry]) -> tuple[SegmentRef, bytes]:
    """The reference to the segment, and its bytes."""
    data = _encode(entries)
    files = [entry for entry in entries if entry.kind == "file"]
    return (
        SegmentRef(
            first=entries[0].path,
            digest=hashlib.sha256(data).digest(),
            content=hashlib.sha256(_encode([entry.content() for entry in entries])).digest(),
            files=len(files),
            size=sum(entry.size for entry in files),
            packs=tuple(sorted({part.pack for entry in files for part in entry.parts})),
        ),
        data,
    )


def decode_segment(data: bytes) -> tuple[TreeEntry, ...]:
    """Raises ``msgspec.DecodeError``."""
    return _decode_entries(data)


def make_root(segments: Sequence[SegmentRef]) -> Root:
    content = hashlib.sha256(b"".join(segment.content for segment in segments)).digest()
    return Root(
        version=VERSION,
        content=content,
        files=sum(segment.files for segment in segments),
        size=sum(segment.size for segment in segments),
        segments=tuple(segments),
    )


def encode_root(root: Root) -> bytes:
    return _encode(root)


def decode_root(data: bytes) -> Root:
    """Raises ``msgspec.DecodeError``, also for an unknown version."""
    root = _decode_root(data)
    if root.version != VERSION:
        raise msgspec.DecodeError(f"is of format version {root.version}, known is {VERSION}")
    return root
