"""A git repository as an entry: fetched by the sandbox actor, or cloned here if it is local."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from sandstream.sandbox.entries.base import BaseEntry
from sandstream.sandbox.errors import (
    GitCloneError,
    GitCopyError,
    GitMissingInImageError,
    GitSubpathError,
)
from sandstream.sandbox.materialization import MaterializedFile
from sandstream.sandbox.types import ExecResult
from sandstream.sandbox.workspace_paths import sandbox_path_str

_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")


class GitRepo(BaseEntry):
    """The files of a git repository, with ``.git`` unless there is a ``subpath``.

    Example:
        Manifest(entries={"repo": GitRepo(repo="pallets/flask", ref="3.1.0")})
    """

    type: Literal["git_repo"] = "git_repo"
    is_dir: bool = True
    host: str = "github.com"
    """The host, if the repository is not on this machine."""
    repo: str
    """A path on ``host`` (``owner/name``), or a repository of this machine: an absolute path, one
    that starts with ``./`` or ``../``, or a ``file://`` URL."""
    ref: str
    """The branch, tag or commit."""
    subpath: str | None = None
    """Copy only this directory of the repository."""

    def model_post_init(self, context: object, /) -> None:
        self.permissions.directory = True

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], ref: str | None = None) -> GitRepo:
        """A repository of this machine.

        Args:
            path: The directory of the repository.
            ref: The branch, tag or commit; ``None`` is the checked-out commit.

        Returns:
            The entry.
        """
        return cls(repo=str(Path(path).expanduser().absolute()), ref=ref or "HEAD")

    @property
    def local_path(self) -> Path | None:
        """The path of the repository on this machine; None if it is on a host."""
        if self.repo.startswith("file://"):
            return Path(unquote(urlsplit(self.repo).path))
        if self.repo in (".", "..") or self.repo.startswith(("/", "./", "../")):
            return Path(self.repo)
        return None

    @property
    def url(self) -> str:
        """The URL to fetch it from."""
        local = self.local_path
        if local is None:
            return f"https://{self.host}/{self.repo}.git"
        return local.absolute().as_uri()

    def checked_subpath(self) -> PurePosixPath | None:
        """The subpath, which must be inside the repository; None means the whole repository."""
        if not self.subpath:
            return None
        path = PurePosixPath(self.subpath.strip())
        reason: Literal["absolute", "empty", "parent_traversal", "windows_path"]
        if not self.subpath.strip():
            reason = "empty"
        elif path.is_absolute():
            reason = "absolute"
        elif "\\" in self.subpath or PureWindowsPath(self.subpath.strip()).drive:
            reason = "windows_path"
        elif ".." in path.parts:
            reason = "parent_traversal"
        else:
            return path if path.parts else None
        raise GitSubpathError(repo=self.repo, subpath=self.subpath, reason=reason)

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[MaterializedFile]:
        """Fetch it inside the sandbox, which needs git and network access.

        Args:
            session: The ``BaseSandboxSession`` to write through.
            dest: The absolute path in the sandbox.
            base_dir: Not used: the repository is fetched inside the sandbox.

        Raises:
            GitMissingInImageError: The sandbox has no git.
            GitCloneError: The repository or the ref cannot be fetched.
        """
        subpath = self.checked_subpath()
        about = {"repo": self.repo, "ref": self.ref, "subpath": self.subpath}
        if not (await session.exec("git", "--version", shell=False)).ok():
            raise GitMissingInImageError(context=about)
        clone = f"/tmp/git-{uuid4().hex}"
        try:
            fetched = await self._fetch(session, clone)
            if not fetched.ok():
                stderr = fetched.stderr.decode("utf-8", "replace")
                raise GitCloneError(url=self.url, ref=self.ref, stderr=stderr, context=about)
            source = clone if subpath is None else f"{clone}/{subpath}"
            await session.mkdir(dest, parents=True)
            target = f"{sandbox_path_str(dest)}/"
            copied = await session.exec("cp", "-R", "--", f"{source}/.", target, shell=False)
            if not copied.ok():
                stderr = copied.stderr.decode("utf-8", "replace")
                raise GitCopyError(src_root=source, dest=dest, stderr=stderr, context=about)
        finally:
            await session.exec("rm", "-rf", "--", clone, shell=False)
        await self._apply_metadata(session, dest)
        return []

    async def _fetch(self, session: Any, clone: str) -> ExecResult:
        """Clone a named ref; fetch a commit by itself, because a clone cannot do that."""
        first: ExecResult | None = None
        if _COMMIT.fullmatch(self.ref):
            first = await self._fetch_commit(session, clone)
            if first.ok():
                return first
            await session.exec("rm", "-rf", "--", clone, shell=False)
        command = ("clone", "--depth", "1", "--no-tags", "--branch", self.ref, self.url, clone)
        cloned: ExecResult = await session.exec("git", *command, shell=False)
        return cloned if cloned.ok() or first is None else first

    async def _fetch_commit(self, session: Any, clone: str) -> ExecResult:
        result: ExecResult = await session.exec("git", "init", clone, shell=False)
        for command in (
            ("remote", "add", "origin", self.url),
            ("fetch", "--depth", "1", "--no-tags", "origin", self.ref),
            ("checkout", "--detach", "FETCH_HEAD"),
        ):
            if result.ok():
                result = await session.exec("git", "-C", clone, *command, shell=False)
        return result
