"""The files of a vendor box on the host: its root directory, and paths of the box found in it.

A box sees its own root directory, with ``/usr`` and ``/etc`` of the host mounted read-only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

UID = 1000
"""The user of every box, as the box sees it; on the host the files belong to the test's user."""
_MOST_USERS = 2000
_OUTSIDE = 58_000
"""The first of the host's user ids that are users of boxes. No real user has one of them."""
PROGRAMS = "/.vendor/bin"
"""The last directory of the search path: the programs that the vendor adds to a box."""
_MOST_SYMLINKS = 40
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MOUNT_POINTS = ("usr", "etc", "proc", "dev", ".vendor")
_CLOSED = ("", "home", "opt", "mnt", "srv", "run", "var", "root")
_HOST = ("usr", "etc")


class BoxFiles:
    """One box's directory: ``root`` is the box's ``/``, ``etc`` holds its own few system files."""

    def __init__(self, directory: Path, *, home: str, user: str) -> None:
        self.directory = directory
        self.root = directory / "root"
        self.etc = directory / "etc"
        self.home = home
        self.user = user
        self.has_users = os.geteuid() == 0
        """A box has other users than its own if the server may give it their ids."""

    @property
    def uid(self) -> int:
        """The box's own user, as the box sees it."""
        return 0 if self.user == "root" else UID

    def users(self) -> list[tuple[int, int, int]]:
        """Ranges of user ids: the first in the box, the first outside, how many."""
        after = self.uid + 1
        ranges = [
            (0, _OUTSIDE, self.uid),
            (self.uid, os.geteuid(), 1),
            (after, _OUTSIDE + after, _MOST_USERS - after),
        ]
        return [it for it in ranges if it[2]]

    @property
    def _root_outside(self) -> int:
        return os.geteuid() if self.user == "root" else _OUTSIDE

    def create(self, extra_dirs: Iterable[str] = ()) -> None:
        """Make what a new box has; a box that has existed before keeps its files."""
        for name in (*_CLOSED, *_MOUNT_POINTS, "tmp", "var/tmp"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for path in (self.home, *extra_dirs):
            (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "var/tmp"):
            (self.root / name).chmod(0o1777)
        for name in _SYSTEM:
            source, target = Path("/", name), self.root / name
            if source.is_symlink() and not target.is_symlink():
                target.symlink_to(source.readlink())
            elif source.is_dir() and not source.is_symlink():
                target.mkdir(exist_ok=True)
        self._write_etc()
        if self.has_users:  # an ordinary user could not make directories there afterwards
            for name in _CLOSED:
                os.chown(self.root / name, self._root_outside, self._root_outside)
                (self.root / name).chmod(0o555)

    def _write_etc(self) -> None:
        """What the box has changed stays."""
        self.etc.mkdir(parents=True, exist_ok=True)
        users = f"root:x:0:0:root:/root:/bin/bash\n{self.user}:x:{UID}:{UID}::{self.home}:/bin/bash"
        path = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{PROGRAMS}"
        texts = {
            "passwd": f"{users}\n",
            "group": f"root:x:0:\n{self.user}:x:{UID}:\n",
            "profile": f"PATH={path}\nexport PATH\n",
        }
        for name, text in texts.items():
            if not (self.etc / name).exists():
                (self.etc / name).write_text(text)
                if self.has_users:
                    os.chown(self.etc / name, self._root_outside, self._root_outside)

    def mounts(self) -> list[str]:
        """Arguments of bubblewrap that show these files."""
        arguments = ["--bind", str(self.root), "/", "--ro-bind", "/usr", "/usr"]
        for name in _SYSTEM:
            if Path("/", name).is_dir() and not Path("/", name).is_symlink():
                arguments += ["--ro-bind", f"/{name}", f"/{name}"]
        arguments += ["--ro-bind", "/etc", "/etc"]
        for name in ("passwd", "group", "profile"):
            bind = "--bind" if self.has_users else "--ro-bind"
            arguments += [bind, str(self.etc / name), f"/etc/{name}"]
        return arguments

    def path(self, inside: str, *, follow: bool = True, write: bool = False) -> Path:
        """The host's path for an absolute path of the box.

        Symbolic links are resolved as the box would, so that none leads out of it.

        Args:
            follow: Resolve the last component too, if it is a symbolic link.
            write: The caller will change something there, or remove it.

        Raises:
            OSError: ELOOP for a circle of links; ENOENT for a path in ``/proc`` or ``/dev``, which
                the host cannot see; EROFS for ``write`` to ``/usr`` or ``/etc``, which are the
                host's own.
        """
        found = self._resolved(inside, follow)
        if write and not found.is_relative_to(self.root):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), inside)
        return found

    def _resolved(self, inside: str, follow: bool) -> Path:
        if not inside.startswith("/"):
            raise ValueError(f"not an absolute path: {inside!r}")
        todo = [part for part in inside.split("/") if part not in ("", ".")][::-1]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done[:-1]
                continue
            here = self._host([*done, part])
            if here.is_symlink() and (follow or todo):
                links += 1
                if links > _MOST_SYMLINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), inside)
                target = str(here.readlink())
                if target.startswith("/"):
                    done = []
                todo += [part for part in target.split("/") if part not in ("", ".")][::-1]
                continue
            done.append(part)
        return self._host(done)

    def inside(self, host: Path) -> str:
        """The box's path for a path that :meth:`path` returned."""
        if host.is_relative_to(self.root):
            return str(PurePosixPath("/") / host.relative_to(self.root).as_posix())
        if host.is_relative_to(self.etc):
            return str(PurePosixPath("/etc") / host.relative_to(self.etc).as_posix())
        return str(host)

    def _host(self, parts: list[str]) -> Path:
        if parts and parts[0] in ("proc", "dev", ".vendor"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(["", *parts]))
        if parts[:1] == ["etc"] and (own := self.etc.joinpath(*parts[1:])).is_file():
            return own
        if parts and parts[0] in _HOST:
            return Path("/", *parts)
        if len(parts) > 1 and parts[0] in _SYSTEM:
            return Path("/", *parts)
        return self.root.joinpath(*parts)

    def copy_to(self, directory: Path) -> None:
        """Copy the files of the box for another one, with links, modes and times."""
        directory.mkdir(parents=True)
        for source in (self.root, self.etc):
            copy = ["cp", "-a", "--reflink=auto", str(source), str(directory / source.name)]
            subprocess.run(copy, check=True, capture_output=True)

    def lose(self, share: float) -> list[str]:
        """Remove this share of the regular files, the newest first: a restore that went wrong."""
        found = [
            path
            for path in self.root.rglob("*")
            if not path.is_symlink() and path.is_file() and os.access(path.parent, os.W_OK)
        ]
        found.sort(key=lambda path: (path.stat().st_mtime, str(path)), reverse=True)
        lost = found[: round(len(found) * share)]
        for path in lost:
            path.unlink()
        return [self.inside(path) for path in lost]

    def remove(self) -> None:
        """Remove everything, also directories that the box has closed to its user."""
        for folder, names, _ in os.walk(self.directory):
            for name in names:
                path = Path(folder, name)
                if not path.is_symlink() and path.stat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
                    with contextlib.suppress(OSError):
                        path.chmod(0o700)
        shutil.rmtree(self.directory, ignore_errors=True)
