"""Files through sessions: reading, writing, listing, moving, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import io
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from contract.sessions import SessionStage, content, refused, said, write

from sandstream.sandbox.errors import (
    InvalidManifestPathError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from sandstream.sandbox.files import EntryKind

MB = 1024 * 1024


def test_what_is_written_is_read(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        for path in (f"{place}/text", Path(place, "path"), PurePosixPath(place, "deep/er")):
            for data in (b"", b"first", bytes(range(256))):
                await session.write(path, io.BytesIO(data))
                assert await content(session, str(path)) == data
        absolute = f"{session.root}/{place}/text"
        assert await content(session, absolute) == bytes(range(256))
        assert await said(session, f"wc -c < {place}/deep/er") == "256\n"

    sessions.run(story())


def test_a_big_file(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        data = hashlib.shake_128(b"big").digest(40 * MB)
        await write(session, f"{place}/big", data)
        stream = await session.read(f"{place}/big")
        assert stream.read() == data
        stream.close()
        digest = (await said(session, f"sha256sum {place}/big")).split()[0]
        assert digest == hashlib.sha256(data).hexdigest()
        # a shorter one in its place leaves nothing of it
        await write(session, f"{place}/big", b"small")
        assert await content(session, f"{place}/big") == b"small"

    sessions.run(story())


def test_only_bytes_are_written(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        text: Any = io.StringIO("text")
        with refused(WorkspaceWriteTypeError, "workspace_write_type_error", actual_type="str"):
            await session.write(f"{place}/file", text)
        assert await session.ls(place) == []

    sessions.run(story())


def test_what_cannot_be_read(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await said(session, f"cd {place}; mkdir dir; mkfifo pipe; touch file")
        for name in ("missing", "dir/missing"):
            with refused(WorkspaceReadNotFoundError, "workspace_read_not_found"):
                await session.read(f"{place}/{name}")
            with refused(WorkspaceReadNotFoundError, "workspace_read_not_found"):
                await session.ls(f"{place}/{name}")
            with refused(WorkspaceReadNotFoundError, "workspace_read_not_found"):
                await session.read_bounded(f"{place}/{name}", max_bytes=1)
        for name in ("dir", "pipe"):
            with refused(WorkspaceArchiveReadError, "workspace_archive_read_error"):
                await session.read(f"{place}/{name}")
        with refused(WorkspaceArchiveReadError, "workspace_archive_read_error"):
            await session.ls(f"{place}/file")

    sessions.run(story())


def test_what_cannot_be_written(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await said(session, f"cd {place}; mkdir dir; touch file dir/x; mkfifo pipe")
        code = "workspace_archive_write_error"
        for name in ("dir", "pipe", "file/below"):
            with refused(WorkspaceArchiveWriteError, code):
                await write(session, f"{place}/{name}", b"x")
        with refused(WorkspaceArchiveWriteError, code):
            await session.mkdir(f"{place}/file")
        with refused(WorkspaceArchiveWriteError, code):
            await session.rm(f"{place}/dir")
        with refused(WorkspaceArchiveWriteError, code):
            await session.mv(f"{place}/file", f"{place}/dir")
        with refused(WorkspaceReadNotFoundError, "workspace_read_not_found"):
            await session.rm(f"{place}/missing")
        with refused(WorkspaceReadNotFoundError, "workspace_read_not_found"):
            await session.mv(f"{place}/missing", f"{place}/x")
        with refused(WorkspaceReadNotFoundError, "workspace_read_not_found"):
            await session.mkdir(f"{place}/a/b")
        assert await said(session, f"ls {place}") == "dir\nfile\npipe\n"

    sessions.run(story())


def test_listing(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await said(
            session, f"cd {place}; mkdir a; printf 12345 > b; chmod 640 b; ln -s b c; mkfifo d"
        )
        found = await session.ls(place)
        root = f"{session.root}/{place}"
        assert [(it.path, it.kind) for it in found] == [
            (f"{root}/a", EntryKind.DIRECTORY),
            (f"{root}/b", EntryKind.FILE),
            (f"{root}/c", EntryKind.SYMLINK),
            (f"{root}/d", EntryKind.OTHER),
        ]
        assert found[0].is_dir()
        assert found[1].size == 5
        assert str(found[1].permissions) == "-rw-r-----"
        assert await session.ls(f"{place}/a") == []

    sessions.run(story())


def test_directories_removal_and_moves(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await session.mkdir(f"{place}/a/b/c", parents=True)
        await session.mkdir(f"{place}/a/b/c", parents=True)
        await write(session, f"{place}/a/b/file", b"1")
        await session.mv(f"{place}/a/b/file", f"{place}/new/place/file")
        assert await content(session, f"{place}/new/place/file") == b"1"
        await session.mv(f"{place}/a", f"{place}/z")
        await session.rm(f"{place}/z", recursive=True)
        await session.rm(f"{place}/new/place/file")
        assert await said(session, f"cd {place}; find . | sort") == ".\n./new\n./new/place\n"

    sessions.run(story())


def test_same_file(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await said(session, f"cd {place}; echo 1 > a; ln -s a link; echo 1 > copy; mkdir d")
        assert await session.same_file(f"{place}/a", f"{place}/link")
        assert await session.same_file(f"{place}/a", f"{session.root}/{place}/d/../a")
        assert not await session.same_file(f"{place}/a", f"{place}/copy")
        assert not await session.same_file(f"{place}/a", f"{place}/missing")
        assert not await session.same_file(f"{place}/a", f"{place}/link", follow_symlinks=False)
        await said(session, f"cd {place}; ln a hard")
        assert await session.same_file(f"{place}/a", f"{place}/hard", follow_symlinks=False)

    sessions.run(story())


def test_bounded_reading(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await write(session, f"{place}/file", b"0123456789")
        assert await session.read_bounded(f"{place}/file", max_bytes=4) == b"0123"
        assert await session.read_bounded(f"{place}/file", max_bytes=10) == b"0123456789"
        assert await session.read_bounded(f"{place}/file", max_bytes=99 * MB) == b"0123456789"
        with pytest.raises(ValueError, match="max_bytes"):
            await session.read_bounded(f"{place}/file", max_bytes=0)
        for most, ends in (
            (3, (b"012", b"789", 10)),
            (7, (b"0123456", b"789", 10)),
            (10, (b"0123456789", b"", 10)),
            (99, (b"0123456789", b"", 10)),
        ):
            assert await session.read_ends(f"{place}/file", max_bytes=most) == ends

    sessions.run(story())


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/etc/passwd", "absolute"), ("../up", "escape_root"), ("a/../../up", "escape_root")],
)
def test_paths_by_their_text(sessions: SessionStage, path: str, reason: str) -> None:
    async def story() -> None:
        session = await sessions.shared()
        for act in (
            lambda: session.read(path),
            lambda: session.write(path, io.BytesIO(b"x")),
            lambda: session.ls(path),
            lambda: session.mkdir(path),
            lambda: session.rm(path),
            lambda: session.mv(path, "x"),
            lambda: session.mv("x", path),
            lambda: session.same_file("x", path),
            lambda: session.read_bounded(path, max_bytes=1),
            lambda: session.read_ends(path, max_bytes=1),
        ):
            code = "invalid_manifest_path"
            with refused(InvalidManifestPathError, code, rel=path, reason=reason):
                await act()
        with refused(InvalidManifestPathError, "invalid_manifest_path"):
            session.normalize_path(path)

    sessions.run(story())


def test_paths_through_links(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await said(session, f"cd {place}; ln -s /etc out; ln -s out/passwd file; echo x > own")
        for act in (
            lambda: session.read(f"{place}/out/passwd"),
            lambda: session.read(f"{place}/file"),
            lambda: session.write(f"{place}/out/new", io.BytesIO(b"x")),
            lambda: session.ls(f"{place}/out"),
            lambda: session.mkdir(f"{place}/out/new"),
            lambda: session.rm(f"{place}/out/passwd"),
            lambda: session.mv(f"{place}/own", f"{place}/out/own"),
        ):
            code = "invalid_manifest_path"
            with refused(InvalidManifestPathError, code, reason="escape"):
                await act()
        await session.rm(f"{place}/file")
        assert await said(session, f"ls {place}") == "out\nown\n"

    sessions.run(story())


def test_names_that_are_not_text(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        name = "\udcff ü\n'"
        await write(session, f"{place}/{name}", b"odd")
        assert await content(session, f"{place}/{name}") == b"odd"
        (entry,) = await session.ls(place)
        assert entry.path == f"{session.root}/{place}/{name}"
        await session.mv(entry.path, f"{place}/plain")
        assert await said(session, f"ls {place}") == "plain\n"

    sessions.run(story())


def test_many_files_at_once(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        names = [f"{place}/{number}" for number in range(40)]
        await asyncio.gather(*(write(session, name, name.encode()) for name in names))
        found = await asyncio.gather(*(content(session, name) for name in names))
        assert [data.decode() for data in found] == names

    sessions.run(story())
