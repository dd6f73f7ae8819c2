"""Paths of a sandbox: always POSIX, normalized by their text alone.

Only inside the sandbox is it known where a path leads; the provider checks links there. These rules
apply first and reject paths by their text, before anything is sent.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from pydantic import BaseModel, field_validator, model_serializer

from sandstream.sandbox.errors import InvalidManifestPathError, WorkspaceArchiveWriteError


def coerce_posix_path(path: str | PurePath) -> PurePosixPath:
    """Any path as a POSIX path; backslashes in text become slashes."""
    return PurePosixPath(path.as_posix() if isinstance(path, PurePath) else path.replace("\\", "/"))


def windows_absolute_path(path: str | PurePath) -> PureWindowsPath | None:
    """The path, if it is absolute only by Windows rules (``C:\\x``)."""
    windows = PureWindowsPath(path.as_posix() if isinstance(path, PurePosixPath) else path)
    posix_too = PurePosixPath(windows.as_posix()).is_absolute()
    return windows if windows.is_absolute() and not posix_too else None


def posix_path_as_path(path: PurePosixPath) -> Path:
    """The ``Path`` that the public API returns for a sandbox path."""
    return Path(path.as_posix())


def posix_path_for_error(path: str | PurePath) -> Path:
    """The ``Path`` to put into an error."""
    return posix_path_as_path(coerce_posix_path(path))


def sandbox_path_str(path: str | PurePath) -> str:
    """The text of a sandbox path, for commands."""
    return coerce_posix_path(path).as_posix()


def normalize_sandbox_cwd(cwd: str | PurePath) -> PurePosixPath:
    """A run's working directory, relative to the root; ``ValueError`` if it is not relative."""
    if not isinstance(cwd, str | PurePath):
        raise ValueError(f"sandbox.cwd must be a string or a path, not {type(cwd).__name__}")
    if isinstance(cwd, str) and "\\" in cwd:
        raise ValueError(f"sandbox.cwd must be written with '/': {cwd!r}")
    text = cwd if isinstance(cwd, str) else cwd.as_posix()
    if not text.strip():
        raise ValueError("sandbox.cwd must not be empty; leave it out for the workspace root")
    path = PurePosixPath(text)
    if path.is_absolute() or windows_absolute_path(cwd) is not None:
        raise ValueError(f"sandbox.cwd must be relative to the workspace root: {text!r}")
    if ".." in path.parts:
        raise ValueError(f"sandbox.cwd must not contain '..': {text!r}")
    return _normalized(path)


def _normalized(path: PurePath) -> PurePosixPath:
    return PurePosixPath(posixpath.normpath(path.as_posix()))


def _is_absolute(path: str | PurePath) -> bool:
    text = path.as_posix() if isinstance(path, PurePath) else path
    return PurePosixPath(text).is_absolute() or windows_absolute_path(path) is not None


@dataclass(frozen=True)
class SandboxWorkspaceScope:
    """The base of one run's relative paths. It defines how paths are read, not what is allowed."""

    cwd: PurePosixPath | None = None
    """The working directory, relative to the root of the workspace; ``None`` is the root."""

    def __post_init__(self) -> None:
        if self.cwd is not None:
            object.__setattr__(self, "cwd", normalize_sandbox_cwd(self.cwd))

    @classmethod
    def from_cwd(cls, cwd: str | PurePath | None) -> SandboxWorkspaceScope:
        """The scope of a working directory; ``None`` is the whole workspace.

        Args:
            cwd: The working directory, relative to the root of the workspace.
        """
        return cls(None if cwd is None else normalize_sandbox_cwd(cwd))

    def anchor(self, path: str | PurePath) -> str | PurePath:
        """A relative path below the working directory; any other path unchanged.

        Args:
            path: The path as the model gave it.
        """
        if self.cwd is None or _is_absolute(path):
            return path
        return self.cwd / PurePosixPath(path.as_posix() if isinstance(path, PurePath) else path)

    def model_path(self, workspace_relative_path: str | PurePath) -> PurePosixPath:
        """A path relative to the root, converted for the model: relative to its directory.

        Args:
            workspace_relative_path: The path, relative to the root of the workspace.
        """
        path = coerce_posix_path(workspace_relative_path)
        if path.is_absolute():
            raise ValueError(f"path must be relative to the workspace root: {path}")
        if self.cwd is None:
            return _normalized(path)
        return PurePosixPath(posixpath.relpath(_normalized(path).as_posix(), self.cwd.as_posix()))

    def model_resource_path(
        self,
        *,
        workspace_root: str | PurePath,
        workspace_relative_path: str | PurePath,
    ) -> PurePosixPath:
        """The path of a session's file for instructions: absolute if the run has its own working
        directory, because a command may change directory before it uses the path.

        Args:
            workspace_root: The absolute path of the workspace in the sandbox.
            workspace_relative_path: The path of the file, relative to that root.
        """
        path = self._resource(workspace_relative_path)
        if self.cwd is None:
            return path
        windows_root = windows_absolute_path(workspace_root)
        if windows_root is not None:
            return _normalized(PurePosixPath(windows_root.as_posix()) / path)
        root = coerce_posix_path(workspace_root)
        if not root.is_absolute() or (isinstance(workspace_root, str) and "\\" in workspace_root):
            raise ValueError(f"workspace root must be an absolute POSIX path: {workspace_root}")
        return _normalized(root / path)

    @staticmethod
    def _resource(resource: str | PurePath) -> PurePosixPath:
        if isinstance(resource, str) and "\\" in resource:
            raise ValueError(f"path of a session's file must be written with '/': {resource!r}")
        path = coerce_posix_path(resource)
        if _is_absolute(resource) or ".." in path.parts:
            raise ValueError(f"path of a session's file must lie in the workspace: {resource}")
        if not path.parts:
            raise ValueError("path of a session's file must not be empty")
        return _normalized(path)

    def display_path(
        self,
        *,
        original_path: str | PurePath,
        workspace_relative_path: str | PurePath,
    ) -> PurePosixPath:
        """The path for a tool result: in the form in which it was given.

        Args:
            original_path: The path as the model gave it.
            workspace_relative_path: The path that it means, relative to the root of the workspace.
        """
        path = coerce_posix_path(workspace_relative_path)
        if self.cwd is None or _is_absolute(original_path):
            return _normalized(path)
        return self.model_path(path)


class SandboxPathGrant(BaseModel):
    """Access to an absolute path outside the workspace.

    Example:
        Manifest(extra_path_grants=(SandboxPathGrant(path="/data", read_only=True),))
    """

    path: str
    """The absolute path in the sandbox."""
    read_only: bool = False
    """Whether commands may only read it."""
    description: str | None = None
    """What the path is for, for the model."""
    host_path: str | None = None
    """The path on the host, if it is different."""

    @field_validator("path", mode="before")
    @classmethod
    def _path_text(cls, value: object) -> str:
        if isinstance(value, str | PurePath):
            return value.as_posix() if isinstance(value, PurePath) else value
        raise ValueError("path of a grant must be a string or a path")

    @field_validator("path")
    @classmethod
    def _check_path(cls, value: str) -> str:
        path = PurePosixPath(posixpath.normpath(value))
        if windows_absolute_path(value) is not None or not path.is_absolute():
            raise ValueError("path of a grant must be an absolute POSIX path")
        _refuse_filesystem_root(path)
        return path.as_posix()

    @field_validator("host_path", mode="before")
    @classmethod
    def _host_path_text(cls, value: object) -> str | None:
        if value is None or isinstance(value, str | PurePath):
            return None if value is None else str(value)
        raise ValueError("host_path of a grant must be a string or a path")

    @field_validator("host_path")
    @classmethod
    def _check_host_path(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.startswith(("\\\\", "//")):
            raise ValueError("host_path of a grant must not be a network or device path")
        if ".." in re.split(r"[\\/]", value):
            raise ValueError("host_path of a grant must not contain '..'")
        windows = PureWindowsPath(value)
        path: PurePath = windows if windows.drive else PurePosixPath(posixpath.normpath(value))
        if not path.is_absolute():
            raise ValueError("host_path of a grant must be absolute")
        _refuse_filesystem_root(path)
        return str(path)

    @model_serializer(mode="wrap")
    def _without_absent_host_path(self, handler: Any) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if data.get("host_path", "") is None:
            del data["host_path"]
        return data


def _refuse_filesystem_root(path: PurePath, verb: str = "be") -> None:
    if path.is_absolute() and path == path.parent:
        raise ValueError(f"path of a grant must not {verb} the filesystem root")


def sandbox_path_grant_host_path(grant: SandboxPathGrant) -> Path:
    """The path of the grant on this host, with links resolved."""
    path = Path(grant.path if grant.host_path is None else grant.host_path)
    if not path.is_absolute():
        raise ValueError(f"host_path of a grant must be absolute on this host: {path}")
    _refuse_filesystem_root(path)
    resolved = path.resolve(strict=False)
    _refuse_filesystem_root(resolved, "resolve to")
    return resolved


class WorkspacePathPolicy:
    """The paths that a session may access, judged by their text: the root and the grants."""

    def __init__(
        self,
        *,
        root: str | PurePath,
        extra_path_grants: Sequence[SandboxPathGrant] = (),
    ) -> None:
        path = coerce_posix_path(root)
        if not path.is_absolute():
            raise ValueError(f"workspace root must be absolute: {root}")
        self._root = _normalized(path)
        self._grants = tuple(extra_path_grants)

    def sandbox_root(self) -> PurePosixPath:
        return self._root

    def absolute_workspace_path(self, path: str | PurePath) -> Path:
        """The absolute path of something in the workspace; grants are ignored."""
        return posix_path_as_path(self._inside_root(self._given(path)))

    def relative_path(self, path: str | PurePath) -> Path:
        """The same, relative to the root."""
        return posix_path_as_path(self._inside_root(self._given(path)).relative_to(self._root))

    def normalize_path(self, path: str | PurePath, *, for_write: bool = False) -> Path:
        """The absolute path of something in the workspace or in a grant."""
        return posix_path_as_path(self.normalize_sandbox_path(path, for_write=for_write))

    def normalize_sandbox_path(
        self, path: str | PurePath, *, for_write: bool = False
    ) -> PurePosixPath:
        given = self._given(path)
        if not given.is_absolute():
            return self._inside_root(given)
        absolute = _normalized(given)
        if absolute.is_relative_to(self._root):
            return absolute
        grant = self._grant_of(absolute)
        if grant is None:
            raise self._refusal(given)
        if for_write and grant.read_only:
            raise WorkspaceArchiveWriteError(
                path=posix_path_as_path(absolute),
                context={"reason": "read_only_extra_path_grant", "grant_path": grant.path},
                message=f"cannot write {absolute}: the grant of {grant.path} is read-only",
            )
        return absolute

    def validate_recursive_remove(self, path: str | PurePath) -> None:
        """Refuse to remove a tree that contains a read-only grant."""
        top = self.normalize_sandbox_path(path, for_write=True)
        for grant in self._grants:
            if grant.read_only and PurePosixPath(grant.path).is_relative_to(top):
                self.normalize_sandbox_path(grant.path, for_write=True)

    def extra_path_grant_rules(self) -> tuple[tuple[PurePosixPath, bool], ...]:
        """Each grant's path and whether it is read-only."""
        return tuple((PurePosixPath(grant.path), grant.read_only) for grant in self._grants)

    def _given(self, path: str | PurePath) -> PurePosixPath:
        windows = windows_absolute_path(path)
        if windows is not None:
            raise self._refusal(windows)
        return coerce_posix_path(path)

    def _inside_root(self, path: PurePosixPath) -> PurePosixPath:
        absolute = _normalized(self._root / path)
        if not absolute.is_relative_to(self._root):
            raise self._refusal(path)
        return absolute

    def _grant_of(self, path: PurePosixPath) -> SandboxPathGrant | None:
        """The innermost grant that contains the path."""
        holding = [grant for grant in self._grants if path.is_relative_to(grant.path)]
        return max(holding, key=lambda grant: len(PurePosixPath(grant.path).parts), default=None)

    @staticmethod
    def _refusal(path: PurePath) -> InvalidManifestPathError:
        reason: Literal["absolute", "escape_root"]
        reason = "absolute" if path.is_absolute() else "escape_root"
        return InvalidManifestPathError(rel=path.as_posix(), reason=reason)


def normalize_path(
    path: str | PurePath,
    root: str | PurePath,
    grants: Sequence[SandboxPathGrant] = (),
    for_write: bool = False,
) -> Path:
    """The absolute sandbox path for a requested path; raises if it is not allowed."""
    policy = WorkspacePathPolicy(root=root, extra_path_grants=grants)
    return policy.normalize_path(path, for_write=for_write)
