"""Patches on a real box: all of it or nothing, in order, and once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from actors.sandbox.tools.live_box import Workspace, in_workspace
from sandstream_actors.sandbox.tools.patch_apply import apply_patch
from sandstream_actors.sandbox.tools.patch_errors import (
    PatchDecodeError,
    PatchDiffError,
    PatchError,
    PatchFileNotFound,
    PatchPathError,
)
from sandstream_bus.wire.sandboxes import PatchOperation
from sandstream_providers.interface import ResolveRule


def test_all_kinds_of_operations(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.write("change.txt", "a\nb\nc\n")
        workspace.write("move.txt", "one\ntwo\n").chmod(0o755)
        workspace.write("gone.txt", "bye\n")
        outcome = await workspace.patch(
            "*** Add File: new/deep/file.txt",
            "+hello",
            "+world",
            "*** Update File: change.txt",
            "@@",
            " a",
            "-b",
            "+B",
            "*** Update File: move.txt",
            "*** Move to: moved/there.txt",
            "@@",
            "-one",
            "+ONE",
            "*** Delete File: gone.txt",
        )
        assert outcome.error is None
        assert outcome.output == (
            "Created new/deep/file.txt\nUpdated change.txt\n"
            "Updated move.txt\nMoved move.txt to moved/there.txt\nDeleted gone.txt"
        )
        assert workspace.text("new/deep/file.txt") == "hello\nworld"
        assert workspace.text("change.txt") == "a\nB\nc\n"
        assert workspace.text("moved/there.txt") == "ONE\ntwo\n"
        assert (workspace.root / "moved/there.txt").stat().st_mode & 0o777 == 0o755
        assert workspace.names() == [
            "change.txt",
            "moved",
            "moved/there.txt",
            "new",
            "new/deep",
            "new/deep/file.txt",
        ]

    in_workspace(tmp_path, story)


def test_a_later_failure_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.write("a.txt", "a\n")
        outcome = await workspace.patch(
            "*** Add File: b.txt",
            "+b",
            "*** Update File: a.txt",
            "@@",
            "-a",
            "+A",
            "*** Delete File: missing.txt",
        )
        assert outcome.error == "apply_patch_file_not_found"
        assert outcome.output == "apply_patch missing file: missing.txt"
        assert workspace.names() == ["a.txt"]
        assert workspace.text("a.txt") == "a\n"

    in_workspace(tmp_path, story)


def test_operations_see_what_the_ones_before_them_did(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.write("a.txt", "1\n2\n3\n")
        workspace.write("whole.txt", "old\n")
        workspace.write("there.txt", "in the way\n")
        outcome = await workspace.patch(
            "*** Update File: a.txt",
            "@@",
            "-1",
            "+one",
            "*** Update File: a.txt",
            "@@",
            " one",
            "-2",
            "+two",
            "*** Delete File: whole.txt",
            "*** Add File: whole.txt",
            "+new",
            "*** Add File: brief.txt",
            "+x",
            "*** Delete File: brief.txt",
            "*** Update File: a.txt",
            "*** Move to: there.txt",
            "@@",
            "-3",
            "+three",
            "*** Update File: there.txt",
            "@@",
            " three",
            "+four",
        )
        assert outcome.error is None, outcome.output
        assert workspace.names() == ["there.txt", "whole.txt"]
        assert workspace.text("there.txt") == "one\ntwo\nthree\nfour\n"
        assert workspace.text("whole.txt") == "new"

    in_workspace(tmp_path, story)


def test_the_same_operation_again_changes_nothing_and_says_the_same(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.write("a.txt", "a\n")
        patch = ("*** Update File: a.txt", "@@", "-a", "+b", "*** Add File: n", "+x")
        first = await workspace.patch(*patch, op="op-1")
        again = await workspace.patch(*patch, op="op-1")
        assert first.output == again.output == "Updated a.txt\nCreated n"
        assert again.error is None
        assert workspace.text("a.txt") == "b\n"
        other = await workspace.patch(*patch, op="op-2")
        assert other.error == "apply_patch_invalid_diff"
        assert other.output == "Invalid Context 0:\na"

    in_workspace(tmp_path, story)


def test_creating_over_something_is_refused(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.write("dir/a.txt", "a\n")
        for path in ("dir/a.txt", "dir", "."):
            outcome = await workspace.patch(f"*** Add File: {path}", "+x")
            assert outcome.output == (
                f"apply_patch cannot create {path} because it already exists. "
                "Use an update_file operation to change an existing file."
            )
            assert outcome.error == "apply_patch_invalid_diff"
        twice = await workspace.patch("*** Add File: n", "+1", "*** Add File: n", "+2")
        assert twice.error == "apply_patch_invalid_diff"
        assert workspace.names() == ["dir", "dir/a.txt"]

    in_workspace(tmp_path, story)


def test_only_files_can_be_changed(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        (workspace.root / "dir").mkdir()
        os.mkfifo(workspace.root / "pipe")
        for path in ("dir", "pipe"):
            for lines in ([f"*** Delete File: {path}"], [f"*** Update File: {path}", "@@", "+x"]):
                outcome = await workspace.patch(*lines)
                assert outcome.error == "apply_patch_invalid_diff"
                assert f"{path} is something else" in str(outcome.output)
        workspace.write("a.txt", "a\n")
        onto = await workspace.patch("*** Update File: a.txt", "*** Move to: dir", "@@", "-a")
        assert "dir is something else" in str(onto.output)
        assert workspace.names() == ["a.txt", "dir", "pipe"]

    in_workspace(tmp_path, story)


def test_line_ends_of_the_file_are_kept(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.write("dos.txt", "a\r\nb\r\n")
        await workspace.patch("*** Update File: dos.txt", "@@", " a", "-b", "+c", "+d")
        assert workspace.text("dos.txt") == "a\r\nc\r\nd\r\n"

    in_workspace(tmp_path, story)


def test_links_inside_are_followed_for_content_and_removed_by_name(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.write("real/a.txt", "a\n")
        (workspace.root / "link").symlink_to("real")
        (workspace.root / "alias.txt").symlink_to("real/a.txt")
        outcome = await workspace.patch(
            "*** Update File: link/a.txt",
            "@@",
            "-a",
            "+b",
            "*** Update File: real/a.txt",
            "@@",
            "-b",
            "+c",
            "*** Update File: alias.txt",
            "@@",
            "-c",
            "+d",
        )
        assert outcome.error is None, outcome.output
        assert workspace.text("real/a.txt") == "d\n"
        assert (workspace.root / "alias.txt").is_symlink()
        replaced = await workspace.patch(
            "*** Delete File: alias.txt", "*** Add File: alias.txt", "+x"
        )
        assert replaced.error is None, replaced.output
        assert not (workspace.root / "alias.txt").is_symlink()
        assert workspace.text("alias.txt") == "x"
        assert workspace.text("real/a.txt") == "d\n"

    in_workspace(tmp_path, story)


def test_paths_that_lead_out_are_refused(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        outside = workspace.home / "secret.txt"
        outside.write_text("secret\n")
        (workspace.root / "way_out").symlink_to(workspace.home)
        for path in (
            "../secret.txt",
            str(outside),
            "a/../../secret.txt",
            "C:\\x",
            "..\\secret.txt",
        ):
            outcome = await workspace.patch(f"*** Delete File: {path}")
            assert outcome.output == f"apply_patch path must not escape root: {path}"
            assert outcome.error == "apply_patch_invalid_path"
        outcome = await workspace.patch("*** Update File: ../a", "*** Move to: ../b", "@@", "+x")
        assert outcome.output == "apply_patch path must not escape root: ../a"
        outcome = await workspace.patch("*** Delete File: way_out/secret.txt")
        assert outcome.error == "apply_patch_invalid_path"
        outcome = await workspace.patch("*** Add File: way_out/new.txt", "+x")
        assert outcome.error == "apply_patch_invalid_path"
        assert outside.read_text() == "secret\n"
        assert not (workspace.home / "new.txt").exists()

    in_workspace(tmp_path, story)


def test_absolute_paths_in_the_workspace_are_fine(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        outcome = await workspace.patch(f"*** Add File: {workspace.root}/a/b.txt", "+x")
        assert outcome.output == "Created a/b.txt"
        assert workspace.text("a/b.txt") == "x"

    in_workspace(tmp_path, story)


@pytest.mark.parametrize("is_absolute", [False, True])
def test_relative_paths_start_at_the_working_directory(tmp_path: Path, is_absolute: bool) -> None:
    async def story(workspace: Workspace) -> None:
        workspace.cwd = f"{workspace.root}/sub/dir" if is_absolute else "sub/dir"
        workspace.write("top.txt", "a\n")
        outcome = await workspace.patch(
            "*** Add File: here.txt",
            "+x",
            "*** Update File: ../../top.txt",
            "@@",
            "-a",
            "+b",
            f"*** Add File: {workspace.root}/abs.txt",
            "+y",
        )
        assert outcome.output == "Created here.txt\nUpdated ../../top.txt\nCreated abs.txt"
        assert workspace.text("sub/dir/here.txt") == "x"
        assert workspace.text("top.txt") == "b\n"

    in_workspace(tmp_path, story)


def test_a_read_only_grant_is_not_written(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        granted = workspace.home / "granted"
        granted.mkdir()
        (granted / "a.txt").write_text("a\n")
        (workspace.root / "granted").symlink_to(granted)
        workspace.rule = ResolveRule(roots=[str(workspace.root)], read_only_roots=[str(granted)])
        outcome = await workspace.patch("*** Update File: granted/a.txt", "@@", "-a", "+b")
        assert outcome.error == "path_escapes"
        assert (granted / "a.txt").read_text() == "a\n"
        workspace.rule = ResolveRule(roots=[str(workspace.root), str(granted)])
        outcome = await workspace.patch("*** Update File: granted/a.txt", "@@", "-a", "+b")
        assert outcome.error is None, outcome.output
        assert (granted / "a.txt").read_text() == "b\n"

    in_workspace(tmp_path, story)


def test_what_is_wrong_is_said_with_code_and_context(tmp_path: Path) -> None:
    def operation(kind: str, path: str, diff: str = "", move_to: str = "") -> PatchOperation:
        return PatchOperation(kind=kind, path=path, diff=diff, move_to=move_to)  # type: ignore[arg-type]

    async def story(workspace: Workspace) -> None:
        root = str(workspace.root)
        workspace.write("latin1.txt", b"caf\xe9\n")
        workspace.write("a.txt", "a\n")
        cases: list[tuple[PatchOperation, type[PatchError], str, dict[str, object]]] = [
            (
                operation("update_file", "latin1.txt", "@@\n-x\n"),
                PatchDecodeError,
                f"apply_patch could not decode file: {root}/latin1.txt",
                {"path": f"{root}/latin1.txt"},
            ),
            (
                operation("update_file", "./no//such.txt", "@@\n-x\n"),
                PatchFileNotFound,
                "apply_patch missing file: no/such.txt",
                {"path": "no/such.txt"},
            ),
            (
                operation("update_file", "a.txt", "@@\n-x\n"),
                PatchDiffError,
                "Invalid Context 0:\nx",
                {"path": "a.txt"},
            ),
            (
                operation("create_file", "n.txt", "x"),
                PatchDiffError,
                "Invalid Add File Line: x",
                {"path": "n.txt"},
            ),
            (
                operation("update_file", "a.txt", "@@\n-a\n", move_to=" "),
                PatchPathError,
                "apply_patch path must be non-empty",
                {"path": " ", "reason": "empty"},
            ),
        ]
        for number, (wrong, kind, message, context) in enumerate(cases):
            with pytest.raises(kind) as caught:
                await apply_patch(
                    workspace.box, workspace.rule, root, "", [wrong], op=f"op-{number}"
                )
            assert str(caught.value) == message
            assert caught.value.context == context

    in_workspace(tmp_path, story)


def test_many_files_at_once(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        lines = []
        for number in range(200):
            lines += [f"*** Add File: d{number % 7}/{number}.txt", f"+{number}"]
        outcome = await workspace.patch(*lines)
        assert outcome.error is None
        assert workspace.text("d3/164.txt") == "164"
        both = await asyncio.gather(
            workspace.patch("*** Delete File: d3/164.txt"),
            workspace.patch("*** Delete File: d3/164.txt"),
        )
        assert [each.error for each in both].count(None) == 1

    in_workspace(tmp_path, story)
