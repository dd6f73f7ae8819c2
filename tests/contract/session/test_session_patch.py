"""Patches through sessions: created, changed, moved, deleted, all of it or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from contract.sessions import SessionStage, content, refused, said, write

from sandstream.sandbox.errors import (
    ApplyPatchDecodeError,
    ApplyPatchDiffError,
    ApplyPatchFileNotFoundError,
    ApplyPatchPathError,
    SandboxError,
)


def _create(path: str, *lines: str) -> dict[str, str]:
    return {"type": "create_file", "path": path, "diff": "".join(f"+{it}\n" for it in lines)}


def _update(path: str, diff: str, **more: str) -> dict[str, str]:
    return {"type": "update_file", "path": path, "diff": diff, **more}


def _delete(path: str) -> dict[str, str]:
    return {"type": "delete_file", "path": path}


def test_a_patch(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await write(session, f"{place}/old", b"one\ntwo\nthree\n")
        await write(session, f"{place}/gone", b"x\n")
        await write(session, f"{place}/here", b"1\n2\n")
        text = await session.apply_patch(
            [
                _create(f"{place}/new/file", "hello", "world"),
                _update(f"{place}/old", "@@\n one\n-two\n+TWO\n three\n"),
                _update(f"{place}/here", "@@\n-1\n+one\n 2\n", move_to=f"{place}/there"),
                _delete(f"{place}/gone"),
            ]
        )
        assert isinstance(text, str)
        assert await content(session, f"{place}/new/file") == b"hello\nworld"
        assert await content(session, f"{place}/old") == b"one\nTWO\nthree\n"
        assert await content(session, f"{place}/there") == b"one\n2\n"
        assert await said(session, f"ls {place}") == "new\nold\nthere\n"
        await session.apply_patch(_delete(f"{place}/old"))
        assert await said(session, f"ls {place}") == "new\nthere\n"

    sessions.run(story())


FAILURES: dict[str, tuple[dict[str, str], type[SandboxError], str]] = {
    "context that is not there": (
        _update("{}/old", "@@\n nowhere\n-two\n+TWO\n"),
        ApplyPatchDiffError,
        "apply_patch_invalid_diff",
    ),
    "no diff at all": (
        _update("{}/old", "what is this"),
        ApplyPatchDiffError,
        "apply_patch_invalid_diff",
    ),
    "file that is not there": (
        _update("{}/none", "@@\n-a\n+b\n"),
        ApplyPatchFileNotFoundError,
        "apply_patch_file_not_found",
    ),
    "deletion of nothing": (
        _delete("{}/none"),
        ApplyPatchFileNotFoundError,
        "apply_patch_file_not_found",
    ),
    "file that is not text": (
        _update("{}/binary", "@@\n-a\n+b\n"),
        ApplyPatchDecodeError,
        "apply_patch_decode_error",
    ),
    "path that leads up": (
        _create("../up", "x"),
        ApplyPatchPathError,
        "apply_patch_invalid_path",
    ),
    "empty path": (_create("", "x"), ApplyPatchPathError, "apply_patch_invalid_path"),
    "link that leads out": (
        _create("{}/out/x", "x"),
        ApplyPatchPathError,
        "apply_patch_invalid_path",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_one_failure_and_nothing_is_changed(sessions: SessionStage, failure: str) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await write(session, f"{place}/old", b"one\ntwo\n")
        await write(session, f"{place}/other", b"other")
        await write(session, f"{place}/binary", b"\xff\xfe")
        await said(session, f"ln -s /etc {place}/out")
        operation, error, code = FAILURES[failure]
        bad = operation | {"path": operation["path"].replace("{}", place)}
        with refused(error, code):
            await session.apply_patch(
                [_create(f"{place}/new", "x"), _delete(f"{place}/other"), bad]
            )
        assert (
            await said(session, f"ls {place}; cat {place}/old")
            == "binary\nold\nother\nout\none\ntwo\n"
        )

    sessions.run(story())


def test_what_is_no_patch(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        with pytest.raises(ValueError, match="v4a"):
            await session.apply_patch(_delete("x"), patch_format="unified")
        unknown: Any = {"type": "rename_file", "path": "x"}
        with pytest.raises(ValueError, match="create_file"):
            await session.apply_patch(unknown)

    sessions.run(story())
