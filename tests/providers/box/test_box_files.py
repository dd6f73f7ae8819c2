"""Files in a box: what each operation does, what it refuses, and where it will not be led."""

from __future__ import annotations

import asyncio
import collections
import ctypes
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from providers.box.agent_process import AgentProcess, running_agent, shell
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import (
    FileWrite,
    NoSpace,
    NotFound,
    NotPermitted,
    PathEscapes,
    ProviderError,
    ResolveRule,
    WrongKind,
)

Scenario = Callable[[AgentProcess, AgentBox], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            await scenario(agent, agent.box())

    asyncio.run(main())


def test_read_stat_and_list(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        content = os.urandom(9_000_000)  # more than is sent at once
        (root / "big").write_bytes(content)
        (root / "big").chmod(0o640)
        (root / "sub").mkdir()
        (root / "link").symlink_to("big")
        (root / "\udcff\udcfe").write_text("odd")
        assert await box.read(f"{root}/big", rule) == content
        assert await box.read(f"{root}/big", rule, offset=8_500_000) == content[8_500_000:]
        assert await box.read(f"{root}/big", rule, offset=5, limit=10) == content[5:15]
        assert await box.read(f"{root}/big", rule, limit=0) == b""
        assert await box.read(f"{root}/big", rule, limit=8_900_000) == content[:8_900_000]
        assert await box.read(f"{root}/big", rule, offset=10_000_000) == b""
        assert await box.read(f"{root}/\udcff\udcfe", rule) == b"odd"
        facts = await box.stat(f"{root}/sub/../link", rule)
        assert (facts.path, facts.kind, facts.mode) == (f"{root}/big", "file", 0o640)
        assert facts.size == 9_000_000
        assert facts.mtime_ns == (root / "big").stat().st_mtime_ns
        assert (await box.stat(str(root), rule)).kind == "dir"
        listed = await box.list(str(root), rule)
        assert [(entry.path, entry.kind) for entry in listed] == [
            ("big", "file"),
            ("link", "link"),
            ("sub", "dir"),
            ("\udcff\udcfe", "file"),
        ]
        assert listed[1].target == "big"

    play(tmp_path, scenario)


def test_what_reading_refuses(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        os.mkfifo(root / "fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            here = os.open(".", os.O_RDONLY)
            os.chdir(root)
            listener.bind("socket")
            os.fchdir(here)
            os.close(here)
        (root / "file").write_text("x")
        for name in ("fifo", "socket", "."):
            with pytest.raises(WrongKind):
                await box.read(f"{root}/{name}", rule)
        with pytest.raises(WrongKind):
            await box.read("/dev/null", ResolveRule(roots=["/dev"]))
        with pytest.raises(WrongKind):
            await box.list(f"{root}/file", rule)
        with pytest.raises(WrongKind):
            await box.read(f"{root}/file/below", rule)
        for path in ("none", "none/below"):
            with pytest.raises(NotFound):
                await box.read(f"{root}/{path}", rule)
            with pytest.raises(NotFound):
                await box.stat(f"{root}/{path}", rule)
            with pytest.raises(NotFound):
                await box.list(f"{root}/{path}", rule)

    play(tmp_path, scenario)


def test_directories_removal_and_moves(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        with pytest.raises(NotFound):
            await box.make_dir("1", f"{root}/a/b", rule)
        await box.make_dir("2", f"{root}/a/b", rule, parents=True)
        await box.make_dir("3", f"{root}/a/b", rule, parents=True)
        with pytest.raises(WrongKind):
            await box.make_dir("4", f"{root}/a/b", rule)
        (root / "a" / "file").write_text("x")
        (root / "link").symlink_to("a")
        with pytest.raises(WrongKind):
            await box.make_dir("5", f"{root}/a/file", rule, parents=True)
        with pytest.raises(WrongKind):
            await box.remove("6", f"{root}/a", rule)
        with pytest.raises(NotFound):
            await box.remove("7", f"{root}/none", rule)
        await box.remove("8", f"{root}/link", rule, recursive=True)
        assert (root / "a" / "file").exists()
        await box.move("9", f"{root}/a/file", f"{root}/new/place", rule)
        assert (root / "new" / "place").read_text() == "x"
        with pytest.raises(WrongKind):
            await box.move("10", f"{root}/new/place", f"{root}/a", rule)
        with pytest.raises(NotFound):
            await box.move("11", f"{root}/none", f"{root}/b", rule)
        (root / "a" / "b").chmod(0)
        await box.remove("12", f"{root}/a", rule, recursive=True)
        assert not (root / "a").exists()
        with pytest.raises(NotPermitted):
            await box.remove("13", str(root), rule, recursive=True)

    play(tmp_path, scenario)


def test_appending(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        path = f"{root}/sub/file"
        with pytest.raises(NotFound):
            await box.append("0", path, b"x", rule, at=5)
        await box.append("1", path, b"abc", rule, at=0)
        await box.append("2", path, b"def", rule, at=3)
        assert await box.read(path, rule) == b"abcdef"
        await box.append("2-forgotten", path, b"def", rule, at=3)
        assert await box.read(path, rule) == b"abcdef"
        with pytest.raises(WrongKind, match="6 bytes"):
            await box.append("3", path, b"x", rule, at=7)
        with pytest.raises(WrongKind):
            await box.append("4", str(root), b"x", rule, at=0)

    play(tmp_path, scenario)


def test_a_full_disk(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        (root / "file").write_bytes(b"old")
        with pytest.raises(NoSpace):
            changes = [
                FileWrite(path=f"{root}/file", data=b"new"),
                FileWrite(path=f"{root}/more", data=bytes(200_000)),
            ]
            await box.change("1", changes, rule)
        assert {entry.name: entry.read_bytes() for entry in root.iterdir()} == {"file": b"old"}
        with pytest.raises(NoSpace):
            await box.append("2", f"{root}/file", bytes(200_000), rule, at=3)
        assert (root / "file").read_bytes() == b"old"
        output = await box.run("3", shell("head -c 300000 /dev/zero; echo end"))
        assert output.exit_code == 0
        assert len(output.stdout) + output.dropped == 300_004

    async def main() -> None:
        async with running_agent(tmp_path, prefix=["prlimit", "--fsize=100000:100000"]) as agent:
            await scenario(agent, agent.box())

    asyncio.run(main())


@pytest.mark.parametrize("path", ["{out}/secret", "{root}/../outside/secret", "{root}/a/secret"])
def test_no_way_out(tmp_path: Path, path: str) -> None:
    """By an absolute path, by dots, by a link."""

    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_text("secret")
        (root / "a").symlink_to(outside)
        (root / "mine").write_text("mine")
        bad = path.format(root=root, out=outside)
        new = bad.replace("secret", "new")
        tries: list[Awaitable[object]] = [
            box.read(bad, rule),
            box.stat(bad, rule),
            box.list(bad, rule),
            box.stat(new, rule),
            box.make_dir("1", new, rule, parents=True),
            box.remove("2", bad, rule),
            box.move("3", bad, f"{root}/x", rule),
            box.move("4", f"{root}/mine", new, rule),
            box.append("5", bad, b"x", rule, at=0),
            *(
                box.change(f"c-{kind}", [FileWrite(path=bad, kind=kind, target=f"{root}/y")], rule)
                for kind in ("file", "dir", "link", "remove", "move")
            ),
            box.change("6", [FileWrite(path=new, data=b"x")], rule),
            box.change("7", [FileWrite(path=f"{root}/mine", kind="move", target=new)], rule),
        ]
        for attempt in tries:
            with pytest.raises(PathEscapes) as refused:
                await attempt
            assert refused.value.data["reason"] == "escape"
        assert [(f.name, f.read_text()) for f in outside.iterdir()] == [("secret", "secret")]
        assert sorted(f.name for f in root.iterdir()) == ["a", "mine"]

    play(tmp_path, scenario)


def test_links_within_the_roots_are_followed(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        (root / "real").mkdir()
        (root / "up").symlink_to("real/../real")
        (root / "absolute").symlink_to(f"{root}/real/file")
        await box.change("1", [FileWrite(path=f"{root}/absolute", data=b"1")], rule)
        assert (root / "real" / "file").read_bytes() == b"1"
        assert (root / "absolute").is_symlink()
        assert await box.read(f"{root}/up/file", rule) == b"1"
        (root / "loop").symlink_to("loop")
        with pytest.raises(PathEscapes) as refused:
            await box.read(f"{root}/loop", rule)
        assert refused.value.data["reason"] == "depth"
        await box.remove("2", f"{root}/loop", rule)

    play(tmp_path, scenario)


def test_read_only_roots(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        given = agent.root / "given"
        given.mkdir()
        (given / "file").write_text("x")
        rule = ResolveRule(roots=[str(agent.root)], read_only_roots=[str(given)])
        assert await box.read(f"{given}/file", rule) == b"x"
        for attempt in (
            box.remove("1", f"{given}/file", rule),
            box.change("2", [FileWrite(path=f"{given}/new")], rule),
            box.make_dir("3", f"{given}/new", rule),
        ):
            with pytest.raises(PathEscapes) as refused:
                await attempt
            assert refused.value.data["reason"] == "read_only"
        inner = ResolveRule(roots=[str(given)], read_only_roots=[str(agent.root)])
        await box.change("4", [FileWrite(path=f"{given}/new")], inner)
        assert (given / "new").exists()

    play(tmp_path, scenario)


def exchange(one: Path, other: Path) -> None:
    """Both names at once: there is no moment without either."""
    here, swap_them = -100, 2
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(here, bytes(one), here, bytes(other), swap_them) == 0


def test_a_link_that_is_swapped_in_leads_nowhere(tmp_path: Path) -> None:
    """A command turns a directory into a link to the outside, again and again, meanwhile."""

    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        root, rule = agent.root, agent.rule
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_text("secret")
        (root / "way").mkdir()
        (root / "way" / "file").write_text("mine")
        (root / "link").symlink_to(outside)
        stop = threading.Event()

        def swap() -> None:
            while not stop.is_set():
                exchange(root / "way", root / "link")

        swapper = threading.Thread(target=swap)
        swapper.start()
        refusals = collections.Counter[type[ProviderError]]()
        try:
            for number in range(200):
                for attempt in (
                    box.change(f"c{number}", [FileWrite(path=f"{root}/way/new{number}")], rule),
                    box.append(f"a{number}", f"{root}/way/file", b"mine", rule, at=0),
                    box.remove(f"r{number}", f"{root}/way/new{number - 1}", rule),
                    box.read(f"{root}/way/file", rule),
                ):
                    try:
                        assert await attempt in (None, b"mine", b"")
                    except (PathEscapes, NotFound) as refused:
                        refusals[type(refused)] += 1
        finally:
            stop.set()
            swapper.join()
        assert refusals[PathEscapes] > 0
        assert [(f.name, f.read_text()) for f in outside.iterdir()] == [("file", "secret")]

    play(tmp_path, scenario)


def test_unknown_requests_are_refused(tmp_path: Path) -> None:
    async def scenario(agent: AgentProcess, box: AgentBox) -> None:
        with pytest.raises(ProviderError, match="cannot 'dance'"):
            await box._ask({"do": "dance"})
        with pytest.raises(ProviderError, match="'spec'"):
            await box._ask({"do": "run", "op": "x"})
        with pytest.raises(PathEscapes):
            await box.read("relative", agent.rule)
        with pytest.raises(PathEscapes):
            await box.read(f"{agent.root}/a\0b", agent.rule)

    play(tmp_path, scenario)
