"""Workspaces with directories nested deeper than a path, a stack or a table of descriptors allows:
saved and laid out again, or refused before anything is done.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers.box.agent_process import running_agent
from sandstream_providers.interface import ResolveRule, WrongKind
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer, open_bus
from workspaces.boxes import open_box

DEEP = 2_000
TOO_DEEP = 5_001
FEW_FILES = ["prlimit", "--nofile=128:128"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """What is made here is too deep for the interpreter to remove."""
    yield tmp_path
    subprocess.run(["rm", "-rf", "--", *map(str, tmp_path.iterdir())], check=True)


def nest(root: Path, depth: int, name: str) -> None:
    """So many directories in each other, with a file in every hundredth."""
    fd = os.open(root, os.O_RDONLY)
    for level in range(depth):
        os.mkdir(name, 0o755, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
        if level % 100 == 99:
            file = os.open("file", os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=fd)
            os.write(file, str(level).encode())
            os.close(file)
    os.close(fd)


def listing(root: Path) -> str:
    """All of it, by a program that goes down step by step."""
    argv = ["find", ".", "-printf", "%d %f %m %s\\n"]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    return "\n".join(" ".join(it.split()[: 3 if " file " not in it else 4]) for it in lines)


@pytest.mark.parametrize("name", ["d", "a-longer-name"])
def test_a_deep_tree_comes_back(nats_server: NatsServer, home: Path, name: str) -> None:
    async def main() -> None:
        (home / "one").mkdir()
        async with (
            open_bus(nats_server) as bus,
            running_agent(home / "one", prefix=FEW_FILES) as agent,
            open_box(home / "two") as two,
        ):
            one = agent.box()
            nest(Path(one.root), DEEP, name)
            store = WorkspaceStore(bus)
            snapshot = await store.checkpoint(one, exclude=[])
            assert snapshot.files == DEEP // 100
            await store.restore(two, snapshot.tree, op="r1")
            assert listing(Path(two.root)) == listing(Path(one.root))
            assert (await store.checkpoint(two, exclude=[])).content == snapshot.content
            deepest = "/".join([two.root, *[name] * DEEP, "file"])
            rule = ResolveRule(roots=[two.root])
            assert await two.read(deepest, rule) == str(DEEP - 1).encode()
            await two.clear("c1", [])
            assert len(listing(Path(two.root)).splitlines()) == 1, "only the root"

    asyncio.run(main())


def test_one_that_is_too_deep_is_refused(nats_server: NatsServer, home: Path) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(home / "one") as box:
            nest(Path(box.root), TOO_DEEP, "d")
            with pytest.raises(WrongKind, match="more than 5000 levels"):
                await WorkspaceStore(bus).checkpoint(box, exclude=[])
            await box.clear("c1", [])
            assert (await WorkspaceStore(bus).checkpoint(box, exclude=[])).files == 0

    asyncio.run(main())


def test_closed_directories_on_the_way_keep_their_mode(nats_server: NatsServer, home: Path) -> None:
    """They are opened to look into them, and their parents may be found again only by ``..``."""

    async def main() -> None:
        async with open_bus(nats_server) as bus, open_box(home / "one") as box:
            nest(Path(box.root), 100, "d")
            middle = Path(box.root).joinpath(*["d"] * 20)
            middle.chmod(0o300)
            snapshot = await WorkspaceStore(bus).checkpoint(box, exclude=[])
            assert middle.stat().st_mode & 0o777 == 0o300
            entries = {it.path: it for it in await WorkspaceStore(bus).entries(snapshot.tree)}
            assert entries["/".join(["d"] * 20)].mode == 0o300
            assert len(entries) == 101

    asyncio.run(main())
