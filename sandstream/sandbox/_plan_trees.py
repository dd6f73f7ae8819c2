"""Stores the parts of a plan that are too big for the message, as trees in the object store."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from sandstream_bus.wire.sandboxes import PlanTree, wire_path
from sandstream_workspaces.errors import HostDirectoryFailed

from sandstream.sandbox import host_sources
from sandstream.sandbox.entries import BaseEntry, File, GitRepo, LocalDir, LocalFile
from sandstream.sandbox.errors import LocalDirReadError, LocalFileReadError
from sandstream.sandbox.local_git import clone_local
from sandstream.sandbox.materialization import gather_in_order


class TreeWriter(Protocol):
    """Stores files in the object store; returns the digest of the snapshot."""

    async def add_directory(
        self, path: Path, *, symlinks: Literal["reject", "keep", "skip"] = "reject"
    ) -> str:
        """Store a directory of this machine.

        Args:
            path: The directory.
            symlinks: What to do with symbolic links: refuse the directory, store them, or leave
                them out.

        Returns:
            The digest of the tree.
        """
        ...

    async def add_files(self, files: Sequence[tuple[str, bytes, int]]) -> str:
        """Store single files.

        Args:
            files: The path, the content and the mode of each.

        Returns:
            The digest of the tree.
        """
        ...


@dataclass(frozen=True)
class PlannedEntry:
    path: PurePosixPath
    entry: BaseEntry
    ephemeral: bool
    source: Path | None = None
    """The checked host file or directory, if there is one."""


async def store_trees(
    entries: Sequence[PlannedEntry], trees: TreeWriter, concurrency: int | None
) -> list[PlanTree]:
    """One tree for each directory, then one for all files in the same directory, because a file
    may replace a file of a directory entry.
    """
    jobs: list[Callable[[], Awaitable[PlanTree]]] = []
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="sandstream-plan-"))
    try:
        for number, each in enumerate(entries):
            if each.source is not None and isinstance(each.entry, LocalDir):
                jobs.append(partial(_store_directory, each, each.source, trees))
            if each.source is not None and isinstance(each.entry, GitRepo):
                clone = folder / f"git-{number}"
                jobs.append(partial(_store_clone, each, each.entry, each.source, trees, clone))
        for number, group in enumerate(_files_by_place(entries)):
            jobs.append(partial(_store_files, group, trees, folder / f"files-{number}"))
        return await gather_in_order(jobs, max_concurrency=concurrency)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


def _files_by_place(entries: Sequence[PlannedEntry]) -> list[list[PlannedEntry]]:
    """Group files by directory, so that a tree contains no directories: the manifest may declare
    other modes for them.
    """
    groups: dict[tuple[PurePosixPath, bool, bool], list[PlannedEntry]] = {}
    for each in entries:
        if isinstance(each.entry, File | LocalFile):
            place = (each.path.parent, each.ephemeral, each.source is None)
            groups.setdefault(place, []).append(each)
    return list(groups.values())


async def _store_files(group: list[PlannedEntry], trees: TreeWriter, staging: Path) -> PlanTree:
    in_memory = [
        (each.path.name, each.entry.content, each.entry.file_mode)
        for each in group
        if isinstance(each.entry, File)
    ]
    if in_memory:
        digest = await trees.add_files(in_memory)
    else:
        await asyncio.to_thread(_copy_files, group, staging)
        digest = await trees.add_directory(staging)
    return _tree(group[0].path.parent, digest, group[0].ephemeral)


def _copy_files(group: list[PlannedEntry], staging: Path) -> None:
    """Copy host files to a directory, each with its own name and mode in the workspace."""
    staging.mkdir(mode=0o755)
    for each in group:
        assert each.source is not None
        parent, name = each.source.parent, Path(each.source.name)
        target = staging / each.path.name
        with (
            host_sources.open_file(parent, name, LocalFileReadError) as source,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
        target.chmod(each.entry.file_mode)


async def _store_directory(each: PlannedEntry, source: Path, trees: TreeWriter) -> PlanTree:
    try:
        digest = await trees.add_directory(source)
    except HostDirectoryFailed as error:
        reason = "path_changed_during_copy" if error.reason == "changed" else error.reason
        context = {"reason": reason, "child": error.path}
        raise LocalDirReadError(src=source, context=context, cause=error) from error
    return _tree(each.path, digest, each.ephemeral)


async def _store_clone(
    each: PlannedEntry, repo: GitRepo, source: Path, trees: TreeWriter, clone: Path
) -> PlanTree:
    directory = await clone_local(repo, source, clone)
    digest = await trees.add_directory(directory, symlinks="keep")
    return _tree(each.path, digest, each.ephemeral)


def _tree(path: PurePosixPath, digest: str, ephemeral: bool) -> PlanTree:
    text = "" if not path.parts else wire_path(path.as_posix())
    return PlanTree(path=text, tree=digest, ephemeral=ephemeral)
