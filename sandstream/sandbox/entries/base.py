"""The base of manifest entries, and the registry that parses entries by ``type``."""

from __future__ import annotations

import abc
import builtins
import inspect
import posixpath
import stat
from collections.abc import Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from sandstream.sandbox._registry import register_by_type, type_name
from sandstream.sandbox.errors import ExecNonZeroError, InvalidManifestPathError
from sandstream.sandbox.materialization import MaterializedFile
from sandstream.sandbox.types import FileMode, Group, Permissions, User
from sandstream.sandbox.workspace_paths import (
    coerce_posix_path,
    posix_path_as_path,
    sandbox_path_str,
    windows_absolute_path,
)


def resolve_workspace_path(
    workspace_root: str | PurePath,
    rel: str | PurePath,
    *,
    allow_absolute_within_root: bool = False,
) -> Path:
    """The absolute path of a path in the workspace.

    Args:
        workspace_root: The root of the workspace.
        rel: The path, relative to the root.
        allow_absolute_within_root: Also accept an absolute path below the root.

    Returns:
        The absolute path.

    Raises:
        InvalidManifestPathError: The path is absolute or leaves the workspace.
    """
    windows = windows_absolute_path(rel)
    if windows is not None:
        raise InvalidManifestPathError(rel=windows.as_posix(), reason="absolute")
    path = coerce_posix_path(rel)
    root = coerce_posix_path(workspace_root)
    if not path.is_absolute():
        if ".." in path.parts:
            raise InvalidManifestPathError(rel=path.as_posix(), reason="escape_root")
        return posix_path_as_path(root / path)
    if not allow_absolute_within_root:
        raise InvalidManifestPathError(rel=path.as_posix(), reason="absolute")
    absolute = PurePosixPath(posixpath.normpath(path.as_posix()))
    if not absolute.is_relative_to(posixpath.normpath(root.as_posix())):
        raise InvalidManifestPathError(rel=absolute.as_posix(), reason="absolute")
    return posix_path_as_path(absolute)


def default_permissions() -> Permissions:
    """``rwxr-xr-x``."""
    read = FileMode.READ | FileMode.EXEC
    return Permissions(owner=FileMode.ALL, group=read, other=read)


class BaseEntry(BaseModel, abc.ABC):
    """Base of all entries. A subclass registers by the default of its ``type``.

    The sandbox actor writes the entries of this package. Your own subclass implements
    :meth:`apply`, which writes it through the session.

    Example:
        class Greeting(BaseEntry):
            type: Literal["greeting"] = "greeting"
            name: str

            async def apply(self, session, dest, base_dir):
                await session.write(dest, io.BytesIO(f"Hello {self.name}!".encode()))
                return []


        manifest = Manifest(entries={"hello.txt": Greeting(name="Ann")})
    """

    type: Any
    """A text; each subclass narrows it to its own literal."""
    _by_type: ClassVar[dict[str, builtins.type[BaseEntry]]] = {}
    _abstract_entry_base: ClassVar[bool] = False

    description: str | None = None
    """What the entry is, for the model."""
    ephemeral: bool = False
    """Whether snapshots leave the entry out; it is written again when the workspace is restored."""
    group: Group | User | None = None
    """The group that owns the entry, if the provider has groups."""
    is_dir: bool = False
    """Whether the entry is a directory."""
    permissions: Permissions = Field(default_factory=default_permissions)
    """The permission bits; ``rwxr-xr-x`` by default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        is_base = inspect.isabstract(cls) or cls.__dict__.get("_abstract_entry_base")
        if type_name(cls) or not is_base:
            register_by_type(BaseEntry._by_type, cls, "entry", error=ValueError)

    @classmethod
    def registered_types(cls) -> dict[str, builtins.type[BaseEntry]]:
        """All kinds of entries, by the name of their type."""
        return dict(BaseEntry._by_type)

    @classmethod
    def parse(cls, payload: object) -> BaseEntry:
        """Make an entry from its serialized form.

        Args:
            payload: An entry, which is returned unchanged, or a mapping with its ``type``.

        Returns:
            The entry.

        Raises:
            TypeError: ``payload`` is neither.
            ValueError: The ``type`` is missing or unknown, or a field is wrong.
        """
        if isinstance(payload, BaseEntry):
            return payload
        if not isinstance(payload, Mapping):
            raise TypeError(f"an entry must be a BaseEntry or a mapping, not {_kind(payload)}")
        name = payload.get("type")
        if not isinstance(name, str):
            raise ValueError("an entry given as a mapping must say its `type`")
        entry_class = BaseEntry._by_type.get(name)
        if entry_class is None:
            known = ", ".join(sorted(BaseEntry._by_type))
            raise ValueError(f"unknown entry type `{name}`; known: {known}")
        return entry_class.model_validate(dict(payload))

    @property
    def file_mode(self) -> int:
        """The permission bits, without the file type."""
        return stat.S_IMODE(self.permissions.to_mode())

    async def _apply_metadata(self, session: Any, dest: Path) -> None:
        """Give ``dest`` the entry's group and permissions."""
        path = sandbox_path_str(dest)
        if self.group is not None:
            await _run(session, "chgrp", self.group.name, path)
        await _run(session, "chmod", f"{self.file_mode:04o}", path)

    @abc.abstractmethod
    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[MaterializedFile]:
        """Write the entry into a workspace.

        Args:
            session: The ``BaseSandboxSession`` to write through.
            dest: The absolute path in the sandbox.
            base_dir: The directory of this machine that relative sources start from.

        Returns:
            The files that were copied from this machine, with their digests.
        """


async def _run(session: Any, *command: str) -> None:
    result = await session.exec(*command, shell=False)
    if not result.ok():
        raise ExecNonZeroError(result, command=command)


def _kind(value: object) -> str:
    return type(value).__name__


EntryMap = dict[str | Path, BaseEntry]


def parse_entries(value: object) -> EntryMap:
    """Entries by path; each is an entry or its serialized form."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"entries must be a mapping of paths to entries, not {_kind(value)}")
    return {key: BaseEntry.parse(entry) for key, entry in value.items()}


def dump_entries(entries: Mapping[str | Path, BaseEntry], mode: str) -> dict[Any, Any]:
    """The serialized form of entries, with the fields of each entry's own class."""
    if mode == "json":
        return {
            coerce_posix_path(key).as_posix() if isinstance(key, Path) else str(key): (
                entry.model_dump(mode="json")
            )
            for key, entry in entries.items()
        }
    return {key: entry.model_dump() for key, entry in entries.items()}
