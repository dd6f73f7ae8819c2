"""Converts a session's state to the spec from which a sandbox actor creates the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandstream_bus.wire.sandboxes import EnvironmentValue, GrantSpec, SandboxSpec
from sandstream_workspaces.store import WorkspaceStore

from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.plan import environment_of, plan_of
from sandstream.sandbox.session.settings import SandboxSettings
from sandstream.sandbox.workspace_paths import SandboxPathGrant, sandbox_path_grant_host_path

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
            _grant(it, inside=settings.grants_inside and it.host_path is None)
            for it in manifest.extra_path_grants
        ],
        options={**settings.options, **_accounts(manifest)},
        idle_s=settings.idle_s,
        keep_paused=settings.keep_paused,
    )


def _grant(grant: SandboxPathGrant, *, inside: bool) -> GrantSpec:
    if inside:
        return GrantSpec(path=grant.path, read_only=grant.read_only, inside=True)
    host_path = str(sandbox_path_grant_host_path(grant))
    return GrantSpec(path=grant.path, host_path=host_path, read_only=grant.read_only)


def _accounts(manifest: Manifest) -> dict[str, Any]:
    """The provider's options for users and groups; only providers that can make them get here."""
    groups = {group.name: [user.name for user in group.users] for group in manifest.groups}
    users = [user.name for user in manifest.users]
    users += [name for members in groups.values() for name in members]
    found: dict[str, Any] = {}
    if users:
        found["users"] = list(dict.fromkeys(users))
    if groups:
        found["groups"] = groups
    return found
