"""What an archive may contain: nothing that could end up outside the root, nothing ambiguous.

``strict`` (for unpacking an untrusted archive) also refuses links.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple

import msgspec

from sandstream_workspaces.errors import ArchiveRejected
from sandstream_workspaces.format import Kind

_LONGEST_PATH = 4096
_MOST_LINKS = 40


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for reading an archive; ``None`` means no limit."""

    max_input_bytes: int | None = None
    """The limit for the archive file itself."""
    max_extracted_bytes: int | None = None
    max_members: int | None = None


class Member(NamedTuple):
    """A member that was admitted."""

    path: bytes
    kind: Kind
    mode: int
    size: int
    target: bytes


class MemberRules:
    """Sees all members of one archive in order. Admits each or raises :class:`ArchiveRejected`."""

    def __init__(self, limits: ArchiveLimits, *, strict: bool) -> None:
        self._limits = limits
        self._strict = strict
        self._kinds: dict[PurePosixPath, Kind] = {}
        self._parents: set[PurePosixPath] = set()
        self._links: dict[PurePosixPath, tuple[str, str]] = {}
        self._members = 0
        self._extracted = 0

    def admit(self, name: str, kind: Kind, mode: int, size: int, target: str = "") -> Member | None:
        """Check a member and return it; ``None`` for the root itself, which needs no entry."""
        path = self._path(name, kind)
        if path is None:
            return None
        if kind == "link":
            self._check_link(name, path, target)
        if size < 0:
            raise ArchiveRejected("negative size", member=name)
        self._count(name, size)
        self._place(name, path, kind)
        if self._strict:
            mode |= 0o700 if kind == "dir" else 0o600
        return Member(os.fsencode(str(path)), kind, mode, size, os.fsencode(target))

    def finish(self) -> None:
        """Call after the last member: checks that no chain of links leads out of the root."""
        for path, (name, target) in self._links.items():
            if self._leads_out(path, target):
                raise ArchiveRejected(
                    f"symlink leads out of the root through other links: {target}", member=name
                )

    def _path(self, name: str, kind: Kind) -> PurePosixPath | None:
        if PureWindowsPath(name).drive:
            raise ArchiveRejected("windows drive path", member=name)
        if "\\" in name:
            raise ArchiveRejected("windows path separator", member=name)
        if "\0" in name or len(os.fsencode(name)) > _LONGEST_PATH:
            raise ArchiveRejected("impossible name", member=name[:200])
        path = PurePosixPath(name)
        if path.is_absolute():
            raise ArchiveRejected("absolute path", member=name)
        if ".." in path.parts:
            raise ArchiveRejected("parent traversal", member=name)
        if path.parts:
            return path
        if kind != "dir":
            raise ArchiveRejected("the root must be a directory", member=name)
        return None

    def _check_link(self, name: str, path: PurePosixPath, target: str) -> None:
        if self._strict:
            raise ArchiveRejected("symlink not allowed", member=name)
        if not target or "\0" in target or len(os.fsencode(target)) > _LONGEST_PATH:
            raise ArchiveRejected("impossible symlink target", member=name)
        if target.startswith("/"):
            raise ArchiveRejected(f"absolute symlink target: {target}", member=name)
        depth = len(path.parts) - 1
        for part in PurePosixPath(target).parts:
            depth += -1 if part == ".." else 1
            if depth < 0:
                raise ArchiveRejected(f"symlink target leaves the root: {target}", member=name)
        self._links[path] = (name, target)

    def _count(self, name: str, size: int) -> None:
        self._members += 1
        most = self._limits.max_members
        if most is not None and self._members > most:
            raise ArchiveRejected("too many members", member=name, limit=most, actual=self._members)
        self._extracted += size
        most = self._limits.max_extracted_bytes
        if most is not None and self._extracted > most:
            raise ArchiveRejected(
                "its content is too big", member=name, limit=most, actual=self._extracted
            )

    def _place(self, name: str, path: PurePosixPath, kind: Kind) -> None:
        before = self._kinds.get(path)
        if before is not None and not (before == kind == "dir"):
            raise ArchiveRejected(f"duplicate path: {path}", member=name)
        for parent in path.parents:
            if not parent.parts or parent in self._parents:
                break
            above = self._kinds.get(parent, "dir")
            if above != "dir":
                raise ArchiveRejected(f"descends through a {above}: {parent}", member=name)
        if kind != "dir" and path in self._parents:
            raise ArchiveRejected(f"is a {kind} with something below it: {path}", member=name)
        self._kinds[path] = kind
        for parent in path.parents:
            if not parent.parts or parent in self._parents:
                break
            self._parents.add(parent)

    def _leads_out(self, path: PurePosixPath, target: str) -> bool:
        """Follow the links of the archive itself. A cycle does not lead out."""
        at = list(path.parts[:-1])
        steps = list(reversed(PurePosixPath(target).parts))
        followed = 0
        while steps:
            step = steps.pop()
            if step == "..":
                if not at:
                    return True
                at.pop()
                continue
            at.append(step)
            link = self._links.get(PurePosixPath(*at))
            if link is not None:
                followed += 1
                if followed > _MOST_LINKS:
                    return False
                at.pop()
                steps.extend(reversed(PurePosixPath(link[1]).parts))
        return False
