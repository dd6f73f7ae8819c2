"""Converts a manifest for the sandbox actor: small files in the message, the rest in the store.

All sources on the caller's machine are checked before any is read or stored, so that an invalid
manifest has no effect.
"""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER
from sandstream_bus.wire.sandboxes import (
    EnvironmentValue,
    PlanFile,
    PlanRepo,
    WorkspacePlan,
    wire_path,
)

from sandstream.sandbox import host_sources
from sandstream.sandbox._plan_trees import PlannedEntry, TreeWriter, store_trees
from sandstream.sandbox.entries import BaseEntry, Dir, File, GitRepo, LocalDir, LocalFile, Mount
from sandstream.sandbox.entries.mounts.providers import R2Mount
from sandstream.sandbox.errors import MountConfigError
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.workspace_paths import WorkspacePathPolicy, coerce_posix_path

__all__ = ["TreeWriter", "check_manifest", "custom_entries", "environment_of", "plan_of"]

INLINE_BYTES = 96 * 1024
"""The maximum part of a manifest that is sent in the message."""
_FILE_OVERHEAD = 64

_LAID_OUT_BY_THE_ACTOR = {kind.apply for kind in (Dir, File, GitRepo, LocalDir, LocalFile, Mount)}


def check_manifest(
    manifest: Manifest,
    *,
    supports_users: bool,
    supports_mounts: bool = False,
    provider: str = DEFAULT_PROVIDER,
) -> None:
    """Raise at once for entries that cannot work on this provider.

    Args:
        manifest: The manifest to check.
        supports_users: Whether the provider has users and groups.
        supports_mounts: Whether the provider can mount storage.
        provider: The name of the provider, for errors.

    Raises:
        ValueError: A variable, a user or a group cannot be set up.
        MountConfigError: A mount cannot be made.
    """
    WorkspacePathPolicy(root=manifest.root, extra_path_grants=manifest.extra_path_grants)
    for name in manifest.environment.value:
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} is not a name for an environment variable")
    if not supports_users and (manifest.users or manifest.groups):
        raise ValueError(
            f"the {provider} provider has no users and groups: leave Manifest.users and "
            "Manifest.groups out, or use a container provider"
        )
    for path, entry in manifest.iter_entries():
        if isinstance(entry, Mount):
            _check_mount(path, entry, supports_mounts, provider)
        elif entry.group is not None and not supports_users:
            raise ValueError(
                f"{path}: the {provider} provider has no users and groups, so the entry cannot "
                f"belong to {entry.group.name!r}"
            )
        if isinstance(entry, GitRepo):
            entry.checked_subpath()
    manifest.mount_targets()


def _check_mount(
    path: Path, mount: Mount, supports_mounts: bool, provider: str = DEFAULT_PROVIDER
) -> None:
    if not supports_mounts:
        raise MountConfigError(
            message=f"{path} is a {mount.type}: mounts need a container provider such as Docker; "
            f"the {provider} provider cannot make them",
            context={"mount_type": mount.type, "path": path.as_posix()},
        )
    if isinstance(mount, R2Mount):
        mount.check_credentials()


async def environment_of(manifest: Manifest) -> dict[str, EnvironmentValue]:
    """The variables in their wire form: values resolved, secrets by name only.

    Args:
        manifest: The manifest with the variables.
    """
    return await manifest.environment.to_wire()


def custom_entries(
    manifest: Manifest, *, only_ephemeral: bool = False
) -> list[tuple[PurePosixPath, BaseEntry]]:
    """Entries with their own ``apply``, which the session must call: they are not in the plan.

    Args:
        manifest: The manifest with the entries.
        only_ephemeral: Whether to leave out entries that snapshots contain.
    """
    return [
        (each.path, each.entry)
        for each in _planned(manifest, only_ephemeral)
        if type(each.entry).apply not in _LAID_OUT_BY_THE_ACTOR
    ]


async def plan_of(
    manifest: Manifest,
    trees: TreeWriter,
    *,
    base_dir: Path | None = None,
    only_ephemeral: bool = False,
    supports_mounts: bool = False,
    concurrency: int | None = 4,
) -> WorkspacePlan:
    """Make the plan for the sandbox actor.

    Args:
        manifest: The manifest of the workspace.
        trees: Stores what is too big for the message.
        base_dir: Files of this machine must be below it or below a path grant; ``None`` is the
            working directory.
        only_ephemeral: Whether to leave out entries that snapshots contain.
        supports_mounts: Whether the provider can mount storage.
        concurrency: How many trees are stored at once; ``None`` removes the limit.
    """
    for path, entry in manifest.iter_entries():
        if isinstance(entry, Mount):
            _check_mount(path, entry, supports_mounts)
    base = Path.cwd() if base_dir is None else base_dir
    planned = await asyncio.to_thread(_with_sources, manifest, base, only_ephemeral)
    inline, stored = _divided(planned)
    return WorkspacePlan(
        files=inline,
        trees=await store_trees(stored, trees, concurrency) if stored else [],
        repos=[
            _repo(each, each.entry)
            for each in planned
            if isinstance(each.entry, GitRepo) and each.source is None
        ],
        exclude=_excluded(manifest),
        groups={
            wire_path(path.as_posix()): entry.group.name
            for path, entry in manifest.iter_entries()
            if entry.group is not None and not isinstance(entry, Mount)
        },
    )


def _planned(manifest: Manifest, only_ephemeral: bool) -> list[PlannedEntry]:
    """The entries to plan. The contents of an ephemeral directory are ephemeral too. Entries inside
    one with its own ``apply`` are left to that entry.
    """
    planned: list[PlannedEntry] = []
    ephemeral: set[Path] = set()
    foreign: set[Path] = set()
    for path, entry in manifest.iter_entries():
        if not foreign.isdisjoint(path.parents):
            continue
        if type(entry).apply not in _LAID_OUT_BY_THE_ACTOR:
            foreign.add(path)
        if entry.ephemeral or not ephemeral.isdisjoint(path.parents):
            ephemeral.add(path)
        if path in ephemeral or not only_ephemeral:
            planned.append(PlannedEntry(PurePosixPath(path), entry, path in ephemeral))
    return planned


def _with_sources(manifest: Manifest, base: Path, only_ephemeral: bool) -> list[PlannedEntry]:
    """The entries for a plan, each with its checked host source."""
    return [
        PlannedEntry(each.path, each.entry, each.ephemeral, _source(each.entry, base, manifest))
        for each in _planned(manifest, only_ephemeral)
        if type(each.entry).apply in _LAID_OUT_BY_THE_ACTOR and not isinstance(each.entry, Mount)
    ]


def _source(entry: BaseEntry, base: Path, manifest: Manifest) -> Path | None:
    grants = manifest.extra_path_grants
    if isinstance(entry, LocalFile):
        return host_sources.check_file(entry.src, base, grants)
    if isinstance(entry, LocalDir) and entry.src is not None:
        directory = host_sources.check_directory(entry.src, base, grants)
        host_sources.list_files(directory)
        return directory
    if isinstance(entry, GitRepo):
        entry.checked_subpath()
        if entry.local_path is not None:
            return host_sources.check_directory(entry.local_path, base, grants)
    return None


def _divided(planned: list[PlannedEntry]) -> tuple[list[PlanFile], list[PlannedEntry]]:
    """Divide the entries: those sent in the message, and those to store."""
    inline: list[PlanFile] = []
    closed: list[PlanFile] = []
    stored: list[PlannedEntry] = []
    left = INLINE_BYTES
    for each in planned:
        path = wire_path(each.path.as_posix())
        mode = each.entry.file_mode
        if each.entry.is_dir:
            folder = PlanFile(path=path, kind="dir", mode=mode, ephemeral=each.ephemeral)
            # A directory that its owner cannot write to must come after its contents.
            (inline if mode & 0o300 == 0o300 else closed).append(folder)
            if each.source is not None:
                stored.append(each)
        elif isinstance(each.entry, File):
            cost = len(each.entry.content) + len(path) + _FILE_OVERHEAD
            if cost > left:
                stored.append(each)
                continue
            left -= cost
            data = each.entry.content
            inline.append(PlanFile(path=path, data=data, mode=mode, ephemeral=each.ephemeral))
        else:
            stored.append(each)
    return inline + closed[::-1], stored


def _repo(each: PlannedEntry, entry: GitRepo) -> PlanRepo:
    return PlanRepo(
        path=wire_path(each.path.as_posix()),
        url=entry.url,
        ref=entry.ref,
        subpath=str(entry.checked_subpath() or ""),
        ephemeral=each.ephemeral,
    )


def _excluded(manifest: Manifest) -> list[str]:
    root = coerce_posix_path(manifest.root)
    paths = {PurePosixPath(path) for path in manifest.ephemeral_persistence_paths()}
    for _, target in manifest.mount_targets():
        if target.is_relative_to(root) and target != Path(root):
            paths.add(PurePosixPath(target.relative_to(root)))
    return sorted(wire_path(path.as_posix()) for path in paths)
