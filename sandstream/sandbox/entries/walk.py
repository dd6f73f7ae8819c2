"""Iterates over the entries of a manifest and checks their paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from sandstream.sandbox.entries.artifacts import Dir
from sandstream.sandbox.entries.base import BaseEntry
from sandstream.sandbox.errors import InvalidManifestPathError
from sandstream.sandbox.workspace_paths import (
    coerce_posix_path,
    posix_path_as_path,
    windows_absolute_path,
)


def posix_entry_path(path: str | PurePath) -> Path:
    """The path of an entry as given, in POSIX form."""
    if isinstance(path, str) and "\\" not in path and ":" not in path:
        return Path(path)  # fast path: manifests may be long and are walked often
    windows = windows_absolute_path(path)
    if windows is not None:
        raise InvalidManifestPathError(rel=windows.as_posix(), reason="absolute")
    return posix_path_as_path(coerce_posix_path(path))


def walk_entries(entries: Mapping[str | Path, BaseEntry]) -> Iterator[tuple[Path, BaseEntry]]:
    """All entries with their checked paths, in the given order, a directory before its contents."""
    pending = [(posix_entry_path(name), entry) for name, entry in reversed(list(entries.items()))]
    while pending:
        path, entry = pending.pop()
        if path.is_absolute():
            raise InvalidManifestPathError(rel=path.as_posix(), reason="absolute")
        if ".." in path.parts:
            raise InvalidManifestPathError(rel=path.as_posix(), reason="escape_root")
        yield path, entry
        if isinstance(entry, Dir):
            pending += [
                (path / posix_entry_path(name), child)
                for name, child in reversed(list(entry.children.items()))
            ]
