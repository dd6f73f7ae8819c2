"""Sandboxes on this machine, isolated by default."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import Field
from sandstream_bus.environment import environment, local_isolation
from sandstream_providers.registry import LOCAL

from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.plan import check_manifest
from sandstream.sandbox.sandboxes._process_link import ProcessLink
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.link import SandboxLink
from sandstream.sandbox.session.manager import Instrumentation
from sandstream.sandbox.session.sandbox_client import (
    BaseSandboxClient,
    BaseSandboxClientOptions,
)
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.settings import SandboxSettings, limits_of

Isolation = Literal["required", "none"]

UnixLocalSandboxSession = SandboxSession


class UnixLocalSandboxSessionState(SandboxSessionState):
    """The state of a session on this machine."""

    type: Literal["unix_local"] = "unix_local"  # pyright: ignore[reportIncompatibleVariableOverride]
    workspace_root_owned: bool = True
    """Accepted for compatibility; the provider always owns the workspace."""


class UnixLocalSandboxClientOptions(BaseSandboxClientOptions):
    """Options of a sandbox on this machine.

    Example:
        UnixLocalSandboxClientOptions(exposed_ports=(8000,), limits={"memory_mb": 2048})
    """

    type: Literal["unix_local"] = "unix_local"  # pyright: ignore[reportIncompatibleVariableOverride]
    exposed_ports: tuple[int, ...] = ()
    """Ports that can be reached from this machine."""
    network: Literal["none", "host"] = "none"
    """Whether commands may use this machine's network."""
    limits: dict[str, float | int | None] = Field(default_factory=dict)
    """Any of ``cpus``, ``memory_mb``, ``processes``, ``disk_mb``, ``file_mb`` and ``wall_s``;
    ``None`` removes a default limit."""
    idle_s: float | None = None
    """Seconds without an operation after which the sandbox is paused; ``None`` for never."""


class UnixLocalSandboxClient(BaseSandboxClient[UnixLocalSandboxClientOptions]):
    """Sandboxes of this machine, served by this process.

    They are isolated: own processes, own files, no network, no view of the host's home and
    environment. If the machine cannot isolate them, starting one fails with the reason;
    ``isolation="none"`` (or ``SANDSTREAM_LOCAL_ISOLATION=none``) turns isolation off.

    Args:
        instrumentation: Receives events about the operations of sessions.
        dependencies: Objects for snapshots and other parts of sessions; each session gets a copy.
        inherit_host_environment: Let commands see all variables of this process, except ``PATH``,
            ``HOME`` and ``PWD``.
        host_environment_allowlist: The names of the variables of this process that commands see.
        isolation: ``required`` or ``none``; ``None`` reads ``SANDSTREAM_LOCAL_ISOLATION``.

    Raises:
        ValueError: ``isolation`` is unknown, or both ways to pass variables are used.
        TypeError: ``host_environment_allowlist`` is a string.

    Example:
        client = UnixLocalSandboxClient(host_environment_allowlist=["LANG"])
        async with await client.create() as session:
            print((await session.exec("ls -la")).stdout.decode())
    """

    backend_id = "unix_local"
    supports_default_options = True

    def __init__(
        self,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
        inherit_host_environment: bool = False,
        host_environment_allowlist: Collection[str] | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        super().__init__(instrumentation=instrumentation, dependencies=dependencies)
        if inherit_host_environment and host_environment_allowlist is not None:
            raise ValueError("host_environment_allowlist requires inherit_host_environment=False")
        if isinstance(host_environment_allowlist, str):
            raise TypeError("host_environment_allowlist must be a collection of variable names")
        chosen = isolation or local_isolation()
        if chosen not in ("required", "none"):
            raise ValueError(f"isolation must be 'required' or 'none'; it is {chosen!r}")
        self._link = ProcessLink(LOCAL.name, chosen)
        self._inherit = inherit_host_environment
        self._allowed = tuple(host_environment_allowlist or ())

    @property
    def link(self) -> SandboxLink:
        return self._link

    @property
    def state_class(self) -> type[SandboxSessionState]:
        return UnixLocalSandboxSessionState

    def settings(self, options: UnixLocalSandboxClientOptions | None) -> SandboxSettings:
        chosen = options if options is not None else UnixLocalSandboxClientOptions()
        return SandboxSettings(
            ports=tuple(chosen.exposed_ports),
            network=chosen.network,
            limits=limits_of(chosen.limits),
            environment=self._environment(),
            login_shell=False,
            keeps_root=self._link.isolation != "none",
            idle_s=chosen.idle_s,
        )

    def check_manifest(self, manifest: Manifest) -> None:
        check_manifest(manifest, supports_users=False, provider=self._link.provider)
        for grant in manifest.extra_path_grants:
            if grant.host_path is not None:
                raise ValueError(
                    f"the path grant {grant.path!r} has a host_path, which the local provider does "
                    "not know: the path is the same inside and outside, so leave it out"
                )

    def _environment(self) -> dict[str, str]:
        """The variables of this process that commands may see: only the requested ones."""
        if self._inherit:
            return {k: v for k, v in environment().items() if k not in ("PATH", "HOME", "PWD")}
        return {name: it for name, it in environment().items() if name in self._allowed}
