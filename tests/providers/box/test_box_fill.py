"""Many files are laid out where nothing is yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from providers.box.agent_process import running_agent
from sandstream_providers.interface import (
    FileWrite,
    PathEscapes,
    ProviderError,
    ResolveRule,
    WrongKind,
)


def test_files_folders_and_links(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root = agent.root
            entries = [
                FileWrite(path=f"{root}/a", kind="dir", mode=0o750),
                FileWrite(path=f"{root}/a/one", data=b"1", mode=0o600),
                FileWrite(path=f"{root}/a/deep/in/two", data=b"\0\xff"),
                FileWrite(path=f"{root}/a/empty", mode=0o400),
                FileWrite(path=f"{root}/\udcff", data=b"odd"),
                FileWrite(path=f"{root}/a/link", kind="link", target="../\udcff"),
                FileWrite(path=f"{root}/a", kind="dir", mode=0o700),
            ]
            await agent.box().fill("op", entries, agent.rule)
            assert (root / "a").stat().st_mode & 0o7777 == 0o700
            assert (root / "a/one").read_bytes() == b"1"
            assert (root / "a/one").stat().st_mode & 0o7777 == 0o600
            assert (root / "a/deep/in/two").read_bytes() == b"\0\xff"
            assert (root / "a/deep/in/two").stat().st_mode & 0o7777 == 0o644
            assert (root / "a/empty").stat().st_mode & 0o7777 == 0o400
            assert (root / "a/link").read_bytes() == b"odd"

    asyncio.run(main())


def test_more_folders_than_stay_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root = agent.root
            names = [f"d{number % 150}/f{number}" for number in range(450)]
            entries = [FileWrite(path=f"{root}/{it}", data=it.encode()) for it in names]
            await agent.box().fill("op", entries, agent.rule)
            assert all((root / it).read_text() == it for it in names)

    asyncio.run(main())


def test_what_came_in_between_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root = agent.root
            outside = tmp_path / "outside"
            outside.write_text("stays")
            (root / "file").write_text("longer than what comes")
            (root / "trap").symlink_to(outside)
            (root / "link").write_text("a file")
            (root / "dir").mkdir()
            entries = [
                FileWrite(path=f"{root}/file", data=b"new"),
                FileWrite(path=f"{root}/trap", data=b"mine"),
                FileWrite(path=f"{root}/link", kind="link", target="file"),
                FileWrite(path=f"{root}/dir", kind="dir", mode=0o711),
            ]
            await agent.box().fill("op", entries, agent.rule)
            assert (root / "file").read_bytes() == b"new"
            assert (root / "trap").read_bytes() == b"mine"
            assert not (root / "trap").is_symlink()
            assert outside.read_text() == "stays"
            assert (root / "link").readlink() == Path("file")
            assert (root / "dir").stat().st_mode & 0o7777 == 0o711

    asyncio.run(main())


def test_asked_again_it_is_not_done_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            entries = [FileWrite(path=f"{agent.root}/file", data=b"first")]
            await agent.box().fill("op", entries, agent.rule)
            (agent.root / "file").write_text("worked on")
            await agent.box().fill("op", entries, agent.rule)
            assert (agent.root / "file").read_text() == "worked on"

    asyncio.run(main())


@pytest.mark.parametrize("name", ["../out", "in/../../out", "..", "a/.", "link/out", "closed/file"])
def test_nothing_lands_outside(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root = agent.root
            (root / "link").symlink_to(tmp_path)
            (root / "closed").mkdir()
            (root / "in").mkdir()
            rule = ResolveRule(roots=[str(root)], read_only_roots=[f"{root}/closed"])
            for op, first in (("alone", []), ("later", [FileWrite(path=f"{root}/in/ok")])):
                entries = [*first, FileWrite(path=f"{root}/{name}", data=b"x")]
                with pytest.raises(PathEscapes):
                    await agent.box().fill(op, entries, rule)

    asyncio.run(main())
    assert list(tmp_path.rglob("out")) == []
    assert list(tmp_path.rglob("closed/*")) == []


def test_a_neighbour_of_the_root_is_outside(tmp_path: Path) -> None:
    """The directory above the root stays open after an entry for the root itself."""

    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root = agent.root
            entries = [
                FileWrite(path=str(root), kind="dir", mode=0o755),
                FileWrite(path=f"{root.parent}/neighbour", data=b"x"),
            ]
            with pytest.raises(PathEscapes):
                await agent.box().fill("op", entries, agent.rule)
            assert not (root.parent / "neighbour").exists()

    asyncio.run(main())


def test_a_failure_says_where_and_leaves_what_came_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root = agent.root
            (root / "file").write_text("x")
            entries = [
                FileWrite(path=f"{root}/before", data=b"1"),
                FileWrite(path=f"{root}/file", kind="dir"),
                FileWrite(path=f"{root}/after", data=b"2"),
            ]
            with pytest.raises(WrongKind) as raised:
                await agent.box().fill("op", entries, agent.rule)
            assert raised.value.data["path"] == f"{root}/file"
            assert (root / "before").read_bytes() == b"1"
            assert not (root / "after").exists()
            (root / "full").mkdir()
            with pytest.raises(ProviderError):
                await agent.box().fill("dir", [FileWrite(path=f"{root}/full")], agent.rule)

    asyncio.run(main())
