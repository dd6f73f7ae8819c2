"""Lays a manifest's plan out in a box. Done again after a crash, it gives the same workspace."""

from __future__ import annotations

import posixpath
import uuid

from sandstream_bus.sandbox_messages import PlanFile, PlanRepo, WorkspacePlan, real_path
from sandstream_providers.interface import Box, FileWrite, NotFound, Provider, ResolveRule
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.sandbox.failures import Refused

_BATCH = 200
_FETCHED = ".sandstream-fetch"


async def apply_plan(
    box: Box,
    plan: WorkspacePlan,
    *,
    provider: Provider,
    store: WorkspaceStore,
    op: str,
    only_ephemeral: bool = False,
) -> None:
    """Snapshots first, then repositories, then single files, which may lie inside the others."""
    rule = ResolveRule(roots=[box.root])
    for number, tree in enumerate(plan.trees):
        if tree.ephemeral or not only_ephemeral:
            await store.restore(
                box, tree.tree, op=f"{op}-tree{number}", into=real_path(tree.path), clear=False
            )
    for number, repo in enumerate(plan.repos):
        if repo.ephemeral or not only_ephemeral:
            await _fetch(box, repo, provider, rule, f"{op}-repo{number}")
    files = [it for it in plan.files if it.ephemeral or not only_ephemeral]
    for start in range(0, len(files), _BATCH):
        changes = [_write(box, it) for it in files[start : start + _BATCH]]
        await box.change(f"{op}-files{start}", changes, rule)


def _write(box: Box, file: PlanFile) -> FileWrite:
    return FileWrite(
        path=posixpath.join(box.root, real_path(file.path)),
        kind=file.kind,
        data=file.data,
        mode=file.mode,
        target=file.target,
    )


async def _fetch(box: Box, repo: PlanRepo, provider: Provider, rule: ResolveRule, op: str) -> None:
    target = posixpath.join(box.root, real_path(repo.path))
    if not repo.subpath:
        await provider.fetch_git(box, repo.url, repo.ref, target)
        return
    fetched = posixpath.join(box.root, _FETCHED)
    # done again as a whole, also in a box that remembers the first time
    attempt = uuid.uuid4().hex
    await box.change(f"{op}-clean-{attempt}", [FileWrite(path=fetched, kind="remove")], rule)
    await provider.fetch_git(box, repo.url, repo.ref, fetched)
    try:
        inner = await box.stat(posixpath.join(fetched, repo.subpath), ResolveRule(roots=[fetched]))
    except NotFound:
        raise Refused(
            "git_subpath_error",
            f"{repo.url} at {repo.ref} has no path {repo.subpath!r}",
            repo=repo.url,
            subpath=repo.subpath,
        ) from None
    parent = posixpath.dirname(target)
    await box.make_dir(f"{op}-parent", parent, rule, parents=True)
    await box.move(f"{op}-move", inner.path, target, rule)
    await box.remove(f"{op}-rest-{attempt}", fetched, rule, recursive=True)
