"""Checks the host files that a manifest names, and opens them without following links.

A source must be below the base directory or a path grant, and no part of its path may be a symbolic
link. Otherwise a link in a repository could send any file of the machine into a sandbox.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

from sandstream.sandbox.errors import LocalDirReadError, LocalFileReadError
from sandstream.sandbox.workspace_paths import SandboxPathGrant, sandbox_path_grant_host_path

ReadError = type[LocalFileReadError | LocalDirReadError]


def check_file(src: Path, base_dir: Path, grants: Sequence[SandboxPathGrant] = ()) -> Path:
    """The absolute path of a host file, if it may be read."""
    path = _check(src, base_dir, grants, LocalFileReadError)
    if not stat.S_ISREG(path.lstat().st_mode):
        raise _changed(path, Path(path.name), LocalFileReadError)
    return path


def check_directory(src: Path, base_dir: Path, grants: Sequence[SandboxPathGrant] = ()) -> Path:
    """The absolute path of a host directory, if it may be read. Its contents are not checked."""
    path = _check(src, base_dir, grants, LocalDirReadError)
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise _changed(path, src.relative_to(src.anchor), LocalDirReadError)
    return path


def list_files(root: Path) -> list[Path]:
    """The regular files below a directory, relative to it, sorted. Any link is an error."""
    found: list[Path] = []

    def unreadable(error: OSError) -> None:
        raise LocalDirReadError(src=root, cause=error) from error

    for folder, directories, files in os.walk(root, onerror=unreadable):
        for name in (*directories, *files):
            path = Path(folder, name)
            child = path.relative_to(root)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError as error:
                raise _changed(root, child, LocalDirReadError) from error
            if stat.S_ISLNK(mode):
                raise _link(root, child, LocalDirReadError)
            if stat.S_ISREG(mode):
                found.append(child)
    return sorted(found)


def open_file(root: Path, name: Path, error_class: ReadError) -> BufferedReader:
    """Open a regular file below ``root``, one path component at a time, without following links."""
    descriptors: list[int] = []
    try:
        descriptors.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        for part in name.parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            descriptors.append(os.open(part, flags, dir_fd=descriptors[-1]))
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(name.name, flags, dir_fd=descriptors[-1])
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise _changed(root, name, error_class)
        return os.fdopen(file, "rb")
    except OSError as error:
        raise _open_error(root, name, error_class, error) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _check(
    src: Path, base_dir: Path, grants: Sequence[SandboxPathGrant], error_class: ReadError
) -> Path:
    base = _without_dots(base_dir.absolute())
    path = _without_dots(base / src)
    roots = [base, *(sandbox_path_grant_host_path(grant) for grant in grants)]
    if not any(path.is_relative_to(root) for root in roots):
        context: dict[str, object] = {"reason": "outside_base_dir", "base_dir": str(base)}
        if grants:
            context["extra_path_grants"] = [grant.path for grant in grants]
        raise error_class(src=path, context=context)
    current = Path(src.anchor) if src.is_absolute() else base
    for part in src.relative_to(src.anchor).parts:
        current = current / part
        try:
            mode = current.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise error_class(src=path, context={"reason": "path_not_found"}) from None
        except OSError as error:
            raise error_class(src=path, cause=error) from error
        if stat.S_ISLNK(mode):
            label = current.relative_to(base) if current.is_relative_to(base) else current
            raise _link(path, label, error_class)
    return path


def _without_dots(path: Path) -> Path:
    """Remove ``..`` in the text only, since links are not followed."""
    return Path(os.path.normpath(path))


def _open_error(
    root: Path, name: Path, error_class: ReadError, error: OSError
) -> LocalFileReadError | LocalDirReadError:
    for path in [root, *(root / parent for parent in reversed(name.parents)), root / name]:
        if path.is_symlink():
            return _link(root, name, error_class)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _changed(root, name, error_class)
    return error_class(src=root / name, cause=error)


def _link(src: Path, child: Path, error_class: ReadError) -> LocalFileReadError | LocalDirReadError:
    context = {"reason": "symlink_not_supported", "child": child.as_posix()}
    return error_class(src=src, context=context)


def _changed(
    src: Path, child: Path, error_class: ReadError
) -> LocalFileReadError | LocalDirReadError:
    context = {"reason": "path_changed_during_copy", "child": child.as_posix()}
    return error_class(src=src, context=context)
