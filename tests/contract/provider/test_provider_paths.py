"""No path leads out: text, links, links that are swapped in, grants that may only be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from contract.stage import Place, Stage, new_op, place_in, run, said, sh, works
from sandstream_providers.interface import (
    FileWrite,
    Grant,
    NotFound,
    PathEscapes,
    ProviderError,
    ResolveRule,
    WrongKind,
)

READS: dict[str, Callable[[Place, str], Awaitable[object]]] = {
    "read": lambda place, path: place.box.read(path, place.rule),
    "stat": lambda place, path: place.box.stat(path, place.rule),
    "list": lambda place, path: place.box.list(path, place.rule),
}
WRITES: dict[str, Callable[[Place, str], Awaitable[object]]] = {
    "write": lambda place, path: place.change(FileWrite(path=path, data=b"x")),
    "link": lambda place, path: place.change(FileWrite(path=path, kind="link", target="x")),
    "dir": lambda place, path: place.change(FileWrite(path=path, kind="dir")),
    "append": lambda place, path: place.box.append(new_op(), path, b"x", place.rule, at=0),
    "make_dir": lambda place, path: place.box.make_dir(new_op(), path, place.rule, parents=True),
    "remove": lambda place, path: place.box.remove(new_op(), path, place.rule, recursive=True),
    "move": lambda place, path: place.box.move(new_op(), path, place.at("taken"), place.rule),
    "move to": lambda place, path: place.box.move(new_op(), place.at("own"), path, place.rule),
    "change to": lambda place, path: place.change(
        FileWrite(path=place.at("own"), kind="move", target=path)
    ),
}
OUTSIDE = {
    "absolute": "/etc/passwd",
    "dots": "{root}/../../../../../../etc/passwd",
    "dots in between": "{here}/dir/../../../../../../../../etc/passwd",
    "through a link": "{here}/etc/passwd",
    "through a relative link": "{here}/up/etc/passwd",
    "through a chain of links": "{here}/chain/passwd",
    "through the links of a process": "/proc/self/root/etc/passwd",
}


async def _besieged(place: Place) -> None:
    await place.said(
        "mkdir dir; echo own > own; ln -s /etc etc; ln -s ../../../../../../.. up;"
        "ln -s dir/more chain; ln -s ../etc dir/more"
    )


@pytest.mark.parametrize("way", OUTSIDE)
def test_there_is_no_way_out(stage: Stage, way: str) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await _besieged(place)
        path = OUTSIDE[way].replace("{root}", place.box.root).replace("{here}", place.path)
        before = await place.tree()
        for name, act in (READS | WRITES).items():
            with pytest.raises(PathEscapes) as caught:
                await act(place, path)
            assert caught.value.data["reason"] == "escape", name
        assert await place.tree() == before

    stage.run(story())


def test_a_link_that_leads_out_can_be_seen_replaced_and_removed(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said("ln -s /etc/passwd link; ln -s /etc/new dangling")
        found = await place.box.list(place.path, place.rule)
        assert [it.target for it in found] == ["/etc/new", "/etc/passwd"]
        for name in ("link", "dangling"):
            with pytest.raises(PathEscapes):
                await place.write(name, b"data")
        await place.change(FileWrite(path=place.at("link"), kind="link", target="own"))
        await place.box.move(new_op(), place.at("dangling"), place.at("moved"), place.rule)
        await place.box.remove(new_op(), place.at("moved"), place.rule)
        assert await place.said("readlink link; ls") == "own\nlink\n"

    stage.run(story())


def test_links_within_the_root_are_followed(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said(f"mkdir real; ln -s {place.path}/real abs; ln -s real rel")
        for name in ("abs", "rel"):
            await place.write(f"{name}/file", name.encode())
            assert await place.read("real/file") == name.encode()
        await place.said("ln -s real/file link")
        await place.write("link", b"through")
        assert await place.said("readlink link; cat real/file") == "real/file\nthrough"

    stage.run(story())


def test_so_many_links_and_no_more(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said(
            "echo end > link0; i=0; while [ $i -lt 60 ]; do ln -s link$i link$((i+1)); i=$((i+1));"
            "done; ln -s loop loop"
        )
        assert await place.read("link20") == b"end\n"
        for name in ("link60", "loop", "loop/below"):
            with pytest.raises(PathEscapes) as caught:
                await place.read(name)
            assert caught.value.data["reason"] == "depth"

    stage.run(story())


def test_relative_paths_are_refused(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        for path in ("file", "./file", "", "../file"):
            with pytest.raises(ProviderError):
                await place.box.read(path, place.rule)
            with pytest.raises(ProviderError):
                await place.change(FileWrite(path=path, data=b"x"))
        await works(place.box)

    stage.run(story())


def test_a_path_with_a_zero_byte_is_refused(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        with pytest.raises(ProviderError):
            await place.read("a\0b")
        with pytest.raises(ProviderError):
            await place.write("a\0b", b"x")
        await works(place.box)

    stage.run(story())


def test_very_deep_paths(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        deep = "/".join(["d"] * 500)
        await place.write(f"{deep}/file", b"deep")
        assert await place.read(f"{deep}/file") == b"deep"
        await place.box.remove(new_op(), place.at("d"), place.rule, recursive=True)
        assert await place.said("ls") == ""

    stage.run(story())


def test_a_rule_may_hold_less_than_the_root(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        await place.said("mkdir mine theirs; echo m > mine/file; echo t > theirs/file")
        rule = ResolveRule(roots=[place.at("mine")], read_only_roots=[place.at("theirs")])
        box = place.box
        assert await box.read(place.at("theirs/file"), rule) == b"t\n"
        with pytest.raises(PathEscapes) as caught:
            await box.change(new_op(), [FileWrite(path=place.at("theirs/x"))], rule)
        assert caught.value.data["reason"] == "read_only"
        with pytest.raises(PathEscapes) as caught:
            await box.change(new_op(), [FileWrite(path=place.at("elsewhere"))], rule)
        assert caught.value.data["reason"] == "escape"
        for source, target in (("mine/file", "theirs/file"), ("theirs/file", "mine/file")):
            with pytest.raises(PathEscapes):
                await box.move(new_op(), place.at(source), place.at(target), rule)
        with pytest.raises(PathEscapes):
            await box.remove(new_op(), place.at("theirs/file"), rule)
        inner = ResolveRule(roots=[box.root], read_only_roots=[place.at("mine")])
        with pytest.raises(PathEscapes) as caught:
            await box.change(new_op(), [FileWrite(path=place.at("mine/x"))], inner)
        assert caught.value.data["reason"] == "read_only", "the innermost root counts"

    stage.run(story())


SWAP = """
import os, sys
print("up", flush=True)
while True:
    os.rename("dir", "aside")
    os.symlink(sys.argv[1], "dir")
    os.unlink("dir")
    os.rename("aside", "dir")
"""
SLOW_SWAP = """
echo up
while :; do mv dir aside; ln -s "$1" dir; rm dir; mv aside dir; done
"""
"""For images without Python: there the operations of a box are as slow."""


def test_a_link_that_is_swapped_in_leads_nowhere(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            place = await place_in(box)
            outside = await _outside(place)
            await place.write("dir/file", b"mine")
            op, up = new_op(), asyncio.Event()
            has_python = (await sh(box, "command -v python3")).exit_code == 0
            argv = ("python3", "-c", SWAP) if has_python else ("sh", "-c", SLOW_SWAP, "swap")
            swap = run(box, *argv, outside, op=op, cwd=place.path, on_output=lambda *_: up.set())
            task = asyncio.create_task(swap)
            await up.wait()
            refused = (PathEscapes, NotFound, WrongKind)
            for number in range(150):
                for act in (
                    lambda: place.read("dir/file"),
                    lambda n=number: place.write(f"dir/n{n}", b"x"),
                ):
                    try:
                        found = await act()
                    except refused:
                        continue
                    assert found in (None, b"mine")
            await box.kill(op)
            await task
            assert await said(box, f"ls {outside}") == "file\n"
            assert await said(box, f"cat {outside}/file; rm -r {outside}") == "not yours\n"

    stage.run(story())


async def _outside(place: Place) -> str:
    """A directory that the box's commands may write to and the rule does not hold."""
    path = f"/tmp/{new_op()}"
    await place.said(f"mkdir {path}; echo not yours > {path}/file")
    return path


@pytest.mark.needs("grants")
def test_grants(stage: Stage, public_dir: Path) -> None:
    (public_dir / "book").write_text("read me")
    shared = public_dir / "shared"
    shared.mkdir()
    shared.chmod(0o777)

    async def story() -> None:
        grants = [
            Grant(path="/books", host_path=str(public_dir)),
            Grant(path="/shared", host_path=str(shared), read_only=False),
        ]
        async with stage.fresh(grants=grants) as box:
            assert await said(box, "cat /books/book") == "read me"
            assert (await sh(box, "echo x > /books/book")).exit_code != 0
            assert (await sh(box, "rm -f /books/book")).exit_code != 0
            rule = ResolveRule(roots=[box.root, "/shared"], read_only_roots=["/books"])
            assert await box.read("/books/book", rule) == b"read me"
            with pytest.raises(PathEscapes) as caught:
                await box.change(new_op(), [FileWrite(path="/books/new", data=b"")], rule)
            assert caught.value.data["reason"] == "read_only"
            await box.change(new_op(), [FileWrite(path="/shared/new", data=b"mine")], rule)
            await said(box, "echo more >> /shared/new")
        assert (shared / "new").read_text() == "minemore\n"
        assert (public_dir / "book").read_text() == "read me"

    stage.run(story())
