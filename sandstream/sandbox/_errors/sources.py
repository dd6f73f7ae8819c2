"""Errors in the sources of a workspace: host files, git repositories, mounts, snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sandstream_bus.wire.error_text import error_text

from sandstream.sandbox._errors.base import ArtifactError, Context, ErrorCode, SnapshotError


class LocalArtifactError(ArtifactError):
    """Base of errors about files of the caller's machine."""


class LocalFileReadError(
    LocalArtifactError, code=ErrorCode.LOCAL_FILE_READ_ERROR, op="materialize"
):
    """A host file cannot or may not be read; ``context["reason"]`` says why.

    Args:
        src: The path on the caller's machine.
    """

    def __init__(
        self, *, src: Path, context: Context = None, cause: BaseException | None = None
    ) -> None:
        message = f"cannot take local file {src}{_because(context, cause)}"
        self._say(message, {"src": str(src)}, context, cause)


class LocalDirReadError(LocalArtifactError, code=ErrorCode.LOCAL_DIR_READ_ERROR, op="materialize"):
    """A host directory cannot or may not be read; ``context["reason"]`` says why.

    Args:
        src: The path on the caller's machine.
    """

    def __init__(
        self, *, src: Path, context: Context = None, cause: BaseException | None = None
    ) -> None:
        message = f"cannot take local directory {src}{_because(context, cause)}"
        self._say(message, {"src": str(src)}, context, cause)


class LocalChecksumError(LocalArtifactError, code=ErrorCode.LOCAL_CHECKSUM_ERROR, op="materialize"):
    """The digest of a host file could not be computed.

    Args:
        src: The path on the caller's machine.
    """

    def __init__(
        self, *, src: Path, context: Context = None, cause: BaseException | None = None
    ) -> None:
        message = f"cannot compute the digest of local file {src}{_because(context, cause)}"
        self._say(message, {"src": str(src)}, context, cause)


class GitArtifactError(ArtifactError):
    """Base of git repository errors."""


class GitMissingInImageError(
    GitArtifactError, code=ErrorCode.GIT_MISSING_IN_IMAGE, op="materialize"
):
    """Git is not installed where the repository is fetched."""

    def __init__(self, *, context: Context = None, cause: BaseException | None = None) -> None:
        self._say("git is not installed where GitRepo entries are fetched", {}, context, cause)


class GitCloneError(GitArtifactError, code=ErrorCode.GIT_CLONE_ERROR, op="materialize"):
    """The repository or the ref could not be fetched.

    Args:
        url: The address of the repository.
        ref: The branch, tag or commit.
        stderr: What git printed; ``None`` if it did not run.
    """

    def __init__(
        self,
        *,
        url: str,
        ref: str,
        stderr: str | None = None,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = f"could not fetch {ref!r} of git repository {url}"
        facts = {"url": url, "ref": ref, "stderr": stderr}
        self._say(message, facts, context, cause, None)


class GitSubpathError(GitArtifactError, code=ErrorCode.GIT_SUBPATH_ERROR, op="materialize"):
    """The subpath is not inside the repository.

    Args:
        repo: The repository.
        subpath: The path that was given.
        reason: What is wrong with it.
    """

    def __init__(
        self,
        *,
        repo: str,
        subpath: str,
        reason: Literal["absolute", "empty", "parent_traversal", "windows_path"],
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = f"GitRepo.subpath must name a path inside the repository, not {subpath!r}"
        self._say(message, {"repo": repo, "subpath": subpath, "reason": reason}, context, cause)


class GitCopyError(GitArtifactError, code=ErrorCode.GIT_COPY_ERROR, op="materialize"):
    """The fetched files could not be put into the workspace.

    Args:
        src_root: Where the files were fetched to.
        dest: The path in the workspace.
        stderr: What the copy command printed; ``None`` if it did not run.
    """

    def __init__(
        self,
        *,
        src_root: str,
        dest: Path,
        stderr: str | None = None,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = f"could not copy the git repository to {dest}"
        facts = {"src_root": src_root, "dest": str(dest), "stderr": stderr}
        self._say(message, facts, context, cause, None)


class MountArtifactError(ArtifactError):
    """Base of mount errors."""


class MountToolMissingError(
    MountArtifactError, code=ErrorCode.MOUNT_MISSING_TOOL, op="materialize"
):
    """The sandbox lacks the program for the mount.

    Args:
        tool: The missing program.
    """

    def __init__(
        self, *, tool: str, context: Context = None, cause: BaseException | None = None
    ) -> None:
        message = f"the sandbox lacks {tool}, which this mount needs"
        self._say(message, {"tool": tool}, context, cause)


class MountConfigError(MountArtifactError, code=ErrorCode.MOUNT_CONFIG_INVALID, op="materialize"):
    """The mount cannot work with its configuration."""

    def __init__(self, *, message: str, context: Context = None) -> None:
        self._say(message, {}, context)


class MountCommandError(MountArtifactError, code=ErrorCode.MOUNT_FAILED, op="materialize"):
    """The mount command failed.

    Args:
        command: The command.
        stderr: What it printed; ``None`` if it did not run.
    """

    def __init__(
        self,
        *,
        command: str,
        stderr: str | None,
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = False,
    ) -> None:
        facts = {"command": command, "stderr": stderr}
        self._say(f"the mount could not be made by: {command}", facts, context, cause, retryable)


class SnapshotPersistError(
    SnapshotError, code=ErrorCode.SNAPSHOT_PERSIST_ERROR, op="snapshot_persist"
):
    """The snapshot could not be stored.

    Args:
        snapshot_id: The id of the snapshot.
        path: Where it is, or would be, stored.
    """

    def __init__(
        self,
        *,
        snapshot_id: str,
        path: Path,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = f"could not store snapshot {snapshot_id} at {path}"
        self._say(message, {"snapshot_id": snapshot_id, "path": str(path)}, context, cause, None)


class SnapshotRestoreError(
    SnapshotError, code=ErrorCode.SNAPSHOT_RESTORE_ERROR, op="snapshot_restore"
):
    """The snapshot could not be read back.

    Args:
        snapshot_id: The id of the snapshot.
        path: Where it is, or would be, stored.
    """

    def __init__(
        self,
        *,
        snapshot_id: str,
        path: Path,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = f"could not read snapshot {snapshot_id} back from {path}"
        self._say(message, {"snapshot_id": snapshot_id, "path": str(path)}, context, cause, None)


class SnapshotNotRestorableError(
    SnapshotError, code=ErrorCode.SNAPSHOT_NOT_RESTORABLE, op="snapshot_restore"
):
    """There is no stored snapshot to restore.

    Args:
        snapshot_id: The id of the snapshot.
        path: Where it is, or would be, stored.
    """

    def __init__(self, *, snapshot_id: str, path: Path, context: Context = None) -> None:
        message = f"snapshot {snapshot_id} holds nothing to restore ({path})"
        self._say(message, {"snapshot_id": snapshot_id, "path": str(path)}, context)


_REASONS = {
    "outside_base_dir": "it lies outside the base directory; add a SandboxPathGrant for it",
    "symlink_not_supported": "symbolic links are not followed",
    "path_not_found": "it does not exist",
    "path_changed_during_copy": "it is not what it was when the directory was listed",
}


def _because(context: Context, cause: BaseException | None) -> str:
    facts = context or {}
    reason = str(facts.get("reason", ""))
    child = f" ({facts['child']})" if "child" in facts else ""
    if reason:
        return f": {_REASONS.get(reason, reason)}{child}"
    return f": {error_text(cause)}" if cause is not None else ""
