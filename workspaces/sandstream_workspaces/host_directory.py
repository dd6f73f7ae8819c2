"""Make a snapshot of a host directory, without following links; concurrent changes are detected.

A file that has not changed since this process last read it (device, inode, size, times) is neither
read nor sent again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from sandstream_workspaces.errors import HostDirectoryFailed
from sandstream_workspaces.format import TreeEntry, dir_entry, file_entry, link_entry
from sandstream_workspaces.packs import PART_BYTES, PackWriter

SymlinkPolicy = Literal["reject", "keep", "skip"]
"""``keep``: store the link with its target; the target is not read."""

_REMEMBERED = 200_000
_CLOCK_TICK_NS = 20 * 1000 * 1000
_GROUP_BYTES = 4 * 1024 * 1024
_GROUP_FILES = 500


class _Stamp(NamedTuple):
    """Properties that change when the file changes."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> _Stamp:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class _File(NamedTuple):
    path: bytes
    mode: int
    stamp: _Stamp


class Found:
    """The content of a directory, once it is stored."""

    def __init__(self) -> None:
        self.others: list[TreeEntry] = []
        self.files: list[_File] = []
        self.digests: dict[bytes, bytes] = {}

    def entries(self, packs: PackWriter) -> Iterator[TreeEntry]:
        yield from self.others
        for file in self.files:
            digest = self.digests[file.path]
            size = file.stamp.size
            yield file_entry(
                file.path, file.mode, size, digest, packs.parts(digest) if size else ()
            )


class HostDirectories:
    """Reads host directories and remembers the digests of their files."""

    def __init__(self) -> None:
        self._digests: OrderedDict[_Stamp, bytes] = OrderedDict()

    async def read(self, root: Path, packs: PackWriter, symlinks: SymlinkPolicy) -> Found:
        """Put all contents into the packs. Raises :class:`HostDirectoryFailed`."""
        found = await asyncio.to_thread(_walk, root, symlinks)
        group: list[_File] = []
        group_bytes = 0
        for file in found.files:
            known = self._digests.get(file.stamp)
            if known is not None and (packs.has(known) or not file.stamp.size):
                found.digests[file.path] = known
            elif file.stamp.size > PART_BYTES:
                found.digests[file.path] = await self._big(root, file, packs)
            else:
                group.append(file)
                group_bytes += file.stamp.size
                if group_bytes >= _GROUP_BYTES or len(group) >= _GROUP_FILES:
                    await self._small(root, group, packs, found)
                    group, group_bytes = [], 0
        await self._small(root, group, packs, found)
        return found

    async def _small(self, root: Path, files: list[_File], packs: PackWriter, found: Found) -> None:
        started_ns = time.time_ns()
        contents = await asyncio.to_thread(_read_files, root, files)
        for file, (digest, data) in zip(files, contents, strict=True):
            await packs.add(digest, data)
            self._learn(file.stamp, digest, started_ns)
            found.digests[file.path] = digest

    async def _big(self, root: Path, file: _File, packs: PackWriter) -> bytes:
        started_ns = time.time_ns()
        hasher = hashlib.sha256()
        parts = []
        with _opened(root, file.path) as opened:
            _expect_unchanged(root, file, opened)
            size = 0
            while size < file.stamp.size:
                data = await asyncio.to_thread(os.pread, opened, PART_BYTES, size)
                if not data:
                    break
                size += len(data)
                await asyncio.to_thread(hasher.update, data)
                parts.append(await packs.add_part(data))
            _expect_unchanged(root, file, opened)
        digest = hasher.digest()
        packs.place(digest, parts)
        self._learn(file.stamp, digest, started_ns)
        return digest

    def _learn(self, stamp: _Stamp, digest: bytes, read_at_ns: int) -> None:
        if max(stamp.mtime_ns, stamp.ctime_ns) > read_at_ns - _CLOCK_TICK_NS:
            return  # it could change again within the same tick of the file system's clock
        self._digests[stamp] = digest
        self._digests.move_to_end(stamp)
        if len(self._digests) > _REMEMBERED:
            self._digests.popitem(last=False)


def _walk(root: Path, symlinks: SymlinkPolicy) -> Found:
    found = Found()
    if not stat.S_ISDIR(_stat(root, b"", os.fsencode(root), None).st_mode):
        raise HostDirectoryFailed("", "wrong_kind", f"{root} is not a directory (or is a link)")
    for directory, folders, names, at in os.fwalk(
        os.fsencode(root), follow_symlinks=False, onerror=_unreadable
    ):
        prefix = os.path.relpath(directory, os.fsencode(root))
        prefix = b"" if prefix == b"." else prefix + b"/"
        folders.sort()
        for name in sorted([*folders, *names]):
            path = prefix + name
            info = _stat(root, path, name, at)
            if stat.S_ISDIR(info.st_mode):
                found.others.append(dir_entry(path, info.st_mode))
            elif stat.S_ISREG(info.st_mode):
                found.files.append(_File(path, stat.S_IMODE(info.st_mode), _Stamp.of(info)))
            elif stat.S_ISLNK(info.st_mode):
                if symlinks == "reject":
                    raise HostDirectoryFailed(
                        os.fsdecode(path),
                        "symlink_not_supported",
                        f"{os.fsdecode(path)!r} in {root} is a symbolic link. Replace it by what "
                        "it points to.",
                    )
                if symlinks == "keep":
                    found.others.append(link_entry(path, os.readlink(name, dir_fd=at)))
    return found


def _stat(root: Path, path: bytes, name: bytes, at: int | None) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError as error:
        if at is None:
            raise HostDirectoryFailed("", "not_readable", f"there is no {root}") from error
        raise _changed(root, path) from error


def _unreadable(error: OSError) -> None:
    reason = "wrong_kind" if isinstance(error, NotADirectoryError) else "not_readable"
    raise HostDirectoryFailed(
        os.fsdecode(error.filename or ""), reason, f"cannot read a host directory: {error}"
    ) from error


def _read_files(root: Path, files: list[_File]) -> list[tuple[bytes, bytes]]:
    contents = []
    for file in files:
        with _opened(root, file.path) as opened:
            _expect_unchanged(root, file, opened)
            data = b""
            while len(data) < file.stamp.size:
                more = os.read(opened, file.stamp.size - len(data))
                if not more:
                    break
                data = data + more if data else more
            _expect_unchanged(root, file, opened)
        contents.append((hashlib.sha256(data).digest(), data))
    return contents


@contextmanager
def _opened(root: Path, path: bytes) -> Iterator[int]:
    """Open a file below the root step by step, so that no link on the way is followed."""
    *folders, name = path.split(b"/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = -1
    try:
        at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for folder in folders:
            at, above = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at), at
            os.close(above)
        file = os.open(name, flags | os.O_NONBLOCK, dir_fd=at)
    except PermissionError as error:
        shown = os.fsdecode(path)
        raise HostDirectoryFailed(
            shown, "not_readable", f"cannot read {shown!r} in {root}: {error}"
        ) from error
    except OSError as error:
        raise _changed(root, path) from error
    finally:
        if at >= 0:
            os.close(at)
    try:
        yield file
    finally:
        os.close(file)


def _expect_unchanged(root: Path, file: _File, opened: int) -> None:
    if _Stamp.of(os.fstat(opened)) != file.stamp:
        raise _changed(root, file.path)


def _changed(root: Path, path: bytes) -> HostDirectoryFailed:
    shown = os.fsdecode(path)
    return HostDirectoryFailed(
        shown, "changed", f"{shown!r} in {root} changed while it was read. Try again."
    )
