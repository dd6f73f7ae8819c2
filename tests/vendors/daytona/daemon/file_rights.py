"""The files of a box as its user may use them, although the server may do more on the host."""

from __future__ import annotations

import errno
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vendors.box_files import UID
from vendors.daytona.daemon.daemon import Daemon
from vendors.daytona.refusals import Refusal

REASONS = {
    errno.ENOENT: "no such file or directory",
    errno.EACCES: "permission denied",
    errno.EROFS: "permission denied",
    errno.EISDIR: "is a directory",
    errno.ENOTDIR: "not a directory",
    errno.ENOTEMPTY: "directory not empty",
    errno.EEXIST: "file exists",
    errno.ELOOP: "too many levels of symbolic links",
    errno.ENAMETOOLONG: "file name too long",
    errno.ENOSPC: "no space left on device",
}
FLAGS = ((stat.S_ISUID, "u"), (stat.S_ISGID, "g"), (stat.S_ISVTX, "t"))
KINDS = {stat.S_IFDIR: "d", stat.S_IFIFO: "p", stat.S_IFSOCK: "S", stat.S_IFCHR: "Dc"}


class Files:
    """Finds the host's paths, and refuses what the box's user may not do."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._almighty = daemon.user == "root"

    def path(self, inside: str, *, follow: bool = True) -> Path:
        """The host's path of something to look at."""
        return self._daemon.machine.path(self._daemon.absolute(inside), follow=follow)

    def to_change(self, inside: str, *, follow: bool = True) -> Path:
        """The host's path of something to create, replace or remove.

        Raises:
            OSError: the box's user may not do that (EACCES).
        """
        absolute = self._daemon.absolute(inside)
        found = self._daemon.machine.path(absolute, follow=follow, write=True)
        self._check(_nearest(found.parent), stat.S_IWUSR, inside)
        return found

    def to_fill(self, inside: str) -> Path:
        """The host's path of a file to write."""
        found = self.to_change(inside)
        if found.is_dir():
            raise OSError(errno.EISDIR, "", inside)
        if found.exists():
            self._check(found, stat.S_IWUSR, inside)
        return found

    def to_read(self, inside: str) -> Path:
        found = self.path(inside)
        self._check(found, stat.S_IRUSR, inside)
        return found

    def described(self, inside: str, *, full_path: str | None = None) -> dict[str, Any]:
        """The object ``FileInfo`` of the daemon. Symbolic links are followed."""
        host = self.path(inside)
        found = host.stat()
        mine = host.is_relative_to(self._daemon.machine.files.root)
        owner = str((0 if self._almighty else UID) if mine else found.st_uid)
        whole, fraction = divmod(found.st_mtime_ns, 1_000_000_000)
        modified = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        digits = f".{fraction:09d}".rstrip("0").rstrip(".")
        described = {
            "name": os.path.basename(inside.rstrip("/")) or "/",  # noqa: PTH119
            "size": found.st_size,
            "mode": mode_text(found.st_mode),
            "modTime": f"{modified.replace('T', ' ')}{digits} +0000 UTC",
            "modifiedAt": f"{modified}{digits}Z",
            "isDir": stat.S_ISDIR(found.st_mode),
            "owner": owner,
            "group": owner,
            "permissions": f"{found.st_mode & 0o777:04o}",
        }
        if full_path is not None:
            described["path"] = full_path
        return described

    def _check(self, host: Path, right: int, inside: str) -> None:
        if not self._almighty and not host.stat().st_mode & right:
            raise OSError(errno.EACCES, "", inside)


def refusal(operation: str, inside: str, error: OSError) -> Refusal:
    """The daemon's answer to a failed operation on a file."""
    message = failure(operation, inside, error)
    match error.errno:
        case errno.ENOENT:
            return Refusal(404, message, "FILE_NOT_FOUND")
        case errno.EACCES | errno.EROFS | errno.EPERM:
            return Refusal(403, message, "FILE_ACCESS_DENIED")
        case _:
            return Refusal(400, message)


def failure(operation: str, inside: str, error: OSError) -> str:
    """The text of an error as the daemon's language writes it."""
    reason = REASONS.get(error.errno or 0) or os.strerror(error.errno or 0).lower()
    return f"{operation} {inside}: {reason}"


def mode_text(mode: int) -> str:
    """``-rw-r--r--``, with flags in front of the permissions: ``dtrwxrwxrwx``."""
    flags = KINDS.get(stat.S_IFMT(mode), "") + "".join(sign for bit, sign in FLAGS if mode & bit)
    bits = "".join("rwx"[-1 - i % 3] if mode >> i & 1 else "-" for i in range(8, -1, -1))
    return (flags or "-") + bits


def _nearest(host: Path) -> Path:
    """The path, or its nearest parent that exists."""
    while not host.exists():
        host = host.parent
    return host
