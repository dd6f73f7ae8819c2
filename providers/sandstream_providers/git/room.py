"""The directory in which git works for one clone, outside of the files of all boxes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from sandstream_providers.processes import ChildFds
from sandstream_providers.removal import remove_tree

Command = Callable[[ChildFds, "str | None"], list[str]]
"""The words before git on its command line. The text is a directory to clone from, if it is one."""


def _bare(_fds: ChildFds, _source: str | None) -> list[str]:
    return []


class CloneRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Owned by the context manager that gave it; the directory is removed at the end."""

    folder: Path
    place: str
    """The same directory as git sees it."""
    is_caged: bool = False
    command: Command = _bare


@contextlib.asynccontextmanager
async def temporary_room() -> AsyncIterator[CloneRoom]:
    """A directory of this machine. Git runs as this user: it executes nothing of a repository."""
    folder = Path(tempfile.mkdtemp(prefix="sandstream-git-"))
    try:
        yield CloneRoom(folder=folder, place=str(folder))
    finally:
        await remove_tree(folder)
