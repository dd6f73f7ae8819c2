"""The entries of a directory listing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sandstream.sandbox.types import Permissions


class EntryKind(StrEnum):
    DIRECTORY = "directory"
    FILE = "file"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One entry of ``session.ls``."""

    path: str
    permissions: Permissions
    owner: str
    group: str
    size: int
    kind: EntryKind = EntryKind.FILE

    def is_dir(self) -> bool:
        return self.kind == EntryKind.DIRECTORY
