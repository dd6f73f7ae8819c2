"""Errors of snapshots and archives.

SandstreamError
├── WorkspaceDamaged     a snapshot cannot be read: an object is missing or does not match
├── CheckpointFailed     the workspace could not be stored (retryable)
├── NoSuchPath           a snapshot does not contain this path, or not as the expected kind
├── HostDirectoryFailed  a host directory cannot be read; ``reason`` says why
└── ArchiveRejected      a member of an archive is hostile, or a limit is exceeded
"""

from __future__ import annotations

from sandstream_bus.errors import SandstreamError


class WorkspaceDamaged(SandstreamError):
    code = "snapshot_restore_error"

    def __init__(self, tree: str, damaged: str, why: str) -> None:
        super().__init__(
            f"snapshot {tree or '(unnamed)'} cannot be read: object {damaged} {why}. "
            "Go on from another snapshot."
        )
        self.tree = tree
        self.damaged = damaged
        """The digest of the object."""


class CheckpointFailed(SandstreamError):
    code = "snapshot_persist_error"
    retryable = True


class NoSuchPath(SandstreamError):
    code = "not_found"


class HostDirectoryFailed(SandstreamError):
    """``reason``: ``symlink_not_supported``, ``changed``, ``not_readable`` or ``wrong_kind``."""

    code = "local_dir_read_error"

    def __init__(self, path: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.reason = reason


class ArchiveRejected(SandstreamError):
    code = "workspace_archive_write_error"

    def __init__(
        self, reason: str, *, member: str = "", limit: int | None = None, actual: int | None = None
    ) -> None:
        where = f" at member {member!r}" if member else ""
        numbers = "" if limit is None else f" ({actual} of at most {limit})"
        super().__init__(f"the archive is rejected{where}: {reason}{numbers}")
        self.reason = reason
        self.member = member
        self.limit = limit
        self.actual = actual
