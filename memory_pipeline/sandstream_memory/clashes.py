"""Resolve path clashes: a file whose path is also a folder of another file.

No workspace can hold both, but two workspaces can hold one each, and a merge brings them together.
A memory with such a pair could not be laid out in any workspace.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from sandstream_memory.layout import (
    KNOWN_FILES,
    KNOWN_FOLDERS,
    folders_of,
    is_editable,
    is_valid_path,
)

_Content = TypeVar("_Content")
_MOST_NAMES = 100


def without_clashes(files: Mapping[str, _Content]) -> tuple[dict[str, _Content], list[str]]:
    """The files without path clashes, and notes on what was changed.

    A file in the place of a folder is renamed, so that nothing is lost. Only files below one of the
    pipeline's own files are dropped, because that file's name is fixed.
    """
    notes: list[str] = []
    fixed = {path for path in files if not is_editable(path)} - KNOWN_FOLDERS | KNOWN_FILES
    kept: dict[str, _Content] = {}
    for path, content in files.items():
        above = next((it for it in folders_of(path) if it in fixed), None)
        if above is None:
            kept[path] = content
        else:
            notes.append(f"{path} was left out: {above} is a file")
    folders = {it for path in kept for it in folders_of(path)} | KNOWN_FOLDERS
    for path in sorted(folders & kept.keys()):
        content = kept.pop(path)
        name = _free_name(path, content, kept, folders)
        if name is None:
            notes.append(f"{path} was left out: it is a folder, too")
        else:
            kept[name] = content
            notes.append(f"{path} is called {name} now: it is a folder, too")
    return dict(sorted(kept.items())), notes


def _free_name(
    path: str, content: _Content, files: Mapping[str, _Content], folders: Collection[str]
) -> str | None:
    """The first name that is free or already has this content: the same clash may recur."""
    for number in range(1, _MOST_NAMES + 1):
        name = f"{path}.file" if number == 1 else f"{path}.file-{number}"
        is_free = name not in files or files[name] == content
        if is_free and name not in folders:
            return name if is_valid_path(name) else None
    return None
