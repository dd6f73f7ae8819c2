"""The root of the sandbox errors: their common data, and how they cross the bus."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeVar, cast

Context = Mapping[str, object] | None


class ErrorCode(StrEnum):
    """Stable codes; branch on these or on the class, never on the text."""

    INVALID_MANIFEST_PATH = "invalid_manifest_path"
    INVALID_COMPRESSION_SCHEME = "invalid_compression_scheme"
    EXPOSED_PORT_UNAVAILABLE = "exposed_port_unavailable"
    EXEC_NONZERO = "exec_nonzero"
    EXEC_TIMEOUT = "exec_timeout"
    EXEC_TRANSPORT_ERROR = "exec_transport_error"
    PTY_SESSION_NOT_FOUND = "pty_session_not_found"
    APPLY_PATCH_INVALID_PATH = "apply_patch_invalid_path"
    APPLY_PATCH_INVALID_DIFF = "apply_patch_invalid_diff"
    APPLY_PATCH_FILE_NOT_FOUND = "apply_patch_file_not_found"
    APPLY_PATCH_DECODE_ERROR = "apply_patch_decode_error"
    WORKSPACE_READ_NOT_FOUND = "workspace_read_not_found"
    WORKSPACE_ARCHIVE_READ_ERROR = "workspace_archive_read_error"
    WORKSPACE_ARCHIVE_WRITE_ERROR = "workspace_archive_write_error"
    WORKSPACE_WRITE_TYPE_ERROR = "workspace_write_type_error"
    WORKSPACE_STOP_ERROR = "workspace_stop_error"
    WORKSPACE_START_ERROR = "workspace_start_error"
    WORKSPACE_ROOT_NOT_FOUND = "workspace_root_not_found"
    LOCAL_FILE_READ_ERROR = "local_file_read_error"
    LOCAL_DIR_READ_ERROR = "local_dir_read_error"
    LOCAL_CHECKSUM_ERROR = "local_checksum_error"
    GIT_MISSING_IN_IMAGE = "git_missing_in_image"
    GIT_CLONE_ERROR = "git_clone_error"
    GIT_SUBPATH_ERROR = "git_subpath_error"
    GIT_COPY_ERROR = "git_copy_error"
    MOUNT_MISSING_TOOL = "mount_missing_tool"
    MOUNT_FAILED = "mount_failed"
    MOUNT_CONFIG_INVALID = "mount_config_invalid"
    SKILLS_CONFIG_INVALID = "skills_config_invalid"
    SANDBOX_CONFIG_INVALID = "sandbox_config_invalid"
    SNAPSHOT_PERSIST_ERROR = "snapshot_persist_error"
    SNAPSHOT_RESTORE_ERROR = "snapshot_restore_error"
    SNAPSHOT_NOT_RESTORABLE = "snapshot_not_restorable"
    WORKSPACE_LOST = "workspace_lost"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    SANDBOX_LIMIT = "sandbox_limit"


OpName = Literal[
    "start",
    "stop",
    "exec",
    "read",
    "write",
    "shutdown",
    "running",
    "persist_workspace",
    "hydrate_workspace",
    "resolve_exposed_port",
    "materialize",
    "snapshot_persist",
    "snapshot_restore",
    "apply_patch",
]


class SandboxError(Exception):
    """Root of the sandbox errors.

    Args:
        message: What failed, on what, and what to do next.
        error_code: The stable name of the failure; see :class:`ErrorCode`.
        op: The operation that failed, such as ``exec``.
        context: Facts about the failure, by name. A subclass adds its own to those that are given.
        cause: The exception behind it, also set as ``__cause__``.
        retryable: Whether the same operation may succeed later; ``None``: unknown, or as the cause
            says.

    Example:
        try:
            await session.exec("pytest", timeout=60)
        except SandboxError as error:
            print(error.code, error.op, error.retryable, error.context)
    """

    message: str
    error_code: ErrorCode | str
    op: OpName
    context: dict[str, object]
    cause: BaseException | None
    retryable: bool | None

    class_code: ClassVar[ErrorCode | None] = None
    class_op: ClassVar[OpName] = "exec"
    by_code: ClassVar[dict[str, type[SandboxError]]] = {}

    def __init_subclass__(
        cls, code: ErrorCode | None = None, op: OpName | None = None, **rest: Any
    ) -> None:
        super().__init_subclass__(**rest)
        if op is not None:
            cls.class_op = op
        if code is not None:
            cls.class_code = code
            SandboxError.by_code[str(code)] = cls

    def __init__(
        self,
        message: str,
        error_code: ErrorCode | str,
        op: OpName,
        context: dict[str, object],
        cause: BaseException | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        if retryable is None and isinstance(cause, SandboxError):
            retryable = cause.retryable
        self.message = message
        self.error_code = error_code
        self.op = op
        self.context = context
        self.cause = cause
        self.retryable = retryable
        if cause is not None:
            self.__cause__ = cause

    @property
    def code(self) -> str:
        return str(self.error_code)

    def _say(
        self,
        message: str,
        facts: Mapping[str, object],
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = False,
    ) -> None:
        """Initialise with the code and op of the class."""
        assert self.class_code is not None, "a class that calls _say declares its code"
        merged = {**facts, **(context or {})}
        SandboxError.__init__(
            self, message, self.class_code, self.class_op, merged, cause, retryable
        )
        self._read_context()

    def _read_context(self) -> None:
        """Set the attributes of a class beyond the common ones."""

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.message, self.code, self.op, self.context, self.retryable)
        return rebuild, (type(self), *values)


E_ = TypeVar("E_", bound=SandboxError)


def rebuild(
    error_class: type[E_],
    message: str,
    code: str,
    op: str,
    context: dict[str, object],
    retryable: bool | None,
) -> E_:
    """An error of this class from its data; bypasses the constructor of the class."""
    error = error_class.__new__(error_class, message)
    known = code in ErrorCode._value2member_map_
    SandboxError.__init__(
        error,
        message,
        ErrorCode(code) if known else code,
        cast(OpName, op),
        context,
        retryable=retryable,
    )
    error._read_context()
    return error


class ConfigurationError(SandboxError):
    """The caller's configuration cannot work."""


class SandboxRuntimeError(SandboxError):
    """The sandbox, its I/O or the connection to it failed."""


class ArtifactError(SandboxError):
    """A source of the workspace could not be written into it."""


class SnapshotError(SandboxError):
    """A snapshot could not be stored or restored."""
