"""Clones a repository of this machine for a manifest.

Git runs without the user's configuration, environment and hooks, so that only the repository and
the ref determine the clone.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sandstream_bus.environment import variable

from sandstream.sandbox.entries import GitRepo
from sandstream.sandbox.errors import (
    GitCloneError,
    GitCopyError,
    GitMissingInImageError,
    GitSubpathError,
)

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


async def clone_local(repo: GitRepo, source: Path, target: Path) -> Path:
    """Clone the repository; return the directory of the clone, or of ``subpath`` in it."""
    git = _Git(repo, source)
    commit = await git.run(
        "-C", str(source), "rev-parse", "--verify", "--end-of-options", f"{repo.ref}^{{commit}}"
    )
    await git.run("init", "--quiet", "--template=", str(target))
    inside = ("-C", str(target))
    await git.run(*inside, "fetch", "--quiet", "--depth=1", "--no-tags", source.as_uri(), commit)
    branch = f"refs/heads/{repo.ref}"
    named = await git.succeeds("-C", str(source), "show-ref", "--verify", "--quiet", branch)
    where = ("-B", repo.ref) if named else ("--detach",)
    await git.run(*inside, "checkout", "--quiet", *where, commit)
    return await asyncio.to_thread(_subdirectory, repo, target)


def _subdirectory(repo: GitRepo, clone: Path) -> Path:
    subpath = repo.checked_subpath()
    if subpath is None:
        return clone
    directory = clone / subpath
    if not directory.resolve().is_relative_to(clone.resolve()):
        raise GitSubpathError(repo=repo.repo, subpath=str(subpath), reason="parent_traversal")
    if not directory.is_dir():
        raise GitCopyError(
            src_root=str(subpath),
            dest=clone,
            stderr=f"{repo.url} at {repo.ref} has no directory {subpath}",
            context={"repo": repo.repo, "ref": repo.ref, "subpath": repo.subpath},
        )
    return directory.resolve()


class _Git:
    def __init__(self, repo: GitRepo, source: Path) -> None:
        self._repo = repo
        self._url = source.as_uri()

    async def run(self, *arguments: str) -> str:
        """The output of git; :class:`GitCloneError` with its stderr if it fails."""
        code, stdout, stderr = await self._start(arguments)
        if code != 0:
            raise GitCloneError(
                url=self._url,
                ref=self._repo.ref,
                stderr=stderr.decode("utf-8", "replace"),
                context={"repo": self._repo.repo, "subpath": self._repo.subpath},
            )
        return stdout.decode().strip()

    async def succeeds(self, *arguments: str) -> bool:
        code, _, _ = await self._start(arguments)
        return code == 0

    async def _start(self, arguments: tuple[str, ...]) -> tuple[int, bytes, bytes]:
        environment = {**_ENVIRONMENT, "PATH": variable("PATH", os.defpath)}
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        except FileNotFoundError as error:
            raise GitMissingInImageError(context={"repo": self._repo.repo}, cause=error) from error
        try:
            stdout, stderr = await process.communicate()
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        return process.returncode or 0, stdout, stderr
