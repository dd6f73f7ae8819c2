"""Archives and whole workspaces: unpacked all or not at all, nothing ever outside."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable

import pytest
from contract.sessions import SessionStage, content, refused, said, write

from sandstream.sandbox.config import SandboxArchiveLimits
from sandstream.sandbox.errors import (
    InvalidCompressionSchemeError,
    InvalidManifestPathError,
    WorkspaceArchiveWriteError,
)

CODE = "workspace_archive_write_error"


def _tar(*members: tuple[str, object], mode: str = "w") -> bytes:
    """Members are bytes, "dir", or a function that makes the header odd."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, what in members:
            info = tarfile.TarInfo(name)
            data = b""
            if isinstance(what, bytes):
                data = what
                info.size = len(data)
                info.mode = 0o640
            elif what == "dir":
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            elif callable(what):
                what(info)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _zip(*members: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


FILES = (("a.txt", b"A"), ("deep/er/b.txt", b"B"))
GOOD = {
    "x.tar": _tar(*FILES),
    "x.tar.gz": _tar(*FILES, mode="w:gz"),
    "x.tgz": _tar(*FILES, mode="w:gz"),
    "x.tar.bz2": _tar(*FILES, mode="w:bz2"),
    "x.tar.xz": _tar(*FILES, mode="w:xz"),
    "x.zip": _zip(*FILES),
}


@pytest.mark.parametrize("name", GOOD)
def test_kinds_of_archives_by_their_names(sessions: SessionStage, name: str) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await write(session, f"{place}/kept", b"K")
        await write(session, f"{place}/a.txt", b"old")
        await session.extract(f"{place}/{name}", io.BytesIO(GOOD[name]))
        assert await said(session, f"cd {place}; cat a.txt deep/er/b.txt kept") == "ABK"

    sessions.run(story())


def test_the_kind_can_be_said(sessions: SessionStage) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await session.extract(place, io.BytesIO(GOOD["x.tar"]), compression_scheme="tar")
        assert await content(session, f"{place}/a.txt") == b"A"
        with refused(InvalidCompressionSchemeError, "invalid_compression_scheme"):
            await session.extract(f"{place}/x.rar", io.BytesIO(b""))
        with refused(InvalidCompressionSchemeError, "invalid_compression_scheme", scheme="rar"):
            await session.extract(place, io.BytesIO(b""), compression_scheme="rar")
        with refused(InvalidManifestPathError, "invalid_manifest_path"):
            await session.extract("../x.tar", io.BytesIO(GOOD["x.tar"]))

    sessions.run(story())


def _link(target: str, kind: bytes = tarfile.SYMTYPE) -> Callable[[tarfile.TarInfo], None]:
    def make(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = kind, target

    return make


def _device(info: tarfile.TarInfo) -> None:
    info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 3


def _pipe(info: tarfile.TarInfo) -> None:
    info.type = tarfile.FIFOTYPE


HOSTILE = {
    "up.tar": _tar(("fine", b"x"), ("../up", b"x")),
    "up in between.tar": _tar(("fine", b"x"), ("a/../../up", b"x")),
    "absolute.tar": _tar(("fine", b"x"), ("/tmp/up", b"x")),
    "link out.tar": _tar(("fine", b"x"), ("link", _link("/etc")), ("link/x", b"x")),
    "link up.tar": _tar(("fine", b"x"), ("link", _link("../../.."))),
    "hard link out.tar": _tar(("fine", b"x"), ("hard", _link("/etc/passwd", tarfile.LNKTYPE))),
    "device.tar": _tar(("fine", b"x"), ("null", _device)),
    "pipe.tar": _tar(("fine", b"x"), ("pipe", _pipe)),
    "cut off.tar": _tar(("fine", b"x" * 5000), ("more", b"y" * 5000))[:7000],
    "cut off.tar.gz": gzip.compress(_tar(("fine", b"x" * 5000)))[:-20],
    "garbage.tar": b"this is no archive" * 100,
    "garbage.zip": b"this is no archive" * 100,
    "up.zip": _zip(("fine", b"x"), ("../up", b"x")),
    "absolute.zip": _zip(("fine", b"x"), ("/tmp/up", b"x")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_change_nothing(sessions: SessionStage, name: str) -> None:
    async def story() -> None:
        session, place = await sessions.place()
        await write(session, f"{place}/in/fine", b"old")
        with refused(WorkspaceArchiveWriteError, CODE) as caught:
            await session.extract(f"{place}/in/{name}", io.BytesIO(HOSTILE[name]))
        assert caught.value.context["reason"]
        assert await said(session, f"cd {place}; find . | sort; cat in/fine") == (
            ".\n./in\n./in/fine\nold"
        )

    sessions.run(story())


def test_limits_of_archives(sessions: SessionStage) -> None:
    async def story() -> None:
        bomb = _tar(("zeros", bytes(20_000_000)), mode="w:gz")
        many = _tar(*((f"f{number}", b"") for number in range(30)))
        async with sessions.fresh() as session:
            for limits, data in (
                (SandboxArchiveLimits(max_extracted_bytes=1_000_000), bomb),
                (SandboxArchiveLimits(max_input_bytes=1000), bomb),
                (SandboxArchiveLimits(max_members=20), many),
            ):
                session.archive_limits = limits
                name = "x.tar.gz" if data is bomb else "x.tar"
                with refused(WorkspaceArchiveWriteError, CODE) as caught:
                    await session.extract(name, io.BytesIO(data))
                limit = caught.value.context["limit"]
                assert limit in (1_000_000, 1000, 20)
                assert f"of at most {limit})" in str(caught.value)
                assert "SandboxArchiveLimits" in str(caught.value)
            assert await session.ls(".") == []

    sessions.run(story())


def test_archives_are_limited_unless_told_otherwise(sessions: SessionStage) -> None:
    """A header that announces more than 4 GiB is enough: nothing of it is unpacked."""
    zeros = tarfile.TarInfo("zeros")
    zeros.size = 5 * 1024**3
    bomb = gzip.compress(zeros.tobuf())

    async def story() -> None:
        session, place = await sessions.place()
        assert session.archive_limits is None
        with refused(WorkspaceArchiveWriteError, CODE) as caught:
            await session.extract(f"{place}/x.tar.gz", io.BytesIO(bomb))
        assert "its content is too big" in str(caught.value)
        assert f"of at most {4 * 1024**3})" in str(caught.value)
        assert await session.ls(place) == []

    sessions.run(story())


def test_a_workspace_as_an_archive_and_back(sessions: SessionStage) -> None:
    async def story() -> None:
        async with sessions.fresh() as session, sessions.fresh() as other:
            await said(
                session,
                "mkdir -p a/b empty; echo text > a/b/file; chmod 755 a/b/file; ln -s a/b link;"
                "head -c 6000000 /dev/zero > big; chmod 700 empty; mkfifo pipe; touch skipped",
            )
            session.register_persist_workspace_skip_path("skipped")
            archive = await session.persist_workspace()
            data = archive.read()
            archive.close()
            with tarfile.open(fileobj=io.BytesIO(data)) as found:
                names = {member.name.removeprefix("./").rstrip("/") for member in found}
            assert {"a/b/file", "link", "big", "empty"} <= names
            assert not {"pipe", "skipped"} & names
            await said(other, "echo stays > before; mkdir a; echo old > a/other")
            await other.hydrate_workspace(io.BytesIO(data))
            assert await said(other, "cat a/b/file link/file; wc -c < big; ls") == (
                "text\ntext\n6000000\na\nbefore\nbig\nempty\nlink\n"
            )
            assert await content(other, "a/other") == b"old\n"
            assert await said(other, "stat -c %a a/b/file empty; readlink link") == (
                "755\n700\na/b\n"
            )
            with refused(WorkspaceArchiveWriteError, CODE):
                await other.hydrate_workspace(io.BytesIO(HOSTILE["up.tar"]))
            assert await said(other, "ls") == "a\nbefore\nbig\nempty\nlink\n"

    sessions.run(story())


def test_the_whole_workspace_cannot_be_skipped(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        with pytest.raises(ValueError, match="snapshot"):
            session.register_persist_workspace_skip_path(".")

    sessions.run(story())
