"""Files of a box as the daemon describes them, and the operations on them.

The daemon runs as root: it writes everywhere, and gives what it makes to the user who asked.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vendors.e2b.connect_rpc import RpcError
from vendors.machine import Machine

_XATTR = "user.e2b."
_TYPES = ((stat.S_ISREG, "FILE_TYPE_FILE"), (stat.S_ISDIR, "FILE_TYPE_DIRECTORY"))
_LETTERS = (
    (stat.S_ISDIR, "d"),
    (stat.S_ISLNK, "L"),
    (stat.S_ISBLK, "D"),
    (stat.S_ISFIFO, "p"),
    (stat.S_ISSOCK, "S"),
    (stat.S_ISCHR, "Dc"),
)


def entry(machine: Machine, path: str) -> dict[str, Any]:
    """Describe a path; a symbolic link is described with the type of what it leads to."""
    try:
        found = machine.path(path, follow=False)
        info = found.lstat()
    except OSError as error:
        what = f"lstat {path}"
        raise _file_error(error, what, "file not found", "error getting file info") from None
    kind_mode = info.st_mode
    described: dict[str, Any] = {}
    if stat.S_ISLNK(info.st_mode):
        try:
            target = machine.path(path)
            kind_mode = target.stat().st_mode
            described["symlinkTarget"] = machine.files.inside(target)
        except OSError:
            kind_mode = 0
            described["symlinkTarget"] = path
    kind = next((name for test, name in _TYPES if test(kind_mode)), None)
    ours = found.is_relative_to(machine.files.root)
    owner = machine.files.user if ours else "root"
    described |= {
        "name": posixpath.basename(path.rstrip("/")) or "/",
        "path": path,
        "mode": stat.S_IMODE(kind_mode) & 0o777,
        "permissions": _permissions(info.st_mode),
        "owner": owner,
        "group": owner,
        "modifiedTime": _stamp(info.st_mtime_ns),
    }
    if kind is not None:
        described["type"] = kind
    if info.st_size:
        described["size"] = str(info.st_size)
    if metadata := read_metadata(found):
        described["metadata"] = metadata
    return {name: value for name, value in described.items() if value != 0}


def list_directory(machine: Machine, path: str, depth: int) -> list[dict[str, Any]]:
    """The entries below a directory, in order; links are not followed."""
    try:
        top = machine.path(path)
        info = top.stat()
    except OSError as error:
        what = f"lstat {path}"
        raise _file_error(error, what, "path not found", "error resolving symlink") from None
    if not stat.S_ISDIR(info.st_mode):
        raise RpcError("invalid_argument", f"path is not a directory: {path}")
    found: list[dict[str, Any]] = []
    _walk(machine, path, top, depth, found)
    return found


def _walk(
    machine: Machine, path: str, folder: Path, depth: int, found: list[dict[str, Any]]
) -> None:
    for name in sorted(os.listdir(folder)):  # noqa: PTH208
        inner = posixpath.join(path, name)
        try:
            described = entry(machine, inner)
        except RpcError as error:
            if error.code == "not_found":
                continue
            raise
        found.append(described)
        below = folder / name
        if depth > 1 and below.is_dir() and not below.is_symlink():
            _walk(machine, inner, below, depth - 1, found)


def make_directory(machine: Machine, path: str) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        if machine.path(path).is_dir():
            raise RpcError("already_exists", f"directory already exists: {path}")
        if machine.path(path).exists():
            text = f"path already exists but it is not a directory: {path}"
            raise RpcError("invalid_argument", text)
    try:
        ensure_directories(machine, path)
    except OSError as error:
        raise RpcError("internal", f"failed to create directory: {_go(error)}") from None
    return entry(machine, path)


def ensure_directories(machine: Machine, path: str) -> None:
    """Make a directory with those above it. Raises ``OSError``."""
    found = machine.path(path, write=not machine.path(path).is_dir())
    if found.is_dir():
        return
    parent = posixpath.dirname(path.rstrip("/"))
    if parent not in ("", "/"):
        ensure_directories(machine, parent)
    found.mkdir(mode=0o755, exist_ok=True)
    found.chmod(0o755)


def move(machine: Machine, source: str, destination: str) -> dict[str, Any]:
    try:
        ensure_directories(machine, posixpath.dirname(destination.rstrip("/")) or "/")
        old = machine.path(source, follow=False, write=True)
        old.rename(machine.path(destination, follow=False, write=True))
    except OSError as error:
        what = f"rename {source} {destination}"
        raise _file_error(error, what, "source file not found", "error renaming") from None
    return entry(machine, destination)


def remove(machine: Machine, path: str) -> None:
    """Remove a file or a whole directory; what does not exist is not an error."""
    try:
        found = machine.path(path, follow=False, write=True)
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)
    except OSError as error:
        text = f"error removing file or directory: {_go(error)}"
        raise RpcError("internal", text) from None


def read_metadata(path: Path) -> dict[str, str]:
    """What clients attached to a file."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {
            name.removeprefix(_XATTR): os.getxattr(path, name, follow_symlinks=False).decode()
            for name in names
            if name.startswith(_XATTR)
        }
    except OSError:
        return {}


def write_metadata(path: Path, metadata: dict[str, str]) -> None:
    """Replace what was attached before. A file system without attributes keeps nothing."""
    with contextlib.suppress(OSError):
        for name in read_metadata(path):
            os.removexattr(path, _XATTR + name)
        for name, value in metadata.items():
            os.setxattr(path, _XATTR + name, value.encode())


def _permissions(mode: int) -> str:
    letters = next((letter for test, letter in _LETTERS if test(mode)), "")
    for bit, letter in ((stat.S_ISUID, "u"), (stat.S_ISGID, "g"), (stat.S_ISVTX, "t")):
        letters += letter if mode & bit else ""
    return (letters or "-") + stat.filemode(stat.S_IFREG | mode & 0o777)[1:]


def _stamp(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def _go(error: OSError) -> str:
    return (error.strerror or "").lower()


def _file_error(error: OSError, what: str, missing: str, other: str) -> RpcError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return RpcError("not_found", f"{missing}: {what}: {_go(error)}")
    return RpcError("internal", f"{other}: {what}: {_go(error)}")
