"""Single files: reading, looking, directories, removal, moves, appending; odd names and kinds."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from contract.stage import Stage, new_op, place_in, works
from sandstream_providers.interface import (
    FileWrite,
    NotFound,
    NotPermitted,
    PathEscapes,
    WrongKind,
)

MB = 1024 * 1024


def test_reading_from_anywhere(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.write("file", b"0123456789")
        read, path, rule = place.box.read, place.at("file"), place.rule
        assert await read(path, rule) == b"0123456789"
        assert await read(path, rule, offset=4) == b"456789"
        assert await read(path, rule, offset=4, limit=3) == b"456"
        assert await read(path, rule, limit=0) == b""
        assert await read(path, rule, offset=10) == b""
        assert await read(path, rule, offset=99, limit=5) == b""
        await place.write("empty", b"")
        assert await place.read("empty") == b""

    stage.run(story())


@pytest.mark.needs("big_files")
def test_a_big_file_goes_in_and_out(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        whole = hashlib.shake_128(b"big").digest(20 * MB)
        await place.write("big", whole)
        assert await place.read("big") == whole
        part = await place.box.read(place.at("big"), place.rule, offset=8 * MB - 1, limit=9 * MB)
        assert part == whole[8 * MB - 1 : 17 * MB - 1]

    stage.run(story())


def test_stat_follows_links_and_says_where_they_lead(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.write("file", b"12345", mode=0o640)
        await place.said("ln -s file link; mkdir dir; ln -s dir/../link both; mkfifo pipe")
        for name in ("file", "link", "both"):
            entry = await place.box.stat(place.at(name), place.rule)
            assert (entry.path, entry.kind) == (place.at("file"), "file")
            assert (entry.size, entry.mode) == (5, 0o640)
            assert entry.mtime_ns > 1_000_000_000_000_000_000
        assert (await place.box.stat(place.at("dir"), place.rule)).kind == "dir"
        assert (await place.box.stat(place.at("pipe"), place.rule)).kind == "other"
        with pytest.raises(NotFound):
            await place.box.stat(place.at("missing"), place.rule)

    stage.run(story())


def test_a_listing_is_sorted_and_follows_nothing(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        assert await place.box.list(place.path, place.rule) == []
        await place.said("echo 1234 > b; mkdir a; touch a/inner; ln -s /etc c; ln -s gone d")
        found = await place.box.list(place.path, place.rule)
        rows = [(it.path, it.kind, it.target) for it in found]
        assert rows == [
            ("a", "dir", ""),
            ("b", "file", ""),
            ("c", "link", "/etc"),
            ("d", "link", "gone"),
        ]
        assert found[1].size == 5
        await place.said("cd a && seq 500 | xargs touch")
        assert len(await place.box.list(place.at("a"), place.rule)) == 501

    stage.run(story())


def test_what_reading_and_listing_refuse(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said("mkdir dir; touch file; ln -s loop loop; ln -s gone dangling")
        box, rule = place.box, place.rule
        for name in ("missing", "dir/missing", "missing/deeper", "dangling"):
            with pytest.raises(NotFound):
                await box.read(place.at(name), rule)
            with pytest.raises(NotFound):
                await box.list(place.at(name), rule)
        with pytest.raises(WrongKind):
            await box.read(place.at("dir"), rule)
        with pytest.raises(WrongKind):
            await box.list(place.at("file"), rule)
        with pytest.raises((WrongKind, NotFound)):
            await box.read(place.at("file/below"), rule)
        with pytest.raises(PathEscapes) as caught:
            await box.read(place.at("loop"), rule)
        assert caught.value.data["reason"] == "depth"

    stage.run(story())


MAKE_SOCKET = """
if command -v python3 >/dev/null; then
  exec python3 -c 'import socket; socket.socket(1).bind("socket")'
fi
none=00000000 mode=0000C1A4 links=00000001 name=00000007
printf '%s' 070701$none$mode$none$none$links$none$none$none$none$none$none$name$none >archive
printf 'socket\\0\\0\\0\\0' >>archive
cpio -i <archive && rm archive
"""
"""No program of a plain image makes a socket on demand, but busybox unpacks one."""


def test_devices_pipes_and_sockets_are_no_files(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said("mkfifo pipe; " + MAKE_SOCKET)
        for name in ("pipe", "socket"):
            with pytest.raises(WrongKind):
                await place.read(name)
            with pytest.raises(WrongKind):
                await place.write(name, b"data")
            with pytest.raises(WrongKind):
                await place.box.append(new_op(), place.at(name), b"data", place.rule, at=0)
        found = await place.box.list(place.path, place.rule)
        assert [(it.path, it.kind) for it in found] == [("pipe", "other"), ("socket", "other")]
        for name in ("pipe", "socket"):
            await place.box.remove(new_op(), place.at(name), place.rule)
        with pytest.raises(PathEscapes):
            await place.box.read("/dev/zero", place.rule)

    stage.run(story())


def test_making_directories(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        box, rule = place.box, place.rule
        await box.make_dir(new_op(), place.at("one"), rule)
        with pytest.raises(WrongKind):
            await box.make_dir(new_op(), place.at("one"), rule)
        await box.make_dir(new_op(), place.at("one"), rule, parents=True)
        with pytest.raises(NotFound):
            await box.make_dir(new_op(), place.at("two/three"), rule)
        await box.make_dir(new_op(), place.at("two/three/four"), rule, parents=True)
        await place.write("file", b"")
        for name in ("file", "file/below"):
            with pytest.raises(WrongKind):
                await box.make_dir(new_op(), place.at(name), rule, parents=True)
        assert await place.said("find . -type d | sort") == ".\n./one\n./two\n./two/three\n" + (
            "./two/three/four\n"
        )

    stage.run(story())


def test_removing(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        box, rule = place.box, place.rule
        await place.said("mkdir -p tree/deep empty kept; touch tree/deep/a kept/b; ln -s kept link")
        with pytest.raises(WrongKind):
            await box.remove(new_op(), place.at("tree"), rule)
        await box.remove(new_op(), place.at("tree"), rule, recursive=True)
        await box.remove(new_op(), place.at("empty"), rule)
        await box.remove(new_op(), place.at("link"), rule, recursive=True)
        with pytest.raises(NotFound):
            await box.remove(new_op(), place.at("tree"), rule, recursive=True)
        assert await place.said("find . -type f") == "./kept/b\n"
        with pytest.raises(NotPermitted):
            await box.remove(new_op(), box.root, rule, recursive=True)

    stage.run(story())


def test_moving(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        box, rule = place.box, place.rule
        await place.said(
            "echo a > a; echo b > b; mkdir dir full; touch dir/inner full/x; ln -s a l"
        )
        await box.move(new_op(), place.at("a"), place.at("new/deep/a"), rule)
        await box.move(new_op(), place.at("new/deep/a"), place.at("b"), rule)
        assert await place.read("b") == b"a\n"
        await box.move(new_op(), place.at("dir"), place.at("moved"), rule)
        await box.move(new_op(), place.at("l"), place.at("l2"), rule)
        assert await place.said("ls moved; readlink l2") == "inner\na\n"
        with pytest.raises(NotFound):
            await box.move(new_op(), place.at("gone"), place.at("x"), rule)
        with pytest.raises(WrongKind):
            await box.move(new_op(), place.at("b"), place.at("moved"), rule)
        with pytest.raises(WrongKind):
            await box.move(new_op(), place.at("moved"), place.at("full"), rule)
        with pytest.raises(WrongKind):
            await box.move(new_op(), place.at("moved"), place.at("moved/into/itself"), rule)
        with pytest.raises(NotPermitted):
            await box.move(new_op(), box.root, place.at("x"), rule)
        assert await place.said("ls") == "b\nfull\nl2\nmoved\nnew\n"

    stage.run(story())


def test_appending_part_by_part(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        box, path, rule = place.box, place.at("deep/er/file"), place.rule
        await box.append(new_op(), path, b"one", rule, at=0)
        second = new_op()
        for _ in range(2):
            await box.append(second, path, b"two", rule, at=3)
        assert await place.read("deep/er/file") == b"onetwo"
        await box.append(new_op(), path, b"TWO", rule, at=3)  # a try that was not remembered
        assert await place.read("deep/er/file") == b"oneTWO"
        with pytest.raises(WrongKind):
            await box.append(new_op(), path, b"hole", rule, at=100)
        with pytest.raises(NotFound):
            await box.append(new_op(), place.at("missing"), b"x", rule, at=1)
        assert await place.read("deep/er/file") == b"oneTWO"

    stage.run(story())


def test_changes_of_files_happen_once_per_operation(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        box, rule = place.box, place.rule
        write = FileWrite(path=place.at("file"), data=b"first")
        op, gone, made, moved = (new_op() for _ in range(4))
        await box.change(op, [write], rule)
        await place.write("file", b"second")
        async with stage.another_process() as other:
            theirs = await other.get(box.key)
            assert theirs is not None
            await theirs.change(op, [write], rule)
        assert await place.read("file") == b"second"
        await box.make_dir(made, place.at("dir"), rule)
        await box.make_dir(made, place.at("dir"), rule)
        await box.move(moved, place.at("file"), place.at("dir/file"), rule)
        await box.move(moved, place.at("file"), place.at("dir/file"), rule)
        await box.remove(gone, place.at("dir"), rule, recursive=True)
        await box.make_dir(new_op(), place.at("dir"), rule)
        await box.remove(gone, place.at("dir"), rule, recursive=True)
        assert await place.said("ls") == "dir\n"
        # a refusal is an outcome too
        refused = new_op()
        for _ in range(2):
            with pytest.raises(NotFound):
                await box.remove(refused, place.at("later"), rule)
            await place.write("later", b"")

    stage.run(story())


def test_names_and_contents_that_are_not_text(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        names = ["\udcff\udcfe", "a\nb", "sp ace", "-rf", "ünï", "'\"$(x)`", "*", "x" * 255]
        data = bytes(range(256))
        for name in names:
            await place.write(f"d/{name}", data)
            assert await place.read(f"d/{name}") == data
        found = await place.box.list(place.at("d"), place.rule)
        as_bytes = sorted(name.encode("utf-8", "surrogateescape") for name in names)
        assert [it.path.encode("utf-8", "surrogateescape") for it in found] == as_bytes
        entry = await place.box.stat(place.at(f"d/{names[0]}"), place.rule)
        assert entry.path == place.at(f"d/{names[0]}")
        await place.box.move(new_op(), place.at(f"d/{names[0]}"), place.at("\udc80"), place.rule)
        await place.box.remove(new_op(), place.at("\udc80"), place.rule)
        with pytest.raises(WrongKind):
            await place.write("x" * 256, b"")
        await works(place.box)

    stage.run(story())


def test_many_at_once(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        names = [f"file-{number}" for number in range(100)]
        await asyncio.gather(*(place.write(name, name.encode()) for name in names))
        found = await asyncio.gather(*(place.read(name) for name in names))
        assert [data.decode() for data in found] == names

    stage.run(story())
