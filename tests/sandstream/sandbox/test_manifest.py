"""Manifests: reading and writing them, their paths, their picture, who may name host files."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandstream.sandbox import Dir, Group, LocalFile, Manifest, SandboxPathGrant, User
from sandstream.sandbox.config import SandboxRunConfig
from sandstream.sandbox.entries import (
    BaseEntry,
    DockerVolumeMountStrategy,
    File,
    GitRepo,
    InContainerMountStrategy,
    LocalDir,
    RcloneMountPattern,
    S3Mount,
)
from sandstream.sandbox.errors import InvalidManifestPathError
from sandstream.sandbox.manifest import (
    EnvEntry,
    Environment,
    EnvValue,
    SecretRef,
    StrEnvValue,
    coerce_manifest,
)


def mount(**settings: Any) -> S3Mount:
    strategy = DockerVolumeMountStrategy(driver="rclone")
    return S3Mount(bucket="b", mount_strategy=strategy, **settings)


FULL = Manifest(
    entries={
        "a.txt": File(content=b"hi", description="greeting"),
        "d": Dir(children={"b/c": File(content=b"\xff\x00")}),
        Path("ld"): LocalDir(src=Path("x")),
        "g": GitRepo(repo="o/n", ref="main"),
        "s3": S3Mount(
            bucket="b", mount_strategy=InContainerMountStrategy(pattern=RcloneMountPattern())
        ),
    },
    environment=Environment(value={"A": "1", "S": SecretRef("TOKEN")}),
    users=[User(name="u")],
    groups=[Group(name="g", users=[])],
    extra_path_grants=(SandboxPathGrant(path="/data"),),
)


def test_a_manifest_survives_json_and_python() -> None:
    json_again = Manifest.model_validate_json(FULL.model_dump_json())
    assert json_again.model_dump(mode="json") == FULL.model_dump(mode="json")
    assert Manifest.model_validate(FULL.model_dump()) == FULL
    binary = json_again.entries["d"]
    assert isinstance(binary, Dir)
    assert binary.children["b/c"] == File(content=b"\xff\x00")


def test_the_json_form_of_a_file_is_text_or_base64() -> None:
    dumped = FULL.model_dump(mode="json")["entries"]
    assert dumped["a.txt"] == {
        "type": "file",
        "description": "greeting",
        "ephemeral": False,
        "group": None,
        "is_dir": False,
        "permissions": {"owner": 7, "group": 5, "other": 5, "directory": False},
        "content": "hi",
    }
    assert dumped["d"]["children"]["b/c"]["content"] == {"base64": "/wA="}
    assert dumped["ld"]["src"] == "x"
    assert dumped["s3"]["mount_strategy"]["pattern"]["type"] == "rclone"


def test_the_picture_of_a_manifest() -> None:
    assert FULL.describe(None) == (
        "/workspace\n"
        "├── a.txt      # /workspace/a.txt — greeting\n"
        "├── d/         # /workspace/d\n"
        "│   └── b/     # /workspace/d/b\n"
        "│       └── c  # /workspace/d/b/c\n"
        "├── g/         # /workspace/g\n"
        "├── ld/        # /workspace/ld\n"
        "└── s3/        # /workspace/s3\n"
    )
    assert FULL.describe() == (
        "/workspace\n"
        "├── a.txt  # /workspace/a.txt — greeting\n"
        "├── d/     # /workspace/d\n"
        "├── g/     # /workspace/g\n"
        "├── ld/    # /workspace/ld\n"
        "└── s3/    # /workspace/s3\n"
    )


def test_the_picture_of_paths_mounts_and_depths() -> None:
    manifest = Manifest(
        root="/",
        entries={
            "x": File(content=b"", description="top"),
            "z/y/w": Dir(description="deep", children={"v": LocalDir(description="ld")}),
            "z": Dir(description="zz"),
            "m": mount(mount_path="/mnt/a"),
            "n": mount(mount_path="in/side"),
        },
    )
    assert manifest.describe(2) == (
        "/\n"
        "├── m/      # /mnt/a\n"
        "├── n/      # /in/side\n"
        "├── x       # /x — top\n"
        "└── z/      # /z — zz\n"
        "    └── y/  # /z/y\n"
    )
    assert "        └── w/      # /z/y/w — deep\n" in manifest.describe(None)
    assert Manifest().describe() == "/workspace\n"
    with pytest.raises(ValueError, match="depth"):
        manifest.describe(0)


def test_a_long_picture_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    names: dict[str | Path, BaseEntry] = {
        f"file-{number:03}": File(content=b"") for number in range(300)
    }
    with caplog.at_level(logging.WARNING):
        text = Manifest(entries=names).describe()
    whole = len("/workspace\n") + 300 * len("├── file-000  # /workspace/file-000\n")
    head, _, tail = text.partition("\n... (truncated ")
    assert 4990 <= len(text) <= 5000
    count = int(tail.partition(" ")[0])
    assert whole - count >= len(head)
    assert whole - count - len(head) < 40
    assert "`ls`" in tail
    assert "cut" in caplog.text


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"/a": File(content=b"")}, "absolute"),
        ({"C:\\a": File(content=b"")}, "absolute"),
        ({"../a": File(content=b"")}, "escape_root"),
        ({"a/../b": File(content=b"")}, "escape_root"),
        ({"d": Dir(children={"../x": File(content=b"")})}, "escape_root"),
        ({"d": Dir(children={"/x": File(content=b"")})}, "absolute"),
    ],
)
def test_paths_of_entries_stay_in_the_workspace(
    entries: dict[str | Path, BaseEntry], reason: str
) -> None:
    manifest = Manifest(entries=entries)
    with pytest.raises(InvalidManifestPathError) as caught:
        manifest.validated_entries()
    assert caught.value.context["reason"] == reason


def test_entries_come_parents_first_in_the_given_order() -> None:
    manifest = Manifest(
        entries={
            "z": Dir(children={"b": File(content=b""), "a": Dir(children={"q\\r": LocalDir()})}),
            "a\\b": File(content=b""),
        }
    )
    paths = [path.as_posix() for path, _ in manifest.iter_entries()]
    assert paths == ["z", "z/b", "z/a", "z/a/q/r", "a/b"]


def test_mounts_and_what_no_snapshot_holds() -> None:
    manifest = Manifest(
        entries={
            "m": mount(mount_path="/workspace/q/../r"),
            "n": mount(mount_path="/mnt/a/b/c"),
            "d": Dir(ephemeral=True, children={"o": mount()}),
            "f": File(content=b"", ephemeral=True),
            "kept": File(content=b""),
        }
    )
    assert [str(path) for _, path in manifest.mount_targets()] == [
        "/mnt/a/b/c",
        "/workspace/d/o",
        "/workspace/r",
    ]
    assert sorted(map(str, manifest.ephemeral_persistence_paths())) == [
        "d",
        "d/o",
        "f",
        "m",
        "n",
        "r",
    ]
    with pytest.raises(InvalidManifestPathError):
        Manifest(entries={"m": mount(mount_path="../z")}).mount_targets()


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ({"entries": [1]}, TypeError, "mapping"),
        ({"entries": {"a": 3}}, TypeError, "not int"),
        ({"entries": {"a": {"type": "zz"}}}, ValueError, "unknown entry type `zz`"),
        ({"entries": {"a": {}}}, ValueError, "must say its `type`"),
        ({"entries": {"a": {"type": "file", "content": {"base64": "*"}}}}, ValueError, "base64"),
        ({"version": 2}, ValueError, "version"),
        ({"environment": {"value": {"A": 3}}}, TypeError, "not int"),
        ({"environment": {"value": {"A": {"type": "no"}}}}, ValueError, "env value type `no`"),
        ({"mount_credential_exposure_policy": {}}, TypeError, "acknowledged by a method"),
    ],
)
def test_bad_data_is_refused(data: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Manifest.model_validate(data)


@pytest.mark.parametrize(
    "data",
    [
        {"entries": {"a": LocalFile(src=Path("x"))}},
        {"entries": {"d": {"type": "dir", "children": {"a": {"type": "local_dir", "src": "x"}}}}},
        {"entries": {"g": {"type": "git_repo", "repo": "/srv/r", "ref": "main"}}},
        {"extra_path_grants": [{"path": "/data"}]},
    ],
)
def test_a_dict_gives_no_access_to_this_machine(data: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="need a Manifest object"):
        SandboxRunConfig(manifest=data)
    assert isinstance(Manifest.model_validate(data), Manifest)


def test_a_dict_with_unknown_settings_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown settings: nope"):
        coerce_manifest({"nope": 1}, parameter_name="m")
    made = coerce_manifest(
        {"entries": {"l": {"type": "local_dir"}}, "extra_path_grants": []}, parameter_name="m"
    )
    assert list(made.entries) == ["l"]


def test_variables_are_looked_up_late_and_secrets_never_here() -> None:
    class Upper(EnvValue):
        type: str = "test_upper"
        text: str

        async def resolve(self) -> str:
            return self.text.upper()

    environment = Environment(
        value={
            "A": "plain",
            "B": EnvEntry(value=Upper(text="loud"), description="d"),
            "C": StrEnvValue(value="c"),
        }
    )
    assert asyncio.run(environment.resolve()) == {"A": "plain", "B": "LOUD", "C": "c"}
    again = Environment.model_validate_json(environment.model_dump_json())
    assert again == environment
    with pytest.raises(RuntimeError, match="only to the sandbox actor"):
        asyncio.run(Environment(value={"T": SecretRef("TOKEN")}).resolve())
    assert Environment(value={"T": SecretRef("TOKEN")}).model_dump() == {
        "value": {"T": {"type": "secret_ref", "name": "TOKEN"}}
    }


def test_exposure_of_mount_credentials_is_acknowledged_by_exact_path() -> None:
    manifest = Manifest(entries={"m": mount()})
    trusting = manifest.with_in_container_mount_credential_exposure_acknowledged("m")
    assert trusting.acknowledges_credential_exposure("/workspace/m", "mount_scoped")
    assert not trusting.acknowledges_credential_exposure("m", "broad")
    assert not manifest.acknowledges_credential_exposure("m", "mount_scoped")
    restored = Manifest.model_validate_json(trusting.model_dump_json())
    assert not restored.acknowledges_credential_exposure("m", "mount_scoped")
    for bad in ("", "/workspace", "a/*", "../x", "a\\b"):
        with pytest.raises(ValueError, match="mount path"):
            manifest.with_in_container_mount_broad_credential_exposure_acknowledged(bad)


def test_importing_the_package_loads_nothing() -> None:
    code = (
        "import sys, sandstream.sandbox as s\n"
        "assert 'pydantic' not in sys.modules\n"
        "assert 'Manifest' in dir(s)\n"
        "s.Manifest\n"
        "assert 'pydantic' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
