"""The session object: a proxy that sends each operation as a message to the sandbox's actor."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
from sandstream_bus.wire.sandboxes import (
    ApplyPlan,
    Checkpoint,
    Checkpointed,
    Close,
    Endpoint,
    Exec,
    Executed,
    Interact,
    KillAll,
    Open,
    Opened,
    Pause,
    Probe,
    ResolvePort,
    Running,
    RunTool,
    SandboxSpec,
    ToolAnswer,
)

from sandstream.sandbox.config import SandboxArchiveLimits, SandboxConcurrencyLimits
from sandstream.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    SandboxError,
    WorkspaceStartError,
    WorkspaceStopError,
)
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.plan import custom_entries, plan_of
from sandstream.sandbox.session.base_sandbox_session import ShellPrefix, shell_argv
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.link import Remote, SandboxLink
from sandstream.sandbox.session.manager import Instrumentation, SessionEvents
from sandstream.sandbox.session.pty_types import PtyExecUpdate
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.session_close import session_closed
from sandstream.sandbox.session.settings import SandboxSettings
from sandstream.sandbox.session.specs import sandbox_spec
from sandstream.sandbox.session.utils import endpoint_data
from sandstream.sandbox.session.workspace import WorkspaceSession, name_of
from sandstream.sandbox.snapshot import BusSnapshot
from sandstream.sandbox.types import ExecResult, ExposedPortEndpoint, User

_MIN_YIELD_S, _MIN_POLL_S, _MAX_YIELD_S = 0.25, 5.0, 30.0


class SandboxSession(WorkspaceSession):
    """One sandbox, on any node.

    Args:
        state: The data to resume the sandbox. The session keeps it up to date.
        link: The connection to the sandbox's actor.
        settings: The settings with which the sandbox is created.
        instrumentation: Receives events about the operations; ``None`` for no events.
        dependencies: Objects for snapshots and entries of your own; ``None`` for none.
        run: The run that the session belongs to; empty if it belongs to none.

    Example:
        async with await client.create(manifest=manifest) as session:
            await session.write("notes.txt", io.BytesIO(b"hello"))
            result = await session.exec("wc -c notes.txt")
            print(result.stdout.decode())
    """

    def __init__(
        self,
        state: SandboxSessionState,
        link: SandboxLink,
        settings: SandboxSettings,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
        run: str = "",
    ) -> None:
        super().__init__(dependencies)
        self.state = state
        self.settings = settings
        self.remote = Remote(link, state.bus_name, run=run)
        self.archive_limits: SandboxArchiveLimits | None = None
        self.concurrency_limits: SandboxConcurrencyLimits | None = None
        self._events = SessionEvents(instrumentation, state.session_id)
        self._events.bind_session(self)
        self._is_open = False
        self.waits_for_memory = False
        """Whether closing waits until the memory includes the session's runs."""

    @property
    def sandbox_id(self) -> str:
        """The id in the state: the sandbox's name on the bus, or a hosted provider's own id."""
        return self.state.sandbox_id

    @property
    def bus_name(self) -> str:
        """The sandbox's name on the bus."""
        return self.state.bus_name

    def __repr__(self) -> str:
        return f"<SandboxSession {self.bus_name} provider={self.remote.link.provider}>"

    # --- lifecycle ----------------------------------------------------------------------------

    async def start(self) -> None:
        async with self._events.operation("start"):
            await self._started()

    async def _started(self, *, anew: bool = False) -> bool:
        try:
            return await self._start(anew=anew)
        except SandboxError:
            raise
        except OSError as error:
            raise WorkspaceStartError(path=Path(self.root), cause=error) from error

    async def _start(self, *, anew: bool = False) -> bool:
        """Open the sandbox; return whether its box is a new one. ``anew``: if it is lost and has no
        checkpoint, begin again.
        """
        await self.replace_if_deleted()
        record = await self.remote.record()
        if record.state == "unknown":
            action = Open(spec=await self.spec())
        else:
            action = Open(anew=anew)
        if not record.is_live:
            self.remote.node = await self.remote.link.node()
        opened = await self.remote.ask(action, Opened)
        self.adopt(opened)
        is_new = opened.created or not record.is_live or opened.generation != record.generation
        if is_new:
            await self._apply_custom_entries(only_ephemeral=bool(opened.restored))
        return is_new

    async def _apply_custom_entries(self, *, only_ephemeral: bool) -> None:
        """The user's own entries write themselves through this session."""
        for path, entry in custom_entries(self.state.manifest, only_ephemeral=only_ephemeral):
            await entry.apply(self, Path(self.root) / path, Path.cwd())

    async def replace_if_deleted(self) -> None:
        """A state may outlive its sandbox: if the sandbox was deleted, use a new one that starts
        from the snapshot.
        """
        if (await self.remote.record()).state == "deleted":
            self.state.rename(f"s-{uuid.uuid4().hex}")
            self.remote.sandbox = self.state.bus_name
            self.remote.node = ""

    async def spec(self, *, with_plan: bool = True) -> SandboxSpec:
        """The description to create the sandbox from.

        Args:
            with_plan: Whether to include the contents of the workspace; otherwise only the
                location.
        """
        link = self.remote.link
        if not with_plan:
            return SandboxSpec(
                provider=link.provider, node=self.remote.node, root=self.state.manifest.root
            )
        return await sandbox_spec(
            self.state.manifest,
            self.settings,
            await link.store(),
            provider=link.provider,
            node=await link.node(),
            base=await self.stored_tree(),
            concurrency=self.concurrency_limits,
        )

    @property
    def root_is_known(self) -> bool:
        """Whether the workspace will have the root from the manifest."""
        return bool(self._root) or self.settings.keeps_root

    async def located_manifest(self) -> Manifest:
        """The manifest with the actual root of the sandbox."""
        if not self._root:
            self.root = (await self.remote.record()).root or self.root
        return self.state.manifest.model_copy(update={"root": self.root})

    async def add_entries(self, manifest: Manifest, new: dict[Any, Any]) -> None:
        """Write new entries into the running sandbox.

        Args:
            manifest: The whole new manifest.
            new: The entries that the sandbox does not have yet, by path.
        """
        added = manifest.model_copy(update={"entries": new})
        plan = await plan_of(added, await self.remote.link.store())
        await self.remote.ask(ApplyPlan(plan=plan))
        self.state.manifest = manifest

    def adopt(self, opened: Opened) -> None:
        """Note the location of the opened sandbox.

        Args:
            opened: The actor's answer to the request to open the sandbox.
        """
        self.remote.node = opened.node
        self.root = opened.root
        self.state.note_box(opened.box_id)
        self.state.workspace_root_ready = True
        self._is_open = True

    async def stop(self) -> None:
        async with self._events.operation("stop"):
            await self.pty_terminate_all()
            try:
                await self.checkpoint()
                await self.export_snapshot()
            except SandboxError:
                raise
            except OSError as error:
                raise WorkspaceStopError(path=Path(self.root), cause=error) from error

    async def checkpoint(self) -> str:
        """Save the workspace in the object store; return the digest of its tree."""
        saved = await self.remote.ask(Checkpoint(exclude=sorted(self._skip_paths)), Checkpointed)
        self._saved(saved.tree)
        return saved.tree

    async def fork(self) -> SandboxSession:
        """Another sandbox, not started yet, that continues from here. The two are independent;
        their common files are stored once.
        """
        tree = await self.checkpoint()
        session_id = uuid.uuid4()
        state = self.state.model_copy(
            update={
                "session_id": session_id,
                "snapshot": BusSnapshot(id=str(session_id), tree=tree),
                "snapshot_fingerprint": tree,
                "workspace_root_ready": False,
            },
            deep=True,
        )
        state.rename(f"s-{session_id.hex}")
        dependencies = self._dependencies.clone() if self._dependencies else None
        return type(self)(state, self.remote.link, self.settings, dependencies=dependencies)

    async def shutdown(self) -> None:
        async with self._events.operation("shutdown"):
            record = await self.remote.record()
            self.state.note_box(record.box_id)
            if record.is_live:
                close = Close(exclude=sorted(self._skip_paths))
                saved = await self.remote.ask(close, Checkpointed)
                self._saved(saved.tree)
            self._is_open = False
            if record.memories:
                await session_closed(self, record)

    async def delete(self) -> None:
        """Remove the sandbox permanently. Snapshots stay."""
        record = await self.remote.record()
        if record.state not in ("unknown", "deleted"):
            if not record.is_live:
                self.remote.node = await self.remote.link.node()
            await self.remote.ask(Close(checkpoint=False, delete=True))
        self._is_open = False

    async def pause(self) -> None:
        """Freeze all processes of the sandbox. The next operation wakes it."""
        await self.remote.ask(Pause())

    async def running(self) -> bool:
        async with self._events.operation("running") as finish:
            alive = await self._is_running()
            finish.data = {"alive": alive}
            return alive

    async def _is_running(self) -> bool:
        record = await self.remote.record()
        if not record.is_live:
            return False
        self.remote.node = ""  # it may have moved
        return (await self.remote.ask(Probe(), Running)).running

    async def _flush_events(self) -> None:
        await self._events.flush()

    def _saved(self, tree: str) -> None:
        self.state.snapshot_fingerprint = tree or self.state.snapshot_fingerprint
        self.state.snapshot_fingerprint_version = "sandstream_tree_v1"

    # --- commands ------------------------------------------------------------------------------

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: ShellPrefix = True,
        user: str | User | None = None,
    ) -> ExecResult:
        argv = shell_argv(command, shell, login=self.settings.login_shell)
        words = [str(word) for word in command]
        async with self._events.operation(
            "exec", command=words, timeout_s=timeout, shell=shell, user=name_of(user) or None
        ) as finish:
            done = await self._executed(Exec(argv=argv, timeout_s=timeout, user=name_of(user)))
            if done.killed == "timeout":
                raise ExecTimeoutError(command=command, timeout_s=timeout)
            if done.state == "lost":
                raise ExecTransportError(
                    command=command, context={"reason": "the sandbox was lost while it ran"}
                )
            code = done.exit_code if done.exit_code is not None else -1
            finish.exited(code, done.stdout, done.stderr)
            return ExecResult(stdout=done.stdout, stderr=done.stderr, exit_code=code)

    async def _executed(self, action: Exec | Interact) -> Executed:
        """The outcome of a command, with its complete output."""
        done = await self.remote.ask(action, Executed)
        objects = (await self.remote.link.bus()).objects
        if done.stdout_object:
            data = await objects.get(done.stdout_object)
            done = msgspec.structs.replace(done, stdout=data)
        if done.stderr_object:
            data = await objects.get(done.stderr_object)
            done = msgspec.structs.replace(done, stderr=data)
        return done

    def supports_pty(self) -> bool:
        return True

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
        wait_s = 10.0 if yield_time_s is None else yield_time_s
        action = Exec(
            argv=shell_argv(command, shell, login=self.settings.login_shell),
            timeout_s=timeout,
            wait_s=max(_MIN_YIELD_S, min(wait_s, _MAX_YIELD_S)),
            tty=tty,
            keep_stdin=tty,
            user=name_of(user),
        )
        return _update(await self._executed(action), max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        least_s = _MIN_YIELD_S if chars else _MIN_POLL_S
        wait_s = 0.25 if yield_time_s is None else yield_time_s
        action = Interact(
            session=session_id,
            data=chars.encode(),
            wait_s=max(least_s, min(wait_s, _MAX_YIELD_S)),
        )
        return _update(await self._executed(action), max_output_tokens)

    async def pty_terminate_all(self) -> None:
        await self.remote.ask(KillAll())

    async def run_tool(self, name: str, arguments: str, *, cwd: str = "", user: str = "") -> Any:
        action = RunTool(name=name, arguments=arguments, cwd=cwd, user=user)
        answer = await self.remote.ask(action, ToolAnswer)
        return msgspec.json.decode(answer.output)

    # --- ports ---------------------------------------------------------------------------------

    async def resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        async with self._events.operation("resolve_exposed_port", port=port) as finish:
            if port not in self.state.exposed_ports:
                raise ExposedPortUnavailableError(
                    port=port, exposed_ports=self.state.exposed_ports, reason="not_configured"
                )
            found = await self.remote.ask(ResolvePort(port=port), Endpoint)
            endpoint = ExposedPortEndpoint(
                host=found.host, port=found.port, tls=found.tls, query=found.query
            )
            finish.data = endpoint_data(endpoint)
            return endpoint


def _update(done: Executed, max_output_tokens: int | None) -> PtyExecUpdate:
    from sandstream_actors.sandbox.tools.truncation import shorten

    if done.state == "lost":
        raise ExecTransportError(
            command=(), context={"reason": "the sandbox was lost while the terminal was open"}
        )
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    shortened, count = shorten(text, max_output_tokens)
    return PtyExecUpdate(
        process_id=done.session if done.state == "running" else None,
        output=shortened.encode(),
        exit_code=done.exit_code,
        original_token_count=count,
    )
