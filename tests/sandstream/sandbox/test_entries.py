"""Entries: the registry, git addresses, mounts as data, and laying them out through a session."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from sandstream.sandbox.entries import (
    AzureBlobMount,
    BaseEntry,
    BoxMount,
    Dir,
    DockerVolumeMountStrategy,
    File,
    FuseMountPattern,
    GCSMount,
    GitRepo,
    InContainerMountStrategy,
    LocalDir,
    LocalFile,
    Mount,
    MountpointMountPattern,
    MountStrategyBase,
    R2Mount,
    RcloneMountPattern,
    S3FilesMount,
    S3FilesMountPattern,
    S3Mount,
)
from sandstream.sandbox.errors import (
    ExecNonZeroError,
    GitCloneError,
    GitMissingInImageError,
    GitSubpathError,
    LocalDirReadError,
    MountConfigError,
)
from sandstream.sandbox.types import ExecResult, Group, Permissions


class Note(BaseEntry):
    """An entry as a user may write one."""

    type: Literal["test_note"] = "test_note"
    text: str

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[Any]:
        return await File(content=self.text.encode()).apply(session, dest, base_dir)


def test_an_entry_of_ones_own_is_read_back_by_type() -> None:
    note = Dir(children={"n": Note(text="hi")})
    assert Dir.model_validate_json(note.model_dump_json()) == note
    assert BaseEntry.registered_types()["test_note"] is Note
    with pytest.raises(ValueError, match="belongs to Note"):

        class Other(Note):
            type: Literal["test_note"] = "test_note"

    with pytest.raises(TypeError, match="must give `type` a default"):

        class Nameless(BaseEntry):
            async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[Any]:
                return []


def test_directories_are_marked_as_such() -> None:
    for entry in (Dir(), LocalDir(), GitRepo(repo="a/b", ref="r")):
        assert entry.is_dir
        assert str(entry.permissions) == "drwxr-xr-x"
    assert str(LocalFile(src=Path("x")).permissions) == "-rwxr-xr-x"


def test_where_a_repository_is() -> None:
    hosted = GitRepo(host="git.example.org", repo="team/project", ref="main")
    assert hosted.url == "https://git.example.org/team/project.git"
    assert hosted.local_path is None
    local = GitRepo.from_path("/srv/my repo")
    assert (local.ref, local.local_path) == ("HEAD", Path("/srv/my repo"))
    assert local.url == "file:///srv/my%20repo"
    assert GitRepo(repo="file:///srv/my%20repo", ref="r").local_path == Path("/srv/my repo")
    assert GitRepo(repo="../r", ref="r").local_path == Path("../r")


@pytest.mark.parametrize(
    ("subpath", "expected"),
    [(None, None), ("", None), (".", None), ("./a", "a"), (" a/b ", "a/b")],
)
def test_a_subpath_of_a_repository(subpath: str | None, expected: str | None) -> None:
    checked = GitRepo(repo="a/b", ref="r", subpath=subpath).checked_subpath()
    assert (None if checked is None else str(checked)) == expected


@pytest.mark.parametrize(
    ("subpath", "reason"),
    [
        (" ", "empty"),
        ("/a", "absolute"),
        ("a\\b", "windows_path"),
        ("C:x", "windows_path"),
        ("../a", "parent_traversal"),
        ("a/..", "parent_traversal"),
    ],
)
def test_a_subpath_stays_in_the_repository(subpath: str, reason: str) -> None:
    with pytest.raises(GitSubpathError) as caught:
        GitRepo(repo="a/b", ref="r", subpath=subpath).checked_subpath()
    assert caught.value.context == {"repo": "a/b", "subpath": subpath, "reason": reason}


RCLONE = InContainerMountStrategy(pattern=RcloneMountPattern())


@pytest.mark.parametrize(
    "mount",
    [
        S3Mount(bucket="b", mount_strategy=RCLONE),
        GCSMount(
            bucket="b", mount_strategy=InContainerMountStrategy(pattern=MountpointMountPattern())
        ),
        R2Mount(bucket="b", account_id="a", mount_strategy=RCLONE),
        AzureBlobMount(
            account="a",
            container="c",
            mount_strategy=InContainerMountStrategy(pattern=FuseMountPattern()),
        ),
        BoxMount(mount_strategy=DockerVolumeMountStrategy(driver="rclone")),
        S3FilesMount(
            file_system_id="fs",
            mount_strategy=InContainerMountStrategy(pattern=S3FilesMountPattern()),
        ),
    ],
    ids=lambda mount: mount.type,
)
def test_mounts_are_read_back(mount: Mount) -> None:
    assert BaseEntry.parse(mount.model_dump(mode="json")) == mount
    assert (mount.ephemeral, mount.read_only, mount.is_dir) == (True, True, True)
    assert str(mount.permissions) == "drwxr-xr-x"


def test_a_mount_and_its_strategy_must_fit() -> None:
    fuse = InContainerMountStrategy(pattern=FuseMountPattern())
    with pytest.raises(MountConfigError, match="FuseMountPattern") as caught:
        S3Mount(bucket="b", mount_strategy=fuse)
    assert caught.value.context == {"type": "s3_mount"}
    with pytest.raises(MountConfigError, match="no Docker volume driver 'x'") as caught:
        S3Mount(bucket="b", mount_strategy=DockerVolumeMountStrategy(driver="x"))
    assert caught.value.context == {"type": "s3_mount", "driver": "x"}
    with pytest.raises(MountConfigError, match="workspace"):
        FuseMountPattern(cache_path=Path("/x"))
    with pytest.raises(ValueError, match="mount_strategy"):
        S3Mount.model_validate({"bucket": "b"})
    with pytest.raises(ValueError, match="unknown mount strategy type `zz`"):
        MountStrategyBase.parse({"type": "zz"})
    with pytest.raises(MountConfigError, match="together"):
        R2Mount(
            bucket="b", account_id="a", access_key_id="k", mount_strategy=RCLONE
        ).check_credentials()


def test_permissions_of_a_mount_are_reset_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="no effect"):
        mount = S3Mount(bucket="b", mount_strategy=RCLONE, permissions=Permissions.from_mode(0o700))
    assert str(mount.permissions) == "drwxr-xr-x"


class Session:
    """The methods of a session that entries use, kept as a list of what was done."""

    def __init__(self, exit_codes: dict[str, int] | None = None) -> None:
        self.done: list[Any] = []
        self.exit_codes = exit_codes or {}
        self.state = SimpleNamespace(manifest=SimpleNamespace(extra_path_grants=()))

    async def mkdir(self, path: Path, *, parents: bool = False, user: Any = None) -> None:
        self.done.append(("mkdir", str(path)))

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        self.done.append((str(path), data.read()))

    async def exec(self, *command: str, shell: bool = True) -> ExecResult:
        assert not shell
        self.done.append(command)
        words = [word for word in self.exit_codes if word in command]
        code = self.exit_codes[words[0]] if words else 0
        return ExecResult(stdout=b"", stderr=b"why", exit_code=code)


def apply(entry: BaseEntry, base_dir: Path, session: Session) -> list[Any]:
    return asyncio.run(entry.apply(session, Path("/w/x"), base_dir))


def test_laying_out_files_through_a_session(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f").write_bytes(b"f")
    tree = Dir(
        children={
            "n": Note(text="hi"),
            "l": LocalFile(src=Path("sub/f"), permissions=Permissions.from_mode(0o640)),
            "d": LocalDir(src=Path("sub"), group=Group(name="g", users=[])),
        }
    )
    session = Session()
    files = apply(tree, tmp_path, session)
    assert session.done == [
        ("mkdir", "/w/x"),
        ("chmod", "0755", "/w/x"),
        ("/w/x/n", b"hi"),
        ("chmod", "0755", "/w/x/n"),
        ("mkdir", "/w/x"),
        ("/w/x/l", b"f"),
        ("chmod", "0640", "/w/x/l"),
        ("mkdir", "/w/x/d"),
        ("mkdir", "/w/x/d"),
        ("/w/x/d/f", b"f"),
        ("chgrp", "g", "/w/x/d"),
        ("chmod", "0755", "/w/x/d"),
    ]
    digest = "252f10c83610ebca1a059c0bae8255eba2f95be4d1d7bcfa89d7248a82d9f111"
    assert [(str(file.path), file.sha256) for file in files] == [
        ("/w/x/l", digest),
        ("/w/x/d/f", digest),
    ]


def test_a_link_in_a_local_directory_stops_everything(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    session = Session()
    with pytest.raises(LocalDirReadError) as caught:
        apply(LocalDir(src=Path()), tmp_path, session)
    assert caught.value.context["reason"] == "symlink_not_supported"
    assert caught.value.context["child"] == "link"
    assert session.done == []


def test_metadata_that_cannot_be_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExecNonZeroError, match="why"):
        apply(File(content=b""), tmp_path, Session({"chmod": 1}))


def test_a_repository_is_fetched_in_the_sandbox_by_name_or_commit(tmp_path: Path) -> None:
    session = Session()
    apply(GitRepo(repo="a/b", ref="main", subpath="docs"), tmp_path, session)
    git = [command for command in session.done if command[0] == "git"]
    assert git[1][1:7] == ("clone", "--depth", "1", "--no-tags", "--branch", "main")
    assert git[1][7] == "https://github.com/a/b.git"
    copy = next(command for command in session.done if command[0] == "cp")
    assert copy[3:] == (f"{git[1][8]}/docs/.", "/w/x/")
    assert ("rm", "-rf", "--", git[1][8]) in session.done

    by_commit = Session({"fetch": 1})
    apply(GitRepo(repo="a/b", ref="abc1234"), tmp_path, by_commit)
    git = [command for command in by_commit.done if command[0] == "git"]
    verbs = [command[3] if command[1] == "-C" else command[1] for command in git]
    assert verbs == ["--version", "init", "remote", "fetch", "clone"]

    with pytest.raises(GitCloneError) as caught:
        apply(GitRepo(repo="a/b", ref="main"), tmp_path, Session({"clone": 128}))
    assert caught.value.context["stderr"] == "why"
    with pytest.raises(GitMissingInImageError):
        apply(GitRepo(repo="a/b", ref="main"), tmp_path, Session({"--version": 127}))


def test_a_mount_cannot_be_laid_out_in_a_running_session(tmp_path: Path) -> None:
    with pytest.raises(MountConfigError, match="running session"):
        apply(S3Mount(bucket="b", mount_strategy=RCLONE), tmp_path, Session())
