"""Writes a manifest's plan into a box. A repetition after a crash gives the same workspace."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Mapping

from sandstream_bus.wire.sandboxes import PlanFile, PlanRepo, real_path
from sandstream_providers.git_urls import shown_url
from sandstream_providers.interface import (
    Box,
    ExecSpec,
    FileWrite,
    GitFailed,
    NotFound,
    Provider,
    ResolveRule,
)
from sandstream_workspaces.store import WorkspaceStore

from sandstream_actors.sandbox.failures import Refused
from sandstream_actors.sandbox.sources import CheckedPlan, private_source

_BATCH = 200
_FETCHED = ".sandstream-fetch"


async def apply_plan(
    box: Box,
    checked: CheckedPlan,
    *,
    provider: Provider,
    store: WorkspaceStore,
    op: str,
    only_ephemeral: bool = False,
) -> None:
    """Snapshots first, then repositories, then single files, which may be inside the others."""
    plan, rule = checked.plan, ResolveRule(roots=[box.root])
    for number, tree in enumerate(plan.trees):
        if tree.ephemeral or not only_ephemeral:
            await store.restore(
                box, tree.tree, op=f"{op}-tree{number}", into=real_path(tree.path), clear=False
            )
    for number, repo in enumerate(plan.repos):
        if repo.ephemeral or not only_ephemeral:
            fetch = _Fetch(box, repo, provider, public_only=checked.public_only)
            await fetch.run(rule, f"{op}-repo{number}")
    files = [it for it in plan.files if it.ephemeral or not only_ephemeral]
    for start in range(0, len(files), _BATCH):
        changes = [_write(box, it) for it in files[start : start + _BATCH]]
        await box.change(f"{op}-files{start}", changes, rule)
    await _give_to_groups(box, plan.groups, op)


async def _give_to_groups(box: Box, groups: Mapping[str, str], op: str) -> None:
    """Entries get their groups, also those that came from a snapshot, which knows of none. What a
    command has removed since then is left out.
    """
    for number, group in enumerate(sorted(set(groups.values()))):
        paths = [real_path(path) for path, it in groups.items() if it == group]
        script = 'g=$1; shift; for p; do [ ! -e "$p" ] || chgrp -- "$g" "$p" || exit 1; done'
        argv = ["sh", "-c", script, "sh", group, *(f"./{path}" for path in paths)]
        done = await box.run(f"{op}-group{number}", ExecSpec(argv=argv, cwd=box.root))
        if done.exit_code != 0:
            why = done.stderr.decode(errors="replace").strip()
            raise Refused(
                "exec_nonzero",
                f"the entries of the manifest cannot be given to {group!r}: {why}",
                group=group,
                exit_code=done.exit_code,
            )


def _write(box: Box, file: PlanFile) -> FileWrite:
    return FileWrite(
        path=posixpath.join(box.root, real_path(file.path)),
        kind=file.kind,
        data=file.data,
        mode=file.mode,
        target=file.target,
    )


class _Fetch:
    """One repository on its way into the box."""

    def __init__(self, box: Box, repo: PlanRepo, provider: Provider, *, public_only: bool) -> None:
        self._box = box
        self._repo = repo
        self._provider = provider
        self._public_only = public_only

    async def run(self, rule: ResolveRule, op: str) -> None:
        box, repo = self._box, self._repo
        target = posixpath.join(box.root, real_path(repo.path))
        if not repo.subpath:
            await self._into(target)
            return
        fetched = posixpath.join(box.root, _FETCHED)
        # repeated as a whole, even in a box that remembers the first time
        attempt = uuid.uuid4().hex
        await box.change(f"{op}-clean-{attempt}", [FileWrite(path=fetched, kind="remove")], rule)
        await self._into(fetched)
        inside = ResolveRule(roots=[fetched])
        try:
            inner = await box.stat(posixpath.join(fetched, repo.subpath), inside)
        except NotFound:
            shown = shown_url(repo.url)
            raise Refused(
                "git_subpath_error",
                f"{shown} at {repo.ref} has no path {repo.subpath!r}",
                repo=shown,
                subpath=repo.subpath,
            ) from None
        parent = posixpath.dirname(target)
        await box.make_dir(f"{op}-parent", parent, rule, parents=True)
        await box.move(f"{op}-move", inner.path, target, rule)
        await box.remove(f"{op}-rest-{attempt}", fetched, rule, recursive=True)

    async def _into(self, target: str) -> None:
        repo, public_only = self._repo, self._public_only
        try:
            await self._provider.fetch_git(
                self._box, repo.url, repo.ref, target, public_only=public_only
            )
        except GitFailed as error:
            if error.data.get("reason") != "private":
                raise
            raise private_source(error) from error
