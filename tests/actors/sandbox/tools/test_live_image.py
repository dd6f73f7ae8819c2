"""Looking at images of a real box; calls that are wrong from the start."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from actors.sandbox.tools.live_box import Workspace, in_workspace
from sandstream_actors.sandbox.tools.dispatch import TOOLS
from sandstream_actors.sandbox.tools.view_image import MAX_IMAGE_BYTES, image_type
from sandstream_providers.interface import ResolveRule

PNG = b"\x89PNG\r\n\x1a\n...."


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        (PNG, "a.txt", "image/png"),
        (b"\xff\xd8\xff\xe0", "a.png", "image/jpeg"),
        (b"GIF87a", "a", "image/gif"),
        (b"GIF89a", "a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8", "a", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", "a", None),
        (b"BM\x00", "a", "image/bmp"),
        (b"II*\x00", "a", "image/tiff"),
        (b"MM\x00*", "a", "image/tiff"),
        (b"\n <SVG xmlns=''>", "a", "image/svg+xml"),
        (b"<?xml version='1.0'?><svg>", "a", "image/svg+xml"),
        (b"<?xml version='1.0'?>" + b" " * 3000 + b"<svg>", "a", None),
        (b"whatever", "dir/a.SVG", "image/svg+xml"),
        (b"\x1f\x8b", "a.svgz", "image/svg+xml"),
        (b"text", "a.png", None),
        (b"", "a.gif", None),
    ],
)
def test_the_content_says_what_it_is(data: bytes, path: str, expected: str | None) -> None:
    assert image_type(path, data) == expected


def test_view_image(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        async def view(path: str) -> object:
            return (await workspace.call("view_image", json.dumps({"path": path}))).output

        workspace.write("pics/a.png", PNG)
        workspace.write("plain.png", "text")
        url = "data:image/png;base64," + base64.b64encode(PNG).decode()
        picture = [{"type": "input_image", "image_url": url}]
        assert await view("pics/a.png") == picture
        assert await view(f"{workspace.root}/pics/a.png") == picture
        assert await view("./x/../none.png") == "image path `none.png` was not found"
        assert await view("plain.png") == "image path `plain.png` is not a supported image file"
        assert await view("pics") == "unable to read image at `pics`: WorkspaceArchiveReadError"
        outside = "Invalid path. Use a path within the workspace or an explicitly granted path."
        assert await view("../a.png") == outside
        assert await view("/etc/passwd") == outside
        (workspace.root / "out.png").symlink_to("/etc/hostname")
        assert await view("out.png") == (
            "unable to read image at `out.png`: InvalidManifestPathError"
        )
        workspace.cwd = "pics"
        assert await view("a.png") == picture
        assert await view("../none.png") == "image path `../none.png` was not found"

    in_workspace(tmp_path, story)


def test_images_of_grants_and_too_large_ones(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        granted = workspace.home / "granted"
        granted.mkdir()
        (granted / "a.gif").write_bytes(b"GIF89a")
        workspace.rule = ResolveRule(roots=[str(workspace.root)], read_only_roots=[str(granted)])
        outcome = await workspace.call("view_image", json.dumps({"path": f"{granted}/a.gif"}))
        assert outcome.output == [
            {"type": "input_image", "image_url": "data:image/gif;base64,R0lGODlh"}
        ]
        missing = await workspace.call("view_image", json.dumps({"path": f"{granted}/b.gif"}))
        assert missing.output == f"image path `{granted}/b.gif` was not found"
        workspace.write("big.png", PNG.ljust(MAX_IMAGE_BYTES + 1, b"\0"))
        outcome = await workspace.call("view_image", '{"path": "big.png"}')
        assert outcome.error == "image_too_large"
        assert outcome.output == (
            "image path `big.png` exceeded the allowed size of 10MB; "
            "resize or compress the image and try again"
        )
        workspace.write("big.png", PNG.ljust(MAX_IMAGE_BYTES, b"\0"))
        outcome = await workspace.call("view_image", '{"path": "big.png"}')
        assert outcome.error is None

    in_workspace(tmp_path, story)


def test_wrong_input_of_a_model_is_an_answer(tmp_path: Path) -> None:
    async def story(workspace: Workspace) -> None:
        rest = ". Check the tool schema and try again."
        for tool, arguments, output, error in (
            ("exec_command", "", "Invalid tool arguments" + rest, "invalid_arguments"),
            ("exec_command", "{}", f"Invalid tool arguments for cmd{rest}", "invalid_arguments"),
            (
                "exec_command",
                '{"cmd": "a\\u0000b"}',
                f"Invalid tool arguments for cmd{rest}",
                "invalid_arguments",
            ),
            ("view_image", "[]", "Invalid tool arguments" + rest, "invalid_arguments"),
            (
                "apply_patch",
                "",
                "apply_patch input must start with '*** Begin Patch'",
                "apply_patch_invalid_diff",
            ),
            (
                "rm_rf",
                "",
                "There is no tool 'rm_rf' in a sandbox; there are: "
                "exec_command, write_stdin, apply_patch, view_image.",
                "unknown_tool",
            ),
        ):
            outcome = await workspace.call(tool, arguments)
            assert (outcome.output, outcome.error) == (output, error)
        for tool in TOOLS:
            for arguments in ("\0", "{", "[[[[", '{"path": "\\u0000"}', "null", '{"cmd": 3}'):
                assert (await workspace.call(tool, arguments)).error is not None
        nul = await workspace.patch("*** Add File: a\0b", "+x")
        assert nul.error == "apply_patch_invalid_path"

    in_workspace(tmp_path, story)
