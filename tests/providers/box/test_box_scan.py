"""Scans say what is there and what changed, and do not read what did not."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from providers.box.agent_process import running_agent, shell, unprivileged
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import INLINE_BYTES, Entry, FileWrite, ScanItem


async def scan(box: AgentBox, *exclude: str, full: bool = False) -> dict[str, ScanItem]:
    return {item.entry.path: item async for item in box.scan(exclude, full=full)}


def reference(root: Path) -> dict[str, tuple[str, int, str]]:
    """Kind, mode, and content or target of everything below."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        facts = path.lstat()
        mode = stat.S_IMODE(facts.st_mode)
        if stat.S_ISLNK(facts.st_mode):
            found[name] = ("link", mode, str(path.readlink()))
        elif stat.S_ISDIR(facts.st_mode):
            found[name] = ("dir", mode, "")
        elif stat.S_ISREG(facts.st_mode):
            found[name] = ("file", mode, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def as_reference(item: ScanItem) -> tuple[str, int, str]:
    entry = item.entry
    return (entry.kind, entry.mode, entry.target or entry.digest)


def test_everything_first_then_what_changed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            (root / "dir" / "sub").mkdir(parents=True)
            (root / "dir" / "file").write_bytes(b"one")
            (root / "link").symlink_to("/etc/passwd")
            (root / "big").write_bytes(bytes(INLINE_BYTES + 1))
            (root / "exact").write_bytes(bytes(INLINE_BYTES))
            (root / "empty").write_bytes(b"")
            os.mkfifo(root / "fifo")
            (root / "\udcff").write_bytes(b"odd")
            first = await scan(box)
            assert {name: as_reference(item) for name, item in first.items()} == reference(root)
            assert first["dir/file"].data == b"one"
            assert first["\udcff"].data == b"odd"
            assert first["empty"].data == b""
            assert first["exact"].data == bytes(INLINE_BYTES)
            assert first["big"].data is None
            assert first["big"].entry.size == INLINE_BYTES + 1
            assert await scan(box) == {}
            (root / "dir" / "file").write_bytes(b"two")
            (root / "empty").chmod(0o600)
            (root / "link").unlink()
            (root / "dir" / "sub").rmdir()
            second = await scan(box)
            assert sorted(second) == ["dir/file", "dir/sub", "empty", "link"]
            assert second["dir/file"].data == b"two"
            assert second["empty"].data is None
            assert second["empty"].entry.mode == 0o600
            assert second["link"].removed and second["dir/sub"].removed
            full = await scan(box, full=True)
            assert {name: as_reference(item) for name, item in full.items()} == reference(root)
            assert all(item.data is None for item in full.values())

    asyncio.run(main())


def test_excluded_paths(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            (root / "skip" / "deep").mkdir(parents=True)
            (root / "skip" / "deep" / "file").write_text("x")
            (root / "keep").mkdir()
            (root / "keep" / "skip").write_text("x")
            assert sorted(await scan(box, "skip")) == ["keep", "keep/skip"]
            assert await scan(box, "skip/") == {}
            assert sorted(await scan(box, "keep/skip")) == [
                "keep/skip",
                "skip",
                "skip/deep",
                "skip/deep/file",
            ]
            gone = await scan(box, "skip/deep", "keep/skip")
            assert {name: item.removed for name, item in gone.items()} == {
                "skip/deep": True,
                "skip/deep/file": True,
            }

    asyncio.run(main())


def test_a_scan_that_was_not_received_does_not_count(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            for number in range(1200):
                (root / f"f{number:04}").write_text(str(number))
            partly = 0
            items = box.scan([], full=False)
            async for _ in items:
                partly += 1
                if partly == 700:
                    break
            await items.aclose()  # type: ignore[attr-defined]
            other = agent.box()
            again = await scan(other)
            assert len(again) == 1200
            assert again["f0700"].data == b"700"
            for _ in range(5):
                unfinished = box.scan([], full=True)
                await anext(unfinished)
                await unfinished.aclose()  # type: ignore[attr-defined]
            assert await scan(other) == {}

    asyncio.run(main())


def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            for number in range(50):
                (root / "file").write_bytes(b"%03d" % number)
                found = await scan(box)
                assert found["file"].data == b"%03d" % number

    asyncio.run(main())


def test_random_changes_against_a_reference(tmp_path: Path) -> None:
    async def main() -> None:
        rng = random.Random(7)
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            mirror: dict[str, tuple[str, int, str]] = {}
            for _ in range(25):
                for _ in range(rng.randrange(12)):
                    change_something(root, rng)
                for name, item in (await scan(box)).items():
                    if item.removed:
                        del mirror[name]
                    else:
                        mirror[name] = as_reference(item)
                    if item.data is not None:
                        assert hashlib.sha256(item.data).hexdigest() == item.entry.digest
                assert mirror == reference(root)

    asyncio.run(main())


def change_something(root: Path, rng: random.Random) -> None:
    name = root / "/".join(rng.choice("abc") for _ in range(rng.randrange(1, 4)))
    if any(parent.is_symlink() or parent.is_file() for parent in (name, *name.parents)):
        if name.is_symlink() or name.is_file():
            rng.choice([name.unlink, lambda: None])()
        return
    if name.is_dir():
        if rng.random() < 0.3 and not any(name.iterdir()):
            name.rmdir()
        return
    name.parent.mkdir(parents=True, exist_ok=True)
    changes: list[Callable[[], object]] = [
        lambda: name.mkdir(),
        lambda: name.symlink_to(rng.choice(["a", "/b", "../c"])),
        lambda: name.write_bytes(rng.randbytes(rng.randrange(2000))),
        lambda: name.write_bytes(b"same"),
    ]
    rng.choice(changes)()


def test_primed_files_are_not_read(tmp_path: Path) -> None:
    """A digest that was told is believed: seen by telling a wrong one."""

    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            writes = [FileWrite(path=f"{root}/{name}", data=b"abc") for name in "xyz"]
            await box.change("op", writes, agent.rule)
            told = [
                Entry(path="x", kind="file", size=3, digest="told"),
                Entry(path="y", kind="file", size=4, digest="wrong size"),
                Entry(path="none", kind="file", size=3, digest="told"),
                Entry(path="d", kind="dir"),
            ]
            await box.prime(told)
            found = await scan(box, full=True)
            assert found["x"].entry.digest == "told"
            assert found["x"].data is None
            assert found["y"].data == b"abc"
            (root / "x").write_bytes(b"abd")
            found = await scan(box)
            assert found["x"].data == b"abd"

    asyncio.run(main())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_files_without_permission_are_read_by_their_owner(tmp_path: Path) -> None:
    config = unprivileged(tmp_path)

    async def main() -> None:
        async with running_agent(tmp_path, **config) as agent:
            root, box = agent.root, agent.box()
            await box.run("op", shell(f"cd {root}; mkdir a; echo x > a/f; chmod 0 a/f; chmod 0 a"))
            found = await scan(box)
            assert found["a/f"].data == b"x\n"
            assert found["a/f"].entry.mode == found["a"].entry.mode == 0
            assert stat.S_IMODE((root / "a").stat().st_mode) == 0
            await box.clear("clear")
            assert reference(root) == {}

    asyncio.run(main())


def test_clear(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            root, box = agent.root, agent.box()
            await box.run("fill", shell(f"cd {root} && mkdir -p a/b/c d && touch a/b/f a/g d/h i"))
            (root / "j").symlink_to("d")
            await box.clear("1", ["a/b/f", "d"])
            assert sorted(reference(root)) == ["a", "a/b", "a/b/f", "d", "d/h"]
            await box.clear("1")
            assert len(reference(root)) == 5
            await box.clear("2")
            assert reference(root) == {}

    asyncio.run(main())
