"""Paths by their text alone: the workspace, grants, the working directory of a run."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from sandstream.sandbox import SandboxPathGrant, SandboxWorkspaceScope
from sandstream.sandbox.entries import resolve_workspace_path
from sandstream.sandbox.errors import InvalidManifestPathError, WorkspaceArchiveWriteError
from sandstream.sandbox.workspace_paths import (
    WorkspacePathPolicy,
    normalize_path,
    normalize_sandbox_cwd,
    sandbox_path_grant_host_path,
)

GRANTS = (
    SandboxPathGrant(path="/data", read_only=True),
    SandboxPathGrant(path="/data/rw"),
    SandboxPathGrant(path="/mnt/x"),
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", "/workspace/a"),
        ("a/../b", "/workspace/b"),
        ("a\\b", "/workspace/a/b"),
        ("", "/workspace"),
        ("/workspace/a/../b", "/workspace/b"),
        (Path("a/b"), "/workspace/a/b"),
        ("/data/x", "/data/x"),
        ("/data/rw/../y", "/data/y"),
    ],
)
def test_what_lies_in_the_workspace_or_a_grant_is_reached(path: str, expected: str) -> None:
    assert normalize_path(path, "/workspace", GRANTS) == Path(expected)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x", "escape_root"),
        ("..", "escape_root"),
        ("../data/x", "escape_root"),
        ("/workspace/../etc", "absolute"),
        ("/datax", "absolute"),
        ("C:\\x", "absolute"),
        ("//workspace/a", "absolute"),
    ],
)
def test_what_lies_elsewhere_is_not(path: str, reason: str) -> None:
    with pytest.raises(InvalidManifestPathError) as caught:
        normalize_path(path, "/workspace", GRANTS)
    assert caught.value.context["reason"] == reason


def test_the_innermost_grant_says_whether_one_may_write() -> None:
    assert normalize_path("/data/rw/f", "/workspace", GRANTS, for_write=True) == Path("/data/rw/f")
    with pytest.raises(WorkspaceArchiveWriteError) as caught:
        normalize_path("/data/f", "/workspace", GRANTS, for_write=True)
    assert caught.value.context == {
        "path": "/data/f",
        "reason": "read_only_extra_path_grant",
        "grant_path": "/data",
    }


def test_a_tree_with_a_read_only_grant_cannot_be_removed() -> None:
    grants = [SandboxPathGrant(path="/mnt"), SandboxPathGrant(path="/mnt/in/ro", read_only=True)]
    policy = WorkspacePathPolicy(root="/workspace", extra_path_grants=grants)
    policy.validate_recursive_remove("/mnt/other")
    with pytest.raises(WorkspaceArchiveWriteError):
        policy.validate_recursive_remove("/mnt/in")


def test_paths_relative_to_the_root() -> None:
    policy = WorkspacePathPolicy(root="/workspace", extra_path_grants=GRANTS)
    assert policy.relative_path("/workspace") == Path()
    assert policy.relative_path("/workspace/a/./b") == Path("a/b")
    with pytest.raises(InvalidManifestPathError):
        policy.absolute_workspace_path("/mnt/x")


def test_a_root_is_absolute() -> None:
    with pytest.raises(ValueError, match="absolute"):
        WorkspacePathPolicy(root="here")


@pytest.mark.parametrize("path", ["/", "rel", "C:\\x", 3, "/.."])
def test_a_grant_is_an_absolute_path_and_not_everything(path: object) -> None:
    with pytest.raises(ValueError, match="grant"):
        SandboxPathGrant.model_validate({"path": path})


@pytest.mark.parametrize("path", ["/a/../b", "//x", "\\\\s\\x", "rel", "/", "C:\\", "c:rel", 5])
def test_a_host_path_is_absolute_and_not_everything(path: object) -> None:
    with pytest.raises(ValueError, match=r"host_path|filesystem root"):
        SandboxPathGrant.model_validate({"path": "/p", "host_path": path})


def test_a_grant_is_dumped_without_an_absent_host_path() -> None:
    plain = {"path": "/p", "read_only": False, "description": None}
    assert SandboxPathGrant(path="/q/../p").model_dump() == plain
    assert SandboxPathGrant(path="/p", host_path="/h/").model_dump() == {**plain, "host_path": "/h"}


def test_a_grant_of_a_link_to_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all").symlink_to("/")
    with pytest.raises(ValueError, match="resolve to the filesystem root"):
        sandbox_path_grant_host_path(SandboxPathGrant(path=str(tmp_path / "all")))


@pytest.mark.parametrize("cwd", ["../a", "a/..", "/a", "", " ", "a\\b", "C:/x", 7])
def test_a_working_directory_lies_in_the_workspace(cwd: str) -> None:
    with pytest.raises(ValueError, match=r"sandbox\.cwd"):
        normalize_sandbox_cwd(cwd)


def test_a_scope_reads_relative_paths_from_its_directory() -> None:
    scope = SandboxWorkspaceScope.from_cwd("repo/./x")
    assert scope.cwd == PurePosixPath("repo/x")
    assert scope.anchor("a") == PurePosixPath("repo/x/a")
    assert scope.anchor("/abs") == "/abs"
    assert scope.model_path("repo/q") == PurePosixPath("../q")
    assert scope.display_path(original_path="/w/q", workspace_relative_path="repo/q") == (
        PurePosixPath("repo/q")
    )
    resource = scope.model_resource_path(
        workspace_root="/workspace", workspace_relative_path="a/./b"
    )
    assert resource == PurePosixPath("/workspace/a/b")
    assert SandboxWorkspaceScope().anchor("a") == "a"
    with pytest.raises(ValueError, match="in the workspace"):
        scope.model_resource_path(workspace_root="/workspace", workspace_relative_path="../b")


@pytest.mark.parametrize(
    ("rel", "inside", "expected"),
    [
        ("a/b", False, "/workspace/a/b"),
        ("", False, "/workspace"),
        ("/workspace/a", True, "/workspace/a"),
        ("/workspace/a/../b", True, "/workspace/b"),
        ("/workspace/a", False, "absolute"),
        ("/etc", True, "absolute"),
        ("/workspace/../x", True, "absolute"),
        ("a/../b", True, "escape_root"),
        ("C:\\x", True, "absolute"),
    ],
)
def test_resolving_a_path_of_an_entry(rel: str, inside: bool, expected: str) -> None:
    if expected.startswith("/"):
        path = resolve_workspace_path("/workspace", rel, allow_absolute_within_root=inside)
        assert path == Path(expected)
        return
    with pytest.raises(InvalidManifestPathError) as caught:
        resolve_workspace_path("/workspace", rel, allow_absolute_within_root=inside)
    assert caught.value.context["reason"] == expected
