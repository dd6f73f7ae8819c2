"""Entries that put files into a workspace: from memory, from this machine, from git."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    SerializationInfo,
    field_serializer,
    field_validator,
)

from sandstream.sandbox import host_sources
from sandstream.sandbox.entries.base import BaseEntry, EntryMap, dump_entries, parse_entries
from sandstream.sandbox.entries.git import GitRepo
from sandstream.sandbox.errors import LocalDirReadError, LocalFileReadError
from sandstream.sandbox.materialization import MaterializedFile
from sandstream.sandbox.types import User

__all__ = ["Dir", "File", "GitRepo", "LocalDir", "LocalFile"]


class File(BaseEntry):
    """A file with given content. Its JSON form is text, or base64 if the bytes are not UTF-8.

    Example:
        Manifest(entries={"notes/todo.txt": File(content=b"Buy milk.")})
    """

    type: Literal["file"] = "file"
    content: bytes
    """The content of the file."""

    @field_validator("content", mode="before")
    @classmethod
    def _decode(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        encoded = value.get("base64")
        if set(value) != {"base64"} or not isinstance(encoded, str):
            raise ValueError('content must be bytes, text or {"base64": "..."}')
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(f"content is not base64: {error}") from error

    @field_serializer("content", when_used="json")
    def _encode(self, content: bytes) -> str | dict[str, str]:
        try:
            return content.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(content).decode()}

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[MaterializedFile]:
        await session.write(dest, io.BytesIO(self.content))
        await self._apply_metadata(session, dest)
        return []


class Dir(BaseEntry):
    """A directory and its contents.

    Example:
        Dir(children={"a.txt": File(content=b"a"), "empty": Dir()})
    """

    type: Literal["dir"] = "dir"
    is_dir: bool = True
    children: EntryMap = Field(default_factory=dict)
    """The entries in the directory, by their names."""

    @field_validator("children", mode="before")
    @classmethod
    def _parse_children(cls, value: object) -> EntryMap:
        return parse_entries(value)

    @field_serializer("children")
    def _dump_children(self, children: EntryMap, info: SerializationInfo) -> dict[Any, Any]:
        return dump_entries(children, info.mode)

    def model_post_init(self, context: object, /) -> None:
        self.permissions.directory = True

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[MaterializedFile]:
        await session.mkdir(dest, parents=True)
        await self._apply_metadata(session, dest)
        files: list[MaterializedFile] = []
        for name, child in self.children.items():
            files += await child.apply(session, dest / name, base_dir)
        return files


class LocalFile(BaseEntry):
    """A copy of a file of this machine, from below the working directory or a path grant.

    Example:
        Manifest(entries={"data.csv": LocalFile(src="reports/data.csv")})
    """

    type: Literal["local_file"] = "local_file"
    src: Path
    """The file to copy; relative paths start at the working directory."""

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[MaterializedFile]:
        source = host_sources.check_file(self.src, base_dir, _grants(session))
        digest = await _copy(session, source.parent, Path(source.name), dest, LocalFileReadError)
        await self._apply_metadata(session, dest)
        return [MaterializedFile(path=dest, sha256=digest)]


class LocalDir(BaseEntry):
    """A copy of a directory of this machine, from below the working directory or a path grant.

    Example:
        Manifest(entries={"repo": LocalDir(src="project")})
    """

    type: Literal["local_dir"] = "local_dir"
    is_dir: bool = True
    src: Path | None = None
    """The directory to copy; ``None`` makes an empty directory."""

    def model_post_init(self, context: object, /) -> None:
        self.permissions.directory = True

    async def apply(
        self,
        session: Any,
        dest: Path,
        base_dir: Path,
        *,
        user: str | User | None = None,
    ) -> list[MaterializedFile]:
        """Copy the directory into a workspace.

        Args:
            session: The ``BaseSandboxSession`` to write through.
            dest: The absolute path in the sandbox.
            base_dir: The directory of this machine that relative sources start from.
            user: Write the files as this account, if the provider has accounts.

        Returns:
            The files that were copied, with their digests.
        """
        files: list[MaterializedFile] = []
        root, names = Path(), list[Path]()
        if self.src is not None:
            root = host_sources.check_directory(self.src, base_dir, _grants(session))
            names = host_sources.list_files(root)
        await session.mkdir(dest, parents=True, user=user)
        for name in names:
            digest = await _copy(session, root, name, dest / name, LocalDirReadError, user)
            files.append(MaterializedFile(path=dest / name, sha256=digest))
        if user is None:
            await self._apply_metadata(session, dest)
        return files


def _grants(session: Any) -> Any:
    return session.state.manifest.extra_path_grants


async def _copy(
    session: Any,
    root: Path,
    name: Path,
    dest: Path,
    error_class: type[LocalFileReadError | LocalDirReadError],
    user: str | User | None = None,
) -> str:
    """Copy a host file into the session; return its digest."""
    with host_sources.open_file(root, name, error_class) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        await session.mkdir(dest.parent, parents=True, user=user)
        await session.write(dest, file, user=user)
    return digest
