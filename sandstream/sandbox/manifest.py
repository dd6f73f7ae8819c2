"""The manifest: the contents of a new workspace, its environment, users and path grants."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SerializationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from sandstream.sandbox.entries import BaseEntry, GitRepo, LocalDir, LocalFile, Mount
from sandstream.sandbox.entries.base import EntryMap, dump_entries, parse_entries
from sandstream.sandbox.entries.walk import posix_entry_path, walk_entries
from sandstream.sandbox.environment import (
    EnvEntry,
    Environment,
    EnvValue,
    EnvValueClass,
    SecretRef,
    StrEnvValue,
)
from sandstream.sandbox.errors import InvalidManifestPathError
from sandstream.sandbox.manifest_render import render_manifest_description
from sandstream.sandbox.types import Group, User
from sandstream.sandbox.workspace_paths import (
    SandboxPathGrant,
    coerce_posix_path,
    posix_path_as_path,
)

__all__ = [
    "DEFAULT_REMOTE_MOUNT_COMMAND_ALLOWLIST",
    "EnvEntry",
    "EnvValue",
    "EnvValueClass",
    "Environment",
    "Manifest",
    "SecretRef",
    "StrEnvValue",
    "coerce_manifest",
]

DEFAULT_REMOTE_MOUNT_COMMAND_ALLOWLIST = [
    "ls",
    "find",
    "stat",
    "cat",
    "less",
    "head",
    "tail",
    "du",
    "grep",
    "rg",
    "wc",
    "sort",
    "cut",
    "cp",
    "tee",
    "echo",
    "mkdir",
    "rm",
]

Authority = Literal["mount_scoped", "broad"]


class Manifest(BaseModel):
    """The contents of a new workspace.

    Example:
        manifest = Manifest(
            entries={"notes.txt": File(content=b"hello"), "repo": LocalDir(src="project")},
            environment=Environment(value={"TOKEN": SecretRef("GITHUB_TOKEN")}),
        )
    """

    version: Literal[1] = 1
    """The version of this format."""
    root: str = "/workspace"
    """The absolute path of the workspace in the sandbox."""
    entries: EntryMap = Field(default_factory=dict)
    """Files, directories, repositories and mounts, by their paths relative to ``root``."""
    environment: Environment = Field(default_factory=Environment)
    """The environment variables of commands."""
    users: list[User] = Field(default_factory=list)
    """Accounts to create, if the provider has accounts."""
    groups: list[Group] = Field(default_factory=list)
    """Groups to create, if the provider has groups."""
    extra_path_grants: tuple[SandboxPathGrant, ...] = ()
    """Paths outside the workspace that the sandbox may use."""
    remote_mount_command_allowlist: list[str] = Field(
        default_factory=lambda: list(DEFAULT_REMOTE_MOUNT_COMMAND_ALLOWLIST)
    )
    """The commands that the prompt recommends for mounts; advice, not enforced."""
    _acknowledged: dict[Authority, frozenset[str]] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _refuse_acknowledgements(cls, value: object) -> object:
        """Only code that holds the manifest may give consent, not its possibly untrusted data."""
        names = value if isinstance(value, Mapping) else ()
        if any("credentialexposure" in str(name).lower().replace("_", "") for name in names):
            raise TypeError(
                "exposure of mount credentials is acknowledged by a method of Manifest, "
                "not in its data"
            )
        return value

    @field_validator("entries", mode="before")
    @classmethod
    def _parse_entries(cls, value: object) -> EntryMap:
        return parse_entries(value)

    @field_serializer("entries")
    def _dump_entries(self, entries: EntryMap, info: SerializationInfo) -> dict[Any, Any]:
        return dump_entries(entries, info.mode)

    def iter_entries(self) -> Iterator[tuple[Path, BaseEntry]]:
        """All entries with their paths, a directory before its contents; a bad path raises."""
        return walk_entries(self.entries)

    def validated_entries(self) -> EntryMap:
        """The entries, after all paths were checked."""
        for _ in self.iter_entries():
            pass
        return dict(self.entries)

    def ephemeral_entry_paths(self, depth: int | None = 1) -> set[Path]:
        """The paths of entries that no snapshot holds.

        Args:
            depth: Accepted for compatibility; entries of all levels are found.
        """
        return {path for path, entry in self.iter_entries() if entry.ephemeral}

    def mount_targets(self) -> list[tuple[Mount, Path]]:
        """All mounts with their absolute paths, deepest first."""
        root = posix_path_as_path(coerce_posix_path(self.root))
        targets = [
            (entry, self._normalized_target(root, entry.path_in(root, path)))
            for path, entry in self.iter_entries()
            if isinstance(entry, Mount)
        ]
        return sorted(targets, key=lambda target: len(target[1].parts), reverse=True)

    @staticmethod
    def _normalized_target(root: Path, path: Path) -> Path:
        if not path.is_relative_to(root):
            return path
        normalized = Path(posixpath.normpath(path.as_posix()))
        if not normalized.is_relative_to(root):
            raise InvalidManifestPathError(rel=path.as_posix(), reason="escape_root")
        return normalized

    def ephemeral_mount_targets(self) -> list[tuple[Mount, Path]]:
        """The mounts that no snapshot holds, with the paths where they appear."""
        return [(mount, path) for mount, path in self.mount_targets() if mount.ephemeral]

    def ephemeral_persistence_paths(self, depth: int | None = 1) -> set[Path]:
        """Relative paths that are not in snapshots: ephemeral entries and mounts.

        Args:
            depth: Accepted for compatibility; entries of all levels are found.
        """
        root = posix_path_as_path(coerce_posix_path(self.root))
        mounted = {
            path.relative_to(root)
            for _, path in self.ephemeral_mount_targets()
            if path != root and path.is_relative_to(root)
        }
        return self.ephemeral_entry_paths(depth) | mounted

    def describe(self, depth: int | None = 1) -> str:
        """The declared entries as a tree, for a model.

        Args:
            depth: How many levels to show; ``None`` shows all.
        """
        return render_manifest_description(
            root=self.root,
            entries=self.validated_entries(),
            coerce_rel_path=posix_entry_path,
            depth=depth,
        )

    def with_in_container_mount_credential_exposure_acknowledged(
        self, *mount_paths: str | PurePath
    ) -> Manifest:
        """A copy in which these mounts, named by their exact paths, may put mount-scoped
        credentials into the sandbox. The consent is never serialized.

        Args:
            mount_paths: The exact paths of the mounts, relative to the root or absolute.

        Raises:
            ValueError: A path is the root, or has wildcards or ``..``.
        """
        return self._acknowledging("mount_scoped", mount_paths)

    def with_in_container_mount_broad_credential_exposure_acknowledged(
        self, *mount_paths: str | PurePath
    ) -> Manifest:
        """The same for credentials with broader access, such as a workload identity.

        Args:
            mount_paths: The exact paths of the mounts, relative to the root or absolute.
        """
        return self._acknowledging("broad", mount_paths)

    def acknowledges_credential_exposure(
        self, mount_path: str | PurePath, authority: Authority
    ) -> bool:
        """Whether the user has accepted that the sandbox can read this mount's credentials.

        Args:
            mount_path: The path of the mount, relative to the root or absolute.
            authority: How much the credentials allow: only the mount, or more.
        """
        key = self._mount_key(mount_path)
        return key in self._acknowledged.get(authority, frozenset())

    def _acknowledging(
        self, authority: Authority, mount_paths: tuple[str | PurePath, ...]
    ) -> Manifest:
        if not mount_paths:
            raise TypeError("name at least one mount path")
        keys = {self._checked_mount_key(path) for path in mount_paths}
        copy = self.model_copy(deep=True)
        known = copy._acknowledged.get(authority, frozenset())
        copy._acknowledged = {**copy._acknowledged, authority: known | keys}
        return copy

    def _checked_mount_key(self, path: str | PurePath) -> str:
        text = path.as_posix() if isinstance(path, PurePath) else path
        if "\\" in text or any(letter in text for letter in "*?[]"):
            raise ValueError(f"a mount path is written with '/' and without wildcards: {text!r}")
        if ".." in PurePosixPath(text).parts:
            raise ValueError(f"a mount path must not contain '..': {text!r}")
        key = self._mount_key(text)
        if key in ("/", posixpath.normpath(self.root)):
            raise ValueError(f"a mount path must not be the root: {text!r}")
        return key

    def _mount_key(self, path: str | PurePath) -> str:
        return posixpath.normpath(
            (coerce_posix_path(self.root) / coerce_posix_path(path)).as_posix()
        )


def coerce_manifest(value: Manifest | dict[str, Any], *, parameter_name: str) -> Manifest:
    """A manifest from a manifest or a dict. A dict may be untrusted data, so it cannot give access
    to files of this machine.

    Args:
        value: The manifest, or its data.
        parameter_name: The name of the argument, for errors.

    Raises:
        TypeError: It is neither, has unknown settings, or is a dict that reads files of this
            machine.
    """
    if isinstance(value, Manifest):
        return value
    if not isinstance(value, dict):
        raise TypeError(
            f"{parameter_name} must be a Manifest or a dict, not {type(value).__name__}"
        )
    unknown = sorted(str(name) for name in value if name not in Manifest.model_fields)
    if unknown:
        raise TypeError(f"{parameter_name} has unknown settings: {', '.join(unknown)}")
    if value.get("extra_path_grants", ()) not in ((), []):
        raise TypeError(f"{parameter_name}: path grants need a Manifest object, not a dict")
    manifest = Manifest.model_validate(value)
    if any(_reads_host(entry) for _, entry in manifest.iter_entries()):
        raise TypeError(
            f"{parameter_name}: files of this machine need a Manifest object, not a dict"
        )
    return manifest


def _reads_host(entry: BaseEntry) -> bool:
    if isinstance(entry, GitRepo):
        return entry.local_path is not None
    return isinstance(entry, LocalFile) or (isinstance(entry, LocalDir) and entry.src is not None)
