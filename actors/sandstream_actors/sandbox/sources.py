"""The permitted sources of a sandbox's files. All of them go through :meth:`Sources.check`:
:func:`~sandstream_actors.sandbox.plans.apply_plan` accepts only its result.

A source is something that the actor itself opens: a path of its host, or a repository that it
fetches with its own network even if the box has none. Files and snapshots of a plan come from the
bus, not from the host; they must only stay inside the workspace.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import NoReturn

import msgspec
from sandstream_bus.wire.sandboxes import GrantSpec, PlanRepo, WorkspacePlan, real_path
from sandstream_providers.addresses import Resolve, first_not_public, resolve_host
from sandstream_providers.git_urls import parse_git_url, shown_url
from sandstream_providers.interface import GitFailed

from sandstream_actors.sandbox.failures import Refused
from sandstream_actors.sandbox.policy import Policy, how_to_allow


class CheckedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan whose sources are allowed."""

    plan: WorkspacePlan
    public_only: bool
    """Its repositories may come from public hosts only; this also applies while they are fetched.
    """


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The check, with the permissions that the operator of an actor configured."""

    policy: Policy = Policy()
    resolve: Resolve = resolve_host

    async def check(self, plan: WorkspacePlan, grants: Sequence[GrantSpec] = ()) -> CheckedPlan:
        """Raises :class:`Refused` for the first source that is not allowed. Fetches nothing."""
        _check_paths(plan)
        of_host = [it for it in grants if not it.inside]
        if of_host and not self.policy.grants:
            path = of_host[0].path
            _refuse(f"this sandbox actor shows nothing of its host, so not {path}", "grants")
        for repo in plan.repos:
            await _check_repo(repo, self.policy, self.resolve)
        return CheckedPlan(plan=plan, public_only=not self.policy.private_sources)


def private_source(error: GitFailed) -> Refused:
    """A refusal that only showed while the repository was fetched."""
    return _refusal(
        f"{error}; this sandbox actor fetches from public hosts only", "private-sources"
    )


async def _check_repo(repo: PlanRepo, policy: Policy, resolve: Resolve) -> None:
    if policy.grants and policy.private_sources:
        return  # all that git itself can fetch
    shown = shown_url(repo.url)
    try:
        url = parse_git_url(repo.url)
    except ValueError as error:
        message = f"{shown!r} is not the address of a repository: {error}"
        raise Refused("git_clone_error", message, url=shown) from None
    if url.scheme == "file" and not policy.grants:
        _refuse(f"this sandbox actor shows nothing of its host, so not {shown}", "grants")
    if url.scheme not in ("http", "https") and not policy.grants:
        _refuse(
            f"this sandbox actor fetches repositories by http and https only, so not {shown}",
            "grants",
        )
    if url.scheme == "file" or policy.private_sources:
        return
    try:
        addresses = await resolve(url.host, url.port)
    except OSError as error:
        message = f"cannot clone {shown}: the host {url.host} is not known ({error})"
        raise Refused("git_clone_error", message, url=shown, retryable=True) from error
    kind = first_not_public(addresses)
    if kind is not None:
        _refuse(
            f"{shown} leads to {url.host}, which has a {kind} address; this sandbox actor fetches "
            "from public hosts only",
            "private-sources",
        )


def _check_paths(plan: WorkspacePlan) -> None:
    given = [*(it.path for it in plan.files), *(it.path for it in plan.trees)]
    for path in (*given, *(it.path for it in plan.repos), *plan.groups):
        normal = posixpath.normpath(real_path(path) or ".")
        if normal == ".." or normal.startswith("../"):
            message = f"{path!r} leads out of the workspace"
            raise Refused("invalid_manifest_path", message, path=path)


def _refusal(message: str, word: str) -> Refused:
    return Refused("sandbox_config_invalid", f"{message}: {how_to_allow(word)}", allow=word)


def _refuse(message: str, word: str) -> NoReturn:
    raise _refusal(message, word)
