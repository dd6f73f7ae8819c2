"""All errors of the sandbox API.

    SandboxError                     message, error_code, op, context, cause, retryable
    ├── ConfigurationError           the configuration cannot work: paths, patches, skills
    ├── SandboxRuntimeError          commands, ports, workspace I/O, lifecycle
    │   ├── WorkspaceLostError       (ours) the box died, and there is no checkpoint
    │   ├── ProviderUnavailableError (ours) no sandbox actor serves the provider
    │   └── SandboxLimitError        (ours) the sandbox reached a limit
    ├── ArtifactError                host files, git repositories, mounts
    └── SnapshotError                storing and restoring

An error crosses the bus as data; the receiver rebuilds it by its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sandstream_bus.wire.error_text import named_error
from sandstream_bus.wire.sandboxes import SandboxFailure

from sandstream.sandbox._errors.base import (
    ArtifactError,
    ConfigurationError,
    Context,
    ErrorCode,
    OpName,
    SandboxError,
    SandboxRuntimeError,
    SnapshotError,
    rebuild,
)
from sandstream.sandbox._errors.runtime import (
    ApplyPatchDecodeError,
    ApplyPatchFileNotFoundError,
    ExecFailureError,
    ExecNonZeroError,
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    ProviderUnavailableError,
    PtySessionNotFoundError,
    SandboxLimitError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceIOError,
    WorkspaceLostError,
    WorkspaceReadNotFoundError,
    WorkspaceRootNotFoundError,
    WorkspaceStartError,
    WorkspaceStopError,
    WorkspaceWriteTypeError,
)
from sandstream.sandbox._errors.sources import (
    GitArtifactError,
    GitCloneError,
    GitCopyError,
    GitMissingInImageError,
    GitSubpathError,
    LocalArtifactError,
    LocalChecksumError,
    LocalDirReadError,
    LocalFileReadError,
    MountArtifactError,
    MountCommandError,
    MountConfigError,
    MountToolMissingError,
    SnapshotNotRestorableError,
    SnapshotPersistError,
    SnapshotRestoreError,
)

__all__ = [
    "ApplyPatchDecodeError",
    "ApplyPatchDiffError",
    "ApplyPatchError",
    "ApplyPatchFileNotFoundError",
    "ApplyPatchPathError",
    "ArtifactError",
    "ConfigurationError",
    "ErrorCode",
    "ExecFailureError",
    "ExecNonZeroError",
    "ExecTimeoutError",
    "ExecTransportError",
    "ExposedPortUnavailableError",
    "GitArtifactError",
    "GitCloneError",
    "GitCopyError",
    "GitMissingInImageError",
    "GitSubpathError",
    "InvalidCompressionSchemeError",
    "InvalidManifestPathError",
    "LocalArtifactError",
    "LocalChecksumError",
    "LocalDirReadError",
    "LocalFileReadError",
    "MountArtifactError",
    "MountCommandError",
    "MountConfigError",
    "MountToolMissingError",
    "OpName",
    "ProviderUnavailableError",
    "PtySessionNotFoundError",
    "SandboxError",
    "SandboxLimitError",
    "SandboxRuntimeError",
    "SkillsConfigError",
    "SnapshotError",
    "SnapshotNotRestorableError",
    "SnapshotPersistError",
    "SnapshotRestoreError",
    "WorkspaceArchiveReadError",
    "WorkspaceArchiveWriteError",
    "WorkspaceIOError",
    "WorkspaceLostError",
    "WorkspaceReadNotFoundError",
    "WorkspaceRootNotFoundError",
    "WorkspaceStartError",
    "WorkspaceStopError",
    "WorkspaceWriteTypeError",
    "error_from_failure",
    "failure_of",
]

UNEXPECTED = "unexpected"
"""The code of a failure that was not a sandbox error."""


class InvalidManifestPathError(
    ConfigurationError, code=ErrorCode.INVALID_MANIFEST_PATH, op="materialize"
):
    """A path is absolute where it must not be, or leaves the workspace.

    Args:
        rel: The path that was given.
        reason: Whether it is absolute, or leaves the root.
    """

    def __init__(
        self,
        *,
        rel: str | Path,
        reason: Literal["absolute", "escape_root"],
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = (
            f"path must be relative to the workspace: {rel}"
            if reason == "absolute"
            else f"path leaves the workspace: {rel}"
        )
        self._say(message, {"rel": str(rel), "reason": reason}, context, cause)


class InvalidCompressionSchemeError(
    ConfigurationError, code=ErrorCode.INVALID_COMPRESSION_SCHEME, op="write"
):
    """The archive format is unknown.

    Args:
        path: The path of the archive.
        scheme: The format that was given; ``None`` if the path was to tell it.
    """

    def __init__(
        self,
        *,
        path: Path,
        scheme: str | None,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = (
            f"archive {path} has unknown kind {scheme!r}; use 'tar' or 'zip'"
            if scheme
            else f"the name of archive {path} does not tell its kind; pass compression_scheme"
        )
        self._say(message, {"path": str(path), "scheme": scheme}, context, cause)


class ApplyPatchError(ConfigurationError):
    """Base of errors in a patch itself."""


class ApplyPatchPathError(
    ApplyPatchError, code=ErrorCode.APPLY_PATCH_INVALID_PATH, op="apply_patch"
):
    """A path in a patch is absolute, empty, or leaves the workspace.

    Args:
        path: The path in the patch.
        reason: Whether it is absolute, leaves the root, or is empty.
    """

    def __init__(
        self,
        *,
        path: str | Path,
        reason: Literal["absolute", "escape_root", "empty"],
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = {
            "absolute": f"a path in a patch must be relative: {path}",
            "escape_root": f"a path in a patch leaves the workspace: {path}",
        }.get(reason, "a path in a patch is empty")
        self._say(message, {"path": str(path), "reason": reason}, context, cause)


class ApplyPatchDiffError(
    ApplyPatchError, code=ErrorCode.APPLY_PATCH_INVALID_DIFF, op="apply_patch"
):
    """A patch is malformed or does not match the file.

    Args:
        path: The file that the patch changes; ``None`` if the patch does not get that far.
    """

    def __init__(
        self,
        *,
        message: str,
        path: str | Path | None = None,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        where: dict[str, object] = {} if path is None else {"path": str(path)}
        self._say(message, {}, {**(context or {}), **where}, cause)


class SkillsConfigError(ConfigurationError, code=ErrorCode.SKILLS_CONFIG_INVALID, op="materialize"):
    """Skills cannot work with their configuration."""

    def __init__(
        self,
        *,
        message: str,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        self._say(message, {}, context, cause)


for _name in __all__:
    # Tracebacks and pickles name this module, so that the private modules can change.
    if isinstance(globals().get(_name), type):
        globals()[_name].__module__ = __name__


_OPS: dict[str, OpName] = {
    "apply_plan": "materialize",
    "checkpoint": "snapshot_persist",
    "close": "shutdown",
    "interact": "exec",
    "kill_all": "exec",
    "list": "exec",
    "make_dir": "write",
    "move": "exec",
    "open": "start",
    "pause": "stop",
    "port": "resolve_exposed_port",
    "probe": "running",
    "remove": "exec",
    "restore": "snapshot_restore",
    "stat": "exec",
    "tool": "exec",
}
"""Operations whose names on the bus and in the API differ."""


def error_from_failure(failure: SandboxFailure) -> SandboxError:
    """The exception for a failure that came over the bus.

    Args:
        failure: The failure, from a sandbox actor's reply.
    """
    error_class = SandboxError.by_code.get(failure.code, SandboxError)
    op = _OPS.get(failure.op, failure.op)
    context = dict(failure.context)
    return rebuild(error_class, failure.message, failure.code, op, context, failure.retryable)


def failure_of(error: Exception, op: str = "") -> SandboxFailure:
    """The failure for the bus.

    Args:
        error: The exception. It need not be a sandbox error.
        op: The operation, for an exception that does not know it.
    """
    if isinstance(error, SandboxError):
        return SandboxFailure(
            code=error.code,
            message=error.message,
            op=error.op,
            context={key: _plain(value) for key, value in error.context.items()},
            retryable=bool(error.retryable),
        )
    message = named_error(error)
    return SandboxFailure(code=UNEXPECTED, message=message, op=op)


def _plain(value: object) -> object:
    """The value in a form that JSON can represent."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return str(value)
