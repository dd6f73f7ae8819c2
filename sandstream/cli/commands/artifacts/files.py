"""Writes files of a workspace to this machine, and never outside the directory that was named.

Names come from an agent's workspace: they are checked, links are not followed while writing, and a
link that would lead out of the directory is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import msgspec
from sandstream_providers.interface import Entry
from sandstream_workspaces.archives import tar_of
from sandstream_workspaces.errors import NoSuchPath
from sandstream_workspaces.store import WorkspaceStore

from sandstream._inspect.visible_text import in_one_line
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.terminal.render import clean

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Saved(msgspec.Struct, kw_only=True):
    """What was written."""

    target: str
    files: int = 0
    size_bytes: int = 0
    left_out: list[str] = []


async def save_tree(
    store: WorkspaceStore, tree: str, path: str, output: str | None, *, force: bool, name: str
) -> Saved:
    """A file or a directory with all that is in it. ``name``: for the whole workspace."""
    entry = await store.lookup(tree, path) if path else Entry(path="", kind="dir")
    if entry is None:
        raise NoSuchPath(
            f"there is nothing at {path!r} in checkpoint {tree[:12]}; "
            "`sandstream artifacts ls` lists its files"
        )
    if entry.kind == "link":
        raise CliError(
            Exit.USAGE,
            f"{in_one_line(path)} is a link to {in_one_line(entry.target)}: get that instead",
        )
    base = posixpath.basename(path) or name
    if entry.kind == "file":
        if output == "-":
            return await _to_stdout(store.read_file(tree, path))
        target = _file_target(output, base)
        with _Writer(target.parent, force) as writer:
            await writer.file(target.name, store.read_file(tree, path), entry.mode)
        return Saved(target=str(target), files=1, size_bytes=entry.size)
    if output == "-":
        raise CliError(Exit.USAGE, "a directory can go to stdout only with --tar")
    target = Path(output) if output else Path(base)
    return await _save_directory(store, tree, path, target, force=force)


async def save_tar(store: WorkspaceStore, tree: str, output: str | None, *, force: bool) -> Saved:
    if output is None:
        raise CliError(Exit.USAGE, "--tar needs -o FILE, or -o - for stdout")
    if output == "-":
        if sys.stdout.isatty():
            raise CliError(Exit.USAGE, "a tar file cannot go to a terminal: use -o FILE, or a pipe")
        return await _to_stdout(tar_of(store, tree))
    target = _file_target(output, "workspace.tar")
    files = sum(entry.kind == "file" for entry in await store.entries(tree))
    with _Writer(target.parent, force) as writer:
        written = await writer.file(target.name, tar_of(store, tree), 0o644)
    return Saved(target=str(target), files=files, size_bytes=written)


def write_bytes(output: str, data: bytes, *, force: bool) -> None:
    """One whole file."""
    target = Path(output)
    with _Writer(target.parent, force) as writer, writer.opened(target.name, 0o644) as descriptor:
        _write_all(descriptor, data)


async def _save_directory(
    store: WorkspaceStore, tree: str, path: str, target: Path, *, force: bool
) -> Saved:
    prefix = f"{path}/" if path else ""
    below = [it for it in await store.entries(tree) if it.path.startswith(prefix)]
    entries = [(_checked(it.path[len(prefix) :]), it) for it in below]
    try:
        await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(Exit.USAGE, f"{target} cannot be made: {error.strerror}") from None
    saved = Saved(target=str(target), left_out=[])
    with _Writer(target, force) as writer:
        for relative, entry in entries:
            if entry.kind == "dir":
                writer.directory(relative)
            elif entry.kind == "link":
                if not _stays_inside(relative, entry.target):
                    link = f"{in_one_line(entry.path)} -> {in_one_line(entry.target)}"
                    saved.left_out.append(f"{link} (a link that leads out of the directory)")
                    continue
                writer.link(relative, entry.target)
            else:
                await writer.file(relative, store.read_file(tree, entry.path), entry.mode)
                saved.files += 1
                saved.size_bytes += entry.size
    return saved


class _Writer:
    """Writes below one directory, step by step without following a link."""

    def __init__(self, directory: Path, force: bool) -> None:
        self._directory = directory
        self._force = force
        try:
            self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise CliError(
                Exit.USAGE, f"cannot write to the directory {directory}: {error.strerror}"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def directory(self, relative: str) -> None:
        with self._parent(f"{relative}/x"):
            pass

    def link(self, relative: str, target: str) -> None:
        with self._parent(relative) as (parent, name):
            self._make_room(parent, name, relative)
            os.symlink(target, name, dir_fd=parent)

    async def file(self, relative: str, content: AsyncIterator[bytes], mode: int) -> int:
        written = 0
        with self.opened(relative, mode) as descriptor:
            async for piece in content:
                await asyncio.to_thread(_write_all, descriptor, piece)
                written += len(piece)
        return written

    @contextlib.contextmanager
    def opened(self, relative: str, mode: int) -> Iterator[int]:
        """A new file, in its place once it is whole."""
        with self._parent(relative) as (parent, name):
            self._make_room(parent, name, relative)
            temporary = f".sandstream-{os.getpid()}.part"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            descriptor = os.open(temporary, flags, mode & 0o777, dir_fd=parent)
            try:
                yield descriptor
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _parent(self, relative: str) -> Iterator[tuple[int, str]]:
        """The directory of a path, made if it is missing, and the path's last name."""
        *names, last = relative.split("/")
        current = os.dup(self._root)
        try:
            for name in names:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=current)
                inner = os.open(name, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = inner
            yield current, last
        except (TimeoutError, ConnectionError):  # of the bus, while the content was read
            raise
        except OSError as error:
            in_the_way = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
            why = "a file, directory or link is in the way" if in_the_way else error.strerror
            raise self._cannot(relative, str(why)) from None
        finally:
            os.close(current)

    def _make_room(self, parent: int, name: str, relative: str) -> None:
        try:
            os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not self._force:
            raise self._cannot(relative, "it exists (--force overwrites)")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)

    def _cannot(self, relative: str, why: str) -> CliError:
        path = in_one_line(str(self._directory / relative))
        return CliError(Exit.USAGE, f"{path} was not written: {why}")


def _file_target(output: str | None, base: str) -> Path:
    if output is None:
        return Path(_checked(base))
    target = Path(output)
    return target / _checked(base) if target.is_dir() or output.endswith("/") else target


def _checked(relative: str) -> str:
    """A relative path that cannot lead out of where it is put."""
    names = relative.split("/")
    if relative.startswith("/") or "\0" in relative or any(it in ("", ".", "..") for it in names):
        raise CliError(
            Exit.FAILED, f"the workspace has an impossible name: {in_one_line(relative)}"
        )
    return relative


def _stays_inside(relative: str, target: str) -> bool:
    """Does a link at ``relative`` lead to somewhere in the same directory? By its text alone."""
    if target.startswith("/"):
        return False
    end = posixpath.normpath(posixpath.join(posixpath.dirname(relative), target))
    return end != ".." and not end.startswith("../")


async def _to_stdout(content: AsyncIterator[bytes]) -> Saved:
    saved = Saved(target="-", files=1)
    is_terminal = sys.stdout.isatty()
    async for piece in content:
        saved.size_bytes += len(piece)
        data = clean(piece.decode("utf-8", "replace")).encode() if is_terminal else piece
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return saved


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
