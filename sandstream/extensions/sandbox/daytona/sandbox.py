"""Sandboxes at Daytona. Its package is imported where the sandbox actor runs, not here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from sandstream_providers.registry import DAYTONA

from sandstream.extensions.sandbox._hosted import (
    IDLE_S,
    HostedSandboxClient,
    HostedSandboxSession,
    HostedSandboxSessionState,
    given,
)
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.manager import Instrumentation
from sandstream.sandbox.session.sandbox_client import BaseSandboxClientOptions
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.settings import SandboxSettings

__all__ = [
    "DEFAULT_DAYTONA_WORKSPACE_ROOT",
    "DaytonaSandboxClient",
    "DaytonaSandboxClientOptions",
    "DaytonaSandboxResources",
    "DaytonaSandboxSession",
    "DaytonaSandboxSessionState",
    "DaytonaSandboxTimeouts",
]

DEFAULT_DAYTONA_WORKSPACE_ROOT = "/home/daytona/workspace"
"""The root of a session without a manifest: Daytona's user can write there."""


class DaytonaSandboxResources(BaseModel):
    """The size of a sandbox. ``None`` is Daytona's default."""

    model_config = ConfigDict(frozen=True)

    cpu: int | None = None
    """Cores."""
    memory: int | None = None
    """GiB."""
    disk: int | None = None
    """GiB."""


class DaytonaSandboxTimeouts(BaseModel):
    """Time limits in seconds. They are kept with the state, for programs that read them; the
    operations of sessions have limits of their own.
    """

    exec_timeout_unbounded_s: int = Field(default=24 * 60 * 60, ge=1)
    """A command without a time limit."""
    keepalive_s: int = Field(default=10, ge=1)
    """A call that keeps the sandbox alive."""
    cleanup_s: int = Field(default=30, ge=1)
    """The removal of temporary files."""
    fast_op_s: int = Field(default=30, ge=1)
    """A small operation."""
    file_upload_s: int = Field(default=1800, ge=1)
    """Writing one file."""
    file_download_s: int = Field(default=1800, ge=1)
    """Reading one file."""
    workspace_tar_s: int = Field(default=300, ge=1)
    """Packing the workspace."""


class DaytonaSandboxClientOptions(BaseSandboxClientOptions):
    """Options of new sandboxes at Daytona.

    Args:
        sandbox_snapshot_name: A snapshot of the account, from which the sandbox is made.
        image: An image of a registry; without effect if a snapshot is named. ``None``: Daytona's
            default.
        resources: The size of a sandbox that is made from an image; a snapshot has its own size.
        env_vars: The environment of every command; the manifest's own variables are stronger. The
            values are not stored at Daytona.
        pause_on_exit: When the session closes, pause the sandbox and keep it for ``resume``.
        create_timeout: Seconds that Daytona may take to make the sandbox.
        start_timeout: Seconds that a sleeping sandbox may take to wake.
        name: The sandbox's name at Daytona. A sandbox that replaces a lost one gets a number
            behind the name. ``None``: Sandstream chooses a name.
        auto_stop_interval: Minutes without activity after which Daytona stops the sandbox, if no
            process of ours is left to pause it. 0: 15 minutes.
        timeouts: Kept with the state; without effect.
        exposed_ports: Ports that can be reached through a signed URL.
        exposed_port_url_ttl_s: Seconds for which such a URL is valid, at most a day.
        type: Always ``daytona``.
        labels: Added to the sandbox's labels.
        idle_s: Seconds without an operation after which the sandbox is saved and paused; ``None``
            for never.

    Example:
        options = DaytonaSandboxClientOptions(
            image="python:3.13-slim",
            resources=DaytonaSandboxResources(cpu=2, memory=4),
            pause_on_exit=True,
        )
    """

    type: Literal["daytona"] = "daytona"  # pyright: ignore[reportIncompatibleVariableOverride]
    sandbox_snapshot_name: str | None = None
    image: str | None = None
    resources: DaytonaSandboxResources | None = None
    env_vars: dict[str, str] | None = None
    pause_on_exit: bool = False
    create_timeout: int = Field(default=60, ge=1)
    start_timeout: int = Field(default=60, ge=1)
    name: str | None = None
    auto_stop_interval: int = Field(default=0, ge=0)
    timeouts: DaytonaSandboxTimeouts | None = None
    exposed_ports: tuple[int, ...] = ()
    exposed_port_url_ttl_s: int = Field(default=3600, ge=1)
    labels: dict[str, str] | None = None
    idle_s: float | None = Field(default=IDLE_S, ge=0)

    def __init__(
        self,
        sandbox_snapshot_name: str | None = None,
        image: str | None = None,
        resources: DaytonaSandboxResources | None = None,
        env_vars: dict[str, str] | None = None,
        pause_on_exit: bool = False,
        create_timeout: int = 60,
        start_timeout: int = 60,
        name: str | None = None,
        auto_stop_interval: int = 0,
        timeouts: DaytonaSandboxTimeouts | dict[str, object] | None = None,
        exposed_ports: tuple[int, ...] = (),
        exposed_port_url_ttl_s: int = 3600,
        *,
        type: Literal["daytona"] = "daytona",
        labels: dict[str, str] | None = None,
        idle_s: float | None = IDLE_S,
    ) -> None:
        super().__init__(
            type=type,
            sandbox_snapshot_name=sandbox_snapshot_name,
            image=image,
            resources=resources,
            env_vars=env_vars,
            pause_on_exit=pause_on_exit,
            create_timeout=create_timeout,
            start_timeout=start_timeout,
            name=name,
            auto_stop_interval=auto_stop_interval,
            timeouts=timeouts,
            exposed_ports=exposed_ports,
            exposed_port_url_ttl_s=exposed_port_url_ttl_s,
            labels=labels,
            idle_s=idle_s,
        )


class DaytonaSandboxSessionState(HostedSandboxSessionState):
    """The state of a session at Daytona. ``sandbox_id`` is Daytona's id. The other fields have the
    values of the options, so that ``resume`` can make the sandbox again.
    """

    type: Literal["daytona"] = "daytona"  # pyright: ignore[reportIncompatibleVariableOverride]
    sandbox_snapshot_name: str | None = None
    """The snapshot of the account from which the sandbox is made."""
    image: str | None = None
    """The image of a registry from which it is made, if no snapshot is named."""
    base_env_vars: dict[str, str] = Field(default_factory=dict)
    """``env_vars`` of the options: the environment of every command."""
    create_timeout: int = 60
    """Seconds that Daytona may take to make the sandbox."""
    start_timeout: int = 60
    """Seconds that a sleeping sandbox may take to wake."""
    name: str | None = None
    """The sandbox's name at Daytona, if the options had one."""
    resources: DaytonaSandboxResources | None = None
    """The size of a sandbox that is made from an image."""
    auto_stop_interval: int = 0
    """Minutes without activity after which Daytona stops the sandbox. 0: 15 minutes."""
    timeouts: DaytonaSandboxTimeouts = Field(default_factory=DaytonaSandboxTimeouts)
    """Kept for programs that read it; without effect."""
    exposed_port_url_ttl_s: int = 3600
    """Seconds for which the signed URL of a port is valid."""
    labels: dict[str, str] | None = None
    """Added to the sandbox's labels."""


class DaytonaSandboxSession(HostedSandboxSession):
    """A session whose sandbox is at Daytona."""

    state: DaytonaSandboxSessionState


class DaytonaSandboxClient(HostedSandboxClient[DaytonaSandboxClientOptions]):
    """Sandboxes at Daytona. Needs a key, and ``pip install sandstream[daytona]``.

    Args:
        api_key: The key. ``None``: that of ``DAYTONA_API_KEY``.
        api_url: Where Daytona's API is. ``None``: where ``DAYTONA_API_URL`` says, else its cloud.
        instrumentation: Receives events about the operations of sessions.
        dependencies: Objects for snapshots and other parts of sessions; each session gets a copy.

    Example:
        client = DaytonaSandboxClient()
        async with await client.create(options=DaytonaSandboxClientOptions()) as session:
            print((await session.exec("uname -a")).stdout.decode())
    """

    backend_id = DAYTONA.name
    entry = DAYTONA
    label = "Daytona"
    supports_default_options = True

    def __init__(
        self,
        api_key: str | None = None,
        api_url: str | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        super().__init__(
            endpoint=api_url or "",
            api_key=api_key or "",
            instrumentation=instrumentation,
            dependencies=dependencies,
        )

    @property
    def state_class(self) -> type[SandboxSessionState]:
        return DaytonaSandboxSessionState

    @property
    def session_class(self) -> type[SandboxSession]:
        return DaytonaSandboxSession

    def default_manifest(self) -> Manifest:
        return Manifest(root=DEFAULT_DAYTONA_WORKSPACE_ROOT)

    def settings(self, options: DaytonaSandboxClientOptions | None) -> SandboxSettings:
        chosen = options if options is not None else DaytonaSandboxClientOptions()
        return _settings(chosen, chosen.env_vars or {})

    def state_fields(self, options: DaytonaSandboxClientOptions | None) -> dict[str, Any]:
        if options is None:
            return {}
        fields = {
            name: getattr(options, name)
            for name in DaytonaSandboxSessionState.model_fields
            if name in DaytonaSandboxClientOptions.model_fields and name != "type"
        }
        fields["base_env_vars"] = dict(options.env_vars or {})
        fields["timeouts"] = options.timeouts or DaytonaSandboxTimeouts()
        return fields

    def settings_of(
        self, state: SandboxSessionState, options: DaytonaSandboxClientOptions | None
    ) -> SandboxSettings:
        if options is None and isinstance(state, DaytonaSandboxSessionState):
            return _settings(state, state.base_env_vars)
        return self.settings(options)


def _settings(
    chosen: DaytonaSandboxClientOptions | DaytonaSandboxSessionState, environment: dict[str, str]
) -> SandboxSettings:
    """What the provider must know; options at their defaults are left out."""
    snapshot = chosen.sandbox_snapshot_name or None
    image = None if snapshot else chosen.image or None
    size = chosen.resources.model_dump(exclude_none=True) if chosen.resources else {}
    return SandboxSettings(
        ports=tuple(chosen.exposed_ports),
        network="host",
        environment=dict(environment),
        options=given(
            snapshot=snapshot,
            image=image,
            resources=(size or None) if image else None,
            name=chosen.name or None,
            auto_stop_interval=chosen.auto_stop_interval or None,
            create_timeout=_unless(chosen.create_timeout, 60),
            start_timeout=_unless(chosen.start_timeout, 60),
            url_ttl_s=_unless(chosen.exposed_port_url_ttl_s, 3600),
            labels=chosen.labels or None,
        ),
        idle_s=chosen.idle_s,
        keep_paused=chosen.pause_on_exit,
        grants_inside=True,
    )


def _unless(value: int, default: int) -> int | None:
    return None if value == default else value
