"""Following a path inside the box, one component at a time, with descriptors.

Each component is opened relative to the one before without following links; links are followed
here, by hand. So the path that is checked is the path that is used: a link that is swapped in later
has no effect, because it is not followed.
"""

from __future__ import annotations

import os
import stat as modes

from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.refused import Refused

TYPE_CHECKING = False  # typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any


MAX_LINKS = 40
STAGE = b".sandstream-stage"
"""Where changes are prepared, below a root. Never shown."""

O_PATH = getattr(os, "O_PATH", 0o10000000)
LOOK = O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """A name in an open directory. ``close`` it, or use it as a context."""

    __slots__ = ("facts", "folder", "missing", "name", "path", "root")

    def __init__(
        self,
        folder: int,
        name: bytes,
        path: bytes,
        facts: os.stat_result | None,
        missing: list[bytes],
    ) -> None:
        self.folder = folder
        self.name = name
        self.path = path
        """Absolute, with all links followed."""
        self.facts = facts
        """None: the file does not exist."""
        self.missing = missing
        """Parents to be made between ``folder`` and ``name``, outermost first."""
        self.root = b""
        """The root of the rule that holds it."""

    @property
    def text(self) -> str:
        return wire.to_text(self.path)

    def is_dir(self) -> bool:
        return self.facts is not None and modes.S_ISDIR(self.facts.st_mode)

    def is_file(self) -> bool:
        return self.facts is not None and modes.S_ISREG(self.facts.st_mode)

    def refresh(self) -> None:
        self.facts = None if self.missing else look(self.folder, self.name)

    def close(self) -> None:
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def look(folder: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_exactly(path: bytes) -> int:
    """A directory that no link leads to."""
    fd = os.open(b"/", LOOK | os.O_DIRECTORY)
    for part in _parts(path):
        try:
            inner = os.open(part, LOOK | os.O_DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def not_found(asked: str) -> Refused:
    return Refused("NotFound", f"{asked}: no such file or directory", path=asked)


class Rule:
    """Where a path may end up."""

    def __init__(self, roots: list[tuple[bytes, bool]]) -> None:
        self._roots = sorted(roots, key=lambda root: len(root[0]), reverse=True)

    def root_of(self, path: bytes, asked: str, *, write: bool) -> bytes:
        """The innermost root that holds it. Raises PathEscapes."""
        for root, writable in self._roots:
            if path == root or path.startswith(root.rstrip(b"/") + b"/"):
                if write and not writable:
                    raise Refused(
                        "PathEscapes",
                        f"{asked} is in {wire.to_text(root)}, which may only be read",
                        reason="read_only",
                        path=asked,
                    )
                return root
        raise Refused(
            "PathEscapes",
            f"{asked} leads to {wire.to_text(path)}, outside of the sandbox's directories",
            reason="escape",
            path=asked,
        )


class Paths:
    """The box's root and how to get anywhere."""

    def __init__(self, root: str) -> None:
        self._named_root = os.path.normpath(wire.to_bytes(root))
        self.root = os.path.realpath(self._named_root)
        """Resolved once, when no command has run yet that could have changed where it leads."""

    def rule(self, asked: dict[str, Any]) -> Rule:
        roots = [(self.real(root), True) for root in asked["roots"]]
        roots += [(self.real(root), False) for root in asked["read_only_roots"]]
        return Rule(roots)

    def real(self, asked: str) -> bytes:
        """The path with the box's root resolved, and nothing else."""
        path = os.path.normpath(wire.to_bytes(asked))
        if path == self._named_root:
            return self.root
        if path.startswith(self._named_root.rstrip(b"/") + b"/"):
            return self.root + path[len(self._named_root) :]
        return path

    def resolve(
        self,
        asked: str,
        rule: Rule,
        *,
        write: bool = False,
        follow: bool = True,
        parents: bool = False,
    ) -> Place:
        """``follow``: also a link at the very end. ``parents``: those may be missing."""
        walk = _Walk(asked, follow=follow)
        try:
            place = walk.run()
        finally:
            walk.close()
        try:
            place.root = rule.root_of(place.path, asked, write=write)
            if place.missing and (not parents or b".." in [*place.missing, place.name]):
                raise not_found(asked)
        except Refused:
            place.close()
            raise
        return place


class _Walk:
    def __init__(self, asked: str, *, follow: bool) -> None:
        self._asked = asked
        self._follow = follow
        raw = wire.to_bytes(asked)
        if not raw.startswith(b"/") or b"\0" in raw:
            raise Refused("PathEscapes", f"not an absolute path: {asked}", reason="escape")
        self._left = _parts(raw)[::-1]
        self._names: list[bytes] = []
        """Of the directories passed so far. None of them is a link."""
        self._folders = [os.open(b"/", LOOK | os.O_DIRECTORY)]
        """The last of them, and the one that it lies in: a deep path must not use up all
        descriptors.
        """
        self._links = 0

    def close(self) -> None:
        for fd in self._folders:
            os.close(fd)

    def _go_to(self, fd: int) -> None:
        self._folders.append(fd)
        if len(self._folders) > 2:
            os.close(self._folders.pop(0))

    def _go_back_to(self, names: list[bytes]) -> None:
        """From the top again, the way that we came."""
        self.close()
        self._folders = [os.open(b"/", LOOK | os.O_DIRECTORY)]
        self._names = names
        for name in names:
            self._go_to(os.open(name, LOOK | os.O_DIRECTORY, dir_fd=self._folders[-1]))

    def run(self) -> Place:
        while self._left:
            name = self._left.pop()
            if name == b"..":
                self._go_back_to(self._names[:-1])
                continue
            place = self._step(name)
            if place is not None:
                return place
        return self._at_folder()

    def _step(self, name: bytes) -> Place | None:
        here = self._folders[-1]
        try:
            fd = os.open(name, LOOK, dir_fd=here)
        except FileNotFoundError:
            return self._missing(name)
        keep = False
        try:
            facts = os.fstat(fd)
            if modes.S_ISLNK(facts.st_mode) and (self._left or self._follow):
                self._follow_link(os.readlink(b"", dir_fd=fd))
            elif modes.S_ISDIR(facts.st_mode):
                self._names.append(name)
                self._go_to(fd)
                keep = True
            elif self._left:
                raise Refused(
                    "WrongKind",
                    f"{self._asked}: {wire.to_text(name)} is not a directory",
                    path=self._asked,
                )
            else:
                return Place(os.dup(here), name, self._path(name), facts, [])
        finally:
            if not keep:
                os.close(fd)
        return None

    def _follow_link(self, target: bytes) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise Refused(
                "PathEscapes",
                f"{self._asked}: more than {MAX_LINKS} links on the way",
                reason="depth",
                path=self._asked,
            )
        if target.startswith(b"/"):
            self._go_back_to([])
        self._left += _parts(target)[::-1]

    def _missing(self, name: bytes) -> Place:
        names = [name, *self._left[::-1]]
        path = self._path(b"/".join(names))
        return Place(os.dup(self._folders[-1]), names[-1], path, None, names[:-1])

    def _at_folder(self) -> Place:
        facts = os.fstat(self._folders[-1])
        if not self._names:
            return Place(os.dup(self._folders[0]), b".", b"/", facts, [])
        name = self._names[-1]
        path = b"/" + b"/".join(self._names)
        return Place(os.dup(self._folders[-2]), name, path, facts, [])

    def _path(self, name: bytes) -> bytes:
        return b"/" + b"/".join([*self._names, name])


def _parts(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]
