"""The interface of a sandbox session. Methods that need only other methods are implemented here."""

from __future__ import annotations

import abc
import io
import shlex
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from sandstream.sandbox.config import SandboxArchiveLimits
from sandstream.sandbox.files import FileEntry
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.pty_types import PtyExecUpdate
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.types import ExecResult, ExposedPortEndpoint, User

ShellPrefix = bool | list[str]
AnyPath = Path | PurePosixPath | str


class BaseSandboxSession(abc.ABC):
    """A workspace with files, commands and ports.

    Args:
        dependencies: Objects for snapshots and entries of your own; ``None`` for none.
    """

    state: SandboxSessionState

    def __init__(self, dependencies: Dependencies | None = None) -> None:
        self._dependencies = dependencies
        self._pre_stop_hooks: list[Callable[[], Awaitable[None]]] = []
        self._skip_paths: set[str] = set()

    # --- lifecycle ----------------------------------------------------------------------------

    @abc.abstractmethod
    async def start(self) -> None:
        """Create the sandbox, reconnect to it, or restore it from its last checkpoint."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Terminate running commands and save the workspace. The sandbox stays."""

    @abc.abstractmethod
    async def shutdown(self) -> None:
        """Release the sandbox. A later ``start()`` restores the saved workspace."""

    @abc.abstractmethod
    async def running(self) -> bool:
        """Is the sandbox running?"""

    async def aclose(self) -> None:
        """Hooks, stop, shutdown, dependencies: all are tried, the first failure is raised. Nothing
        is deleted; the client's ``delete(session)`` does that.
        """
        failure: BaseException | None = None
        try:
            await self.run_pre_stop_hooks()
            await self.stop()
        except Exception as error:  # noqa: BLE001  raised below, after the rest was tried
            failure = error
        for step in (self.shutdown, self._close_dependencies, self._flush_events):
            try:
                await step()
            except Exception as error:  # noqa: BLE001
                failure = failure or error
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def dependencies(self) -> Dependencies:
        if self._dependencies is None:
            self._dependencies = Dependencies()
        return self._dependencies

    def set_dependencies(self, dependencies: Dependencies | None) -> None:
        """Replace the dependencies of the session.

        Args:
            dependencies: The new ones; ``None`` for none.
        """
        self._dependencies = dependencies

    @abc.abstractmethod
    async def _flush_events(self) -> None:
        """Deliver all pending events."""

    async def _close_dependencies(self) -> None:
        if self._dependencies is not None:
            await self._dependencies.aclose()

    def register_pre_stop_hook(self, hook: Callable[[], Awaitable[None]]) -> None:
        """Call the hook once before the workspace is saved.

        Args:
            hook: An async function without arguments.
        """
        self._pre_stop_hooks.append(hook)

    async def run_pre_stop_hooks(self) -> None:
        """Run the hooks, each once, in order; all are tried, the first failure is raised."""
        hooks, self._pre_stop_hooks = self._pre_stop_hooks, []
        failure: Exception | None = None
        for hook in hooks:
            try:
                await hook()
            except Exception as error:  # noqa: BLE001  raised below, after the rest was tried
                failure = failure or error
        if failure is not None:
            raise failure

    # --- commands ------------------------------------------------------------------------------

    @abc.abstractmethod
    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: ShellPrefix = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """Run a command to its end. A non-zero exit code is a result, not an error.

        Args:
            *command: The command line, or the command and its arguments.
            timeout: Kill the command after so many seconds; ``None`` removes the limit.
            shell: ``True`` runs it in ``sh``, a list is your own shell command, ``False`` runs the
                arguments directly.
            user: Run the command as this account, if the provider has accounts.

        Returns:
            The output and the exit code.

        Raises:
            ExecTimeoutError: The command did not end in time.
            ExecTransportError: The sandbox could not be reached.

        Example:
            result = await session.exec("python -m pytest", timeout=300)
            print(result.exit_code, result.stdout.decode())
        """

    def supports_pty(self) -> bool:
        """Whether the session has interactive commands (:meth:`pty_exec_start`)."""
        return False

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: ShellPrefix = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Start a command and wait for its first output; it may keep running and accept input.

        Args:
            *command: The command line, or the command and its arguments.
            timeout: Kill the command after so many seconds; ``None`` removes the limit.
            shell: As for :meth:`exec`.
            user: Run the command as this account, if the provider has accounts.
            tty: Give the command a terminal.
            yield_time_s: How long to wait for output; the session limits it.
            max_output_tokens: Shorten the output to about so many tokens.

        Returns:
            The output so far, and the id or the exit code of the command.

        Raises:
            NotImplementedError: The session has no interactive commands.
        """
        raise NotImplementedError("this sandbox session has no interactive commands")

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Write to a running command and wait for its output.

        Args:
            session_id: The id of the command, from :meth:`pty_exec_start`.
            chars: The characters to write; empty only waits.
            yield_time_s: How long to wait for output; the session limits it.
            max_output_tokens: Shorten the output to about so many tokens.

        Returns:
            The new output, and the id or the exit code of the command.

        Raises:
            NotImplementedError: The session has no interactive commands.
        """
        raise NotImplementedError("this sandbox session has no interactive commands")

    @abc.abstractmethod
    async def pty_terminate_all(self) -> None:
        """Terminate all running commands."""

    @abc.abstractmethod
    async def run_tool(self, name: str, arguments: str, *, cwd: str = "", user: str = "") -> Any:
        """Call a built-in tool as a model would.

        Args:
            name: The name of the tool.
            arguments: The arguments as JSON text.
            cwd: The base of relative paths; empty for the root.
            user: Act as this account, if the provider has accounts.

        Returns:
            The output that a model would get.
        """

    # --- files ---------------------------------------------------------------------------------

    @abc.abstractmethod
    async def read(self, path: AnyPath, *, user: str | User | None = None) -> io.IOBase:
        """Read a file.

        Args:
            path: The file, relative to the root or absolute.
            user: Act as this account, if the provider has accounts.

        Returns:
            A binary stream of the content.

        Raises:
            WorkspaceReadNotFoundError: There is no such file.
        """

    @abc.abstractmethod
    async def write(
        self, path: AnyPath, data: io.IOBase, *, user: str | User | None = None
    ) -> None:
        """Write a file, and create its directory if it is missing.

        Args:
            path: The file, relative to the root or absolute.
            data: A binary stream of the content.
            user: Act as this account, if the provider has accounts.

        Raises:
            WorkspaceWriteTypeError: ``data`` is not a binary stream.

        Example:
            await session.write("notes.txt", io.BytesIO(b"hello"))
        """

    @abc.abstractmethod
    async def ls(self, path: AnyPath, *, user: str | User | None = None) -> list[FileEntry]:
        """List a directory.

        Args:
            path: The directory, relative to the root or absolute.
            user: Act as this account, if the provider has accounts.

        Returns:
            Its entries.
        """

    @abc.abstractmethod
    async def mkdir(
        self, path: AnyPath, *, parents: bool = False, user: str | User | None = None
    ) -> None:
        """Create a directory.

        Args:
            path: The directory, relative to the root or absolute.
            parents: Also create missing parents, and accept an existing directory.
            user: Act as this account, if the provider has accounts.
        """

    @abc.abstractmethod
    async def rm(
        self, path: AnyPath, *, recursive: bool = False, user: str | User | None = None
    ) -> None:
        """Remove a file or a directory.

        Args:
            path: The path, relative to the root or absolute.
            recursive: Also remove the contents of a directory.
            user: Act as this account, if the provider has accounts.
        """

    @abc.abstractmethod
    async def mv(
        self, source: AnyPath, destination: AnyPath, *, user: str | User | None = None
    ) -> None:
        """Move a file or a directory.

        Args:
            source: The path to move.
            destination: The new path.
            user: Act as this account, if the provider has accounts.
        """

    @abc.abstractmethod
    async def same_file(
        self,
        left: AnyPath,
        right: AnyPath,
        *,
        follow_symlinks: bool = True,
        user: str | User | None = None,
    ) -> bool:
        """Are both paths the same file?

        Args:
            left: One path, relative to the root or absolute.
            right: The other path.
            follow_symlinks: Whether a link counts as its target; otherwise a link is never the same
                file.
            user: Act as this account, if the provider has accounts.
        """

    @abc.abstractmethod
    async def read_bounded(self, path: AnyPath, *, max_bytes: int) -> bytes:
        """Read the beginning of a file.

        Args:
            path: The file, relative to the root or absolute.
            max_bytes: How many bytes to read at most.

        Returns:
            The bytes.
        """

    @abc.abstractmethod
    async def extract(
        self,
        path: AnyPath,
        data: io.IOBase,
        *,
        compression_scheme: Literal["tar", "zip"] | str | None = None,
        archive_limits: SandboxArchiveLimits | None = None,
    ) -> None:
        """Unpack an archive into a directory; refused if a member could leave the directory.

        Args:
            path: The path of the archive. It is unpacked into the directory of this path; with a
                ``compression_scheme`` and a path without a suffix, into the path itself.
            data: A binary stream of the archive.
            compression_scheme: The format, such as ``tar`` or ``zip``; ``None`` reads it from the
                suffix of the path.
            archive_limits: Limits of the archive; ``None`` uses those of the session, or the
                defaults of ``SandboxArchiveLimits()``.
        """

    @abc.abstractmethod
    async def apply_patch(
        self,
        operations: Any,
        *,
        patch_format: Any = "v4a",
        user: str | User | None = None,
    ) -> str:
        """Create, change and delete files: all operations or none.

        Args:
            operations: One operation or a list of them, each with a ``type``, a ``path`` and a
                ``diff``.
            patch_format: The format of the diffs.
            user: Act as this account, if the provider has accounts.

        Returns:
            A summary of the changes.
        """

    @abc.abstractmethod
    def normalize_path(self, path: AnyPath, *, for_write: bool = False) -> Path:
        """The absolute path in the sandbox.

        Args:
            path: The path, relative to the root or absolute.
            for_write: Whether the path is to be changed; read-only grants then do not count.

        Raises:
            InvalidManifestPathError: The path is outside the workspace and the grants.
            WorkspaceArchiveWriteError: The path may only be read.
        """

    # --- the workspace as a whole --------------------------------------------------------------

    @abc.abstractmethod
    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar archive."""

    @abc.abstractmethod
    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Put the contents of a tar archive into the workspace.

        Args:
            data: A binary stream of the archive.
        """

    @abc.abstractmethod
    async def apply_manifest(self, *, only_ephemeral: bool = False) -> Any:
        """Write the manifest's entries again.

        Args:
            only_ephemeral: Whether to write only the entries that snapshots leave out.
        """

    def register_persist_workspace_skip_path(self, path: AnyPath) -> Path:
        """Exclude this path from snapshots and archives.

        Args:
            path: The path, relative to the root or absolute.

        Returns:
            The path relative to the root.

        Raises:
            ValueError: The path is the root.
        """
        root = PurePosixPath(self.normalize_path(".").as_posix())
        relative = PurePosixPath(self.normalize_path(path).as_posix()).relative_to(root)
        if relative == PurePosixPath("."):
            raise ValueError("the whole workspace cannot be left out of its own snapshot")
        self._skip_paths.add(relative.as_posix())
        return Path(relative)

    def describe(self) -> str:
        """The manifest as text, for the model."""
        return self.state.manifest.describe()

    # --- ports ---------------------------------------------------------------------------------

    @abc.abstractmethod
    async def resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        """The address at which a declared port can be reached from outside.

        Args:
            port: The port in the sandbox.

        Returns:
            The address.

        Raises:
            ExposedPortUnavailableError: The port is not declared or has no address.

        Example:
            endpoint = await session.resolve_exposed_port(8000)
            print(endpoint.url_for("http"))
        """


def shell_argv(command: Sequence[str | Path], shell: ShellPrefix, *, login: bool) -> list[str]:
    """The argument list of a command."""
    parts = [str(part) for part in command]
    if not shell:
        return parts
    line = parts[0] if len(parts) == 1 else shlex.join(parts)
    prefix = shell if isinstance(shell, list) else ["sh", "-lc" if login else "-c"]
    return [*prefix, line]
