"""Errors of a running sandbox: commands, ports, files of the workspace, its lifecycle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from sandstream.sandbox._errors.base import Context, ErrorCode, SandboxError, SandboxRuntimeError
from sandstream.sandbox.types import ExecResult


class ExposedPortUnavailableError(
    SandboxRuntimeError, code=ErrorCode.EXPOSED_PORT_UNAVAILABLE, op="resolve_exposed_port"
):
    """The port is not declared, or cannot be reached.

    Args:
        port: The port in the sandbox.
        exposed_ports: The ports that the sandbox declares.
        reason: Why there is no endpoint; ``not_configured`` if the port is not declared.
    """

    def __init__(
        self,
        *,
        port: int,
        exposed_ports: Sequence[int],
        reason: str,
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = None,
    ) -> None:
        undeclared = reason == "not_configured"
        message = (
            f"port {port} is not exposed; declare it in the sandbox options (exposed_ports)"
            if undeclared
            else f"no endpoint for exposed port {port}: {reason}"
        )
        facts = {"port": port, "exposed_ports": list(exposed_ports), "reason": reason}
        self._say(message, facts, context, cause, False if undeclared else retryable)


class ExecFailureError(SandboxRuntimeError, op="exec"):
    """Base of command errors.

    Args:
        command: The command, word by word.
    """

    command: tuple[str, ...]

    def __init__(
        self,
        *,
        message: str,
        error_code: ErrorCode,
        command: Sequence[str | Path],
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = None,
    ) -> None:
        words = tuple(str(word) for word in command)
        facts = {"command": words, "command_str": " ".join(words), **(context or {})}
        SandboxError.__init__(self, message, error_code, "exec", facts, cause, retryable)
        self._read_context()

    def _read_context(self) -> None:
        self.command = tuple(cast("Sequence[str]", self.context.get("command", ())))


class ExecNonZeroError(ExecFailureError, code=ErrorCode.EXEC_NONZERO):
    """A command that had to succeed returned a non-zero exit code.

    Args:
        exec_result: The result of the command, with its output and exit code.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes

    def __init__(
        self,
        exec_result: ExecResult,
        *,
        command: Sequence[str | Path],
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        stdout = exec_result.stdout.decode("utf-8", "replace")
        stderr = exec_result.stderr.decode("utf-8", "replace")
        if stdout and stderr:
            message = f"stdout: {stdout}\nstderr: {stderr}"
        else:
            message = stdout or stderr or f"exit code {exec_result.exit_code}, no output"
        facts = {"exit_code": exec_result.exit_code, "stdout": stdout, "stderr": stderr}
        super().__init__(
            message=message,
            error_code=ErrorCode.EXEC_NONZERO,
            command=command,
            context={**facts, **(context or {})},
            cause=cause,
            retryable=False,
        )
        self.exit_code = exec_result.exit_code
        self.stdout = exec_result.stdout
        self.stderr = exec_result.stderr

    def _read_context(self) -> None:
        super()._read_context()
        self.exit_code = cast(int, self.context.get("exit_code", 1))
        self.stdout = str(self.context.get("stdout", "")).encode()
        self.stderr = str(self.context.get("stderr", "")).encode()


class ExecTimeoutError(ExecFailureError, code=ErrorCode.EXEC_TIMEOUT):
    """A command exceeded its time limit and was terminated.

    Args:
        timeout_s: The time limit in seconds; ``None`` if it is not known.
    """

    timeout_s: float | None

    def __init__(
        self,
        *,
        command: Sequence[str | Path],
        timeout_s: float | None,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        limit = "its time limit" if timeout_s is None else f"{timeout_s:g} s"
        super().__init__(
            message=f"command did not end within {limit}",
            error_code=ErrorCode.EXEC_TIMEOUT,
            command=command,
            context={"timeout_s": timeout_s, **(context or {})},
            cause=cause,
            retryable=False,
        )

    def _read_context(self) -> None:
        super()._read_context()
        self.timeout_s = cast("float | None", self.context.get("timeout_s"))


class ExecTransportError(ExecFailureError, code=ErrorCode.EXEC_TRANSPORT_ERROR):
    """The connection to the sandbox failed; it is unknown whether the command ran."""

    def __init__(
        self,
        *,
        command: Sequence[str | Path],
        context: Context = None,
        cause: BaseException | None = None,
        message: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(
            message=message or "the sandbox could not be reached to run the command",
            error_code=ErrorCode.EXEC_TRANSPORT_ERROR,
            command=command,
            context=context,
            cause=cause,
            retryable=retryable,
        )


class PtySessionNotFoundError(SandboxRuntimeError, code=ErrorCode.PTY_SESSION_NOT_FOUND, op="exec"):
    """No running command has this session id.

    Args:
        session_id: The id that was given.
    """

    session_id: int

    def __init__(
        self,
        *,
        session_id: int,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = f"no running command has session id {session_id}"
        self._say(message, {"session_id": session_id}, context, cause)

    def _read_context(self) -> None:
        self.session_id = cast(int, self.context.get("session_id", 0))


class WorkspaceIOError(SandboxRuntimeError):
    """Base of errors in reading and writing the workspace."""


class ApplyPatchFileNotFoundError(
    WorkspaceIOError, code=ErrorCode.APPLY_PATCH_FILE_NOT_FOUND, op="apply_patch"
):
    """The patch changes a file that does not exist.

    Args:
        path: The missing file.
    """

    def __init__(
        self, *, path: Path, context: Context = None, cause: BaseException | None = None
    ) -> None:
        message = f"the patch changes a file that does not exist: {path}"
        self._say(message, {"path": str(path)}, context, cause)


class ApplyPatchDecodeError(
    WorkspaceIOError, code=ErrorCode.APPLY_PATCH_DECODE_ERROR, op="apply_patch"
):
    """The patch changes a file that is not UTF-8 text.

    Args:
        path: The file.
    """

    def __init__(
        self, *, path: Path, context: Context = None, cause: BaseException | None = None
    ) -> None:
        message = f"the patch changes a file that is not UTF-8 text: {path}"
        self._say(message, {"path": str(path)}, context, cause)


class WorkspaceReadNotFoundError(
    WorkspaceIOError, code=ErrorCode.WORKSPACE_READ_NOT_FOUND, op="read"
):
    """The path does not exist.

    Args:
        path: The missing path, in the sandbox.
    """

    def __init__(
        self, *, path: Path, context: Context = None, cause: BaseException | None = None
    ) -> None:
        self._say(f"no such file in the sandbox: {path}", {"path": str(path)}, context, cause)


class WorkspaceArchiveReadError(
    WorkspaceIOError, code=ErrorCode.WORKSPACE_ARCHIVE_READ_ERROR, op="read"
):
    """Reading from the workspace failed.

    Args:
        path: The path in the sandbox.
    """

    def __init__(
        self,
        *,
        path: Path,
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = None,
    ) -> None:
        message = f"could not read from the sandbox: {path}"
        self._say(message, {"path": str(path)}, context, cause, retryable)


class WorkspaceArchiveWriteError(
    WorkspaceIOError, code=ErrorCode.WORKSPACE_ARCHIVE_WRITE_ERROR, op="write"
):
    """Writing to the workspace failed or is not allowed.

    Args:
        path: The path in the sandbox.
    """

    def __init__(
        self,
        *,
        path: Path,
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = None,
        message: str | None = None,
    ) -> None:
        text = f"could not write to the sandbox: {path}" if message is None else message
        self._say(text, {"path": str(path)}, context, cause, retryable)


class WorkspaceWriteTypeError(
    WorkspaceIOError, code=ErrorCode.WORKSPACE_WRITE_TYPE_ERROR, op="write"
):
    """The data to write is not a binary stream.

    Args:
        path: The path in the sandbox.
        actual_type: The type of the given data.
    """

    def __init__(
        self,
        *,
        path: Path,
        actual_type: str,
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        message = f"write() takes a binary stream such as io.BytesIO, not {actual_type}"
        self._say(message, {"path": str(path), "actual_type": actual_type}, context, cause)


class WorkspaceStopError(SandboxRuntimeError, code=ErrorCode.WORKSPACE_STOP_ERROR, op="stop"):
    """The session could not be stopped, usually because its workspace could not be saved.

    Args:
        path: The root of the workspace.
    """

    def __init__(
        self,
        *,
        path: Path,
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = None,
    ) -> None:
        message = f"could not stop the sandbox session of {path}"
        self._say(message, {"path": str(path)}, context, cause, retryable)


class WorkspaceStartError(SandboxRuntimeError, code=ErrorCode.WORKSPACE_START_ERROR, op="start"):
    """The session could not be started.

    Args:
        path: The root of the workspace.
    """

    def __init__(
        self,
        *,
        path: Path,
        context: Context = None,
        cause: BaseException | None = None,
        message: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        text = message or f"could not start the sandbox session of {path}"
        self._say(text, {"path": str(path)}, context, cause, retryable)


class WorkspaceRootNotFoundError(
    SandboxRuntimeError, code=ErrorCode.WORKSPACE_ROOT_NOT_FOUND, op="exec"
):
    """The root of the workspace is gone.

    Args:
        path: The missing root.
    """

    def __init__(
        self, *, path: Path, context: Context = None, cause: BaseException | None = None
    ) -> None:
        message = f"the root of the workspace is gone: {path}"
        self._say(message, {"path": str(path)}, context, cause)


class WorkspaceLostError(SandboxRuntimeError, code=ErrorCode.WORKSPACE_LOST, op="exec"):
    """The box or its node died, and there is no checkpoint to continue from.

    Args:
        sandbox: The id of the sandbox.
        reason: Why it is lost; empty if that is not known.
    """

    def __init__(
        self,
        *,
        sandbox: str,
        reason: str = "",
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        why = f" ({reason})" if reason else ""
        message = f"sandbox {sandbox} is lost{why} and has no checkpoint to restore"
        self._say(message, {"sandbox": sandbox, "reason": reason}, context, cause)


class ProviderUnavailableError(
    SandboxRuntimeError, code=ErrorCode.PROVIDER_UNAVAILABLE, op="start"
):
    """No sandbox actor serves this provider, or the provider does not work there.

    Args:
        provider: The name of the provider.
        reason: Why it does not work; empty if no actor answers.
    """

    def __init__(
        self,
        *,
        provider: str,
        reason: str = "",
        context: Context = None,
        cause: BaseException | None = None,
        retryable: bool | None = True,
    ) -> None:
        why = f": {reason}" if reason else "; is a sandbox actor with it running?"
        message = f"sandbox provider {provider!r} is not available{why}"
        self._say(message, {"provider": provider, "reason": reason}, context, cause, retryable)


class SandboxLimitError(SandboxRuntimeError, code=ErrorCode.SANDBOX_LIMIT, op="exec"):
    """The sandbox reached one of its limits.

    Args:
        limit: The limit that was reached, such as ``memory``.
        reason: What happened because of it.
    """

    def __init__(
        self,
        *,
        limit: str,
        reason: str = "",
        context: Context = None,
        cause: BaseException | None = None,
    ) -> None:
        why = f": {reason}" if reason else ""
        message = f"the sandbox reached its limit of {limit}{why}"
        self._say(message, {"limit": limit, "reason": reason}, context, cause)
