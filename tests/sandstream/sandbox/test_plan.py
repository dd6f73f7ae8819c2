"""Plans: what travels in the message, what is stored, what is refused before any effect."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from sandstream_bus.wire.sandboxes import (
    EnvironmentValue,
    PlanFile,
    PlanRepo,
    PlanTree,
    WorkspacePlan,
)
from sandstream_workspaces.errors import HostDirectoryFailed

from sandstream.sandbox import Group, Manifest, Permissions, SandboxPathGrant, User
from sandstream.sandbox.entries import (
    BaseEntry,
    Dir,
    File,
    GitRepo,
    InContainerMountStrategy,
    LocalDir,
    LocalFile,
    R2Mount,
    RcloneMountPattern,
    S3Mount,
)
from sandstream.sandbox.errors import (
    GitCloneError,
    GitCopyError,
    GitSubpathError,
    InvalidManifestPathError,
    LocalDirReadError,
    LocalFileReadError,
    MountConfigError,
)
from sandstream.sandbox.manifest import EnvEntry, Environment, SecretRef
from sandstream.sandbox.plan import check_manifest, custom_entries, environment_of, plan_of

Tree = dict[str, tuple[int, bytes | str]]
RCLONE = InContainerMountStrategy(pattern=RcloneMountPattern())


def read_tree(root: Path) -> Tree:
    held: Tree = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            held[name] = (mode, str(path.readlink()))
        elif path.is_file():
            held[name] = (mode, path.read_bytes())
    return held


class Trees:
    """A store in memory: what was put there, by digest."""

    def __init__(self) -> None:
        self.held: dict[str, Tree] = {}

    async def add_directory(
        self, path: Path, *, symlinks: Literal["reject", "keep", "skip"] = "reject"
    ) -> str:
        held = read_tree(path)
        assert symlinks == "keep" or not any(isinstance(data, str) for _, data in held.values())
        return self._keep(held)

    async def add_files(self, files: Sequence[tuple[str, bytes, int]]) -> str:
        return self._keep({path: (mode, data) for path, data, mode in files})

    def _keep(self, tree: Tree) -> str:
        digest = f"tree-{len(self.held)}"
        self.held[digest] = tree
        return digest


def plan(manifest: Manifest, trees: Trees | None = None, **options: Any) -> WorkspacePlan:
    return asyncio.run(plan_of(manifest, trees or Trees(), **options))


def test_small_files_and_directories_travel_in_the_message() -> None:
    trees = Trees()
    manifest = Manifest(
        entries={
            "a": File(content=b"\xff", permissions=Permissions.from_mode(0o600)),
            "d": Dir(
                ephemeral=True,
                permissions=Permissions.from_mode(0o555),
                children={"f": File(content=b"f")},
            ),
            "e": LocalDir(),
        }
    )
    assert plan(manifest, trees) == WorkspacePlan(
        files=[
            PlanFile(path="a", data=b"\xff", mode=0o600),
            PlanFile(path="d/f", data=b"f", mode=0o755, ephemeral=True),
            PlanFile(path="e", kind="dir", mode=0o755),
            # Closed directories come after what they hold.
            PlanFile(path="d", kind="dir", mode=0o555, ephemeral=True),
        ],
        exclude=["d"],
    )
    assert trees.held == {}


def test_only_what_no_snapshot_holds() -> None:
    manifest = Manifest(
        entries={
            "kept": File(content=b"k"),
            "d": Dir(children={"e": File(content=b"e", ephemeral=True), "k": File(content=b"")}),
            "g": GitRepo(repo="a/b", ref="main", ephemeral=True),
            "h": GitRepo(repo="a/b", ref="main"),
        }
    )
    made = plan(manifest, only_ephemeral=True)
    assert [file.path for file in made.files] == ["d/e", "g"]
    assert [repo.path for repo in made.repos] == ["g"]
    assert made.exclude == ["d/e", "g"]


def test_big_files_are_stored_together_by_directory() -> None:
    trees = Trees()
    big = b"x" * (60 * 1024)
    manifest = Manifest(
        entries={
            "one": File(content=big),
            "two": File(content=big),
            "three": File(content=big),
            "d": Dir(children={"four": File(content=big, ephemeral=True)}),
            "small": File(content=b"s"),
        }
    )
    made = plan(manifest, trees)
    assert [file.path for file in made.files] == ["one", "d", "small"]
    assert made.trees == [
        PlanTree(path="", tree="tree-0"),
        PlanTree(path="d", tree="tree-1", ephemeral=True),
    ]
    assert trees.held == {
        "tree-0": {"two": (0o755, big), "three": (0o755, big)},
        "tree-1": {"four": (0o755, big)},
    }


def test_files_of_this_machine_are_stored(tmp_path: Path) -> None:
    trees = Trees()
    (tmp_path / "src" / "in").mkdir(parents=True)
    (tmp_path / "src" / "f").write_bytes(b"f")
    (tmp_path / "src" / "in" / "g").write_bytes(b"g")
    (tmp_path / "src" / "in" / "g").chmod(0o600)
    manifest = Manifest(
        entries={
            "copy": LocalFile(src=Path("src/f"), permissions=Permissions.from_mode(0o400)),
            "d": Dir(children={"tree": LocalDir(src=Path("src"), ephemeral=True)}),
        }
    )
    made = plan(manifest, trees, base_dir=tmp_path, concurrency=1)
    assert made.trees == [
        PlanTree(path="d/tree", tree="tree-0", ephemeral=True),
        PlanTree(path="", tree="tree-1"),
    ]
    assert [file.path for file in made.files] == ["d", "d/tree"]
    assert made.exclude == ["d/tree"]
    assert trees.held["tree-0"]["in/g"] == (0o600, b"g")
    assert trees.held["tree-1"] == {"copy": (0o400, b"f")}


def host_directory(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    (base / "sub").mkdir(parents=True)
    (base / "f").write_bytes(b"f")
    (base / "flink").symlink_to("f")
    (base / "dlink").symlink_to("sub")
    (base / "holds").mkdir()
    (base / "holds" / "link").symlink_to("/etc")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "o").write_bytes(b"o")
    return base


@pytest.mark.parametrize(
    ("src", "reason", "child"),
    [
        ("../out/o", "outside_base_dir", None),
        ("/etc/hostname", "outside_base_dir", None),
        ("nope", "path_not_found", None),
        ("nope/f", "path_not_found", None),
        ("flink", "symlink_not_supported", "flink"),
        ("dlink/f", "symlink_not_supported", "dlink"),
        ("sub", "path_changed_during_copy", "sub"),
    ],
)
def test_local_files_are_checked(tmp_path: Path, src: str, reason: str, child: str | None) -> None:
    base = host_directory(tmp_path)
    trees = Trees()
    manifest = Manifest(entries={"big": LocalDir(src=base / "sub"), "f": LocalFile(src=Path(src))})
    with pytest.raises(LocalFileReadError) as caught:
        plan(manifest, trees, base_dir=base)
    assert caught.value.context["reason"] == reason
    assert caught.value.context.get("child") == child
    assert trees.held == {}, "nothing may be stored before everything is checked"


@pytest.mark.parametrize(
    ("src", "reason", "child"),
    [
        ("../out", "outside_base_dir", None),
        ("nope", "path_not_found", None),
        ("dlink", "symlink_not_supported", "dlink"),
        ("holds", "symlink_not_supported", "link"),
        ("f", "path_changed_during_copy", "f"),
    ],
)
def test_local_directories_are_checked(
    tmp_path: Path, src: str, reason: str, child: str | None
) -> None:
    base = host_directory(tmp_path)
    with pytest.raises(LocalDirReadError) as caught:
        plan(Manifest(entries={"d": LocalDir(src=Path(src))}), base_dir=base)
    assert caught.value.context["reason"] == reason
    assert caught.value.context.get("child") == child


def test_a_grant_lets_more_be_read(tmp_path: Path) -> None:
    base = host_directory(tmp_path)
    trees = Trees()
    grants = (SandboxPathGrant(path=str(tmp_path / "out"), read_only=True),)
    manifest = Manifest(
        entries={"o": LocalFile(src=tmp_path / "out" / "o")}, extra_path_grants=grants
    )
    plan(manifest, trees, base_dir=base)
    assert trees.held == {"tree-0": {"o": (0o755, b"o")}}
    elsewhere = Manifest(entries={"o": LocalFile(src=Path("/etc/x"))}, extra_path_grants=grants)
    with pytest.raises(LocalFileReadError) as caught:
        plan(elsewhere, base_dir=base)
    assert caught.value.context["extra_path_grants"] == [str(tmp_path / "out")]


def test_the_base_directory_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"here")
    monkeypatch.chdir(tmp_path)
    trees = Trees()
    plan(Manifest(entries={"f": LocalFile(src=Path("f"))}), trees)
    assert trees.held == {"tree-0": {"f": (0o755, b"here")}}


def test_a_directory_that_changes_while_it_is_stored(tmp_path: Path) -> None:
    class Changing(Trees):
        async def add_directory(
            self, path: Path, *, symlinks: Literal["reject", "keep", "skip"] = "reject"
        ) -> str:
            raise HostDirectoryFailed("a/b", "changed", "it changed")

    with pytest.raises(LocalDirReadError) as caught:
        plan(Manifest(entries={"d": LocalDir(src=tmp_path)}), Changing(), base_dir=tmp_path)
    assert caught.value.context["reason"] == "path_changed_during_copy"
    assert caught.value.context["child"] == "a/b"


def test_repositories_on_a_host_are_fetched_by_the_actor() -> None:
    made = plan(Manifest(entries={"r": GitRepo(repo="a/b", ref="v1", subpath="./docs")}))
    assert made.repos == [
        PlanRepo(path="r", url="https://github.com/a/b.git", ref="v1", subpath="docs")
    ]
    assert made.trees == []


def git(repo: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    command = ["git", "-C", str(repo), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repo = tmp_path / "my repo"
    (repo / "docs").mkdir(parents=True)
    git(repo, "init", "--quiet", "--initial-branch", "main")
    (repo / "docs" / "f").write_bytes(b"old")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "one")
    git(repo, "tag", "first")
    (repo / "docs" / "f").write_bytes(b"new")
    (repo / "link").symlink_to("docs/f")
    (repo / "out").symlink_to("/etc")
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "-m", "two")
    return repo


def test_local_repositories_are_cloned_here(repository: Path) -> None:
    trees = Trees()
    short = git(repository, "rev-parse", "--short", "first")
    manifest = Manifest(
        entries={
            "head": GitRepo.from_path(repository),
            "branch": GitRepo(repo=repository.as_uri(), ref="main"),
            "commit": GitRepo(repo=f"./{repository.name}", ref=short, subpath="docs"),
            "tag": GitRepo.from_path(repository, "first"),
        }
    )
    made = plan(manifest, trees, base_dir=repository.parent, concurrency=1)
    assert made.repos == []
    held = {tree.path: trees.held[tree.tree] for tree in made.trees}
    assert held["head"]["docs/f"][1] == b"new"
    assert held["head"]["link"][1] == "docs/f"
    assert held["branch"][".git/HEAD"][1] == b"ref: refs/heads/main\n"
    assert held["tag"]["docs/f"][1] == b"old"
    assert held["commit"] == {"f": held["tag"]["docs/f"]}
    hooks = [name for name in held["head"] if name.startswith(".git/hooks/")]
    assert hooks == []
    config = held["head"][".git/config"][1]
    assert isinstance(config, bytes)
    assert repository.name.encode() not in config


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"ref": "absent"}, GitCloneError),
        ({"ref": "--upload-pack=touch x"}, GitCloneError),
        ({"ref": "main", "subpath": "absent"}, GitCopyError),
        ({"ref": "main", "subpath": "out"}, GitSubpathError),
        ({"ref": "main", "subpath": "../x"}, GitSubpathError),
    ],
)
def test_what_a_local_repository_does_not_have(
    repository: Path, settings: dict[str, Any], error: type[Exception]
) -> None:
    manifest = Manifest(entries={"r": GitRepo(repo=str(repository), **settings)})
    trees = Trees()
    with pytest.raises(error):
        plan(manifest, trees, base_dir=repository.parent)
    assert trees.held == {}


def test_git_sees_nothing_of_the_callers_environment(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "broken")
    trees = Trees()
    plan(Manifest(entries={"r": GitRepo.from_path(repository)}), trees, base_dir=tmp_path)
    assert trees.held["tree-0"]["docs/f"][1] == b"new"


def test_a_repository_outside_the_base_directory_is_refused(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "base").mkdir()
    with pytest.raises(LocalDirReadError) as caught:
        plan(Manifest(entries={"r": GitRepo.from_path(repository)}), base_dir=tmp_path / "base")
    assert caught.value.context["reason"] == "outside_base_dir"


def test_mounts_need_a_provider_that_has_them() -> None:
    mount = S3Mount(bucket="b", mount_strategy=RCLONE, mount_path=Path("data"))
    manifest = Manifest(entries={"m": mount})
    with pytest.raises(MountConfigError, match="local provider") as caught:
        plan(manifest)
    assert caught.value.context == {"mount_type": "s3_mount", "path": "m"}
    with pytest.raises(MountConfigError):
        check_manifest(manifest, supports_users=False)
    check_manifest(manifest, supports_users=True, supports_mounts=True)
    made = plan(manifest, supports_mounts=True)
    assert (made.files, made.exclude) == ([], ["data", "m"])


class Made(BaseEntry):
    type: Literal["test_made"] = "test_made"

    async def apply(self, session: Any, dest: Path, base_dir: Path) -> list[Any]:
        return []


class FileOfMine(File):
    """Inherits how it is laid out, so it is a file like any other."""

    type: Literal["test_file_of_mine"] = "test_file_of_mine"  # type: ignore[assignment]


def test_entries_of_ones_own_are_left_to_the_session() -> None:
    mine = Made(ephemeral=True)
    manifest = Manifest(
        entries={"d": Dir(children={"x": mine, "y": Made()}), "f": FileOfMine(content=b"f")}
    )
    assert [file.path for file in plan(manifest).files] == ["d", "f"]
    assert [str(path) for path, _ in custom_entries(manifest)] == ["d/x", "d/y"]
    assert [entry for _, entry in custom_entries(manifest, only_ephemeral=True)] == [mine]


@pytest.mark.parametrize(
    ("manifest", "error", "words"),
    [
        (Manifest(users=[User(name="u")]), ValueError, "users"),
        (Manifest(groups=[Group(name="g", users=[])]), ValueError, "groups"),
        (
            Manifest(entries={"f": File(content=b"", group=User(name="u"))}),
            ValueError,
            "belong to 'u'",
        ),
        (Manifest(root="here"), ValueError, "absolute"),
        (Manifest(environment=Environment(value={"A=B": "x"})), ValueError, "'A=B'"),
        (Manifest(entries={"../f": File(content=b"")}), InvalidManifestPathError, "leaves"),
        (
            Manifest(entries={"g": GitRepo(repo="a/b", ref="r", subpath="..")}),
            GitSubpathError,
            "inside",
        ),
    ],
)
def test_what_cannot_work_locally_is_refused_at_once(
    manifest: Manifest, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        check_manifest(manifest, supports_users=False)


def test_users_are_fine_where_there_are_users() -> None:
    user = User(name="u")
    check_manifest(
        Manifest(users=[user], entries={"f": File(content=b"", group=user)}), supports_users=True
    )
    half = R2Mount(bucket="b", account_id="a", access_key_id="k", mount_strategy=RCLONE)
    with pytest.raises(MountConfigError, match="together"):
        check_manifest(Manifest(entries={"m": half}), supports_users=True, supports_mounts=True)


def test_secrets_are_sent_by_name() -> None:
    environment = Environment(
        value={"A": "1", "B": SecretRef("TOKEN"), "C": EnvEntry(value=SecretRef(name="OTHER"))}
    )
    assert asyncio.run(environment_of(Manifest(environment=environment))) == {
        "A": EnvironmentValue(value="1"),
        "B": EnvironmentValue(secret="TOKEN"),
        "C": EnvironmentValue(secret="OTHER"),
    }
