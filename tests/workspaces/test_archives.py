"""Archives: what goes out comes back, what is hostile stays outside."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from sandstream_workspaces.archive_readers import Piece, Scheme, read_archive
from sandstream_workspaces.archive_rules import ArchiveLimits
from sandstream_workspaces.archives import NO_LIMITS, tar_of, tree_of_archive, tree_of_tar
from sandstream_workspaces.errors import ArchiveRejected
from sandstream_workspaces.store import Difference, WorkspaceStore
from support.nats_server import NatsServer, open_bus
from workspaces.boxes import open_box
from workspaces.files import fill_with_everything

MB = 1024 * 1024


async def stream(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def joined(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


def with_store(server: NatsServer, test: Callable[[WorkspaceStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_bus(server) as bus:
            await test(WorkspaceStore(bus))

    asyncio.run(main())


def read(
    data: bytes, scheme: Scheme, limits: ArchiveLimits = NO_LIMITS, *, strict: bool = True
) -> list[Piece]:
    return list(read_archive(io.BytesIO(data), scheme, limits, strict=strict))


def info(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0, mode: int = 0o644
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size, made.mode = kind, target, size, mode
    return made


def tar(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member in members:
            if isinstance(member, tuple):
                archive.addfile(info(member[0], size=len(member[1])), io.BytesIO(member[1]))
            else:
                archive.addfile(member, io.BytesIO(bytes(member.size)))
    return out.getvalue()


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def zip_info(name: str, mode: int) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    return made


def test_a_snapshot_goes_out_as_a_tar_and_comes_back(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def test(store: WorkspaceStore) -> None:
        async with open_box(tmp_path / "one") as box:
            root = Path(box.root)
            fill_with_everything(root)
            (root / "absolute").unlink()  # such a link is refused on the way in
            (root / "big").write_bytes(os.urandom(9000) * 1024)
            long = root / ("long-" * 30) / ("name-" * 30)
            long.parent.mkdir()
            long.symlink_to("../" + "target-" * 30)
            tree = (await store.checkpoint(box, exclude=[])).tree
        data = await joined(tar_of(store, tree))
        assert data == await joined(tar_of(store, tree))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            names = [it.name for it in archive]
            assert names == [it.path for it in await store.entries(tree)]
        back = await tree_of_tar(store, stream(data))
        assert await store.diff(tree, back) == Difference(added=[], changed=[], removed=[])
        assert back == tree
        assert await tree_of_tar(store, stream(gzip.compress(data, 1))) == tree

    with_store(nats_server, test)


def test_a_tar_of_another_program(nats_server: NatsServer, tmp_path: Path) -> None:
    async def test(store: WorkspaceStore) -> None:
        data = tar(
            info(".", tarfile.DIRTYPE),
            info("./bin", tarfile.DIRTYPE, mode=0o755),
            info("./bin", tarfile.DIRTYPE, mode=0o755),
            info("./bin/tool", size=3, mode=0o4755),
            ("no/parents/here", b"x"),
            info("bin/link", tarfile.SYMTYPE, "../no/../no/parents"),
        )
        tree = await tree_of_tar(store, stream(data))
        found = {it.path: (it.kind, it.mode, it.target) for it in await store.entries(tree)}
        assert found == {
            "bin": ("dir", 0o755, ""),
            "bin/link": ("link", 0o777, "../no/../no/parents"),
            "bin/tool": ("file", 0o755, ""),
            "no": ("dir", 0o755, ""),
            "no/parents": ("dir", 0o755, ""),
            "no/parents/here": ("file", 0o644, ""),
        }

    with_store(nats_server, test)


@pytest.mark.parametrize(
    ("scheme", "pack"),
    [
        ("tar", bytes),
        ("tar.gz", gzip.compress),
        ("tar.bz2", bz2.compress),
        ("tar.xz", lzma.compress),
        ("tar.xz", lambda data: lzma.compress(data[:700]) + lzma.compress(data[700:])),
    ],
)
def test_each_scheme(
    nats_server: NatsServer, scheme: Scheme, pack: Callable[[bytes], bytes]
) -> None:
    async def test(store: WorkspaceStore) -> None:
        content = os.urandom(9000) * (1024 if scheme == "tar.gz" else 16)
        data = pack(tar(("a/b", b"b"), ("big", content), ("empty", b"")))
        tree = await tree_of_archive(store, stream(data), scheme, strict=True)
        assert await joined(store.read_file(tree, "a/b")) == b"b"
        assert await joined(store.read_file(tree, "big")) == content
        assert await joined(store.read_file(tree, "empty")) == b""
        with pytest.raises(ArchiveRejected, match=r"not a sound"):
            await tree_of_archive(store, stream(data[: len(data) // 2]), scheme, strict=True)

    with_store(nats_server, test)


def test_a_zip(nats_server: NatsServer) -> None:
    async def test(store: WorkspaceStore) -> None:
        data = zipped(("dir/", b""), ("dir/a", b"a" * 100_000), (zip_info("x", 0o755), b"x"))
        tree = await tree_of_archive(store, stream(data), "zip", strict=True)
        found = [(it.path, it.mode) for it in await store.entries(tree) if it.kind == "file"]
        assert [path for path, _ in found] == ["dir/a", "x"]
        assert dict(found)["x"] == 0o755
        assert await joined(store.read_file(tree, "dir/a")) == b"a" * 100_000

    with_store(nats_server, test)


SYM, LNK, DIR = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
ALWAYS: list[tuple[str, bytes, str]] = [
    ("absolute", tar(("/etc/passwd", b"x")), "absolute path"),
    ("parent", tar(("../x", b"x")), "parent traversal"),
    ("parent inside", tar(("a/../x", b"x")), "parent traversal"),
    ("drive", tar(("C:/x", b"x")), "windows drive"),
    ("backslash", tar(("a\\..\\x", b"x")), "windows path separator"),
    ("hard link", tar(("a", b"x"), info("b", LNK, "a")), "hard link"),
    ("fifo", tar(info("f", tarfile.FIFOTYPE)), "unsupported kind"),
    ("device", tar(info("d", tarfile.CHRTYPE)), "unsupported kind"),
    ("block device", tar(info("d", tarfile.BLKTYPE)), "unsupported kind"),
    ("sparse", tar(info("s", tarfile.GNUTYPE_SPARSE)), "unsupported kind"),
    ("duplicate", tar(("a", b"1"), ("a", b"2")), "duplicate"),
    ("same by another name", tar(("a", b"1"), ("./a", b"2")), "duplicate"),
    ("file, then directory", tar(("a", b"1"), info("a", DIR)), "duplicate"),
    ("through a file", tar(("a", b"1"), ("a/b/c", b"2")), "descends through a file"),
    ("through a later file", tar(("a/b/c", b"2"), ("a", b"1")), "something below"),
    ("root is a file", tar((".", b"1")), "root must be a directory"),
    ("name too long", tar(("x/" * 3000, b"1")), "impossible name"),
    ("cut off", tar(("a", b"x" * 5000))[:3000], "not a sound"),
    ("cut off between members", tar(("a", b"x" * 512))[:1024], "not a sound"),
    ("damaged", tar(("a", b"x"), ("b", b"x"))[:1024] + b"?" * 4096, "not a sound"),
    ("no archive", b"hello" * 1000, "not a sound"),
    ("nothing", b"", "not a sound"),
]
LINKS: list[tuple[str, bytes, str]] = [
    ("absolute target", tar(info("l", SYM, "/etc")), "absolute symlink"),
    ("escaping target", tar(info("a/l", SYM, "../../x")), "leaves the root"),
    ("in and out again", tar(info("l", SYM, "a/../../x")), "leaves the root"),
    ("through a link", tar(info("l", SYM, "d"), ("l/x", b"1")), "descends through a link"),
    ("through a later link", tar(("l/x", b"1"), info("l", SYM, "d")), "something below"),
    ("out by two links", tar(info("a/b/l", SYM, "../.."), info("m", SYM, "a/b/l/..")), "leads out"),
    ("root is a link", tar(info(".", SYM, "x")), "root must be a directory"),
]


@pytest.mark.parametrize(
    ("data", "reason", "strict"),
    [
        *(pytest.param(data, why, strict, id=f"{name} {strict}")
          for name, data, why in ALWAYS for strict in (False, True)),
        *(pytest.param(data, why, False, id=name) for name, data, why in LINKS),
        pytest.param(tar(info("l", SYM, "a")), "symlink not allowed", True, id="any link"),
    ],
)  # fmt: skip
def test_a_hostile_tar_is_rejected(data: bytes, reason: str, strict: bool) -> None:
    with pytest.raises(ArchiveRejected, match=reason):
        read(data, "tar", strict=strict)


def test_an_archive_that_is_rejected(nats_server: NatsServer) -> None:
    async def test(store: WorkspaceStore) -> None:
        data = tar(("first", b"x" * 5000), ("../x", b""))
        with pytest.raises(ArchiveRejected) as hostile:
            await tree_of_tar(store, stream(data))
        assert (hostile.value.member, hostile.value.reason) == ("../x", "parent traversal")
        assert hostile.value.code == "workspace_archive_write_error"
        limits = ArchiveLimits(max_input_bytes=4000)
        with pytest.raises(ArchiveRejected, match=r"too big") as big:
            await tree_of_tar(store, stream(data, 1000), limits)
        assert (big.value.limit, big.value.actual) == (4000, 5000)

    with_store(nats_server, test)


def test_links_that_stay_inside_are_let_in(nats_server: NatsServer) -> None:
    async def test(store: WorkspaceStore) -> None:
        data = tar(
            info("circle", SYM, "circle"),
            info("one", SYM, "two"),
            info("two", SYM, "one"),
            info("a/b/up", SYM, "../.."),
            info("dangling", SYM, "a/b/up/nowhere"),
        )
        tree = await tree_of_archive(store, stream(data), "tar", strict=False)
        assert len([it for it in await store.entries(tree) if it.kind == "link"]) == 5

    with_store(nats_server, test)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([("/a", b"")], "absolute path"),
        ([("a/../../b", b"")], "parent traversal"),
        ([("C:\\x", b"")], "windows"),
        ([("a\\b", b"")], "windows path separator"),
        ([(zip_info("l", stat.S_IFLNK | 0o777), b"target")], "symlink"),
        ([(zip_info("f", stat.S_IFIFO | 0o644), b"")], "unsupported kind"),
        ([("a", b"1"), ("./a", b"2")], "duplicate"),
        ([("a", b"1"), ("a/b", b"2")], "descends through a file"),
        ([("a/b", b"2"), ("a", b"1")], "something below"),
    ],
)
def test_a_hostile_zip_is_rejected(
    members: list[tuple[str | zipfile.ZipInfo, bytes]], reason: str
) -> None:
    with pytest.raises(ArchiveRejected, match=reason):
        read(zipped(*members), "zip")


def test_a_zip_that_is_encrypted_or_broken() -> None:
    data = bytearray(zipped(("a", b"secret" * 100)))
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ArchiveRejected, match=r"encrypted") as raised:
        read(bytes(data), "zip")
    assert raised.value.member == "a"
    data = bytearray(zipped(("a", os.urandom(1000))))
    data[200] ^= 0xFF
    with pytest.raises(ArchiveRejected, match=r"not a sound zip"):
        read(bytes(data), "zip")
    with pytest.raises(ArchiveRejected, match=r"not a sound zip"):
        read(b"PK", "zip")


BOMB = 20 * MB
"""More than every limit here, and than the 16 MB that may follow an end mark."""
LIMITS: list[tuple[str, Scheme, bytes, ArchiveLimits, str]] = [
    ("members", "tar", tar(*((f"f{i}", b"") for i in range(11))), ArchiveLimits(max_members=10),
     "too many"),
    ("zip members", "zip", zipped(*((f"f{i}", b"") for i in range(11))),
     ArchiveLimits(max_members=10), "too many"),
    ("gzip bomb", "tar.gz", gzip.compress(tar(info("a", size=BOMB)), 1),
     ArchiveLimits(max_extracted_bytes=MB), "content is too big"),
    ("zip bomb", "zip", zipped(("a", bytes(BOMB))), ArchiveLimits(max_extracted_bytes=MB),
     "content is too big"),
    ("many small", "tar", tar(*((f"f{i}", b"x" * 1000) for i in range(20))),
     ArchiveLimits(max_extracted_bytes=10_000), "content is too big"),
    ("header bomb", "tar.gz", gzip.compress(tar(info("x" * BOMB)), 1), NO_LIMITS, "header"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("scheme", "data", "limits", "reason"), [pytest.param(*it[1:], id=it[0]) for it in LIMITS]
)
def test_limits(scheme: Scheme, data: bytes, limits: ArchiveLimits, reason: str) -> None:
    with pytest.raises(ArchiveRejected, match=reason) as raised:
        read(data, scheme, limits)
    assert raised.value.limit is not None and raised.value.actual is not None
    assert raised.value.actual > raised.value.limit


def test_a_zip_that_lies_about_its_size() -> None:
    data = bytearray(zipped(("a", bytes(4 * MB))))
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(ArchiveRejected, match=r"not a sound zip"):
        read(bytes(data), "zip", ArchiveLimits(max_extracted_bytes=MB))


@pytest.mark.parametrize(
    ("scheme", "pack"),
    [("tar.gz", gzip.compress), ("tar.bz2", bz2.compress), ("tar.xz", lzma.compress)],
)
def test_damage_behind_the_end_mark_is_noticed(
    scheme: Scheme, pack: Callable[[bytes], bytes]
) -> None:
    """Compressed data ends with a checksum of what came before it."""
    data = bytearray(pack(tar(("a", b"1"))))
    read(bytes(data), scheme)
    data[-6] ^= 0xFF
    with pytest.raises(ArchiveRejected, match=r"not a sound"):
        read(bytes(data), scheme)


def test_a_bomb_behind_the_end_mark() -> None:
    data = gzip.compress(tar(("a", b"1")) + bytes(BOMB), 1)
    with pytest.raises(ArchiveRejected, match=r"behind its end mark"):
        read(data, "tar.gz")


def test_headers_about_headers() -> None:
    extended = info("x", tarfile.XHDTYPE, size=512).tobuf(tarfile.USTAR_FORMAT) + bytes(512)
    with pytest.raises(ArchiveRejected, match=r"not a sound"):
        read(extended * 3000 + tar(("a", b"1")), "tar")
