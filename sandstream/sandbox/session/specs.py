"""Converts a session's state to the spec from which a sandbox actor creates the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandstream_bus.wire.sandboxes import EnvironmentValue, GrantSpec, SandboxSpec
from sandstream_workspaces.store import WorkspaceStore

from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.plan import environment_of, plan_of
from sandstream.sandbox.session.settings import SandboxSettings
from sandstream.sandbox.workspace_paths import sandbox_path_grant_host_path

if TYPE_CHECKING:
    from sandstream.sandbox.config import SandboxConcurrencyLimits


async def sandbox_spec(
    manifest: Manifest,
    settings: SandboxSettings,
    store: WorkspaceStore,
    *,
    provider: str,
    node: str,
    base: str = "",
    concurrency: SandboxConcurrencyLimits | None = None,
) -> SandboxSpec:
    """Make the spec; uploads all files of the caller's machine to the object store."""
    host = {name: EnvironmentValue(value=value) for name, value in settings.environment.items()}
    return SandboxSpec(
        provider=provider,
        node=node,
        root=manifest.root,
        plan=await plan_of(
            manifest, store, concurrency=concurrency.manifest_entries if concurrency else 4
        ),
        base=base,
        environment={**host, **await environment_of(manifest)},
        ports=list(settings.ports),
        network=settings.network,
        limits=settings.limits,
        grants=[
            GrantSpec(
                path=it.path,
                host_path=str(sandbox_path_grant_host_path(it)),
                read_only=it.read_only,
            )
            for it in manifest.extra_path_grants
        ],
        options=settings.options,
        idle_s=settings.idle_s,
    )
