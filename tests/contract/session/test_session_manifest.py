"""Manifests: every kind of entry, where it may lie, what it looks like, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import pytest
from contract.repositories import make_repository, subjects
from contract.sessions import SessionStage, content, refused, said

from sandstream.sandbox.entries import BaseEntry, Dir, File, GitRepo, LocalDir, LocalFile, S3Mount
from sandstream.sandbox.errors import (
    GitCloneError,
    GitCopyError,
    GitSubpathError,
    InvalidManifestPathError,
    LocalDirReadError,
    LocalFileReadError,
    MountConfigError,
    SandboxError,
)
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.materialization import MaterializedFile
from sandstream.sandbox.types import Permissions, User


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The caller's working directory, from below which host files may be taken."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_and_directories(sessions: SessionStage) -> None:
    big = hashlib.shake_128(b"big").digest(3_000_000)
    manifest = Manifest(
        entries={
            "text.txt": File(content=b"text"),
            "binary": File(content=bytes(range(256))),
            "big": File(content=big),
            "deep/in/file": File(content=b"deep"),
            "dir": Dir(children={"a": File(content=b"A"), "inner": Dir(children={})}),
            Path("by/path"): File(content=b"path"),
        }
    )

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            assert await content(session, "binary") == bytes(range(256))
            assert await content(session, "big") == big
            assert await said(session, "cat text.txt deep/in/file dir/a by/path") == "textdeepApath"
            assert await said(session, "find . -type d | sort") == (
                ".\n./by\n./deep\n./deep/in\n./dir\n./dir/inner\n"
            )
            assert "text.txt" in session.describe()

    sessions.run(story())


def test_permissions(sessions: SessionStage) -> None:
    manifest = Manifest(
        entries={
            "script": File(
                content=b"#!/bin/sh\necho ran", permissions=Permissions.from_mode(0o750)
            ),
            "private": File(content=b"", permissions=Permissions.from_mode(0o600)),
            "default": File(content=b""),
            "closed": Dir(
                children={"in": File(content=b"x")}, permissions=Permissions.from_mode(0o500)
            ),
        }
    )

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            modes = await said(session, "stat -c %a script private default closed closed/in")
            assert modes.split() == ["750", "600", "755", "500", "755"]
            assert await said(session, "./script; cat closed/in") == "ran\nx"

    sessions.run(story())


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/abs", "absolute"), ("../up", "escape_root"), ("a/../../up", "escape_root")],
)
def test_entries_lie_in_the_workspace(sessions: SessionStage, path: str, reason: str) -> None:
    async def story() -> None:
        client = sessions.client()
        code = "invalid_manifest_path"
        with refused(InvalidManifestPathError, code, reason=reason):
            session = await client.create(manifest=Manifest(entries={path: File(content=b"")}))
            await session.start()

    sessions.run(story())


def test_host_files_and_directories(sessions: SessionStage, here: Path) -> None:
    (here / "file").write_bytes(b"from the host")
    (here / "tree" / "deep").mkdir(parents=True)
    (here / "tree" / "a").write_text("A")
    (here / "tree" / "a").chmod(0o754)
    (here / "tree" / "deep" / "b").write_text("B")
    manifest = Manifest(
        entries={
            "absolute": LocalFile(src=here / "file"),
            "relative": LocalFile(src=Path("file"), permissions=Permissions.from_mode(0o640)),
            "tree": LocalDir(src=Path("tree")),
            "empty": LocalDir(),
        }
    )

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            assert await content(session, "absolute") == b"from the host"
            assert await said(session, "cat relative tree/a tree/deep/b; ls empty") == (
                "from the hostAB"
            )
            assert await said(session, "stat -c %a relative tree/a") == "640\n754\n"
            # a copy, not the host's own
            await said(session, "echo changed > relative; rm -r tree")
        assert (here / "file").read_bytes() == b"from the host"
        assert (here / "tree" / "a").exists()

    sessions.run(story())


HOST_FAILURES: dict[str, tuple[BaseEntry, type[SandboxError], str, str]] = {
    "missing file": (
        LocalFile(src=Path("missing")),
        LocalFileReadError,
        "local_file_read_error",
        "path_not_found",
    ),
    "missing directory": (
        LocalDir(src=Path("missing")),
        LocalDirReadError,
        "local_dir_read_error",
        "path_not_found",
    ),
    "file outside": (
        LocalFile(src=Path("/etc/hostname")),
        LocalFileReadError,
        "local_file_read_error",
        "outside_base_dir",
    ),
    "directory outside": (
        LocalDir(src=Path("../")),
        LocalDirReadError,
        "local_dir_read_error",
        "outside_base_dir",
    ),
    "link to a file": (
        LocalFile(src=Path("link")),
        LocalFileReadError,
        "local_file_read_error",
        "symlink_not_supported",
    ),
    "link in a directory": (
        LocalDir(src=Path("tree")),
        LocalDirReadError,
        "local_dir_read_error",
        "symlink_not_supported",
    ),
    "directory as a file": (
        LocalFile(src=Path("tree")),
        LocalFileReadError,
        "local_file_read_error",
        "path_changed_during_copy",
    ),
}


@pytest.mark.parametrize("failure", HOST_FAILURES)
def test_host_files_that_cannot_be_taken(sessions: SessionStage, here: Path, failure: str) -> None:
    (here / "file").write_text("x")
    (here / "tree").mkdir()
    (here / "link").symlink_to("file")
    (here / "tree" / "link").symlink_to("/etc/passwd")
    entry, error, code, reason = HOST_FAILURES[failure]

    async def story() -> None:
        session = sessions.unmade(manifest=Manifest(entries={"x": entry}))
        with refused(error, code, reason=reason):
            await session.start()
        assert not await session.running()
        assert (await session.remote.record()).state == "unknown", "nothing was made"

    sessions.run(story())


@pytest.mark.parametrize("form", ["path", "url"])
def test_repositories_of_this_machine(sessions: SessionStage, here: Path, form: str) -> None:
    commit = make_repository(here / "repo")
    repo = str(here / "repo") if form == "path" else (here / "repo").as_uri()
    manifest = Manifest(
        entries={
            "main": GitRepo(repo=repo, ref="main"),
            "tag": GitRepo(repo=repo, ref="v1"),
            "commit": GitRepo(repo=repo, ref=commit),
            "part": GitRepo(repo=repo, ref="v1", subpath="sub"),
            "head": GitRepo.from_path(here / "repo"),
        }
    )

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            cat = "cat main/file tag/file commit/file part/inner head/sub/inner"
            assert await said(session, cat) == "twoonetwoonetwo"
            assert await said(session, "ls -A part") == "inner\n"
            await said(session, "tar -cf main.tar main")
            copied = await content(session, "main.tar")
            assert subjects(here, copied, "main") == ["two"]

    sessions.run(story())


@pytest.mark.parametrize(
    ("fields", "error", "code"),
    [
        ({"ref": "no-such-ref"}, GitCloneError, "git_clone_error"),
        ({"ref": "main", "subpath": "none"}, GitCopyError, "git_copy_error"),
        ({"ref": "main", "subpath": "../up"}, GitSubpathError, "git_subpath_error"),
        ({"ref": "main", "subpath": "/abs"}, GitSubpathError, "git_subpath_error"),
        ({"ref": "main", "repo": "./not-a-repo"}, GitCloneError, "git_clone_error"),
        ({"ref": "main", "repo": "./missing"}, LocalDirReadError, "local_dir_read_error"),
    ],
)
def test_repositories_that_cannot_be_taken(
    sessions: SessionStage,
    here: Path,
    fields: dict[str, str],
    error: type[SandboxError],
    code: str,
) -> None:
    make_repository(here / "repo")
    (here / "not-a-repo").mkdir()

    async def story() -> None:
        with refused(error, code):
            entry = GitRepo.model_validate({"repo": "./repo", **fields})
            session = await sessions.client().create(manifest=Manifest(entries={"x": entry}))
            await session.start()

    sessions.run(story())


def test_a_repository_on_a_host_that_cannot_be_reached(sessions: SessionStage) -> None:
    entry = GitRepo(host="git.invalid", repo="owner/name", ref="main")

    async def story() -> None:
        session = sessions.unmade(manifest=Manifest(entries={"x": entry}))
        with refused(GitCloneError, "git_clone_error"):
            await session.start()
        assert not await session.running()

    sessions.run(story())


@pytest.mark.needs_no("users")
def test_users_where_they_cannot_be_made(sessions: SessionStage) -> None:
    async def story() -> None:
        with pytest.raises(ValueError, match="users"):
            await sessions.client().create(manifest=Manifest(users=[User(name="somebody")]))

    sessions.run(story())


def test_mounts_are_refused_at_once(sessions: SessionStage) -> None:
    async def story() -> None:
        client = sessions.client()
        strategy = {"type": "in_container", "pattern": {"type": "mountpoint"}}
        mount = S3Mount.model_validate({"bucket": "b", "mount_strategy": strategy})
        with refused(MountConfigError, "mount_config_invalid"):
            await client.create(manifest=Manifest(entries={"data": mount}))

    sessions.run(story())


class Stamp(BaseEntry):
    """An entry of the user's own."""

    type: Literal["contract_stamp"] = "contract_stamp"
    text: str

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[MaterializedFile]:
        await session.exec("sh", "-c", f"echo {self.text} > {dest}", shell=False)
        return []


def test_entries_of_the_users_own_class(sessions: SessionStage) -> None:
    async def story() -> None:
        manifest = Manifest(entries={"stamp": Stamp(text="mine")})
        async with sessions.fresh(manifest=manifest) as session:
            assert await said(session, "cat stamp") == "mine\n"

    sessions.run(story())


def test_the_manifest_can_be_laid_out_again(sessions: SessionStage) -> None:
    manifest = Manifest(
        entries={
            "file": File(content=b"given"),
            "fleeting": File(content=b"given", ephemeral=True),
        }
    )

    async def story() -> None:
        async with sessions.fresh(manifest=manifest) as session:
            await said(session, "rm file; echo changed > fleeting; touch other")
            await session.apply_manifest(only_ephemeral=True)
            assert await said(session, "ls; cat fleeting") == "fleeting\nother\ngiven"
            await session.apply_manifest()
            assert await said(session, "ls; cat file") == "file\nfleeting\nother\ngiven"

    sessions.run(story())
