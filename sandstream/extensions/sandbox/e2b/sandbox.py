"""Sandboxes at E2B. Its package is imported where the sandbox actor runs, not here."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from pydantic import BaseModel, Field
from sandstream_providers.registry import E2B

from sandstream.extensions.sandbox._hosted import (
    IDLE_S,
    HostedSandboxClient,
    HostedSandboxSession,
    HostedSandboxSessionState,
    given,
)
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.manager import Instrumentation
from sandstream.sandbox.session.sandbox_client import BaseSandboxClientOptions
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.settings import SandboxSettings

__all__ = [
    "E2BSandboxClient",
    "E2BSandboxClientOptions",
    "E2BSandboxSession",
    "E2BSandboxSessionState",
    "E2BSandboxTimeouts",
    "E2BSandboxType",
]

Persistence = Literal["tar", "snapshot"]
TimeoutAction = Literal["kill", "pause"]
McpServers = dict[str, dict[str, str]]


class E2BSandboxType(str, Enum):  # noqa: UP042  as the Agents SDK has it
    """Which of E2B's default templates is used, if none is named."""

    CODE_INTERPRETER = "e2b_code_interpreter"
    E2B = "e2b"


class E2BSandboxTimeouts(BaseModel):
    """Time limits in seconds. They are kept with the state, for programs that read them; the
    operations of sessions have limits of their own.
    """

    exec_timeout_unbounded_s: float = Field(default=24 * 60 * 60, ge=1)
    """A command without a time limit."""
    keepalive_s: float = Field(default=5, ge=1)
    """A call that keeps the sandbox alive."""
    cleanup_s: float = Field(default=30, ge=1)
    """The removal of temporary files."""
    fast_op_s: float = Field(default=10, ge=1)
    """A small operation."""
    file_upload_s: float = Field(default=30, ge=1)
    """Writing one file."""
    snapshot_tar_s: float = Field(default=60, ge=1)
    """Packing the workspace."""


class E2BSandboxClientOptions(BaseSandboxClientOptions):
    """Options of new sandboxes at E2B.

    Args:
        sandbox_type: Which default template is used, if none is named.
        template: The name or id of a template, which also decides on CPUs and memory.
        timeout: Seconds until E2B pauses or ends a sandbox that no process of ours keeps alive.
            ``None``: 300.
        metadata: Added to the sandbox's metadata.
        envs: The environment of every command; the manifest's own variables are stronger. The
            values are not stored at E2B.
        secure: Accepted for compatibility: E2B secures all sandboxes.
        allow_internet_access: Whether the sandbox can reach the internet.
        timeouts: Kept with the state; without effect.
        pause_on_exit: When the session closes, pause the sandbox and keep it for ``resume``.
        exposed_ports: Ports that can be reached through a host name of E2B.
        workspace_persistence: Accepted for compatibility: the workspace is saved in the object
            store.
        on_timeout: ``pause`` or ``kill``: what E2B does after ``timeout``.
        auto_resume: Requests to a port of a paused sandbox wake it.
        mcp: MCP servers that E2B starts in the sandbox.
        type: Always ``e2b``.
        idle_s: Seconds without an operation after which the sandbox is saved and paused; ``None``
            for never.

    Example:
        options = E2BSandboxClientOptions(
            sandbox_type=E2BSandboxType.E2B, timeout=600, pause_on_exit=True
        )
    """

    type: Literal["e2b"] = "e2b"  # pyright: ignore[reportIncompatibleVariableOverride]
    sandbox_type: E2BSandboxType
    template: str | None = None
    timeout: int | None = Field(default=None, ge=1)
    metadata: dict[str, str] | None = None
    envs: dict[str, str] | None = None
    secure: bool = True
    allow_internet_access: bool = True
    timeouts: E2BSandboxTimeouts | None = None
    pause_on_exit: bool = False
    exposed_ports: tuple[int, ...] = ()
    workspace_persistence: Persistence = "tar"
    on_timeout: TimeoutAction = "pause"
    auto_resume: bool = True
    mcp: McpServers | None = None
    idle_s: float | None = Field(default=IDLE_S, ge=0)

    def __init__(
        self,
        sandbox_type: E2BSandboxType | str,
        template: str | None = None,
        timeout: int | None = None,
        metadata: dict[str, str] | None = None,
        envs: dict[str, str] | None = None,
        secure: bool = True,
        allow_internet_access: bool = True,
        timeouts: E2BSandboxTimeouts | dict[str, object] | None = None,
        pause_on_exit: bool = False,
        exposed_ports: tuple[int, ...] = (),
        workspace_persistence: Persistence = "tar",
        on_timeout: TimeoutAction = "pause",
        auto_resume: bool = True,
        mcp: McpServers | None = None,
        *,
        type: Literal["e2b"] = "e2b",
        idle_s: float | None = IDLE_S,
    ) -> None:
        super().__init__(
            type=type,
            sandbox_type=sandbox_type,
            template=template,
            timeout=timeout,
            metadata=metadata,
            envs=envs,
            secure=secure,
            allow_internet_access=allow_internet_access,
            timeouts=timeouts,
            pause_on_exit=pause_on_exit,
            exposed_ports=exposed_ports,
            workspace_persistence=workspace_persistence,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            mcp=mcp,
            idle_s=idle_s,
        )


class E2BSandboxSessionState(HostedSandboxSessionState):
    """The state of a session at E2B. ``sandbox_id`` is E2B's id. The other fields have the values
    of the options, so that ``resume`` can make the sandbox again.
    """

    type: Literal["e2b"] = "e2b"  # pyright: ignore[reportIncompatibleVariableOverride]
    sandbox_type: E2BSandboxType = E2BSandboxType.E2B
    """Which default template is used, if none is named."""
    template: str | None = None
    """The name or id of the template."""
    sandbox_timeout: int | None = None
    """``timeout`` of the options. ``None``: 300 seconds."""
    metadata: dict[str, str] | None = None
    """Added to the sandbox's metadata."""
    base_envs: dict[str, str] = Field(default_factory=dict)
    """``envs`` of the options: the environment of every command."""
    secure: bool = True
    """Kept for programs that read it; without effect."""
    allow_internet_access: bool = True
    """Whether the sandbox can reach the internet."""
    timeouts: E2BSandboxTimeouts = Field(default_factory=E2BSandboxTimeouts)
    """Kept for programs that read it; without effect."""
    workspace_persistence: Persistence = "tar"
    """Kept for programs that read it; without effect."""
    on_timeout: TimeoutAction = "pause"
    """What E2B does after ``timeout``."""
    auto_resume: bool = True
    """Requests to a port of a paused sandbox wake it."""
    mcp: McpServers | None = None
    """MCP servers that E2B starts in the sandbox."""


class E2BSandboxSession(HostedSandboxSession):
    """A session whose sandbox is at E2B."""

    state: E2BSandboxSessionState


class E2BSandboxClient(HostedSandboxClient[E2BSandboxClientOptions]):
    """Sandboxes at E2B. Needs ``E2B_API_KEY``, and ``pip install sandstream[e2b]``.

    Args:
        instrumentation: Receives events about the operations of sessions.
        dependencies: Objects for snapshots and other parts of sessions; each session gets a copy.

    Example:
        client = E2BSandboxClient()
        options = E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B)
        async with await client.create(options=options) as session:
            print((await session.exec("uname -a")).stdout.decode())
    """

    backend_id = E2B.name
    entry = E2B
    label = "E2B"

    def __init__(
        self,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        super().__init__(instrumentation=instrumentation, dependencies=dependencies)

    @property
    def state_class(self) -> type[SandboxSessionState]:
        return E2BSandboxSessionState

    @property
    def session_class(self) -> type[SandboxSession]:
        return E2BSandboxSession

    def settings(self, options: E2BSandboxClientOptions | None) -> SandboxSettings:
        if options is None:
            raise ValueError("E2BSandboxClient needs E2BSandboxClientOptions(sandbox_type=...)")
        return _settings(options, options.envs or {}, options.timeout)

    def state_fields(self, options: E2BSandboxClientOptions | None) -> dict[str, Any]:
        if options is None:
            return {}
        fields = {
            name: getattr(options, name)
            for name in E2BSandboxSessionState.model_fields
            if name in E2BSandboxClientOptions.model_fields and name != "type"
        }
        fields["base_envs"] = dict(options.envs or {})
        fields["sandbox_timeout"] = options.timeout
        fields["timeouts"] = options.timeouts or E2BSandboxTimeouts()
        return fields

    def settings_of(
        self, state: SandboxSessionState, options: E2BSandboxClientOptions | None
    ) -> SandboxSettings:
        if options is None and isinstance(state, E2BSandboxSessionState):
            return _settings(state, state.base_envs, state.sandbox_timeout)
        return self.settings(options)


def _settings(
    chosen: E2BSandboxClientOptions | E2BSandboxSessionState,
    environment: dict[str, str],
    timeout: int | None,
) -> SandboxSettings:
    """What the provider must know; options at their defaults are left out."""
    kind = chosen.sandbox_type
    return SandboxSettings(
        ports=tuple(chosen.exposed_ports),
        network="host" if chosen.allow_internet_access else "none",
        environment=dict(environment),
        options=given(
            sandbox_type=None if kind is E2BSandboxType.E2B else kind.value,
            template=chosen.template or None,
            timeout=timeout,
            metadata=chosen.metadata or None,
            secure=None if chosen.secure else False,
            allow_internet_access=None if chosen.allow_internet_access else False,
            workspace_persistence=(
                None if chosen.workspace_persistence == "tar" else chosen.workspace_persistence
            ),
            on_timeout=None if chosen.on_timeout == "pause" else chosen.on_timeout,
            auto_resume=None if chosen.auto_resume else False,
            mcp=chosen.mcp,
        ),
        idle_s=chosen.idle_s,
        keep_paused=chosen.pause_on_exit,
        grants_inside=True,
    )
